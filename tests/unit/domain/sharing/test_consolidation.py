# SPDX-License-Identifier: Apache-2.0

"""Plans that empty shared hosts: promises on the way, limits, and all plans on tiny sites."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.allocation import (
    Allocation,
    HeldSlots,
    Promise,
    Request,
    Shape,
    Sharing,
    SlotDemand,
)
from laas_service.domain.errors import NotFound
from laas_service.domain.ledger import Ledger
from laas_service.domain.sharing.announced import in_the_way
from laas_service.domain.sharing.cluster import Cluster
from laas_service.domain.sharing.consolidation import empty_hosts
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.tenancy.slots import GRAIN
from laas_service.domain.topology import Topology, Xgft
from laas_service.domain.verification import slot_violations
from tests.unit.domain.sharing.every_embedding import embeddings
from tests.unit.domain.sharing.judge import Judge
from tests.unit.domain.sharing.test_policy import (
    INVENTORY,
    PART,
    TABLES,
    TOPOLOGY,
    on_the_way,
)
from tests.unit.domain.verification.sound import build, inventory_of

ALL = 10**6
"""A number of moves that limits nothing."""


def scattered(rng: Random, part: Allocation, topology: Topology, most: int, size: int) -> Ledger:
    """A ledger whose tenants lie scattered, as after the departure of others."""
    ledger, policy = Ledger(topology), SharedSlots()
    ledger.claim(part)
    inner = ledger.ledger("part")
    for number in range(most):
        demand = SlotDemand(rng.randint(1, size), rng.choice((0.5, 1.0, 1.5, 2.0)))
        if most > 4 and rng.random() < 0.3:
            listed = tuple(rng.choice((0.5, 1.0, 2.0)) for _ in range(demand.slots))
            demand = demand._replace(bandwidth=listed)
        answer = policy.propose(inner, Request(f"t{number}", 1, slots=demand))
        if isinstance(answer, Allocation):
            ledger.claim(answer)
    for id in list(inner.allocations):
        if rng.random() < 0.55:
            ledger.release(id)
    return ledger


def occupied(ledger: Ledger) -> set[int]:
    return set(ledger.ledger("part").used_slots)


@given(
    st.randoms(use_true_random=False),
    st.integers(0, 12),
    st.sampled_from([1, 2, 3.5, ALL]),
    st.booleans(),
)
def test_every_state_of_a_plan_keeps_all_promises(rng, most_moves, most_per_host, backwards):
    part = replace(PART, sharing=Sharing(*rng.choice(((2, 4.0), (3, 4.0), (4, 6.0), (4, 3.0)))))
    ledger = scattered(rng, part, TOPOLOGY, 8, 5)
    inner = ledger.ledger("part")
    stays = {id for id in inner.allocations if rng.random() < 0.2}
    drained = rng.choice(part.hosts(TOPOLOGY))
    ledger.drain_host(drained)
    before, present = occupied(ledger), dict(inner.allocations)
    plan = empty_hosts(SharedSlots(), inner, most_moves, most_per_host, lambda id: id not in stays)
    assert plan == empty_hosts(
        SharedSlots(), inner, most_moves, most_per_host, lambda id: id not in stays
    )
    assert dict(inner.allocations) == present, "a plan changes nothing"
    assert plan.migrations == sum(plan.costs) <= most_moves
    assert all(cost <= most_per_host for cost in plan.costs)
    assert stays.isdisjoint(change.id for change in plan.changes)
    places = {}
    for change in plan.changes:
        old = present[change.id].slots
        assert old is not None
        assert change.slots is not None
        assert change.slots.demand == old.demand
        way = on_the_way(old, change.slots)
        assert way[-1].counts == change.slots.counts, "the moves lead to the new place"
        places[change.id] = [*way, change.slots]
    # all at once, then each over in turn, in either direction
    order = plan.changes[::-1] if backwards else plan.changes
    for change in order:
        ledger.change(change.joined(present[change.id]))
    for number in range(len(order) + 1):
        sharers = list(ledger.sharers())
        found = slot_violations(TOPOLOGY, INVENTORY, [part], sharers, TABLES, places)
        assert found == []
        if number < len(order):
            done = order[number]
            assert done.slots is not None
            ledger.change(replace(done, slots=done.slots.reached))
            del places[done.id]
    after = occupied(ledger)
    assert (after, len(plan.hosts)) == (before - set(plan.hosts), len(before) - len(after))
    leaves = [{TOPOLOGY.ports_of(host)[0][:2] for host in hosts} for hosts in (before, after)]
    assert set(plan.leaves) == leaves[0] - leaves[1]
    for change in plan.changes:
        assert change.slots is not None
        targets = {new for _, _, new in change.slots.moves}
        assert targets <= after - {drained}


TINY = Topology(Xgft((2, 2, 1), (1, 2, 0)))
TINY_PART = build(TINY, Shape(1, 2, 2), "part")


def ways(
    judge: Judge, old: tuple[int, ...], new: tuple[int, ...]
) -> set[tuple[tuple[object, int], ...]]:
    """By order of single moves from one place to another: the greatest load of each link."""
    found: set[tuple[tuple[object, int], ...]] = set()

    def go(counts: tuple[int, ...], before: Counter[object]) -> None:
        most = Counter[object](before)
        most |= Counter[object](judge.loads(dict(enumerate(counts))))
        if counts == new:
            found.add(tuple(sorted(most.items(), key=str)))
            return
        for a, b in product(range(len(old)), repeat=2):
            if counts[a] > new[a] and counts[b] < new[b]:
                step = list(counts)
                step[a] -= 1
                step[b] += 1
                go(tuple(step), most)

    go(old, Counter())
    return found


def least_moves(judge: Judge, ledger: Ledger, host: int) -> int | None:
    """Of all ways to empty a host: the fewest migrations; None if there is no way."""
    inner, part = ledger.ledger("part"), ledger.allocations["part"]
    assert part.sharing is not None
    held, slots, capacity = {}, part.sharing.slots, Fraction(part.sharing.bandwidth)
    for id, one in inner.allocations.items():
        assert one.slots is not None
        assert isinstance(one.slots.demand.bandwidth, float)
        counts = tuple(one.slots.counts.get(h, 0) for h in range(4))
        held[id] = counts, Fraction(one.slots.demand.bandwidth)
    there = [id for id, (counts, _) in held.items() if counts[host]]
    full = [sum(counts[h] for counts, _ in held.values()) for h in range(4)]
    stay = [one for id, one in held.items() if id not in there]
    rooms = [slots if full[h] and h != host else 0 for h in range(4)]
    choices = [list(embeddings(rooms, sum(held[id][0]))) for id in there]

    def moved(news: tuple[tuple[int, ...], ...]) -> int:
        return sum(
            max(0, now - then)
            for id, new in zip(there, news, strict=True)
            for then, now in zip(held[id][0], new, strict=True)
        )

    for news in sorted(product(*choices), key=moved):
        both = [
            [max(*pair) for pair in zip(held[id][0], new, strict=True)]
            for id, new in zip(there, news, strict=True)
        ]
        units = [sum(c[h] for c, _ in stay) + sum(c[h] for c in both) for h in range(4)]
        if any(n > slots for n in units):
            continue
        loads = [ways(judge, held[id][0], new) for id, new in zip(there, news, strict=True)]
        for chosen in product(*loads):
            total = judge.promised([(dict(enumerate(c)), b) for c, b in stay])
            for id, most in zip(there, chosen, strict=True):
                for link, load in most:
                    total[link] += load * held[id][1]
            if all(used <= capacity for used in total.values()):
                return moved(news)
    return None


def tiny(rng: Random, sharing: Sharing | None = None) -> Ledger:
    """Tenants at random places that fit, whatever their footprint."""
    sharing = sharing or Sharing(*rng.choice(((2, 2.0), (3, 2.0), (3, 3.0), (4, 2.0))))
    ledger, policy = Ledger(TINY), SharedSlots()
    ledger.claim(replace(TINY_PART, sharing=sharing))
    inner = ledger.ledger("part")
    for number in range(5):
        demand = SlotDemand(rng.randint(1, 4), rng.choice((0.25, 0.5, 1.0, 1.5)))
        place = [rng.randrange(4) for _ in range(demand.slots)]
        units = tuple(
            (host, tuple(unit for unit, at in enumerate(place) if at == host))
            for host in sorted(set(place))
        )
        site = policy.trial(inner)
        at = {site.routes.machine_of(host): on for host, on in units}
        cluster = Cluster.alike(f"t{number}", demand.slots, demand.each[0][0])
        promised = site.promised(cluster, at)
        full = any(len(on) > site.free[machine] for machine, on in at.items())
        if full or site.overloaded(cluster.id, promised).size:
            continue
        rows = zip(site.routes.physical[promised.links], *promised.amounts, strict=True)
        promises = tuple(sorted(Promise(*map(int, row)) for row in rows))
        slots = HeldSlots(demand, units, promises)
        ledger.claim(Allocation(cluster.id, 0, "shared", (), parent="part", slots=slots))
    return ledger


@pytest.mark.parametrize("seed", [705, 3779, 9688])
def test_the_allocations_on_a_host_are_placed_in_other_orders(seed):
    """In the first order no host is emptied."""
    is_emptied_by_the_fewest_migrations(tiny(Random(seed)))


@given(st.randoms(use_true_random=False))
def test_a_host_that_can_be_emptied_is_emptied_by_the_fewest_migrations(rng):
    is_emptied_by_the_fewest_migrations(tiny(rng))


def is_emptied_by_the_fewest_migrations(ledger: Ledger) -> None:
    """Compare a plan with all ways to empty a host."""
    judge = Judge(TINY, TINY_PART)
    possible = {host: least_moves(judge, ledger, host) for host in occupied(ledger)}
    least = min((moves for moves in possible.values() if moves is not None), default=None)
    inner = ledger.ledger("part")
    if least is None:
        assert empty_hosts(SharedSlots(), inner, ALL, ALL, budget=None).hosts == ()
        return
    plan = empty_hosts(SharedSlots(), inner, least, least, budget=None)
    assert (len(plan.hosts), plan.migrations) == (1, least)
    assert empty_hosts(SharedSlots(), inner, least - 1, ALL, budget=None).hosts == ()
    assert empty_hosts(SharedSlots(), inner, ALL, least - 0.5, budget=None).hosts == ()
    assert empty_hosts(SharedSlots(), inner, ALL, ALL, budget=None).costs[0] == least


@pytest.mark.parametrize("seed", [88, 125, 306, *range(20)])
def test_changes_fit_beside_the_old_places_of_all(seed):
    """In the first seeds another place is free only once another allocation has moved."""
    ledger = tiny(Random(seed))
    inner = ledger.ledger("part")
    plan = empty_hosts(SharedSlots(), inner, ALL, ALL, budget=None)
    for change in plan.changes:
        ledger.change(change.joined(inner.allocations[change.id]))
    part, sharers = ledger.allocations["part"], ledger.sharers()
    places = {change.id: [change.slots] for change in plan.changes if change.slots}
    assert slot_violations(TINY, inventory_of(TINY), [part], sharers, None, places) == []


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_a_change_is_in_the_way_if_a_link_cannot_promise_both(seed, more):
    """Another tenant got all that is left of a link since the change was chosen, or a step more."""
    ledger = tiny(Random(seed), Sharing(9, 4.0))
    inner = ledger.ledger("part")
    for change in empty_hosts(SharedSlots(), inner, ALL, ALL, budget=None).changes:
        old, trial = inner.allocations[change.id], ledger.copy()
        both = change.joined(old)
        assert both.slots is not None
        if not both.slots.promised:
            continue  # on one host
        trial.change(both)
        total = Counter[int]()
        for one in trial.ledger("part").allocations.values():
            assert one.slots is not None
            total.update({promise.link: promise.certain for promise in one.slots.promised})
        link = both.slots.promised[seed % len(both.slots.promised)].link
        rest = Promise(link, 4 * GRAIN - total[link] + more, 0, 0)
        host = min(both.slots.counts)
        taker = HeldSlots(SlotDemand(1, 1.0), ((host, (0,)),), (rest,))
        newcomer = Allocation("new", 0, "shared", (), parent="part", slots=taker)
        trial.claim(newcomer)
        part, sharers = trial.allocations["part"], trial.sharers()
        places = {change.id: [both.slots]}
        found = slot_violations(TINY, inventory_of(TINY), [part], sharers, None, places)
        told = in_the_way(trial.ledger("part"), old, change)
        assert (bool(found), told is not None) == (bool(more), bool(more))


def test_what_is_in_the_way_of_a_change():
    ledger = scattered(Random(29), replace(PART, sharing=Sharing(4, 6.0)), TOPOLOGY, 8, 3)
    inner = ledger.ledger("part")
    change = empty_hosts(SharedSlots(), inner, ALL, ALL).changes[0]
    old = inner.allocations[change.id]
    assert in_the_way(inner, old, change) is None
    assert change.slots is not None
    cut = ledger.copy()
    cut.fail_link(min(PART.leaf_links(TOPOLOGY)))
    assert "links of the shared hosts have failed" in str(
        in_the_way(cut.ledger("part"), old, change)
    )
    ledger.drain_host(change.slots.moves[0][2])
    assert "failed or is drained" in str(in_the_way(inner, old, change))


def test_a_plan_ends_with_its_searches_and_says_so():
    rng = Random(29)
    ledger = scattered(rng, replace(PART, sharing=Sharing(4, 6.0)), TOPOLOGY, 8, 3)
    inner = ledger.ledger("part")
    whole = empty_hosts(SharedSlots(), inner, ALL, ALL)
    assert len(whole.hosts) > 1
    assert not whole.cut_off
    short = empty_hosts(SharedSlots(), inner, ALL, ALL, searches=whole.searches - 1)
    assert (short.cut_off, short.searches) == (True, whole.searches - 1)
    assert short.hosts == whole.hosts[: len(short.hosts)]
    none = empty_hosts(SharedSlots(), inner, ALL, ALL, searches=0)
    assert (none.cut_off, none.changes, none.hosts) == (True, (), ())


def test_a_host_with_a_failed_host_or_an_immovable_tenant_is_left_alone():
    ledger = scattered(Random(29), replace(PART, sharing=Sharing(4, 6.0)), TOPOLOGY, 8, 3)
    inner = ledger.ledger("part")
    first = empty_hosts(SharedSlots(), inner, ALL, ALL).hosts[0]
    there = {
        id
        for id, one in inner.allocations.items()
        if one.slots is not None and first in one.slots.counts
    }
    kept = empty_hosts(SharedSlots(), inner, ALL, ALL, lambda id: id not in there)
    assert first not in kept.hosts
    ledger.fail_host(first)
    assert first not in empty_hosts(SharedSlots(), inner, ALL, ALL).hosts


def test_only_shared_hosts_are_emptied():
    with pytest.raises(NotFound, match="shared hosts"):
        empty_hosts(SharedSlots(), Ledger(TOPOLOGY), 1, 1)
