# SPDX-License-Identifier: Apache-2.0

"""Allocations: reading them, and their transitions from state to state."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session, aliased

from laas_service.adapters.db import allocation_rows, models, unique_names
from laas_service.adapters.db.allocation_rows import ALLOCATIONS, record_of
from laas_service.adapters.db.retention import Retention
from laas_service.adapters.db.transactions import (
    NOT_MEASURED,
    STEP_DONE,
    WITHDRAWN,
    SlotRows,
    as_event,
    confirmation,
    evidence,
    locked_generation,
    read_newer,
    read_record,
    seconds_document,
    sequence,
)
from laas_service.adapters.documents import faults_from
from laas_service.app import lifecycle
from laas_service.app.lifecycle import DUE, DUE_IF_CHANGING, LIVE, State
from laas_service.app.records import AllocationRecord, Confirmed, Event, SizeEvent
from laas_service.app.wording import reasons
from laas_service.domain.errors import Conflict, NotFound
from laas_service.domain.tenancy import SharedHosts
from laas_service.domain.wording import listed
from laas_service.messages import ConfirmedBy, Initiator, Span, seconds_by_span

FOR_EVER = timedelta(days=365_000)


@cache
def _page(conditions: frozenset[str]) -> Select[Any]:
    """Allocations in the order of creation, up to a limit, that satisfy these conditions."""
    table = models.AllocationRow
    known: dict[str, ColumnElement[bool]] = {
        "fabric": table.fabric == bindparam("fabric"),
        "project_id": table.project_id == bindparam("project_id"),
        "states": table.state.in_(bindparam("states", expanding=True)),
        "marker": table.sequence > bindparam("marker"),
    }
    query = ALLOCATIONS.where(*(known[condition] for condition in sorted(conditions)))
    return query.order_by(table.sequence).limit(bindparam("limit", type_=Integer))


def due_rows(
    session: Session, now: datetime, *, longest: timedelta, faulty: bool, fabric: str | None
) -> list[Row[Any]]:
    """The rows of allocations with a step due; see ``StoredAllocations.due``."""
    table, change, move = models.AllocationRow, models.ChangePart, models.MovePart
    ready = or_(table.due_at.is_(None), table.due_at <= now, table.due_at > now + longest)
    if fabric is not None:
        ready = and_(table.fabric == fabric, ready)
    changeable = table.state.in_([state.value for state in DUE_IF_CHANGING])
    degraded = and_(changeable, models.FaultsPart.faults.is_not(None), change.leaving.is_(None))
    moving = or_(
        table.state.in_([state.value for state in DUE]),
        and_(changeable, change.leaving.is_not(None)),
        and_(changeable, move.announced.is_not(None), move.moves_at <= now),
    )
    due = or_(moving, degraded) if faulty else moving
    rows = session.execute(ALLOCATIONS.where(ready, due).order_by(table.sequence)).all()
    return sorted(
        (
            row
            for row in rows
            if not _only_degraded(row, now) or faults_from(row.faults).replaceable
        ),
        key=lambda row: _only_degraded(row, now),
    )


def _only_degraded(row: Row[Any], now: datetime) -> bool:
    """Whether failed links are the only reason for an allocation to be due."""
    moves = row.announced is not None and row.moves_at is not None and row.moves_at <= now
    return State(row.state) in DUE_IF_CHANGING and row.leaving is None and not moves


@dataclass
class StoredAllocations(Retention):
    """Reads allocations, finds those with a step due, and records their next state."""

    def get(self, id: str) -> AllocationRecord:
        with self.transactions.reading() as session:
            return read_record(session, id)

    def newest(self, record: AllocationRecord) -> AllocationRecord:
        with self.transactions.reading() as session:
            return read_newer(session, record) or record

    def events(self, id: str, after: int, limit: int) -> tuple[int, list[Event]]:
        event, table = models.EventRow, models.HistoryPart
        query = select(event).where(event.allocation == id).order_by(event.id)
        with self.transactions.reading_one_state() as session:
            forgotten = session.scalar(select(table.forgotten).where(table.allocation == id)) or 0
            first = max(after, forgotten) + 1
            rows = session.scalars(query.offset(first - forgotten - 1).limit(limit))
            return first, [as_event(row) for row in rows]

    def page(
        self,
        *,
        fabric: str | None = None,
        project_id: str | None = None,
        states: Collection[State] = (),
        limit: int = 1000,
        marker: str | None = None,
    ) -> list[AllocationRecord]:
        wanted: dict[str, Any] = {"fabric": fabric, "project_id": project_id}
        wanted["states"] = [state.value for state in states] or None
        with self.transactions.reading() as session:
            wanted["marker"] = None if marker is None else sequence(session, marker)
            wanted = {name: value for name, value in wanted.items() if value is not None}
            rows = session.execute(_page(frozenset(wanted)), {**wanted, "limit": limit})
            return list(map(record_of, rows))

    def size_events(self, fabric: str, project_id: str | None, limit: int) -> list[SizeEvent]:
        event, table, container = (
            models.EventRow,
            models.AllocationRow,
            aliased(models.AllocationRow),
        )
        moved = event.state.in_([state.value for state in lifecycle.SIZE_STATES])
        outermost: ColumnElement[bool] = table.parent.is_(None)
        if project_id is not None:
            outermost = or_(outermost, container.project_id != project_id)
        query = (
            select(table.id, event.at, event.state, event.reason, table.hosts)
            .join(table, event.allocation == table.id)
            .outerjoin(container, table.parent == container.id)
            .where(
                table.fabric == fabric,
                or_(moved, event.reason.startswith(reasons.RESIZE_REASON)),
                outermost,
            )
            .order_by(event.id.desc())
            .limit(limit)
        )
        if project_id is not None:
            query = query.where(table.project_id == project_id)
        with self.transactions.reading() as session:
            rows = session.execute(query).all()
        return [SizeEvent(id, at, State(s), why, hosts) for id, at, s, why, hosts in rows][::-1]

    def due(
        self,
        now: datetime,
        *,
        longest: timedelta = FOR_EVER,
        faulty: bool = False,
        fabric: str | None = None,
    ) -> list[str]:
        with self.transactions.reading() as session:
            rows = due_rows(session, now, longest=longest, faulty=faulty, fabric=fabric)
            return [row.id for row in rows]

    def postpone(
        self, id: str, until: datetime, error: str, *, seen: AllocationRecord | None = None
    ) -> None:
        table = models.AllocationRow
        with self.transactions.writing("postpone") as session:
            row = session.scalar(select(table).where(table.id == id).with_for_update())
            if row is None:
                raise NotFound("allocation", id)
            if seen is not None and seen.version != row.version:
                return
            row.failures += 1
            row.due_at = until
            if row.error != error:
                row.error = error
                row.version += 1
                row.updated_at = self.transactions.now()
                session.flush()
                state, changed = State(row.state), None
                if seen is not None and seen.history:
                    names = ("failures", "due_at", "error", "version", "updated_at")
                    values = {name: getattr(row, name) for name in names}
                    changed = allocation_rows.changed_record(seen, values)
                self.transactions.record_event(session, id, state, error, changed=changed)

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
        seconds: Mapping[Span, float] = NOT_MEASURED,
    ) -> AllocationRecord:
        lifecycle.check_successor(record, to)
        parked = lifecycle.parked_from(record, to)
        with self.transactions.writing(f"{to.value}") as session:
            if record.kind.encloses and to is State.RELEASING:
                locked_generation(session, record.fabric)
                _check_empty(session, record)
            changed = self.transactions.update(
                session,
                record,
                to,
                reason,
                by,
                seconds,
                force=record.force or force,
                parked=parked and parked.value,
                **STEP_DONE | evidence(confirmed) | {"error": error},
            )
            if record.state is State.ALLOCATING and to is State.ACTIVE:
                _count_activated(session, changed)
            return changed

    def note_limits(
        self, record: AllocationRecord, by: str | None, reason: str
    ) -> AllocationRecord:
        with self.transactions.writing("limits") as session:
            return self.transactions.update(session, record, record.state, reason, limited_by=by)

    def rename(
        self,
        record: AllocationRecord,
        name: str,
        *,
        unique: bool = False,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        reason = reasons.renamed_reason(record.name)
        with self.transactions.writing("rename") as session:
            if unique:
                unique_names.take(session, record.project_id, name, record.id)
            else:
                unique_names.give_up(session, record.id)
            return self.transactions.update(session, record, record.state, reason, by, name=name)

    def prioritize(
        self, record: AllocationRecord, priority: int, *, by: Initiator | None = None
    ) -> AllocationRecord:
        lifecycle.check_queued(record, "has a priority")
        reason = reasons.prioritized_reason(priority)
        with self.transactions.writing("prioritize") as session:
            self.transactions.advance(session, record.fabric, {})
            return self.transactions.update(
                session, record, record.state, reason, by, priority=priority
            )

    def cancel(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        lifecycle.check_queued(record)
        with self.transactions.writing("cancel") as session:
            self.transactions.advance(session, record.fabric, {})
            return self.transactions.update(session, record, State.RELEASED, reason, by)

    def hand_back(
        self,
        record: AllocationRecord,
        reason: str = "",
        *,
        seconds: Mapping[Span, float] = NOT_MEASURED,
    ) -> AllocationRecord:
        lifecycle.check_handing_back(record)
        routes = record.kind.whole_hosts
        with self.transactions.writing("hand back") as session:
            generation = self.transactions.advance(session, record.fabric, {}, routes=routes)
            return self.transactions.update(
                session,
                record,
                record.state,
                reason or reasons.HANDED_BACK_REASON,
                seconds=seconds,
                handed_back=True,
                generation=generation if routes else record.generation,
                **WITHDRAWN,
                **STEP_DONE,
            )

    def free(
        self,
        record: AllocationRecord,
        reason: str,
        *,
        confirmed_by: ConfirmedBy | None = None,
        seconds: Mapping[Span, float] = NOT_MEASURED,
    ) -> AllocationRecord:
        lifecycle.check_freeable(record)
        with self.transactions.writing("free") as session:
            self.transactions.advance(session, record.fabric, {"release": record.id})
            freed = self.transactions.update(
                session,
                record,
                State.RELEASED,
                reason,
                seconds=seconds,
                placed=None,
                leaving=None,
                phase=None,
                begun_at=None,
                bridge=None,
                mending=None,
                announced=None,
                moves_at=None,
                faults=None,
                **STEP_DONE | confirmation(confirmed_by),
            )
            _drop_claims(session, record, self.transactions.slot_rows)
            return freed

    def requeue(
        self, record: AllocationRecord, reason: str, *, confirmed_by: ConfirmedBy | None = None
    ) -> AllocationRecord:
        lifecycle.check_requeueable(record)
        with self.transactions.writing("requeue") as session:
            generation = self.transactions.advance(session, record.fabric, {"release": record.id})
            queued = self.transactions.update(
                session,
                record,
                State.QUEUED,
                reason,
                placed=None,
                pkey=0,
                pkeys=None,
                faults=None,
                ends_at=None,
                handed_back=False,
                generation=generation,
                **STEP_DONE | confirmation(confirmed_by),
            )
            _drop_claims(session, record, self.transactions.slot_rows)
            return queued


def _count_activated(session: Session, record: AllocationRecord) -> None:
    """Add where the time of an allocation went to the sums of its fabric."""
    lease = models.LeaseRow
    query = select(lease.seconds).where(lease.fabric == record.fabric).with_for_update()
    sums = seconds_by_span(session.scalar(query))
    for event in record.history:
        for span, seconds in event.seconds.items():
            sums[span] = sums.get(span, 0.0) + seconds
    values = {"activated": lease.activated + 1, "seconds": seconds_document(sums)}
    session.execute(update(lease).where(lease.fabric == record.fabric).values(**values))


def _drop_claims(session: Session, record: AllocationRecord, slot_rows: SlotRows) -> None:
    if record.part:
        slot_rows.give_up(session, record.part, record.id)
        return
    for claim in (models.HostClaimRow, models.LinkClaimRow, models.PkeyClaimRow):
        session.execute(delete(claim).where(claim.allocation == record.id))
    if isinstance(record.kind, SharedHosts):
        slot_rows.close(session, record.id)


def _check_empty(session: Session, container: AllocationRecord) -> None:
    """Raises: Conflict. The fabric's row is locked, so no allocation enters meanwhile."""
    table = models.AllocationRow
    inside = session.scalars(
        select(table.id)
        .where(table.parent == container.id, table.state.in_([state.value for state in LIVE]))
        .order_by(table.sequence)
    ).all()
    if inside:
        raise Conflict(
            f"container {container.id!r} has {len(inside)} allocations inside; "
            f"release them first: {listed(inside)}"
        )
