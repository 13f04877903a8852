# SPDX-License-Identifier: Apache-2.0

"""Which units of a pod could be made free, and how: the book's LAR (section 4.5, table A.1).

All is said for a request of type E, which wants units of one leaf. For type A the matrix
is transposed: lines are L2 switches then, and leaves cross them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from laas_service.domain.stars.cube import Cube
from laas_service.domain.stars.plan import Move
from laas_service.domain.stars.units import Unit
from laas_service.domain.topology import bits

AS_IS, ONE_MOVE, TWO_MOVES, OTHER_POD, STEP_ASIDE = range(5)
"""Search scopes; each includes those before it. The last one is ours: the unit that is in the
way of another may leave the pod."""


class Release(NamedTuple):
    """``moves`` free ``unit``, in that order: none, one, or two."""

    unit: Unit
    moves: tuple[Move, ...] = ()


class Way(NamedTuple):
    """How a unit x is let out: to its place in another line, in another pod, or (``ASIDE``) in
    another line whose unit goes to another pod."""

    to: int
    number: int


LINE, POD, ASIDE = range(3)


class Listing:
    """L(x) for every unit x of a pod, in masks; spelled out for the line that is chosen.

    Two moves free x where y, in the line that crosses at x, can give its place to x. By
    Definition 3.14 a target is free when its move begins, so y moves first, within its own
    line, and x second, as table A.1 and figure 4.1 have it. The text of the book names
    (x, y) first and (y, z) second.
    """

    def __init__(self, cube: Cube, pod: int, axis: int, scope: int) -> None:
        self._cube, self._pod, self._axis, self._scope = cube, pod, axis, scope
        self._lines, self._crossing = cube.free[axis][pod], cube.free[1 - axis][pod]
        self._across = cube.mobile[1 - axis][axis][pod]
        self._far = cube.mobile[2][axis][pod]
        self._direct = _filled(self._crossing) if scope >= ONE_MOVE else 0
        self._through: list[int] = []
        self._aside: list[int] = []
        if scope >= TWO_MOVES:
            open_lines = _filled(self._lines)
            self._through = [mask & open_lines for mask in cube.mobile[axis][1 - axis][pod]]
        if scope >= STEP_ASIDE:
            far = cube.mobile[2][1 - axis][pod]
            somewhere = cube.somewhere[1 - axis]
            self._aside = [a & b for a, b in zip(far, somewhere, strict=True)]
        self._indirect = _filled(self._through)

    def releasable(self, line: int) -> int:
        """Mask of the units x of a line for which L(x) is not empty."""
        found = self._lines[line]
        if self._scope >= ONE_MOVE:
            found |= self._across[line] & self._direct
        if self._scope >= TWO_MOVES:
            more = self._across[line] & self._indirect & ~found
            found |= sum(1 << x for x in bits(more) if self.through(line, x))
        if self._scope >= OTHER_POD:
            more = self._far[line] & ~found
            found |= sum(1 << x for x in bits(more) if self.pods(line, x))
        if self._scope >= STEP_ASIDE:
            more = self._across[line] & ~found
            found |= sum(1 << x for x in bits(more) if self.aside(line, x))
        return found

    @property
    def lines(self) -> int:
        return len(self._lines)

    def free(self, line: int) -> int:
        return self._lines[line]

    def direct(self, line: int, x: int) -> int:
        """The lines in which x finds a free unit in its own place."""
        return self._crossing[x] if self._across[line] >> x & 1 else 0

    def through(self, line: int, x: int) -> int:
        """The lines in which another unit can give its place to x and stay in its line."""
        if self._scope < TWO_MOVES or not self._across[line] >> x & 1:
            return 0
        return self._through[x] & ~(1 << line)

    def pods(self, line: int, x: int) -> int:
        """The pods in which x finds a free unit in its own place."""
        if self._scope < OTHER_POD or not self._far[line] >> x & 1:
            return 0
        i, j, _ = self.unit(line, x)
        return self._cube.free_pods[i][j]

    def aside(self, line: int, x: int) -> int:
        """The lines in which another unit can leave its place to x and go to another pod."""
        if self._scope < STEP_ASIDE or not self._across[line] >> x & 1:
            return 0
        return self._aside[x] & ~(1 << line)

    def unit(self, line: int, x: int) -> Unit:
        return Unit(x, line, self._pod) if self._axis == 0 else Unit(line, x, self._pod)

    def any_release(self, line: int, x: int) -> Release:
        """The first of L(x), which is not empty: as few moves as there may be."""
        if self._lines[line] >> x & 1:
            return Release(self.unit(line, x))
        for other in bits(self.direct(line, x) or self.through(line, x)):
            return self.along(line, x, Way(LINE, other), self._lines[other])
        for pod in bits(self.pods(line, x)):
            return self.along(line, x, Way(POD, pod), 0)
        return self.along(line, x, Way(ASIDE, next(bits(self.aside(line, x)))), 0)

    def along(self, line: int, x: int, way: Way, left: int) -> Release:
        """The moves that let x out; in a line where another is in the way, that one goes to the
        first place of ``left``."""
        unit = self.unit(line, x)
        if way.to == POD:
            return Release(unit, (self._moved(unit, unit.at(2, way.number)),))
        between = self.unit(way.number, x)
        last = self._moved(unit, between)
        if way.to == ASIDE:
            pod = next(bits(self._cube.free_pods[between.i][between.j]))
            return Release(unit, (self._moved(between, between.at(2, pod)), last))
        if self._lines[way.number] >> x & 1:
            return Release(unit, (last,))
        z = self.unit(way.number, next(bits(left)))
        return Release(unit, (self._moved(between, z), last))

    def _moved(self, source: Unit, target: Unit) -> Move:
        return Move(self._cube.owner[source], source, target)

    def chosen(self, line: int, taken: Mapping[int, Way]) -> Iterator[Release]:
        """Releases that share no unit, by the ways that units x of the line take.

        A line lets out at most as many as it has free units: who finds its own place free
        there takes that, the others what is left.
        """
        left = {way.number: self._lines[way.number] for way in taken.values() if way.to == LINE}
        for x, way in taken.items():
            if way.to == LINE:
                left[way.number] &= ~(1 << x)
        for x, way in taken.items():
            release = self.along(line, x, way, left.get(way.number, 0))
            if way.to == LINE and len(release.moves) == 2:
                z = release.moves[0].target[self._axis]
                left[way.number] &= ~(1 << z)
            yield release


def _filled(masks: list[int]) -> int:
    """Mask of the places of those that are not empty."""
    return sum(1 << place for place, mask in enumerate(masks) if mask)
