# SPDX-License-Identifier: Apache-2.0

"""Resource efficiency and moves of StarCube (Springer 2016), sections 5.5 to 5.8."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from laas_research.experiments.figures import Experiment, Figure, Point, Result
from laas_research.stars.cube import Cube
from laas_research.stars.plan import Plan, StarRequest
from laas_research.stars.scap import Method, propose
from laas_research.stars.units import Kind

RADICES = (16, 24, 32, 40, 48)
"""Ports of a switch."""
DYNAMICS = (10, 20, 30, 40, 50, 60, 70, 80, 90)
"""Percent of the units that are released and requested again."""
FIXED = 30
"""Dynamics in percent where the number of hosts varies."""

METHODS = {
    Method.FIRST_FIT: "Method 1",
    Method.WITHIN_POD: "Method 2",
    Method.ACROSS_PODS: "Method 3",
}
OURS = Method.EVERY_POD
"""This project's method; only in figure 5.4, as it takes as long as all others together."""
NORMAL, UNIFORM = "normal", "uniform"
UNITS, TENANTS = "units", "tenants"


@dataclass(frozen=True, slots=True)
class Churn:
    """Fills a data center, releases a percentage of its units, and fills it again.

    Every percentage starts from the same full data center. Sizes of requests are 1 to the
    units of a leaf.
    """

    radix: int
    """Ports of a switch."""
    method: Method
    drawn: str
    """Distribution of the sizes: UNIFORM, or NORMAL with a deviation of a third of the mean."""
    seed: int
    dynamics: tuple[int, ...]
    """Percentages to release."""
    leaving: str = UNITS
    """Whether single UNITS of tenants are released, or whole TENANTS."""

    def run(self) -> Result:
        rng = self._random("full")
        full = Cube((self.radix // 2, self.radix // 2, self.radix))
        self._fill(full, rng)
        return {
            "radix": self.radix,
            "method": self.method,
            "drawn": self.drawn,
            "leaving": self.leaving,
            "points": [self._refilled(full.copy(), percent) for percent in self.dynamics],
        }

    def _random(self, purpose: object) -> Random:
        return Random(f"{self.seed} {self.radix} {self.drawn} {purpose}")  # noqa: S311

    def _refilled(self, cube: Cube, percent: int) -> Result:
        rng = self._random(percent)
        self._release(cube, rng, round(percent / 100 * len(cube.owner)))
        left = len(cube.owner)
        moved = self._fill(cube, rng)
        placed = max(1, len(cube.owner) - left)
        return {
            "dynamics": percent,
            "efficiency": 100 * len(cube.owner) / len(list(cube.units())),
            "racks": moved[Kind.A.axis] / placed,
            "pods": moved[Kind.C.axis] / placed,
            "routes": moved[Kind.E.axis] / placed,
        }

    def _release(self, cube: Cube, rng: Random, units: int) -> None:
        if self.leaving == UNITS:
            for unit in rng.sample(sorted(cube.owner), units):
                cube.shrink(cube.owner[unit], [unit])
            return
        tenants = sorted(cube.stars)
        rng.shuffle(tenants)
        while units > 0:
            tenant = tenants.pop()
            units -= len(cube.stars[tenant].units)
            cube.release(tenant)

    def _fill(self, cube: Cube, rng: Random) -> Counter[int]:
        """Request stars of as many units as are free; return the units moved by axis."""
        moved: Counter[int] = Counter()
        remaining, number = sum(cube.room), 0
        name = "new" if cube.stars else "old"
        while remaining:
            size = min(remaining, self._size(rng))
            kind = rng.choice((Kind.E, Kind.A)) if size > 1 else Kind.S
            request = StarRequest(f"{name} {number}", size, kind, across=True)
            answer = propose(cube, request, self.method)
            if isinstance(answer, Plan):
                cube.admit(answer)
                moved.update(move.axis for move in answer.moves)
            remaining, number = remaining - size, number + 1
        return moved

    def _size(self, rng: Random) -> int:
        most = self.radix // 2
        while True:
            size = round(rng.gauss(most / 2, most / 6))
            if self.drawn == UNIFORM:
                return rng.randint(1, most)
            if 1 <= size <= most:
                return size


def _trials(seed: int, runs: int, size: float) -> list[Churn]:
    radices = sorted({max(4, 2 * round(radix * size / 2)) for radix in RADICES})
    largest = radices[-1]
    ours = [Churn(largest, OURS, NORMAL, seed + run, DYNAMICS) for run in range(runs)]
    return ours + [
        Churn(radix, method, drawn, seed + run, DYNAMICS if radix == largest else (FIXED,), leaving)
        for radix in radices
        for method in METHODS
        for drawn in (NORMAL, UNIFORM)
        for leaving in ((UNITS, TENANTS) if (radix, drawn) == (largest, NORMAL) else (UNITS,))
        for run in range(runs)
    ]


_PUBLISHED = {Method.FIRST_FIT: 80.0, Method.WITHIN_POD: 100.0, Method.ACROSS_PODS: 100.0}
"""Resource efficiency in percent that the book states: "degraded to 80%", "almost 100%"."""


def _figures(results: Sequence[Result]) -> list[Figure]:
    radices = sorted({result["radix"] for result in results})
    largest = radices[-1]

    def mean(of: str, method: Method, radix: int, percent: int, drawn: str, leaving: str) -> float:
        key = (radix, method, drawn, leaving)
        return fmean(
            point[of]
            for result in results
            if tuple(result[field] for field in ("radix", "method", "drawn", "leaving")) == key
            for point in result["points"]
            if point["dynamics"] == percent
        )

    def by_dynamics(of: str, method: Method, drawn: str, leaving: str = UNITS) -> list[Point]:
        return [Point(x, mean(of, method, largest, x, drawn, leaving)) for x in DYNAMICS]

    def by_radix(method: Method, drawn: str) -> list[Point]:
        return [
            Point(f"{k**3 // 4}", mean("efficiency", method, k, FIXED, drawn, UNITS))
            for k in radices
        ]

    def efficiencies(
        points_of: Callable[[Method], list[Point]], lowest: Mapping[Method, float]
    ) -> dict[str, list[Point]]:
        """A curve for each method, and its lowest point, which the book states."""
        curves = {method: points_of(method) for method in METHODS}
        return {
            METHODS[method]: [
                *points,
                Point("lowest", min(point.ours for point in points), lowest.get(method)),
            ]
            for method, points in curves.items()
        }

    def costs(of: str, ends: Mapping[int, float]) -> dict[str, list[Point]]:
        return {
            f"{METHODS[method]}, {drawn}": [
                point._replace(paper=ends.get(int(point.x)))
                for point in by_dynamics(of, method, drawn)
            ]
            for method in (Method.WITHIN_POD, Method.ACROSS_PODS)
            for drawn in (NORMAL, UNIFORM)
            if of != "pods" or method is Method.ACROSS_PODS
        }

    hosts = f"{largest**3 // 4} hosts"
    normal = efficiencies(lambda method: by_dynamics("efficiency", method, NORMAL), _PUBLISHED)
    normal["ours"] = by_dynamics("efficiency", OURS, NORMAL)
    return [
        Figure(
            "Figure 5.4",
            f"Resource efficiency by dynamics, normal sizes, {hosts}",
            "dynamics",
            "percent",
            normal,
            reason="Method 2 is below 100 percent because it searches one pod, and refuses a "
            "request that does not fit there; Method 3 then searches across pods.",
        ),
        Figure(
            "Figure 5.5",
            f"Resource efficiency by scale, normal sizes, dynamics of {FIXED} percent",
            "hosts",
            "percent",
            efficiencies(lambda method: by_radix(method, NORMAL), _PUBLISHED),
        ),
        Figure(
            "Figure 5.6",
            f"Resource efficiency by dynamics, uniform sizes, {hosts}",
            "dynamics",
            "percent",
            efficiencies(lambda method: by_dynamics("efficiency", method, UNIFORM), {}),
        ),
        Figure(
            "Figure 5.7",
            f"Resource efficiency by scale, uniform sizes, dynamics of {FIXED} percent",
            "hosts",
            "percent",
            efficiencies(lambda method: by_radix(method, UNIFORM), {}),
        ),
        Figure(
            "Figure 5.8",
            f"Units moved to another rack, {hosts}",
            "dynamics",
            "per unit allocated",
            costs("racks", {10: 0.4, 90: 0.1}),
            digits=3,
            reason='The book says "0.1-0.4"; its figure has no numbers. After 90 percent has left, '
            "nearly all requests except the last ones fit without a move.",
        ),
        Figure(
            "Figure 5.9",
            f"Units moved to another pod, {hosts}",
            "dynamics",
            "per unit allocated",
            costs("pods", {}),
            digits=3,
        ),
        Figure(
            "Not in the book",
            f"Units whose routes changed and whose servers stayed, {hosts}",
            "dynamics",
            "per unit allocated",
            costs("routes", {}),
            digits=3,
        ),
        Figure(
            "Not in the book",
            f"Resource efficiency where whole tenants leave, normal sizes, {hosts}",
            "dynamics",
            "percent",
            efficiencies(lambda method: by_dynamics("efficiency", method, NORMAL, TENANTS), {}),
        ),
    ]


EXPERIMENT = Experiment("StarCube (Springer 2016), sections 5.5 to 5.8", 50, _trials, _figures)
