# SPDX-License-Identifier: Apache-2.0

"""The rows of an allocation in all its tables, and its record, which they make.

One statement reads all of them. A change of the record is split by table; every change also
raises ``allocation.version``, so whoever wrote that has the other rows for itself.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any, cast

from sqlalchemy import Row, Select, Table, Update, bindparam, delete, select, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import insert_rows, rows_changed
from laas_service.adapters.documents import (
    allocation_from,
    consent_from,
    constraints_from,
    demand_from,
    faults_from,
    mending_from,
    sharing_from,
)
from laas_service.app.lifecycle import Phase, State
from laas_service.app.records import AllocationRecord, Event
from laas_service.domain.tenancy import Container, Kind, Owned, SharedHosts, Slots
from laas_service.messages import ConfirmedBy

KINDS: Mapping[type[Kind], str] = {
    Owned: "owned",
    Container: "container",
    SharedHosts: "shared_hosts",
    Slots: "slots",
}
"""``allocation.kind``."""

CONTAINER = KINDS[Container]

_OWN = frozenset(models.AllocationRow.__table__.columns.keys())
_PART_OF: Mapping[str, type[models.Part]] = {
    name: part
    for part in models.PARTS
    for name in (column.name for column in part.__table__.columns)
    if name != "allocation"
}
_NOTHING: Mapping[str, Any] = dict.fromkeys((*_OWN, *_PART_OF))
_FIELDS: Mapping[str, str] = {"demand": "slots", "due_at": "next_try", "kind": "container"}
"""Columns whose fields of a record have other names."""
_KNOWN = frozenset(field.name for field in fields(AllocationRecord))


def _joined() -> Select[Any]:
    columns = [part.__table__.c[name] for name, part in _PART_OF.items()]
    query = select(*models.AllocationRow.__table__.columns, *columns).select_from(
        models.AllocationRow
    )
    for part in models.PARTS:
        query = query.outerjoin(part, part.allocation == models.AllocationRow.id)
    return query


ALLOCATIONS = _joined()
"""All columns of allocations, in one row each."""


def with_parts(query: Select[Any], *parts: type[models.Part]) -> Select[Any]:
    """A query of ``models.AllocationRow`` that reads columns of these tables, too."""
    for part in parts:
        query = query.outerjoin(part, part.allocation == models.AllocationRow.id)
    return query


def record_of(row: Row[Any], history: tuple[Event, ...] = ()) -> AllocationRecord:
    """The record of a row of ``ALLOCATIONS``, with these entries of its history."""
    return _record(row._asdict(), history)


def new_record(values: Mapping[str, Any], history: tuple[Event, ...]) -> AllocationRecord:
    """The record of an allocation that ``insert`` got."""
    return _record({**_NOTHING, **values}, history)


def changed_record(before: AllocationRecord, values: Mapping[str, Any]) -> AllocationRecord:
    """The record after these columns of it were written, and no others; its history as before."""
    written = dict(values)
    for part, columns in _parts(values):
        if _is_gone(part, columns):
            written = dict.fromkeys(part.__table__.columns.keys()) | written
    read = new_record({**written, "state": values.get("state", before.state)}, ())
    names = {_FIELDS.get(column, column) for column in written} & _KNOWN
    return replace(before, **{name: getattr(read, name) for name in names})


def _record(row: Mapping[str, Any], history: tuple[Event, ...]) -> AllocationRecord:
    return AllocationRecord(
        id=row["id"],
        fabric=row["fabric"],
        name=row["name"],
        project_id=row["project_id"],
        policy=row["policy"],
        hosts=row["hosts"],
        state=State(row["state"]),
        version=row["version"],
        pkey=row["pkey"] or 0,
        pkeys=tuple(row["pkeys"] or ()),
        placed=row["placed"] and allocation_from(row["placed"]),
        handed_back=row["handed_back"],
        force=row["force"],
        error=row["error"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        history=history,
        first_event=(row["forgotten"] or 0) + 1,
        kept_events=len(history),
        generation=row["generation"],
        failures=row["failures"],
        constraints=row["constraints"] and constraints_from(row["constraints"]),
        consent=consent_from(row["consent"]),
        announced=row["announced"] and allocation_from(row["announced"]),
        moves_at=row["moves_at"],
        move_forced=bool(row["move_forced"]),
        duration=row["duration"],
        priority=row["priority"],
        ends_at=row["ends_at"],
        parent=row["parent"],
        container=row["kind"] == CONTAINER,
        sharing=row["sharing"] and sharing_from(row["sharing"]),
        slots=row["demand"] and demand_from(row["demand"]),
        leaving=row["leaving"] and allocation_from(row["leaving"]),
        phase=Phase(row["phase"]) if row["phase"] else None,
        bridge=row["bridge"] and allocation_from(row["bridge"]),
        mending=row["mending"] and mending_from(row["mending"]),
        begun_at=row["begun_at"],
        faults=row["faults"] and faults_from(row["faults"]),
        next_try=row["due_at"],
        parked=State(row["parked"]) if row["parked"] else None,
        confirmed_by=ConfirmedBy(row["confirmed_by"]) if row["confirmed_by"] else None,
        routes_confirmed=row["routes_confirmed"],
        keys_confirmed=row["keys_confirmed"],
        limited_by=row["limited_by"],
    )


def own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that are in the table ``allocation``."""
    return {name: value for name, value in values.items() if name in _OWN}


def insert(session: Session, values: Mapping[str, Any]) -> None:
    """Insert an allocation."""
    insert_rows(session, models.AllocationRow, own(values))
    for part, columns in _parts(values):
        if any(columns[name] is not None for name in part.needed & columns.keys()):
            insert_rows(session, part, {"allocation": values["id"], **columns})


def write(
    session: Session, id: str, values: Mapping[str, Any], before: AllocationRecord | None = None
) -> None:
    """Write the columns of other tables than ``allocation``, whose row this transaction wrote.

    ``before`` spares the statements for columns that are NULL, and were.
    """
    for part, columns in _parts(values):
        if before and not any(columns.values()) and not any(getattr(before, n) for n in columns):
            continue
        if _is_gone(part, columns):
            session.execute(delete(part).where(part.allocation == id))
        elif not rows_changed(session, _step(part, frozenset(columns)), {"of": id, **columns}):
            insert_rows(session, part, {"allocation": id, **columns})


def _is_gone(part: type[models.Part], columns: Mapping[str, Any]) -> bool:
    """Whether an allocation with these columns has no row in a table any more."""
    return part.needed <= columns.keys() and all(columns[name] is None for name in part.needed)


def forget(session: Session, ids: Collection[str] | Select[Any]) -> None:
    """Delete the rows of allocations in other tables than ``allocation``."""
    for part in models.PARTS:
        session.execute(delete(part).where(part.allocation.in_(ids)))


def _parts(values: Mapping[str, Any]) -> Iterator[tuple[type[models.Part], dict[str, Any]]]:
    by_part: dict[type[models.Part], dict[str, Any]] = {}
    for name, value in values.items():
        if name not in _OWN:
            by_part.setdefault(_PART_OF[name], {})[name] = value
    yield from by_part.items()


@cache
def _step(part: type[models.Part], columns: frozenset[str]) -> Update:
    step = update(cast("Table", part.__table__)).where(part.allocation == bindparam("of"))
    return step.values({name: bindparam(name) for name in columns})
