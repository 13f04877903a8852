# SPDX-License-Identifier: Apache-2.0

"""Deletion of allocations that were released long ago, with all that is recorded of them."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session, aliased

from laas_service.adapters.db import allocation_rows, models
from laas_service.adapters.db.engine import rows_changed
from laas_service.adapters.db.transactions import Transactions
from laas_service.app.lifecycle import OVER
from laas_service.app.ports.allocations import Archive
from laas_service.domain.errors import InvalidInput

WITH_ALLOCATIONS: Sequence[Any] = (models.EventRow, models.IdempotencyRow)
"""Tables whose rows belong to an allocation, by their column ``allocation``."""


@dataclass
class Retention:
    """The part of ``app.ports.allocations.Allocations`` that deletes."""

    transactions: Transactions

    def forget(self, age: timedelta, limit: int, archive: Archive | None = None) -> int:
        table, before = models.AllocationRow, self.transactions.now() - age
        with self.transactions.writing("forget") as session:
            ids = _over(session, before, limit)
            if archive is not None and ids:
                archive(list(_documents(session, ids)))
            allocation_rows.forget(session, ids)
            for other in WITH_ALLOCATIONS:
                session.execute(delete(other).where(other.allocation.in_(ids)))
            return rows_changed(session, delete(table).where(table.id.in_(ids))) if ids else 0


def _over(session: Session, before: datetime, limit: int) -> list[str]:
    """Ids of allocations that were released before then and have nothing recorded inside."""
    table, child = models.AllocationRow, aliased(models.AllocationRow)
    query = (
        select(table.id)
        .where(
            table.state.in_(state.value for state in OVER),
            table.updated_at <= before,
            ~exists().where(child.parent == table.id),
        )
        .order_by(table.updated_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return list(session.scalars(query))


def _documents(session: Session, ids: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """The rows of each allocation: its own, and those that belong to it."""
    table = models.AllocationRow
    allocations = allocation_rows.ALLOCATIONS.where(table.id.in_(ids)).order_by(table.sequence)
    of_each: dict[str, dict[str, Any]] = {
        row.id: {
            "allocation": _plain(row._asdict()),
            **{other.__tablename__: [] for other in WITH_ALLOCATIONS},
        }
        for row in session.execute(allocations)
    }
    for other in WITH_ALLOCATIONS:
        rows = select(other).where(other.allocation.in_(ids)).order_by(*other.__table__.primary_key)
        for row in session.scalars(rows):
            of_each[row.allocation][other.__tablename__].append(_plain(_values(row)))
    yield from of_each.values()


def _values(row: models.Base) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in row.__table__.columns}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
        if value is not None
    }


@contextmanager
def archive_file(path: Path) -> Iterator[Archive]:
    """Appends documents to a file, a line of JSON each; only owner and group may read it.

    They are on the disk before they are deleted from the database. After a crash in between a later
    call writes them again; a line that the crash tore is closed, and is no JSON.

    Raises:
        InvalidInput: the file cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    try:
        with os.fdopen(os.open(path, flags, 0o640), "rb+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")

            def append(documents: Sequence[Mapping[str, Any]]) -> None:
                for document in documents:
                    file.write(json.dumps(document, sort_keys=True).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

            yield append
    except OSError as error:
        fix = f"give a file that can be written ({error.strerror or error})"
        raise InvalidInput("FILE", str(path), fix) from error
