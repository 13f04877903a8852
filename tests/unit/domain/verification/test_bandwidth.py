# SPDX-License-Identifier: Apache-2.0

"""Sound allocations carry every permutation; without one link, some permutation is blocked."""

from collections import Counter
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.allocation import Allocation, GroupShare, Shape
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from laas_service.domain.verification import (
    adversarial_permutations,
    permutation_violations,
    random_permutation,
    shape_violations,
)
from laas_service.domain.verification.bandwidth import colouring, routes
from tests.unit.domain.verification.sound import FULL, RAILS, TAPERED, TOPOLOGIES, build


@st.composite
def allocations(draw) -> tuple[Topology, Allocation]:
    """Any topology and any legal shape in it."""
    topology = TOPOLOGIES[draw(st.sampled_from(sorted(TOPOLOGIES)))]
    hosts = draw(st.integers(1, topology.hosts_per_group))
    pods = draw(st.integers(1, topology.pods))
    leaves = draw(st.integers(1, topology.groups_per_pod))
    rest = draw(st.integers(0, hosts - 1))
    shape = Shape(pods, leaves, hosts)
    if pods == 1 and leaves < topology.groups_per_pod and draw(st.booleans()):
        shape = Shape(1, leaves, hosts, 0, rest)
    elif pods < topology.pods:
        shape = Shape(pods, leaves, hosts, draw(st.integers(0, leaves - 1)), rest)
    if shape.pods == 1 and not shape.remainder_leaves and leaves == topology.groups_per_pod:
        shape = replace(shape, remainder_hosts=0)
    return topology, build(topology, shape)


@settings(max_examples=150, deadline=None)
@given(allocations(), st.randoms(use_true_random=False))
def test_every_sound_shape_carries_every_permutation(case, random):
    topology, allocation = case
    assert shape_violations(topology, allocation) == []
    hosts = allocation.hosts(topology)
    tried = dict(adversarial_permutations(topology, allocation))
    tried |= {f"random {n}": random_permutation(hosts, random) for n in range(5)}
    assert permutation_violations(topology, allocation, tried) == []


@settings(max_examples=50, deadline=None)
@given(allocations(), st.randoms(use_true_random=False))
def test_a_route_is_a_path_over_own_links(case, random):
    """Up from the leaf of the source, over one switch on top, down to that of the target."""
    topology, allocation = case
    tree = topology.tree
    own = set(allocation.links(topology))
    permutation = random_permutation(allocation.hosts(topology), random)
    flows: Counter[tuple[int, int]] = Counter()
    for route in routes(topology, allocation, permutation):
        source = topology.ports_of(route.source)[route.rail]
        target = topology.ports_of(route.target)[route.rail]
        flows[route.source, route.target] += 1
        assert {*route.up, *route.down} <= own
        first, last = route.up[0], route.down[-1]
        assert isinstance(first, LeafLink)
        assert isinstance(last, LeafLink)
        assert first[:2] == source[:2]
        assert last[:2] == target[:2]
        assert first.up // tree.cables[0] == last.up // tree.cables[0]
        if source.pod != target.pod:
            up, down = route.up[1], route.down[0]
            assert isinstance(up, SpineLink)
            assert isinstance(down, SpineLink)
            assert (up.pod, down.pod) == (source.pod, target.pod)
            assert up.l2 == down.l2 == first.up // tree.cables[0]
            assert up.up // tree.cables[1] == down.up // tree.cables[1]
        else:
            assert len(route.up) == len(route.down) == 1
    for source, target in permutation.items():
        leaves_apart = topology.place_of(source)[0] != topology.place_of(target)[0]
        assert flows[source, target] == (topology.rails if leaves_apart else 0)


def test_a_permutation_is_one_to_one():
    hosts = range(7)
    for permutation in adversarial_permutations(FULL, build(FULL, Shape(2, 1, 3, 0, 1))).values():
        assert sorted(permutation) == sorted(permutation.values()) == [0, 1, 2, 9, 10, 11, 18]
    shuffled = random_permutation(hosts, Random(1))
    assert sorted(shuffled.values()) == list(hosts)
    assert random_permutation(hosts, Random(1)) == shuffled


WIDE = {
    "full": (FULL, Shape(2, 2, 2, 1, 1)),
    "rails": (RAILS, Shape(2, 2, 2, 1, 1)),
    "tapered": (TAPERED, Shape(2, 2, 4, 1, 2)),
}


@pytest.mark.parametrize("name", WIDE)
def test_without_any_one_link_some_permutation_is_blocked(name):
    topology, shape = WIDE[name]
    sound = build(topology, shape)
    tried = adversarial_permutations(topology, sound)
    assert permutation_violations(topology, sound, tried) == []
    for number, share in enumerate(sound.groups):
        for bit in range(share.uplinks.bit_length()):
            if share.uplinks >> bit & 1:
                changed = share._replace(uplinks=share.uplinks & ~(1 << bit))
                groups = (*sound.groups[:number], changed, *sound.groups[number + 1 :])
                assert permutation_violations(topology, replace(sound, groups=groups), tried)
    for number, column in enumerate(sound.columns):
        for bit in range(column.uplinks.bit_length()):
            changed_column = column._replace(uplinks=column.uplinks & ~(1 << bit))
            columns = (*sound.columns[:number], changed_column, *sound.columns[number + 1 :])
            assert permutation_violations(topology, replace(sound, columns=columns), tried)


def test_balanced_links_to_different_switches_are_blocked():
    """Jigsaw, figure 1, right: enough links, but they do not meet."""
    red = Allocation("red", 4, "jigsaw", (GroupShare(0, 0b11, 0b011), GroupShare(1, 0b11, 0b110)))
    tried = adversarial_permutations(FULL, red)
    found = permutation_violations(FULL, red, tried)
    assert any(
        line.startswith("bandwidth: red: leaves in pairs: rail 0, leaves: flows that must share")
        for line in found
    )


def test_uneven_leaves_are_blocked():
    """Jigsaw, figure 1, centre: leaves of one, two and three hosts."""
    groups = (GroupShare(0, 0b1, 0b1), GroupShare(1, 0b11, 0b11), GroupShare(2, 0b111, 0b111))
    red = Allocation("red", 6, "jigsaw", groups)
    hosts = red.hosts(FULL)
    tried = {str(p): dict(zip(hosts, p, strict=True)) for p in permutations(hosts)}
    assert permutation_violations(FULL, red, tried)


def test_a_policy_without_links_promises_no_bandwidth():
    scattered = Allocation("b", 2, "baseline", (GroupShare(0, 1, 0), GroupShare(4, 1, 0)))
    assert permutation_violations(FULL, scattered, {"swap": {0: 12, 12: 0}}) == []


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60),
)
def test_a_colouring_needs_no_more_colours_than_the_largest_degree(edges):
    degrees = Counter(("left", a) for a, _ in edges) + Counter(("right", b) for _, b in edges)
    colours = max(degrees.values(), default=0)
    found = colouring(edges, colours)
    assert all(0 <= colour < colours for colour in found)
    for side in (0, 1):
        assert len({(edge[side], c) for edge, c in zip(edges, found, strict=True)}) == len(edges)


def test_a_pod_of_a_thousand_hosts():
    """All of a radix-16 tree in one allocation, full and with one host less on each count."""
    tree = Topology(Xgft((8, 8, 16), (1, 8, 8)))
    for shape in (Shape(16, 8, 8), Shape(15, 8, 8, 7, 7)):
        whole = build(tree, shape)
        assert permutation_violations(tree, whole, adversarial_permutations(tree, whole)) == []
