# SPDX-License-Identifier: Apache-2.0

"""Failed links of a tenant that moves are replaced while servers are on old and on new hosts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from laas_service.app.lifecycle import Mending, Phase
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.moves.mend import Joined, mended
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.topology import Link
from laas_service.domain.verification import credit_loop, physical_tables, walk_violations
from laas_service.messages import TenantRoute
from tests.unit.domain.routing.test_two_placements import MANAGER, Case
from tests.unit.domain.verification.sound import TOPOLOGIES
from tests.walks import Mixed, Walks


class Mend:
    """A change of hosts in ``leave`` of which a link has failed."""

    def __init__(self, case: Case, failed: Link) -> None:
        self.case, self.failed = case, failed
        self.change = replace(case.change, phase=Phase.LEAVE)
        case.ledger.fail_link(failed)
        present = Joined(case.old, case.new, case.change.bridge)
        self.answer = mended(case.ledger, present)

    def tables(self, step: Phase | None) -> ForwardingTables:
        """Those of a step; None: before the first."""
        change = self.change
        if step is not None:
            assert isinstance(self.answer, Joined)
            change = replace(change, mending=Mending(self.answer, step))
        wanted = change.routes
        route = TenantRoute(wanted.traffic, 1, wanted.beside, (), wanted.bridge)
        if (under := wanted.beneath) is not None:
            below = TenantRoute(under.traffic, 1, under.beside, (), under.bridge)
            route = replace(route, beneath=below)
        placements = [*self.case.others, *route.placements]
        case = self.case
        return forwarding_tables(case.topology, case.inventory, placements, [self.failed])


def mends(name: str, wanted: int):
    """Changes with a failed link of each kind that can be replaced."""
    rng, seen = Random(name), Counter[str]()
    for _ in range(40 * wanted):
        case = Case(name, rng)
        if case.change.bridge is None or case.at_manager:
            continue
        links = list(case.change.held.links(case.topology))
        if not links:
            continue
        failed = rng.choice(links)
        mend = Mend(case, failed)
        if isinstance(mend.answer, Joined):
            seen["mended"] += 1
            yield mend
        if seen["mended"] == wanted:
            return


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_packets_arrive_again_and_none_leaves_the_links_of_the_tenant(name):
    """Others than those that the fault cuts off are lost only while traffic switches."""
    for mend in mends(name, 6):
        case = mend.case
        answer = mend.answer
        assert isinstance(answer, Joined)
        assert mend.failed not in set(answer.held.links(case.topology))
        assert answer.old.hosts(case.topology) == case.old.hosts(case.topology)
        assert answer.new.hosts(case.topology) == case.new.hosts(case.topology)
        both = case.change.held.joined(answer.held)
        case.ledger.change(both)
        steps = [None, Phase.PREPARE, Phase.SWITCH, Phase.WITHDRAW]
        tables = [mend.tables(step) for step in steps]
        walks = [Walks.over(case.inventory, each) for each in tables]
        cut_off = Mixed(case.topology, [walks[0]], both, [mend.failed]).lost
        switches = walks[1]
        for before, after in pairwise(walks):
            mixed = Mixed(case.topology, [before, after], both, [mend.failed])
            assert mixed.foreign == set()
            assert mixed.lost <= cut_off or before is switches
        last = Mixed(case.topology, [walks[-2], walks[-1]], answer.held)
        assert (last.foreign, last.lost) == (set(), set())
        physical = physical_tables(tables[-1].rows, tables[-1].index)
        assert credit_loop(case.inventory, physical) == []
        case.ledger.change(answer.held)
        allocations = list(case.ledger.allocations.values())
        judged = walk_violations(case.topology, case.inventory, physical, allocations, [MANAGER])
        assert judged.violations == []
        case.ledger.repair_link(mend.failed)


def test_what_cannot_be_replaced_is_told():
    rng = Random(3)
    while True:
        case = Case("full", rng)
        links = list(case.change.held.links(case.topology))
        if case.change.bridge is None or not links:
            continue
        for link in case.inventory.cable_of_link:
            if link not in set(links) and link not in case.ledger.failed_links:
                case.ledger.fail_link(link)
        answer = Mend(case, links[0]).answer
        if isinstance(answer, Degraded):
            assert answer.links == (links[0],)
            assert "no free links" in answer.obstacle
            return
