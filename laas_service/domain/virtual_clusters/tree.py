# SPDX-License-Identifier: Apache-2.0

"""Trees without path diversity, as papers on shared links use them: slots below, capacities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from laas_service.domain.errors import InvalidInput


@dataclass(frozen=True)
class Tree:
    """Machines at level 0, one root on top; every vertex of a level has as many children.

    ``children[i]`` is how many level-i vertices hang below each vertex of level i + 1;
    ``slots`` virtual machines fit on a machine; ``capacity[i]`` is that of the link from
    a level-i vertex up to its parent, in any unit of bandwidth, each direction. A vertex
    is a (level, number); the children of (i + 1, n) are consecutive numbers of level i.
    A multi-rooted fat-tree is such a tree with the parallel links between two levels added
    up (Kraken, section III-A).

    Raises:
        InvalidInput: a size is below 1 or the lengths differ.
    """

    children: tuple[int, ...]
    slots: int
    capacity: tuple[float, ...]

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
        """How many vertices a level has."""
        return self.machines // self.below[level]

    @property
    def machines(self) -> int:
        return self.below[-1]

    def above(self, machine: int, level: int) -> int:
        """The level's vertex that a machine is below."""
        return machine // self.below[level]


def tapered(children: Sequence[int], slots: int, link: float, taper: Sequence[float]) -> Tree:
    """A tree whose level-(i + 1) uplinks have a ``taper[i]``-th of what comes from below.

    ``link`` is the capacity of a machine's link; a taper of 1 is full bandwidth.

    Raises:
        InvalidInput: as ``Tree``, or a taper is not above 0.
    """
    if len(taper) != len(children) - 1 or any(share <= 0 for share in taper):
        raise InvalidInput("taper", tuple(taper), f"give {len(children) - 1} ratios above 0")
    capacity = [link]
    for size, share in zip(children, taper, strict=False):
        capacity.append(capacity[-1] * size / share)
    return Tree(tuple(children), slots, tuple(capacity))
