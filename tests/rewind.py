# SPDX-License-Identifier: Apache-2.0

"""Takes a database back to an earlier moment under running processes.

A failover to a replica without the last commits and a recovery of an earlier time look like this
to the processes: from one transaction to the next, the rows are older.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import WRITES, consistent_read

Rows = dict[str, list[dict[str, Any]]]
"""By table, in an order in which they can be inserted."""


def copy(engine: sa.Engine) -> Rows:
    """All rows as committed now."""
    with consistent_read(engine) as connection:
        return {table.name: _rows(connection, table) for table in _tables(connection)}


def put_back(engine: sa.Engine, rows: Rows) -> None:
    """Replace all rows by a copy, in one transaction."""
    with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        tables = _tables(connection)
        for table in reversed(tables):
            if "parent" in table.c and "scope" in table.c:  # claims inside a container go first
                connection.execute(sa.delete(table).where(table.c.parent.is_not(None)))
            connection.execute(sa.delete(table))
        for table in tables:
            if rows[table.name]:
                connection.execute(sa.insert(table), rows[table.name])


def _tables(connection: sa.Connection) -> list[sa.Table]:
    present = set(sa.inspect(connection).get_table_names())
    return [table for table in models.Base.metadata.sorted_tables if table.name in present]


def _rows(connection: sa.Connection, table: sa.Table) -> list[dict[str, Any]]:
    query = sa.select(table)
    if "scope" in table.c:
        query = query.order_by(table.c.scope)
    return [dict(row) for row in connection.execute(query).mappings()]
