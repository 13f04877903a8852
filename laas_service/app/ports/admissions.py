# SPDX-License-Identifier: Apache-2.0

"""Admission of new and queued requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from laas_service.app.ports.snapshots import Draft, Snapshot
from laas_service.app.records import NO_LIMITS, AllocationRecord, Limits, QueueRoom, QueueWait
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.ledger import Ledger


@dataclass(frozen=True, slots=True)
class WithReason:
    """An allocation, and the reason that goes into its history."""

    record: AllocationRecord
    reason: str


class Admissions(Protocol):
    """Admission of new and queued requests, within quotas, and the room made for a queue."""

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
        self,
        request: AllocationRequest,
        propose: Callable[[Draft], Allocation | NoFit | QueueWait],
        snapshot: Snapshot | None = None,
    ) -> AllocationRecord | NoFit:
        """Propose on the present state, claim, and record as ``allocating``: one transaction.

        ``propose`` gets a ledger of its own and may claim on it. The first one is that of the
        ``snapshot``, unless this process knows a newer one, or the project has a quota. A lost
        race is retried inside, so ``propose`` may be called several times. For ``QueueWait`` the
        request is recorded as ``queued``, without claims (new generation).

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

    def room(self, fabric_id: str) -> QueueRoom | None:
        """The last plan that makes room for the fabric's queue; None if there never was one."""

    def record_room(
        self,
        room: QueueRoom,
        *,
        announce: WithReason | None = None,
        call_off: WithReason | None = None,
        tell: WithReason | None = None,
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
