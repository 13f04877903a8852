# SPDX-License-Identifier: Apache-2.0


"""Adaptive Fit against first fit decreasing: StarCube (Springer 2016), sections 5.1 to 5.4."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from laas_service.domain.consolidation import Epoch, adaptive_fit, first_fit_decreasing
from laas_service.simulator.experiments.figures import Experiment, Figure, Point, Result

CAPACITY = 1_000_000
"""A server, in ppm of itself."""

EPOCHS = 20
"""Epochs of a run; the book does not say how many."""

DRIFT = 0.15
"""How far a demand moves from one epoch to the next, at most, in servers.

The book does not say how demands change, and nearly everything depends on it. This
value is ours: of those tried it comes nearest to what the book says of migrations.
"""

DRIFTS = (0.01, 0.05, 0.1, DRIFT, 0.3, 1.0)
THRESHOLDS = (1.0, 0.95, 0.9)
SIZES = tuple(range(50, 651, 100))
ALPHAS = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
FFD = "FFD"


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Some machines over ``EPOCHS`` epochs; ``saturation`` None is first fit decreasing.

    Demands are uniform over 0..1 servers and move by up to ``drift`` an epoch; migration
    costs are uniform over 1..1000 and stay.
    """

    machines: int
    saturation: float | None
    seed: int
    drift: float = DRIFT

    def run(self) -> Result:
        rng = Random(f"{self.seed} {self.machines} {self.drift}")  # noqa: S311
        costs = [rng.randint(1, 1000) for _ in range(self.machines)]
        demands = {vm: (rng.randint(0, CAPACITY),) for vm in range(self.machines)}
        last: Mapping[int, int] = {}
        moved = servers = demanded = 0
        for epoch in range(EPOCHS):
            placed = self._place(Epoch(self.machines, (CAPACITY,), demands, last))
            if epoch:
                moved += sum(costs[vm] for vm in demands if placed[vm] != last[vm])
            servers += len(set(placed.values()))
            demanded += sum(demand for (demand,) in demands.values())
            last = placed
            demands = {vm: (self._moved(demand, rng),) for vm, (demand,) in demands.items()}
        return {
            "machines": self.machines,
            "drift": self.drift,
            "method": _name(self.saturation),
            "migration": moved / (sum(costs) * (EPOCHS - 1)),
            "hosting": servers * CAPACITY / demanded,
        }

    def _moved(self, demand: int, rng: Random) -> int:
        """Reflected at 0 and 1, so that demands stay uniform."""
        step = round(self.drift * CAPACITY)
        demand = abs(demand + rng.randint(-step, step))
        return min(demand, 2 * CAPACITY - demand)

    def _place(self, epoch: Epoch[int]) -> Mapping[int, int]:
        if self.saturation is None:
            return first_fit_decreasing(epoch)
        return {vm: choice.server for vm, choice in adaptive_fit(epoch, self.saturation).items()}


def _name(saturation: float | None) -> str:
    return FFD if saturation is None else f"AF, u = {saturation:g}"


METHODS = (*map(_name, THRESHOLDS), FFD)


def _trials(seed: int, runs: int, size: float) -> list[Consolidation]:
    sizes = [max(10, round(machines * size)) for machines in SIZES]
    cells = [(machines, DRIFT) for machines in sizes]
    cells += [(sizes[-1], drift) for drift in DRIFTS if drift != DRIFT]
    return [
        Consolidation(machines, saturation, seed + run, drift)
        for machines, drift in cells
        for saturation in (*THRESHOLDS, None)
        for run in range(runs)
    ]


def _figures(results: Sequence[Result]) -> list[Figure]:
    def mean(of: str, method: str, **where: float) -> float:
        where = {"drift": DRIFT, **where}
        return fmean(
            result[of]
            for result in results
            if result["method"] == method and all(result[k] == v for k, v in where.items())
        )

    sizes = sorted({result["machines"] for result in results})
    most = sizes[-1]

    def curves(value: Callable[..., float], paper: Mapping[str, float]) -> Curves:
        """By number of machines, and the mean of all, which the book states."""
        return {
            method: [
                *(Point(n, value(method, machines=n)) for n in sizes),
                Point("mean", value(method), paper.get(method)),
            ]
            for method in METHODS
        }

    def migration(method: str, **where: float) -> float:
        return 100 * mean("migration", method, **where)

    def utilization(method: str, **where: float) -> float:
        return 100 / mean("hosting", method, **where)

    def total(method: str, alpha: float) -> float:
        moved, hosted = (mean(of, method, machines=most) for of in ("migration", "hosting"))
        return (alpha * moved + hosted) / (alpha + 1)

    return [
        Figure(
            "Figure 5.1",
            "Cost of migrations, of what moving every machine every epoch costs",
            "machines",
            "percent",
            curves(migration, {"AF, u = 0.9": 21.7}),
        ),
        Figure(
            "Figure 5.2",
            "Average utilization of the servers in use",
            "machines",
            "percent",
            curves(utilization, {"AF, u = 1": 97.4, "AF, u = 0.9": 90.5, FFD: 98.3}),
        ),
        Figure(
            "Figure 5.3",
            f"Relative total cost, {most} machines",
            "alpha",
            "1 is the dearest",
            {name: [Point(alpha, total(name, alpha)) for alpha in ALPHAS] for name in METHODS},
            digits=3,
        ),
        Figure(
            "Not in the book",
            f"Cost of migrations by how far demands move in an epoch, {most} machines",
            "drift in servers",
            "percent",
            {
                name: [Point(x, migration(name, drift=x, machines=most)) for x in DRIFTS]
                for name in METHODS
            },
        ),
    ]


Curves = Mapping[str, Sequence[Point]]

EXPERIMENT = Experiment("StarCube (Springer 2016), sections 5.1 to 5.4", 3, _trials, _figures)
