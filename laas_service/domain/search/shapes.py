# SPDX-License-Identifier: Apache-2.0

"""The shapes a policy may give to N hosts, the most wanted first."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from laas_service.domain.allocation import ColumnShare, GroupShare, Shape


class Placement(NamedTuple):
    """Shares of groups and columns that together have one shape."""

    groups: tuple[GroupShare, ...]
    columns: tuple[ColumnShare, ...]
    shape: Shape


@lru_cache(maxsize=4096)
def pod_shapes(hosts: int, slots: int, groups: int, taper: int) -> tuple[Shape, ...]:
    """All shapes of ``hosts`` hosts on two or more of a pod's ``groups`` leaf groups.

    Dense shapes first; with taper, those that waste no part of an uplink before
    all others (LaaS section 3).
    """
    shapes = []
    for dense in range(min(hosts - 1, slots), 0, -1):
        full, rest = divmod(hosts, dense)
        if full + (rest > 0) > groups:
            break
        shapes.append(Shape(1, full, dense, 0, rest))
    return tuple(sorted(shapes, key=lambda shape: shape.hosts % taper > 0))


@lru_cache(maxsize=4096)
def two_pod_shapes(leaves: int, rest: int, slots: int, groups: int) -> tuple[Shape, ...]:
    """All shapes over two pods whose remainder pod is no smaller than the other one.

    ``leaves`` full leaf groups and one of ``rest`` hosts, which with the larger half
    of the others forms the remainder pod; the most uneven first.
    """
    if not rest:
        return ()
    return tuple(
        Shape(1, few, slots, leaves - few, rest)
        for few in range(1, leaves // 2 + 1)
        if leaves - few < groups
    )


@lru_cache(maxsize=4096)
def tree_shapes(
    leaves: int, rest: int, slots: int, groups: int, pods: int, taper: int
) -> tuple[Shape, ...]:
    """All shapes of ``leaves`` full leaf groups and ``rest`` hosts over two or more pods.

    Few pods first; with taper, shapes that waste no part of a spine uplink before
    all others. The remainder pod is smaller than the full ones (Jigsaw, condition 1).
    """
    shapes = []
    for dense in range(min(leaves, groups), 0, -1):
        full, more = divmod(leaves, dense)
        taken = full + (more > 0 or rest > 0)
        if taken > pods:
            break
        if taken > 1:
            shapes.append(Shape(full, dense, slots, more, rest))
    return tuple(sorted(shapes, key=lambda shape: shape.leaves % taper > 0))


@lru_cache(maxsize=1024)
def most_pods(hosts: int, slots: int, groups: int, pods: int) -> int:
    """The most pods that any shape of ``hosts`` hosts has, on leaves however thin."""
    return max(
        (
            shape.pods + (shape.remainder_leaves > 0 or shape.remainder_hosts > 0)
            for thin in range(1, min(slots, hosts) + 1)
            for shape in tree_shapes(*divmod(hosts, thin), thin, groups, pods, 1)
        ),
        default=1,
    )
