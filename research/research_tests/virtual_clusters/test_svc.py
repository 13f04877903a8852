# SPDX-License-Identifier: Apache-2.0

"""Stochastic virtual clusters, compared with all embeddings and with random draws."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_research.virtual_clusters import mixed
from laas_research.virtual_clusters.site import Demands, Links, Site, smaller
from laas_research.virtual_clusters.svc import svc, tivc
from laas_service.domain.errors import DoubleClaim, InvalidInput, LimitExceeded, NotFound
from laas_service.domain.sharing.cluster import Cluster, Demand
from laas_service.domain.sharing.tree import SlotTree, tapered
from research_tests.virtual_clusters import judge

SMALL = SlotTree((2, 3), 2, (10.0, 18.0))  # 6 machines of 2 slots in 3 racks
TREES = {
    "racks": SMALL,
    "one rack": SlotTree((4,), 2, (9.0,)),
    "deep": SlotTree((2, 2, 2), 1, (5, 8, 9)),
}
every_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
seeds = given(st.integers(0, 10**6))
few = settings(max_examples=12)


def some_site(tree, rng, mixed_demands=False):
    """A site with a few clusters on it already, and the pairs that the judge wants."""
    site = Site(tree, rng.choice((0.02, 0.05, 0.2)))
    for number in range(rng.randint(0, 3)):
        cluster = some_cluster(str(number), rng, rng.randint(1, 3), mixed_demands)
        embedding = mixed.exact(site, cluster) if mixed_demands else svc(site, cluster)
        if embedding is not None:
            site.claim(cluster, embedding)
    return site, [(cluster, embedding) for cluster, embedding, _ in site.clusters.values()]


def some_cluster(id, rng, size, mixed_demands=False):
    demands = [Demand(rng.choice((0.5, 2, 4)), rng.choice((0, 0.2, 1.5))) for _ in range(size)]
    return Cluster(id, tuple(demands) if mixed_demands else (demands[0],) * size)


def same(one, other):
    return one[:2] == other[:2] and one[2] == pytest.approx(other[2], abs=1e-4)


@pytest.mark.parametrize("a", [(5, 1), (0, 2), (3, 0)])
@pytest.mark.parametrize("b", [(5, 1), (9, 0.5), (2.5, 0)])
def test_the_smaller_of_two_normals(a, b):
    pairs = (Demands(np.array([float(m)]), np.array([float(v)])) for m, v in (a, b))
    found = smaller(*pairs)
    assert (found.mean[0], found.variance[0]) == pytest.approx(judge.smaller(a, b), abs=1e-4)


@every_tree
@few
@seeds
def test_the_best_embedding_of_the_lowest_subtree(tree, seed):
    rng = Random(seed)
    site, others = some_site(tree, rng)
    cluster = some_cluster("new", rng, rng.randint(1, 5))
    expected = judge.best(tree, risk(site), site.free, others, cluster)
    answer, any_ = svc(site, cluster), tivc(site, cluster)
    assert (answer is None) == (any_ is None) == (expected is None)
    if expected is not None:
        assert same(judge.found(tree, risk(site), others, cluster, answer), expected)
        level, vertex, worst = judge.found(tree, risk(site), others, cluster, any_)
        assert (level, vertex) == expected[:2]
        assert expected[2] - 1e-4 <= worst < float("inf")
        site.claim(cluster, answer)


@every_tree
@few
@seeds
def test_mixed_demands(tree, seed):
    rng = Random(seed)
    site, others = some_site(tree, rng, mixed_demands=True)
    cluster = some_cluster("new", rng, rng.randint(1, 4), mixed_demands=True)
    expected = judge.best(tree, risk(site), site.free, others, cluster)
    answer = mixed.exact(site, cluster)
    assert (answer is None) == (expected is None)
    if expected is not None:
        assert same(judge.found(tree, risk(site), others, cluster, answer), expected)
    ordered, first = mixed.substrings(site, cluster), mixed.first_fit(site, cluster)
    values = []
    for heuristic in (ordered, first):
        if heuristic is not None:
            assert expected is not None
            values.append(judge.found(tree, risk(site), others, cluster, heuristic))
            assert expected[0] <= values[-1][0]
            assert values[-1][2] < float("inf")
    if first is not None:
        assert ordered is not None
        assert values[0][0] <= values[1][0]
        if values[0][:2] == values[1][:2]:
            assert values[0][2] <= values[1][2] + 1e-4


def risk(site):
    return 1 - judge.cdf(site.links.quantile)


def test_substrings_agree_with_svc_where_all_are_alike():
    rng = Random(4)
    for _ in range(40):
        site, others = some_site(SMALL, rng)
        cluster = some_cluster("new", rng, rng.randint(1, 8))
        one, other = svc(site, cluster), mixed.substrings(site, cluster)
        assert (one is None) == (other is None)
        if one is not None:
            first, second = (
                judge.found(SMALL, risk(site), others, cluster, e) for e in (one, other)
            )
            assert same(first, second)


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_links_are_short_of_bandwidth_no_more_often_than_promised(epsilon):
    """Condition (1): rate of outages of each link of a full site, over 20,000 random draws."""
    rng, draws = Random(1), 20_000
    tree = tapered((10, 5), 4, 1000, (5,))
    site = Site(tree, epsilon)
    for number in range(80):
        mean = rng.choice((100, 200, 300))
        cluster = Cluster.alike(str(number), rng.randint(4, 24), mean, rng.random() * mean)
        embedding = svc(site, cluster)
        if embedding is not None:
            site.claim(cluster, embedding)
    chance, used = np.random.default_rng(1), dict[tuple[int, int], Any]()
    for cluster, embedding, promise in site.clusters.values():
        means, variances = np.array(cluster.demands).T
        drawn = chance.normal(means, np.sqrt(variances), (draws, len(means)))
        for link in promise:
            inside, outside = judge.sides(tree, embedding, *link)
            flow = np.minimum(drawn[:, inside].sum(axis=1), drawn[:, outside].sum(axis=1))
            used[link] = used.get(link, 0) + flow
    outages = {link: (total > tree.capacity[link[0]]).mean() for link, total in used.items()}
    assert len(site.clusters) > 10
    assert max(site.links.occupancy(1).max(), site.links.occupancy(0).max()) > 0.9
    assert max(outages.values()) < 1.15 * epsilon
    assert max(outages.values()) > 0.3 * epsilon  # the links are really shared


@few
@seeds
def test_releasing_leaves_no_trace(seed):
    rng = Random(seed)
    site, _ = some_site(SMALL, rng, mixed_demands=True)
    before = [site.links.occupancy(level).tolist() for level in range(2)], site.free.tolist()
    cluster = some_cluster("new", rng, rng.randint(1, 5), mixed_demands=True)
    embedding = mixed.substrings(site, cluster)
    if embedding is not None:
        site.claim(cluster, embedding)
        site.release("new")
    after = [site.links.occupancy(level).tolist() for level in range(2)], site.free.tolist()
    assert before == after


def test_the_paper_s_example_takes_two_and_four():
    """Figure 3: <6, 10> on two machines of 5 slots: 2 and 4 use 20 of each link, 3 and 3 use 30."""
    tree = SlotTree((2,), 5, (50.0,))
    site, cluster = Site(tree), Cluster.alike("a", 6, 10)
    embedding = svc(site, cluster)
    assert embedding is not None
    assert sorted(map(len, embedding.values())) == [1, 5]  # uses only 10 of each link
    site.free[:] = 4
    embedding = svc(site, cluster)
    assert embedding is not None
    assert sorted(map(len, embedding.values())) == [2, 4]


def test_a_full_link_will_do_for_certain_demands_only():
    tree = SlotTree((2,), 1, (10.0,))
    assert svc(Site(tree), Cluster.alike("a", 2, 10)) is not None
    assert svc(Site(tree), Cluster.alike("a", 2, 10, 0.001)) is None


def test_mistakes_are_named():
    site, cluster = Site(SMALL), Cluster.alike("a", 3, 1)
    for wrong in (
        lambda: SlotTree((), 1, ()),
        lambda: SlotTree((2,), 0, (1.0,)),
        lambda: SlotTree((2,), 1, (0.0,)),
        lambda: tapered((2, 2), 1, 1, (0,)),
        lambda: Links(SMALL, 0.7),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    with pytest.raises(LimitExceeded, match="11 machines, the exact search takes 10"):
        mixed.exact(site, Cluster.alike("a", 11, 1))
    with pytest.raises(DoubleClaim):
        site.claim(cluster, {0: (0, 1)})
    with pytest.raises(DoubleClaim):
        site.claim(cluster, {0: (0, 1, 2)})
    with pytest.raises(NotFound):
        site.release("a")
    assert svc(site, Cluster.alike("a", 13, 0)) is None
