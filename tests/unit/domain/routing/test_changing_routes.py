# SPDX-License-Identifier: Apache-2.0

"""Routes change under traffic: packets stay on the tenant's links with old and new entries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.adapters.fabric_import.lids import pinned
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.faults.repair import repair
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.routing.fabric_tables import ForwardingTables
from laas_service.domain.topology import Link, Topology, Xgft
from laas_service.domain.verification import credit_loop, physical_tables, walk_violations
from laas_service.messages import FabricState, TenantRoute
from opensm_writer.desired import SubnetConfiguration, subnet_configuration
from tests.unit.domain.verification.sound import CABLES, FULL, RAILS, TAPERED, inventory_of
from tests.walks import Hop, Mixed, Walks

WIDE = Topology(Xgft((2, 4, 3), (1, 4, 4)))


def wired(topology: Topology) -> Inventory:
    """The inventory with the LIDs that a subnet manager assigns."""
    inventory = inventory_of(topology)
    lids = pinned(inventory.endpoints, inventory.switches, [0xFF0000])
    return replace(inventory, lids=lids)


FABRICS = {
    name: (topology, wired(topology))
    for name, topology in {
        "full": FULL,
        "wide": WIDE,
        "tapered": TAPERED,
        "cables": CABLES,
        "rails": RAILS,
    }.items()
}
KEYS = {"t": 0x10, "u": 0x11, "v": 0x12}


class Case:
    """Tenants on a fabric; some links of one of them have failed, repairable or not."""

    def __init__(self, name: str, rng: Random) -> None:
        self.topology, self.inventory = FABRICS[name]
        links: list[Link] = []
        while not links:
            self.fabric = Ledger(self.topology)
            for id in KEYS:
                size = rng.randint(2, max(2, self.topology.hosts // 2))
                admit(Jigsaw(), self.fabric, Request(id, size))
            if rng.random() < 0.5 and "v" in self.fabric.allocations:
                self.fabric.release("v")
            self.old = self.fabric.allocations["t"]
            links = sorted(self.old.links(self.topology), key=self.topology.tree.link_id)
        self.failed = sorted(
            rng.sample(links, min(len(links), rng.choice((1, 1, 2)))),
            key=self.topology.tree.link_id,
        )
        for link in self.failed:
            self.fabric.fail_link(link)

    def tables(
        self,
        allocation: Allocation,
        beside: Allocation | None,
        failed: Collection[Link],
        previous: SubnetConfiguration | None = None,
    ) -> SubnetConfiguration:
        others = [a for id, a in self.fabric.allocations.items() if id != "t"]
        routes = [TenantRoute(a, KEYS[a.id]) for a in others]
        routes.append(TenantRoute(allocation, KEYS["t"], beside))
        ordered = tuple(sorted(routes, key=lambda route: route.allocation.id))
        state = FabricState("f", 1, self.topology, self.inventory, ordered, tuple(failed))
        return subnet_configuration(state, previous)

    def mixed(
        self, held: Allocation, *plans: SubnetConfiguration, failed: Collection[Link] = ()
    ) -> Mixed:
        walks = [Walks.over(self.inventory, each.tables) for each in plans]
        return Mixed(self.topology, walks, held, failed)


def repairable(name: str, rng: Random) -> tuple[Case, Allocation]:
    while True:
        case = Case(name, rng)
        new = repair(case.fabric, case.old)
        if isinstance(new, Allocation):
            return case, new


def paths(
    tables: ForwardingTables, inventory: Inventory, hosts: Collection[int]
) -> list[list[Hop]]:
    """The paths of all packets between some hosts, rail by rail."""
    walks = Walks.over(inventory, tables)
    ports = [endpoint for endpoint in inventory.endpoints if endpoint.host in hosts]
    leaves = sorted({(port.at.guid, port.rail) for port in ports})
    pairs = product(leaves, ports)
    return [walks.path(leaf, port.guid) for (leaf, rail), port in pairs if rail == port.rail]


@pytest.mark.parametrize("name", FABRICS)
@given(seed=st.integers(0, 10**6))
def test_a_failing_link_sends_no_packet_over_links_of_others(name, seed):
    case = Case(name, Random(seed))
    before, after = (case.tables(case.old, None, failed) for failed in ((), case.failed))
    assert case.mixed(case.old, before, after, failed=case.failed).foreign == set()


@pytest.mark.parametrize("name", FABRICS)
@given(seed=st.integers(0, 10**6))
def test_a_repair_sends_no_packet_over_links_of_others(name, seed):
    """Packets are lost only while traffic switches, and only where a parallel cable has failed."""
    case, new = repairable(name, Random(seed))
    old, both, failed = case.old, case.old.joined(new), case.failed
    phases = [case.tables(old, None, failed)]
    for allocation, beside in ((old, new), (new, old), (new, None)):
        phases.append(case.tables(allocation, beside, failed, phases[-1]))
        assert phases[-1].tables == case.tables(allocation, beside, failed).tables
    assert case.mixed(both, phases[-1], failed=failed).lost == set()
    lossless = not case.mixed(both, phases[0], failed=failed).lost
    for before, after in pairwise(phases):
        mixed = case.mixed(both, before, after, failed=failed)
        assert mixed.foreign == set()
        assert not (lossless and mixed.lost) or before is phases[1]
    # From the second phase on traffic uses the new links only, so the old ones can be released.
    for phase in phases[2:]:
        assert case.mixed(new, phase, failed=failed).foreign == set()
    judged = [a for a in case.fabric.allocations.values() if a.id != "t"]
    seen = [
        [paths(phase.tables, case.inventory, a.hosts(case.topology)) for a in judged]
        for phase in phases
    ]
    assert all(paths == seen[0] for paths in seen)
    assert all(phase.partitions == phases[0].partitions for phase in phases)
    for phase, held in zip(phases[1:], (both, both, new), strict=True):
        tables = physical_tables(phase.tables.rows, phase.tables.index)
        walks = walk_violations(case.topology, case.inventory, tables, [*judged, held], [0xFF0000])
        assert walks.violations == []
        assert credit_loop(case.inventory, tables) == []
