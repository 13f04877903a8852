# SPDX-License-Identifier: Apache-2.0

"""Kraken, compared with all embeddings, and with its algorithms as the paper prints them."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laas_research.virtual_clusters import kraken, transport
from laas_research.virtual_clusters.oktopus import oktopus
from laas_research.virtual_clusters.site import Site
from laas_research.virtual_clusters.svc import svc
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.sharing import tree_search
from laas_service.domain.sharing.cluster import Cluster
from laas_service.domain.sharing.tree import SlotTree, tapered
from laas_service.domain.tenancy.slots import GRAIN
from research_tests.virtual_clusters.printed import INFINITE, Printed, extra_units
from tests.unit.domain.sharing import every_embedding as judge

TREES = {
    "one rack": SlotTree((3,), 3, (2,)),
    "racks": SlotTree((2, 3), 2, (2, 3)),
    "tapered": tapered((2, 2, 2), 2, 3, (1.5, 2)),
    "thin top": SlotTree((3, 2), 2, (4, 1)),
}
every_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
seeds = given(st.integers(0, 10**6))
some = settings(max_examples=20)
BANDWIDTHS = (0.25, 0.5, 1.0, 1.5)
COSTS: dict[str, Any] = {
    "fewest migrations": (
        tree_search.fewest_migrations,
        lambda tree, before, after: (judge.migrations(before, after), judge.footprint(tree, after)),
    ),
    "least footprint": (
        tree_search.least_footprint,
        lambda tree, before, after: (judge.footprint(tree, after), judge.migrations(before, after)),
    ),
    "a trade-off": (
        lambda tree, size: tree_search.Costs(3, 1),
        lambda tree, before, after: (
            3 * judge.migrations(before, after) + judge.footprint(tree, after)
        ),
    ),
}


def counts(tree, embedding):
    return tuple(len(embedding.get(machine, ())) for machine in range(tree.machines))


def held(site, but=None):
    """(counts, bandwidth) of every cluster."""
    return [
        (counts(site.tree, embedding), cluster.demands[0].mean)
        for id, (cluster, embedding, _) in site.clusters.items()
        if id != but
    ]


def scattered(tree, rng, clusters=4):
    """A site with clusters in random places, as after a long time of changes."""
    site = Site(tree)
    for number in range(clusters):
        size, bandwidth = rng.randint(1, 4), rng.choice(BANDWIDTHS)
        found = judge.valid(tree, held(site), size, bandwidth)
        if found:
            units = iter(range(size))
            embedding = {
                machine: tuple(next(units) for _ in range(n))
                for machine, n in enumerate(rng.choice(found))
                if n
            }
            site.claim(Cluster.alike(str(number), size, bandwidth), embedding)
    return site


def changed(site, rng, largest=3):
    """The changed form of a random cluster of the site."""
    id = rng.choice(sorted(site.clusters))
    demands = site.clusters[id][0].demands
    size = max(1, len(demands) + rng.randint(-2, largest))
    return Cluster.alike(id, size, rng.choice(BANDWIDTHS))


def follows(plan, before):
    """The plan's moves, made one by one, lead from ``before`` to the plan's embedding."""
    at = {unit: machine for machine, units in before.items() for unit in units}
    for unit, machine in plan.removed:
        assert at.pop(unit) == machine
    for unit, source, target in plan.moves:
        assert at[unit] == source != target
        at[unit] = target
    stay = [at[unit] for unit in sorted(at)]
    found = dict(enumerate(stay)) | dict(plan.added)
    assert len(found) == len(stay) + len(plan.added)
    expected = {unit: machine for machine, units in plan.embedding.items() for unit in units}
    assert found == expected


def slots_stay(site, plan):
    """No move needs a slot that another one has to leave first."""
    for machine in range(site.tree.machines):
        arrive = sum(move.target == machine for move in plan.moves)
        arrive += sum(place == machine for _, place in plan.added)
        assert arrive <= site.free[machine]


# -- the theorem --------------------------------------------------------------


@every_tree
@some
@seeds
def test_a_new_cluster_has_the_least_footprint_of_all(tree, seed):
    rng = Random(seed)
    site = scattered(tree, rng)
    cluster = Cluster.alike("new", rng.randint(1, 6), rng.choice(BANDWIDTHS))
    found = judge.valid(tree, held(site), len(cluster.demands), cluster.demands[0].mean)
    plan = kraken.embed(site, cluster)
    assert (plan is None) == (not found)
    if plan:
        least = min(judge.footprint(tree, one) for one in found)
        assert judge.footprint(tree, counts(tree, plan.embedding)) == least
        assert not plan.moves
        follows(plan, {})
        site.claim(cluster, plan.embedding)
        assert judge.violations(tree, held(site)) == []


@every_tree
@pytest.mark.parametrize("model", COSTS)
@some
@seeds
def test_a_change_costs_as_little_as_any(tree, model, seed):
    """Theorem 1: a possible change is granted, with fewest migrations, then least footprint."""
    costs, judged = COSTS[model]
    rng = Random(seed)
    site = scattered(tree, rng)
    cluster = changed(site, rng)
    _, before, _ = site.clusters[cluster.id]
    others = held(site, but=cluster.id)
    found = judge.valid(tree, others, len(cluster.demands), cluster.demands[0].mean)
    plan = kraken.change(site, cluster, costs)
    assert (plan is None) == (not found)
    if plan:
        start, end = counts(tree, before), counts(tree, plan.embedding)
        assert judged(tree, start, end) == min(judged(tree, start, one) for one in found)
        assert len(plan.moves) == judge.migrations(start, end)
        follows(plan, before)
        slots_stay(site, plan)
        site.replace(cluster, plan.embedding)
        assert judge.violations(tree, held(site)) == []


@every_tree
@some
@seeds
def test_nearest_migrations_climb_as_few_levels_as_any(tree, seed):
    """Section IV-F: moves within a rack cost 1, within a pod 2, ...; then the footprint."""
    rng = Random(seed)
    site = scattered(tree, rng)
    cluster = changed(site, rng)
    nearest_is_the_cheapest(site, cluster)


def test_nearest_migrations_see_a_shorter_move_of_another_unit():
    """Two of three units can stay, in two ways; only one of them spares a move over the root."""
    site = Site(TREES["tapered"])
    site.claim(Cluster.alike("blue", 3, 1.5), {1: (0,), 2: (1,), 4: (2,)})
    site.claim(Cluster.alike("red", 3, 0.25), {0: (0,), 2: (1,), 5: (2,)})
    assert nearest_is_the_cheapest(site, Cluster.alike("red", 4, 1.5)) == 2


def nearest_is_the_cheapest(site, cluster):
    """Compare the plan with all embeddings; the levels that its units climb."""
    tree, (_, embedding, _) = site.tree, site.clusters[cluster.id]
    before, others = counts(tree, embedding), held(site, but=cluster.id)
    found = judge.valid(tree, others, len(cluster.demands), cluster.demands[0].mean)
    plan = transport.change(site, cluster)
    assert (plan is None) == (not found)
    if plan is None:
        return None
    after = counts(tree, plan.embedding)
    costs = [(judge.levels_moved(tree, before, x), judge.footprint(tree, x)) for x in found]
    climbed = sum(
        next(x for x in range(9) if m.source // tree.below[x] == m.target // tree.below[x])
        for m in plan.moves
    )
    assert (climbed, judge.footprint(tree, after)) == min(costs)
    follows(plan, embedding)
    slots_stay(site, plan)
    return climbed


@every_tree
@some
@seeds
@example(943404)  # two links with hardly any free bandwidth: a million times the usual time
def test_fastest_migrations_take_as_little_time_as_any(tree, seed):
    """The judge tries each pairing of old and new places, in fractions of the free bandwidth."""
    rng = Random(seed)
    site = scattered(tree, rng, clusters=3)
    cluster = changed(site, rng, largest=1)
    _, embedding, _ = site.clusters[cluster.id]
    before, used = counts(tree, embedding), judge.reserved(tree, held(site))
    found = judge.valid(
        tree, held(site, but=cluster.id), len(cluster.demands), cluster.demands[0].mean
    )
    plan = transport.change(site, cluster, transport.fastest_migrations)
    assert (plan is None) == (not found)
    if plan is None:
        return
    floor = Fraction(1, 10**6)
    spare = {}
    for x, u in used.items():
        whole = Fraction(tree.capacity[x[0]])
        spare[x] = max(whole - u, whole * floor)
    time = {x: tree.capacity[x[0]] / free for x, free in spare.items()}

    def path(a, b):
        return sum(
            time[level, a // tree.below[level]] + time[level, b // tree.below[level]]
            for level in range(tree.top)
            if a // tree.below[level] != b // tree.below[level]
        )

    def least(after):
        old = [machine for machine, units in enumerate(before) for _ in range(units)]
        new = [machine for machine, units in enumerate(after) for _ in range(units)]
        short, long = sorted((old, new), key=len)
        pairings = set(permutations(long, len(short)))
        return min(sum(map(path, short, some)) for some in pairings)

    taken = sum(path(move.source, move.target) for move in plan.moves)
    assert float(taken) == pytest.approx(float(min(map(least, found))), rel=1e-5)
    follows(plan, embedding)
    slots_stay(site, plan)


def test_all_upgrades_on_a_tiny_tree():
    """Two racks of two machines; one cluster in all its possible places, another on machine 0."""
    tree = SlotTree((2, 2), 2, (2, 1))
    for start in judge.valid(tree, [], 3, 0.5):
        for size, bandwidth, taken in product((3, 4, 5), (0.5, 1.0), (0, 1, 2)):
            site = Site(tree)
            blocked = {0: tuple(range(taken))} if taken else {}
            if taken and start[0] + taken > tree.slots:
                continue
            if taken:
                site.claim(Cluster.alike("blue", taken, 1.0), blocked)
            units = iter(range(3))
            embedding = {m: tuple(next(units) for _ in range(n)) for m, n in enumerate(start) if n}
            site.claim(Cluster.alike("red", 3, 0.5), embedding)
            plan = kraken.upgrade(site, "red", size - 3, bandwidth / 0.5)
            found = judge.valid(tree, held(site, but="red"), size, bandwidth)
            assert (plan is None) == (not found)
            if plan:
                best = min((judge.migrations(start, x), judge.footprint(tree, x)) for x in found)
                end = counts(tree, plan.embedding)
                assert (judge.migrations(start, end), judge.footprint(tree, end)) == best


@every_tree
@some
@seeds
def test_a_downgrade_is_always_granted_and_moves_nobody(tree, seed):
    rng = Random(seed)
    site = scattered(tree, rng)
    id = rng.choice(sorted(site.clusters))
    size = len(site.clusters[id][0].demands)
    plan = kraken.downgrade(site, id, rng.randrange(size), rng.choice((0.5, 1)))
    assert plan is not None
    assert not plan.moves
    assert not plan.added
    follows(plan, site.clusters[id][1])


# -- baselines ----------------------------------------------------------------


@every_tree
@some
@seeds
def test_baselines_give_what_they_can_and_never_less_than_valid(tree, seed):
    rng = Random(seed)
    site = scattered(tree, rng)
    cluster = changed(site, rng)
    _, before, _ = site.clusters[cluster.id]
    others = held(site, but=cluster.id)
    found = judge.valid(tree, others, len(cluster.demands), cluster.demands[0].mean)
    best, scratch = kraken.change(site, cluster), kraken.without_partial_moves(site, cluster)
    assert (scratch is None) == (best is None)
    if best and scratch:
        assert len(best.moves) <= len(scratch.moves)
        if scratch.moves:
            least = min(judge.footprint(tree, one) for one in found)
            assert judge.footprint(tree, counts(tree, scratch.embedding)) == least
    again = oktopus(site, cluster)
    if again:
        assert counts(tree, again.embedding) in found
        follows(again, before)
        assert best is not None
        assert len(best.moves) <= len(again.moves)


def test_oktopus_takes_the_lowest_subtree_that_the_judge_sees():
    tree = SlotTree((3, 2), 2, (1, 2))
    site = Site(tree)
    split = oktopus(site, Cluster.alike("a", 3, 1))
    together = oktopus(site, Cluster.alike("a", 2, 9))
    assert split is not None
    assert split.embedding == {0: (0, 1), 1: (2,)}  # one crosses both links
    assert together is not None
    assert together.embedding == {0: (0, 1)}
    assert oktopus(site, Cluster.alike("a", 13, 0)) is None


# -- histories ----------------------------------------------------------------


@every_tree
@settings(max_examples=10)
@seeds
def test_random_histories_keep_every_promise_and_leave_no_trace(tree, seed):
    rng = Random(seed)
    site = Site(tree)
    empty = trace(site)
    for number in range(25):
        what = rng.random()
        if what < 0.4 or not site.clusters:
            bandwidth = rng.choice((*BANDWIDTHS, 0.1, 1 / 3))
            plan = kraken.embed(site, Cluster.alike(str(number), rng.randint(1, 4), bandwidth))
            if plan:
                site.claim(plan.cluster, plan.embedding)
        elif what < 0.8:
            plan = kraken.change(site, changed(site, rng))
            if plan:
                site.replace(plan.cluster, plan.embedding)
        else:
            site.release(rng.choice(sorted(site.clusters)))
        assert all((site.links.occupancy(level) <= 1).all() for level in range(tree.top))
        assert (site.free >= 0).all()
        assert not any("slots" in text for text in judge.violations(tree, held(site)))
    for id in list(site.clusters):
        site.release(id)
    assert trace(site) == empty


@every_tree
@some
@seeds
def test_chance_keeps_its_part_of_a_link(tree, seed):
    """Stochastic and deterministic clusters share a ledger; all promises of both are kept."""
    rng = Random(seed)
    site = Site(tree, rng.choice((0.02, 0.05)))
    for number in range(12):
        size, mean = rng.randint(1, 4), rng.choice(BANDWIDTHS)
        if rng.random() < 0.5:
            cluster = Cluster.alike(str(number), size, mean, rng.choice((0.1, 0.3)))
            embedding = svc(site, cluster)
        else:
            cluster = Cluster.alike(str(number), size, mean)
            plan = kraken.embed(site, cluster)
            embedding = plan.embedding if plan else None
        if embedding is not None:
            site.claim(cluster, embedding)
        assert all(np.isfinite(site.links.allowed(level)).all() for level in range(tree.top))


def trace(site):
    occupied = [site.links.occupancy(level).tolist() for level in range(site.tree.top)]
    return occupied, site.free.tolist(), site.clusters


# -- the paper ----------------------------------------------------------------


def test_the_paper_s_example():
    """Figure 3: three racks of two servers of 4 slots; VC(7, 1) becomes VC(8, 2) by 3 moves."""
    site = Site(tapered((2, 3), 4, 4, (1,)))
    for number, (machine, size) in enumerate([(0, 1), (1, 4), (2, 2), (3, 2)]):
        blue = Cluster.alike(str(number), size, 0)
        site.claim(blue, {machine: tuple(range(size))})
    site.claim(Cluster.alike("vc", 7, 1), {4: (0, 1, 2, 3), 5: (4, 5, 6)})
    plan = kraken.upgrade(site, "vc", 1, 2)
    assert plan is not None
    before, after = (4, 3), counts(site.tree, plan.embedding)
    assert after[4:] == (2, 2)
    assert len(plan.moves) == sum(before) - 4 == 3
    assert len(plan.added) == 1


def test_the_paper_s_slot_counts():
    """Figure 5: a full rack, one with room for 6, and one whose links are taken."""
    site = Site(tapered((2, 3), 4, 4, (1,)))
    site.claim(Cluster.alike("1", 10, 1), {0: (0, 1, 2, 3), 1: (4, 5, 6, 7), 2: (8, 9)})
    site.claim(Cluster.alike("2", 2, 4), {4: (0,), 5: (1,)})
    spare = site.links.spare({})
    room = tree_search.slot_count(site.tree, site.free, [links // GRAIN for links in spare])
    assert room.slot_count[0].tolist() == [0, 0, 2, 4, 0, 0]
    assert room.slot_count[1].tolist() == [0, 6, 0]
    plan = kraken.embed(site, Cluster.alike("3", 3, 1))
    assert plan is not None
    assert plan.embedding == {3: (0, 1, 2)}


def test_as_printed_a_server_s_own_slots_are_forgotten():
    """Algorithm 3 sums over children, but a server has none. It refuses one unit on one server
    with a thin link, although the unit fits (property 1)."""
    tree = SlotTree((1,), 1, (1,))
    assert Printed(tree, [1], [[0]]).embed(1) == INFINITE
    plan = kraken.embed(Site(tree), Cluster.alike("a", 1, 2))
    assert plan is not None


def test_as_printed_a_unit_goes_to_the_server_beside():
    """One unit on two servers: footprint 2 as printed; 0 is possible (property 3)."""
    tree = SlotTree((2,), 1, (1,))
    assert Printed(tree, [1, 1], [[1, 1]]).embed(1) == 2
    plan = kraken.embed(Site(tree), Cluster.alike("a", 1, 1))
    assert plan is not None
    assert judge.footprint(tree, counts(tree, plan.embedding)) == 0


def test_as_printed_room_to_spare_is_a_refusal():
    """Algorithm 4 stops at z = 0 only. With more room than units z is negative, so that the
    search goes on to the core, which is infinite. The only possible centre is the switch."""
    tree = SlotTree((3,), 1, (1,))
    assert Printed(tree, [1, 1, 1], [[1, 1, 1]]).footprint(1, 0, 2) == INFINITE
    assert Printed(tree, [1, 1, 1], [[1, 1, 1]]).footprint(1, 0, 3) == 3


def test_as_printed_new_units_do_not_help_the_centre():
    """One unit becomes three, and two slots beside it are free. No unit has to move (property 2),
    but with the new size as n, extraCUs demands migrations below every vertex."""
    tree = SlotTree((1, 1), 3, (1, 1))
    assert extra_units(below=1, size=3) == 1
    site = Site(tree)
    site.claim(Cluster.alike("a", 1, 1), {0: (0,)})
    plan = kraken.upgrade(site, "a", 2)
    assert plan is not None
    assert plan.moves == ()


def test_an_arbitrary_unit_is_not_good_enough():
    """Algorithm 2, line 6: the centre is server 0, and one unit may stay elsewhere. So either of
    the two other units may be released, but only one choice has the least footprint."""
    tree = SlotTree((2, 2), 4, (1, 4))
    site = Site(tree)
    site.claim(Cluster.alike("a", 4, 0.5), {0: (0, 1), 1: (2,), 2: (3,)})
    plan = kraken.upgrade(site, "a", factor=2)
    assert plan is not None
    assert plan.moves == ((3, 2, 0),)
    near, far = (3, 1, 0, 0), (3, 0, 1, 0)
    assert {near, far} <= set(judge.valid(tree, [], 4, 1))
    assert judge.footprint(tree, near) < judge.footprint(tree, far)


# -- mistakes -----------------------------------------------------------------


def test_mistakes_are_named():
    site = Site(TREES["racks"])
    site.claim(Cluster.alike("a", 2, 1), {0: (0, 1)})
    for wrong in (
        lambda: kraken.upgrade(site, "a", -1),
        lambda: kraken.upgrade(site, "a", factor=0.5),
        lambda: kraken.downgrade(site, "a", 2),
        lambda: kraken.downgrade(site, "a", factor=1.5),
        lambda: kraken.downgrade(site, "a", factor=0),
        lambda: kraken.embed(site, Cluster.alike("b", 0, 1)),
        lambda: kraken.embed(site, Cluster.alike("b", 1, 1, 0.5)),
        lambda: oktopus(site, Cluster.alike("b", 0, 1)),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    for lost in (
        lambda: kraken.upgrade(site, "b"),
        lambda: kraken.downgrade(site, "b"),
        lambda: site.replace(Cluster.alike("b", 1, 1), {0: (0,)}),
    ):
        with pytest.raises(NotFound, match="no cluster 'b'"):
            lost()
    before = trace(site)
    for twice in (
        lambda: site.replace(Cluster.alike("a", 3, 1), {0: (0, 1, 2)}),
        lambda: kraken.embed(site, Cluster.alike("a", 1, 1)),
    ):
        with pytest.raises(DoubleClaim):
            twice()
    assert trace(site) == before
