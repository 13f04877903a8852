# SPDX-License-Identifier: Apache-2.0

"""Recorded fabrics, allocations, leases and quotas, as values."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from laas_service.app.lifecycle import Change, Phase, State
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.constraints import Constraints
from laas_service.domain.inventory import Inventory
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import Link, Topology
from laas_service.messages import Initiator

PROJECT = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,63}$"
"""The form of a project id."""


class HostState(enum.Enum):
    UP = "up"
    DRAINED = "drained"
    FAILED = "failed"


class LinkState(enum.Enum):
    UP = "up"
    FAILED = "failed"


class Drift(enum.Enum):
    """Kinds of drift: what differs from the record because others changed it."""

    HOSTS = "hosts"
    """The hosts of an active allocation in Nova."""
    LEFTOVER = "leftover"
    """An aggregate whose allocation is released, or was never recorded."""
    POOL = "pool"
    """Free hosts that are not in the pool, or that another aggregate opens to projects."""
    ROUTES = "routes"
    """Routes that the switches ran and no longer run."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The failed links and hosts of an allocation, ascending by number."""

    links: tuple[Link, ...] = ()
    hosts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """The decision to change the placement of an allocation, and the reason that is told."""

    to: Allocation
    reason: str


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request, as authenticated; never taken from a request's body.

    With ``admin`` the caller sees all projects and may act for them.
    """

    project_id: str
    user_id: str
    admin: bool
    request_id: str

    @property
    def initiator(self) -> Initiator:
        return Initiator(self.request_id, self.user_id, self.project_id)


@dataclass(frozen=True, slots=True)
class FabricRecord:
    """A managed fabric. ``generation`` grows by one with every committed change.

    ``routes_generation`` is the generation of the last change of routes: the one that the
    subnet manager should have applied. Tenants get no link of ``shared_plane``.
    """

    id: str
    topology: Topology
    inventory: Inventory
    generation: int
    created_at: datetime
    routes_generation: int = 1
    shared_plane: SharedPlane = NO_PLANE


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker, ``owner``, to converge a fabric.

    ``token`` is the fencing token: each holder has a larger one than the holder before.
    """

    fabric: str
    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The worker that converges a fabric (None: no worker), and what it saw in the switches.

    Its lease ends at ``until``. At ``seen_at`` it saw the generation ``applied``, or none and a
    ``problem``. ``confirmed`` is the newest generation ever seen. ``taken`` counts how often a
    worker took the fabric, ``stuck`` how often one gave it up because it was stuck.
    """

    worker: str | None = None
    until: datetime | None = None
    applied: int | None = None
    problem: str | None = None
    seen_at: datetime | None = None
    confirmed: int | None = None
    taken: int = 0
    stuck: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The most hosts and allocations that a project may have at one time; None is no limit."""

    hosts: int | None = None
    allocations: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Usage:
    """The quota of a project, and how many hosts and allocations it has now."""

    project_id: str
    limits: Limits
    hosts: int
    allocations: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The answer to a request that is to be queued, with the refusal."""

    refusal: NoFit


@dataclass(frozen=True, slots=True)
class Event:
    """One entry in an allocation's history: the state, and the reason.

    ``by`` is the user who asked for it; None where the service took its next step.
    """

    at: datetime
    state: State
    reason: str
    by: Initiator | None = None


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    """One allocation as recorded.

    ``version`` grows with every change that a reader can see (it is the ETag). ``placed`` is
    the placement, None while it is queued and once the claims are freed. With ``handed_back``
    the subnet manager must no longer route this tenant: Nova has confirmed that its hosts are
    taken back, or the release is forced and the network is cut first. A forced release sets
    ``force``. ``error`` is why the last step failed or has to wait, None if neither;
    ``failures`` counts such steps in a row, and ``next_try`` is when the step is tried again.
    ``generation`` is the fabric's generation at which this allocation's routes last changed:
    they are confirmed once the subnet manager has applied it. ``pkey`` is the partition key, 0
    while it is queued. ``duration`` as in ``requests.AllocationRequest``; ``ends_at`` is when it
    is expected to end, counted from the claim of its hosts. Times are UTC and aware.

    While the placement changes, ``placed`` is the new one, ``leaving`` the old one, which stays
    claimed, and ``phase`` the step under way; ``leaving`` and ``phase`` are None otherwise.
    ``faults`` are those of everything it holds, None if nothing has failed. ``parked`` is the
    state from which it came into ``ERROR``, None in other states.
    """

    id: str
    fabric: str
    name: str
    project_id: str
    policy: str
    hosts: int
    state: State
    version: int
    pkey: int
    placed: Allocation | None
    handed_back: bool
    force: bool
    error: str | None
    created_at: datetime
    updated_at: datetime
    history: tuple[Event, ...] = ()
    generation: int = 0
    failures: int = 0
    duration: float | None = None
    ends_at: datetime | None = None
    constraints: Constraints | None = None
    parent: str | None = None
    container: bool = False
    leaving: Allocation | None = None
    phase: Phase | None = None
    faults: Faults | None = None
    next_try: datetime | None = None
    parked: State | None = None

    @property
    def initiator(self) -> Initiator | None:
        """The user who asked for what happens now, as far as the history was read."""
        asked = (event.by for event in reversed(self.history) if event.by is not None)
        return next(asked, None)

    @property
    def change(self) -> Change | None:
        """The change of placement under way."""
        if self.placed is None or self.leaving is None or self.phase is None:
            return None
        return Change(self.leaving, self.placed, self.phase)

    @property
    def held(self) -> Allocation | None:
        """Everything that it has claimed: while its placement changes, old and new."""
        return self.placed if self.change is None else self.change.held

    @property
    def traffic(self) -> Allocation | None:
        """The placement whose links its traffic uses, as far as is decided."""
        return self.placed if self.change is None else self.change.routes.traffic
