# SPDX-License-Identifier: Apache-2.0

"""Tenants come and go on one cloud, and the judge checks the cloud after every move.

The story runs on a real Nova in one process (``tests/nova/test_story.py``) and on separate
services (``tests/stack``). Both implement ``Site``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeVar

from tests.story.judge import Held, Server, Subnet, problems

STRANGER = "f" * 32
"""Id of a project without an allocation, whose servers must never get a host."""

T = TypeVar("T")


class Site(Protocol):
    """A cloud on which the story runs. Each method returns when its action has taken effect."""

    def allocate(self, project: str, hosts: int) -> Held | None:
        """Allocate hosts that are ready to use; None if the request was refused."""

    def release(self, held: Held) -> None:
        """Release an allocation, whose servers have been deleted before."""

    def boot(self, project: str, count: int) -> int:
        """Start servers by one request; returns how many run when none is being built.

        Deletes the servers that found no host.
        """

    def delete(self, project: str) -> None:
        """Delete all servers of a project."""

    def servers(self) -> list[Server]:
        """All servers of the cloud."""

    def let_in(self) -> Mapping[str, set[str]]:
        """Projects that the aggregates of a host admit, by host."""

    def subnet(self) -> Subnet | None:
        """The fabric; None if the site has none."""


@dataclass
class Told:
    """Counts of the story, and the problems that the judge found."""

    projects: int = 0
    booted: int = 0
    most_servers: int = 0
    turned_away: int = 0
    allocated: int = 0
    refused: int = 0
    released: int = 0
    looks: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass
class Story:
    """Makes moves on a site, ``at_once`` in parallel; the same ``seed`` gives the same moves.

    First each tenant asks for hosts and fills them with servers. Then tenants leave and come
    back with another size until ``servers`` have been started. In the end all tenants leave.
    After every move a project without hosts tries to start a server. ``sizes`` are the
    smallest and the largest number of hosts that a tenant asks for.
    """

    site: Site
    seed: int = 1
    tenants: int = 12
    servers: int = 300
    sizes: tuple[int, int] = (3, 14)
    at_once: int = 1
    say: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.projects = [f"{number:032x}" for number in range(1, self.tenants + 1)]
        self.held: dict[str, Held] = {}
        self.told = Told(self.tenants)

    def tell(self) -> Told:
        """Run the story until its end, or until the judge finds a problem.

        An interrupt does not wait for moves that have begun.
        """
        pool = ThreadPoolExecutor(self.at_once)
        try:
            for moves in self._moves():
                for finding in pool.map(lambda move: move(), moves):
                    self.told.problems += finding
                self._look()
                if self.told.problems:
                    break
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return self.told

    def _moves(self) -> Iterator[list[Callable[[], list[str]]]]:
        yield from self._batches([self._coming(project) for project in self.projects])
        while self.told.booted < self.servers:
            some = self.rng.sample(self.projects, self.at_once)
            yield [self._leaving(p) if p in self.held else self._coming(p) for p in some]
        yield from self._batches([self._leaving(project) for project in [*self.held]])

    def _batches(
        self, moves: list[Callable[[], list[str]]]
    ) -> Iterator[list[Callable[[], list[str]]]]:
        for start in range(0, len(moves), self.at_once):
            yield moves[start : start + self.at_once]

    def _coming(self, project: str) -> Callable[[], list[str]]:
        hosts = self.rng.randint(*self.sizes)
        servers = self.rng.randint(hosts, 2 * hosts)
        return lambda: self._come(project, hosts, servers)

    def _leaving(self, project: str) -> Callable[[], list[str]]:
        return lambda: self._leave(project)

    def _come(self, project: str, hosts: int, servers: int) -> list[str]:
        held = self._timed("allocate", lambda: self.site.allocate(project, hosts))
        if held is None:
            self.say(f"{project[-2:]} asks for {hosts} hosts and is refused")
            self.told.refused += 1
            return self._turned_away(project)
        self.held[project] = held
        self.told.allocated += 1
        running = self._timed("boot", lambda: self.site.boot(project, servers))
        self.told.booted += running
        self.say(f"{project[-2:]} gets {len(held.hosts)} hosts and starts {running} servers")
        short = [f"{project} started {running} of {servers} servers"] * (running < servers)
        return short + self._turned_away(STRANGER)

    def _leave(self, project: str) -> list[str]:
        self._timed("delete", lambda: self.site.delete(project))
        held = self.held.pop(project)
        self._timed("release", lambda: self.site.release(held))
        self.told.released += 1
        self.say(f"{project[-2:]} leaves {len(held.hosts)} hosts")
        return self._turned_away(project)

    def _turned_away(self, project: str) -> list[str]:
        """Problems if a project without hosts can start a server."""
        running = self._timed("boot", lambda: self.site.boot(project, 1))
        self.told.turned_away += not running
        return [f"{project} holds no hosts, and started a server"] * running

    def _look(self) -> None:
        start = time.monotonic()
        servers = self.site.servers()
        subnet = self.site.subnet()
        everybody = [*self.projects, STRANGER]
        self.told.problems += problems(
            self.held.values(),
            servers,
            self.site.let_in(),
            everybody,
            subnet.seen() if subnet else None,
        )
        self.told.looks += 1
        self.told.most_servers = max(self.told.most_servers, len(servers))
        self._spent("look", start)

    def _timed(self, what: str, act: Callable[[], T]) -> T:
        start = time.monotonic()
        try:
            return act()
        finally:
            self._spent(what, start)

    def _spent(self, what: str, start: float) -> None:
        spent = self.told.seconds.get(what, 0.0) + time.monotonic() - start
        self.told.seconds[what] = round(spent, 1)
