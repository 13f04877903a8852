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
from laas_service.domain.search.shapes import multi_pod_shapes
from laas_service.domain.topology import LeafLink, Link, Port, SpineLink, Topology, Xgft, bits


def rails_in_planes(tree: Xgft) -> Topology:
    """Two rails; a leaf group is a leaf of pods 2p and 2p + 1 each."""
    ports = [
        (Port(pod, leaf, position), Port(pod + 1, leaf, position))
        for pod in range(0, tree.m[2], 2)
        for leaf in range(tree.m[1])
        for position in range(tree.m[0])
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
    pods = ledger.reader_cache(LeavesOfPods).now(ledger)
    agreeing = AgreeingPods(ledger, pods, SearchBudget(WORK))
    return agreeing.uplinks(shape, WORK, shape.remainder_hosts)


def some_shapes(rng: Random, topology: Topology) -> list[Shape]:
    leaf_hosts = rng.randint(1, topology.hosts_per_group - 1)
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


@given(seed=st.integers(0, 1 << 32), remainder=st.booleans())
@settings(max_examples=120, deadline=None)
def test_pods_that_agree_exist_exactly_if_combinations_have_them(seed, remainder):
    """On a full tree a shape is allowed exactly if pods, uplinks and spines for it exist."""
    rng, ledger = Random(seed), Ledger(TREES["full"])
    fail_some(rng, ledger, hosts=rng.uniform(0, 0.6), links=rng.uniform(0, 0.4))
    for _ in range(4):
        for shape in some_shapes(rng, ledger.topology):
            if not remainder or (shape.remainder_leaves and shape.remainder_hosts):
                assert bool(allowed(ledger, shape)) == by_combinations(ledger, shape), shape


def fail_some(rng: Random, ledger: Ledger, hosts: float, links: float) -> None:
    """Let each host and each link fail with these probabilities."""
    tree = ledger.topology.tree
    for pod in range(tree.m[2]):
        for high in range(tree.w[1]):
            some: list[Link] = [SpineLink(pod, high, spine) for spine in range(tree.w[2])]
            some += [LeafLink(pod, leaf, high) for leaf in range(tree.m[1])]
            for link in some:
                if rng.random() < links:
                    ledger.fail_link(link)
    for host in range(ledger.topology.hosts):
        if rng.random() < hosts:
            ledger.fail_host(host)


def test_the_remainder_leaf_is_none_of_the_full_leaves_of_its_pod():
    """Two pods have two leaves each, a third one has one leaf, then another with a free host."""
    ledger = Ledger(TREES["full"])
    slots, per_pod = ledger.topology.hosts_per_group, ledger.topology.groups_per_pod
    free = {0: 3, 1: 3, per_pod: 3, per_pod + 1: 3, 2 * per_pod: 3}
    for group in range(ledger.topology.groups):
        for position in range(free.get(group, 0), slots):
            ledger.fail_host(group * slots + position)
    shape = Shape(pods=2, leaves=2, hosts=3, remainder_leaves=1, remainder_hosts=1)
    assert not allowed(ledger, shape)
    ledger.repair_host((2 * per_pod + 3) * slots)
    assert allowed(ledger, shape)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_few_repairs_make_possible_what_they_should(seed):
    """Pods that hardly agree, with a link more each time, as a search without memory."""
    rng, ledger = Random(seed), Ledger(Topology(Xgft((2, 2, 12), (1, 2, 6))))
    fail_some(rng, ledger, hosts=0, links=rng.uniform(0.3, 0.6))
    shapes = [Shape(pods, leaves, 2) for leaves in (1, 2) for pods in range(2, 9)]
    for _ in range(12):
        for shape in rng.sample(shapes, 6):
            fresh = ledger.copy()
            fresh.reader_caches.clear()
            assert bool(allowed(ledger, shape)) == bool(allowed(fresh, shape)), shape
        if ledger.failed_links:
            pod = rng.randrange(12)
            for link in sorted(ledger.failed_links, key=str):
                if link.pod == pod and rng.random() < 0.3:
                    ledger.repair_link(link)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_as_many_pods_whose_leaves_have_fewer_hosts(seed):
    """Where these decide for pods with more hosts on a leaf, combinations say the same."""
    rng, ledger = Random(seed), Ledger(Topology(Xgft((6, 2, 8), (1, 6, 4))))
    fail_some(rng, ledger, hosts=0, links=rng.uniform(0.15, 0.4))
    for hosts in (6, 5):
        for pods in (2, 3, 4):
            shape = Shape(pods, 1, hosts)
            assert bool(allowed(ledger, shape)) == by_combinations(ledger, shape), shape


def by_combinations(ledger: Ledger, shape: Shape) -> bool:
    """Whether pods have the shape's leaves, from every set of uplinks and of pods."""
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
    return not shape.remainder_hosts or any(
        len(leaves_with(ledger, pod, shape.remainder_hosts, some)) > more
        and spines_above(ledger, every, some) > more
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
    shared = PodLeaves(topology, by_free, uplinks).shared(len(masks), leaves)
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
    assert agreeing.uplinks(shape, WORK) is None
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
