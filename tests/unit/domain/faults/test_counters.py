# SPDX-License-Identifier: Apache-2.0

"""Thresholds of port counters, and the audit of a tenant's links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.faults.counters import (
    Carried,
    CounterRules,
    Increase,
    PortCounters,
    Threshold,
    Tolerance,
    audit,
    increase,
    proposals,
)
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.inventory import PortRef
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, Link, Topology
from tests.unit.domain.faults.model import FaultyFabric

LINK = LeafLink(1, 0, 1)
TOP = (1 << 64) - 1


def counters(at: float = 0.0, rate: float | None = None, **values: int) -> PortCounters:
    return PortCounters(at, values, rate)


@pytest.mark.parametrize(
    ("name", "before", "after", "grown"),
    [
        ("SymbolErrorCounter", 3, 10, Increase(7)),
        ("SymbolErrorCounter", 10, 3, Increase(3, exact=False)),  # it was reset
        ("SymbolErrorCounter", 10, 0xFFFF, Increase(0xFFF5, exact=False)),  # it stands still
        ("SymbolErrorCounter", 10, 0x10000, Increase(0xFFF6)),  # a port with 64 bits
        ("LinkDownedCounter", 255, 255, Increase(0, exact=False)),
        ("PortXmitData", TOP - 1, 5, Increase(7)),
        ("PortXmitData", 1000, 5, Increase(5, exact=False)),
        ("PortXmitData", 1 << 40, 1 << 41, Increase(1 << 40)),
    ],
)
def test_increases(name, before, after, grown):
    assert increase(name, counters(**{name: before}), counters(**{name: after})) == grown


def test_a_counter_that_a_reading_lacks_has_no_increase():
    assert increase("PortRcvErrors", counters(), counters(PortRcvErrors=1)) is None


def proposed(older: PortCounters, newer: PortCounters, **rules: object) -> list[str]:
    fabric = FaultyFabric.of(xgft="3;4,2,2;1,2,2")
    end, nobody = fabric.cable(LINK).lower, PortRef(1, 1)
    answer = proposals(
        Cabling(fabric.generated.inventory),
        {end: older, nobody: older},
        {end: newer, nobody: newer},
        replace(CounterRules(), **rules),  # type: ignore[arg-type]
    )
    assert all((proposal.link, proposal.end) == (LINK, end) for proposal in answer)
    return [proposal.text for proposal in answer]


def test_a_link_beyond_a_threshold_is_proposed():
    older, newer = counters(LinkDownedCounter=2), counters(60.0, LinkDownedCounter=13)
    assert proposed(older, newer) == [
        "leaf-1-0 port 6: LinkDownedCounter grew by 11 in 60 s, allowed are 10 in 3600 s"
    ]
    assert not proposed(older, counters(60.0, LinkDownedCounter=12))
    assert not proposed(older, counters(7200.0, LinkDownedCounter=22))
    assert proposed(older, counters(7200.0, LinkDownedCounter=23))
    reset = proposed(counters(PortRcvErrors=100), counters(9.0, PortRcvErrors=50))
    assert "at least 50" in reset[0]


def test_waiting_is_no_fault_unless_configured():
    older, newer = counters(PortXmitWait=0), counters(60.0, PortXmitWait=10**9)
    assert not proposed(older, newer)
    assert proposed(older, newer, thresholds=(Threshold("PortXmitWait", 10**6, 60.0),))


def test_symbol_errors_do_not_count_beside_a_bit_error_rate():
    older, newer = counters(SymbolErrorCounter=0), counters(60.0, SymbolErrorCounter=5000)
    assert proposed(older, newer)
    assert not proposed(older, replace(newer, bit_error_rate=1e-15))
    assert proposed(older, replace(newer, bit_error_rate=1e-9)) == [
        "leaf-1-0 port 6: bit error rate 1.0e-09, allowed are 1.0e-12"
    ]


def test_the_ports_of_hosts_are_proposed_without_a_link():
    inventory = FaultyFabric.of(xgft="3;4,2,2;1,2,2").generated.inventory
    end = inventory.endpoints[3].at
    newer = {end: counters(1.0, rate=1e-3)}
    assert [p.link for p in proposals(Cabling(inventory), {}, newer, CounterRules())] == [None]


def tenant(rails: int) -> tuple[Topology, Allocation]:
    """A tenant of 12 hosts over two pods."""
    fabric = FaultyFabric.of(xgft="3;4,4,2;1,4,4", rails=rails)
    topology = fabric.generated.topology
    answer = POLICIES["laas"]().propose(Ledger(topology), Request("t", 12 * 2 // rails))
    assert isinstance(answer, Allocation)
    return topology, answer


@pytest.mark.parametrize("rails", [1, 2])
def test_a_tenants_own_data_is_no_excess(rails):
    """All data of each leaf leaves it on its first link; nothing more may go up or come down."""
    topology, allocation = tenant(rails)
    ports = {(h, rail): 1000 for h in allocation.hosts(topology) for rail in range(rails)}
    links = list(allocation.leaf_links(topology))
    first: dict[tuple[int, int], Link] = {(link.pod, link.leaf): link for link in reversed(links)}
    on_leaf = dict.fromkeys(first, 0)
    for host, rail in ports:
        place = topology.ports_of(host)[rail]
        on_leaf[place.pod, place.leaf] += 1000
    total = sum(ports.values())
    carried = {link: Carried(on_leaf[leaf], total - on_leaf[leaf]) for leaf, link in first.items()}
    none = Tolerance(0, 0.0)
    assert audit(topology, allocation, carried, ports, none) == []
    leaf, link = min(first.items())
    for more in (Carried(1, 0), Carried(0, 1)):
        here = carried[link]
        changed = {**carried, link: Carried(here.up + more.up, here.down + more.down)}
        excess = audit(topology, allocation, changed, ports, none)
        assert [(e.carried - e.injected) for e in excess] == [1]
        assert excess[0].place.startswith(f"leaf {leaf[0]}/{leaf[1]}, ")
        assert not audit(topology, allocation, changed, ports, Tolerance(words=1, share=0.0))
        assert not audit(topology, allocation, changed, ports, Tolerance())


def test_foreign_data_on_spine_links_is_an_excess():
    topology, allocation = tenant(1)
    ports = {(host, 0): 1000 for host in allocation.hosts(topology)}
    links = list(allocation.spine_links(topology))
    assert links
    carried: dict[Link, Carried] = {links[0]: Carried(10**6, 0)}
    places = [e.place for e in audit(topology, allocation, carried, ports, Tolerance())]
    assert places == [f"spine links of pod {links[0].pod}, upwards"]


def test_no_verdict_without_all_ports():
    topology, allocation = tenant(1)
    links: list[Link] = [*allocation.leaf_links(topology)]
    carried = dict.fromkeys(links, Carried(10**9, 10**9))
    ports = {(host, 0): 0 for host in allocation.hosts(topology)}
    assert audit(topology, allocation, carried, ports, Tolerance())
    del ports[min(ports)]
    assert not audit(topology, allocation, carried, ports, Tolerance())
