# SPDX-License-Identifier: Apache-2.0

"""Revisions of the schema: the present one, upgrades, and which releases may work with it.

Releases work side by side on one database while a site replaces its processes one after the other.
The tables are upgraded first. So that processes of the release before go on working, a migration
only adds what they need not know. The database says which releases those are (``works_with``).
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    Connection,
    Engine,
    String,
    column,
    delete,
    func,
    insert,
    inspect,
    select,
    table,
    true,
)

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import WRITES, translated
from laas_service.adapters.db.migrations import conversion
from laas_service.domain.errors import Unavailable

_MIGRATIONS = Path(__file__).with_name("migrations")


_LOCK = "laas-schema"

OLDEST = "a100"
"""The revision of the oldest release that works with the tables of this one.

A migration raises it to its own revision if it does anything but add tables, indexes, and columns
that have a default or may be NULL. Names of revisions ascend.
"""

_REVISION = column("version_num", String(32))
_BOTH = select(_REVISION, models.WorksWithRow.oldest).select_from(
    table("alembic_version", _REVISION).outerjoin(models.WorksWithRow, true())
)

PATIENCE = 600
"""Seconds to wait for another process that changes the schema."""


@functools.cache
def head() -> str:
    """The revision that this release needs."""
    from alembic.script import ScriptDirectory  # takes long; most commands never ask

    return ScriptDirectory(str(_MIGRATIONS)).get_current_head() or ""


@functools.cache
def revisions() -> frozenset[str]:
    """All revisions that this release can upgrade."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(_MIGRATIONS)).walk_revisions()
    return frozenset(script.revision for script in scripts)


def current(connection: Connection) -> str | None:
    """The revision of the database; None before the first upgrade."""
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _current_and_oldest(connection: Connection) -> tuple[str | None, str | None]:
    """The revision of the database, and that of the oldest release that works with it."""
    if not inspect(connection).has_table(models.WorksWithRow.__tablename__):
        return current(connection), None
    row = connection.execute(_BOTH).one_or_none()
    return (None, None) if row is None else (row.version_num, row.oldest)


def check(connection: Connection) -> None:
    """Return if this release works with the tables.

    They are those of this release, or of a later one that lets this one go on.

    Raises:
        Unavailable: they are of an earlier release, or this one is too old for them.
    """
    revision, oldest = _current_and_oldest(connection)
    if revision is None or revision < head():
        raise Unavailable(
            f"the database is at revision {revision or 'none'}, this release needs {head()}; "
            "run laas-manage db upgrade"
        )
    if (revision != head() and oldest is None) or (oldest is not None and oldest > head()):
        raise Unavailable(
            f"the database is at revision {revision}, which needs a release of revision "
            f"{oldest or revision} or later; this one is of {head()}: install the later release"
        )


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Upgrade the schema to ``revision``; safe to repeat, also after an interruption.

    One process at a time upgrades; others wait, and then have nothing to do. Tables of a later
    release that this one works with stay as they are.

    Raises:
        Unavailable: the database does not answer, another process takes too long, or this release
            is too old for the tables.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with (
        translated(),
        engine.connect().execution_options(**{WRITES: True}) as connection,
        _alone(connection),
        connection.begin(),
    ):
        present = current(connection)
        if present is not None and present not in revisions():
            if present > head():
                check(connection)
                return
            conversion.refuse_older(present)
        _stop_older(connection)
        if present is not None and present < conversion.TO:
            conversion.convert(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        _stop_older(connection)


def _stop_older(connection: Connection) -> None:
    """Record ``OLDEST``, if there is a table for it: releases before it take no further step.

    Called before a migration as well: MariaDB commits each change of a table, and older processes
    must stop before the first one that they do not survive.
    """
    table = models.WorksWithRow
    if inspect(connection).has_table(table.__tablename__):
        connection.execute(delete(table))
        connection.execute(insert(table).values(oldest=OLDEST))


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
