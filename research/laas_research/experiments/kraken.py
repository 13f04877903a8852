# SPDX-License-Identifier: Apache-2.0

"""Elastic virtual clusters (Kraken, KrakenNP, Oktopus): Fuerst and others, Kraken, section V."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import fmean, quantiles
from time import process_time
from typing import Generic, TypeVar

from laas_research.experiments.figures import Experiment, Figure, Point, Result
from laas_research.experiments.grounds import GROUNDS, PAPER, routed_site
from laas_research.virtual_clusters import kraken
from laas_research.virtual_clusters.oktopus import oktopus
from laas_research.virtual_clusters.site import Site
from laas_service.domain.sharing.cluster import Cluster
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.migration import UnitMigration
from laas_service.domain.sharing.placement import ALIKE, Placed
from laas_service.domain.sharing.tree import SlotTree, tapered

REQUESTS = 80_000
WARM_UP = 1 / 8
"""Share of the requests at the start that is not counted."""
MEAN_SIZE = 49
"""Compute units of a cluster."""
MEAN_BANDWIDTH = 2.5
"""Gbit/s of a compute unit."""
LINK = 10.0
"""Gbit/s of a server's link."""
SLOTS = 4
"""Compute units that a server holds."""
LOAD = 0.75
"""Share of the slots in use, on average."""
CHANGES = 6.0
"""Changes for each arrival: six processes, each as frequent as arrivals."""
FACTORS = (1.1, 1.25, 1.5, 1.75, 2.0)
"""Factors by which an upgrade raises size, bandwidth or both."""
DEFAULT = 1.5

KINDS = ("size", "bandwidth", "joint")
KRAKEN, KRAKEN_NP, OKTOPUS = "Kraken", "KrakenNP", "Oktopus"
SiteT = TypeVar("SiteT", Site, RoutedSite)
Engine = Callable[[SiteT, Cluster], UnitMigration | None]
"""Plans a new or changed cluster; None is a refusal."""


def _embed_or(change: Engine[Site]) -> Engine[Site]:
    return lambda site, cluster: (
        change(site, cluster) if cluster.id in site.clusters else kraken.embed(site, cluster)
    )


def on_routes(site: RoutedSite, cluster: Cluster) -> UnitMigration | None:
    """The service's search, as an engine."""
    search = ALIKE.change if cluster.id in site.clusters else ALIKE.embed
    answer = search(site, cluster)
    return answer.plan if isinstance(answer, Placed) else None


ENGINES: Mapping[str, Engine[Site]] = {
    KRAKEN: _embed_or(kraken.change),
    KRAKEN_NP: _embed_or(kraken.without_partial_moves),
    OKTOPUS: oktopus,
}


def network(size: float) -> SlotTree:
    """The paper's tree: 40 servers a rack, 40 racks a pod, 10 pods; gamma1 is 4.

    ``size`` below 0.02 of the paper's gives fewer racks a pod.
    """
    racks = max(2, min(40, round(40 * size / 0.02)))
    return tapered((40, racks, 10), SLOTS, LINK, (4, 1))


@dataclass(frozen=True, slots=True)
class Elastic:
    """Clusters that arrive, change and end, under one engine.

    The unit of time is the mean lifetime of a cluster. The site starts with as many clusters
    as the load means, so that the run does not begin with an empty site.
    """

    engine: str
    """A key of ``ENGINES``."""
    factor: float
    """Upgrades multiply by it, downgrades divide by it."""
    seed: int
    size: float = 1.0
    """Share of the paper's number of requests and racks."""
    ground: str = PAPER
    """One of ``GROUNDS``; on others than the paper's the engine is the service's."""

    def run(self) -> Result:
        tree, rng = network(self.size), Random(self.seed)  # noqa: S311
        run: _Run[Site] | _Run[RoutedSite]
        if self.ground == PAPER:
            run = _Run(Site(tree), ENGINES[self.engine], kraken.change, rng, self.factor)
        else:
            site = routed_site(tree, self.ground)
            run = _Run(site, on_routes, on_routes, rng, self.factor)
        run.go(round(REQUESTS * self.size))
        return {
            "engine": self.engine,
            "ground": self.ground,
            "factor": self.factor,
            "shares": run.shares,
            "refused": run.refused,
            "embedded": run.embedded,
            "load": fmean(run.load),
            "call_ms": [1000 * call for call in run.calls],
        }


@dataclass
class _Run(Generic[SiteT]):
    site: SiteT
    engine: Engine[SiteT]
    shrinks: Engine[SiteT]
    """Plans downgrades."""
    rng: Random
    factor: float
    counting: bool = False
    """Whether the warm-up is over."""
    shares: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """Kind -> share of the cluster's units that moved, for each upgrade granted."""
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """Kind -> upgrades refused."""
    embedded: list[bool] = field(default_factory=list)
    """Whether each new cluster was embedded."""
    load: list[float] = field(default_factory=list)
    """Share of the slots in use after each request."""
    calls: list[float] = field(default_factory=list)
    """Seconds of processor time of each call of an engine."""

    def __post_init__(self) -> None:
        self.slots = int(self.site.free.sum())
        self.numbers = count()
        self.ends: list[tuple[float, str]] = []
        self.cluster_ids: list[str] = []

    def go(self, requests: int) -> None:
        """Simulate; arrivals and the six processes of changes form one Poisson process."""
        clusters = LOAD * self.slots / MEAN_SIZE
        now = 0.0
        for _ in range(round(clusters)):
            self._arrive(now)
        for request in range(requests):
            self.counting = request >= WARM_UP * requests
            now += self.rng.expovariate(clusters * (1 + CHANGES))
            while self.ends and self.ends[0][0] <= now:
                self._end(heapq.heappop(self.ends)[1])
            if self.rng.random() * (1 + CHANGES) < 1:
                self._arrive(now)
            elif self.cluster_ids:
                self._change()
            if self.counting:
                self.load.append(1 - float(self.site.free.sum()) / self.slots)

    def _arrive(self, now: float) -> None:
        size = max(1, round(self.rng.expovariate(1 / MEAN_SIZE)))
        bandwidth = self.rng.expovariate(1 / MEAN_BANDWIDTH)
        cluster = Cluster.alike(str(next(self.numbers)), size, bandwidth)
        lifetime = self.rng.expovariate(1)
        plan = self._plan(self.engine, cluster)
        if self.counting:
            self.embedded.append(plan is not None)
        if plan is not None:
            self.site.claim(cluster, plan.embedding)
            self.cluster_ids.append(cluster.id)
            heapq.heappush(self.ends, (now + lifetime, cluster.id))

    def _change(self) -> None:
        """Change a random cluster by one of the six processes; only upgrades are counted."""
        id, kind, up = (
            self.rng.choice(self.cluster_ids),
            self.rng.choice(KINDS),
            self.rng.random() < 0.5,
        )
        demands = self.site.clusters[id][0].demands
        factor = self.factor if up else 1 / self.factor
        size = len(demands) if kind == "bandwidth" else max(1, round(len(demands) * factor))
        bandwidth = demands[0].mean * (1 if kind == "size" else factor)
        cluster = Cluster.alike(id, size, bandwidth)
        plan = self._plan(self.engine if up else self.shrinks, cluster)
        if plan is not None:
            self.site.replace(cluster, plan.embedding)
        if up and self.counting:
            if plan is None:
                self.refused[kind] += 1
            else:
                self.shares[kind].append(len(plan.moves) / len(demands))

    def _plan(self, engine: Engine[SiteT], cluster: Cluster) -> UnitMigration | None:
        start = process_time()
        plan = engine(self.site, cluster)
        if self.counting:
            self.calls.append(process_time() - start)
        return plan

    def _end(self, id: str) -> None:
        self.site.release(id)
        self.cluster_ids.remove(id)


# -- figures ------------------------------------------------------------------


def _trials(seed: int, runs: int, size: float) -> list[Elastic]:
    cells = [(engine, DEFAULT) for engine in ENGINES]
    cells += [(KRAKEN, factor) for factor in FACTORS if factor != DEFAULT]
    return [
        Elastic(engine, factor, number, size)
        for number in range(seed, seed + runs)
        for engine, factor in cells
    ]


Papers = Mapping[tuple[str, str], float]
"""(engine, kind) -> percent that the paper states or draws."""

_NONE_MOVED: Papers = {
    (KRAKEN, "size"): 70,
    (KRAKEN, "bandwidth"): 45,
    (KRAKEN, "joint"): 35,
    (KRAKEN_NP, "size"): 70,
    (KRAKEN_NP, "bandwidth"): 45,
    (KRAKEN_NP, "joint"): 35,
    (OKTOPUS, "size"): 10,
}
_ALL_MOVED: Papers = {
    (KRAKEN, "joint"): 30,
    (KRAKEN_NP, "bandwidth"): 50,
    (KRAKEN_NP, "joint"): 40,
    (OKTOPUS, "bandwidth"): 80,
}
_UP_TO_HALF: Papers = {(KRAKEN, "bandwidth"): 80}
_FIRST_FIT = (
    "The paper does not say which of several centres with equal cost it takes. This implementation"
    " takes the first, which packs clusters side by side. With the roomiest centre instead, more"
    " size and joint upgrades needed no migration, and fewer bandwidth upgrades."
)
_ANEW = (
    "A unit of a cluster that is embedded from scratch keeps its place only if the least footprint"
    " (KrakenNP) or the first fit (Oktopus) puts it there; the paper does not state its rule."
)


def _figures(results: Sequence[Result]) -> list[Figure]:
    def picked(engine: str, factor: float) -> list[Result]:
        return [r for r in results if r["engine"] == engine and r["factor"] == factor]

    def shares(engine: str, kind: str) -> list[float]:
        return [x for r in picked(engine, DEFAULT) for x in r["shares"][kind]]

    def cumulated(papers: Papers, counts: Callable[[float], bool]) -> Mapping[str, list[Point]]:
        return {
            engine: [
                Point(kind, _percent(map(counts, shares(engine, kind))), papers.get((engine, kind)))
                for kind in KINDS
            ]
            for engine in ENGINES
        }

    def accepted(kind: str, factor: float, *, moves: bool) -> float:
        factor_results = picked(KRAKEN, factor)
        granted = [x > 0 for r in factor_results for x in r["shares"][kind]]
        return _percent(
            [migrated == moves for migrated in granted]
            + [False] * sum(r["refused"][kind] for r in factor_results)
        )

    def moved(kind: str) -> list[float]:
        return [share for share in shares(KRAKEN, kind) if share > 0]

    def calls(engine: str) -> list[float]:
        return [ms for r in picked(engine, DEFAULT) for ms in r["call_ms"]]

    return [
        Figure(
            "Figure 6 at 0",
            "Upgrades granted without any migration",
            "upgrade",
            "percent of those granted",
            cumulated(_NONE_MOVED, lambda share: share == 0),
            reason=_FIRST_FIT,
        ),
        Figure(
            "Figure 6 at 0.5",
            "Upgrades that migrate up to half of the units",
            "upgrade",
            "percent of those granted",
            cumulated(_UP_TO_HALF, lambda share: share <= 0.5),
        ),
        Figure(
            "Figure 6 at 1",
            "Upgrades that migrate all units",
            "upgrade",
            "percent of those granted",
            cumulated(_ALL_MOVED, lambda share: share >= 1),
            reason=_ANEW,
        ),
        *(
            Figure(
                f"Figure 7, {kind}",
                "Upgrades that Kraken grants",
                "factor",
                "percent of those asked for",
                {
                    "without migration": [
                        Point(
                            x,
                            accepted(kind, x, moves=False),
                            50.0 if (kind, x) == ("size", 2.0) else None,
                        )
                        for x in FACTORS
                    ],
                    "with migrations": [Point(x, accepted(kind, x, moves=True)) for x in FACTORS],
                    "refused": [
                        Point(
                            x,
                            100 - sum(accepted(kind, x, moves=moves) for moves in (False, True)),
                            40.0 if (kind, x) == ("joint", 2.0) else None,
                        )
                        for x in FACTORS
                    ],
                },
            )
            for kind in KINDS
        ),
        Figure(
            "Figure 9",
            "Units that migrate in upgrades under Kraken",
            "upgrade",
            "percent",
            {
                "mean share, all granted": [
                    Point(kind, 100 * fmean(shares(KRAKEN, kind) or [0.0]), paper)
                    for kind, paper in zip(KINDS, (None, 33.0, 67.0), strict=True)
                ],
                "mean share, where any migrate": [
                    Point(kind, 100 * fmean(moved(kind) or [0.0])) for kind in KINDS
                ],
                "up to half, where any migrate": [
                    Point(kind, _percent(share <= 0.5 for share in moved(kind))) for kind in KINDS
                ],
                "above 90 percent, where any migrate": [
                    Point(kind, _percent(share > 0.9 for share in moved(kind))) for kind in KINDS
                ],
            },
            reason="The paper's means are those of its sensitivity study, over all its parameters.",
        ),
        Figure(
            "Load",
            "Slots in use, and new clusters refused",
            "",
            "percent",
            {
                engine: [
                    Point("slots in use", 100 * fmean(r["load"] for r in picked(engine, DEFAULT))),
                    Point(
                        "refused",
                        _percent(not x for r in picked(engine, DEFAULT) for x in r["embedded"]),
                    ),
                ]
                for engine in ENGINES
            },
        ),
        Figure(
            "Time",
            "Processor time of a request",
            "",
            "ms",
            {
                engine: [
                    Point("mean", fmean(calls(engine)), 86.0 if engine == KRAKEN else None),
                    Point(
                        "99th percentile",
                        quantiles(calls(engine), n=100)[-1],
                        344.0 if engine == KRAKEN else None,
                    ),
                ]
                for engine in ENGINES
            },
            reason="The paper's machine is an Intel i3-2310M at 2.1 GHz. This implementation tries "
            "all centres by arrays.",
        ),
    ]


def _percent(flags: Iterable[bool]) -> float:
    return 100 * fmean(list(flags) or [False])


EXPERIMENT = Experiment("Kraken (Fuerst and others), section V", 1, _trials, _figures)


# -- on routed hosts ----------------------------------------------------------


def _routed_trials(seed: int, runs: int, size: float) -> list[Elastic]:
    return [
        Elastic(KRAKEN, factor, number, size, ground)
        for number in range(seed, seed + runs)
        for factor in (DEFAULT, 2.0)
        for ground in GROUNDS
    ]


def _routed_figures(results: Sequence[Result]) -> list[Figure]:
    def picked(ground: str, factor: float = DEFAULT) -> list[Result]:
        return [r for r in results if (r["ground"], r["factor"]) == (ground, factor)]

    def shares(ground: str, kind: str, factor: float = DEFAULT) -> list[float]:
        return [x for r in picked(ground, factor) for x in r["shares"][kind]]

    def of_granted(value: Callable[[str, str], float]) -> Mapping[str, list[Point]]:
        return {g: [Point(kind, value(g, kind)) for kind in KINDS] for g in GROUNDS}

    def accepted(ground: str, kind: str, factor: float) -> float:
        granted = len(shares(ground, kind, factor))
        refused: int = sum(r["refused"][kind] for r in picked(ground, factor))
        return 100 * granted / max(1, granted + refused)

    return [
        *(
            Figure(
                f"Figure 7 at {factor:g}",
                "Upgrades granted",
                "upgrade",
                "percent of those asked for",
                of_granted(lambda ground, kind, factor=factor: accepted(ground, kind, factor)),  # type: ignore[misc]
            )
            for factor in (DEFAULT, 2.0)
        ),
        Figure(
            "Figure 6 at 0",
            "Upgrades granted without any migration",
            "upgrade",
            "percent of those granted",
            of_granted(lambda ground, kind: _percent(x == 0 for x in shares(ground, kind))),
        ),
        Figure(
            "Figure 9",
            "Units that migrate in upgrades",
            "upgrade",
            "percent, mean of all granted",
            of_granted(lambda ground, kind: 100 * fmean(shares(ground, kind) or [0.0])),
        ),
        Figure(
            "Load",
            "Slots in use, and new clusters refused",
            "",
            "percent",
            {
                ground: [
                    Point("slots in use", 100 * fmean(r["load"] for r in picked(ground))),
                    Point(
                        "refused", _percent(not x for r in picked(ground) for x in r["embedded"])
                    ),
                ]
                for ground in GROUNDS
            },
        ),
        Figure(
            "Time",
            "Processor time of a request",
            "",
            "ms",
            {
                ground: [
                    Point("mean", fmean(calls)),
                    Point("99th percentile", quantiles(calls, n=100)[-1]),
                ]
                for ground in GROUNDS
                for calls in ([ms for r in picked(ground) for ms in r["call_ms"]],)
            },
        ),
    ]


ROUTED_EXPERIMENT = Experiment(
    "Kraken (Fuerst and others), section V, on routed hosts", 1, _routed_trials, _routed_figures
)
