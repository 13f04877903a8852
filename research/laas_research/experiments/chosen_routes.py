# SPDX-License-Identifier: Apache-2.0

"""What choosing forwarding tables gives back to virtual clusters on routed hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

import numpy as np

from laas_research.experiments.figures import Experiment, Figure, Point, Result
from laas_research.experiments.grounds import SUMMED
from laas_research.virtual_clusters.chosen_routes import fitting_routes
from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.sharing.cluster import Cluster
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.migration import UnitMigration
from laas_service.domain.sharing.placement import ALIKE, Placed
from laas_service.domain.sharing.routes import Routes
from laas_service.domain.topology import Topology, Xgft

POSITION = "D-mod-k"
"""Each leaf takes the uplink of the host's slot, modulo those that both leaves have."""
SHIFTS = "free of contention"
"""The service's tables (``contention``)."""
CHOSEN = "chosen"
"""Those, and where they refuse a request that fits summed links, ``fitting_routes``."""
ROUTES = (SUMMED, POSITION, SHIFTS, CHOSEN)

SLOTS, SIZE, LARGEST, LENGTH = 4, 10, 40, 100.0
"""Slots of a host; mean and largest machines of a request, and its mean time."""
LINK, BANDWIDTHS = 1.0, (0.1, 0.2, 0.4)
"""Bandwidth of a link, and of a machine."""
LOADS = (0.4, 0.8, 1.2)
"""Requested share of the slots."""
REQUESTS = 1000


@dataclass(frozen=True, slots=True)
class Container:
    """Leaves in one pod: hosts and uplinks of each."""

    hosts: tuple[int, ...]
    uplinks: tuple[int, ...]

    def site(self, routes: str) -> RoutedSite:
        """An empty site with these routes."""
        ups = [1] * len(self.hosts) if routes == SUMMED else self.uplinks
        topology = Topology(Xgft((max(self.hosts), len(self.hosts), 1), (1, max(ups), 1)))
        groups = tuple(
            GroupShare(leaf, (1 << hosts) - 1, (1 << up) - 1)
            for leaf, (hosts, up) in enumerate(zip(self.hosts, ups, strict=True))
        )
        made = Routes(topology, Allocation("all", sum(self.hosts), "all", groups, ()))
        bandwidth = np.full(made.count, LINK)
        if routes == SUMMED:
            bandwidth[2 : made.of_hosts] = LINK * np.repeat(self.uplinks, 2)
        if routes == POSITION:
            made = made.redirected(
                {
                    (leaf, machine): machine % max(self.hosts) % min(ups[leaf], ups[below])
                    for machine in made.machines.tolist()
                    for leaf, below in enumerate([machine // max(self.hosts)] * len(ups))
                    if leaf != below
                }
            )
        return RoutedSite(made, SLOTS, bandwidth)


CONTAINERS: Mapping[str, Container] = {
    "two hosts for each uplink": Container((8,) * 6, (4,) * 6),
    "a remainder leaf": Container((8,) * 5 + (4,), (8,) * 5 + (4,)),
}


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests that arrive over time; one that does not fit is refused."""

    container: str
    routes: str
    load: float
    seed: int
    requests: int

    def run(self) -> Result:
        container = CONTAINERS[self.container]
        site, summed = container.site(self.routes), container.site(SUMMED)
        draw, rng = Random(self.seed), Random(self.seed)  # noqa: S311, no secret
        slots = SLOTS * sum(container.hosts)
        now = granted = used = refused = chosen = 0.0
        ends: list[tuple[float, str]] = []
        for number in range(self.requests):
            now += draw.expovariate(slots * self.load / SIZE / LENGTH)
            size = min(LARGEST, 2 + int(draw.expovariate(1 / (SIZE - 2))))
            cluster = Cluster.alike(str(number), size, draw.choice(BANDWIDTHS))
            length = draw.expovariate(1 / LENGTH)
            for end in [end for end in ends if end[0] <= now]:
                site.release(end[1])
                ends.remove(end)
            answer = ALIKE.embed(site, cluster)
            if isinstance(answer, Placed):
                site.claim(cluster, answer.plan.embedding)
            else:
                plan = _on_one_link(summed, site, cluster)
                refused += plan is not None
                if self.routes != CHOSEN or plan is None:
                    continue
                other = fitting_routes(site, cluster, plan.embedding, rng)
                if other is None:
                    continue
                site, chosen = other, chosen + 1
            ends.append((now + length, cluster.id))
            granted, used = granted + 1, used + size * length
        return {
            "case": [self.container, self.routes, self.load],
            "granted": granted / self.requests,
            "used": used / now / slots,
            "refused": refused / self.requests,
            "chosen": chosen / self.requests,
        }


def _on_one_link(empty: RoutedSite, site: RoutedSite, cluster: Cluster) -> UnitMigration | None:
    """Where the cluster fits beside those of ``site``, were the uplinks of a leaf one link."""
    summed = empty.on(empty.routes)
    for held in site.clusters.values():
        summed.claim(held.cluster, held.embedding)
    answer = ALIKE.embed(summed, cluster)
    return answer.plan if isinstance(answer, Placed) else None


def _trials(seed: int, runs: int, size: float) -> list[Requests]:
    return [
        Requests(container, routes, load, number, max(20, round(REQUESTS * size)))
        for number in range(seed, seed + runs)
        for container in CONTAINERS
        for routes in ROUTES
        for load in LOADS
    ]


def _figures(results: Sequence[Result]) -> list[Figure]:
    def mean(of: str, *case: object) -> float:
        return fmean(r[of] for r in results if r["case"] == list(case))

    def curves(of: str, unit: float, routes: Sequence[str]) -> Mapping[str, Sequence[Point]]:
        return {
            f"{container}, {which}": [
                Point(load, unit * mean(of, container, which, load)) for load in LOADS
            ]
            for container in CONTAINERS
            for which in routes
        }

    return [
        Figure("Requests", "Granted requests", "load", "percent", curves("granted", 100, ROUTES)),
        Figure("Slots", "Slots in use", "load", "percent", curves("used", 100, ROUTES)),
        Figure(
            "Refused by links",
            "Requests that fit summed links and not the routes",
            "load",
            "requests of 1,000",
            curves("refused", 1000, ROUTES[1:]),
        ),
        Figure(
            "Chosen",
            "Those of them for which other routes were found",
            "load",
            "requests of 1,000",
            curves("chosen", 1000, [CHOSEN]),
        ),
    ]


EXPERIMENT = Experiment("Routes chosen for virtual clusters", 3, _trials, _figures)
