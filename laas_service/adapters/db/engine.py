# SPDX-License-Identifier: Apache-2.0

"""Connections and transactions, and the translation of their errors.

SQLAlchemy takes longer to build a statement than SQLite to carry it out. So those that requests and
steps need often are built once, as constants of their modules, with ``bindparam`` for values.
"""

import logging
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
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
    Insert,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.orm import DeclarativeBase, Session
from tenacity import Retrying, wait_random_exponential

from laas_service.adapters.db import database_url, sessions
from laas_service.app import retries
from laas_service.domain.errors import ConcurrentUpdate, DoubleClaim, InvalidInput, Unavailable

WRITES = "laas_writes"
"""Execution option of connections whose transaction will write."""

_WRITER = "laas_writer"
"""Execution option of a SQLite engine: the lock of the thread whose transaction writes.

Threads that wait for the file's lock poll it, up to ten times a second and in no order; a thread
that waits for this one goes on as soon as it is free.
"""

_FAILED = "laas_failed"
"""Execution option of an engine: its ``FailedWrites``."""

_FAILURES = (db_exc.DBError, sqlalchemy.exc.OperationalError, sqlalchemy.exc.TimeoutError)
"""oslo.db does not translate operational errors other than disconnections (a full disk)."""

_UNHELD = re.compile(r"Incorrect string value|has no equivalent in encoding")
"""How MariaDB and PostgreSQL say that a database's character set cannot hold a text."""

_CHECK = re.compile(r"CHECK constraint failed|CONSTRAINT `\w+` failed")
"""How SQLite and MariaDB say that a CHECK forbids a row; oslo.db knows PostgreSQL's error."""

ATTEMPTS = 20
"""Attempts at a transaction that the database rolls back in favour of concurrent ones.

Galera lets one of two transactions on two nodes lose when it commits, and a busy fabric has many.
"""

PAUSE = wait_random_exponential(multiplier=0.04, max=1.0)
"""Seconds between two attempts: at random, up to twice as many after each."""

BUSY_TIMEOUT_MS = 30_000
"""How long a SQLite transaction waits for another one to end."""

BUSY_POLL = 0.001
"""Seconds between two attempts to begin to write. SQLite itself waits up to 0.1 s, which lets a
process with many short transactions, such as the worker, overtake another one again and again."""

IDLE_SECONDS = 30
"""How long a transaction may be idle before PostgreSQL or MariaDB ends it.

A stopped process (on a paused machine) would hold its locks for ever, and no other worker could
take over its fabrics.
"""


class FailedWrites:
    """How many transactions of an engine that write have failed, and the newest error."""

    def __init__(self) -> None:
        self.count = 0
        self.newest = ""

    def add(self, error: Unavailable) -> None:
        self.count, self.newest = self.count + 1, str(error)


def failed_writes(engine: Engine) -> FailedWrites:
    """Those of an engine that ``connect`` made."""
    return cast("FailedWrites", engine.get_execution_options()[_FAILED])


def connect(url: str, **options: Any) -> Engine:
    """An engine for the database; ``options`` as for oslo.db's ``create_engine``.

    SQLite ignores them; the directory of its file is created if it does not exist.

    Raises:
        InvalidInput: the URL is wrong, its driver is not installed, or a pooler shares sessions.
        Unavailable: the database does not answer.
    """
    database = database_url.parsed(url)
    with translated():
        if database.get_backend_name() == "sqlite":
            engine = _sqlite(database)
        else:
            _check_driver(database)
            engine = _server(database, options)
    engine.update_execution_options(**{_FAILED: FailedWrites()})
    pool = type(engine.pool)
    logging.getLogger(f"{pool.__module__}.{pool.__qualname__}").addFilter(_in_one_line)
    return engine


def absent(url: str) -> bool:
    """Whether the database is a file that does not exist yet; ``connect`` and a use make it.

    Raises: InvalidInput.
    """
    database = database_url.parsed(url)
    file = database.database if database.get_backend_name() == "sqlite" else None
    return bool(file) and not Path(str(file)).exists()


def _server(url: URL, options: Mapping[str, Any]) -> Engine:
    """An engine for a server. Raises: as ``connect``, without the URL's secrets."""
    if sessions.are_shared(url):
        raise database_url.wrong(
            "a pooler between the service and PostgreSQL shares sessions, whose locks and settings "
            "the service needs: with pgbouncer set pool_mode = session for this database, or name "
            "the server itself"
        )
    redaction = database_url.Redaction(url)
    said: dict[logging.Logger, Any] = {
        logging.getLogger("oslo_db.sqlalchemy.engines"): redaction,
        logging.getLogger("oslo_db.sqlalchemy.exc_filters"): _nothing,  # the error is raised here
    }
    for logger, hides in said.items():
        logger.addFilter(hides)
    try:
        engine: Engine = engines.create_engine(url, **options)
    except (db_exc.DBConnectionError, sqlalchemy.exc.OperationalError) as error:
        first, *_ = redaction.without_secrets(str(error)).splitlines()
        raise Unavailable(f"the database failed: {first}") from None
    except (TypeError, ValueError, sqlalchemy.exc.ArgumentError, db_exc.DBError):
        fix = "the driver refuses an option after the ?, or a value there; see its documentation"
        raise database_url.wrong(fix) from None
    finally:
        for logger, hides in said.items():
            logger.removeFilter(hides)
    sessions.watch(engine)
    event.listen(engine, "connect", _server_connected)
    engine.dispose()  # the connection that oslo.db tried
    return engine


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _check_driver(url: URL) -> None:
    """Raises: InvalidInput, if there is no such driver."""
    try:
        url.get_dialect().import_dbapi()
    except (NoSuchModuleError, ModuleNotFoundError):
        raise database_url.wrong(
            "its driver is not installed; pip install 'laas-service[mysql]' or "
            "'laas-service[postgresql]', with mysql+pymysql:// or postgresql+psycopg://"
        ) from None


def _in_one_line(record: logging.LogRecord) -> bool:
    """Log a lost connection without a traceback: its user got an error, and the pool has others."""
    if record.exc_info and (error := record.exc_info[1]) is not None:
        text = " ".join(str(error).split()) or type(error).__name__
        record.msg, record.args = f"{record.getMessage()}: {text}", ()
        record.exc_info, record.exc_text = None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def _sqlite(url: URL) -> Engine:
    """An engine without oslo.db's listeners, which begin all transactions as readers."""
    if url.database:
        _make_directory(Path(url.database).parent)
    engine = create_engine(url)
    engine.update_execution_options(**{_WRITER: threading.Lock()})
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
    """Readers never wait for a writer, and commits survive a power cut."""
    connection.isolation_level = None  # the driver leaves BEGIN to us
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _sqlite_begin(connection: Connection) -> None:
    """Take the write lock at the start: a reader that becomes a writer fails instead of waiting."""
    if not connection.get_execution_options().get(WRITES):
        connection.exec_driver_sql("BEGIN")
        return
    driver = cast("sqlite3.Connection", connection.connection.driver_connection)
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        _wait_and_begin(driver)
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # fails again, as SQLAlchemy's error
    finally:
        driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def _wait_and_begin(driver: sqlite3.Connection) -> None:
    """Begin to write once no other process does; gives up after ``BUSY_TIMEOUT_MS``."""
    last = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while not driver.in_transaction and time.monotonic() < last:
        try:
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                return
            time.sleep(BUSY_POLL)


def _server_connected(connection: Any, record: object) -> None:
    """See ``IDLE_SECONDS``. MySQL has no such limit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT version()")
        (version,) = cursor.fetchone()
        if "MariaDB" in version:
            cursor.execute(f"SET SESSION idle_transaction_timeout = {IDLE_SECONDS}")
            cursor.execute("SHOW VARIABLES LIKE 'wsrep_on'")
            if (galera := cursor.fetchone()) is not None and galera[1] == "ON":
                cursor.execute("SET SESSION wsrep_sync_wait = 7")  # see other nodes' commits
        elif "PostgreSQL" in version:
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'")
    connection.commit()


@contextmanager
def translated() -> Iterator[None]:
    """Translate the database's errors into those of ``domain.errors``, except duplicate entries.

    Raises:
        InvalidInput: the database's character set cannot hold a text.
        DoubleClaim: a CHECK forbids a row.
        ConcurrentUpdate: the database rolled this transaction back in favour of another.
        Unavailable: the transaction failed, or its outcome is unknown.
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
        if _UNHELD.search(str(error)):
            raise _unheld(error) from error
        first, *_ = str(error).splitlines() or [type(error).__name__]
        if isinstance(error, db_exc.DBConstraintError) or _CHECK.search(first):
            raise DoubleClaim(f"the database refuses a row: {first}") from error
        raise Unavailable(f"the database failed: {first}") from error


def _unheld(error: Exception) -> InvalidInput:
    """Names the parameter with a text that a database's character set cannot hold."""
    cause = getattr(error, "inner_exception", error)
    params = getattr(cause, "params", None) or {}
    rows = params if isinstance(params, list | tuple) else [params]
    texts = [
        (name.partition("__")[0], value)
        for row in rows
        if isinstance(row, Mapping)
        for name, value in row.items()
        if isinstance(value, str) and not value.isascii()
    ]
    name, value = max(texts, key=lambda text: max(text[1]), default=("text", ""))
    fix = "the database's character set cannot hold it; use other characters, or give the service "
    return InvalidInput(name, value, f"{fix}a database in UTF-8 (MariaDB: utf8mb4)")


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Session]:
    """A transaction that writes; it commits at the end, and rolls back on an exception."""
    try:
        with translated(), _writer(engine), Session(engine) as session:
            session.connection(execution_options={WRITES: True})
            yield session
            session.commit()
    except Unavailable as error:
        failed_writes(engine).add(error)
        raise


@contextmanager
def _writer(engine: Engine) -> Iterator[None]:
    """Wait until no other thread writes to this SQLite database; see ``BUSY_TIMEOUT_MS``."""
    lock: threading.Lock | None = engine.get_execution_options().get(_WRITER)
    if lock is None:
        yield
        return
    if not lock.acquire(timeout=BUSY_TIMEOUT_MS / 1000):
        raise Unavailable(
            "the database failed: a transaction of another thread of this process has not ended "
            f"for {BUSY_TIMEOUT_MS / 1000:g} s; restart the process if this goes on"
        )
    try:
        yield
    finally:
        lock.release()


@contextmanager
def consistent_read(engine: Engine) -> Iterator[Connection]:
    """A read transaction in which all statements see one state of the database."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with (
        translated(),
        engine.connect().execution_options(**level) as connection,
        connection.begin(),
    ):
        yield connection


def gave_way(error: ConcurrentUpdate) -> bool:
    """Whether the database rolled a transaction back in favour of another one."""
    return isinstance(error.__cause__, db_exc.DBDeadlock)


def retrying() -> Retrying:
    """Repeats a step that lost to a concurrent update, up to ``ATTEMPTS`` times."""
    return retries.retrying(ConcurrentUpdate, attempts=ATTEMPTS, wait=PAUSE)


@cache
def _insertion(table: type[DeclarativeBase]) -> Insert:
    return insert(cast("Table", table.__table__))


_Rows = dict[tuple[type[DeclarativeBase], tuple[str, ...]], list[Mapping[str, Any]]]
_COLLECTED = "rows that are inserted together"


def insert_rows(session: Session, table: type[DeclarativeBase], *rows: Mapping[str, Any]) -> None:
    """Insert rows, each with the values of the same columns; see ``inserting_together``."""
    if not rows:
        return
    collected: _Rows | None = session.info.get(_COLLECTED)
    if collected is not None:
        collected.setdefault((table, tuple(rows[0])), []).extend(rows)
    else:
        session.execute(_insertion(table), rows[0] if len(rows) == 1 else rows)


@contextmanager
def inserting_together(session: Session) -> Iterator[None]:
    """Insert the rows of each table at the end, in one statement, by the order of first use."""
    collected: _Rows = session.info.setdefault(_COLLECTED, {})
    try:
        yield
    finally:
        del session.info[_COLLECTED]
    for (table, _), rows in collected.items():
        insert_rows(session, table, *rows)


def rows_changed(
    session: Session, step: Executable, values: Mapping[str, Any] | None = None
) -> int:
    """The number of rows that an update or a deletion matched."""
    return cast("CursorResult[Any]", session.execute(step, values)).rowcount


_SAFE = {
    "postgresql": {
        "fsync": ("on",),
        "full_page_writes": ("on",),
        "synchronous_commit": ("on", "local", "remote_write", "remote_apply"),
        "default_transaction_isolation": ("read committed", "repeatable read"),
    },
    "mysql": {
        "innodb_flush_log_at_trx_commit": ("1",),
        "innodb_doublewrite": ("1",),
        "sync_binlog": ("1",),
        "tx_isolation": ("READ-COMMITTED", "REPEATABLE-READ"),
    },
}
"""Settings of a server, and the values with which an acknowledged commit survives its crash."""


def weak_settings(engine: Engine) -> list[str]:
    """Settings of the server with which a crash may lose acknowledged commits, a sentence each.

    Raises: Unavailable.
    """
    kind = engine.dialect.name.replace("mariadb", "mysql")
    weak = []
    with translated(), engine.connect() as connection:
        for name, safe in _SAFE.get(kind, {}).items():
            if name == "sync_binlog" and str(_setting(connection, "log_bin")) == "0":
                continue
            value = _setting(connection, name)
            if value is not None and value not in safe:
                weak.append(
                    f"the database has {name} = {value}, and may lose or mix acknowledged "
                    f"requests; use {' or '.join(safe)}"
                )
    return weak


def narrow_characters(engine: Engine) -> list[str]:
    """Why the database cannot hold every name, a sentence each. Raises: Unavailable."""
    with translated(), engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            found = connection.scalar(text("SHOW server_encoding"))
            narrow = (
                [] if found in ("UTF8", "SQL_ASCII") else [f"the database has encoding {found}"]
            )
        elif connection.dialect.name in ("mysql", "mariadb"):
            columns = connection.execute(_NARROW).all()
            narrow = [
                f"{table}.{column} has character set {name}" for table, column, name in columns
            ]
            found = connection.scalar(text("SELECT @@character_set_database"))
            if found != "utf8mb4":
                narrow.insert(0, f"the database has character set {found}")
        else:
            return []
    fix = "texts with other characters are refused; convert it to UTF-8 (MariaDB: utf8mb4)"
    return [f"{'; '.join(narrow)}: {fix}"] if narrow else []


_NARROW = text(
    "SELECT table_name, column_name, character_set_name FROM information_schema.columns "
    "WHERE table_schema = database() AND character_set_name <> 'utf8mb4' "
    "ORDER BY table_name, column_name"
)


def _setting(connection: Connection, name: str) -> str | None:
    """A setting of the server; None if it has none of that name."""
    if connection.dialect.name == "postgresql":
        query = select(func.current_setting(name, True))
        return cast("str | None", connection.scalar(query))
    row = connection.execute(text("SHOW VARIABLES LIKE :name"), {"name": name}).first()
    return None if row is None else {"ON": "1", "OFF": "0"}.get(str(row[1]), str(row[1]))
