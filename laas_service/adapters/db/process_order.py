# SPDX-License-Identifier: Apache-2.0

"""The order in which processes decide about a fabric, while they lose races against each other.

Two processes that search the same ledger tend to choose the same hosts, and the one that commits
second searches again. So for ``MEMORY`` seconds after a lost race a process waits until the one
before it has decided, as threads of one process do (``thread_order``). A process that is alone
loses no race, so it takes no lock.

The order is an advisory lock of PostgreSQL or MariaDB, which serve processes as they ask. The wait
is bounded, and correctness never depends on it. SQLite has no such lock, and its processes race.
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

from laas_service.adapters.db.thread_order import PATIENCE

LOG = logging.getLogger(__name__)

MEMORY = 10.0
"""Seconds after a lost race for which a process waits for others."""

_FAILURES = (DBError, SQLAlchemyError)

_KEY = func.hashtext("laas-order"), func.hashtext(bindparam("fabric"))
_NAME = func.concat("laas-order-", func.md5(func.concat(func.database(), "/", bindparam("fabric"))))
_TAKE = {
    "postgresql": select(func.pg_advisory_lock(*_KEY)),
    "mysql": select(func.get_lock(_NAME, bindparam("seconds"))),
}
_LEAVE = {
    "postgresql": select(func.pg_advisory_unlock(*_KEY)),
    "mysql": select(func.release_lock(_NAME)),
}


class ProcessOrder:
    """The order of the processes on one database; safe to share between threads.

    Each lock is on a connection that is kept for it, beside the pool. ``patience`` in seconds.
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
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # the pool is for transactions, which are short
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
