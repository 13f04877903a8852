# SPDX-License-Identifier: Apache-2.0

"""Locks that give a decision priority, once it has lost several races for its fabric.

The database keeps the lock for a session: an advisory lock of PostgreSQL or MariaDB, named after
the fabric. SQLite has none, but its processes share a machine, so the lock is on a file beside the
database. The lock ends with the process that holds it, and needs no table.

Newcomers do not take the lock. In the transaction in which they would commit, they see that another
decision has priority; they roll back, wait, and search again. Releases, states of hosts and links,
and all other fabrics go on. If the holder is stuck, others overrun it.
"""

import fcntl
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oslo_db.exception import DBError
from sqlalchemy import ColumnElement, Connection, Engine, func, literal, not_, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.concurrency import session_locks
from laas_service.adapters.db.engine import translated
from laas_service.adapters.db.generations import stamp_of
from laas_service.domain.errors import NotFound, Unavailable

PATIENCE = 30.0
"""Seconds for which a decision respects another one's priority; that process may be stopped."""

POLL = 0.02
"""Seconds between two checks whether a lock is free."""

_PURPOSE = "laas-turn"
"""Names the locks; the earlier releases of a rolling upgrade look for this name."""


class PriorityLocks:
    """The priority locks of one database, one a fabric; safe to share between threads.

    ``patience`` in seconds, see ``PATIENCE``.
    """

    def __init__(self, engine: Engine, *, patience: float = PATIENCE) -> None:
        self._engine = engine
        self._patience = patience
        self._applicants: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._watchers: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._next: defaultdict[str, float] = defaultdict(float)

    def locked_generation(self, session: Session, fabric_id: str) -> tuple[int, str, bool]:
        """The fabric's generation with its stamp, and whether another session has priority.

        The generation cannot move on before this transaction ends. Raises: NotFound.
        """
        table = models.FabricRow
        query = select(table.generation, table.stamp, self._is_taken(fabric_id))
        query = query.where(table.id == fabric_id).with_for_update()
        row = session.execute(query).one_or_none()
        if row is None:
            raise NotFound("fabric", fabric_id)
        generation, stamp, taken = row
        return generation, stamp_of(generation, stamp), bool(taken)

    @contextmanager
    def held(self, fabric_id: str) -> Iterator[None]:
        """Have priority, or overrun its holder after ``patience`` seconds. Raises: Unavailable.

        PostgreSQL and MariaDB serve processes in the order in which they asked. On SQLite the
        next decision of the same process waits a little, so that other processes see that the
        lock is free.
        """
        until = time.monotonic() + self._patience
        mutex = self._applicants[fabric_id]
        alone = mutex.acquire(timeout=self._patience)
        try:
            with self._locked(fabric_id, until):
                yield
        finally:
            if alone:
                mutex.release()

    def wait_until_free(self, fabric_id: str) -> bool:
        """Return True once no decision has priority, False if one still has after ``patience``.

        Only one of the waiting threads polls the database at a time. Raises: Unavailable.
        """
        until = time.monotonic() + self._patience
        watching = self._watchers[fabric_id]
        if not watching.acquire(timeout=self._patience):
            return False
        try:
            while self._is_taken_now(fabric_id):
                if time.monotonic() >= until:
                    return False
                time.sleep(POLL)
            return True
        finally:
            watching.release()

    def _is_taken_now(self, fabric_id: str) -> bool:
        with translated(), self._engine.connect() as connection:
            return bool(connection.scalar(select(self._is_taken(fabric_id))))

    # -- by database ------------------------------------------------------------

    def _is_taken(self, fabric_id: str) -> ColumnElement[Any]:
        """Whether another session has the lock, as a column of a query."""
        match self._engine.dialect.name:
            case "postgresql":
                key = session_locks.postgresql_key(_PURPOSE, fabric_id)
                return not_(func.pg_try_advisory_xact_lock_shared(*key))
            case "mysql" | "mariadb":
                name = session_locks.mariadb_name(_PURPOSE, fabric_id)
                return func.is_used_lock(name).is_not(None)
            case _:
                return literal(self._is_locked(fabric_id))

    def _is_locked(self, fabric_id: str) -> bool:
        path = self._file(fabric_id)
        if path is None or not path.exists():  # without a file no decision ever had priority
            return False
        file = _try_lock(path, fcntl.LOCK_SH)
        if file is not None:
            os.close(file)
        return file is None

    @contextmanager
    def _locked(self, fabric_id: str, until: float) -> Iterator[None]:
        if self._engine.dialect.name == "sqlite":
            path = self._file(fabric_id)
            if path is None:
                yield
                return
            time.sleep(max(0, self._next[fabric_id] - time.monotonic()))
            while (file := _try_lock(path, fcntl.LOCK_EX)) is None and time.monotonic() < until:
                time.sleep(POLL)
            try:
                yield
            finally:
                if file is not None:
                    os.close(file)
                self._next[fabric_id] = time.monotonic() + 2 * POLL
            return
        with translated():
            connection = session_locks.connected(self._engine)
        try:
            with translated():
                self._apply(connection, fabric_id, until)
            yield
        finally:
            connection.close()

    def _apply(self, connection: Connection, fabric_id: str, until: float) -> None:
        """Take the lock for the session; the database serves waiting sessions in order."""
        seconds = max(until - time.monotonic(), 1e-3)
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SET lock_timeout = {round(1000 * seconds)}"))
            key = session_locks.postgresql_key(_PURPOSE, fabric_id)
            query = select(func.pg_advisory_lock(*key))
        else:
            name = session_locks.mariadb_name(_PURPOSE, fabric_id)
            query = select(func.get_lock(name, seconds))
        try:
            connection.execute(query)
        except (DBError, OperationalError):
            if time.monotonic() < until:
                raise
        connection.rollback()

    def _file(self, fabric_id: str) -> Path | None:
        """The file of the lock; None for a database in memory, which one process has."""
        database = self._engine.url.database
        return Path(f"{database}-turn-{fabric_id}") if database else None


def _try_lock(path: Path, operation: int) -> int | None:
    """Open the file and lock it until it is closed; None if another session has the lock."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise Unavailable(f"the lock {path} cannot be opened: {error}") from error
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
