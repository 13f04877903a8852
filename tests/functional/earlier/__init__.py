# SPDX-License-Identifier: Apache-2.0

"""Databases of the last two states before 1.0.0; go with ``migrations/conversion``.

The rows are those that the code of each state wrote, in all its tables: every kind of tenancy, a
change and a move under way, a queue with a plan, faults, drains, and partition keys.
"""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from laas_service.adapters.db import models, schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.migrations import conversion
from laas_service.adapters.db.types import Moment, Packed, Serial, Stored

FULL = {"pkey": "0", "forgotten": "0"}
"""Columns that had a value in every row."""


PARTS = tuple(part for part in models.PARTS if part is not models.EvidencePart)
"""The parts of an allocation that 1.0.0 has; later migrations make the others."""


def columns() -> list[sa.Column[Any]]:
    """The columns of ``allocation`` that 1.0.0 has elsewhere."""
    parts = [c for part in PARTS for c in part.__table__.c if c.name != "allocation"]
    given = [
        sa.Column(
            c.name,
            _plain(c.type),
            nullable=c.name not in FULL,
            server_default=FULL.get(c.name),
        )
        for c in parts
    ]
    return [*given, sa.Column("container", sa.Boolean(), nullable=False, server_default=sa.false())]


def rows(revision: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, with values as Python has them."""
    read = json.loads((Path(__file__).parent / f"{revision}.json").read_text())["tables"]
    return {
        name: [
            {
                key: _value(_type(name, key), one)
                for key, one in zip(each["columns"], row, strict=True)
            }
            for row in each["rows"]
        ]
        for name, each in read.items()
    }


def read(revision: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, with the values that this release makes of their documents."""
    dialect = sa.engine.default.DefaultDialect()

    def value(table: str, key: str, found: Any) -> Any:
        kind = _present(table, key)
        return kind.process_result_value(found, dialect) if isinstance(kind, Stored) else found

    return {
        table: [{key: value(table, key, found) for key, found in row.items()} for row in given]
        for table, given in rows(revision).items()
    }


def _present(table: str, name: str) -> Any:
    """The type of the column of this release that has the values."""
    tables = models.Base.metadata.tables
    places = [tables[table], *(tables[part.__tablename__] for part in PARTS)]
    return next((place.c[name].type for place in places if name in place.c), None)


def _type(table: str, name: str) -> Any:
    present = models.Base.metadata.tables[table].c
    if name in present:
        return _plain(present[name].type)
    return next(column.type for column in columns() if column.name == name)


def _plain(kind: Any) -> Any:
    """The type of a column without the values that this release makes of its documents."""
    if isinstance(kind, Stored):
        return Packed() if kind.packed else sa.JSON(none_as_null=True)
    return sa.JSON(none_as_null=True) if isinstance(kind, sa.JSON) else kind


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Packed):
        return kind.process_result_value(
            base64.b64decode(value["b64"]), sa.engine.default.DefaultDialect()
        )
    if isinstance(kind, Moment):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    if isinstance(kind, sa.JSON):
        return json.loads(value)
    return bool(value) if isinstance(kind, sa.Boolean) else value


def make(url: str, revision: str) -> str:
    """Make the tables of a revision, with rows; returns ``url``."""
    engine = connect(url)
    schema.upgrade(engine, conversion.TO)
    with engine.begin() as connection:
        changes = Operations(MigrationContext.configure(connection))
        for part in PARTS:
            changes.drop_table(part.__tablename__)
        for column in columns():
            changes.add_column("allocation", column)
        changes.drop_column("allocation", "kind")
        if revision < "a052":
            changes.drop_column("fabric", "went_forward")
        connection.execute(sa.text(f"update alembic_version set version_num = '{revision}'"))
        connection.execute(sa.text("delete from works_with"))
        for name, given in rows(revision).items():
            if not given:
                continue
            kept = [key for key in given[0] if _type(name, key) is not Serial]
            table = sa.table(name, *(sa.Column(key, _type(name, key)) for key in kept))
            for row in given:  # one by one, so that their numbers are in this order
                connection.execute(sa.insert(table).values({key: row[key] for key in kept}))
    engine.dispose()
    return url
