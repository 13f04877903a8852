# SPDX-License-Identifier: Apache-2.0

"""What a worker reads of a fabric for one round, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.allocation_rows import record_of
from laas_service.adapters.db.allocations import due_rows
from laas_service.adapters.db.faults import read_observation
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.transactions import Transactions, as_event, batches
from laas_service.app.records import AllocationRecord, Recorded


@dataclass
class Rounds:
    """See ``app.ports.store.Store.round``."""

    transactions: Transactions
    ledgers: LedgerCache

    def read(self, fabric_id: str, now: datetime, *, longest: timedelta, faulty: bool) -> Recorded:
        with self.transactions.reading_one_state() as session:
            fabric = self.ledgers.record(session, fabric_id)
            rows = due_rows(session, now, longest=longest, faulty=faulty, fabric=fabric_id)
            return Recorded(fabric, read_observation(session, fabric), _records(session, rows))


def _records(session: Session, rows: Sequence[Row[Any]]) -> tuple[AllocationRecord, ...]:
    """The records of rows, with the users who asked last."""
    event, asked = models.EventRow, {}
    numbers = [row.id for row in rows]
    for ids in batches(numbers):
        last = (
            select(func.max(event.id))
            .where(event.allocation.in_(ids), event.request_id.is_not(None))
            .group_by(event.allocation)
        )
        for found in session.scalars(select(event).where(event.id.in_(last))):
            asked[found.allocation] = as_event(found).by
    return tuple(
        replace(record_of(row), asked_before=asked.get(row.id) or row.asked_by) for row in rows
    )
