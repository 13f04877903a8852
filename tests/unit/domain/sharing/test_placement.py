# SPDX-License-Identifier: Apache-2.0

"""Virtual clusters on routed hosts, compared with all embeddings and with flows by networkx.

With LAAS_ROUTED=full there are more sites, and a million draws of demands (``tox -e routed``).
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from random import Random
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.sharing.cluster import Cluster, Demand
from laas_service.domain.sharing.hose_load import crossing, worst_loads
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.placement import ALIKE, NotPlaced, Placed
from laas_service.domain.sharing.routes import NO_ROUTE, Routes
from laas_service.domain.topology import LeafLink, Port, Topology, Xgft
from tests.partitions import partitions, tenant
from tests.unit.domain.sharing import every_embedding
from tests.unit.domain.sharing.judge import Judge, worst_traffic


def whole(m, w, cables=(1, 1)):
    """A tree, and an allocation of all its hosts and links."""
    topology = Topology(Xgft(m, w, cables))
    tree = topology.tree
    groups = [(g, (1 << m[0]) - 1, (1 << w[1]) - 1) for g in range(tree.leaves)]
    columns = [
        (pod, l2, (1 << w[2]) - 1)
        for pod in range(m[2])
        for l2 in range(tree.l2_per_pod)
        if m[2] > 1
    ]
    return topology, tenant("part", groups, columns)


FABRICS = {
    "two leaves": whole((2, 2, 1), (1, 2, 0)),
    "three leaves": whole((2, 3, 1), (1, 2, 0)),
    "tapered": whole((2, 3, 1), (1, 1, 0)),
    "pods": whole((2, 2, 2), (1, 2, 2)),
    "parallel": whole((2, 2, 2), (1, 2, 2), (2, 1)),
    "remainder": (
        Topology(Xgft((3, 3, 1), (1, 3, 0))),
        tenant("part", [(0, 0b111, 0b111), (1, 0b111, 0b111), (2, 0b011, 0b011)]),
    ),
    "small remainder": (
        Topology(Xgft((3, 3, 1), (1, 3, 0))),
        tenant("part", [(0, 0b111, 0b111), (1, 0b111, 0b111), (2, 0b001, 0b001)]),
    ),
    "remainder pod": (
        Topology(Xgft((2, 2, 2), (1, 2, 2))),
        tenant(
            "part",
            [(0, 0b11, 0b11), (1, 0b11, 0b11), (2, 0b11, 0b11), (3, 0b01, 0b01)],
            [(0, 0, 0b11), (0, 1, 0b11), (1, 0, 0b11), (1, 1, 0b01)],
        ),
    ),
}
FABRICS["three pods"] = (
    Topology(Xgft((2, 2, 3), (1, 2, 2))),
    tenant(
        "part",
        [*((leaf, 0b11, 0b11) for leaf in range(4)), (4, 0b01, 0b01)],
        [*((pod, l2, 0b11) for pod in range(2) for l2 in range(2)), (2, 0, 0b01)],
    ),
)
ROUTED = {name: (Routes(*fabric), Judge(*fabric)) for name, fabric in FABRICS.items()}
every_fabric = pytest.mark.parametrize("name", FABRICS)
seeds = given(st.integers(0, 10**6))
FULL = os.environ.get("LAAS_ROUTED") == "full"
few = settings(max_examples=200 if FULL else 2, deadline=None)
SLOTS, LINK = 2, 3.0
BANDWIDTHS = (0.25, 0.5, 1.0, 1.5)


def by_host(routes, embedding):
    return {routes.host_of(m): len(units) for m, units in embedding.items() if units}


def held(site, but=None):
    """(units by host, bandwidth) of every cluster."""
    return [
        (by_host(site.routes, h.embedding), h.cluster.demands[0].mean)
        for id, h in site.clusters.items()
        if id != but
    ]


def valid(site, judge, others, size, bandwidth):
    """Every embedding, as units by host, beside the others."""
    used = judge.promised(others)
    free = [SLOTS - sum(counts.get(host, 0) for counts, _ in others) for host in judge.hosts]
    limit = Fraction(site.link)
    found = []
    for units in every_embedding.embeddings(free, size):
        counts = {host: n for host, n in zip(judge.hosts, units, strict=True) if n}
        loads = judge.loads(counts)
        if all(used[x] + n * Fraction(bandwidth) <= limit for x, n in loads.items()):
            found.append(counts)
    return found


def numbered(routes, counts):
    units = iter(range(sum(counts.values())))
    return {
        routes.machine_of(host): tuple(next(units) for _ in range(n)) for host, n in counts.items()
    }


class Scattered(RoutedSite):
    link: float
    """The bandwidth of each link."""


def scattered(name, rng, clusters=3):
    """A site with clusters in random places, as after a long time of changes."""
    routes, judge = ROUTED[name]
    link = rng.choice((1.0, 2.0, 3.0))
    site = Scattered(routes, SLOTS, link)
    site.link = link
    for number in range(clusters):
        size, bandwidth = rng.randint(1, 4), rng.choice(BANDWIDTHS)
        found = valid(site, judge, held(site), size, bandwidth)
        if found:
            cluster = Cluster.alike(str(number), size, bandwidth)
            site.claim(cluster, numbered(routes, rng.choice(found)))
    return site, judge


# -- the load --------------------------------------------------------------------


def loads_of(routes, counts):
    return worst_loads(routes, {routes.machine_of(host): n for host, n in counts.items()})


@st.composite
def spread(draw, failures=0):
    """A part of a tree, units on its hosts, and failed links of it."""
    tree = draw(st.sampled_from([Xgft((3, 3, 3), (1, 3, 3)), Xgft((4, 4, 2), (1, 4, 4))]))
    topology, allocation = Topology(tree), draw(partitions(tree))
    hosts = allocation.hosts(topology)
    units = draw(st.lists(st.integers(0, 3), min_size=len(hosts), max_size=len(hosts)))
    links = sorted(allocation.leaf_links(topology)) + sorted(allocation.spine_links(topology))
    failed = draw(st.sets(st.sampled_from(links), max_size=failures)) if links else set()
    return topology, allocation, {h: n for h, n in zip(hosts, units, strict=True) if n}, failed


@settings(max_examples=200 if FULL else 40, deadline=None)
@given(spread())
def test_the_load_is_the_maximum_flow_over_the_pairs_routed_there(fabric):
    topology, allocation, counts, _ = fabric
    found = loads_of(Routes(topology, allocation), counts)
    assert sorted(found.values()) == sorted(Judge(topology, allocation).loads(counts).values())


@settings(max_examples=200 if FULL else 20, deadline=None)
@given(spread(failures=2))
def test_pairs_whose_route_ends_at_a_failed_link_have_none(fabric):
    topology, allocation, counts, failed = fabric
    routes = Routes(topology, allocation, failed)
    loads = loads_of(routes, counts)
    between = range(routes.without_faults if failed else routes.of_hosts)
    found = {n: load for n, load in loads.items() if n in between or n >= routes.of_hosts}
    judge = Judge(topology, allocation, failed)
    lost = any(counts.get(a) and counts.get(b) for a, b in judge.over(failed))
    assert (NO_ROUTE in found) == lost
    if not lost:
        assert sorted(found.values()) == sorted(judge.loads(counts).values())
    without = [load for n, load in loads.items() if n >= routes.without_faults]
    assert sorted(without) == sorted(Judge(topology, allocation).loads(counts).values())


@every_fabric
@settings(max_examples=30, deadline=None)
@seeds
def test_every_link_has_the_load_that_the_judge_names(name, seed):
    rng = Random(seed)
    routes, judge = ROUTED[name]
    counts = {h: n for h in judge.hosts if (n := rng.randint(0, 2))}
    assert sorted(loads_of(routes, counts).values()) == sorted(judge.loads(counts).values())


def test_the_exact_load_admits_what_the_bound_refuses():
    """The remainder leaf takes another uplink than the full leaf, so pairs do not all meet."""
    routes, judge = ROUTED["small remainder"]
    counts = {routes.machine_of(host): 1 for host in judge.hosts[1:]}
    room = np.zeros(routes.count)
    for link, load in worst_loads(routes, counts).items():
        room[link] = load
    site = RoutedSite(routes, 1, room)
    cross = crossing(routes, counts)
    assert (cross.bound > room[cross.links]).any()
    answer = ALIKE.embed(site, Cluster.alike("six", 6, 1.0), budget=None)
    assert isinstance(answer, Placed)
    assert set(answer.plan.embedding) == set(counts)
    site.claim(Cluster.alike("six", 6, 1.0), answer.plan.embedding)
    assert site.occupancy().max() == 1


# -- acceptance ------------------------------------------------------------------


@every_fabric
@few
@seeds
def test_a_new_cluster_fits_whenever_any_embedding_does_at_the_least_footprint(name, seed):
    rng = Random(seed)
    site, judge = scattered(name, rng)
    cluster = Cluster.alike("new", rng.randint(1, 6), rng.choice(BANDWIDTHS))
    bandwidth = cluster.demands[0].mean
    found = valid(site, judge, held(site), len(cluster.demands), bandwidth)
    answer = ALIKE.embed(site, cluster, budget=None)
    assert isinstance(answer, Placed) == bool(found)
    assert answer.proven
    fits = [n for n in range(1, 7) if valid(site, judge, held(site), n, bandwidth)]
    assert ALIKE.largest(site, cluster, budget=None) == min(
        len(cluster.demands), max(fits, default=0)
    )
    if isinstance(answer, Placed):
        counts = by_host(site.routes, answer.plan.embedding)
        assert judge.footprint(counts) == min(map(judge.footprint, found)) == answer.cost.footprint
        site.claim(cluster, answer.plan.embedding)
        assert all(load <= site.link for load in judge.promised(held(site)).values())


@every_fabric
@few
@seeds
@example(37)  # one migration more than on summed links has a smaller footprint, on "pods"
def test_a_change_has_the_fewest_migrations_then_the_least_footprint_of_all(name, seed):
    rng = Random(seed)
    site, judge = scattered(name, rng)
    if not site.clusters:
        return
    id = rng.choice(sorted(site.clusters))
    size = max(1, len(site.clusters[id].cluster.demands) + rng.randint(-2, 3))
    cluster = Cluster.alike(id, size, rng.choice(BANDWIDTHS))
    before = by_host(site.routes, site.clusters[id].embedding)
    found = valid(site, judge, held(site, but=id), size, cluster.demands[0].mean)

    def cost(counts):
        pairs = [[c.get(host, 0) for host in judge.hosts] for c in (before, counts)]
        return every_embedding.migrations(*pairs), judge.footprint(counts)

    answer = ALIKE.change(site, cluster, budget=None)
    assert isinstance(answer, Placed) == bool(found)
    assert answer.proven
    if isinstance(answer, Placed):
        after = by_host(site.routes, answer.plan.embedding)
        assert cost(after) == min(map(cost, found)) == answer.cost
        assert len(answer.plan.moves) == answer.cost.migrations
        site.replace(cluster, answer.plan.embedding)
        assert all(load <= site.link for load in judge.promised(held(site)).values())


@pytest.mark.parametrize("name", ["three leaves", "three pods"])
@settings(max_examples=20 if FULL else 5, deadline=None)
@given(st.data())
def test_a_history_breaks_no_promise_and_gives_everything_back(name, data):
    """Certain and stochastic clusters come, change and go."""
    routes, judge = ROUTED[name]
    site = RoutedSite(routes, SLOTS, LINK)
    fresh = RoutedSite(routes, SLOTS, LINK)
    for number in range(data.draw(st.integers(5, 15))):
        ids = sorted(site.clusters)
        verb = data.draw(st.sampled_from(["embed", "change", "release"] if ids else ["embed"]))
        id = f"{number:02}" if verb == "embed" else data.draw(st.sampled_from(ids))
        size, mean, spread = (
            data.draw(st.integers(1, 6)),
            data.draw(st.sampled_from(BANDWIDTHS)),
            data.draw(st.sampled_from([0.0, 0.5])),
        )
        cluster = Cluster.alike(id, size, mean, spread * mean)
        if verb == "release":
            site.release(id)
        elif isinstance(answer := getattr(ALIKE, verb)(site, cluster), Placed):
            if verb == "embed":
                site.claim(cluster, answer.plan.embedding)
            else:
                before = site.clusters[id].counts
                site.replace(cluster, answer.plan.embedding)
                moved = sum(before.values()) - sum(
                    min(n, site.clusters[id].counts.get(m, 0)) for m, n in before.items()
                )
                assert moved - max(0, sum(before.values()) - size) == len(answer.plan.moves)
        assert kept(site, judge)
    for id in sorted(site.clusters):
        site.release(id)
    assert (site.free == fresh.free).all()
    assert (site.occupancy() == fresh.occupancy()).all()


def kept(site, judge):
    """Whether slots and links keep what is promised, by the judge's flows."""
    used: Counter[int] = Counter()
    means: dict[object, float] = {}
    variances: dict[object, float] = {}
    for h in site.clusters.values():
        counts = by_host(site.routes, h.embedding)
        mean, variance = h.cluster.demands[0]
        for host, n in counts.items():
            used[host] += n
        for link, load in judge.loads(counts).items():
            cut_off = mean
            if variance:
                z = mean / variance**0.5
                cut_off = mean * NormalDist().cdf(z) + variance**0.5 * NormalDist().pdf(z)
            means[link] = means.get(link, 0) + load * cut_off
            variances[link] = variances.get(link, 0) + load * variance
    c = NormalDist().inv_cdf(0.95)
    return max(used.values(), default=0) <= SLOTS and all(
        means[x] + c * variances[x] ** 0.5 <= LINK for x in means
    )


# -- stochastic demands ----------------------------------------------------------


OUTAGES = ["three leaves", "small remainder", *(["pods", "remainder pod"] if FULL else [])]


@pytest.mark.parametrize("name", OUTAGES)
@pytest.mark.parametrize("spread", [0.3, 0.9])
def test_demands_exceed_a_link_no_more_often_than_the_risk(name, spread):
    """The worst traffic of each draw, over the judge's pairs; demands are cut off at 0."""
    routes, judge = ROUTED[name]
    site, rng = RoutedSite(routes, 30, LINK, risk=0.05), Random(7)
    for number in range(300):
        mean, size = rng.choice((0.1, 0.2, 0.3)), rng.randint(2, 9)
        embedding = numbered(routes, Counter(rng.choices(judge.hosts, k=size)))
        with suppress(DoubleClaim):
            site.claim(Cluster.alike(str(number), size, mean, spread * mean), embedding)
    assert site.outage().max() > 0.01
    assert site.outage().max() <= 0.05
    draws, batch = (10**6, 10**5) if FULL else (20_000, 20_000)
    random, over = np.random.default_rng(1), Counter[object]()
    for _ in range(draws // batch):
        total: dict[Any, Any] = dict.fromkeys(judge.pairs, 0)
        for h in site.clusters.values():
            mean, variance = h.cluster.demands[0]
            demands = {
                host: np.maximum(random.normal(mean, variance**0.5, (n, batch)), 0).sum(axis=0)
                for host, n in by_host(routes, h.embedding).items()
            }
            for link, pairs in judge.pairs.items():
                total[link] += worst_traffic(demands, pairs)
        for link, traffic in total.items():
            over[link] += int(np.sum(traffic > LINK))
    shares = sorted(n / draws for n in over.values())
    print(f"{name}, deviation {spread}: {draws} draws, worst shares {shares[-3:]}")
    assert shares[-1] > 0.002
    assert shares[-1] <= 0.05 + 4 * (0.05 / draws) ** 0.5


# -- what callers see ------------------------------------------------------------


def test_a_refusal_names_what_is_full_and_the_largest_cluster_that_fits():
    routes, _ = ROUTED["three leaves"]
    site = RoutedSite(routes, 2, 2.0)
    answer = ALIKE.embed(site, Cluster.alike("a", 13, 0.1))
    assert answer == NotPlaced("12 slots are free, 13 asked for", True)
    assert ALIKE.largest(site, Cluster.alike("a", 13, 0.1)) == 12
    wide = Cluster.alike("a", 6, 1.5)
    answer = ALIKE.embed(site, wide, budget=None)
    assert isinstance(answer, NotPlaced)
    assert answer.proven
    assert "link" in answer.binding
    assert ALIKE.largest(site, wide, budget=None) == 4


def test_a_failed_link_leaves_hosts_that_no_cluster_joins():
    topology, allocation = FABRICS["tapered"]
    site = RoutedSite(Routes(topology, allocation, {LeafLink(0, 0, 0)}), 2, 2.0)
    assert isinstance(ALIKE.embed(site, Cluster.alike("a", 9, 0.1), budget=None), NotPlaced)
    assert ALIKE.largest(site, Cluster.alike("a", 9, 0.1), budget=None) == 8


def test_what_the_ledger_refuses_changes_nothing():
    routes, _ = ROUTED["three leaves"]
    site = RoutedSite(routes, 2, 1.0)
    site.claim(Cluster.alike("a", 2, 1.0), {0: (0,), 2: (1,)})
    before = site.occupancy().tolist(), site.free.tolist()
    with pytest.raises(DoubleClaim, match="exists"):
        site.claim(Cluster.alike("a", 1, 1.0), {1: (0,)})
    with pytest.raises(DoubleClaim, match="slot"):
        site.claim(Cluster.alike("b", 2, 0.1), {0: (0, 1)})
    with pytest.raises(DoubleClaim, match="link from host 0 has no room"):
        site.claim(Cluster.alike("b", 2, 0.1), {0: (0,), 1: (1,)})
    with pytest.raises(DoubleClaim, match="link"):
        site.replace(Cluster.alike("a", 2, 1.5), {0: (0,), 2: (1,)})
    with pytest.raises(DoubleClaim, match="exists"):
        ALIKE.embed(site, Cluster.alike("a", 1, 1.0))
    with pytest.raises(NotFound):
        ALIKE.change(site, Cluster.alike("b", 1, 1.0))
    with pytest.raises(InvalidInput):
        ALIKE.embed(site, Cluster("b", (Demand(1.0), Demand(2.0))))
    assert (site.occupancy().tolist(), site.free.tolist()) == before


def test_shared_hosts_have_one_rail():
    rails = Topology(Xgft((2, 2, 1), (1, 2, 0)), 2, ((Port(0, 0, 0), Port(0, 1, 0)),))
    with pytest.raises(InvalidInput, match="rail"):
        Routes(rails, tenant("part", [(0, 0b1, 0)]))
