# SPDX-License-Identifier: Apache-2.0

"""Changes of an active allocation's placement, and plans of moves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from laas_service.app.plans import Announcement, KnownPlans, PlanQuestion, RecordedPlan
from laas_service.app.records import (
    NO_LIMITS,
    AllocationRecord,
    Confirmed,
    Limits,
    NewPlacement,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import Consent
from laas_service.domain.moves.mend import Joined
from laas_service.messages import Initiator

T = TypeVar("T")


class PlacementChanges(Protocol):
    """Changes of an active allocation's placement, and plans of such changes."""

    def begin(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], NewPlacement | T],
        *,
        by: Initiator | None = None,
        limits: Limits = NO_LIMITS,
    ) -> AllocationRecord | T:
        """Begin the change of placement that ``choose`` decides on the present state.

        One transaction: the new placement is claimed beside the old one, and becomes
        ``placed`` in phase ``PREPARE`` (new generation). ``choose`` is called as ``propose`` of
        ``Admissions.admit`` is; any answer but a ``NewPlacement`` comes back, and nothing changes.

        Raises:
            ConcurrentUpdate: the record is not the newest version.
            Conflict: it is not active, or a change is under way.
            DoubleClaim: the new placement is not free.
            QuotaExceeded: with it the project would have more hosts than its own quota, or
                ``limits``, allows. While the size changes, the larger one counts.
            LimitExceeded: it needs partition keys, and too few are free.
        """

    def mend(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Joined | T],
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord | T:
        """Begin to replace failed links of a change of hosts under way; its step stays.

        ``choose`` is called as for ``move``; any answer but ``Joined`` comes back, and nothing
        changes. The links are claimed beside the present ones (new generation), and ``proceed``
        takes the steps of ``lifecycle.Mending`` before the change goes on.

        Raises:
            ConcurrentUpdate: the record is not the newest version.
            Conflict: no change of hosts is under way, or its links are being replaced.
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

    def known_plans(self, question: PlanQuestion, project_id: str, key: str | None) -> KnownPlans:
        """What is recorded of a question, and of an idempotency key of a project.

        Raises:
            IdempotencyMismatch: the key was used for another question.
        """

    def record_plan(
        self,
        question: PlanQuestion,
        plan: RecordedPlan,
        known: KnownPlans,
        *,
        announce: Sequence[Announcement] = (),
        key: str | None = None,
        limits: Limits = NO_LIMITS,
        by: Initiator,
    ) -> Mapping[str, AllocationRecord]:
        """Record a plan with what it announces, in one transaction; the allocations told, by id.

        ``known`` is what was known when it was made: of plans of one fabric that were made at the
        same time, one is recorded. Nothing is claimed before a move begins. A move that is
        ``forced`` is not held to the quota of moves; ``limits`` are those of projects without one.

        Raises:
            ConcurrentUpdate: another plan of the fabric was recorded, or an allocation changed.
            Conflict: an allocation is not active, or changes already.
            QuotaExceeded: a tenant gets other hosts, and its project has had its moves.
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
        confirmed: Confirmed | None = None,
    ) -> AllocationRecord:
        """The next phase of a change of placement (new generation).

        After the last phase, what only the old placement held is freed and the change is over.
        While failed links are replaced, the next step of that.
        The phase before must be ``confirmed``.

        Raises:
            ConcurrentUpdate: the record is not the newest version.
            Conflict: it is not active, or no change is under way.
        """
