# SPDX-License-Identifier: Apache-2.0

"""Adaptive Fit against first fit decreasing: StarCube (Springer 2016), sections 5.1 to 5.4."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from laas_research.consolidation import Epoch, adaptive_fit, first_fit_decreasing
from laas_research.experiments.figures import Experiment, Figure, Point, Result

CAPACITY = 1_000_000
"""Capacity of a server, so that demands are in ppm of a server."""

EPOCHS = 20
"""Epochs of a run; the book does not state its number."""

DRIFT = 0.15
"""Largest change of a demand from one epoch to the next, in servers.

The book does not state how demands change, and nearly all results depend on it. Of the
values tried, this one comes nearest to the migrations that the book states.
"""

DRIFTS = (0.01, 0.05, 0.1, DRIFT, 0.3, 1.0)
THRESHOLDS = (1.0, 0.95, 0.9)
SIZES = tuple(range(50, 651, 100))
ALPHAS = (0.25, 0.5, 1, 2, 4, 8, 16, 32)
FFD = "FFD"


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Packs virtual machines onto servers over ``EPOCHS`` epochs.

    Demands are uniform over 0..1 servers and change each epoch. Migration costs are uniform
    over 1..1000 and constant.
    """

    machines: int
    """Number of virtual machines, and of servers."""
    saturation: float | None
    """Threshold of Adaptive Fit (0..1); None is first fit decreasing."""
    seed: int
    drift: float = DRIFT
    """Largest change of a demand in an epoch, in servers."""

    def run(self) -> Result:
        rng = Random(f"{self.seed} {self.machines} {self.drift}")  # noqa: S311
        costs = [rng.randint(1, 1000) for _ in range(self.machines)]
        demands = {vm: (rng.randint(0, CAPACITY),) for vm in range(self.machines)}
        previous: Mapping[int, int] = {}
        migration_cost = servers = demand_sum = 0
        for epoch in range(EPOCHS):
            server_of = self._place(Epoch(self.machines, (CAPACITY,), demands, previous))
            if epoch:
                migration_cost += sum(costs[vm] for vm in demands if server_of[vm] != previous[vm])
            servers += len(set(server_of.values()))
            demand_sum += sum(demand for (demand,) in demands.values())
            previous = server_of
            demands = {vm: (self._drifted(demand, rng),) for vm, (demand,) in demands.items()}
        return {
            "machines": self.machines,
            "drift": self.drift,
            "method": _name(self.saturation),
            "migration": migration_cost / (sum(costs) * (EPOCHS - 1)),
            "hosting": servers * CAPACITY / demand_sum,
        }

    def _drifted(self, demand: int, rng: Random) -> int:
        """The next demand; reflected at 0 and 1 servers, so that demands stay uniform."""
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
    def mean(of: str, method: str, **fixed: float) -> float:
        fixed = {"drift": DRIFT, **fixed}
        return fmean(
            result[of]
            for result in results
            if result["method"] == method and all(result[k] == v for k, v in fixed.items())
        )

    sizes = sorted({result["machines"] for result in results})
    most = sizes[-1]

    def curves(value: Callable[..., float], paper: Mapping[str, float]) -> Curves:
        """A curve for each method over the number of machines; the book states their mean."""
        return {
            method: [
                *(Point(n, value(method, machines=n)) for n in sizes),
                Point("mean", value(method), paper.get(method)),
            ]
            for method in METHODS
        }

    def migration(method: str, **fixed: float) -> float:
        return 100 * mean("migration", method, **fixed)

    def utilization(method: str, **fixed: float) -> float:
        return 100 / mean("hosting", method, **fixed)

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
