# SPDX-License-Identifier: Apache-2.0

"""Resource units of a fat-tree and the stars that they form: StarCube (Springer 2016), chapter 3.

A unit is a host with a path of its own up to the top of the tree. A fat-tree is a cube of
units. The paths of units on one line of the cube meet in exactly one switch, the hub of a
star (Lemma 3.6). Indices count from 0; in the book they count from 1.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple


class Unit(NamedTuple):
    """Unit m(i, j, k) of the book: L2 switch ``i`` and leaf ``j`` in pod ``k``."""

    i: int
    j: int
    k: int

    def at(self, axis: int, index: int) -> Unit:
        """The unit with ``index`` on the line through this unit along ``axis``."""
        place = list(self)
        place[axis] = index
        return Unit(*place)


class Kind(enum.Enum):
    """Types of stars; a value has the axes along which a star may lie and its units may move."""

    E = (0,)
    """Hub is a leaf ("edge"); units differ in the L2 switch ``i``. Its moves keep the hosts."""
    A = (1,)
    """Hub is an L2 switch ("aggregation"); units differ in the leaf ``j``."""
    C = (2,)
    """Hub is a spine ("core"); units differ in the pod ``k``."""
    S = (0, 1, 2)
    """A single unit, which may move along any axis."""

    @property
    def axis(self) -> int:
        """The axis on which a request is searched; a single unit is treated as type E."""
        return int(self.value[0])


def kind_of(units: Collection[Unit]) -> Kind | None:
    """The type of the star that the units form; None if they form no star."""
    if len(units) == 1:
        return Kind.S
    varying = [axis for axis in range(3) if len({unit[axis] for unit in units}) > 1]
    return (Kind.E, Kind.A, Kind.C)[varying[0]] if len(varying) == 1 else None
