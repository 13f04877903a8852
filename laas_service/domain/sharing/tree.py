# SPDX-License-Identifier: Apache-2.0

"""Trees with slots on machines and capacities on links, for virtual clusters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from laas_service.domain.errors import InvalidInput


@dataclass(frozen=True)
class SlotTree:
    """A tree of machines (level 0) with one root; vertices of a level have equally many children.

    A vertex is a (level, number); the children of (i + 1, n) have consecutive numbers of level
    i. There is one path between two machines: a multi-rooted fat-tree is such a tree if the
    parallel links between two levels are added up (Kraken, section III-A).

    Raises:
        InvalidInput: a size is below 1, a capacity is not above 0, or the lengths differ.
    """

    children: tuple[int, ...]
    """``children[i]``: level-i vertices below each vertex of level i + 1."""
    slots: int
    """Virtual machines that fit on a machine."""
    capacity: tuple[float, ...]
    """``capacity[i]``: of the link from a level-i vertex to its parent, in each direction, in any
    unit of bandwidth."""

    def __post_init__(self) -> None:
        if not self.children or any(size < 1 for size in self.children):
            raise InvalidInput("children", self.children, "give at least one level of at least 1")
        if self.slots < 1:
            raise InvalidInput("slots", self.slots, "give at least 1 for each machine")
        if len(self.capacity) != len(self.children) or min(self.capacity) <= 0:
            raise InvalidInput(
                "capacity", self.capacity, f"give {len(self.children)} capacities above 0"
            )

    @property
    def top(self) -> int:
        """Level of the root."""
        return len(self.children)

    @cached_property
    def below(self) -> tuple[int, ...]:
        """Machines below a vertex, by its level."""
        return tuple(math.prod(self.children[:level]) for level in range(self.top + 1))

    def vertices(self, level: int) -> int:
        """Number of vertices of a level."""
        return self.machines // self.below[level]

    @property
    def machines(self) -> int:
        """Number of machines."""
        return self.below[-1]

    def above(self, machine: int, level: int) -> int:
        """Number of the vertex of a level that is above a machine."""
        return machine // self.below[level]


def tapered(children: Sequence[int], slots: int, link: float, taper: Sequence[float]) -> SlotTree:
    """A tree whose level-(i + 1) uplinks have the capacity of the links below over ``taper[i]``.

    ``link`` is the capacity of a machine's link; a taper of 1 is full bandwidth.

    Raises:
        InvalidInput: as ``SlotTree``, or a taper is not above 0.
    """
    if len(taper) != len(children) - 1 or any(share <= 0 for share in taper):
        raise InvalidInput("taper", tuple(taper), f"give {len(children) - 1} ratios above 0")
    capacity = [link]
    for size, share in zip(children, taper, strict=False):
        capacity.append(capacity[-1] * size / share)
    return SlotTree(tuple(children), slots, tuple(capacity))
