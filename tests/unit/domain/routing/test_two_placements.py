# SPDX-License-Identifier: Apache-2.0

"""Tables of a tenant that holds two placements: all its hosts reach each other over its links."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from laas_service.app.lifecycle import Change, Phase
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.topology import Topology
from laas_service.domain.verification import credit_loop, physical_tables, walk_violations
from laas_service.messages import TenantRoute
from tests.unit.domain.verification.sound import TOPOLOGIES, inventory_of
from tests.walks import Mixed, Walks

INVENTORIES = {name: inventory_of(topology) for name, topology in TOPOLOGIES.items()}
MANAGER = 0xFF0000
PHASES = (Phase.PREPARE, Phase.SWITCH, Phase.ENTER, Phase.LEAVE)


def exchanges(topology: Topology, rng: Random) -> tuple[Ledger, Allocation, Allocation] | None:
    """A tenant "t" beside others, and a free placement with other hosts, or some of the same."""
    ledger = Ledger(topology)
    policy = POLICIES[rng.choice(("jigsaw", "laas", "lc"))]()
    for id in rng.sample(["t", "u", "v"], 3):
        admit(policy, ledger, Request(id, rng.randint(1, max(1, topology.hosts // 4))))
    if "t" not in ledger.allocations:
        return None
    old, view = ledger.allocations["t"], ledger.copy()
    if rng.random() < 0.5:
        view.release("t")
        for host in rng.sample(old.hosts(topology), rng.randint(1, old.size)):
            view.drain_host(host)
    new = policy.propose(view, Request("t", rng.choice((old.requested, old.requested + 1))))
    if isinstance(new, NoFit) or not (old.beyond(new).size and new.beyond(old).size):
        return None
    return ledger, old, new


class Case:
    """A change of hosts on a fabric, at each of its steps."""

    def __init__(self, name: str, rng: Random) -> None:
        self.topology, self.inventory = TOPOLOGIES[name], INVENTORIES[name]
        found = None
        while found is None:
            found = exchanges(self.topology, rng)
        self.ledger, self.old, self.new = found
        self.begin(bridge(self.ledger, self.old, self.new))
        self.others = [a for id, a in self.ledger.allocations.items() if id != "t"]

    def begin(self, links: Allocation | None) -> None:
        self.change = Change.begun(self.old, self.new, links)
        self.ledger.change(self.change.held)

    def tables(self, phase: Phase, previous: ForwardingTables | None = None) -> ForwardingTables:
        routes = replace(self.change, phase=phase).routes
        route = TenantRoute(routes.traffic, 1, routes.beside, (), routes.bridge)
        placements = [*self.others, *route.placements]
        return forwarding_tables(self.topology, self.inventory, placements, (), previous)

    def judged(self, tables: ForwardingTables, **placements) -> list[str]:
        physical = physical_tables(tables.rows, tables.index)
        assert credit_loop(self.inventory, physical) == []
        allocations = list(self.ledger.allocations.values())
        arguments = self.topology, self.inventory, physical, allocations, [MANAGER]
        return walk_violations(*arguments, placements=placements).violations

    @property
    def at_manager(self) -> bool:
        """Whether the subnet manager's switch is a leaf of the tenant."""
        leaves = self.inventory.leaf_guids
        [manager] = self.inventory.managers or self.inventory.service_endpoints
        hosts = self.change.held.hosts(self.topology)
        ends = (self.inventory.endpoint_of_port[host, 0].at.guid for host in hosts)
        return manager.at.guid in leaves and manager.at.guid in set(ends)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_old_and_new_hosts_reach_each_other_over_links_of_the_tenant(name):
    """In every phase in which both have servers, also from the subnet manager's switch."""
    rng, seen = Random(name), Counter[str]()
    while min(seen["bridged"] - 8, seen["at the manager"] - 3) < 0:
        case = Case(name, rng)
        if case.change.bridge is None:
            continue
        seen["bridged"] += bool([*case.change.bridge.links(case.topology)])
        seen["at the manager"] += case.at_manager
        tables = None
        for phase in PHASES:
            tables = case.tables(phase, tables)
            assert tables == case.tables(phase)
            assert case.judged(tables) == []


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_while_the_switches_change_no_packet_leaves_the_links_of_the_tenant(name):
    """Packets between old and new hosts arrive while the steps follow, until the last of them."""
    rng = Random(name)
    for _ in range(12):
        case = Case(name, rng)
        if case.change.bridge is None:
            continue
        walks = [Walks.over(case.inventory, case.tables(phase)) for phase in PHASES]
        for before, after in pairwise(walks):
            mixed = Mixed(case.topology, [before, after], case.change.held)
            assert (mixed.foreign, mixed.lost) == (set(), set())
        last = Walks.over(case.inventory, case.tables(Phase.WITHDRAW))
        mixed = Mixed(case.topology, [walks[-1], last], case.new.over(case.change.held))
        assert mixed.foreign == set()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_where_nothing_joins_the_placements_no_packet_goes_between_them(name):
    rng = Random(name)
    for _ in range(12):
        case = Case(name, rng)
        case.begin(None)
        if case.at_manager or not case.change.parted:
            continue
        both = (case.old, case.new)
        for phase in PHASES:
            assert case.judged(case.tables(phase), t=both) == []


def test_the_judge_sees_a_missing_bridge_and_a_foreign_link():
    rng = Random(5)
    case = Case("full", rng)
    while case.at_manager or not (case.change.bridge and case.change.bridge.groups):
        case = Case("full", rng)
    both = (case.old, case.new)
    assert case.judged(case.tables(Phase.ENTER)) == []
    case.begin(None)
    apart = case.tables(Phase.ENTER)
    assert any("no entry" in text for text in case.judged(apart))
    alone = [forwarding_tables(case.topology, case.inventory, [*case.others, one]) for one in both]
    merged = {guid: bytearray(row) for guid, row in alone[0].rows.items()}
    for host in case.new.hosts(case.topology):
        at = alone[1].index[case.inventory.endpoint_of_port[host, 0].guid]
        for guid, row in merged.items():
            row[at] = alone[1].rows[guid][at]
    naive = replace(apart, rows={guid: bytes(row) for guid, row in merged.items()})
    assert any("it uses link" in text for text in case.judged(naive, t=both))
