# SPDX-License-Identifier: Apache-2.0

"""Sessions of a database server: they lead to the primary, and no pooler shares them.

After a failover behind an address that moves, the old server may stay up and keep its sessions,
which read what is past and write nothing. ``watch`` drops them.
"""

import logging
import threading
import time
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

LOG = logging.getLogger(__name__)

_ASTRAY: frozenset[object] = frozenset({"25006", 1290, 1836, 1047})
"""Errors of a server that takes no writes: PostgreSQL's read_only_sql_transaction, MariaDB's
``--read-only`` and ``innodb_read_only``, and a Galera node outside of the primary component."""

_QUESTIONS = {
    "postgresql": "SHOW transaction_read_only",
    "mysql": "SELECT @@global.read_only",
    "mariadb": "SELECT @@global.read_only",
}
"""Whether a session can write, in one statement: the check before each use of a connection."""

_NO = ("0", "off")

READ_ONLY_SECONDS = 1.0
"""How long a connection to a read-only server is used before another one is tried.

The server answers reads meanwhile, and the address may lead to the primary any moment.
"""

SAID_SECONDS = 60.0
"""Seconds between two log lines about a server that is read-only."""

ROUNDS = 2
"""How often ``are_shared`` looks."""

_MARK = "laas.session"


def watch(engine: Engine) -> None:
    """Drop all connections of the pool as soon as one of them leads to a read-only server."""
    dialect = engine.dialect
    ends = dialect.is_disconnect

    def is_disconnect(error: Any, *rest: Any) -> bool:
        return _leads_astray(error) or ends(error, *rest)

    dialect.is_disconnect = is_disconnect  # type: ignore[method-assign,assignment]
    question = _QUESTIONS.get(dialect.name)
    if question is not None:
        check = _Check(question, switches=dialect.name == "postgresql")
        event.listen(engine, "connect", check.connected)
        dialect.do_ping = check.ping  # type: ignore[method-assign,assignment]


def _leads_astray(error: BaseException) -> bool:
    """Whether the error is one of ``_ASTRAY``: a SQLSTATE, or the number in front."""
    first = error.args[0] if error.args else None
    number = first if isinstance(first, int) else None
    return bool(_ASTRAY & {getattr(error, "sqlstate", None), number})


class _Check:
    """The check before each use of a connection; safe to share between threads.

    ``switches`` says that the driver opens no transaction only while ``autocommit`` is set.
    """

    def __init__(self, question: str, *, switches: bool) -> None:
        self._question = question
        self._switches = switches
        self._lock = threading.Lock()
        self._made: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self._said = -SAID_SECONDS

    def connected(self, connection: Any, record: object) -> None:
        with self._lock:
            self._made[connection] = time.monotonic()

    def ping(self, connection: Any) -> bool:
        """False if the pool has to be dropped. Raises: an error of the driver."""
        if self._can_write(connection):
            return True
        now = time.monotonic()
        with self._lock:
            if now - self._made.get(connection, 0.0) < READ_ONLY_SECONDS:
                return True
            says, self._said = now - self._said >= SAID_SECONDS, now
        if says:
            LOG.warning("the database takes no writes over an open connection; connecting anew")
        return False

    def _can_write(self, connection: Any) -> bool:
        switched = self._switches and not connection.autocommit
        if switched:
            connection.autocommit = True
        cursor = connection.cursor()
        try:
            cursor.execute(self._question)
            (answer,) = cursor.fetchone()
        finally:
            cursor.close()
            if switched and not connection.closed:
                connection.autocommit = False
        return str(answer).lower() in _NO


def are_shared(url: URL) -> bool:
    """Whether a pooler lets transactions of one client reach several sessions of the server.

    Each of two connections that are open side by side sets a setting of its own for the session,
    and looks in another transaction, in the other order, whether it has kept it. False also if
    the server does not answer, and for other databases than PostgreSQL.
    """
    if url.get_backend_name() != "postgresql":
        return False
    engine = create_engine(url, poolclass=NullPool)
    try:
        with engine.connect() as first, engine.connect() as second:
            return any(_mixed(first, second) for _ in range(ROUNDS))
    except DBAPIError as error:
        return "statement pooling" in str(error.orig)
    finally:
        engine.dispose()


def _mixed(first: Connection, second: Connection) -> bool:
    """One round of ``are_shared``."""
    marks = {one: uuid4().hex for one in (first, second)}
    for one, mark in marks.items():
        one.execute(select(func.set_config(_MARK, mark, False)))
        one.commit()
    found = {}
    for one in (second, first):
        found[one] = one.scalar(select(func.current_setting(_MARK, True)))
        one.commit()
    return found != marks
