# SPDX-License-Identifier: Apache-2.0

"""Pods that agree: no shape that has a placement is ruled out, whatever is remembered."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request, Shape
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.lc import Lc
from laas_service.domain.search.agreeing_pods import AgreeingPods
from laas_service.domain.search.budget import WORK, SearchBudget
from laas_service.domain.search.pod_leaves import LeavesOfPods, PodLeaves
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import multi_pod_shapes
from laas_service.domain.topology import LeafLink, Link, Port, SpineLink, Topology, Xgft, bits


def rails_in_planes(tree: Xgft) -> Topology:
    """Two rails; a leaf group is a leaf of pods 2p and 2p + 1 each."""
    ports = [
        (Port(pod, leaf, slot), Port(pod + 1, leaf, slot))
        for pod in range(0, tree.m[2], 2)
        for leaf in range(tree.m[1])
        for slot in range(tree.m[0])
    ]
    return Topology(tree, rails=2, host_ports=tuple(ports))


TREES = {
    "full": Topology(Xgft((4, 4, 6), (1, 4, 4))),
    "tapered": Topology(Xgft((4, 3, 4), (1, 2, 2))),
    "parallel cables": Topology(Xgft((3, 3, 4), (1, 6, 4), (2, 2))),
    "rails in planes": rails_in_planes(Xgft((3, 3, 8), (1, 3, 3))),
}


def allowed(ledger: Ledger, shape: Shape) -> int | None:
    """What ``AgreeingPods`` says of a shape, with all that the ledger remembers."""
    search = Search(ledger, "lc", Request("asked", 1), WORK)
    width = search.uplinks_for(shape.hosts)
    pods = ledger.reader_cache(LeavesOfPods).now(ledger)
    agreeing = AgreeingPods(ledger, pods, search.budget)
    return agreeing.uplinks(search.has_uplinks(width), width, shape, shape.remainder_hosts)


def some_shapes(rng: Random, topology: Topology) -> list[Shape]:
    leaf_hosts = rng.randint(1, topology.slots - 1)
    leaves = rng.randint(2, topology.groups_per_pod * topology.pods // 2)
    rest = rng.choice((0, rng.randrange(leaf_hosts)))
    sizes = topology.groups_per_pod, topology.pods, topology.taper[1]
    return list(multi_pod_shapes(leaves, rest, leaf_hosts, *sizes))


def change(rng: Random, ledger: Ledger, number: int) -> None:
    """A tenant goes or comes, or a link fails or is repaired."""
    chance, tree = rng.random(), ledger.topology.tree
    if chance < 0.35 and ledger.allocations:
        ledger.release(rng.choice(list(ledger.allocations)))
    elif chance < 0.45:
        link = SpineLink(rng.randrange(tree.m[2]), 0, rng.randrange(tree.w[2]))
        if link in ledger.failed_links:
            ledger.repair_link(link)
        else:
            ledger.fail_link(link)
    else:
        admit(Lc(), ledger, Request(f"t{number}", rng.randint(1, 9)))


@pytest.mark.parametrize("name", TREES)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_a_shape_is_ruled_out_only_if_it_has_no_placement(name, seed):
    """What is remembered of earlier states says the same as a search without memory."""
    rng, ledger = Random(seed), Ledger(TREES[name])
    for number in range(40):
        change(rng, ledger, number)
        for shape in some_shapes(rng, ledger.topology):
            fresh = ledger.copy()
            fresh.reader_caches.clear()
            remembered, anew = allowed(ledger, shape), allowed(fresh, shape)
            assert bool(remembered) == bool(anew), shape


@pytest.mark.parametrize("name", TREES)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=12, deadline=None)
def test_the_shape_of_every_placement_is_allowed(name, seed):
    rng, ledger = Random(seed), Ledger(TREES[name])
    for number in range(40):
        change(rng, ledger, number)
        before = ledger.copy()
        answer = admit(Lc(), ledger, Request(f"asked{number}", rng.randint(4, 16)))
        if isinstance(answer, Allocation):
            assert answer.shape is not None
            if answer.shape.pods + (answer.shape.remainder_leaves > 0) > 1:
                assert allowed(before, answer.shape)
            ledger.release(answer.id)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_pods_that_agree_exist_exactly_if_combinations_have_them(seed):
    """On a full tree a shape is allowed exactly if pods, uplinks and spines for it exist."""
    rng, ledger = Random(seed), Ledger(TREES["full"])
    tree, failing = ledger.topology.tree, rng.uniform(0, 0.4)
    for pod in range(tree.m[2]):
        for high in range(tree.w[1]):
            links: list[Link] = [SpineLink(pod, high, spine) for spine in range(tree.w[2])]
            links += [LeafLink(pod, leaf, high) for leaf in range(tree.m[1])]
            for link in links:
                if rng.random() < failing:
                    ledger.fail_link(link)
    for host in range(ledger.topology.hosts):
        if rng.random() < 0.15:
            ledger.fail_host(host)
    topology = ledger.topology
    shapes = [shape for _ in range(4) for shape in some_shapes(rng, topology)]
    for shape in shapes:
        assert bool(allowed(ledger, shape)) == by_combinations(ledger, shape), shape


def by_combinations(ledger: Ledger, shape: Shape) -> bool:
    """Whether pods have the shape's leaves, from every set of uplinks and of pods.

    The remainder leaf may be one of the full leaves of its pod.
    """
    topology = ledger.topology
    for uplinks in combinations(range(topology.tree.w[1]), shape.hosts):
        roomy = [
            len(leaves_with(ledger, pod, shape.hosts, uplinks)) for pod in range(topology.pods)
        ]
        for pods in combinations(range(topology.pods), shape.pods):
            if (
                all(roomy[pod] >= shape.leaves for pod in pods)
                and spines_above(ledger, pods, uplinks) >= shape.leaves
                and (
                    not shape.remainder_leaves + shape.remainder_hosts
                    or any(
                        has_remainder(ledger, shape, pods, pod, uplinks)
                        for pod in range(topology.pods)
                        if pod not in pods and roomy[pod] >= shape.remainder_leaves
                    )
                )
            ):
                return True
    return False


def has_remainder(
    ledger: Ledger, shape: Shape, pods: tuple[int, ...], pod: int, uplinks: tuple[int, ...]
) -> bool:
    """Whether a pod with enough full leaves has the remainder leaf and the spines of all."""
    every, more = (*pods, pod), shape.remainder_leaves
    if spines_above(ledger, every, uplinks) < more:
        return False
    return any(
        leaves_with(ledger, pod, shape.remainder_hosts, some)
        and (not some or spines_above(ledger, every, some) > more)
        for some in combinations(uplinks, shape.remainder_hosts)
    )


def leaves_with(ledger: Ledger, pod: int, hosts: int, uplinks: tuple[int, ...]) -> list[int]:
    """The leaves of a pod with so many hosts and these uplinks."""
    chosen, per_pod = sum(1 << uplink for uplink in uplinks), ledger.topology.groups_per_pod
    return [
        group
        for group in range(pod * per_pod, (pod + 1) * per_pod)
        if not chosen & ~ledger.free_uplinks[group]
        and min(ledger.free_hosts[group].bit_count(), ledger.free_uplinks[group].bit_count())
        >= hosts
    ]


def spines_above(ledger: Ledger, pods: tuple[int, ...], uplinks: tuple[int, ...]) -> int:
    """The spines that pods have in common above each of the uplinks, at least."""
    return min(spines_in_common(ledger, pods, uplink) for uplink in uplinks)


def spines_in_common(ledger: Ledger, pods: tuple[int, ...], column: int) -> int:
    common = -1
    for pod in pods:
        common &= ledger.free_spines[pod * ledger.topology.columns_per_pod + column]
    return common.bit_count()


@given(masks=st.lists(st.integers(1, 15), min_size=1, max_size=4), leaves=st.integers(1, 4))
def test_the_largest_sets_that_leaves_share(masks, leaves):
    topology = TREES["full"]
    uplinks = (masks + [0] * 4)[:4]
    by_free = [0, 0, 0, 0, 0]
    for local, mask in enumerate(uplinks):
        by_free[mask.bit_count()] |= 1 << local
    shared = PodLeaves(topology, by_free, uplinks).shared(1, 1, leaves)
    every = {
        common
        for rows in combinations(masks, leaves)
        if (common := rows[0] & rows[-1] & combined(rows))
    }
    largest = {mask for mask in every if not any(mask != m and not mask & ~m for m in every)}
    assert sorted(shared) == sorted(largest)


def combined(rows: tuple[int, ...]) -> int:
    common = -1
    for row in rows:
        common &= row
    return common


def test_without_budget_nothing_is_said():
    ledger = Ledger(TREES["full"])
    pods = ledger.reader_cache(LeavesOfPods).now(ledger)
    agreeing = AgreeingPods(ledger, pods, SearchBudget(0))
    shape = Shape(2, 2, 3)
    assert agreeing.uplinks(lambda mask: mask.bit_count() >= 3, 3, shape) is None
    assert list(bits(allowed(ledger, shape) or 0)) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", TREES)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_what_is_remembered_changes_no_answer(name, seed):
    """Requests that differ in their remainder leaf alone, on a ledger that changes little."""
    rng, ledger = Random(seed), Ledger(TREES[name])
    sizes = range(4, 2 * ledger.topology.hosts // 3)
    for number in range(40):
        change(rng, ledger, number)
        hosts = rng.choice(sizes)
        for asked in range(min(hosts + 3, sizes.stop), max(hosts - 3, 3), -1):
            fresh = ledger.copy()
            fresh.reader_caches.clear()
            request = Request("asked", asked)
            remembered, anew = Lc().propose(ledger, request), Lc().propose(fresh, request)
            assert isinstance(remembered, Allocation) == isinstance(anew, Allocation), asked
