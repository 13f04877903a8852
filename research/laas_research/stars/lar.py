# SPDX-License-Identifier: Apache-2.0

"""LAR: lists the units of a pod that moves can free, and the moves that free each of them.

Source: StarCube (Springer 2016), section 4.5 and table A.1. The text describes a request of
type E, for units of one leaf. For type A the matrix is transposed: lines are L2 switches, and
leaves cross them.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from laas_research.stars.cube import Cube
from laas_research.stars.plan import Move
from laas_research.stars.units import Unit
from laas_service.domain.topology import bits

AS_IS, ONE_MOVE, TWO_MOVES, OTHER_POD, STEP_ASIDE = range(5)
"""Search scopes; each includes those before it. The last one is an addition of this project: a
unit may leave the pod to give its place to another."""


class Release(NamedTuple):
    """A unit, and the moves that free it."""

    unit: Unit
    moves: tuple[Move, ...] = ()
    """None, one or two, in order."""


class Way(NamedTuple):
    """Where the occupant of a unit x goes: to its place in another line or in another pod."""

    to: int
    """LINE, POD, or ASIDE: a line whose unit first goes to another pod."""
    number: int
    """Of the line (LINE, ASIDE) or of the pod (POD)."""


LINE, POD, ASIDE = range(3)


class Listing:
    """The lists L(x) of releases for every unit x of a pod, as masks.

    The releases themselves are made only for the line that is chosen. Two moves free x if a
    unit y of the line that crosses at x can move within its own line, to a free unit z. By
    Definition 3.14 a target is free when its move begins, so y moves first and x second, as
    in table A.1 and figure 4.1; the text of the book names (x, y) first and (y, z) second.
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
            free_elsewhere = cube.free_in_some_pod[1 - axis]
            self._aside = [a & b for a, b in zip(far, free_elsewhere, strict=True)]
        self._indirect = _filled(self._through)

    def releasable(self, line: int) -> int:
        """Mask of the units x of a line that are free or can be freed: L(x) is not empty."""
        mask = self._lines[line]
        if self._scope >= ONE_MOVE:
            mask |= self._across[line] & self._direct
        if self._scope >= TWO_MOVES:
            candidates = self._across[line] & self._indirect & ~mask
            mask |= sum(1 << x for x in bits(candidates) if self.through(line, x))
        if self._scope >= OTHER_POD:
            candidates = self._far[line] & ~mask
            mask |= sum(1 << x for x in bits(candidates) if self.pods(line, x))
        if self._scope >= STEP_ASIDE:
            candidates = self._across[line] & ~mask
            mask |= sum(1 << x for x in bits(candidates) if self.aside(line, x))
        return mask

    @property
    def lines(self) -> int:
        """Number of lines of the pod."""
        return len(self._lines)

    def free(self, line: int) -> int:
        """Mask of the free units of a line."""
        return self._lines[line]

    def direct(self, line: int, x: int) -> int:
        """Mask of the lines in which the place of x is free."""
        return self._crossing[x] if self._across[line] >> x & 1 else 0

    def through(self, line: int, x: int) -> int:
        """Mask of the lines in which the unit at the place of x can move within its line."""
        if self._scope < TWO_MOVES or not self._across[line] >> x & 1:
            return 0
        return self._through[x] & ~(1 << line)

    def pods(self, line: int, x: int) -> int:
        """Mask of the pods in which the place of x is free."""
        if self._scope < OTHER_POD or not self._far[line] >> x & 1:
            return 0
        i, j, _ = self.unit(line, x)
        return self._cube.free_pods[i][j]

    def aside(self, line: int, x: int) -> int:
        """Mask of the lines in which the unit at the place of x can move to another pod."""
        if self._scope < STEP_ASIDE or not self._across[line] >> x & 1:
            return 0
        return self._aside[x] & ~(1 << line)

    def unit(self, line: int, x: int) -> Unit:
        """Unit x of a line of this pod."""
        return Unit(x, line, self._pod) if self._axis == 0 else Unit(line, x, self._pod)

    def any_release(self, line: int, x: int) -> Release:
        """The first release of L(x), with as few moves as possible; L(x) must not be empty."""
        if self._lines[line] >> x & 1:
            return Release(self.unit(line, x))
        for target_line in bits(self.direct(line, x) or self.through(line, x)):
            return self.along(line, x, Way(LINE, target_line), self._lines[target_line])
        for pod in bits(self.pods(line, x)):
            return self.along(line, x, Way(POD, pod), 0)
        return self.along(line, x, Way(ASIDE, next(bits(self.aside(line, x)))), 0)

    def along(self, line: int, x: int, way: Way, left: int) -> Release:
        """The moves of x along a way; a unit in the way moves to the first place of ``left``."""
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

    def chosen(self, line: int, ways: Mapping[int, Way]) -> Iterator[Release]:
        """Releases without a unit in common, for units x of the line and their ways.

        At most as many units may use another line as it has free units. A unit x whose own
        place is free there takes that place, the others take the places that are left.
        """
        left = {way.number: self._lines[way.number] for way in ways.values() if way.to == LINE}
        for x, way in ways.items():
            if way.to == LINE:
                left[way.number] &= ~(1 << x)
        for x, way in ways.items():
            release = self.along(line, x, way, left.get(way.number, 0))
            if way.to == LINE and len(release.moves) == 2:
                z = release.moves[0].target[self._axis]
                left[way.number] &= ~(1 << z)
            yield release


def _filled(masks: list[int]) -> int:
    """Mask of the indices of the masks that are not 0."""
    return sum(1 << place for place, mask in enumerate(masks) if mask)
