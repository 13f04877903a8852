# SPDX-License-Identifier: Apache-2.0

"""Plans of moves, and the announcements that they make: a part of changes of placement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, quotas
from laas_service.adapters.db.transactions import Transactions
from laas_service.adapters.documents import PLAN, allocation_document
from laas_service.app.lifecycle import check_changeable
from laas_service.app.plans import Announcement, KnownPlans, PlanQuestion, RecordedPlan
from laas_service.app.records import NO_LIMITS, AllocationRecord, Limits
from laas_service.domain.errors import ConcurrentUpdate, IdempotencyMismatch
from laas_service.messages import Initiator

KEPT = timedelta(days=7)
"""How long a plan is remembered, and an idempotency key with it."""


@dataclass
class StoredPlans:
    """The part of ``app.ports.placement_changes.PlacementChanges`` for plans."""

    transactions: Transactions

    def known_plans(self, question: PlanQuestion, project_id: str, key: str | None) -> KnownPlans:
        table, digest = models.MovePlan, question.digest
        newest = (
            select(table)
            .where(table.fabric == question.fabric, table.question == digest)
            .order_by(table.serial.desc())
            .limit(1)
        )
        with self.transactions.reading() as session:
            serial = _serial(session, question.fabric)
            last, keyed = session.scalar(newest), None
            if key is not None:
                query = select(table).where(table.project_id == project_id, table.key == key)
                keyed = session.scalar(query)
        if keyed is not None and keyed.question != digest:
            raise IdempotencyMismatch(
                f"Idempotency-Key {key!r} was used for another request; use a new key"
            )
        return KnownPlans(serial, _plan(last), _plan(keyed))

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
        for announcement in announce:
            check_changeable(announcement.record)
        table = models.MovePlan
        row = {
            "fabric": question.fabric,
            "serial": known.serial + 1,
            "question": question.digest,
            "document": PLAN.write(plan),
            "project_id": by.project_id,
            "key": key,
            "at": self.transactions.now(),
        }
        with self.transactions.writing("plan") as session:
            if announce:
                quotas.lock_all(session)
            if _serial(session, question.fabric) != known.serial:
                raise ConcurrentUpdate(f"other moves of fabric {question.fabric!r} were planned")
            try:
                session.execute(insert(table).values(row))
            except DBDuplicateEntry:
                text = f"other moves of fabric {question.fabric!r} were planned"
                raise ConcurrentUpdate(text) from None
            told = [self._announce(session, each, limits, by) for each in announce]
            past = table.at <= self.transactions.now() - KEPT
            replaced = (table.question == question.digest) & table.key.is_(None)
            before = (table.fabric == question.fabric) & (table.serial <= known.serial)
            session.execute(delete(table).where(before, or_(past, replaced)))
        return {record.id: record for record in told}

    def _announce(
        self, session: Session, announcement: Announcement, limits: Limits, by: Initiator
    ) -> AllocationRecord:
        """The record with the announcement."""
        record = announcement.record
        if not announcement.forced:
            quotas.check_move(session, record, announcement.to, limits, self.transactions.now())
        columns: dict[str, Any] = {
            "announced": allocation_document(announcement.to),
            "moves_at": announcement.begins,
            "move_forced": announcement.forced,
        }
        return self.transactions.update(
            session, record, record.state, announcement.reason, by, **columns
        )


def _serial(session: Session, fabric: str) -> int:
    """The number of the last plan of a fabric; 0 before the first."""
    table = models.MovePlan
    return session.scalar(select(func.max(table.serial)).where(table.fabric == fabric)) or 0


def _plan(row: models.MovePlan | None) -> RecordedPlan | None:
    return None if row is None else PLAN.read(row.document)
