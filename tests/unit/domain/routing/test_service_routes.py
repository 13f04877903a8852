# SPDX-License-Identifier: Apache-2.0

"""Subnet managers on leaves, L2 switches and spines, imported from dumps; judged by walks."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import permutations

import pytest

from laas_service.adapters.fabric_import.fabric_file import FabricFile
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.routing.service_routes import AllowedTurns
from laas_service.domain.verification import (
    Walks,
    credit_loop,
    physical_tables,
    walk_violations,
)
from tests.managers import EIGHT_RAILS, MANAGERS, PLACES, dumped, eight_rails, imported
from tests.partitions import tenant
from tests.shared import needs_shared

EVERYTHING = os.environ.get("LAAS_KEYS") == "full"
"""Whether the largest fabrics are tried, as ``tox -e keys`` does."""


def told(fabric: FabricFile, kind: str) -> list[str]:
    """What the import reports of a kind."""
    assert fabric.report is not None
    return [odd.detail for odd in fabric.report.irregularities if odd.kind == kind]


def tenants(fabric: FabricFile, *sizes: int) -> list[Allocation]:
    ledger = Ledger(fabric.topology)
    placed = [admit(Jigsaw(), ledger, Request(f"t{n}", size)) for n, size in enumerate(sizes)]
    return [answer for answer in placed if isinstance(answer, Allocation)]


def judged(fabric: FabricFile, allocations: list[Allocation]) -> tuple[Walks, dict[int, bytes]]:
    """The walks over the tables of the allocations; asserts that there is no credit loop."""
    tables = forwarding_tables(fabric.topology, fabric.inventory, allocations)
    places = {guid: place for place, guid in enumerate(tables.destinations)}
    physical = physical_tables(tables.rows, places)
    managers = [manager.guid for manager in fabric.inventory.managers]
    assert managers
    assert credit_loop(fabric.inventory, physical) == []
    walks = walk_violations(fabric.topology, fabric.inventory, physical, allocations, managers)
    return walks, tables.rows


@pytest.mark.parametrize("kind", PLACES)
def test_on_eight_rails_a_manager_may_be_anywhere(kind):
    fabric = eight_rails(kind)
    beside = told(fabric, "host beside a subnet manager")
    assert len(beside) == (4 if "leaf" in kind else 0)
    assert all("kept out" in detail for detail in beside)
    placed = tenants(fabric, 3, 8, 2, 4, 1)
    assert len(placed) >= 4
    walks, _ = judged(fabric, placed)
    assert (walks.violations, walks.unmanaged, walks.beside_managers) == ([], [], 0)


def test_hosts_beside_a_manager_are_offered_if_named_and_their_pairs_are_counted():
    made = generate(EIGHT_RAILS).inventory
    fabric = imported(made, replace(MANAGERS, include=("node*",)))
    beside = told(fabric, "host beside a subnet manager")
    assert len(beside) == 4
    assert all("--include names it" in detail for detail in beside)
    three, sixteen = tenants(fabric, 3, 16)  # the second one owns spine links
    walks, _ = judged(fabric, [three, sixteen])
    assert (walks.violations, walks.beside_managers) == ([], 0)  # there is a way round them
    columns = fabric.topology.columns_per_pod
    every_spine = [(pod, column, 0b111) for pod in range(2) for column in range(columns)]
    every_uplink = (1 << 4 * fabric.topology.planes) - 1
    wide = tenant("wide", [(group, 0b1111, every_uplink) for group in (1, 2, 3, 4)], every_spine)
    walks, _ = judged(fabric, [three, wide])
    assert walks.violations == []
    assert walks.beside_managers > 0


def test_a_host_on_rails_of_one_pod_stays_beside_a_manager():
    made = generate(Description(xgft="3;2,4,2;1,4,4", rails=2, subnet_managers=1))
    fabric = imported(made.inventory)
    assert fabric.topology.hosts == made.topology.hosts
    assert judged(fabric, tenants(fabric, 3, 1))[0].violations == []


REAL = [
    ("lab4sw-2023", 2, False),
    ("dgx-ndr-2025", 2, False),
    ("lassen-edr-2019", 2, False),
    ("lassen-edr-2019", 3, True),
]
"""Dump, the level of the switch that gets a manager, and whether LIDs remain without routes."""


@needs_shared
@pytest.mark.parametrize(("name", "level", "some_remain"), REAL if EVERYTHING else REAL[:2])
def test_on_real_fabrics_every_host_reaches_a_manager_above_the_leaves(name, level, some_remain):
    fabric = dumped(name, level)
    sizes = {"lab": (1,), "dgx": (7, 30, 5, 1), "las": (90, 41, 200, 7, 1)}[name[:3]]
    walks, _ = judged(fabric, tenants(fabric, *sizes))
    cut = told(fabric, "no route to a subnet manager")
    assert (walks.violations, bool(walks.unmanaged), bool(cut)) == ([], some_remain, some_remain)
    assert len(walks.unmanaged) < 100


def test_turns_are_accepted_only_while_no_cycle_closes():
    """Leaves 0 and 1, switches 2 and 3 above both; a turn at each leaf would close a cycle."""
    neighbors = [[2, 3], [2, 3], [0, 1], [0, 1]]
    for turns in permutations([(2, 0, 3), (3, 1, 2)]):
        assert [AllowedTurns(neighbors, []).allow([turn]) for turn in turns] == [True, True]
        both = AllowedTurns(neighbors, [])
        assert [both.allow([turn]) for turn in turns] == [True, False]
        assert both.known(turns[:1])
        assert not both.known(turns)
    one_leaf = AllowedTurns(neighbors, [])
    assert one_leaf.allow([(2, 0, 3), (3, 0, 2)])
    assert not AllowedTurns(neighbors, [(2, 0, 3)]).allow([(3, 0, 2), (3, 1, 2)])
