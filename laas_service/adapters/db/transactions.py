# SPDX-License-Identifier: Apache-2.0

"""Transactions, generations, records and their histories, which all parts of the store use."""

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol, Self, TypeVar, cast

from sqlalchemy import (
    Engine,
    Integer,
    Row,
    String,
    Table,
    Update,
    bindparam,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.orm import Session

from laas_service.adapters.db import allocation_rows, leases, models, outbox, unique_names
from laas_service.adapters.db.engine import (
    consistent_read,
    insert_rows,
    rows_changed,
    translated,
    write_transaction,
)
from laas_service.adapters.db.generations import new_stamp, stored
from laas_service.adapters.documents import sharing_from
from laas_service.app import notifications
from laas_service.app.lifecycle import LIVE, State
from laas_service.app.records import (
    NEWEST,
    AllocationRecord,
    Confirmed,
    Drift,
    Enclosing,
    Event,
    Lease,
)
from laas_service.domain.allocation import Allocation, HeldSlots
from laas_service.domain.errors import ConcurrentUpdate, NotFound
from laas_service.messages import ConfirmedBy, Initiator, Notification, Span, seconds_by_span

T = TypeVar("T")

KEEP_DELTAS = 10_000
"""Deltas that are kept, and up to a hundredth more; a process that lags further behind reads the
whole fabric again."""

KEEP_EVENTS = 1000
"""Events that the history of an allocation keeps; the oldest are deleted."""

SURPLUS = 100
"""Events beyond ``KEEP_EVENTS`` that are deleted together."""

COMMITTED = "laas_committed"
"""Key of a session's ``info``: it reads what is committed, and writes nothing."""

ONE_STATE = "laas_one_state"
"""Key of a session's ``info``: all its statements read the same state of the database."""

STAMP = "laas_stamp"
"""Key of a session's ``info``: the stamp of the generation that its transaction made last."""

AHEAD = "laas_ahead"
"""Key of a session's ``info``: generations with stamps that its transaction has made ahead."""

FEW = 500
"""Hosts or links in one statement."""

NOT_MEASURED: Mapping[Span, float] = {}


def _advancing(routes: bool) -> Update:
    """Moves a fabric on; ``routes`` as in ``Transactions.advance``."""
    table = models.FabricRow
    following = table.generation + bindparam("by", type_=Integer)
    identity = stored(following, bindparam("new_stamp", type_=String))
    # The generation last: MariaDB assigns in order, and would read the new one.
    values = [(table.stamp, identity), (table.generation, following)]
    if routes:
        values = [(table.routes_stamp, identity), (table.routes_generation, following), *values]
    of_fabric = update(cast("Table", table.__table__)).where(table.id == bindparam("fabric_id"))
    return of_fabric.ordered_values(*values)


_ADVANCE = {routes: _advancing(routes) for routes in (False, True)}


@cache
def _update(columns: frozenset[str]) -> Update:
    """Sets these columns of an allocation, if it has a known version."""
    table = models.AllocationRow
    row = (table.id == bindparam("known_id"), table.version == bindparam("known_version"))
    step = update(cast("Table", table.__table__)).where(*row)
    return step.values({column: bindparam(column) for column in columns})


_COUNTED = models.FabricRow.__table__.c.generation
_GENERATION = select(models.FabricRow.generation).where(models.FabricRow.id == bindparam("id"))
_RECORD = allocation_rows.ALLOCATIONS.where(models.AllocationRow.id == bindparam("id"))
_NEWER = _RECORD.where(models.AllocationRow.version != bindparam("version"))
_ENCLOSING = allocation_rows.with_parts(
    select(
        models.AllocationRow.id,
        models.AllocationRow.fabric,
        models.AllocationRow.project_id,
        models.AllocationRow.state,
        models.AllocationRow.generation,
        models.AllocationRow.kind,
        models.SharedHostsPart.sharing,
    ).select_from(models.AllocationRow),
    models.SharedHostsPart,
).where(models.AllocationRow.id.in_(bindparam("ids", expanding=True)))
_SEQUENCE = select(models.AllocationRow.sequence).where(models.AllocationRow.id == bindparam("id"))
_NEWEST = (
    select(models.EventRow)
    .where(models.EventRow.allocation == bindparam("id"))
    .order_by(models.EventRow.id.desc())
    .limit(NEWEST)
)

STEP_DONE: dict[str, Any] = {"error": None, "failures": 0, "due_at": None}
"""Columns of an allocation whose last step is done: nothing failed, the next is due now."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def nowhere(step: str) -> None:
    """The default hook, which does nothing."""


class SlotRows(Protocol):
    """Writes the rows of slots and of what links promise; the fabric's row is locked meanwhile.

    ``part`` is the allocation whose hosts are shared.
    """

    def take(
        self, session: Session, fabric_id: str, part: Allocation, claimed: Allocation, /
    ) -> None:
        """Record the slots and promises of an allocation that had none."""

    def exchange(
        self,
        session: Session,
        fabric_id: str,
        part: Allocation,
        held: HeldSlots,
        claimed: Allocation,
        /,
    ) -> None:
        """Record other slots and promises of an allocation in place of those that are ``held``."""

    def give_up(self, session: Session, part: str, id: str, /) -> None:
        """Take back all slots and promises of an allocation inside ``part``, given by its id."""

    def close(self, session: Session, part: str, /) -> None:
        """Forget the slots and links of an allocation whose hosts nobody shares any more."""


class Transactions:
    """The transactions of one database, and what they do alike; safe to share between threads.

    ``at`` is called with a step's name around every commit, and after every lost race (for fault
    injection). With ``announce``, notifications are put into the outbox. New tenants get one of
    ``pkeys``. An allocation keeps its newest ``keep_events`` events, and ``SURPLUS`` more at most.
    ``slot_rows`` writes what only shared hosts have.
    """

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], datetime],
        at: Callable[[str], None],
        keep_deltas: int,
        announce: bool,
        pkeys: range,
        keep_events: int,
        slot_rows: SlotRows,
    ) -> None:
        self._engine = engine
        self._reader = engine
        if engine.dialect.name == "postgresql":  # spares the server two statements each time
            self._reader = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._keep_deltas = keep_deltas
        self._keep_events = keep_events
        self._announces = announce
        self._lease: Lease | None = None
        self.now = now
        self.at = at
        self.pkeys = pkeys
        self.slot_rows = slot_rows

    def under(self, lease: Lease) -> Self:
        """These transactions for the holder of a lease; see ``writing``."""
        held = copy.copy(self)
        held._lease = lease
        return held

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Statements that read; on PostgreSQL each sees what is committed when it begins."""
        with translated(), Session(self._reader, info={COMMITTED: True}) as session:
            yield session

    @contextmanager
    def reading_one_state(self) -> Iterator[Session]:
        """A transaction whose statements all read the same state of the database."""
        info = {COMMITTED: True, ONE_STATE: True}
        with consistent_read(self._engine) as connection, Session(connection, info=info) as session:
            yield session

    @contextmanager
    def writing(self, step: str) -> Iterator[Session]:
        """A transaction that commits at the end, and rolls back on an exception.

        Under a lease, it raises ``LeaseLost`` if another worker has taken it.
        """
        with write_transaction(self._engine) as session:
            if self._lease is not None:
                leases.guard(session, self._lease)
            yield session
            session.flush()
            self.at(f"before commit: {step}")
        self.at(f"after commit: {step}")

    def advance(
        self, session: Session, fabric_id: str, change: dict[str, Any], *, routes: bool = False
    ) -> int:
        """Move the fabric on to its next generation (returned), and record the delta.

        Its stamp is put into ``session.info[STAMP]``. With ``routes`` the subnet manager has to be
        told.
        """
        ahead: list[tuple[int, str]] = session.info.get(AHEAD, [])
        generation, stamp = ahead.pop(0) if ahead else self._moved(session, fabric_id, 1, routes)[0]
        delta = {"generation": generation, "change": change, "stamp": stamp}
        insert_rows(session, models.DeltaRow, {"fabric": fabric_id, **delta})
        session.info[STAMP] = stamp
        if generation % (1 + self._keep_deltas // 100) == 0:
            table = models.DeltaRow
            forgotten = table.generation <= generation - self._keep_deltas
            session.execute(delete(table).where(table.fabric == fabric_id, forgotten))
        return generation

    def advance_ahead(self, session: Session, fabric_id: str, count: int) -> None:
        """Move the fabric on for the next ``count`` calls of ``advance``, all with ``routes``."""
        session.info[AHEAD] = self._moved(session, fabric_id, count, routes=True)

    def _moved(
        self, session: Session, fabric_id: str, by: int, routes: bool
    ) -> list[tuple[int, str]]:
        """Move the fabric on by so many generations; returns each with its stamp, ascending."""
        stamps = [new_stamp() for _ in range(by)]
        step, values = _ADVANCE[routes], {"fabric_id": fabric_id, "new_stamp": stamps[-1], "by": by}
        if self._engine.dialect.update_returning:
            last: int = session.scalars(step.returning(_COUNTED), values).one()
        else:
            session.execute(step, values)
            last = session.scalars(_GENERATION, {"id": fabric_id}).one()
        return list(zip(range(last - by + 1, last + 1), stamps, strict=True))

    def notify(self, session: Session, make: Callable[[str], Notification]) -> None:
        """Put a notification into the outbox; ``make`` makes it with a new id."""
        if self._announces:
            outbox.put(session, make(str(uuid.uuid4())))

    def announce(
        self,
        session: Session,
        fabric_id: str,
        event: str,
        detail: str,
        kind: Drift | None = None,
        confirmed_by: ConfirmedBy | None = None,
    ) -> None:
        """Notify of an event of a fabric."""
        self.notify(
            session,
            lambda id: notifications.fabric_changed(
                id,
                fabric_id,
                event,
                detail,
                drift=kind,
                confirmed_by=confirmed_by,
                at=self.now(),
            ),
        )

    # -- allocations and their histories --------------------------------------

    def record_event(
        self,
        session: Session,
        id: str,
        state: State,
        reason: str,
        by: Initiator | None = None,
        seconds: Mapping[Span, float] = NOT_MEASURED,
        new: Mapping[str, Any] | None = None,
        changed: AllocationRecord | None = None,
    ) -> AllocationRecord:
        """Append an event to the history, and notify; returns the record with it.

        ``seconds`` is where the time since the event before went. ``new`` are the columns of
        an allocation that has no other event. ``changed`` is the record with the history before
        this event; without either, both are read.
        """
        initiator = {} if by is None else asdict(by)
        event = {
            "allocation": id,
            "at": self.now(),
            "state": state.value,
            "reason": reason,
            "seconds": seconds_document(seconds),
        }
        insert_rows(session, models.EventRow, {**event, **initiator})
        if new is not None:
            history = (as_event(models.EventRow(**event, **initiator)),)
            record = allocation_rows.new_record(new, history)
        elif changed is not None:
            record = changed.with_event(as_event(models.EventRow(**event, **initiator)))
            record = self._forget_events(session, record)
        else:
            record = self._forget_events(session, read_record(session, id))
        self.notify(session, lambda id: notifications.allocation_changed(id, record))
        return record

    def _forget_events(self, session: Session, record: AllocationRecord) -> AllocationRecord:
        """Delete the oldest ``SURPLUS`` events of an allocation, if it has so many too many.

        Returns the record without them.
        """
        event = models.EventRow
        if record.kept_events < self._keep_events + SURPLUS:
            return record
        oldest = select(event.id).where(event.allocation == record.id).order_by(event.id)
        last = session.scalars(oldest.offset(SURPLUS - 1).limit(1)).one()
        session.execute(delete(event).where(event.allocation == record.id, event.id <= last))
        forgotten = record.first_event + NEWEST - 1 - record.kept_events + SURPLUS
        values = {"forgotten": forgotten, "asked_by": record.initiator}
        allocation_rows.write(session, record.id, values)
        return replace(record, kept_events=record.kept_events - SURPLUS)

    def update(
        self,
        session: Session,
        record: AllocationRecord,
        state: State,
        reason: str,
        by: Initiator | None = None,
        seconds: Mapping[Span, float] = NOT_MEASURED,
        **values: Any,
    ) -> AllocationRecord:
        """Update the rows of a record, and append an event to its history; the new record.

        Raises:
            NotFound: there is no such allocation.
            ConcurrentUpdate: it is past the record's version.
        """
        values |= {"state": state.value, "version": record.version + 1, "updated_at": self.now()}
        known = {"known_id": record.id, "known_version": record.version}
        own = allocation_rows.own(values)
        if rows_changed(session, _update(frozenset(own)), {**own, **known}) == 0:
            sequence(session, record.id)
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        allocation_rows.write(session, record.id, values, record)
        if state not in LIVE:
            unique_names.give_up(session, record.id)
        # whoever has the history has it whole: each event raises the version, which was compared
        changed = allocation_rows.changed_record(record, values) if record.history else None
        return self.record_event(session, record.id, state, reason, by, seconds, changed=changed)


def sequence(session: Session, id: str) -> int:
    """The place of an allocation in the order of creation. Raises: NotFound."""
    number = session.scalar(_SEQUENCE, {"id": id})
    if number is None:
        raise NotFound("allocation", id)
    return number


def read_enclosing(session: Session, id: str) -> Enclosing:
    """What those inside an allocation need to know of it. Raises: NotFound."""
    for found in read_all_enclosing(session, [id]):
        return found
    raise NotFound("allocation", id)


def read_all_enclosing(session: Session, ids: Sequence[str]) -> list[Enclosing]:
    """As ``read_enclosing``, of several allocations in the order of ``ids``; without those that
    are not there."""
    found = {}
    for some in batches(ids):
        for row in session.execute(_ENCLOSING, {"ids": some}):
            found[row.id] = Enclosing(
                row.id,
                row.fabric,
                row.project_id,
                State(row.state),
                row.generation,
                row.kind == allocation_rows.CONTAINER,
                row.sharing and sharing_from(row.sharing),
            )
    return [found[id] for id in ids if id in found]


def read_record(session: Session, id: str) -> AllocationRecord:
    """An allocation with its newest events. Raises: NotFound."""
    row = session.execute(_RECORD, {"id": id}).one_or_none()
    if row is None:
        raise NotFound("allocation", id)
    return _with_events(session, row)


def read_newer(session: Session, known: AllocationRecord) -> AllocationRecord | None:
    """As ``read_record``; None if the allocation has the known version still."""
    row = session.execute(_NEWER, {"id": known.id, "version": known.version}).one_or_none()
    return None if row is None else _with_events(session, row)


def _with_events(session: Session, row: Row[Any]) -> AllocationRecord:
    """The record of a row of ``ALLOCATIONS`` with its newest events."""
    id = row.id
    events = tuple(map(as_event, session.scalars(_NEWEST, {"id": id})))[::-1]
    record = allocation_rows.record_of(row, events)
    if len(events) < NEWEST:
        return record
    event = models.EventRow
    kept = session.scalar(select(func.count()).where(event.allocation == id)) or 0
    asked = None
    if record.initiator is None:
        last = session.scalar(_NEWEST.where(event.request_id.is_not(None)).limit(1), {"id": id})
        asked = row.asked_by if last is None else as_event(last).by
    first = (row.forgotten or 0) + kept - NEWEST + 1
    return replace(record, first_event=first, kept_events=kept, asked_before=asked)


def confirmation(by: ConfirmedBy | None) -> dict[str, Any]:
    """The column that says what an allocation's routes are confirmed by; None leaves it alone."""
    return {} if by is None else {"confirmed_by": by.value}


WITHDRAWN: dict[str, Any] = {"routes_confirmed": None, "keys_confirmed": None}
"""Columns of an allocation whose routes are not to be there any more."""


def evidence(confirmed: Confirmed | None) -> dict[str, Any]:
    """The columns that say what confirms its routes and keys; None leaves them alone."""
    if confirmed is None:
        return {}
    routes = {"routes_confirmed": confirmed.routes}
    if confirmed.keys is None:
        return routes
    return {**routes, **confirmation(confirmed.by), "keys_confirmed": confirmed.keys}


def locked_generation(session: Session, fabric_id: str) -> int:
    """The fabric's generation; it cannot move on before this transaction ends. ``NotFound``."""
    table = models.FabricRow
    query = select(table.generation).where(table.id == fabric_id).with_for_update()
    generation = session.scalar(query)
    if generation is None:
        raise NotFound("fabric", fabric_id)
    return generation


def batches(numbers: Sequence[T]) -> Iterator[Sequence[T]]:
    """``FEW`` at a time: databases bound the parameters of a statement."""
    for first in range(0, len(numbers), FEW):
        yield numbers[first : first + FEW]


def as_event(row: models.EventRow) -> Event:
    by = None
    if row.request_id is not None:
        by = Initiator(row.request_id, row.user_id or "", row.project_id or "")
    return Event(row.at, State(row.state), row.reason, by, seconds_by_span(row.seconds))


def seconds_document(seconds: Mapping[Span, float]) -> dict[str, float] | None:
    """Seconds by span as JSON, in milliseconds' precision; None if there are none."""
    return {span.value: round(spent, 3) for span, spent in seconds.items()} or None
