# SPDX-License-Identifier: Apache-2.0

"""Revisions of the schema: the present one, and upgrades."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select

from laas_service.adapters.db.engine import WRITES, translated
from laas_service.domain.errors import Unavailable

_MIGRATIONS = Path(__file__).with_name("migrations")


_LOCK = "laas-schema"

PATIENCE = 600
"""Seconds to wait for another process that changes the schema."""


@functools.cache
def head() -> str:
    """The revision that this release needs."""
    return ScriptDirectory(str(_MIGRATIONS)).get_current_head() or ""


def revisions() -> set[str]:
    """All revisions that this release can upgrade."""
    return {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}


def current(connection: Connection) -> str | None:
    """The revision of the database; None before the first upgrade."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Upgrade the schema to ``revision``; safe to repeat, also after an interruption.

    One process at a time upgrades; others wait, and then have nothing to do.

    Raises:
        Unavailable: the database does not answer, or another process takes too long.
    """
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with (
        translated(),
        engine.connect().execution_options(**{WRITES: True}) as connection,
        _alone(connection),
        connection.begin(),
    ):
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold a lock around the transaction; it ends with the connection at the latest.

    On SQLite the transaction itself is the lock.
    """
    match connection.dialect.name:
        case "postgresql":
            key = func.hashtext(_LOCK)
            lock, unlock = func.pg_advisory_lock(key), func.pg_advisory_unlock(key)
        case "mysql" | "mariadb":
            name = func.concat(_LOCK, "-", func.left(func.md5(func.database()), 32))
            lock, unlock = func.get_lock(name, PATIENCE), func.release_lock(name)
        case _:
            yield
            return
    taken = connection.scalar(select(lock))
    connection.commit()
    if taken == 0:
        raise Unavailable("another process changes the schema; try again")
    try:
        yield
    finally:
        connection.execute(select(unlock))
        connection.commit()
