# SPDX-License-Identifier: Apache-2.0

"""Rounds of the storm; the judge checks during and after each round, and at the end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from laas_service.domain.topology import link_name
from tests.storm import judge
from tests.storm.clients import Client
from tests.storm.evidence import Tables, handed_over, routes
from tests.storm.journal import Complaints, Figures
from tests.storm.site import Chaos, Site

SETTLES = 240
"""Seconds for all work to be done once requests and faults have stopped."""

LOOK = 2.0
"""Seconds between two checks of the tables during a round."""


@dataclass(frozen=True)
class Plan:
    """``round`` and ``seconds`` exclude the time until all work is done."""

    kind: str
    seconds: float = 300
    round: float = 60
    clients: int = 8
    apis: int = 4
    workers: int = 2
    pause: tuple[float, float] = (1.0, 6.0)
    """Shortest and longest time between two faults, in seconds."""

    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    figures: Figures
    complaints: Complaints
    broken: dict[str, int]
    looks: int
    recorded: int
    """Number of all allocations in the record."""


def run(plan: Plan) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="laas-storm-") as directory:
        site = Site(plan.kind, Path(directory), apis=plan.apis, workers=plan.workers)
        with site:
            return _Storm(plan, site).run()


class _Storm:
    def __init__(self, plan: Plan, site: Site) -> None:
        self._plan = plan
        self._site = site
        self._figures, self._complaints = Figures(), Complaints()
        self._chaos = Chaos(site, plan.seed, plan.pause)
        self._looks = 0
        places = _places(site)
        Random(plan.seed).shuffle(places)
        self._clients = [
            Client(
                number,
                plan.seed,
                site.ports,
                places[number :: plan.clients],
                self._figures,
                self._complaints,
            )
            for number in range(plan.clients)
        ]

    def run(self) -> Outcome:
        left = self._plan.seconds
        while left > 0:
            self._round(min(left, self._plan.round))
            left -= self._plan.round
        for client in self._clients:
            client.give_back()
        self._settle(lambda seen: [*self._agreement(seen), *judge.left_over(seen)])
        for client in self._clients:
            client.end()
        self._complaints.add(*self._chaos.complaints, *self._logged())
        recorded = len(self._site.tables().allocations)
        return Outcome(
            self._figures, self._complaints, dict(self._chaos.done), self._looks, recorded
        )

    def _round(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._chaos.resume()
        for client in self._clients:
            client.resume()
        while time.monotonic() < end:
            time.sleep(LOOK)
            self._look(self._site.tables())
        self._chaos.rest()
        for client in self._clients:
            client.rest()
        seen = self._site.tables()
        self._look(seen)
        journals = [client.journal for client in self._clients]
        self._complaints.add(*judge.told_problems(seen, journals, self._site.fabrics))
        for client in self._clients:
            client.mend()
        self._settle(self._agreement)

    def _look(self, seen: Tables) -> None:
        self._looks += 1
        self._complaints.add(*judge.claim_problems(seen, self._site.fabrics))

    def _settle(self, problems: Callable[[Tables], list[str]]) -> None:
        """Wait until there are no problems; problems after ``SETTLES`` seconds are complaints."""
        end = time.monotonic() + SETTLES
        while True:
            seen = self._site.tables()
            self._look(seen)
            found = problems(seen)
            if not found:
                return
            if time.monotonic() > end:
                self._complaints.add(*found)
                return
            time.sleep(0.5)

    def _agreement(self, seen: Tables) -> list[str]:
        """Differences between the record, compute and the published routes."""
        site = self._site
        found = judge.unsettled(seen)
        found += judge.compute_problems(seen, handed_over(site.directory), site.fabrics)
        for fabric in site.fabrics:
            published = routes(site.directory, fabric)
            found += judge.route_problems(seen, fabric, published, site.fabrics)
        return found

    def _logged(self) -> list[str]:
        """The first traceback of each log."""
        return [
            f"{name} logged: {said[at : at + 3000]}"
            for name, said in self._site.said().items()
            if (at := said.find("Traceback (most recent call last)")) >= 0
        ]


def _places(site: Site) -> list[tuple[str, str, str]]:
    """All hosts, and all links between switches, as fabric, kind and name."""
    places = []
    for fabric, (_, inventory) in site.fabrics.items():
        places += [(fabric, "hosts", name) for name in inventory.host_names]
        names = [link_name(cable.link) for cable in inventory.cables if cable.link]
        places += [(fabric, "links", name) for name in names]
    return places
