# SPDX-License-Identifier: Apache-2.0

"""laas-manage fabric verify: every promise, derived anew from what is recorded."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from laas_service.app.lifecycle import HOLDING
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.records import FabricRecord
from laas_service.cmd.manage.shared import parts_of
from laas_service.domain import verification
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput, LaasError, Unavailable
from laas_service.wiring import Parts
from opensm_writer.parse import dumped_tables

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

TRIES = 10
"""Times that a fabric is read until nothing came between."""


def add(commands: Commands) -> None:
    add = commands.add_parser("verify", help="re-derive every promise from what is recorded")
    add.add_argument("id", nargs="?", help="fabric; all of them if it is left out")
    add.add_argument("--json", action="store_true", help="print one JSON document")
    add.add_argument(
        "--lfts",
        metavar="FILE",
        help="also walk these tables: output of dump_lfts, or opensm-lfts.dump; - for stdin",
    )
    add.add_argument(
        "--subnet-manager",
        action="append",
        default=[],
        type=guid,
        metavar="GUID",
        help="port of a subnet manager, which must reach everything; may be repeated",
    )
    add.add_argument(
        "--permutations",
        type=int,
        default=3,
        metavar="N",
        help="random permutations routed for each allocation, besides adversarial ones",
    )
    add.set_defaults(command=verify)


def guid(text: str) -> int:
    return int(text, 16)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one fabric; ``walks`` counts those over the tables, by what they are
    for, None without tables; ``unsettled`` says why tables may be of another generation."""

    fabric: str
    generation: int
    allocations: int
    violations: list[str]
    walks: dict[str, int] | None = None
    unsettled: str | None = None

    def __str__(self) -> str:
        found = f"{len(self.violations) or 'no'} violations in {self._checked()}"
        unsettled = f"; {self.unsettled}" if self.unsettled else ""
        counted = f"{self.allocations} allocations, {found}{unsettled}"
        return f"{self.fabric}, generation {self.generation}: {counted}"

    def _checked(self) -> str:
        if self.walks is None:
            return "the record"
        checked = f"the record and on {self.walks['tenants']} walks inside tenants"
        if managers := self.walks["managers"]:
            checked += f" and {managers} from and to subnet managers"
        if shared := self.walks["shared"]:
            checked += f" and {shared} over the shared plane"
        if neighbours := self.walks["neighbours"]:
            checked += (
                f" ({neighbours} more begin on a tenant's own leaf, where what a service "
                "sends to that tenant goes over the tenant's links)"
            )
        return checked


def verify(args: argparse.Namespace) -> int:
    """Print every broken promise; 0 none, 1 some, 2 (also by ``main``) could not look.

    A fabric that cannot be looked at does not keep the others from it.
    """
    parts = parts_of(args)
    parts.store.check()
    records = [parts.store.fabric(args.id)] if args.id else parts.store.fabrics()
    if not records:
        raise InvalidInput("id", "", "there is no fabric; import one")
    tables = _dumped(args.lfts) if args.lfts else None
    if tables is not None and not any(_has(record, tables) for record in records):
        raise InvalidInput(
            "--lfts", args.lfts, "give what dump_lfts prints for this fabric, or opensm-lfts.dump"
        )
    verdicts, failures = [], {}
    for record in records:
        try:
            verdicts.append(_judged(parts, record, tables, args))
        except LaasError as error:
            failures[record.id] = str(error)
    (_say_json if args.json else _say)(verdicts, failures)
    if failures:
        return 2
    return 1 if any(verdict.violations for verdict in verdicts) else 0


def _say(verdicts: list[Verdict], failures: Mapping[str, str]) -> None:
    for verdict in verdicts:
        for violation in verdict.violations:
            print(violation)
        print(verdict)
    for fabric, why in failures.items():
        print(f"laas-manage: {fabric} was not looked at: {why}", file=sys.stderr)


def _say_json(verdicts: list[Verdict], failures: Mapping[str, str]) -> None:
    print(json.dumps({"fabrics": [asdict(one) for one in verdicts], "failures": dict(failures)}))


def _judged(
    parts: Parts, record: FabricRecord, tables: Mapping[int, bytes] | None, args: argparse.Namespace
) -> Verdict:
    held, changing, generation = _steady(parts, record.id)
    allocations = [changing.get(one.id, one) for one in held]
    chance = Random(0)  # noqa: S311 - the same permutations every time
    found = verification.violations(
        record.topology,
        allocations,
        chance,
        permutations=args.permutations,
        plane=record.shared_plane,
    )
    found += [
        text
        for text in verification.isolation_violations(record.topology, held)
        if text not in found
    ]
    if tables is None or not _has(record, tables):
        return Verdict(record.id, generation, len(allocations), found)
    walks = _walked(record, held, tables, args.subnet_manager)
    counts = {
        "tenants": walks.tenant_pairs,
        "managers": walks.manager_pairs if args.subnet_manager else 0,
        "shared": walks.shared_pairs if record.shared_plane else 0,
        "neighbours": walks.neighbours,
    }
    found += walks.violations
    return Verdict(
        record.id, generation, len(allocations), found, counts, _unsettled(parts, record.id)
    )


def _unsettled(parts: Parts, fabric_id: str) -> str | None:
    """Why the tables may not be those of the record; the worker notes what it sees there."""
    wanted, seen = parts.store.fabric(fabric_id).routes_generation, parts.store.holding(fabric_id)
    if seen.seen_at is None or seen.applied == wanted:
        return None
    return f"the routes of generation {wanted} are not confirmed yet, look again when they are"


def _steady(parts: Parts, fabric_id: str) -> tuple[list[Allocation], dict[str, Allocation], int]:
    """Who holds what, and the new placements of those that change, of one moment.

    Raises:
        Unavailable: the fabric did not keep still while it was read.
    """
    for _ in range(TRIES):
        ledger, generation = parts.store.ledger(fabric_id)
        changing = _changing(parts, fabric_id)
        if parts.store.fabric(fabric_id).generation == generation:
            held = sorted(ledger.everybody(), key=lambda allocation: allocation.id)
            return held, changing, generation
    raise Unavailable(f"fabric {fabric_id} changed each of {TRIES} times it was read; try again")


def _changing(parts: Parts, fabric_id: str) -> dict[str, Allocation]:
    """The new placements of allocations that still hold their old one too."""
    records = every_allocation(parts.store, fabric=fabric_id, states=HOLDING)
    return {record.id: record.change.new for record in records if record.change}


def _has(record: FabricRecord, tables: Mapping[int, bytes]) -> bool:
    """Whether some of these tables are of switches of the fabric."""
    return bool(tables.keys() & record.inventory.switch_of_guid.keys())


def _walked(
    record: FabricRecord,
    allocations: list[Allocation],
    rows: Mapping[int, bytes],
    managers: list[int],
) -> verification.Walks:
    """Reachability, isolation and credit loops in the tables that the switches hold."""
    inventory = record.inventory
    tables = verification.physical_tables(rows, inventory.lids)
    walks = verification.walk_violations(
        record.topology, inventory, tables, allocations, managers, record.shared_plane
    )
    loop = verification.credit_loop(inventory, tables)
    if loop:
        ports = ", ".join(f"{guid:#018x} port {port}" for guid, port in loop)
        walks.violations.append(f"deadlock: these ports may wait for each other: {ports}")
    return walks


def _dumped(source: str) -> dict[int, bytes]:
    if source == "-":
        return dumped_tables(sys.stdin)
    try:
        with Path(source).open(errors="replace") as lines:
            return dumped_tables(lines)
    except OSError as error:
        why = f"give a file that can be read ({(error.strerror or str(error)).lower()})"
        raise InvalidInput("--lfts", source, why) from error
