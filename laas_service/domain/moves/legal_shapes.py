# SPDX-License-Identifier: Apache-2.0

"""All shapes that a policy allows for a number of hosts; those on few levels come first."""

import enum
from collections.abc import Iterator
from typing import NamedTuple

from laas_service.domain.allocation import Shape
from laas_service.domain.search.shapes import (
    multi_pod_shapes,
    one_leaf_shape,
    pod_shapes,
    two_pod_shapes,
)
from laas_service.domain.topology import Topology

SHAPED = frozenset({"simple", "laas", "jigsaw", "lc"})
"""Names of the policies whose allocations own whole links and have a shape."""


class GroupLevel(enum.Enum):
    """Where the leaf groups of a placement lie together."""

    LEAF = "one leaf group"
    POD = "several leaf groups of one pod"
    FABRIC = "several pods"


class LegalShape(NamedTuple):
    """A shape, and its level: with a remainder leaf alone in its pod, both levels look alike."""

    level: GroupLevel
    shape: Shape


def legal_shapes(
    policy: str, hosts: int, topology: Topology, *, two_pods: bool = False
) -> Iterator[LegalShape]:
    """The shapes of ``hosts`` hosts that a policy of ``SHAPED`` allows on a fabric.

    ``two_pods`` adds those of Jigsaw's extension (``Jigsaw``). A policy that rounds a size up
    has shapes of more hosts.
    """
    per_leaf, groups, pods = topology.hosts_per_group, topology.groups_per_pod, topology.pods
    if hosts <= per_leaf:
        yield LegalShape(GroupLevel.LEAF, one_leaf_shape(hosts))
    if policy == "simple":
        leaves, whole_pods = -(-hosts // per_leaf), -(-hosts // (per_leaf * groups))
        if 1 < leaves <= groups:
            yield LegalShape(GroupLevel.POD, Shape(1, leaves, per_leaf))
        elif 1 < whole_pods <= pods:
            yield LegalShape(GroupLevel.FABRIC, Shape(whole_pods, groups, per_leaf))
        return
    for shape in pod_shapes(hosts, per_leaf, groups, topology.taper[0]):
        yield LegalShape(GroupLevel.POD, shape)
    if policy == "laas":
        yield from _in_several_pods(-(-hosts // per_leaf), 0, per_leaf, topology)
        return
    yield from _in_several_pods(*divmod(hosts, per_leaf), per_leaf, topology)
    if policy == "lc":
        for leaf_hosts in range(min(per_leaf - 1, hosts), 0, -1):
            yield from _in_several_pods(*divmod(hosts, leaf_hosts), leaf_hosts, topology)
    if two_pods and pods > 1:
        for shape in two_pod_shapes(*divmod(hosts, per_leaf), per_leaf, groups):
            yield LegalShape(GroupLevel.FABRIC, shape)


def _in_several_pods(
    leaves: int, rest: int, leaf_hosts: int, topology: Topology
) -> Iterator[LegalShape]:
    groups, pods, taper = topology.groups_per_pod, topology.pods, topology.taper[1]
    for shape in multi_pod_shapes(leaves, rest, leaf_hosts, groups, pods, taper):
        yield LegalShape(GroupLevel.FABRIC, shape)
