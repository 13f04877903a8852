# SPDX-License-Identifier: Apache-2.0

"""Tenants that compute and send at the same time, with max-min fair rates at every moment.

Time is in seconds, sizes in bytes; a link carries ``BANDWIDTH`` bytes a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laas_service.simulator.interference.rates import NO_LINK, max_min_rates
from laas_service.simulator.interference.routes import Ints, Routes
from laas_service.simulator.interference.traffic import Phase

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
    """In the order of ranks; one rank a host."""
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
        self.paths: list[Ints] = []
        self.delay: list[NDArray[np.float64]] = []
        self.sizes: list[float] = []
        for phase in application.phases:
            pairs = np.array(phase.flows).reshape(-1, 2)
            source, target = hosts[pairs[:, 0]], hosts[pairs[:, 1]]
            by_rail = [routes.paths(rail, source, target) for rail in range(rails)]
            paths = np.concatenate(by_rail)
            crossed = (paths[:, 2:] != NO_LINK).sum(axis=1)
            self.paths.append(paths)
            self.delay.append(phase.rounds * (LATENCY + LATENCY_OF_A_LINK * crossed))
            self.sizes.append(application.message * phase.share * phase.rounds / rails)
        self.phase = -1
        self.wakes = 0.0
        """When computing, or the latency of a phase, ends."""
        self.left = np.empty(0)
        self.done = 0

    def advance(self, now: float) -> None:
        """Go on with what follows: the next phase, or the next iteration."""
        self.phase += 1
        if self.phase == len(self.paths):
            self.done += 1
            self.phase = -1
            self.wakes = now + self.application.compute
            self.left = np.empty(0)
            if not self.application.compute:
                self.advance(now)
            return
        self.wakes = now + float(self.delay[self.phase].max(initial=0.0))
        self.left = np.full(len(self.paths[self.phase]), self.sizes[self.phase])


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
    for tenant, start in zip(tenants, begins, strict=True):
        tenant.wakes = start
    now = 0.0
    while any(end is None for end in ends):
        sending = [(i, t) for i, t in enumerate(tenants) if (t.left > 0).any()]
        paths, owners, left = _joined(sending)
        rates = max_min_rates(paths, routes.capacity) * BANDWIDTH
        lasting = left / rates
        first_end = float(lasting.min(initial=np.inf))
        wakes = min((t.wakes - now for t in tenants if not (t.left > 0).any()), default=np.inf)
        step = max(0.0, min(wakes, first_end))
        sent = np.minimum(rates * step, left)
        _count(meetings, paths, owners, sent, len(routes.capacity))
        now += step
        first = 0
        for _, tenant in sending:
            active = np.flatnonzero(tenant.left > 0)
            rate = rates[first : first + len(active)]
            first += len(active)
            remaining = tenant.left[active] - rate * step
            soon = resolution if (remaining <= rate * SOON).any() else 0.0
            ends_now = remaining <= rate * max(soon, SOON)
            tenant.left[active] = np.where(ends_now, 0.0, remaining)
            if not (tenant.left > 0).any():
                tenant.wakes = now + float(tenant.delay[tenant.phase].max(initial=0.0))
        for i, tenant in enumerate(tenants):
            if not (tenant.left > 0).any() and tenant.wakes <= now + SOON:
                tenant.advance(now)
                if tenant.done >= iterations and ends[i] is None:
                    ends[i] = now
    seconds = [
        (end - start) / iterations
        for end, start in zip(ends, begins, strict=True)
        if end is not None
    ]
    return Played(seconds, meetings)


def _joined(sending: Sequence[tuple[int, _Tenant]]) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """The paths of all flows that are not done, the tenant of each, and the bytes left of it."""
    if not sending:
        return np.empty((0, 1), dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    active = [np.flatnonzero(tenant.left > 0) for _, tenant in sending]
    rows = [t.paths[t.phase][flows] for (_, t), flows in zip(sending, active, strict=True)]
    width = max(row.shape[1] for row in rows)
    padded = [
        np.pad(row, ((0, 0), (0, width - row.shape[1])), constant_values=NO_LINK) for row in rows
    ]
    owners = np.repeat([i for i, _ in sending], [len(flows) for flows in active])
    left = [t.left[flows] for (_, t), flows in zip(sending, active, strict=True)]
    return np.concatenate(padded), owners, np.concatenate(left)


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
