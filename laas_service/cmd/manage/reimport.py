# SPDX-License-Identifier: Apache-2.0

"""laas-manage fabric reimport: review and record a re-cabled fabric while tenants run."""

import argparse
from collections import Counter

from laas_service.adapters.fabric_import.review import Review, review
from laas_service.cmd.manage.fabrics import read_file
from laas_service.cmd.manage.shared import fabric_of, parts_of
from laas_service.domain.errors import Conflict
from laas_service.domain.reimport import Layout


def reimport(args: argparse.Namespace) -> int:
    """Print the changes and the allocations they affect, or record them; 1 if refused."""
    file = read_file(args)
    parts = parts_of(args)
    record = fabric_of(parts, args.fabric)
    ledger, generation = parts.store.fabrics.ledger(record.id)
    while ledger.topology is not record.topology:  # another import came in between
        record = parts.store.fabrics.get(record.id)
        ledger, generation = parts.store.fabrics.ledger(record.id)
    reviewed = review(record, ledger, generation, Layout(file.topology, file.inventory))
    _print_review(record.id, reviewed)
    if reviewed.refused:
        return 1
    if not reviewed.changes:
        return 0
    if args.apply != reviewed.token:
        print(f"to record this, add: --apply {reviewed.token}")
        if args.apply is not None:
            raise Conflict(_mismatch(args.apply, reviewed))
        return 0
    news = {each.allocation: "; ".join(each.news) for each in reviewed.effects if each.news}
    recorded = parts.store.fabrics.reimport(
        record.id, generation, reviewed.before, reviewed.after, news
    )
    print(f"{record.id}: recorded as generation {recorded}")
    return 0


def _mismatch(token: str, current: Review) -> str:
    """Why a token is not that of the current review."""
    generation = token.partition("-")[0]
    if generation != str(current.generation):
        reason = f"the fabric was at generation {generation} and is at {current.generation}"
    else:
        reason = "FILE or its options differ"
    return f"--apply {token} is not this review: {reason}; check the output, then apply its token"


def _print_review(id: str, reviewed: Review) -> None:
    counts = Counter(change.kind for change in reviewed.changes)
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"{id}, generation {reviewed.generation}: {summary or 'nothing changed'}")
    for change in reviewed.changes:
        print(f"  {change}")
    for name in reviewed.kept:
        print(f"  kept as failed, though FILE lacks it: {name}")
    for effect in reviewed.effects:
        for line in effect.refused:
            print(f"allocation {effect.allocation}: refused: {line}")
        for line in effect.news:
            print(f"allocation {effect.allocation}: {line}")
        if not effect.refused and not effect.news:
            print(f"allocation {effect.allocation}: unaffected")
    if reviewed.refused:
        print("refused: release these allocations, or fail links and repair, and review it again")
