# SPDX-License-Identifier: Apache-2.0

"""Stochastic virtual clusters against deterministic ones: Yu and Shen, section VI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist, fmean
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.virtual_clusters.site import Cluster, Embedding, Site
from laas_service.domain.virtual_clusters.svc import svc, tivc
from laas_service.domain.virtual_clusters.tree import Tree, tapered
from laas_service.simulator.experiments.figures import Experiment, Figure, Point, Result

MEAN_SIZE = 49
COMPUTE = (200, 500)  # seconds
RATES = (100, 200, 300, 400, 500)  # Mbit/s
JOBS = 500
TAPER = 2
LOADS = (0.2, 0.4, 0.6, 0.8)
TAPERS = (1, 2, 3, 4)
DEVIATIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
LINK = 1000.0  # Mbit/s of a machine
PERCENTILE, RAREST = (NormalDist().inv_cdf(x) for x in (0.95, 0.98))

MEAN_VC, PERCENTILE_VC, TIVC = "mean-VC", "percentile-VC", "TIVC (0.05)"
METHODS: Mapping[str, float] = {MEAN_VC: 0.05, "SVC (0.05)": 0.05, "SVC (0.02)": 0.02}
"""The methods by name, with the risk of an outage that their site runs."""


def network(size: float, taper: float) -> Tree:
    """The paper's 1,000 machines of 4 slots: 20 in a rack, 10 racks a pod, 5 pods.

    ``taper`` is that of the racks' uplinks; pods have all the bandwidth of their racks.
    Smaller sizes have fewer machines in a rack.
    """
    return tapered((max(2, round(20 * size)), 10, 5), 4, LINK, (taper, 1))


class Job(NamedTuple):
    """Tasks that each send ``length`` Mbit, at a rate drawn anew every second."""

    id: int
    size: int
    compute: int
    rate: float
    deviation: float
    arrival: float

    @property
    def length(self) -> float:
        """The paper leaves it open; ours takes as long as computing, at the mean rate."""
        return self.rate * self.compute

    def cluster(self, method: str) -> Cluster:
        name = str(self.id)
        if method == MEAN_VC:
            return Cluster.alike(name, self.size, self.rate)
        if method == PERCENTILE_VC:
            return Cluster.alike(name, self.size, self.cap(method))
        return Cluster.alike(name, self.size, self.rate, self.deviation)

    def cap(self, method: str) -> float:
        """What a task may send at most, Mbit/s: only certain reservations are enforced."""
        percentile = self.rate + PERCENTILE * self.deviation
        return {MEAN_VC: self.rate, PERCENTILE_VC: percentile}.get(method, float("inf"))


def some_jobs(
    scale: float, slots: int, rng: Random, load: float | None, deviation: float | None
) -> list[Job]:
    """Jobs of which a task may cross a machine's link under every method.

    ``load`` None makes all arrive at once; ``deviation`` None draws it from (0, 1), else it
    is the share of the mean rate. ``scale`` 1 is the paper's number of jobs, and time.
    """
    made: list[Job] = []
    now, unit = 0.0, max(scale, 0.02)
    gap = 0.0 if load is None else MEAN_SIZE * unit * fmean(COMPUTE) / (load * slots)
    while len(made) < max(10, JOBS * scale):
        size = max(2, round(rng.expovariate(1 / MEAN_SIZE)))
        rate = float(rng.choice(RATES))
        spread = rate * (rng.random() if deviation is None else deviation)
        if rate + RAREST * spread < LINK and size <= slots:
            compute = round(unit * rng.randint(*COMPUTE))
            made.append(Job(len(made), size, compute, rate, spread, now))
            now += rng.expovariate(1 / gap) if gap else 0.0
    return made


@dataclass
class Running:
    """A job on its machines: what is left to send, and the links that each flow crosses."""

    job: Job
    since: float
    left: NDArray[np.float64]
    links: NDArray[np.int64]
    """(flows, 2 * levels): numbers of directed links; the last number there is means none."""


class Network:
    """Directed links, shared by flows that ask for more than there is in proportion."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        sizes = [tree.vertices(level) for level in range(tree.top)]
        self._first = np.concatenate([[0], np.cumsum(sizes)])
        capacity = np.repeat(np.array(tree.capacity), sizes)
        self._capacity = np.concatenate([capacity, capacity, [np.inf]])

    def links(self, embedding: Embedding, size: int, rng: Random) -> NDArray[np.int64]:
        """Links of a ring of flows through the tasks in random order."""
        at = np.empty(size, dtype=np.int64)
        for machine, tasks in embedding.items():
            at[list(tasks)] = machine
        order = rng.sample(range(size), size)
        source, target = at[order], at[order[1:] + order[:1]]
        none = len(self._capacity) - 1
        columns = []
        for level in range(self._tree.top):
            up, down = source // self._tree.below[level], target // self._tree.below[level]
            columns.append(np.where(up == down, none, self._first[level] + up))
            columns.append(np.where(up == down, none, none // 2 + self._first[level] + down))
        return np.stack(columns, axis=1)

    def granted(self, wanted: NDArray[np.float64], links: NDArray[np.int64]) -> NDArray[np.float64]:
        """What each flow gets of what it wants: the least share of the links it crosses."""
        load = np.bincount(
            links.ravel(), np.repeat(wanted, links.shape[1]), minlength=len(self._capacity)
        )
        share = np.minimum(1.0, self._capacity / np.maximum(load, 1e-9))
        granted: NDArray[np.float64] = wanted * share[links].min(axis=1)
        return granted


@dataclass(frozen=True, slots=True)
class Tenants:
    """Jobs on the paper's tree. ``load`` None: a batch, first come first served; else jobs
    that do not fit when they arrive are turned away."""

    figure: str
    method: str
    seed: int
    size: float = 1.0
    taper: float = TAPER
    load: float | None = None
    deviation: float | None = None

    def run(self) -> Result:
        tree = network(self.size, self.taper)
        rng = Random(f"{self.seed} {self.load} {self.deviation}")  # noqa: S311
        slots = tree.machines * tree.slots
        todo = some_jobs(self.size, slots, rng, self.load, self.deviation)
        run = _Run(tree, self.method, rng, np.random.default_rng(self.seed))
        run.go(todo, batch=self.load is None)
        return {
            "figure": self.figure,
            "method": self.method,
            "taper": self.taper,
            "load": self.load,
            "deviation": self.deviation,
            "completion": run.now,
            "running": fmean(run.run_times),
            "rejected": run.rejected / len(todo),
            "concurrent": fmean(run.concurrent),
            "occupancies": run.occupancies,
            "call_ms": 1000 * fmean(run.calls),
        }


@dataclass
class _Run:
    """A clock of one second a tick."""

    tree: Tree
    method: str
    rng: Random
    chance: np.random.Generator
    now: float = 0.0
    rejected: int = 0
    run_times: list[float] = field(default_factory=list)
    concurrent: list[int] = field(default_factory=list)
    occupancies: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.site = Site(self.tree, METHODS.get(self.method, 0.05))
        self.network = Network(self.tree)
        self.running: list[Running] = []
        self.freed = True

    def go(self, todo: Sequence[Job], *, batch: bool) -> None:
        position = 0
        while position < len(todo) or self.running:
            while position < len(todo) and todo[position].arrival <= self.now:
                if batch and self.running and not self.freed:
                    break
                started = self._start(todo[position])
                self._sample()
                if not started:
                    self.freed = False
                    if batch and self.running:
                        break
                    self.rejected += 1
                position += 1
            if not self.running:
                if position < len(todo):
                    self.now = max(self.now + 1, float(np.ceil(todo[position].arrival)))
                continue
            self._tick()

    def _start(self, job: Job) -> bool:
        cluster, search = job.cluster(self.method), tivc if self.method == TIVC else svc
        before = process_time()
        embedding = search(self.site, cluster)
        self.calls.append(process_time() - before)
        if embedding is None:
            return False
        self.site.claim(cluster, embedding)
        links = self.network.links(embedding, job.size, self.rng)
        self.running.append(Running(job, self.now, np.full(job.size, job.length), links))
        return True

    def _sample(self) -> None:
        self.concurrent.append(len(self.running))
        levels = range(self.tree.top)
        self.occupancies.append(max(float(self.site.links.occupancy(x).max()) for x in levels))

    def _tick(self) -> None:
        """A second: every flow sends; jobs that computed and sent everything are done."""
        sizes = [one.job.size for one in self.running]
        limits = [
            (one.job.rate, one.job.deviation, one.job.cap(self.method)) for one in self.running
        ]
        rate, deviation, cap = np.repeat(np.array(limits).reshape(-1, 3).T, sizes, axis=1)
        wanted = np.minimum(np.maximum(self.chance.normal(rate, deviation), 0.0), cap)
        left = np.concatenate([one.left for one in self.running])
        wanted = np.minimum(wanted, left)
        left -= self.network.granted(wanted, np.concatenate([one.links for one in self.running]))
        self.now += 1
        rest = []
        for one, remaining in zip(self.running, np.split(left, np.cumsum(sizes)[:-1]), strict=True):
            one.left = remaining
            if self.now - one.since >= one.job.compute and remaining.max() <= 1e-6:
                self.run_times.append(self.now - one.since)
                self.site.release(str(one.job.id))
                self.freed = True
            else:
                rest.append(one)
        self.running = rest


def _trials(seed: int, runs: int, size: float) -> list[Tenants]:
    names = (*METHODS, PERCENTILE_VC)
    made = []
    for number in range(seed, seed + runs):
        for method in names:
            made += [Tenants("5", method, number, size, taper=taper) for taper in TAPERS]
            made += [Tenants("6", method, number, size, deviation=x) for x in DEVIATIONS]
        for method in (*names, TIVC):
            made += [Tenants("7", method, number, size, load=load) for load in LOADS]
    return made


def _figures(results: Sequence[Result]) -> list[Figure]:
    names = (*METHODS, PERCENTILE_VC)

    def mean(of: str, method: str, **where: float | str) -> float:
        return fmean(
            r[of]
            for r in results
            if r["method"] == method and all(r[k] == v for k, v in where.items())
        )

    def curves(names: Sequence[str], points: Callable[[str], list[Point]]) -> Curves:
        return {name: points(name) for name in names}

    def below(method: str, load: float, low: float, high: float) -> float:
        some = [
            x
            for r in results
            if r["method"] == method and r["load"] == load
            for x in r["occupancies"]
        ]
        return 100 * fmean(low <= x < high for x in some)

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
                    Point("below 0.996, load 20 %", below(m, 0.2, 0, 0.996), paper_low),
                    Point("0.997 and above, load 60 %", below(m, 0.6, 0.997, 2), paper_high),
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
