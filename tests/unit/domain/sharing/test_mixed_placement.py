# SPDX-License-Identifier: Apache-2.0

"""Routed virtual clusters with different demands, compared with all places there are.

The traffic of each place is the least cut over the judge's pairs (``routed_judge.worst_traffic``).
"""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.errors import DoubleClaim, InvalidInput
from laas_service.domain.sharing.cluster import Cluster, Demand
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.mixed_placement import MIXED
from laas_service.domain.sharing.placement import MigrationCost, NotPlaced, Placed
from tests.unit.domain.sharing.judge import worst_traffic
from tests.unit.domain.sharing.test_placement import FULL, ROUTED, numbered

NAMES = ("two leaves", "tapered", "small remainder", "pods")
every_fabric = pytest.mark.parametrize("name", NAMES)
few = settings(max_examples=100 if FULL else 6, deadline=None)
MEANS = (0.25, 0.5, 1.0, 1.5)
SLOTS = 2


def mixed(id, means):
    return Cluster(id, tuple(map(Demand, means)))


def places(judge, size):
    """All ways to put units on hosts, as an array of positions of hosts by place and unit."""
    return np.array(list(product(range(len(judge.hosts)), repeat=size)), dtype=np.int64)


def traffic(judge, at, means):
    """Link -> the worst traffic of each place."""
    hosts = judge.hosts
    demands = {h: (at == x) @ np.array(means) for x, h in enumerate(hosts)}
    beyond = {h: np.minimum(d, sum(means) - d) for h, d in demands.items()}
    found = {}
    for link, pairs in judge.pairs.items():
        found[link] = worst_traffic(demands, pairs)
    for host in hosts:
        found["from", host] = found["to", host] = beyond[host]
    return found


def positions(routes, judge, embedding):
    at = {unit: routes.host_of(m) for m, units in embedding.items() for unit in units}
    return np.array([[judge.hosts.index(at[unit]) for unit in sorted(at)]])


def used(site, judge, but=None):
    """Link -> what other clusters are promised, from scratch."""
    total: dict[object, float] = {}
    for id, h in site.clusters.items():
        if id != but:
            means = [demand.mean for demand in h.cluster.demands]
            at = positions(site.routes, judge, h.embedding)
            for link, loads in traffic(judge, at, means).items():
                total[link] = total.get(link, 0) + loads[0]
    return total


def scattered(name, rng):
    """A site with clusters of different demands in random places that fit."""
    routes, judge = ROUTED[name]
    site = RoutedSite(routes, SLOTS, rng.choice((1.0, 2.0, 3.0)))
    for number in range(3):
        size = rng.randint(1, 3)
        cluster = mixed(str(number), [rng.choice(MEANS) for _ in range(size)])
        for _ in range(5):
            embedding: dict[int, tuple[int, ...]] = {}
            for unit in range(size):
                machine = routes.machine_of(rng.choice(judge.hosts))
                embedding[machine] = (*embedding.get(machine, ()), unit)
            try:
                site.claim(cluster, embedding)
            except DoubleClaim:
                continue
            break
    return site, judge


def valid(site, judge, means, id=None):
    """All places that fit beside the others, with slots that are free before all moves."""
    at = places(judge, len(means))
    limit, others = site._capacity.max() / 10**6, used(site, judge, but=id)
    fits = np.ones(len(at), dtype=bool)
    for link, loads in traffic(judge, at, means).items():
        fits &= others.get(link, 0) + loads <= limit + 1e-9
    before = np.full(len(means), -1)
    if id is not None:
        now = positions(site.routes, judge, site.clusters[id].embedding)[0][: len(means)]
        before[: len(now)] = now
    for x, host in enumerate(judge.hosts):
        joins = ((at == x) & (before != x)).sum(axis=1)
        fits &= joins <= site.free[site.routes.machine_of(host)]
    moved = ((at != before) & (before >= 0)).sum(axis=1)
    return at[fits], moved[fits]


def footprint(judge, at):
    return judge.footprint({judge.hosts[x]: int((at == x).sum()) for x in set(at.tolist())})


@every_fabric
@few
@given(st.integers(0, 10**6))
def test_it_fits_whenever_any_place_does_at_the_least_footprint(name, seed):
    rng = Random(seed)
    site, judge = scattered(name, rng)
    means = [rng.choice(MEANS) for _ in range(rng.randint(1, 4))]
    found, _ = valid(site, judge, means)
    answer = MIXED.embed(site, mixed("new", means), budget=None)
    assert isinstance(answer, Placed) == bool(len(found))
    assert answer.proven
    if isinstance(answer, Placed):
        [at] = positions(site.routes, judge, answer.plan.embedding)
        assert answer.cost == MigrationCost(0, footprint(judge, at))
        assert answer.cost.footprint == min(footprint(judge, one) for one in found)
        site.claim(answer.plan.cluster, answer.plan.embedding)
        assert max(used(site, judge).values()) <= site._capacity.max() / 10**6 + 1e-9
    fits = [n for n in range(1, len(means) + 1) if len(valid(site, judge, means[:n])[0])]
    if not isinstance(answer, Placed):
        largest = MIXED.largest(site, mixed("new", means), budget=None)
        assert largest == max(fits, default=0)


@every_fabric
@few
@given(st.integers(0, 10**6))
def test_a_change_has_the_fewest_migrations_of_all(name, seed):
    rng = Random(seed)
    site, judge = scattered(name, rng)
    if not site.clusters:
        return
    id = rng.choice(sorted(site.clusters))
    means = [rng.choice(MEANS) for _ in range(rng.randint(1, 4))]
    found, moved = valid(site, judge, means, id)
    before = site.clusters[id].embedding
    answer = MIXED.change(site, mixed(id, means), budget=None)
    assert isinstance(answer, Placed) == bool(len(found))
    assert answer.proven
    if isinstance(answer, Placed):
        plan = answer.plan
        costs = zip(moved, found, strict=True)
        least = min(MigrationCost(m, footprint(judge, at)) for m, at in costs)
        assert answer.cost == least
        assert len(plan.moves) == answer.cost.migrations
        at = {unit: machine for machine, units in before.items() for unit in units}
        for unit, machine in plan.removed:
            assert at.pop(unit) == machine
        for unit, source, target in plan.moves:
            assert at[unit] == source
            at[unit] = target
        assert at | dict(plan.added) == {u: m for m, on in plan.embedding.items() for u in on}
        site.replace(plan.cluster, plan.embedding)


def test_the_side_that_needs_less_is_promised():
    """One large unit against three small ones: the link carries what the small ones can take."""
    routes, judge = ROUTED["tapered"]
    cluster = mixed("a", [5.0, 0.5, 0.5, 0.5])
    site = RoutedSite(routes, 4, 1.5)
    embedding = numbered(routes, {judge.hosts[0]: 1, judge.hosts[2]: 3})
    site.claim(cluster, embedding)
    assert site.occupancy().max() == 1
    with pytest.raises(DoubleClaim):
        site.claim(mixed("b", [0.1, 0.2]), numbered(routes, {judge.hosts[0]: 1, judge.hosts[2]: 1}))


def test_a_refusal_names_what_is_full():
    routes, _ = ROUTED["tapered"]
    site = RoutedSite(routes, 2, 1.0)
    many = mixed("a", [0.1 + 0.01 * n for n in range(13)])
    assert MIXED.embed(site, many) == NotPlaced("12 slots are free, 13 asked for", True)
    large = mixed("a", [2.0, 2.5, 3.0])
    answer = MIXED.embed(site, large, budget=None)
    assert isinstance(answer, NotPlaced)
    assert answer.proven
    assert "has no room for the demands" in answer.binding
    assert MIXED.largest(site, large, budget=None) == 2
    with pytest.raises(InvalidInput):
        MIXED.embed(site, mixed("a", [1.0, -1.0]))
