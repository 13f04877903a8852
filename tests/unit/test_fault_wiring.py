# SPDX-License-Identifier: Apache-2.0

"""The judge of the played faults finds lost pairs, and packets on cables of others."""

from __future__ import annotations

import pytest

from laas_service.domain.topology import LeafLink, SpineLink
from opensm_writer.desired import subnet_configuration
from tests.faults.wiring import Judge, Pairs, Wiring
from tests.unit.opensm_writer.states import POD, TINY, WIDE, state

TOPOLOGY, INVENTORY = TINY.topology, TINY.inventory
CONFIGURATION = subnet_configuration(state())
ROWS = {switch: CONFIGURATION.row_by_lid(switch) for switch in CONFIGURATION.tables.rows}


@pytest.fixture
def wiring():
    return Wiring(INVENTORY)


def pairs(wiring, tenant=WIDE, rows=ROWS, links=None) -> Pairs:
    own = set(tenant.links(TOPOLOGY)) if links is None else links
    return Judge(TOPOLOGY, INVENTORY).pairs(rows, wiring, [(tenant, own)])


def cable(kind):
    """A cable of the tenant that is crossed, and the tenant's links."""
    return INVENTORY.cable_of_link[max(x for x in WIDE.links(TOPOLOGY) if isinstance(x, kind))]


def counts(found: Pairs) -> tuple[int, int, int]:
    return found.walked, found.lost, found.foreign


def test_all_pairs_arrive_over_their_own_links(wiring):
    assert counts(pairs(wiring)) == (20, 0, 0)
    assert counts(pairs(wiring, POD)) == (2, 0, 0)


@pytest.mark.parametrize("kind", [LeafLink, SpineLink])
def test_a_cut_cable_loses_pairs(wiring, kind):
    wiring.cut(cable(kind).upper)
    found = pairs(wiring)
    assert found.lost > 0
    assert found.foreign == 0
    wiring.mend(cable(kind).lower)
    assert counts(pairs(wiring)) == (20, 0, 0)


def test_a_link_of_somebody_else_is_foreign(wiring):
    own = set(WIDE.links(TOPOLOGY)) - {cable(SpineLink).link}
    found = pairs(wiring, links=own)
    assert found.lost == 0
    assert found.foreign > 0
    assert found.examples


def test_a_cable_that_leads_elsewhere_is_foreign_whether_packets_arrive_or_not(wiring):
    moved = cable(LeafLink)
    elsewhere = next(
        c.upper
        for c in INVENTORY.cables
        if c.link is not None and c.lower.guid == moved.lower.guid and c != moved
    )
    wiring.cut(moved.lower)
    wiring.cut(elsewhere)
    wiring.connect(moved.lower, elsewhere)
    assert pairs(wiring).foreign > 0


def test_a_switch_without_tables_and_a_loop_lose_pairs(wiring):
    leaf = cable(LeafLink).lower.guid
    assert pairs(wiring, rows={**ROWS, leaf: b""}).lost > 0
    back = bytes([cable(LeafLink).upper.port]) * 300
    assert pairs(wiring, rows={**ROWS, cable(LeafLink).upper.guid: back}).lost > 0


def test_pairs_of_an_absent_host_are_not_counted(wiring):
    host = WIDE.hosts(TOPOLOGY)[0]
    wiring.cut(INVENTORY.endpoint_of_port[host, 0].at)
    assert counts(pairs(wiring)) == (12, 0, 0)
