# SPDX-License-Identifier: Apache-2.0

"""Backups: all rows worth keeping, in one file that can be restored into any database.

The file is gzipped lines of JSON: a header, a line for each row, and at the end their number
and sha256. Deltas, workers, agents, port counters and the releases that work with the tables are
left out: they are made or reported again.
"""

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, select

from laas_service.adapters.db import models, schema
from laas_service.adapters.db.engine import consistent_read
from laas_service.adapters.db.types import Moment, Stored
from laas_service.domain.errors import InvalidFile, InvalidInput, Unavailable

KIND, FORMAT = "laas-backup", 1

LEFT_OUT = {
    table.__tablename__
    for table in (
        models.AgentRow,
        models.DeltaRow,
        models.PortCountersRow,
        models.WorkerRow,
        models.WorksWithRow,
    )
}

TABLES = [table for table in models.Base.metadata.sorted_tables if table.name not in LEFT_OUT]
"""The tables of a backup, in an order in which rows can be written: referenced rows first."""

_TORN = "it is torn or was changed; take another backup"


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a backup: the schema's revision, the time, and the columns of each table."""

    revision: str
    made: datetime
    tables: dict[str, list[str]]
    rows: int


def write(engine: Engine, path: Path, now: datetime) -> int:
    """Copy all committed rows into a file; returns their number.

    The file appears complete or not at all, and replaces an older one of that name. Other
    processes go on writing to the database meanwhile.

    Raises:
        InvalidInput: the file cannot be written.
        Unavailable: the database does not answer, or is not at this release's revision.
    """
    with consistent_read(engine) as connection:
        revision = schema.current(connection)
        if revision != schema.head():
            raise Unavailable(
                f"the database is at revision {revision or 'none'}, this release needs "
                f"{schema.head()}; run laas-manage db upgrade, or back up with its own release"
            )
        tables = {table.name: [column.name for column in table.columns] for table in TABLES}
        header = {"revision": revision, "made": now.isoformat(), "tables": tables}
        try:
            return _write(path, {"kind": KIND, "format": FORMAT, **header}, _rows(connection))
        except OSError as error:
            fix = f"give a file that can be written ({error.strerror or error})"
            raise InvalidInput("FILE", str(path), fix) from error


def _write(path: Path, header: dict[str, Any], rows: Iterator[list[Any]]) -> int:
    digest, count = hashlib.sha256(), 0
    with _replaced(path) as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:

        def put(value: object) -> None:
            line = json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n"
            digest.update(line)
            file.write(line)

        put(header)
        for row in rows:
            put(row)
            count += 1
        put({"rows": count, "sha256": digest.hexdigest()})
    return count


@contextmanager
def _replaced(path: Path) -> Iterator[Any]:
    """A new file that takes the name at the end, durably; only its owner may read it."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _rows(connection: Connection) -> Iterator[list[Any]]:
    """Every row: the name of its table, and its values."""
    for table in TABLES:
        query = select(table)
        if "scope" in table.c:  # the claims of a container before those inside it
            owner = models.AllocationRow.__table__
            query = query.join(owner, owner.c.id == table.c.allocation).order_by(owner.c.sequence)
        query = query.order_by(*table.primary_key)
        for row in connection.execute(query, execution_options={"yield_per": 1000}):
            yield [table.name, *map(_plain, table.columns, row)]


def _plain(column: ColumnElement[Any], value: Any) -> Any:
    if isinstance(column.type, Stored) and value is not None:
        return column.type.form.write(value)
    return value.isoformat() if isinstance(value, datetime) else value


def read(path: Path) -> Header:
    """The header of a file, all of which has been checked.

    Raises:
        InvalidInput: it cannot be read.
        InvalidFile: it is torn or changed, is no backup, or a backup of an unknown kind.
    """
    header, count, digest, end = None, -1, hashlib.sha256(), None
    for number, line in enumerate(_lines(path), start=1):
        if end is not None:
            raise InvalidFile(str(path), number, _TORN)
        value = _value(path, number, line)
        if number == 1:
            header = _header(path, value)
        elif isinstance(value, dict):
            end = value
            continue
        digest.update(line)
        count += 1
    if header is None:
        raise InvalidFile(str(path), 1, "it is empty; give a file of laas-manage db backup")
    if end != {"rows": count, "sha256": digest.hexdigest()}:
        raise InvalidFile(str(path), count + 2, _TORN)
    return Header(header["revision"], _moment(header["made"]), header["tables"], count)


def rows(path: Path, header: Header) -> Iterator[tuple[Table, dict[str, Any]]]:
    """The rows of a checked file, in an order in which they can be written."""
    tables = {table.name: table for table in TABLES}
    for number, line in enumerate(_lines(path)):
        if 1 <= number <= header.rows:
            name, *values = json.loads(line)
            columns = header.tables[name]
            table = tables[name]
            yield (
                table,
                {
                    column: _restored(table, column, value)
                    for column, value in zip(columns, values, strict=True)
                },
            )


def _restored(table: Table, column: str, value: Any) -> Any:
    kind = table.c[column].type
    if isinstance(kind, Stored) and value is not None:
        return kind.form.read(value)
    return _moment(value) if isinstance(kind, Moment) and value else value


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except (EOFError, zlib.error) as error:
        raise InvalidFile(str(path), 1, _TORN) from error
    except gzip.BadGzipFile as error:
        why = f"{error}; give a file of laas-manage db backup"
        raise InvalidFile(str(path), 1, why) from error
    except OSError as error:
        fix = f"give a file that can be read ({error.strerror or error})"
        raise InvalidInput("FILE", str(path), fix) from error


def _value(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise InvalidFile(str(path), number, _TORN) from error


def _header(path: Path, value: Any) -> dict[str, Any]:
    """The header, checked. Raises: InvalidFile."""
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise InvalidFile(str(path), 1, "this is no backup; give a file of laas-manage db backup")
    if value.get("format") != FORMAT or value.get("revision") not in schema.revisions():
        raise InvalidFile(
            str(path),
            1,
            f"it was made by another release (revision {value.get('revision')}, this one knows "
            f"{schema.head()} and older); restore it with that one",
        )
    columns_of = {table.name: set(table.c.keys()) for table in TABLES}
    for name, columns in value["tables"].items():
        if name not in columns_of or not columns_of[name].issuperset(columns):
            raise InvalidFile(str(path), 1, f"there is no such table as {name}, with {columns}")
    return value
