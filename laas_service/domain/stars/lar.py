# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Which units of a pod could be made free, and how: the book's LAR (section 4.5, table A.1).

All is said for a request of type E, which wants units of one leaf. For type A the matrix
is transposed: lines are L2 switches then, and leaves cross them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from laas_service.domain.stars.cube import Cube
from laas_service.domain.stars.plan import Move
from laas_service.domain.stars.units import Unit
from laas_service.domain.topology import bits

AS_IS, ONE_MOVE, TWO_MOVES, OTHER_POD = range(4)
"""Search scopes; each includes those before it."""


class Release(NamedTuple):
    """``moves`` free ``unit``, in that order: none, one, or two."""

    unit: Unit
    moves: tuple[Move, ...] = ()


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
        self._direct = _filled(self._crossing)
        open_lines = _filled(self._lines)
        self._through = [mask & open_lines for mask in cube.mobile[axis][1 - axis][pod]]
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
        return found

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

    def unit(self, line: int, x: int) -> Unit:
        return Unit(x, line, self._pod) if self._axis == 0 else Unit(line, x, self._pod)

    def moved(self, source: Unit, target: Unit) -> Move:
        return Move(self._cube.owner[source], source, target)

    def any_release(self, line: int, x: int) -> Release:
        """The first of L(x), which is not empty: as few moves as there may be."""
        unit = self.unit(line, x)
        if self._lines[line] >> x & 1:
            return Release(unit)
        for other in bits(self.direct(line, x)):
            return Release(unit, (self.moved(unit, self.unit(other, x)),))
        for other in bits(self.through(line, x)):
            return self.by_way(line, x, other, next(bits(self._lines[other])))
        pod = next(bits(self.pods(line, x)))
        return Release(unit, (self.moved(unit, unit.at(2, pod)),))

    def by_way(self, line: int, x: int, other: int, z: int) -> Release:
        """The unit beside x in the ``other`` line moves to z in its line, and x to its place."""
        unit, between = self.unit(line, x), self.unit(other, x)
        first = self.moved(between, self.unit(other, z))
        return Release(unit, (first, self.moved(unit, between)))

    def chosen(self, line: int, taken: dict[int, int]) -> Iterator[Release]:
        """Releases that share no unit: x by the line (or, as ~pod, the pod) it is let out to.

        A line lets out at most as many as it has free units: who finds its own place free
        there takes that, the others what is left.
        """
        left = {other: self._lines[other] for other in taken.values() if other >= 0}
        for x, other in taken.items():
            if other >= 0 and left[other] >> x & 1 and self._lines[other] >> x & 1:
                left[other] &= ~(1 << x)
        for x, other in taken.items():
            unit = self.unit(line, x)
            if other < 0:
                yield Release(unit, (self.moved(unit, unit.at(2, ~other)),))
            elif self._lines[other] >> x & 1:
                yield Release(unit, (self.moved(unit, self.unit(other, x)),))
            else:
                z = next(bits(left[other]))
                left[other] &= ~(1 << z)
                yield self.by_way(line, x, other, z)


def _filled(masks: list[int]) -> int:
    """Mask of the places of those that are not empty."""
    return sum(1 << place for place, mask in enumerate(masks) if mask)
