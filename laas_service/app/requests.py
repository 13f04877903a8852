# SPDX-License-Identifier: Apache-2.0

"""What the use cases take and give: wishes, what a deployment offers, what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from laas_service.app.records import NO_LIMITS, Drift, FabricRecord, Holding, Limits, State
from laas_service.domain.admission.queue import QueueSettings as Discipline
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.constraints import Constraints
from laas_service.domain.policies.base import Policy
from laas_service.messages import Applied

LIVE = frozenset(State) - {State.RELEASED}
"""The states in which an allocation holds (or waits for) hosts."""

MOVING = frozenset({State.QUEUED, State.ALLOCATING, State.RELEASING})
"""The states that convergence will still change by itself."""


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """What this deployment offers.

    ``policies`` by name; ``default_fabric`` is needed only where there are several.
    ``one_per_project`` limits a project to one live allocation: with Nova's stock
    filter alone the hosts of two allocations of one project look the same.
    ``waiters`` bounds how many callers may wait for outcomes at one time. ``queue``
    is how those are served who wait for room. ``limits`` are those of projects
    without a quota of their own. ``search_budget`` bounds all searches for one request together
    (``domain.meter``).
    """

    policies: Mapping[str, Policy]
    default_policy: str
    default_fabric: str | None = None
    one_per_project: bool = False
    waiters: int = 8
    queue: Discipline = field(default_factory=Discipline)
    limits: Limits = NO_LIMITS
    search_budget: int = 4_000_000


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """A wish for hosts. What is None is filled in: the caller's project, the defaults.

    With ``wait`` it is queued where there is no room. ``duration`` in seconds is how
    long it is expected to last; None if nobody knows. ``avoid`` are names of hosts that
    the constraints shall avoid. A ``container`` is for further allocations, who name it as
    ``parent``.
    """

    name: str
    hosts: int
    fabric: str | None = None
    policy: str | None = None
    project_id: str | None = None
    idempotency_key: str | None = None
    wait: bool = False
    duration: float | None = None
    constraints: Constraints | None = None
    avoid: tuple[str, ...] = ()
    parent: str | None = None
    container: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """What would be given if it were asked for now, and its hosts' cost; nothing is reserved."""

    fabric: FabricRecord
    project_id: str
    allocation: Allocation
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a size would fit now, and the largest that would.

    With ``cut_off`` the searches stopped at the budget of the request: more may fit.
    """

    answer: Allocation | NoFit
    largest: int
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Routing:
    """The generation of the routes wanted, and what each subnet manager is seen to run.

    ``holding`` is what the worker that converges the fabric saw there last.
    """

    wanted: int
    applied: Mapping[str, Applied]
    holding: Holding


@dataclass(frozen=True, slots=True)
class Watched:
    """Whether the switches run what is wanted, how often drift was found and repaired, and who
    holds the fabric."""

    current: bool
    drift: Mapping[Drift, int]
    repaired: Mapping[Drift, int]
    holding: Holding


@dataclass(frozen=True, slots=True)
class Progress:
    """The next step of an allocation (None: there is none), how often it failed in a row,
    when it is tried again, and the generation wanted and seen in the switches."""

    next_step: str | None
    failures: int
    next_try: datetime | None
    wanted: int | None
    applied: int | None
