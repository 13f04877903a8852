# SPDX-License-Identifier: Apache-2.0

"""Transactions, generations, records and their histories: what all parts of the store share."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import leases, models, outbox
from laas_service.adapters.db.engine import WRITES, rows_changed, translated
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.turns import Turns
from laas_service.app import notifications
from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord, Drift, Event, FabricRecord, Lease
from laas_service.domain.errors import ConcurrentUpdate, NotFound
from laas_service.domain.ledger import LedgerView
from laas_service.messages import Initiator

KEEP_DELTAS = 10_000
"""Deltas that are kept; a process that lags further behind reads the whole fabric again."""

FEW = 500
"""Hosts or links in one statement."""

STEP_DONE: dict[str, Any] = {"error": None, "failures": 0, "due_at": None}
"""Columns of an allocation whose last step is done: nothing failed, the next is due now."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def nowhere(step: str) -> None:
    """The default hook, which does nothing."""


class Transactions:
    """One database with its cache of ledgers; safe to share between threads.

    ``at`` is called with a step's name around every commit, and after every lost race (for fault
    injection). With ``announce``, notifications are put into the outbox.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        now: Callable[[], datetime] = utc_now,
        at: Callable[[str], None] = nowhere,
        keep_deltas: int = KEEP_DELTAS,
        announce: bool = False,
    ) -> None:
        self._engine = engine
        self._now = now
        self._at = at
        self._keep_deltas = keep_deltas
        self._announces = announce
        self._ledgers = LedgerCache()
        self._turns = Turns(engine)
        self._lease: Lease | None = None

    def under(self, lease: Lease) -> Self:
        """See ``app.worker.fabric_leases.LeasedStore.under``; the cache is shared."""
        held = copy.copy(self)
        held._lease = lease
        return held

    # -- transactions ---------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with translated(), Session(self._engine) as session:
            yield session

    @contextmanager
    def _writing(self, step: str) -> Iterator[Session]:
        """A transaction that commits at the end, and rolls back on an exception.

        Under a lease, it raises ``LeaseLost`` if another worker has taken it.
        """
        with translated(), Session(self._engine) as session:
            session.connection(execution_options={WRITES: True})
            if self._lease is not None:
                leases.guard(session, self._lease)
            yield session
            session.flush()
            self._at(f"before commit: {step}")
            session.commit()
        self._at(f"after commit: {step}")

    def _advance(
        self, session: Session, fabric_id: str, change: dict[str, Any], *, routes: bool = False
    ) -> int:
        """Move the fabric on to its next generation (returned), and record the delta.

        With ``routes`` the subnet manager has to be told.
        """
        table = models.Fabric
        session.execute(
            update(table).where(table.id == fabric_id).values(generation=table.generation + 1)
        )
        generation = session.scalars(select(table.generation).where(table.id == fabric_id)).one()
        if routes:
            session.execute(
                update(table).where(table.id == fabric_id).values(routes_generation=generation)
            )
        delta = models.Delta
        session.execute(
            insert(delta).values(fabric=fabric_id, generation=generation, change=change)
        )
        session.execute(
            delete(delta).where(
                delta.fabric == fabric_id, delta.generation <= generation - self._keep_deltas
            )
        )
        return generation

    # -- fabrics --------------------------------------------------------------

    def fabric(self, id: str) -> FabricRecord:
        with self._reading() as session:
            return self._ledgers.record(session, id)

    def fabrics(self) -> list[FabricRecord]:
        with self._reading() as session:
            ids = session.scalars(select(models.Fabric.id)).all()
            return [self._ledgers.record(session, id) for id in sorted(ids)]

    def ledger(self, fabric_id: str) -> tuple[LedgerView, int]:
        with self._reading() as session:
            return self._ledgers.caught_up(session, fabric_id)

    # -- allocations and their histories --------------------------------------

    def _sequence(self, session: Session, id: str) -> int:
        table = models.Allocation
        sequence = session.scalar(select(table.sequence).where(table.id == id))
        if sequence is None:
            raise NotFound("allocation", id)
        return sequence

    def _record(self, session: Session, id: str) -> AllocationRecord:
        table, event = models.Allocation, models.Event
        row = session.scalar(select(table).where(table.id == id))
        if row is None:
            raise NotFound("allocation", id)
        events = session.scalars(select(event).where(event.allocation == id).order_by(event.id))
        return row.record(tuple(map(_as_event, events)))

    def _record_event(
        self, session: Session, id: str, state: State, reason: str, by: Initiator | None = None
    ) -> None:
        """Append an event to the history, and notify."""
        initiator = {} if by is None else asdict(by)
        session.execute(
            insert(models.Event).values(
                allocation=id, at=self._now(), state=state.value, reason=reason, **initiator
            )
        )
        if self._announces:
            record = self._record(session, id)
            outbox.put(session, notifications.allocation_changed(new_id(), record))

    def _announce(
        self, session: Session, fabric_id: str, event: str, detail: str, kind: Drift | None = None
    ) -> None:
        """Notify of an event of a fabric."""
        if self._announces:
            notification = notifications.fabric_changed(
                new_id(), fabric_id, event, detail, drift=kind, at=self._now()
            )
            outbox.put(session, notification)

    def _update(
        self,
        session: Session,
        record: AllocationRecord,
        state: State,
        reason: str,
        by: Initiator | None = None,
        **values: Any,
    ) -> AllocationRecord:
        """Update the row of a record, and append an event to its history; the new record.

        Raises:
            NotFound: there is no such allocation.
            ConcurrentUpdate: it is past the record's version.
        """
        table = models.Allocation
        values |= {"state": state.value, "version": record.version + 1, "updated_at": self._now()}
        step = update(table).where(table.id == record.id, table.version == record.version)
        if rows_changed(session, step.values(**values)) == 0:
            self._sequence(session, record.id)
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        self._record_event(session, record.id, state, reason, by)
        return self._record(session, record.id)


def locked_generation(session: Session, fabric_id: str) -> int:
    """The fabric's generation; it cannot move on before this transaction ends."""
    table = models.Fabric
    query = select(table.generation).where(table.id == fabric_id).with_for_update()
    return session.scalars(query).one()


def batches(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """``FEW`` at a time: databases bound the parameters of a statement."""
    for first in range(0, len(numbers), FEW):
        yield numbers[first : first + FEW]


def new_id() -> str:
    return str(uuid.uuid4())


def _as_event(row: models.Event) -> Event:
    by = None
    if row.request_id is not None:
        by = Initiator(row.request_id, row.user_id or "", row.project_id or "")
    return Event(row.at, State(row.state), row.reason, by)
