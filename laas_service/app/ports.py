# SPDX-License-Identifier: Apache-2.0

"""What the service needs from outside: a store, compute hosts, a subnet manager.

Each port promises what is written here; adapters keep the promise, and the
in-memory twins in ``tests/fakes.py`` stand at the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from laas_service.app.records import (
    AllocationRecord,
    Drift,
    FabricRecord,
    Holding,
    HostState,
    Lease,
    Limits,
    LinkState,
    Move,
    NewAllocation,
    State,
    Usage,
    Wait,
)
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.features import HostChange
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger.ledger import Ledger
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import Link, Topology
from laas_service.messages import Applied as Applied
from laas_service.messages import FabricState, Initiator, Notification

T = TypeVar("T")

ActingFor = Callable[[Initiator | None], AbstractContextManager[None]]
"""Inside, whatever is logged is shown to be for whoever asked (None: for nobody)."""


class Store(Protocol):
    """The recorded decisions; every method that writes is one transaction.

    What changes is told to others if the store has an outbox; ``by`` is who asked for it,
    None where the service acts by itself.

    Errors of all methods: ``Unavailable`` when the database does not answer (the
    outcome is then unknown and the call may be repeated).
    """

    def under(self, lease: Lease) -> Store:
        """This store for the holder of a lease: what it writes is refused once somebody else
        has taken the lease, by the same transaction. ``LeaseLost`` from every method that
        writes."""

    def check(self) -> None:
        """Return if the database answers and its schema is current, else ``Unavailable``."""

    def add_fabric(self, id: str, topology: Topology, inventory: Inventory) -> FabricRecord:
        """Record a new fabric at generation 1. ``Conflict`` if the id is taken."""

    def fabrics(self) -> list[FabricRecord]:
        """All fabrics by id."""

    def fabric(self, id: str) -> FabricRecord:
        """One fabric, its generation fresh. ``NotFound``."""

    def ledger(self, fabric_id: str) -> tuple[Ledger, int]:
        """The fabric's ledger, caught up by the deltas it lacked, and its generation.

        The object belongs to this process: read it, do not write it. ``NotFound``.
        """

    def admit(
        self, new: NewAllocation, propose: Callable[[Ledger], Allocation | NoFit | Wait]
    ) -> AllocationRecord | NoFit:
        """Propose on the present state, claim and record as ``allocating``: one transaction.

        ``propose`` gets a ledger of its own and may claim on it (``allocator.admit``
        does); what it reads from this store is as fresh as that ledger, or the race
        is lost. A lost race is retried inside, so it may be called several times.
        ``Wait`` records the request as ``queued``, without claims (new generation).
        ``NotFound`` or ``Conflict`` if its parent is no container, or is being released.
        With an idempotency key seen before for the same project, the first answer's
        record comes back and ``propose`` is not called; ``IdempotencyMismatch`` if
        what was asked differs. ``QuotaExceeded`` if the project would have more than its
        quota, or ``new.limits``: counted in the same transaction, so that of two requests at one
        time, be it for different fabrics, only one gets what is left.
        """

    def usage(self, project_id: str, limits: Limits) -> Usage:
        """What a project may have, by its own quota or else by ``limits``, and what it has."""

    def within_limits(self, new: NewAllocation) -> None:
        """Return if the project would stay within its quota now, else ``QuotaExceeded``."""

    def admit_waiting(
        self, fabric_id: str, choose: Callable[[Ledger], Sequence[Allocation]]
    ) -> list[AllocationRecord]:
        """Claim for queued requests what ``choose`` gives them: one transaction.

        An allocation has the id of the request it is for; the records come back as
        ``allocating``. ``choose`` as ``propose`` of ``admit``.
        """

    def cancel(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        """A queued request becomes ``released`` (new generation).

        ``ConcurrentUpdate`` if it moved on; ``Conflict`` unless it is queued.
        """

    def allocation(self, id: str) -> AllocationRecord:
        """One allocation with its history. ``NotFound``."""

    def allocations(
        self,
        *,
        fabric: str | None = None,
        project_id: str | None = None,
        states: Collection[State] = (),
        limit: int = 1000,
        marker: str | None = None,
    ) -> list[AllocationRecord]:
        """Allocations in order of creation after ``marker`` (an id), without history."""

    def transition(
        self,
        record: AllocationRecord,
        to: State,
        reason: str,
        *,
        force: bool = False,
        error: str | None = None,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        """Record a new state (or the same again) and its reason; clears the next try.

        ``error`` remembers where it came from, as ``parked``.

        ``ConcurrentUpdate`` if the record moved on, ``Conflict`` if it is to be released
        and is a container that others are inside or wait for, or if the state cannot
        follow (``records.SUCCESSORS``; ``released`` is reached by ``free`` and ``cancel``).
        """

    def rename(
        self, record: AllocationRecord, name: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        """``ConcurrentUpdate`` if the record moved on."""

    def hand_back(self, record: AllocationRecord) -> AllocationRecord:
        """Record that the tenant's routes have to go now (new generation).

        Compute has let the tenant go, or the release is forced. ``ConcurrentUpdate``.
        """

    def free(self, record: AllocationRecord, reason: str) -> AllocationRecord:
        """Free the claims and become ``released`` (new generation).

        ``ConcurrentUpdate``; ``Conflict`` unless it is releasing and handed back.
        """

    def move(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Move | T],
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord | T:
        """Begin a change of placement that ``choose`` decides on the present state.

        One transaction: the new placement is claimed beside the old one, and becomes
        ``placed`` in phase ``PREPARE`` (new generation). ``choose`` as ``propose`` of
        ``admit``; what it answers instead of a ``Move`` comes back, nothing done.
        ``ConcurrentUpdate`` if the record moved on; ``Conflict`` unless it is active and
        no change is under way; ``DoubleClaim``.
        """

    def proceed(self, record: AllocationRecord, reason: str) -> AllocationRecord:
        """The next phase of a change of placement (new generation).

        After the last one what only the old placement held is freed and the change is
        over. The phase before must be confirmed in the switches. ``ConcurrentUpdate``;
        ``Conflict`` unless it is active and a change is under way.
        """

    def set_host_state(
        self, fabric_id: str, host: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        """Record a host's state; returns the fabric's generation. ``NotFound``."""

    def set_leaf_state(
        self, fabric_id: str, leaf: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        """Drain the hosts of a leaf (its GUID) that are up, or have those up again that only
        such drains keep down: one transaction. Returns the fabric's generation.

        A host that has failed, or was drained by itself, stays as it is.
        """

    def describe_hosts(self, fabric_id: str, changes: Mapping[int, HostChange]) -> int:
        """Record what these hosts are like; returns the fabric's generation. ``NotFound``."""

    def set_link_state(
        self, fabric_id: str, link: Link, state: LinkState, *, by: Initiator | None = None
    ) -> int:
        """Record a link's state; returns the fabric's generation. ``NotFound``."""

    def set_shared_plane(self, fabric_id: str, plane: SharedPlane) -> int:
        """Withhold a plane instead of the one before; returns the fabric's generation.

        ``NotFound``; ``Conflict`` if a tenant has a link of it.
        """

    def note_faults(self, fabric_id: str) -> list[str]:
        """Record what has failed of what allocations hold, where that is not recorded.

        ``set_host_state`` and ``set_link_state`` do so themselves. Ids of those changed.
        """

    def due(
        self,
        now: datetime,
        limit: int = 100,
        *,
        faulty: bool = False,
        fabric: str | None = None,
    ) -> list[str]:
        """Ids of allocations with a step to do whose next try is not after ``now``.

        With ``faulty`` also active ones that hold a failed link; with ``fabric`` of that one.
        """

    def postpone(self, id: str, until: datetime, error: str, *, version: int | None = None) -> None:
        """Note why the next step failed or waits and when to try again; the state stays.

        A text that differs from the one before goes into the story. With ``version`` a record
        that is past it is left alone: that step is over, whatever was heard of it.
        """

    def note_applied(self, fabric_id: str, applied: Applied) -> None:
        """Record what is seen in the switches, for others to look at.

        The first time that the switches run a generation is told to others; that they run
        what is wanted again counts as drift that was repaired.
        """

    def holding(self, fabric_id: str) -> Holding:
        """Who converges a fabric, and what was seen. ``NotFound``."""

    def note_drift(self, fabric_id: str, kind: Drift, detail: str) -> None:
        """Count what was found, once for each time that it was, and tell others."""

    def note_repaired(self, fabric_id: str, kind: Drift, detail: str) -> None:
        """Count that what was found is as recorded again, and tell others."""

    def drift(self, fabric_id: str) -> Mapping[Drift, int]:
        """How often drift was found, by kind."""

    def repaired(self, fabric_id: str) -> Mapping[Drift, int]:
        """How often it was repaired, by kind."""

    def routed(self, fabric_id: str) -> FabricState:
        """What the subnet manager should know now.

        Tenants are the allocations with claims that are not handed back. Its
        generation is the fabric's ``routes_generation``.
        """


@dataclass(frozen=True, slots=True)
class Handover:
    """One allocation as compute sees it: a project and the Nova names of its hosts."""

    allocation_id: str
    project_id: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """Compute as one look shows it.

    What is handed over, by allocation id; the hosts in the pool, none if the pool itself is
    open; and by host the aggregate of somebody else that lets projects in there.
    """

    handed_over: Mapping[str, Handover]
    pooled: frozenset[str]
    opened: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Occupant:
    """A server (or migration) that placement shows on a host."""

    host: str
    consumer: str
    project_id: str


class Compute(Protocol):
    """Makes hosts accept one project's servers only. Every verb is safe to repeat.

    Errors of all methods: ``Unavailable`` when Nova or placement did not answer or
    answered nonsense (the outcome is unknown); ``NotFound`` for a host it does not
    know; ``LimitExceeded``; ``Forbidden`` if the service's own user lacks a right;
    ``Conflict`` if others changed what is ours; ``HostsBusy`` where said.
    """

    def pool(self, hosts: Collection[str]) -> None:
        """Take hosts under management: a free host in the pool accepts nobody.

        ``HostsBusy`` names the hosts that run servers; no other host is left out.
        """

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """Everything that placement shows on these hosts."""

    def hand_over(self, handover: Handover) -> None:
        """Make the allocation's aggregate hold exactly these hosts for its project; verified.

        ``HostsBusy`` if another project's servers are on one of them.
        """

    def fence(self, allocation_id: str) -> None:
        """From now on the hosts of the allocation accept nobody new.

        Nothing happens if the allocation is not handed over.
        """

    def take_back(self, handover: Handover) -> None:
        """Dissolve the aggregate; returns when nothing of the allocation is left.

        It may not have been handed over, or only in part. ``HostsBusy`` if servers
        still run there.
        """

    def handed_over(self) -> Mapping[str, Handover]:
        """What is handed over now, by allocation id, as observed."""

    def observed(self) -> Observed:
        """All that one question shows, whatever the number of hosts; no server is looked for."""

    def server_limit(self, project_id: str) -> int | None:
        """How many servers the project may run; None if any number, or if nobody can tell."""


class Switches(Protocol):
    """Tells what switches run."""

    def applied(self, fabric: str) -> Applied:
        """The generation that is in the switches, by reading back and comparing."""


class SubnetManager(Switches, Protocol):
    """Makes switches route as recorded."""

    def publish(self, state: FabricState) -> None:
        """Make the files for this state current and have them read; safe to repeat.

        ``LimitExceeded``, ``Unavailable``, or ``Conflict`` if it would disturb a tenant
        that did not change; the files published before then stay.
        """


class Leases(Protocol):
    """Which worker converges which fabric; times are those of the database's clock alone.

    Errors of all methods: ``Unavailable``.
    """

    def enrol(self, owner: str, seconds: float) -> int:
        """``owner`` is there for ``seconds``; returns how many workers are, it included."""

    def withdraw(self, owner: str) -> None:
        """``owner`` is gone; safe to repeat."""

    def free(self) -> list[str]:
        """Ids of the fabrics that nobody holds, or whose lease has expired."""

    def take(self, fabric: str, owner: str, seconds: float) -> Lease | None:
        """Hold a fabric that is free for ``seconds``; its token has grown. None if it is not."""

    def renew(self, lease: Lease, seconds: float) -> None:
        """Hold it for ``seconds`` from now. ``LeaseLost`` if somebody has taken it."""

    def give_back(self, lease: Lease) -> None:
        """Others may take it at once; nothing happens if it was lost."""

    def give_up(self, lease: Lease) -> None:
        """As ``give_back``, and count that its holder was stuck."""


class Outbox(Protocol):
    """What others are still to be told, recorded together with what happened.

    Errors of all methods: ``Unavailable``.
    """

    def take(
        self, now: datetime, until: datetime, limit: int = 100
    ) -> Sequence[tuple[int, Notification]]:
        """The oldest ones, each with its number; nobody else takes any before ``until``.

        Empty also while somebody else has taken some.
        """

    def done(self, number: int) -> None:
        """It was told; safe to repeat."""

    def put_back(self, numbers: Collection[int]) -> None:
        """They were not told: whoever asks next may take them."""


class Publisher(Protocol):
    """Tells others."""

    def publish(self, notification: Notification) -> None:
        """Returns when the broker has confirmed that it has it, however long that takes.

        ``Unavailable`` if it will not have it.
        """
