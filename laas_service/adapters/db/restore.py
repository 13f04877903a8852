# SPDX-License-Identifier: Apache-2.0

"""Restoring a backup; generations, versions and tokens do not go back.

After the backup was made, switches, agents, caches and clients saw generations, versions and
tokens that it does not contain. If the same numbers were assigned again, lost changes would be
taken for recorded ones. So all numbers go on beyond any that was seen, and every allocation
waits until the routes of the restored state are confirmed.
"""

from collections.abc import Callable
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import Connection, Engine, func, insert, inspect, select, text

from laas_service.adapters.db import backup, models, schema
from laas_service.adapters.db.engine import WRITES, translated
from laas_service.adapters.db.generations import new_stamp
from laas_service.adapters.db.types import Serial
from laas_service.app.lifecycle import OVER
from laas_service.domain.errors import Conflict, InvalidFile, LimitExceeded

LIFT = 1_000_000
"""How far numbers are moved beyond the highest known one: more than the changes between a
backup and the disaster."""

MOST = 2**31 - 1
"""The largest integer of all three databases."""

SEEN = {
    "owner",
    "applied",
    "applied_by",
    "confirmed",
    "problem",
    "seen_at",
    "uncompared",
    "running",
}
"""Columns of a lease with its holder and observations."""

FEW = 500
"""Rows in one statement."""


def restore(
    engine: Engine, path: Path, *, seen: Callable[[str], int], now: datetime
) -> backup.Header:
    """Write the rows of a backup in one transaction, then upgrade the schema to this release.

    ``seen`` gives, by fabric, the highest generation that is known outside the database.

    Raises:
        InvalidInput, InvalidFile: see ``backup.read``; nothing was written.
        Conflict: the database is not empty; nothing was written.
        LimitExceeded: the numbers cannot be moved on any more; nothing was written.
        Unavailable: the database does not answer.
    """
    header = backup.read(path)
    with translated(), engine.connect() as connection:
        fresh = _is_fresh(connection)
        _must_be_empty(connection)
    if fresh:
        schema.upgrade(engine, header.revision)
    with (
        translated(),
        engine.connect().execution_options(**{WRITES: True}) as connection,
        connection.begin(),
    ):
        _must_be_at(connection, header)
        _must_be_empty(connection)
        try:
            _Writer(connection, seen).write(path, header, now)
        except DBDuplicateEntry as error:
            why = f"its rows contradict each other: {error}"
            raise InvalidFile(str(path), 1, why) from error
    schema.upgrade(engine)
    return header


def _is_fresh(connection: Connection) -> bool:
    """Whether no table is there yet. Raises: Conflict, if there are others than ours."""
    ours = {*models.Base.metadata.tables, "alembic_version"}
    present = set(inspect(connection).get_table_names())
    if present - ours:
        names = ", ".join(sorted(present - ours))
        raise Conflict(f"the database holds tables of others ({names}); give one of its own")
    return schema.current(connection) is None


def _must_be_at(connection: Connection, header: backup.Header) -> None:
    present = schema.current(connection)
    if present != header.revision:
        raise Conflict(
            f"the backup is of revision {header.revision}, the database has tables of {present}; "
            "give one without tables"
        )


def _must_be_empty(connection: Connection) -> None:
    present = set(inspect(connection).get_table_names())
    for table in models.Base.metadata.sorted_tables:
        if table.name in present and table is not models.WorksWithRow.__table__:
            key = next(iter(table.primary_key))
            if connection.execute(select(key).limit(1)).first() is not None:
                raise Conflict(
                    f"the database is not empty (there are rows of {table.name}); restore into "
                    "a new one, or drop its tables"
                )


class _Writer:
    """Writes rows, with numbers moved on."""

    def __init__(self, connection: Connection, seen: Callable[[str], int]) -> None:
        self._connection = connection
        self._seen = seen
        self._generations: dict[str, int] = {}
        self._unfinished: list[tuple[str, str]] = []

    def write(self, path: Path, header: backup.Header, now: datetime) -> None:
        for table, rows in groupby(backup.rows(path, header), key=lambda pair: pair[0]):
            moved = (self._moved(table.name, row) for _, row in rows)
            while batch := list(islice(moved, FEW)):
                self._connection.execute(insert(table), batch)
        self._continue_numbers()
        for id, state in self._unfinished:
            reason = f"restored from the backup of {header.made:%Y-%m-%d %H:%M:%S} UTC"
            event = {"allocation": id, "at": now, "state": state, "reason": reason}
            self._connection.execute(insert(models.EventRow), event)

    def _moved(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its numbers moved on, and without holder or reservation."""
        match table:
            case "fabric":
                id = row["id"]
                beyond = lifted(max(row["generation"], self._seen(id)), f"generation of {id}")
                self._generations[id] = beyond
                counts = {"generation", "routes_generation", "layout"} & row.keys()
                stamps = {"stamp", "routes_stamp"} & row.keys()
                identity = f"{beyond}-{new_stamp()}"
                return row | dict.fromkeys(counts, beyond) | dict.fromkeys(stamps, identity)
            case "allocation":
                if row["state"] not in {state.value for state in OVER}:
                    self._unfinished.append((row["id"], row["state"]))
                return row | {
                    "generation": self._generations[row["fabric"]],
                    "version": lifted(row["version"], f"version of {row['id']}"),
                    "due_at": None,
                }
            case "lease":
                nothing = dict.fromkeys(SEEN & row.keys())
                return row | nothing | {"token": lifted(row["token"], "token")}
            case "notification":
                return row | {"taken_until": None}
        return row

    def _continue_numbers(self) -> None:
        """Move sequences beyond the written rows; only PostgreSQL needs that."""
        if self._connection.dialect.name != "postgresql":
            return
        for table in backup.TABLES:
            for column in table.primary_key:
                is_there = inspect(self._connection).has_table(table.name)
                if column.type is Serial and is_there:
                    most = self._connection.scalar(select(func.max(column)))
                    sequence = {"table": table.name, "column": column.name, "most": most}
                    if most is not None:
                        query = "SELECT setval(pg_get_serial_sequence(:table, :column), :most)"
                        self._connection.execute(text(query), sequence)


def lifted(number: int, what: str) -> int:
    """The number moved on by ``LIFT``. Raises: LimitExceeded."""
    if number > MOST - 2 * LIFT:
        raise LimitExceeded(f"the {what} is {number}; it cannot be moved on by {LIFT}")
    return number + LIFT
