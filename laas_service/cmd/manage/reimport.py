# SPDX-License-Identifier: Apache-2.0

"""laas-manage fabric reimport: new cables under running tenants, reviewed first."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from laas_service.adapters.fabric_import.review import Review, review
from laas_service.cmd.manage.fabrics import add_file, read_file
from laas_service.cmd.manage.shared import fabric_of, parts_of
from laas_service.domain.errors import Conflict
from laas_service.domain.reimport import Layout

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    add = commands.add_parser(
        "reimport", help="take in what was re-cabled, added or replaced; without --apply only look"
    )
    add_file(add)
    add.add_argument("--id", help="fabric; may be left out where there is one")
    add.add_argument(
        "--apply",
        metavar="TOKEN",
        help="record what a review printed under this token; fails if anything has changed since",
    )
    add.set_defaults(command=reimport)


def reimport(args: argparse.Namespace) -> int:
    """Print what would change and whom it concerns, or do it; 1 if it is refused."""
    file = read_file(args)
    parts = parts_of(args)
    record = fabric_of(parts, args.id)
    ledger, generation = parts.store.ledger(record.id)
    while ledger.topology is not record.topology:  # somebody else imported in between
        record = parts.store.fabric(record.id)
        ledger, generation = parts.store.ledger(record.id)
    found = review(record, ledger, generation, Layout(file.topology, file.inventory))
    _say(record.id, found)
    if found.refused:
        return 1
    if not found.changes:
        return 0
    if args.apply != found.token:
        print(f"to record this, add: --apply {found.token}")
        if args.apply is not None:
            raise Conflict(_moved_on(args.apply, found))
        return 0
    news = {one.allocation: "; ".join(one.news) for one in found.effects if one.news}
    recorded = parts.store.reimport(record.id, generation, found.before, found.after, news)
    print(f"{record.id}: recorded as generation {recorded}")
    return 0


def _moved_on(token: str, found: Review) -> str:
    reviewed = token.partition("-")[0]
    if reviewed != str(found.generation):
        why = f"the fabric was at generation {reviewed} and is at {found.generation}"
    else:
        why = "FILE or its options differ"
    return f"--apply {token} is not what was reviewed: {why}; review what is printed, apply that"


def _say(id: str, found: Review) -> None:
    counts = Counter(change.kind for change in found.changes)
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{id}, generation {found.generation}: {summary or 'nothing changed'}")
    for change in found.changes:
        print(f"  {change}")
    for name in found.kept:
        print(f"  kept as failed, though FILE lacks it: {name}")
    for effect in found.effects:
        for line in effect.refused:
            print(f"allocation {effect.allocation}: refused: {line}")
        for line in effect.news:
            print(f"allocation {effect.allocation}: {line}")
        if not effect.refused and not effect.news:
            print(f"allocation {effect.allocation}: unaffected")
    if found.refused:
        print("refused: release these allocations, or fail links and repair, and review it again")
