# SPDX-License-Identifier: Apache-2.0

"""Tenants that compute and send at the same time, with max-min fair rates at every moment.

Time is in seconds, sizes in bytes; a link carries ``BANDWIDTH`` bytes a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laas_research.interference.rates import NO_LINK, max_min_rates
from laas_research.interference.routes import Ints, Routes
from laas_research.interference.traffic import Phase

BANDWIDTH = 4e9
"""Bytes a second of a link: QDR InfiniBand, as in the evaluation of LaaS (ANCS'16)."""

LATENCY = 1e-6
"""Seconds that a message needs besides its size over its rate, for a path within a leaf."""

LATENCY_OF_A_LINK = 2e-7
"""Seconds that each link between switches on the path adds."""

SOON = 1e-12
"""Seconds within which two events count as one."""


@dataclass(frozen=True, slots=True)
class Application:
    """What a tenant runs: ``phases`` over and over, after ``compute`` seconds each time."""

    hosts: Sequence[int]
    """In the order of ranks; one rank a host. Storage servers, if any, follow."""
    phases: Sequence[Phase]
    message: float
    """Bytes."""
    compute: float = 0.0
    """Seconds before each iteration."""


@dataclass(slots=True)
class Meetings:
    """Where flows of different tenants shared a link."""

    links: set[int] = field(default_factory=set)
    """Directed links that two tenants used at one time."""
    byte_count: float = 0.0
    """Bytes that went over such a link while another tenant used it."""


@dataclass(frozen=True, slots=True)
class Played:
    """The mean seconds of an iteration by tenant, and where tenants met."""

    seconds: list[float]
    meetings: Meetings


class _Tenant:
    """One application while it is played."""

    def __init__(self, application: Application, routes: Routes, rails: int) -> None:
        self.application = application
        hosts = np.array(application.hosts)
        self._paths: list[Ints] = []
        self._delays: list[float] = []
        self._sizes: list[float] = []
        for phase in application.phases:
            pairs = np.array(phase.flows, dtype=np.int64).reshape(-1, 2)
            source, target = hosts[pairs[:, 0]], hosts[pairs[:, 1]]
            by_rail = [routes.paths(rail, source, target) for rail in range(rails)]
            paths = np.concatenate(by_rail)
            crossed = (paths[:, 2:] != NO_LINK).sum(axis=1)
            delays = phase.rounds * (LATENCY + LATENCY_OF_A_LINK * crossed)
            self._paths.append(paths)
            self._delays.append(float(delays.max(initial=0.0)))
            self._sizes.append(application.message * phase.share * phase.rounds / rails)
        self._phase = -1
        self.done = 0
        """Iterations."""

    @property
    def delay(self) -> float:
        """Seconds between the end of the last flow of this phase and that of the phase."""
        return self._delays[self._phase]

    def advance(self) -> tuple[Ints, float] | None:
        """Go on with the next phase: the paths of its flows, and the bytes of each.

        None after the last phase: the application computes before the next iteration.
        """
        self._phase += 1
        if self._phase == len(self._paths):
            self.done += 1
            self._phase = -1
            if self.application.compute:
                return None
            self._phase = 0
        return self._paths[self._phase], self._sizes[self._phase]


def play(
    applications: Sequence[Application],
    routes: Routes,
    *,
    rails: int = 1,
    iterations: int = 4,
    starts: Sequence[float] | None = None,
    resolution: float = 0.0,
) -> Played:
    """Play applications until each has done ``iterations``; those that are done go on meanwhile.

    ``starts`` are the seconds at which each begins. The seconds of an iteration include computing.
    A phase ends when all its flows have; the latency of its longest path follows. Flows of one
    application that end within ``resolution`` seconds of each other end together, at the first of
    these moments; 0 is exact.

    Raises:
        ValueError: an application has fewer than two hosts.
    """
    if any(len(application.hosts) < 2 for application in applications):
        raise ValueError("an application needs two hosts or more")
    tenants = [_Tenant(application, routes, rails) for application in applications]
    begins = list(starts or [0.0] * len(tenants))
    ends: list[float | None] = [None] * len(tenants)
    meetings = Meetings()
    wakes = np.array(begins)
    """By tenant: when computing, or the latency of a phase, ends; infinite while it sends."""
    paths = np.empty((0, 1), dtype=np.int64)
    owners = np.empty(0, dtype=np.int64)
    left = shares = np.empty(0)
    now = 0.0
    while any(end is None for end in ends):
        shares = max_min_rates(paths, routes.capacity, shares)
        rates = shares * BANDWIDTH
        step = max(0.0, float(min(wakes.min() - now, (left / rates).min(initial=np.inf))))
        _count(meetings, paths, owners, np.minimum(rates * step, left), len(routes.capacity))
        now += step
        left = left - rates * step
        ended = left <= rates * SOON
        if ended.any():
            ending = np.zeros(len(tenants), dtype=bool)
            ending[owners[ended]] = True
            ended |= ending[owners] & (left <= rates * resolution)
            unchanged = shares < shares[ended].min()
            shares = np.where(unchanged, shares, np.inf)[~ended]
            paths, owners, left = paths[~ended], owners[~ended], left[~ended]
            ending[owners] = False
            for i in np.flatnonzero(ending):
                wakes[i] = now + tenants[i].delay
        for i in np.flatnonzero(wakes <= now + SOON):
            following = tenants[i].advance()
            if tenants[i].done >= iterations and ends[i] is None:
                ends[i] = now
            if following is None:
                wakes[i] = now + tenants[i].application.compute
                continue
            more, size = following
            wakes[i] = np.inf if len(more) else now + tenants[i].delay
            paths = np.concatenate([paths, more]) if len(paths) else more
            owners = np.append(owners, np.full(len(more), i))
            left = np.append(left, np.full(len(more), size))
            shares = np.full(len(paths), np.inf)
    seconds = [
        (end - start) / iterations
        for end, start in zip(ends, begins, strict=True)
        if end is not None
    ]
    return Played(seconds, meetings)


def _count(
    meetings: Meetings, paths: Ints, owners: Ints, sent: NDArray[np.float64], links: int
) -> None:
    """Add the links on which two tenants are now, and the bytes that they send over them."""
    if not len(paths):
        return
    used = paths != NO_LINK
    flat = paths[used]
    owner = np.repeat(owners, used.sum(axis=1))
    lowest, highest = np.full(links, links), np.full(links, -1)
    np.minimum.at(lowest, flat, owner)
    np.maximum.at(highest, flat, owner)
    met = highest > lowest
    meetings.links.update(np.flatnonzero(met).tolist())
    meetings.byte_count += float(np.repeat(sent, used.sum(axis=1))[met[flat]].sum())
