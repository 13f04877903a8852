# SPDX-License-Identifier: Apache-2.0

"""The shapes that N hosts can have, in the order in which a search tries them.

``per_leaf`` is the number of hosts on a full leaf group, ``groups`` the number of leaf groups in
a pod, ``pods`` the number of pods. A taper of 1 is a full tree.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from laas_service.domain.allocation import ColumnShare, GroupShare, Shape


class Placement(NamedTuple):
    """Hosts and links that have a legal shape; both tuples ascend and have no empty share."""

    groups: tuple[GroupShare, ...]
    columns: Sequence[ColumnShare]
    shape: Shape


@lru_cache(maxsize=4096)
def one_leaf_shape(hosts: int) -> Shape:
    """The shape of ``hosts`` hosts on one leaf group."""
    return Shape(1, 1, hosts)


@lru_cache(maxsize=4096)
def pod_shapes(hosts: int, per_leaf: int, groups: int, taper: int) -> tuple[Shape, ...]:
    """All shapes of ``hosts`` hosts on two or more leaf groups of one pod.

    Shapes with many hosts on a leaf come first. Where leaves are tapered, shapes that waste
    no part of an uplink come before all others (LaaS, section 3).
    """
    shapes = []
    for leaf_hosts in range(min(hosts - 1, per_leaf), 0, -1):
        leaves, rest = divmod(hosts, leaf_hosts)
        if leaves + (rest > 0) > groups:
            break
        shapes.append(Shape(1, leaves, leaf_hosts, 0, rest))
    return tuple(sorted(shapes, key=lambda shape: shape.hosts % taper > 0))


@lru_cache(maxsize=4096)
def two_pod_shapes(leaves: int, rest: int, per_leaf: int, groups: int) -> tuple[Shape, ...]:
    """All shapes on two pods whose remainder pod is larger than the full pod.

    The shapes have ``leaves`` full leaf groups and a remainder leaf of ``rest`` hosts (0: there
    is none). The remainder pod has the remainder leaf and at least half of the full leaves. The
    most uneven shape comes first.
    """
    return tuple(
        Shape(1, few, per_leaf, leaves - few, rest)
        for few in range(1, leaves // 2 + 1)
        if leaves - few + (rest > 0) <= groups and (rest or leaves - few > few)
    )


@lru_cache(maxsize=4096)
def multi_pod_shapes(
    leaves: int, rest: int, leaf_hosts: int, groups: int, pods: int, taper: int
) -> tuple[Shape, ...]:
    """All shapes on two or more pods of ``leaves`` leaves and a remainder leaf.

    Each leaf has ``leaf_hosts`` hosts, the remainder leaf ``rest`` (0: there is none). Shapes
    on few pods come first. Where L2 switches are tapered, shapes that waste no part of a
    spine uplink come before all others. The remainder pod is smaller than the full pods
    (Jigsaw, section 3.2, condition 1).
    """
    shapes = []
    for pod_leaves in range(min(leaves, groups), 0, -1):
        full_pods, remainder_leaves = divmod(leaves, pod_leaves)
        used_pods = full_pods + (remainder_leaves > 0 or rest > 0)
        if used_pods > pods:
            break
        if used_pods > 1:
            shapes.append(Shape(full_pods, pod_leaves, leaf_hosts, remainder_leaves, rest))
    return tuple(sorted(shapes, key=lambda shape: shape.leaves % taper > 0))


@lru_cache(maxsize=1024)
def most_pods(hosts: int, per_leaf: int, groups: int, pods: int) -> int:
    """The most pods of any shape of ``hosts`` hosts, with any number of hosts on a leaf."""
    return max(
        (
            pods_of(shape)
            for leaf_hosts in range(1, min(per_leaf, hosts) + 1)
            for shape in multi_pod_shapes(*divmod(hosts, leaf_hosts), leaf_hosts, groups, pods, 1)
        ),
        default=1,
    )


TAKE_FULL_LEAVES = frozenset({"laas", "jigsaw"})
"""The policies whose placements in several pods lie on leaf groups all of whose hosts are free,
by name; but for the remainder leaf of Jigsaw."""


def full_leaves(policy: str, hosts: int, per_leaf: int) -> int:
    """The leaf groups all of whose hosts any placement in several pods takes, at least."""
    if policy == "laas":
        return -(-hosts // per_leaf)
    return hosts // per_leaf if policy in TAKE_FULL_LEAVES else 0


def most_hosts(policy: str, leaves: int, per_leaf: int) -> int:
    """The most hosts that may take only so many ``full_leaves``, of a policy that takes some."""
    return leaves * per_leaf if policy == "laas" else (leaves + 1) * per_leaf - 1


def pods_of(shape: Shape) -> int:
    """The number of pods of a shape, the remainder pod included."""
    return shape.pods + (shape.remainder_leaves > 0 or shape.remainder_hosts > 0)
