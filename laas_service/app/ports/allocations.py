# SPDX-License-Identifier: Apache-2.0

"""Recorded allocations: reading, quotas, admission, transitions, changes of placement."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from laas_service.app.lifecycle import State
from laas_service.app.records import (
    NO_LIMITS,
    AllocationRecord,
    Enclosing,
    Event,
    Limits,
    Move,
    QueueRoom,
    SizeEvent,
    Usage,
    Wait,
)
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.errors import NotFound
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import Consent
from laas_service.messages import ConfirmedBy, Initiator, Span

T = TypeVar("T")


class AllocationReader(Protocol):
    """Allocations as recorded."""

    def allocation(self, id: str) -> AllocationRecord:
        """One allocation with its newest events. ``NotFound``."""

    def enclosing(self, id: str) -> Enclosing:
        """What those inside an allocation need to know of it; reads no placement. ``NotFound``."""

    def events(self, id: str, after: int, limit: int) -> tuple[int, list[Event]]:
        """Up to ``limit`` events of an allocation after the first ``after``, oldest first.

        The number of the first of them comes before them: events that were deleted are left out.
        """

    def allocations(
        self,
        *,
        fabric: str | None = None,
        project_id: str | None = None,
        states: Collection[State] = (),
        limit: int = 1000,
        marker: str | None = None,
    ) -> list[AllocationRecord]:
        """Up to ``limit`` allocations in order of creation after ``marker`` (an id), without
        history."""

    def size_events(self, fabric: str, project_id: str | None, limit: int) -> list[SizeEvent]:
        """The newest ``limit`` events after which hosts may have gained or lost an owner, oldest
        first; with ``project_id`` those of the project alone.

        Allocations inside a container count with the container. They are left out, unless
        ``project_id`` does not own the container.
        """

    def due(
        self,
        now: datetime,
        *,
        longest: timedelta = ...,
        faulty: bool = False,
        fabric: str | None = None,
    ) -> list[str]:
        """Ids of allocations that have a step to do and whose next try is not after ``now``.

        A next try that is later than ``longest`` from now is due, too: the clock was set back.

        With ``faulty`` also active ones that hold a failed link; with ``fabric`` only those of
        that fabric.
        """


def every_allocation(
    store: AllocationReader,
    *,
    fabric: str | None = None,
    project_id: str | None = None,
    states: Collection[State] = (),
) -> Iterator[AllocationRecord]:
    """All of them in order of creation, read a page at a time.

    A failover may undo the allocation that ended a page; reading goes on after the one before it.
    """
    read: list[str] = []

    def next_page() -> list[AllocationRecord]:
        marker = read[-1] if read else None
        return store.allocations(fabric=fabric, project_id=project_id, states=states, marker=marker)

    while True:
        try:
            page = next_page()
        except NotFound:
            if not read:
                raise
            read.pop()
            continue
        if not page:
            return
        yield from page
        read.extend(record.id for record in page)


class Admissions(Protocol):
    """Admission of new and queued requests, within quotas."""

    def answered(
        self,
        project_id: str,
        asked: AllocationRequest,
        completed: Callable[[], AllocationRequest],
    ) -> AllocationRecord | None:
        """The allocation of an earlier request of the project with the same key; None if new.

        ``asked`` is the request as the caller made it. ``completed`` fills in the defaults; it is
        called only if the first request had other fields.

        Raises:
            IdempotencyMismatch: the key was used for another request, or ``completed`` refuses
                these fields today.
            Unavailable: ``completed`` cannot tell now.
        """

    def admit(
        self, request: AllocationRequest, propose: Callable[[Ledger], Allocation | NoFit | Wait]
    ) -> AllocationRecord | NoFit:
        """Propose on the present state, claim, and record as ``allocating``: one transaction.

        ``propose`` gets a ledger of its own and may claim on it. What it reads from the store
        must be as fresh as that ledger, or the race is lost. A lost race is retried inside, so
        ``propose`` may be called several times. For ``Wait`` the request is recorded as
        ``queued``, without claims (new generation).

        If the project has used the idempotency key before, the record of the first answer comes
        back and ``propose`` is not called.

        Raises:
            NotFound, Conflict: its parent is no container, or is being released.
            IdempotencyMismatch: the key was used for another request.
            QuotaExceeded: the project would have more than its own quota, or ``request.limits``.
                Counted in the same transaction: of two concurrent requests, even for different
                fabrics, only one gets what is left.
        """

    def admit_waiting(
        self, fabric_id: str, choose: Callable[[Ledger], Sequence[Allocation]]
    ) -> list[AllocationRecord]:
        """Claim for queued requests the allocations that ``choose`` returns: one transaction.

        The id of an allocation is that of its request; the records come back as ``allocating``.
        ``choose`` is called as ``propose`` of ``admit`` is.
        """


class QuotaReader(Protocol):
    """Quotas of projects and their use."""

    def usage(self, project_id: str, limits: Limits) -> Usage:
        """What a project may have, by its own quota or else by ``limits``, and what it has."""

    def within_limits(self, request: AllocationRequest) -> None:
        """Return if the project would stay within its quota now, else ``QuotaExceeded``."""

    def may_grow(self, project_id: str, more: int, limits: Limits) -> None:
        """Return if the project may have so many hosts more now, else ``QuotaExceeded``."""

    def may_have_slots(self, project_id: str, more: int, limits: Limits) -> None:
        """Return if the project may have so many slots more now, else ``QuotaExceeded``."""

    def moves_left(self, project_ids: Collection[str], limits: Limits) -> Mapping[str, int]:
        """How many moves to other hosts each of the projects may still have now.

        Those that are announced, or began within ``MOVES_PERIOD``, count. Projects without a
        limit are left out.
        """


class Transitions(Protocol):
    """Changes of an allocation's state. ``by`` is the initiator; None for the service itself.

    Every method raises ``ConcurrentUpdate`` if the record is not the newest version.
    ``confirmed_by`` is what the routes were confirmed by that the step waited for; with None
    the recorded value stays.
    """

    def transition(
        self,
        record: AllocationRecord,
        to: State,
        reason: str,
        *,
        force: bool = False,
        error: str | None = None,
        by: Initiator | None = None,
        confirmed_by: ConfirmedBy | None = None,
        seconds: Mapping[Span, float] = ...,
    ) -> AllocationRecord:
        """Record a new state (or the same again) and its reason; clears the next try.

        ``seconds`` is where the time since the last entry of its history went. An allocation that
        becomes active for the first time, and all its seconds, are counted for its fabric.

        For state ``error``, ``error`` is the problem, and the state before is kept as ``parked``.

        ``Conflict`` if the state cannot follow (``lifecycle.SUCCESSORS``; ``released`` is reached
        by ``free`` and ``cancel``), or if a container is to be released that allocations are
        inside or wait for.
        """

    def note_limits(
        self, record: AllocationRecord, by: str | None, reason: str
    ) -> AllocationRecord:
        """Record what limits what its servers send; None: nothing does."""

    def cancel(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        """A queued request becomes ``released`` (new generation). ``Conflict`` unless queued."""

    def rename(
        self, record: AllocationRecord, name: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        """Give the allocation another name."""

    def hand_back(
        self,
        record: AllocationRecord,
        reason: str = "",
        *,
        seconds: Mapping[Span, float] = ...,
    ) -> AllocationRecord:
        """Record that the tenant's routes must be withdrawn now (new generation), and why.

        Called once the hosts are taken back from Nova, or at once if the release is forced.
        """

    def free(
        self,
        record: AllocationRecord,
        reason: str,
        *,
        confirmed_by: ConfirmedBy | None = None,
        seconds: Mapping[Span, float] = ...,
    ) -> AllocationRecord:
        """Free the claims and become ``released`` (new generation).

        ``Conflict`` unless it is releasing and handed back.
        """

    def requeue(
        self, record: AllocationRecord, reason: str, *, confirmed_by: ConfirmedBy | None = None
    ) -> AllocationRecord:
        """Free the claims and become ``queued`` (new generation), in its old place in the queue.

        ``Conflict`` unless it is allocating and handed back.
        """

    def postpone(self, id: str, until: datetime, error: str, *, version: int | None = None) -> None:
        """Record why the next step failed or waits and when to try again; the state stays.

        An error that differs from the last one goes into the history. With ``version``, a record
        past that version is left alone, because that step is over.
        """


Archive = Callable[[Sequence[Mapping[str, Any]]], None]
"""Keeps documents of allocations (JSON objects), durably."""


@dataclass(frozen=True, slots=True)
class Told:
    """An allocation, and the reason that goes into its history."""

    record: AllocationRecord
    reason: str


class QueueRooms(Protocol):
    """Plans that make room for the heads of queues, one a fabric."""

    def queue_room(self, fabric_id: str) -> QueueRoom | None:
        """The last plan of a fabric; None if there never was one."""

    def record_room(
        self,
        room: QueueRoom,
        *,
        announce: Told | None = None,
        call_off: Told | None = None,
        tell: Told | None = None,
        limits: Limits = NO_LIMITS,
    ) -> QueueRoom:
        """Record a plan in place of the version that it was read with: one transaction.

        With it the next of its moves (``made``) is announced, an announced move called off, and a
        reason told to the head. The fabric gets a new generation. ``limits`` are those of projects
        without a quota.

        Raises:
            ConcurrentUpdate: the plan or an allocation is past its version.
            Conflict: the allocation to be moved is not active, or changes already.
            QuotaExceeded: its project has had its moves.
        """


class Retention(Protocol):
    """Deletion of what is over."""

    def forget(self, age: timedelta, limit: int, archive: Archive | None = None) -> int:
        """Delete up to ``limit`` allocations that were released at least ``age`` ago.

        Their histories and idempotency keys go with them; a container stays until nothing inside
        it is recorded. ``archive`` gets the documents of all of them before they are deleted.
        Returns their number. One transaction; of two concurrent calls, each row is counted once.
        """


class PlacementChanges(Protocol):
    """Changes of an active allocation's placement."""

    def move(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Move | T],
        *,
        by: Initiator | None = None,
        limits: Limits = NO_LIMITS,
    ) -> AllocationRecord | T:
        """Begin the change of placement that ``choose`` decides on the present state.

        One transaction: the new placement is claimed beside the old one, and becomes
        ``placed`` in phase ``PREPARE`` (new generation). ``choose`` is called as ``propose`` of
        ``Admissions.admit`` is; an answer that is no ``Move`` comes back and nothing is changed.

        Raises:
            ConcurrentUpdate: the record is not the newest version.
            Conflict: it is not active, or a change is under way.
            DoubleClaim: the new placement is not free.
            QuotaExceeded: with it the project would have more hosts than its own quota, or
                ``limits``, allows. While the size changes, the larger one counts.
            LimitExceeded: it needs partition keys, and too few are free.
        """

    def turn_back(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        """From the present phase of a change of placement, go back to the old one.

        ``lifecycle.Change.way_back`` (new generation).

        Raises:
            ConcurrentUpdate: the record is not the newest version.
            Conflict: it is not active, no change is under way, or the old placement is being
                withdrawn.
        """

    def announce(
        self,
        record: AllocationRecord,
        to: Allocation,
        begins: datetime,
        reason: str,
        *,
        forced: bool = False,
        limits: Limits = NO_LIMITS,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        """Record and tell that the allocation moves to ``to`` at ``begins`` or later.

        Nothing is claimed for it before it begins. If it is ``forced``, ``consent`` does not
        call it off, and it is not held to the quota of moves; ``limits`` are those of projects
        without a quota.

        Raises:
            ConcurrentUpdate: the record is not the newest version.
            Conflict: it is not active, or a change is under way.
            QuotaExceeded: it gets other hosts, and its project has had its moves.
        """

    def drop_announcement(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        """The move that was announced does not take place. ``ConcurrentUpdate``."""

    def consent(
        self,
        record: AllocationRecord,
        consent: Consent,
        reason: str,
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        """Record the owner's consent to moves; without it no announcement stays.

        Raises: ConcurrentUpdate.
        """

    def proceed(
        self,
        record: AllocationRecord,
        reason: str,
        *,
        confirmed_by: ConfirmedBy | None = None,
    ) -> AllocationRecord:
        """The next phase of a change of placement (new generation).

        After the last phase, what only the old placement held is freed and the change is over.
        The phase before must be confirmed, by ``confirmed_by``.

        Raises:
            ConcurrentUpdate: the record is not the newest version.
            Conflict: it is not active, or no change is under way.
        """
