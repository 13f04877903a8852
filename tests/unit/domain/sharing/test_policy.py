# SPDX-License-Identifier: Apache-2.0

"""Changes of slots on shared hosts: every state on the way keeps all promises."""

from __future__ import annotations

import threading
from dataclasses import replace
from random import Random

import pytest

from laas_service.domain.allocation import (
    Allocation,
    HeldSlots,
    NoFit,
    Refusal,
    Request,
    Shape,
    Sharing,
    SlotDemand,
)
from laas_service.domain.budget import UNBOUNDED, RequestBudget
from laas_service.domain.errors import Conflict, DoubleClaim, NotFound
from laas_service.domain.ledger import Ledger
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.topology import LeafLink, Topology, Xgft
from laas_service.domain.verification import physical_tables, slot_violations
from tests.unit.domain.verification.sound import build, inventory_of

TOPOLOGY = Topology(Xgft((2, 2, 2), (1, 2, 2)))
INVENTORY = inventory_of(TOPOLOGY)
PART = replace(build(TOPOLOGY, Shape(2, 2, 2), "part"), sharing=Sharing(3, 4.0))
ROUTED = forwarding_tables(TOPOLOGY, INVENTORY, [PART])
TABLES = physical_tables(ROUTED.rows, ROUTED.index)


def sharing(*demands: SlotDemand, part: Allocation = PART) -> Ledger:
    """A ledger with tenants a, b, ... on the shared hosts, as far as they fit."""
    ledger, policy = Ledger(TOPOLOGY), SharedSlots()
    ledger.claim(part)
    for id, demand in zip("abcdefgh", demands, strict=False):
        answer = policy.propose(ledger.ledger("part"), Request(id, 1, slots=demand))
        if isinstance(answer, Allocation):
            ledger.claim(answer)
    return ledger


def on_the_way(old: HeldSlots, new: HeldSlots) -> list[HeldSlots]:
    """The places after each move, with the demand of before."""
    hosts = {unit: host for host, units in old.units for unit in units}
    places = [old]
    for unit, source, target in new.moves:
        assert hosts[unit] == source
        hosts[unit] = target
        units = {host: tuple(u for u in hosts if hosts[u] == host) for host in hosts.values()}
        places.append(HeldSlots(old.demand, tuple(sorted(units.items())), ()))
    return places


def changed(seed: int) -> tuple[Ledger, Allocation, Allocation | NoFit]:
    """A random ledger, one of its tenants, and what it gets for a random wish."""
    rng = Random(seed)
    part = replace(PART, sharing=Sharing(*rng.choice(((2, 2.0), (3, 3.0), (3, 4.0), (4, 3.0)))))
    demands = [
        SlotDemand(rng.randint(1, 7), rng.choice((0.2, 0.5, 1.0))) for _ in range(rng.randint(2, 6))
    ]
    ledger = sharing(*demands, part=part)
    inner = ledger.ledger("part")
    for id in list(inner.allocations):
        if rng.random() < 0.35 and len(inner.allocations) > 1:
            ledger.release(id)
    before = inner.allocations[rng.choice(list(inner.allocations))]
    assert before.slots is not None
    more, bandwidth = rng.randint(0, 4), rng.choice((0.5, 1.0, 1.5, 2.0, 3.0))
    wanted = SlotDemand(before.slots.demand.slots + more, bandwidth)
    return ledger, before, SharedSlots().change(inner, before, wanted)


BETWEEN = (113, 319, 863, 1064, 1182, 1187, 1520, 1617, 1653, 1748, 2716)
"""Seeds of changes in which a state between needs more of a link than the first and the last."""


@pytest.mark.parametrize("seed", [*BETWEEN, *range(200)])
def test_every_state_of_a_change_keeps_all_promises(seed):
    ledger, before, answer = changed(seed)
    if isinstance(answer, NoFit):
        assert seed not in BETWEEN
        return
    part = ledger.allocations["part"]
    assert before.slots is not None
    assert answer.slots is not None
    ledger.change(answer.joined(before))  # what is held meanwhile
    places = {answer.id: [*on_the_way(before.slots, answer.slots), answer.slots]}
    sharers = list(ledger.sharers())
    assert slot_violations(TOPOLOGY, INVENTORY, [part], sharers, TABLES, places) == []
    if seed in BETWEEN:
        ends = {answer.id: [before.slots, answer.slots]}
        least = before.slots.joined(answer.slots.reached)
        poorer = [replace(one, slots=least) if one.id == answer.id else one for one in sharers]
        assert slot_violations(TOPOLOGY, INVENTORY, [part], poorer, TABLES, ends) == []
        assert slot_violations(TOPOLOGY, INVENTORY, [part], poorer, TABLES, places)
    ledger.change(replace(answer, slots=answer.slots.reached))
    assert slot_violations(TOPOLOGY, INVENTORY, [part], ledger.sharers(), TABLES) == []


def test_less_of_everything_moves_nothing():
    inner = sharing(SlotDemand(7, 1.0), SlotDemand(5, 0.5)).ledger("part")
    answer = SharedSlots().change(inner, inner.allocations["a"], SlotDemand(4, 0.5))
    assert isinstance(answer, Allocation)
    assert answer.slots is not None
    assert (answer.slots.moves, answer.slots.demand.slots) == ((), 4)


def test_a_site_follows_the_ledger_wherever_it_goes():
    """One policy that is asked on several states answers as a new one does on each."""
    policy, ledger = SharedSlots(), sharing(SlotDemand(6, 1.0), SlotDemand(4, 0.7))
    request = Request("new", 1, slots=SlotDemand(9, 0.4))
    later = ledger.copy()
    later.release("a")
    empty = ledger.ledger("part").unowned()
    drained = ledger.copy()
    drained.drain_host(min(PART.hosts(TOPOLOGY)))
    cut = ledger.copy()
    cut.fail_link(min(PART.leaf_links(TOPOLOGY)))
    grown = ledger.copy()
    answer = policy.change(
        grown.ledger("part"), grown.ledger("part").allocations["a"], SlotDemand(9, 0.7)
    )
    assert isinstance(answer, Allocation)
    grown.change(answer)
    views = [ledger, later, drained, grown, cut, ledger]
    for view in [*(ledger.ledger("part") for ledger in views), empty, ledger.ledger("part")]:
        assert policy.propose(view, request) == SharedSlots().propose(view, request)


def test_traffic_that_takes_other_links_after_a_fault_counts():
    """Seven of 0.5 Gb/s on two leaves: over the uplink that is left go all three of one side."""
    ledger = sharing(SlotDemand(7, 0.5))
    inner = ledger.ledger("part")
    held = inner.allocations["a"].slots
    assert held is not None
    assert {host // 2 for host in held.counts} == {0, 1}
    for leaf in (0, 1):
        ledger.fail_link(LeafLink(0, leaf, 0))
    site = SharedSlots().trial(inner)
    [cluster] = site.clusters.values()
    needed = site.promised(cluster.cluster, cluster.embedding)
    left = {int(link) for link in needed.links} - {0, 1}
    given = dict(zip(cluster.promised.links, cluster.promised.amounts[0], strict=True))
    assert left <= given.keys()
    least = zip(needed.links, needed.amounts[0], strict=True)
    assert all(given[link] >= amount for link, amount in least if link in left)
    assert sum(given.values()) > sum(promise.certain for promise in held.promised)


def test_a_drained_host_gets_no_virtual_machine_and_keeps_those_it_has():
    ledger = sharing(SlotDemand(5, 0.1))
    inner = ledger.ledger("part")
    held = inner.allocations["a"].slots
    assert held is not None
    host = min(held.counts, key=lambda host: held.counts[host])
    ledger.drain_host(host)
    free = 8 * 3 - 5 - 1
    refused = SharedSlots().propose(inner, Request("b", 1, slots=SlotDemand(free + 1, 0.01)))
    assert isinstance(refused, NoFit)
    assert (refused.reason, refused.largest_fit) == (Refusal.TOO_FEW_SLOTS, free)
    grown = SharedSlots().change(inner, inner.allocations["a"], SlotDemand(6, 0.1))
    assert isinstance(grown, Allocation)
    assert grown.slots is not None
    assert (grown.slots.moves, grown.slots.counts[host]) == ((), held.counts[host])


def test_refusals_say_what_binds():
    inner = sharing(SlotDemand(6, 1.0)).ledger("part")
    few = SharedSlots().propose(inner, Request("b", 1, slots=SlotDemand(19, 0.1)))
    assert isinstance(few, NoFit)
    assert (few.reason, few.largest_fit) == (Refusal.TOO_FEW_SLOTS, 18)
    wide = SharedSlots().propose(inner, Request("b", 1, slots=SlotDemand(4, 4.5)))
    assert isinstance(wide, NoFit)
    assert (wide.reason, wide.largest_fit) == (Refusal.BANDWIDTH, 3)


def test_the_ledger_refuses_what_is_of_the_other_class():
    ledger = sharing(SlotDemand(6, 1.0))
    slots = ledger.ledger("part").allocations["a"]
    whole = replace(build(TOPOLOGY, Shape(1, 1, 1), "w"), parent="part")
    with pytest.raises(Conflict, match="shares its hosts"):
        ledger.claim(whole)
    with pytest.raises(Conflict, match="no host there is shared"):
        ledger.claim(replace(slots, id="x", parent=None))
    with pytest.raises(DoubleClaim, match="a slot is not free"):
        ledger.claim(replace(slots, id="x"))
    with pytest.raises(Conflict, match="1 allocations"):
        ledger.release("part")
    with pytest.raises(NotFound):
        SharedSlots().propose(ledger, Request("b", 1, slots=SlotDemand(1, 1.0)))


class _Held(RequestBudget):
    """A budget whose search stands still at its first step until it may go on."""

    def __init__(self) -> None:
        super().__init__(UNBOUNDED)
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def spend(self, cost: int) -> bool:
        self.begun.set()
        assert self.may_go_on.wait(PATIENCE)
        return super().spend(cost)


PATIENCE = 60
"""Seconds after which a test gives up; nothing takes so long."""


@pytest.mark.parametrize("slow", [SlotDemand(5, 0.5), SlotDemand(3, (0.3, 0.4, 0.5))])
def test_nobody_waits_for_anothers_question(slow):
    """A question is answered while another one about the same hosts has not ended."""
    inner, policy, held = sharing(SlotDemand(5, 0.1)).ledger("part"), SharedSlots(), _Held()
    small, answers = Request("small", 1, slots=SlotDemand(1, 0.1)), []

    def ask(request: Request) -> None:
        answers.append(policy.propose(inner, request))

    first = threading.Thread(target=ask, args=(Request("slow", 1, slots=slow, budget=held),))
    second = threading.Thread(target=ask, args=(small,))
    first.start()
    assert held.begun.wait(PATIENCE)
    second.start()
    second.join(PATIENCE / 6)
    before = list(answers)
    held.may_go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE)
    assert before == [SharedSlots().propose(inner, small)]
    assert len(answers) == 2


DEMANDS = [SlotDemand(17, 0.05), SlotDemand(6, tuple(0.1 + 0.01 * n for n in range(6)), 0.2)]


@pytest.mark.parametrize("demand", DEMANDS)
def test_every_search_ends_at_the_budget_of_the_request(demand):
    """With so little that a search is cut anywhere, answers are honest: a place, or cut off."""
    ledger, policy = sharing(SlotDemand(5, 0.1), SlotDemand(2, 0.4)), SharedSlots()
    inner = ledger.ledger("part")
    whole = RequestBudget(UNBOUNDED)
    fits = policy.propose(inner, Request("x", 1, slots=demand, budget=whole))
    assert isinstance(fits, Allocation)
    most = policy.largest(inner, demand)
    present = inner.allocations["a"]
    for work in (1, 300, 700, 1500, 3000, 6000, 20_000):
        budget = RequestBudget(work)
        answer = policy.propose(inner, Request("x", 1, slots=demand, budget=budget))
        assert isinstance(answer, Allocation) or (answer.cut_off and budget.cut)
        assert work > 1 or isinstance(answer, NoFit)
        if isinstance(answer, NoFit):
            assert answer.reason is Refusal.BUDGET
        budget.renew()
        found = policy.largest(inner, demand, budget)
        assert found == most or (found < most and budget.cut)
        budget.renew()
        assert policy.fits(inner, demand, budget) or budget.cut
        budget.renew()
        assert policy.tenants(inner, demand, 0.1, 3, budget) == 3 or budget.cut or demand.slots > 6
        budget.renew()
        changed = policy.change(inner, present, SlotDemand(9, 0.05), budget)
        assert isinstance(changed, Allocation) or changed.cut_off
        assert budget.left >= 0


def down(ledger: Ledger) -> list[LeafLink]:
    """Fail one uplink of each leaf of the first pod; the others carry its traffic."""
    lost = [LeafLink(0, leaf, 0) for leaf in (0, 1)]
    for link in lost:
        ledger.fail_link(link)
    return lost


def test_who_is_admitted_in_a_fault_keeps_to_the_links_after_the_repair():
    """Places that fit only the detours, or only the tables without faults, are not given."""
    for seed in range(60):
        rng = Random(seed)
        part = replace(PART, sharing=Sharing(3, rng.choice((1.0, 1.5, 2.0))))
        ledger = sharing(SlotDemand(rng.randint(1, 6), 0.5), part=part)
        links = rng.sample(sorted(PART.leaf_links(TOPOLOGY)), rng.randint(1, 2))
        for link in links:
            ledger.fail_link(link)
        policy = SharedSlots()
        for id in "xyz":
            demand = SlotDemand(rng.randint(2, 8), rng.choice((0.3, 0.5, 1.0)))
            answer = policy.propose(ledger.ledger("part"), Request(id, 1, slots=demand))
            if isinstance(answer, Allocation):
                ledger.claim(answer)
        for link in links:
            ledger.repair_link(link)
        sharers = list(ledger.sharers())
        assert slot_violations(TOPOLOGY, INVENTORY, [part], sharers, TABLES) == []


def test_a_fault_tells_who_lacks_a_path_and_whose_links_are_overfull():
    ledger = sharing(SlotDemand(7, 1.0), part=replace(PART, sharing=Sharing(3, 3.0)))
    inner, policy = ledger.ledger("part"), SharedSlots()
    assert not policy.lacks(inner, {"a"})
    full = max(load.outage for load in policy.loads(inner))
    link = LeafLink(0, 0, 0)
    ledger.fail_link(link)
    told = policy.lacks(inner, {"a"})["a"]
    assert told.links == (link,)
    ledger.fail_link(LeafLink(0, 0, 1))
    told = policy.lacks(inner, {"a"})["a"]
    assert told.apart
    assert "no path over its working links is left" in str(told)
    loads = policy.loads(inner)
    assert {load.state for load in loads} > {"dead"}
    assert max(load.outage for load in loads) == 1.0 >= full
    for failed in (link, LeafLink(0, 0, 1)):
        ledger.repair_link(failed)
    assert not policy.lacks(inner, {"a"})


def test_slots_are_given_back_in_a_fault():
    for demand in (SlotDemand(7, 0.5), SlotDemand(3, (1.0, 0.5, 0.25))):
        ledger = sharing(demand, part=replace(PART, sharing=Sharing(2, 2.0)))
        inner = ledger.ledger("part")
        for link in [link for link in PART.leaf_links(TOPOLOGY) if link.up == 0 or not link.leaf]:
            ledger.fail_link(link)
        bandwidth = demand.bandwidth
        less = bandwidth[:-1] if isinstance(bandwidth, tuple) else bandwidth
        wanted = SlotDemand(demand.slots - 1, less)
        answer = SharedSlots().change(inner, inner.allocations["a"], wanted)
        assert isinstance(answer, Allocation), answer
        assert (answer.held_slots.demand, answer.unit_moves) == (wanted, ())
        before = inner.allocations["a"].held_slots.counts
        assert all(before[host] >= n for host, n in answer.held_slots.counts.items())
