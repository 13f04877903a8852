# SPDX-License-Identifier: Apache-2.0

"""Resource units of a fat-tree and the stars they form: StarCube (Springer 2016), chapter 3.

A unit is a host with a way up to the top that nobody else uses. A fat-tree is a cube of
units; units on one line of it meet in exactly one switch, the hub of a star (Lemma 3.6).
Indices are 0-based, where the book counts from 1.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple


class Unit(NamedTuple):
    """m(i, j, k): by its L2 switch ``i`` and leaf ``j`` in pod ``k``."""

    i: int
    j: int
    k: int

    def at(self, axis: int, index: int) -> Unit:
        """The unit where the line through this one along ``axis`` has ``index``."""
        place = list(self)
        place[axis] = index
        return Unit(*place)


class Kind(enum.Enum):
    """Types of stars; the value is the axes along which a star may lie and move."""

    E = (0,)
    """On one leaf ("edge"), over as many L2 switches: ``i`` varies. Moving it moves no host."""
    A = (1,)
    """On one L2 switch ("aggregation"), in as many leaves of a pod: ``j`` varies."""
    C = (2,)
    """On one spine ("core"), in as many pods: ``k`` varies."""
    S = (0, 1, 2)
    """A single unit; it may be taken for any of the others."""

    @property
    def axis(self) -> int:
        """Where new units are looked for; a single one is treated as type E."""
        first: int = self.value[0]
        return first


def axis_of(units: Collection[Unit]) -> int | None:
    """The axis of the line on which two or more units lie; None if there is no such line."""
    varying = [axis for axis in range(3) if len({unit[axis] for unit in units}) > 1]
    return varying[0] if len(varying) == 1 else None


def kind_of(units: Collection[Unit]) -> Kind | None:
    """The type of the star that these units form; None if they form none."""
    if len(units) == 1:
        return Kind.S
    axis = axis_of(units)
    return None if axis is None else (Kind.E, Kind.A, Kind.C)[axis]
