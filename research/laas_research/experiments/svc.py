# SPDX-License-Identifier: Apache-2.0

"""Stochastic virtual clusters (SVC) against deterministic ones: Yu and Shen, section VI."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist, fmean
from time import process_time
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from laas_research.experiments.figures import Experiment, Figure, Point, Result
from laas_research.experiments.grounds import GROUNDS, PAPER, routed_site
from laas_research.virtual_clusters.site import Site
from laas_research.virtual_clusters.svc import svc, tivc
from laas_service.domain.sharing.cluster import Cluster, Embedding
from laas_service.domain.sharing.placement import ALIKE, Placed
from laas_service.domain.sharing.routes import NO_LINK
from laas_service.domain.sharing.tree import SlotTree, tapered

MEAN_SIZE = 49
"""Tasks of a job."""
COMPUTE = (200, 500)
"""Seconds that a job computes, lowest and highest."""
RATES = (100, 200, 300, 400, 500)
"""Mean rates of a task, Mbit/s."""
JOBS = 500
TAPER = 2
"""Bandwidth of a rack's machines over that of its uplink."""
LOADS = (0.2, 0.4, 0.6, 0.8)
TAPERS = (1, 2, 3, 4)
DEVIATIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
LINK = 1000.0
"""Mbit/s of a machine's link."""
PERCENTILE, RAREST = (NormalDist().inv_cdf(x) for x in (0.95, 0.98))

MEAN_VC, PERCENTILE_VC, TIVC = "mean-VC", "percentile-VC", "TIVC (0.05)"
METHODS: Mapping[str, float] = {MEAN_VC: 0.05, "SVC (0.05)": 0.05, "SVC (0.02)": 0.02}
"""Method -> probability of an outage that its site allows on each link."""


def network(size: float, taper: float) -> SlotTree:
    """The paper's tree of 4-slot machines: 20 in a rack, 10 racks a pod, 5 pods.

    ``taper`` is that of the racks' uplinks; pods have the full bandwidth of their racks.
    ``size`` below 1 gives fewer machines a rack.
    """
    return tapered((max(2, round(20 * size)), 10, 5), 4, LINK, (taper, 1))


class Job(NamedTuple):
    """A job whose tasks compute, and send at a rate that is drawn every second."""

    id: int
    size: int
    """Tasks."""
    compute: int
    """Seconds."""
    rate: float
    """Mean of a task's rate, Mbit/s."""
    deviation: float
    """Standard deviation of a task's rate, Mbit/s."""
    arrival: float
    """Seconds."""

    @property
    def length(self) -> float:
        """Mbit that each task sends: at the mean rate it takes as long as the computation.

        The paper does not state its value.
        """
        return self.rate * self.compute

    def cluster(self, method: str) -> Cluster:
        """The virtual cluster that the job requests under a method."""
        name = str(self.id)
        if method == MEAN_VC:
            return Cluster.alike(name, self.size, self.rate)
        if method == PERCENTILE_VC:
            return Cluster.alike(name, self.size, self.cap(method))
        return Cluster.alike(name, self.size, self.rate, self.deviation)

    def cap(self, method: str) -> float:
        """Highest rate of a task, Mbit/s: only deterministic reservations are enforced."""
        percentile = self.rate + PERCENTILE * self.deviation
        return {MEAN_VC: self.rate, PERCENTILE_VC: percentile}.get(method, float("inf"))


def draw_jobs(
    scale: float, slots: int, rng: Random, load: float | None, deviation: float | None
) -> list[Job]:
    """Draw jobs whose tasks fit a machine's link under every method.

    ``load`` is the share of the slots in use (0..1); None makes all jobs arrive at once.
    ``deviation`` is relative to the mean rate; None draws it from 0..1 for each job.
    ``scale`` 1 is the paper's number of jobs and computing time.
    """
    jobs: list[Job] = []
    now, unit = 0.0, max(scale, 0.02)
    gap = 0.0 if load is None else MEAN_SIZE * unit * fmean(COMPUTE) / (load * slots)
    while len(jobs) < max(10, JOBS * scale):
        size = max(2, round(rng.expovariate(1 / MEAN_SIZE)))
        rate = float(rng.choice(RATES))
        spread = rate * (rng.random() if deviation is None else deviation)
        if rate + RAREST * spread < LINK and size <= slots:
            compute = round(unit * rng.randint(*COMPUTE))
            jobs.append(Job(len(jobs), size, compute, rate, spread, now))
            now += rng.expovariate(1 / gap) if gap else 0.0
    return jobs


@dataclass
class Running:
    """A job that runs: what its flows have left to send, and the links that they cross."""

    job: Job
    start: float
    """Seconds."""
    left: NDArray[np.float64]
    """Shape (flows,): Mbit."""
    links: NDArray[np.int64]
    """``Ground.crossed``."""


class Ground(Protocol):
    """Where jobs are placed, and the directed links that their flows cross."""

    capacity: NDArray[np.float64]
    """By number of link: Mbit/s; infinite for the number that means no link."""

    def placed(self, cluster: Cluster) -> Embedding | None:
        """Claim a place for a cluster; None if it is refused."""
        ...

    def release(self, id: str) -> None: ...

    def fullest(self) -> float:
        """The share of its bandwidth that the fullest link has promised."""
        ...

    def crossed(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        """Links from the machines ``source`` to ``target``, shape (flows, links)."""
        ...


class PaperTree:
    """A tree with the paper's ledger and one of its searches."""

    def __init__(self, tree: SlotTree, method: str) -> None:
        self._tree, self._search = tree, tivc if method == TIVC else svc
        self._site = Site(tree, METHODS.get(method, 0.05))
        sizes = [tree.vertices(level) for level in range(tree.top)]
        self._first = np.concatenate([[0], np.cumsum(sizes)])
        capacity = np.repeat(np.array(tree.capacity), sizes)
        self.capacity = np.concatenate([capacity, capacity, [np.inf]])

    def placed(self, cluster: Cluster) -> Embedding | None:
        embedding = self._search(self._site, cluster)
        if embedding is not None:
            self._site.claim(cluster, embedding)
        return embedding

    def release(self, id: str) -> None:
        self._site.release(id)

    def fullest(self) -> float:
        levels = range(self._tree.top)
        return max(float(self._site.links.occupancy(level).max()) for level in levels)

    def crossed(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        none = len(self.capacity) - 1
        columns = []
        for level in range(self._tree.top):
            up, down = source // self._tree.below[level], target // self._tree.below[level]
            columns.append(np.where(up == down, none, self._first[level] + up))
            columns.append(np.where(up == down, none, none // 2 + self._first[level] + down))
        return np.stack(columns, axis=1)


class RoutedHosts:
    """The service's ledger and search."""

    def __init__(self, tree: SlotTree, method: str, ground: str) -> None:
        self._site = routed_site(tree, ground, METHODS.get(method, 0.05))
        self.capacity = self._site.bandwidth.copy()
        self.capacity[NO_LINK] = np.inf

    def placed(self, cluster: Cluster) -> Embedding | None:
        answer = ALIKE.embed(self._site, cluster)
        if not isinstance(answer, Placed):
            return None
        self._site.claim(cluster, answer.plan.embedding)
        return answer.plan.embedding

    def release(self, id: str) -> None:
        self._site.release(id)

    def fullest(self) -> float:
        return float(self._site.occupancy().max())

    def crossed(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        routes = self._site.routes
        own = routes.of_hosts + np.stack([source, routes.tree.machines + target], axis=1)
        own[source == target] = NO_LINK
        leaves = routes.leaf_of[source]
        between = [
            routes.walk(leaves[flow : flow + 1], target[flow : flow + 1])[0, 0]
            for flow in range(len(source))
        ]
        return np.concatenate([own, np.array(between, dtype=np.int64)], axis=1)


def ring(embedding: Embedding, size: int, rng: Random) -> tuple[NDArray[np.int64], ...]:
    """Source and target machine of each flow of a ring through the tasks in random order."""
    at = np.empty(size, dtype=np.int64)
    for machine, tasks in embedding.items():
        at[list(tasks)] = machine
    order = rng.sample(range(size), size)
    return at[order], at[order[1:] + order[:1]]


def granted(
    capacity: NDArray[np.float64], demand: NDArray[np.float64], links: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Rates of the flows, shape (flows,): each gets the least share of the links it crosses."""
    load = np.bincount(links.ravel(), np.repeat(demand, links.shape[1]), minlength=len(capacity))
    share = np.minimum(1.0, capacity / np.maximum(load, 1e-9))
    rates: NDArray[np.float64] = demand * share[links].min(axis=1)
    return rates


@dataclass(frozen=True, slots=True)
class Tenants:
    """Jobs on the paper's tree under one method."""

    figure: str
    """Number of the paper's figure."""
    method: str
    """A key of ``METHODS``, PERCENTILE_VC or TIVC."""
    seed: int
    size: float = 1.0
    """Share of the paper's machines and jobs."""
    taper: float = TAPER
    load: float | None = None
    """None: a batch of jobs, first come first served. A share of the slots (0..1): jobs arrive
    over time, and those that do not fit on arrival are refused."""
    deviation: float | None = None
    """Deviation of the rates relative to their means; None draws it for each job."""
    ground: str = PAPER
    """One of ``GROUNDS``."""

    def place(self) -> Ground:
        """Where the jobs run, empty."""
        tree = network(self.size, self.taper)
        if self.ground == PAPER:
            return PaperTree(tree, self.method)
        return RoutedHosts(tree, self.method, self.ground)

    def jobs(self, rng: Random) -> list[Job]:
        """The jobs, in order of arrival; the same under all methods and on all grounds."""
        tree = network(self.size, self.taper)
        slots = tree.machines * tree.slots
        return draw_jobs(self.size, slots, rng, self.load, self.deviation)

    def rng(self) -> Random:
        """Draws jobs, then the order of their tasks."""
        return Random(f"{self.seed} {self.load} {self.deviation}")  # noqa: S311

    def run(self) -> Result:
        rng = self.rng()
        jobs = self.jobs(rng)
        run = _Run(self.place(), self.method, rng, np.random.default_rng(self.seed))
        run.go(jobs, batch=self.load is None)
        return {
            "figure": self.figure,
            "method": self.method,
            "taper": self.taper,
            "load": self.load,
            "deviation": self.deviation,
            "ground": self.ground,
            "completion": run.now,
            "running": fmean(run.run_times),
            "rejected": run.rejected / len(jobs),
            "concurrent": fmean(run.concurrent),
            "occupancies": run.occupancies,
            "call_ms": 1000 * fmean(run.calls),
        }


@dataclass(frozen=True, slots=True)
class Alone:
    """Each of the jobs by itself, where no other one is."""

    tenants: Tenants

    def run(self) -> Result:
        tenants = self.tenants
        ground, jobs, refused = tenants.place(), tenants.jobs(tenants.rng()), 0
        for job in jobs:
            if ground.placed(job.cluster(tenants.method)) is None:
                refused += 1
            else:
                ground.release(str(job.id))
        return {
            "method": tenants.method,
            "load": tenants.load,
            "ground": tenants.ground,
            "alone": refused / len(jobs),
        }


@dataclass
class _Run:
    """A simulation in steps of one second."""

    ground: Ground
    method: str
    rng: Random
    rates: np.random.Generator
    """Draws the rates of the flows."""
    now: float = 0.0
    """Seconds."""
    rejected: int = 0
    run_times: list[float] = field(default_factory=list)
    concurrent: list[int] = field(default_factory=list)
    occupancies: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.running: list[Running] = []
        self.freed = True
        """Whether a job has ended since a job of the batch did not fit."""

    def go(self, jobs: Sequence[Job], *, batch: bool) -> None:
        position = 0
        while position < len(jobs) or self.running:
            while position < len(jobs) and jobs[position].arrival <= self.now:
                if batch and self.running and not self.freed:
                    break
                started = self._start(jobs[position])
                self._sample()
                if not started:
                    self.freed = False
                    if batch and self.running:
                        break
                    self.rejected += 1
                position += 1
            if not self.running:
                if position < len(jobs):
                    self.now = max(self.now + 1, float(np.ceil(jobs[position].arrival)))
                continue
            self._tick()

    def _start(self, job: Job) -> bool:
        cluster = job.cluster(self.method)
        start = process_time()
        embedding = self.ground.placed(cluster)
        self.calls.append(process_time() - start)
        if embedding is None:
            return False
        links = self.ground.crossed(*ring(embedding, job.size, self.rng))
        self.running.append(Running(job, self.now, np.full(job.size, job.length), links))
        return True

    def _sample(self) -> None:
        self.concurrent.append(len(self.running))
        self.occupancies.append(self.ground.fullest())

    def _tick(self) -> None:
        """Simulate a second: every flow sends; jobs that have computed and sent everything end."""
        sizes = [running.job.size for running in self.running]
        limits = [
            (running.job.rate, running.job.deviation, running.job.cap(self.method))
            for running in self.running
        ]
        rate, deviation, cap = np.repeat(np.array(limits).reshape(-1, 3).T, sizes, axis=1)
        demand = np.minimum(np.maximum(self.rates.normal(rate, deviation), 0.0), cap)
        left = np.concatenate([running.left for running in self.running])
        demand = np.minimum(demand, left)
        links = np.concatenate([running.links for running in self.running])
        left -= granted(self.ground.capacity, demand, links)
        self.now += 1
        unfinished = []
        for running, remaining in zip(
            self.running, np.split(left, np.cumsum(sizes)[:-1]), strict=True
        ):
            running.left = remaining
            if self.now - running.start >= running.job.compute and remaining.max() <= 1e-6:
                self.run_times.append(self.now - running.start)
                self.ground.release(str(running.job.id))
                self.freed = True
            else:
                unfinished.append(running)
        self.running = unfinished


def _trials(seed: int, runs: int, size: float) -> list[Tenants]:
    names = (*METHODS, PERCENTILE_VC)
    trials = []
    for number in range(seed, seed + runs):
        for method in names:
            trials += [Tenants("5", method, number, size, taper=taper) for taper in TAPERS]
            trials += [Tenants("6", method, number, size, deviation=x) for x in DEVIATIONS]
        for method in (*names, TIVC):
            trials += [Tenants("7", method, number, size, load=load) for load in LOADS]
    return trials


def _figures(results: Sequence[Result]) -> list[Figure]:
    names = (*METHODS, PERCENTILE_VC)

    def mean(of: str, method: str, **fixed: float | str) -> float:
        return fmean(
            r[of]
            for r in results
            if r["method"] == method and all(r[k] == v for k, v in fixed.items())
        )

    def curves(names: Sequence[str], points: Callable[[str], list[Point]]) -> Curves:
        return {name: points(name) for name in names}

    def share_between(method: str, load: float, low: float, high: float) -> float:
        occupancies = [
            x
            for r in results
            if r["method"] == method and r["load"] == load
            for x in r["occupancies"]
        ]
        return 100 * fmean(low <= x < high for x in occupancies)

    percentile = mean("concurrent", PERCENTILE_VC, load=0.6)
    return [
        Figure(
            "Figure 5",
            "Completion of a batch of 500 jobs",
            "taper",
            "seconds",
            curves(
                names,
                lambda m: [Point(x, mean("completion", m, figure="5", taper=x)) for x in TAPERS],
            ),
            digits=0,
        ),
        Figure(
            "Figure 6",
            "Mean running time of a job, by deviation of its rate",
            "deviation over mean",
            "seconds",
            curves(
                names, lambda m: [Point(x, mean("running", m, deviation=x)) for x in DEVIATIONS]
            ),
            digits=0,
        ),
        Figure(
            "Figure 7",
            "Jobs turned away",
            "load",
            "percent",
            curves(names, lambda m: [Point(x, 100 * mean("rejected", m, load=x)) for x in LOADS]),
        ),
        Figure(
            "Figure 8",
            "Jobs at a time at 60 percent load, against percentile-VC",
            "",
            "percent",
            {
                m: [
                    Point(
                        "mean",
                        100 * mean("concurrent", m, load=0.6) / percentile,
                        110.0 if m == "SVC (0.05)" else None,
                    )
                ]
                for m in names
            },
        ),
        Figure(
            "Figure 9",
            "The fullest link, at arrivals",
            "",
            "percent of samples",
            {
                m: [
                    Point("below 0.996, load 20 %", share_between(m, 0.2, 0, 0.996), paper_low),
                    Point(
                        "0.997 and above, load 60 %", share_between(m, 0.6, 0.997, 2), paper_high
                    ),
                ]
                for m, paper_low, paper_high in (("SVC (0.05)", 50, 80), (TIVC, 10, 95))
            },
        ),
        Figure(
            "Figure 10",
            "Jobs turned away, by the search",
            "load",
            "percent",
            curves(
                ("SVC (0.05)", TIVC),
                lambda m: [Point(x, 100 * mean("rejected", m, load=x)) for x in LOADS],
            ),
        ),
        Figure(
            "Time",
            "Processor time of a request",
            "",
            "ms",
            {m: [Point("mean", mean("call_ms", m))] for m in (*names, TIVC)},
            digits=2,
        ),
    ]


Curves = Mapping[str, Sequence[Point]]

EXPERIMENT = Experiment("SVC (Yu and Shen), section VI", 1, _trials, _figures)


# -- on routed hosts ----------------------------------------------------------

ON_ROUTES = (MEAN_VC, "SVC (0.05)", PERCENTILE_VC)


def _routed_trials(seed: int, runs: int, size: float) -> list[Tenants | Alone]:
    trials = [
        Tenants("7", method, number, size, load=load, ground=ground)
        for number in range(seed, seed + runs)
        for load in LOADS
        for method in ON_ROUTES
        for ground in GROUNDS
    ]
    return [*trials, *(Alone(trial) for trial in trials if trial.load == LOADS[0])]


def _routed_figures(results: Sequence[Result]) -> list[Figure]:
    def curves(of: str, loads: Sequence[float], unit: float = 1.0) -> Curves:
        def mean(method: str, ground: str, load: float) -> float:
            case = (method, ground, load)
            return fmean(
                r[of] for r in results if of in r and (r["method"], r["ground"], r["load"]) == case
            )

        return {
            f"{method}, {ground}": [
                Point(load, unit * mean(method, ground, load)) for load in loads
            ]
            for method in ON_ROUTES
            for ground in GROUNDS
        }

    return [
        Figure("Figure 7", "Jobs turned away", "load", "percent", curves("rejected", LOADS, 100)),
        Figure(
            "Figure 7 at 0",
            "Jobs turned away by an empty network",
            "load of the same jobs",
            "percent",
            curves("alone", LOADS[:1], 100),
        ),
        Figure("Figure 8", "Jobs at a time", "load", "jobs", curves("concurrent", [0.6])),
        Figure(
            "Time",
            "Processor time of a request, and of the claim",
            "load",
            "ms",
            curves("call_ms", LOADS),
        ),
    ]


ROUTED_EXPERIMENT = Experiment(
    "SVC (Yu and Shen), section VI, on routed hosts", 1, _routed_trials, _routed_figures
)
