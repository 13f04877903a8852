# SPDX-License-Identifier: Apache-2.0

"""The order of arrival in which threads, and processes that lose races, decide about a fabric.

Concurrent searches on one ledger tend to choose the same hosts, and only the first commit wins; the
others search and write again. So a thread waits for the previous one. For ``MEMORY`` seconds after
a lost race, its process also waits for the previous process. A process that is alone loses no race,
so it takes no lock.

Each wait is bounded, and correctness never depends on it. Slow searches delay a thread by at most
``PATIENCE`` from its arrival, however many are before it; then it searches beside them.
"""

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from oslo_db.exception import DBError
from sqlalchemy import Connection, Engine, bindparam, func, select, text
from sqlalchemy.exc import SQLAlchemyError

from laas_service.adapters.db.concurrency import session_locks

LOG = logging.getLogger(__name__)

PATIENCE = 0.25
"""Seconds for which a thread waits for those before it, and a process for those before it; most
decisions take a tenth of this."""

MEMORY = 10.0
"""Seconds after a lost race for which a process waits for others."""

_FAILURES = (DBError, SQLAlchemyError)

_KEY = session_locks.postgresql_key("laas-order", bindparam("fabric"))
_NAME = session_locks.mariadb_name("laas-order", bindparam("fabric"))
_TAKE = {
    "postgresql": select(func.pg_advisory_lock(*_KEY)),
    "mysql": select(func.get_lock(_NAME, bindparam("seconds"))),
}
_LEAVE = {
    "postgresql": select(func.pg_advisory_unlock(*_KEY)),
    "mysql": select(func.release_lock(_NAME)),
}


class ThreadOrder:
    """The threads of one process that decide about fabrics, in order of arrival."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._last: dict[str, threading.Event] = {}
        """By fabric: whether the thread that arrived last has left."""
        self._lock = threading.Lock()

    @contextmanager
    def after_previous(self, fabric_id: str) -> Iterator[None]:
        """Enter once the previous thread has left, or after ``patience`` seconds."""
        left = threading.Event()
        with self._lock:
            previous = self._last.get(fabric_id)
            self._last[fabric_id] = left
        try:
            if previous is not None:
                previous.wait(self._patience)
            yield
        finally:
            left.set()


class ProcessOrder:
    """The processes of one database that decide about fabrics, as they asked; for all threads.

    The order is an advisory lock of PostgreSQL or MariaDB, on a connection that is kept for it,
    beside the pool. SQLite has no such lock, and its processes race. ``patience`` in seconds.
    """

    def __init__(self, engine: Engine, *, patience: float = PATIENCE) -> None:
        self._engine = engine
        self._patience = patience
        self._kind = engine.dialect.name.replace("mariadb", "mysql")
        self._lost: defaultdict[str, float] = defaultdict(lambda: -math.inf)
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    def lost(self, fabric_id: str) -> None:
        """A race for this fabric was lost."""
        self._lost[fabric_id] = time.monotonic()

    @contextmanager
    def after_previous(self, fabric_id: str) -> Iterator[None]:
        """Enter once the previous process has left, or after ``patience`` seconds."""
        if self._kind not in _TAKE or time.monotonic() - self._lost[fabric_id] > MEMORY:
            yield
            return
        connection = self._entered(fabric_id)
        try:
            yield
        finally:
            if connection is not None:
                self._leave(connection, fabric_id)

    def _entered(self, fabric_id: str) -> Connection | None:
        """A connection that has the lock; None after ``patience`` seconds, or if that failed."""
        connection = None
        try:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            connection = connection or self._connected()
            values = {"fabric": fabric_id, "seconds": self._patience}
            if connection.scalar(_TAKE[self._kind], values) != 0:
                return connection
        except _FAILURES as error:
            LOG.debug("fabric %s: no order among processes: %s", fabric_id, error)
        if connection is not None:
            self._close(connection)
        return None

    def _connected(self) -> Connection:
        connection = session_locks.connected(self._engine, isolation_level="AUTOCOMMIT")
        if self._kind == "postgresql":
            connection.execute(text(f"SET lock_timeout = {max(1, round(1000 * self._patience))}"))
        return connection

    def _leave(self, connection: Connection, fabric_id: str) -> None:
        try:
            connection.execute(_LEAVE[self._kind], {"fabric": fabric_id})
        except _FAILURES:
            self._close(connection)  # and the lock ends with its session
            return
        with self._lock:
            self._idle.append(connection)

    def _close(self, connection: Connection) -> None:
        with suppress(*_FAILURES):
            connection.close()
