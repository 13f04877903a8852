# SPDX-License-Identifier: Apache-2.0

"""Plans that make room for the heads of queues."""

from dataclasses import dataclass
from typing import Protocol

from laas_service.app.records import NO_LIMITS, AllocationRecord, Limits, QueueRoom


@dataclass(frozen=True, slots=True)
class Told:
    """An allocation, and the reason that goes into its history."""

    record: AllocationRecord
    reason: str


class QueueRooms(Protocol):
    """Plans that make room for the heads of queues, one a fabric."""

    def get(self, fabric_id: str) -> QueueRoom | None:
        """The last plan of a fabric; None if there never was one."""

    def record(
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
