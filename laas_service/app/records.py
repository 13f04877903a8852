# SPDX-License-Identifier: Apache-2.0

"""What the service remembers of fabrics and allocations, as values."""

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
"""The ids of projects that are taken for such."""


class HostState(enum.Enum):
    UP = "up"
    DRAINED = "drained"
    FAILED = "failed"


class LinkState(enum.Enum):
    UP = "up"
    FAILED = "failed"


class Drift(enum.Enum):
    """What others have changed: the hosts of a live allocation, an aggregate left over or
    unknown, free hosts that cannot be kept in the pool, what the switches run."""

    HOSTS = "hosts"
    LEFTOVER = "leftover"
    POOL = "pool"
    ROUTES = "routes"


@dataclass(frozen=True, slots=True)
class Faults:
    """What an allocation holds that has failed; both ascend, links by their numbers."""

    links: tuple[Link, ...] = ()
    hosts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """A new placement for an allocation that has one, and why."""

    to: Allocation
    reason: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as authentication established it; never taken from a body.

    ``admin`` callers see and act for every project.
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

    ``routes_generation`` is the generation of the last change that routes depend
    on: what the subnet manager should have applied. ``shared_plane`` is withheld from tenants.
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
    """The right of one worker, ``owner``, to converge a fabric; ``token`` grows from each
    holder to the next."""

    fabric: str
    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class Holding:
    """Who converges a fabric (None: nobody) until when, and what it saw there and when.

    ``applied`` is the generation seen in the switches, None with the ``problem``;
    ``confirmed`` the newest that was ever seen there. ``taken`` is how often a worker took it,
    ``stuck`` how often one gave it up because its step did not come to an end.
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
    """How many hosts and allocations a project may have at one time; None is any number."""

    hosts: int | None = None
    allocations: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a project may have at one time, and what of it it has."""

    project_id: str
    limits: Limits
    hosts: int
    allocations: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The answer to a request that is to be queued, and why it has to wait."""

    refusal: NoFit


@dataclass(frozen=True, slots=True)
class Event:
    """One line of an allocation's story: it became ``state``, and why.

    ``by`` is who asked for it; None where the service took its next step.
    """

    at: datetime
    state: State
    reason: str
    by: Initiator | None = None


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    """One allocation as recorded.

    ``version`` grows with every change a reader can see (it is the ETag).
    ``placed`` is None once the claims are freed. ``handed_back`` says that the
    subnet manager must no longer route this tenant: Nova has confirmed that the
    hosts are gone from it, or the release is forced and the network is cut first.
    ``force`` is set by a forced release. ``error`` is why the last step failed or
    has to wait, None when all is well; ``failures`` counts such steps in a row.
    ``generation`` is the fabric's generation at which this allocation's routes
    last changed: they are confirmed once the subnet manager has applied it.
    While it is queued ``pkey`` is 0 and ``placed`` None. ``duration`` as in
    ``requests.AllocationRequest``; ``ends_at`` is when it is expected to end, counted from the
    moment its hosts were claimed. Times are UTC and aware.

    A change of placement is a new version: ``placed`` is what was decided last and
    ``leaving`` what was held before, which stays claimed until ``phase``, how far the
    change is, comes to its end; then both are None. ``faults`` is what has failed of all
    it holds, None if nothing has. ``next_try`` is when the step that failed or has to wait
    is tried again. ``parked`` is the state in which it came into ``ERROR``, None elsewhere.
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
        """Who asked for what happens to it now, as far as its history is here."""
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
