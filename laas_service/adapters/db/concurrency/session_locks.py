# SPDX-License-Identifier: Apache-2.0

"""Names and connections of advisory locks, which PostgreSQL and MariaDB keep for a session."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, func


def postgresql_key(
    purpose: str, fabric: str | ColumnElement[str]
) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """The two numbers that name a lock in its database."""
    return func.hashtext(purpose), func.hashtext(fabric)


def mariadb_name(purpose: str, fabric: str | ColumnElement[str]) -> ColumnElement[str]:
    """A lock's name: all databases of a server share them, and they have up to 64 characters."""
    return func.concat(f"{purpose}-", func.md5(func.concat(func.database(), "/", fabric)))


def connected(engine: Engine, **options: Any) -> Connection:
    """A connection for a lock, outside the pool, which is for short transactions.

    ``options`` as for SQLAlchemy's ``Connection.execution_options``.
    """
    connection = engine.connect().execution_options(**options)  # a detached one takes no options
    connection.detach()
    return connection
