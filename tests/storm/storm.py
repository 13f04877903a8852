# SPDX-License-Identifier: Apache-2.0

"""Rounds of the storm; the judge checks during and after each round, and at the end."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import sqlalchemy as sa
from oslo_db.exception import DBError

from laas_service.domain.topology import link_name
from tests import rewind
from tests.storm import judge, linear
from tests.storm.clients import Client
from tests.storm.evidence import Tables, handed_over, routes
from tests.storm.journal import Complaints, Figures
from tests.storm.pressure import Pressure, Small
from tests.storm.site import Chaos, Site
from tests.storm.wire import LostError, ask
from tests.waiting import eventually

SETTLES = 600
"""Seconds for all work to be done once requests and faults have stopped."""

LOST = 2.0
"""Seconds by which the database goes back."""

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
    disasters: tuple[str, ...] = (
        "promotion",
        "failover",
        "restore",
        "upgrade",
        "promotion",
        "failover asleep",
    )
    """One in the middle of each round, in turn; see ``_Storm``."""

    pressed: bool = True
    """Whether the first half of each round has those who press; see ``pressure``."""

    without: str = ""
    """A guard of the service that is taken away: the storm ends with the first complaint."""

    only: tuple[str, ...] = ()
    """Faults, see ``site.Chaos``."""


@dataclass(frozen=True)
class Outcome:
    figures: Figures
    complaints: Complaints
    broken: dict[str, int]
    looks: int
    recorded: int
    """Number of all allocations in the record."""
    judged: int
    """Operations in the history of requests and answers that the checker judged."""


def run(plan: Plan) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="laas-storm-") as directory:
        numbers = {"apis": plan.apis, "workers": plan.workers}
        site = Site(plan.kind, Path(directory), **numbers, without=plan.without, pressed=True)
        with site:
            return _Storm(plan, site).run()


class _Storm:
    """One storm.

    Disasters: ``promotion`` promotes a standby behind the address of the database;
    ``failover`` takes the database back by a few seconds under running processes;
    ``failover asleep`` too, but they sleep until a new process has made as many generations as were
    lost; ``restore`` restores a backup of a few seconds ago; ``upgrade`` upgrades to the next
    release under load (once).
    """

    def __init__(self, plan: Plan, site: Site) -> None:
        self._plan = plan
        self._site = site
        self._figures, self._complaints = Figures(), Complaints()
        self._history = linear.History()
        self._chaos = Chaos(site, plan.seed, plan.pause, plan.only)
        self._looks = 0
        self._read: dict[str, int] = {}
        self._published: dict[str, dict[int, bytes]] = {fabric: {} for fabric in site.fabrics}
        self._disasters = deque(
            kind for kind in plan.disasters if kind != "promotion" or site.fails_over
        )
        self._went_back = False
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
                self._history,
            )
            for number in range(plan.clients)
        ]
        self._pressure = Pressure(site, self._figures, self._complaints)
        self._small = Small(site, self._pressure, self._figures, self._complaints)

    def run(self) -> Outcome:
        left = self._plan.seconds
        while left > 0 and not self._is_over():
            self._round(min(left, self._plan.round))
            left -= self._plan.round
            print(f"{self._plan.kind}: {self._told()}", flush=True)
        if not self._plan.without:
            for client in self._clients:
                client.give_back()
            self._settle(lambda seen: [*self._agreement(seen), *judge.left_over(seen)])
            self._complaints.add(*linear.problems(self._history.operations))
        self._pressure.end()
        self._small.end()
        for client in self._clients:
            client.end()
        recorded = len(self._site.tables().allocations)
        return Outcome(
            self._figures,
            self._complaints,
            dict(self._chaos.done),
            self._looks,
            recorded,
            self._history.judged + len(self._history.operations),
        )

    def _told(self) -> str:
        """How far the storm is, for those who wait."""
        faults = sum(self._chaos.done.values())
        judged = self._history.judged + len(self._history.operations)
        return (
            f"{self._figures.total:,} operations, {faults} faults, {self._looks} snapshots and "
            f"{judged:,} operations in the history, {len(self._complaints)} complaints"
        )

    def _is_over(self) -> bool:
        """Whether the storm is to notice one guard that is missing, and has."""
        return bool(self._plan.without and len(self._complaints))

    def _round(self, seconds: float) -> None:
        self._blow(seconds / 2, pressed=self._plan.pressed)
        if self._disasters and not self._is_over():
            kind = self._disasters.popleft()
            self._disaster(kind)
            if kind != "upgrade":  # there is one next release
                self._disasters.append(kind)
        self._blow(seconds / 2, pressed=False)
        if self._plan.without:
            return
        self._small.pause()
        for client in self._clients:
            client.rest()
        seen = self._site.tables()
        self._look(seen)
        journals = [client.journal for client in self._clients]
        self._complaints.add(*judge.told_problems(seen, journals, self._site.fabrics))
        for client in self._clients:
            client.mend()
        self._settle(self._agreement)

    def _blow(self, seconds: float, *, pressed: bool) -> None:
        """Requests and faults for some seconds, then no more faults."""
        end = time.monotonic() + seconds
        self._chaos.resume()
        self._small.resume()
        if pressed:
            self._pressure.resume()
        for client in self._clients:
            client.resume()
        while time.monotonic() < end and not self._is_over():
            time.sleep(LOOK)
            self._look(self._site.tables())
        self._pressure.pause()
        self._chaos.rest()

    # -- disasters --------------------------------------------------------------

    def _disaster(self, kind: str) -> None:
        """Something that happens to all processes at once, under the requests of the clients."""
        site = self._site
        if kind == "upgrade":
            site.upgrade()
        elif kind == "promotion":
            site.promote()
        elif kind == "restore":
            backup = site.directory / f"backup-{self._looks}.gz"
            site.manage("db", "backup", str(backup))
            time.sleep(LOST)
            self._go_back(lambda: site.restore(backup))
        else:
            copy = rewind.copy(site.engine)
            time.sleep(LOST)
            put_back = self._put_back if kind == "failover" else self._put_back_asleep
            self._go_back(lambda: put_back(copy))
        self._chaos.done[f"disasters: {kind}"] += 1

    def _go_back(self, act: Callable[[], None]) -> None:
        """What the clients were told counts until then; afterwards, what the database has."""
        self._complaints.excused, self._went_back = True, True
        before = time.monotonic()
        act()
        for client in self._clients:
            client.rest()
        seen = self._site.tables()
        names = {
            row["key"]: "gone" if one["state"] in ("releasing", "released") else one["name"]
            for row in seen.keys
            for one in [seen.allocations[row["allocation"]]]
        }
        self._complaints.add(*linear.problems(self._history.before(before)))
        self._history.forget(names)
        for client in self._clients:
            client.rebase(seen, self._site.fabrics)
        self._said()
        self._complaints.excused = False

    def _put_back(self, copy: rewind.Rows) -> None:
        """Put a copy of the rows back; the service may be faster several times."""
        while True:
            try:
                rewind.put_back(self._site.engine, copy)
                return
            except (sa.exc.DBAPIError, DBError):
                time.sleep(0.1)  # another connection is tried

    def _put_back_asleep(self, copy: rewind.Rows) -> None:
        """Let one new API process make generations of the numbers that were lost.

        Other processes wake up when the numbers are higher again than they have seen.
        """
        site = self._site
        first = site.servers[0]
        with site.asleep():
            newest = site.generations()
            self._put_back(copy)
            first.kill()
            first.start()
            eventually(first.up, lambda: first.last_words("answers"))
            assert first.port is not None
            for fabric, (_, inventory) in site.fabrics.items():
                down = {row["host"] for row in site.tables().host_states if row["fabric"] == fabric}
                host = next(at for at in range(len(inventory.host_names)) if at not in down)
                path = f"/v1/fabrics/{fabric}/hosts/{inventory.host_names[host]}"
                while site.generations()[fabric] <= newest[fabric]:
                    for state in ("failed", "up"):
                        with suppress(LostError):
                            ask(first.port, "PATCH", path, {"state": state})

    # -- looks ------------------------------------------------------------------

    def _look(self, seen: Tables) -> None:
        self._looks += 1
        self._complaints.add(
            *judge.claim_problems(seen, self._site.fabrics),
            *self._said(),
            *self._chaos.complaints,
            *self._unfenced(),
        )
        for fabric, known in self._published.items():
            self._complaints.add(*judge.published_problems(self._site.directory, fabric, known))

    def _settle(self, problems: Callable[[Tables], list[str]]) -> None:
        """Wait until there are no problems; problems after ``SETTLES`` seconds are complaints."""
        end = time.monotonic() + SETTLES
        while True:
            seen = self._site.tables()
            if self._went_back:
                self._site.clean_compute(seen.allocations.keys() | seen.aside)
            self._look(seen)
            found = problems(seen)
            if not found or self._is_over():
                self._went_back = False
                return
            if time.monotonic() > end:
                self._complaints.add(*found)
                return
            time.sleep(0.5)  # between two looks at what has to agree in the end

    def _agreement(self, seen: Tables) -> list[str]:
        """Differences between the record, compute and the published routes."""
        site = self._site
        found = judge.unsettled(seen)
        handed = handed_over(site.directory)
        judged = {id: hosts for id, hosts in handed.items() if id not in seen.aside}
        found += judge.compute_problems(seen, judged, site.fabrics)
        for fabric in site.fabrics:
            published = routes(site.directory, fabric)
            found += judge.route_problems(seen, fabric, published, site.fabrics)
        return found

    def _said(self) -> list[str]:
        """New tracebacks in the logs, and claims that only the database's constraints refused."""
        found = []
        for name, said in self._site.said().items():
            new, self._read[name] = said[self._read.get(name, 0) :], len(said)
            for words in ("Traceback (most recent call last)", "the database refused the claims"):
                if (at := new.find(words)) >= 0:
                    found.append(f"{name} logged: {new[at : at + 3000]}")
        return found

    def _unfenced(self) -> list[str]:
        file = self._site.directory / "unfenced"
        return file.read_text().splitlines() if file.exists() else []


def _places(site: Site) -> list[tuple[str, str, str]]:
    """All hosts, and all links between switches, as fabric, kind and name."""
    places = []
    for fabric, (_, inventory) in site.fabrics.items():
        places += [(fabric, "hosts", name) for name in inventory.host_names]
        names = [link_name(cable.link) for cable in inventory.cables if cable.link]
        places += [(fabric, "links", name) for name in names]
    return places
