# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""laas-manage fabric verify: every promise, derived anew from what is recorded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from laas_service.app.records import FabricRecord, State
from laas_service.cmd.manage.shared import fabric_of, parts_of
from laas_service.domain import verification
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput
from laas_service.wiring import Parts
from opensm_writer.reader import dumped_tables

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    add = commands.add_parser("verify", help="re-derive every promise from what is recorded")
    add.add_argument("id", nargs="?", help="fabric; may be left out where there is one")
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


def verify(args: argparse.Namespace) -> int:
    """Print every broken promise; 0 none, 1 some, 2 (by ``main``) could not check."""
    parts = parts_of(args)
    record = fabric_of(parts, args.id)
    ledger, generation = parts.store.ledger(record.id)
    held = sorted(ledger.everybody(), key=lambda allocation: allocation.id)
    changing = _changing(parts, record.id)
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
    checked = "the record"
    if args.lfts:
        walks = _walked(record, held, args.lfts, args.subnet_manager)
        found += walks.violations
        checked += f" and on {walks.tenant_pairs} walks inside tenants"
        if args.subnet_manager:
            checked += f" and {walks.manager_pairs} from and to subnet managers"
        if record.shared_plane:
            checked += f" and {walks.shared_pairs} over the shared plane"
        if walks.neighbours:
            checked += (
                f" ({walks.neighbours} more begin on a tenant's own leaf, where what a service "
                "sends to that tenant goes over the tenant's links)"
            )
    for violation in found:
        print(violation)
    print(
        f"{record.id}, generation {generation}: {len(allocations)} allocations, "
        f"{len(found) or 'no'} violations in {checked}"
    )
    return 1 if found else 0


def _changing(parts: Parts, fabric_id: str) -> dict[str, Allocation]:
    """The new placements of allocations that still hold their old one too."""
    found: dict[str, Allocation] = {}
    marker = None
    while page := parts.store.allocations(
        fabric=fabric_id, states=[State.ACTIVE, State.RELEASING], marker=marker
    ):
        found |= {one.id: one.placed for one in page if one.phase and one.placed}
        marker = page[-1].id
    return found


def _walked(
    record: FabricRecord, allocations: list[Allocation], source: str, managers: list[int]
) -> verification.Walks:
    """Reachability, isolation and credit loops in the tables that the switches hold."""
    inventory = record.inventory
    rows = _dumped(source)
    if not rows.keys() & inventory.switch_of_guid.keys():
        raise InvalidInput(
            "--lfts", source, "give what dump_lfts prints for this fabric, or opensm-lfts.dump"
        )
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
