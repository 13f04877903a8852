# SPDX-License-Identifier: Apache-2.0

"""Recorded allocations: reading, changes of state, deletion of what is over."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord, Confirmed, Event, SizeEvent
from laas_service.domain.errors import NotFound
from laas_service.messages import ConfirmedBy, Initiator, Span

Archive = Callable[[Sequence[Mapping[str, Any]]], None]
"""Keeps documents of allocations (JSON objects), durably."""


class Allocations(Protocol):
    """Allocations as recorded, and changes of their state.

    ``by`` is the initiator; None for the service itself. Methods that take a record raise
    ``ConcurrentUpdate`` if it is not the newest version. ``confirmed_by`` is what the
    withdrawal was confirmed by that the step waited for, ``confirmed`` the evidence of new routes;
    with None the recorded values stay.
    """

    def get(self, id: str) -> AllocationRecord:
        """One allocation with its newest events. ``NotFound``."""

    def newest(self, record: AllocationRecord) -> AllocationRecord:
        """The record with its newest events if its version has grown; else the same one."""

    def events(self, id: str, after: int, limit: int) -> tuple[int, list[Event]]:
        """Up to ``limit`` events of an allocation after the first ``after``, oldest first.

        The number of the first of them comes before them: events that were deleted are left out.
        """

    def page(
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

    def transition(
        self,
        record: AllocationRecord,
        to: State,
        reason: str,
        *,
        force: bool = False,
        error: str | None = None,
        by: Initiator | None = None,
        confirmed: Confirmed | None = None,
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
        self,
        record: AllocationRecord,
        name: str,
        *,
        unique: bool = False,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        """Give the allocation another name; ``unique`` as in ``AllocationRequest.unique_name``.

        ``NameTaken`` if another live allocation of the project has it.
        """

    def prioritize(
        self, record: AllocationRecord, priority: int, *, by: Initiator | None = None
    ) -> AllocationRecord:
        """Give a queued request another place in the queue (new generation).

        ``Conflict`` unless queued.
        """

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

    def postpone(
        self, id: str, until: datetime, error: str, *, seen: AllocationRecord | None = None
    ) -> None:
        """Record why the next step failed or waits and when to try again; the state stays.

        An error that differs from the last one goes into the history. With ``seen``, an allocation
        past the version of that record is left alone, because that step is over.
        """

    def forget(self, age: timedelta, limit: int, archive: Archive | None = None) -> int:
        """Delete up to ``limit`` allocations that were released at least ``age`` ago.

        Their histories and idempotency keys go with them; a container stays until nothing inside
        it is recorded. ``archive`` gets the documents of all of them before they are deleted.
        Returns their number. One transaction; of two concurrent calls, each row is counted once.
        """


def every_allocation(
    allocations: Allocations,
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
        return allocations.page(fabric=fabric, project_id=project_id, states=states, marker=marker)

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
