# SPDX-License-Identifier: Apache-2.0


"""Connections, and the translation of what can go wrong with them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import sqlalchemy.exc
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import engines, exc_filters
from sqlalchemy import (
    URL,
    Connection,
    CursorResult,
    Engine,
    Executable,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.orm import Session
from tenacity import Retrying, wait_random

from laas_service.app import retries
from laas_service.domain.errors import ConcurrentUpdate, Unavailable

WRITES = "laas_writes"
"""Execution option of connections whose transaction is going to write."""

_FAILURES = (db_exc.DBError, sqlalchemy.exc.OperationalError, sqlalchemy.exc.TimeoutError)
"""oslo.db hands operational errors that are no disconnection (a full disk) through as they are."""

ATTEMPTS = 5
"""Tries of a transaction that the database makes give way to another one."""

BUSY_TIMEOUT_MS = 30_000
"""How long a SQLite transaction waits for another one to end."""

IDLE_SECONDS = 30
"""How long a process may stand still in a transaction before PostgreSQL or MariaDB ends it.

A process that is stopped (a machine that is paused) would keep what it has locked for ever,
and nobody could take over from it.
"""


def connect(url: str, **options: Any) -> Engine:
    """An engine for the database; ``options`` as for oslo.db's ``create_engine``.

    SQLite needs none of them; the directory of its file is made if it is not there.

    Raises:
        Unavailable: the database does not answer.
    """
    database = make_url(url)
    with translated():
        if database.get_backend_name() == "sqlite":
            engine = _sqlite(database)
        else:
            engine = engines.create_engine(url, **options)
            event.listen(engine, "connect", _server_connected)
            engine.dispose()  # the connection it was tried with
    pool = type(engine.pool)
    logging.getLogger(f"{pool.__module__}.{pool.__qualname__}").addFilter(_in_one_line)
    return engine


def _in_one_line(record: logging.LogRecord) -> bool:
    """A connection that is found lost when it goes back to the pool needs no traceback: who
    used it is told, and the next one is given another."""
    if record.exc_info and (error := record.exc_info[1]) is not None:
        said = " ".join(str(error).split()) or type(error).__name__
        record.msg, record.args = f"{record.getMessage()}: {said}", ()
        record.exc_info, record.exc_text = None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def _sqlite(url: URL) -> Engine:
    """Not oslo.db's engine, whose transactions all begin as readers."""
    if url.database:
        _make_directory(Path(url.database).parent)
    engine = create_engine(url)
    exc_filters.register_engine(engine)
    event.listen(engine, "connect", _sqlite_connected)
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"the directory of the database cannot be made: {error}") from error


def _sqlite_connected(connection: Any, record: object) -> None:
    """Readers never wait for a writer, and what was committed survives a power cut."""
    connection.isolation_level = None  # the driver leaves BEGIN to us
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _sqlite_begin(connection: Connection) -> None:
    """Take the write lock at the start: a reader that becomes a writer cannot wait for it."""
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _server_connected(connection: Any, record: object) -> None:
    """See ``IDLE_SECONDS``. MySQL has no such limit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT version()")
        (version,) = cursor.fetchone()
        if "MariaDB" in version:
            cursor.execute(f"SET SESSION idle_transaction_timeout = {IDLE_SECONDS}")
        elif "PostgreSQL" in version:
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'")
    connection.commit()


@contextmanager
def translated() -> Iterator[None]:
    """Turn the database's errors into ours; a duplicate entry stays what it is.

    Raises:
        ConcurrentUpdate: the database chose this transaction to give way.
        Unavailable: it did not carry the transaction out, or did not say so.
    """
    try:
        yield
    except db_exc.DBDuplicateEntry:
        raise
    except db_exc.DBDeadlock as error:
        raise ConcurrentUpdate("another transaction was faster; try again") from error
    except db_exc.DBNonExistentTable as error:
        raise Unavailable("the database has no tables; run laas-manage db upgrade") from error
    except _FAILURES as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise Unavailable(f"the database failed: {first}") from error


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """A transaction that writes; committed at the end, or it leaves nothing behind."""
    with translated(), Session(engine) as session:
        session.connection(execution_options={WRITES: True})
        yield session
        session.commit()


@contextmanager
def still(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads, and sees one state of the database all the time."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with (
        translated(),
        engine.connect().execution_options(**level) as connection,
        connection.begin(),
    ):
        yield connection


def retrying() -> Retrying:
    """Again when somebody else was faster, so that nobody who asks gets to see that."""
    return retries.retrying(ConcurrentUpdate, attempts=ATTEMPTS, wait=wait_random(0, 0.05))


def matched(session: Session, step: Executable) -> int:
    """How many rows an update or a deletion found."""
    return cast("CursorResult[Any]", session.execute(step)).rowcount
