# SPDX-License-Identifier: Apache-2.0

"""A sound shape passes; a shape that breaks any one condition fails."""

from dataclasses import replace

import pytest

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.topology import Topology
from laas_service.domain.verification import shape_violations
from tests.unit.domain.verification.sound import (
    CABLES,
    FULL,
    PLANES,
    RAILS,
    TAPERED,
    TAPERED_RAILS,
    TOPOLOGIES,
    TWO_LEVEL,
    build,
)

THREE_LEVEL = build(FULL, Shape(2, 2, 2, 1, 1))
"""Pods 0 and 1 with leaves 0 and 1 of two hosts; pod 2 with leaf 0 of two and leaf 1 of one."""


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_sound_shapes_pass(name):
    topology = TOPOLOGIES[name]
    slots, groups, pods = topology.hosts_per_group, topology.groups_per_pod, topology.pods
    shapes = [
        Shape(1, 1, 1),
        Shape(1, 1, slots),
        Shape(1, groups, slots),
        Shape(1, groups - 1, slots, 0, 1),
        Shape(1, groups - 1, slots - 1, 0, 1),
    ]
    if pods > 1:
        shapes += [
            Shape(pods, groups, slots),
            Shape(pods - 1, groups, slots, 1, 1),
            Shape(pods - 1, groups, slots, groups - 1, slots - 1),
            Shape(1, 1, slots - 1, 0, 0),
            Shape(pods - 1, 1, 2, 0, 0),
        ]
    for shape in shapes:
        assert shape_violations(topology, build(topology, shape)) == [], shape


def test_a_policy_without_links_promises_no_shape():
    scattered = Allocation("b", 3, "baseline", (GroupShare(0, 1, 0), GroupShare(4, 0b11, 0)))
    assert shape_violations(FULL, scattered) == []


def group(allocation: Allocation, number: int, **values: int) -> Allocation:
    """The allocation with one leaf group's share changed."""
    shares = [s._replace(**values) if s.group == number else s for s in allocation.groups]
    return replace(allocation, groups=tuple(shares), shape=None)


def column(allocation: Allocation, pod: int, number: int, uplinks: int) -> Allocation:
    """The allocation with the spine uplinks of one L2 switch changed."""
    shares = [s for s in allocation.columns if (s.pod, s.column) != (pod, number)]
    shares += [ColumnShare(pod, number, uplinks)] if uplinks else []
    return replace(allocation, columns=tuple(sorted(shares)))


ONE_POD = build(FULL, Shape(1, 2, 2, 0, 1))
ONE_LEAF = build(FULL, Shape(1, 1, 2))

BROKEN = {
    "one host too few": (FULL, group(THREE_LEVEL, 0, hosts=0b1), "hosts were requested"),
    "a second smaller leaf": (FULL, group(THREE_LEVEL, 0, hosts=0b1), "(2)"),
    "pods of three sizes": (
        FULL,
        replace(THREE_LEVEL, groups=THREE_LEVEL.groups[1:], shape=None),
        "(1)",
    ),
    "smaller leaf outside the smaller pod": (
        FULL,
        replace(
            THREE_LEVEL,
            requested=5,
            policy="lc",
            groups=(GroupShare(0, 3, 3), GroupShare(1, 1, 1), GroupShare(3, 3, 3)),
            shape=None,
        ),
        "(3)",
    ),
    "another shape than said": (
        FULL,
        replace(ONE_POD, shape=Shape(1, 2, 2, 1, 0)),
        "its shape is recorded as",
    ),
    "a leaf on other uplinks": (FULL, group(THREE_LEVEL, 1, uplinks=0b110), "(4, 5)"),
    "a pod on other uplinks": (
        FULL,
        group(group(THREE_LEVEL, 3, uplinks=0b110), 4, uplinks=0b110),
        "(4, 5)",
    ),
    "a missing uplink": (FULL, group(THREE_LEVEL, 4, uplinks=0b1), "(4)"),
    "an uplink too many": (FULL, group(ONE_POD, 0, uplinks=0b111), "(4)"),
    "remainder leaf on an uplink of its own": (
        FULL,
        group(THREE_LEVEL, 7, uplinks=0b100),
        "(4, 5) leaf 2/1 on rail 0 has uplinks {2} alone",
    ),
    "no spine uplinks": (FULL, column(THREE_LEVEL, 0, 0, 0), "(6)"),
    "a pod on other spines": (FULL, column(THREE_LEVEL, 1, 0, 0b110), "(6)"),
    "remainder pod on a spine of its own": (FULL, column(THREE_LEVEL, 2, 1, 0b100), "alone"),
    "a spine link above an unused L2 switch": (FULL, column(THREE_LEVEL, 2, 2, 0b1), "(6)"),
    "a spine link of a one-pod job": (FULL, column(ONE_POD, 0, 0, 0b1), "the job is in one pod"),
    "an uplink of a one-leaf job": (FULL, group(ONE_LEAF, 0, uplinks=1), "needs 0"),
    "a spine link of a one-leaf job": (FULL, column(ONE_LEAF, 0, 0, 1), "in one leaf group"),
    "an uplink on a leaf without hosts": (
        FULL,
        replace(ONE_POD, groups=(*ONE_POD.groups, GroupShare(5, 0, 1))),
        "link leaf-1-2-0 is in a place without a host",
    ),
    "a spine link in a pod without hosts": (
        FULL,
        column(ONE_POD, 2, 0, 1),
        "link spine-2-0-0 is in a place without a host",
    ),
    "tapered: an uplink for each host": (
        TAPERED,
        group(build(TAPERED, Shape(1, 2, 3)), 0, uplinks=0b111),
        "needs 2",
    ),
    "cables: one of a bundle": (
        CABLES,
        group(build(CABLES, Shape(1, 2, 2)), 0, uplinks=0b101),
        "(4, 5)",
    ),
    "cables: spine uplinks for one of two": (
        CABLES,
        column(build(CABLES, Shape(2, 1, 2)), 0, 0, 0b1),
        "(6) L2 switch 0/0 has 1 uplinks for 2",
    ),
    "rails not joined": (RAILS, group(build(RAILS, Shape(1, 1, 2)), 0, uplinks=0), "needs 1"),
    "rails joined for one host": (
        RAILS,
        group(build(RAILS, Shape(1, 1, 1)), 0, uplinks=1),
        "needs 0",
    ),
    "rails: spine uplinks for one of two": (
        RAILS,
        column(build(RAILS, Shape(2, 2, 2)), 0, 0, 0b11),
        "(6) L2 switch 0/0 has 2 uplinks for 4",
    ),
    "planes: uplinks in one plane only": (
        PLANES,
        group(build(PLANES, Shape(1, 2, 2)), 0, uplinks=0b000011),
        "(4) leaf 1/0 on rail 1 has 0 uplinks for 2 hosts",
    ),
    "planes: one-leaf job with uplinks": (
        PLANES,
        group(build(PLANES, Shape(1, 1, 2)), 0, uplinks=0b001001),
        "needs 0",
    ),
    "simple: part of a leaf": (FULL, replace(ONE_POD, policy="simple"), "in units of 3"),
    "simple: part of a pod": (
        FULL,
        replace(build(FULL, Shape(2, 2, 3)), policy="simple"),
        "in units of 9",
    ),
    "laas: part of a leaf across pods": (
        FULL,
        replace(THREE_LEVEL, policy="laas"),
        "in units of 3",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_shape_is_found(name):
    topology, allocation, words = BROKEN[name]
    found = shape_violations(topology, allocation)
    assert any(words in line for line in found), found
    assert all(line.startswith(f"shape: {allocation.id}: ") for line in found)


def laas(topology: Topology, shape: Shape, requested: int) -> Allocation:
    return replace(build(topology, shape, policy="laas"), requested=requested)


def test_laas_rounds_up_to_whole_leaves_across_pods_only():
    assert shape_violations(FULL, laas(FULL, Shape(2, 2, 3, 1, 0), 14)) == []
    assert shape_violations(FULL, laas(FULL, Shape(1, 2, 2), 4)) == []
    (found,) = shape_violations(FULL, laas(FULL, Shape(1, 2, 2), 3))
    assert "3 hosts were requested and 4 are held" in found
    (found,) = shape_violations(FULL, laas(FULL, Shape(2, 2, 3, 1, 0), 12))
    assert "12 hosts were requested and 15 are held" in found


def test_simple_takes_whole_leaves_or_whole_pods():
    for shape, requested in [
        (Shape(1, 1, 2), 2),
        (Shape(1, 2, 3), 4),
        (Shape(2, 3, 3), 10),
    ]:
        allocation = replace(build(FULL, shape, policy="simple"), requested=requested)
        assert shape_violations(FULL, allocation) == []


def test_tapered_rails_share_spine_uplinks():
    """Two rails with one uplink on each of two leaves: 4 from below, at taper 2."""
    assert TAPERED_RAILS.tree.taper == (2, 2)
    sound = build(TAPERED_RAILS, Shape(2, 2, 2))
    assert {share.uplinks for share in sound.columns} == {0b11}
    assert shape_violations(TAPERED_RAILS, sound) == []


def test_two_level_shapes_have_no_spines():
    assert shape_violations(TWO_LEVEL, build(TWO_LEVEL, Shape(1, 5, 3, 0, 2))) == []
