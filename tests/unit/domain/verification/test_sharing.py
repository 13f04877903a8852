# SPDX-License-Identifier: Apache-2.0

"""Sound slots pass; each kind of violation is found and named; flows agree with networkx."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import networkx as nx
import pytest

from laas_service.domain.allocation import (
    Allocation,
    HeldSlots,
    Promise,
    Request,
    Shape,
    Sharing,
    SlotDemand,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.verification import physical_tables, slot_violations
from laas_service.domain.verification.sharing import most_traffic
from tests.unit.domain.verification.sound import FULL, build, inventory_of

PART = replace(build(FULL, Shape(2, 2, 2), "part"), sharing=Sharing(2, 10.0))
INVENTORY = inventory_of(FULL)
ROUTED = forwarding_tables(FULL, INVENTORY, [PART])
TABLES = physical_tables(ROUTED.rows, ROUTED.index)


def placed(*demands: SlotDemand) -> list[Allocation]:
    """Tenants a, b, ... on the shared hosts."""
    ledger, policy = Ledger(FULL), SharedSlots()
    ledger.claim(PART)
    for id, demand in zip("abc", demands, strict=False):
        answer = policy.propose(ledger.ledger("part"), Request(id, 1, slots=demand))
        assert isinstance(answer, Allocation), answer
        ledger.claim(answer)
    return list(ledger.sharers())


SOUND = placed(SlotDemand(5, 2.0), SlotDemand(4, 1.0, 0.5), SlotDemand(3, 1.0))


def found(sharers, tables=TABLES, places=()):
    return slot_violations(FULL, INVENTORY, [PART], sharers, tables, dict(places))


def changed(**values) -> list[Allocation]:
    first, *others = SOUND
    assert first.slots is not None
    return [replace(first, slots=replace(first.slots, **values)), *others]


def test_sound_slots_pass():
    assert found(SOUND) == []
    links = [len(held.slots.promised) for held in SOUND if held.slots is not None]
    assert max(links) > 2 * 3, "somebody is on two leaves"


def test_slots_beyond_a_host_and_a_virtual_machine_without_one():
    first = SOUND[0].slots
    assert first is not None
    (host, _), *others = first.units
    assert any("3 of 2 slots" in text for text in found(changed(units=((host, (0, 1, 2)),))))
    twice = ((host, (0, 0)), *others)
    assert any("without exactly one slot" in text for text in found(changed(units=twice)))
    elsewhere = ((FULL.hosts - 1, (0, 1)), *others)
    assert any("does not share" in text for text in found(changed(units=elsewhere)))


def test_promises_beyond_a_link_are_found_without_tables():
    first = SOUND[0].slots
    assert first is not None
    promise = first.promised[0]
    most = promise._replace(certain=10_000_000)
    said = found(changed(promised=(most, *first.promised[1:])), None)
    assert said == [] or "of 10 Gb/s" in said[0]
    over = promise._replace(certain=10_000_001)
    assert any("of 10 Gb/s" in text for text in found(changed(promised=(over,)), None))
    chance = promise._replace(certain=0, mean=9_000_000, variance=1_000_000)  # 9 + 1.64 * 1
    assert any("promises 10.6" in text for text in found(changed(promised=(chance,)), None))


@pytest.mark.parametrize("number", [0, 1])
def test_each_promise_is_what_the_tables_need(number):
    """Without a promise, or with a little less of one, something is said of that very link."""
    slots = SOUND[number].slots
    assert slots is not None
    for at, promise in enumerate(slots.promised):
        others = slots.promised[:at] + slots.promised[at + 1 :]
        less = Promise(promise.link, *(max(0, amount - 2) for amount in promise[1:]))
        for kept in (others, (*others, less)):
            sharers = list(SOUND)
            sharers[number] = replace(
                SOUND[number], slots=HeldSlots(slots.demand, slots.units, tuple(sorted(kept)))
            )
            [said] = found(sharers)
            assert "is promised" in said


def test_a_place_that_virtual_machines_move_to_counts():
    first = SOUND[0].slots
    assert first is not None
    other = HeldSlots(first.demand, tuple((host, units) for host, units in first.units), ())
    assert found(SOUND, places=[("a", [first, other])]) == []
    wider = replace(other, demand=SlotDemand(5, 3.0))
    assert any("a can put" in text for text in found(SOUND, places=[("a", [first, wider])]))


def test_slots_of_nobody():
    assert any("has none" in text for text in found([replace(SOUND[0], parent="other")]))


@pytest.mark.parametrize("seed", range(200))
def test_flows_agree_with_networkx(seed):
    rng = Random(seed)
    counts = {host: rng.randint(1, 5) for host in range(rng.randint(2, 6))}
    pairs = [(a, b) for a in counts for b in counts if a != b and rng.random() < 0.5]
    graph: nx.DiGraph[object] = nx.DiGraph()
    graph.add_nodes_from(("all", "every"))
    for a, b in pairs:
        graph.add_edge("all", ("from", a), capacity=counts[a])
        graph.add_edge(("from", a), ("to", b))
        graph.add_edge(("to", b), "every", capacity=counts[b])
    assert most_traffic(counts, pairs) == nx.maximum_flow_value(graph, "all", "every")


def test_links_that_carry_more_in_a_fault_and_lost_paths_are_found():
    """Over the uplinks that are left of a leaf goes what the others carried."""
    part = replace(PART, sharing=Sharing(2, 4.0))
    ledger, policy = Ledger(FULL), SharedSlots()
    ledger.claim(part)
    for id, size in (("a", 8), ("b", 8)):
        answer = policy.propose(ledger.ledger("part"), Request(id, 1, slots=SlotDemand(size, 2.0)))
        assert isinstance(answer, Allocation), answer
        ledger.claim(answer)
    sharers = list(ledger.sharers())

    def said(*failed):
        routed = forwarding_tables(FULL, INVENTORY, [part], failed)
        tables = physical_tables(routed.rows, routed.index)
        return slot_violations(FULL, INVENTORY, [part], sharers, tables, {}, failed)

    assert said() == []
    links = sorted(part.leaf_links(FULL))
    told = [text for link in links for text in said(link)]
    assert any("by the tables link" in text and "of 4 Gb/s" in text for text in told), told
    first = [link for link in links if link[:2] == links[0][:2]]
    assert any("slots: a: " in text and " to " in text for text in said(*first))
