# SPDX-License-Identifier: Apache-2.0

"""A private PostgreSQL for a test, on a socket in its directory.

    with PostgreSql() as server:
        engine = connect(server.database())

The data need not survive a crash, so the server never waits for the disk. The server refuses
to run as root: if root runs the test, the server runs as Debian's user ``postgres``.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from tests.servers.daemon import Daemon
from tests.waiting import eventually

ENDS = 5.0
"""Seconds for transactions to end in a server that retires."""

_PROGRAMS = max(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parent.name, default=None
)
"""Directories of the server's programs: Debian has one for each release, outside PATH."""

AVAILABLE = bool(_PROGRAMS or shutil.which("initdb"))
"""Whether the package postgresql is installed."""


class PostgreSql(Daemon):
    end = signal.SIGQUIT

    def __init__(self, *, disk: int = 0) -> None:
        super().__init__("postgresql", user="postgres", disk=disk)
        self._size = disk
        self.data = self.directory / "data"

    def prepare(self) -> None:
        self.run(
            _tool("initdb"),
            *("-D", str(self.data), "-U", "laas", "-A", "trust", "-E", "UTF8"),
            *("--locale", "C.UTF-8", "--no-sync"),
        )

    def command(self) -> Sequence[str]:
        settings = {
            "unix_socket_directories": str(self.directory),
            "listen_addresses": "",
            "fsync": "off",
            "max_connections": "100",
        }
        if self._size:
            settings |= {"max_wal_size": "64MB", "min_wal_size": "32MB"}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return (_tool("postgres"), "-D", str(self.data), *options)

    def ready(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def database(self, name: str | None = None, like: str = "template1") -> str:
        """The URL of a new database; its name is unique unless ``name`` is given.

        It is empty, or a copy of the database ``like``, which nobody uses meanwhile.
        """
        name = name or f"t{uuid4().hex}"
        with self._connect() as connection:
            connection.autocommit = True
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{like}"'.encode())
        return f"postgresql+psycopg://laas@/{name}?host={self.directory}"

    # -- failover ---------------------------------------------------------------

    @property
    def address(self) -> Path:
        """The socket."""
        return self.directory / ".s.PGSQL.5432"

    def standby(self, former: PostgreSql | None = None) -> PostgreSql:
        """A running server that streams what this one commits; ends the ``former`` primary."""
        if former is not None:
            former.close()
        standby = _Standby(self)
        standby.__enter__()
        return standby

    def retire(self) -> None:
        """Take no more writes, with all idle sessions left open.

        Transactions that began before may go on; those that do not end soon are ended.
        """
        self._run("ALTER SYSTEM SET default_transaction_read_only = on")
        self._run("SELECT pg_reload_conf()")
        eventually(lambda: self._run("SHOW default_transaction_read_only") == "on", "read-only")
        others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND xact_start < "
        time.sleep(0.5)  # the other sessions read the settings, too
        others += f"'{self._run('SELECT now()')}' AND pid <> pg_backend_pid()"
        until = time.monotonic() + ENDS
        while self._run(f"SELECT count(*) {others}"):
            if time.monotonic() > until:
                self._run(f"SELECT count(pg_terminate_backend(pid)) {others}")
            time.sleep(0.05)  # between two looks at the transactions

    def promote(self, old: PostgreSql) -> None:
        """Become the primary, once everything that ``old`` committed is here."""
        last = old._run("SELECT pg_current_wal_lsn()")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{last}'"
        eventually(lambda: bool(self._run(query)), "everything is replayed")
        self._run("SELECT pg_promote()")

    def _run(self, query: str) -> Any:
        """The first value of an answer, None if there is none."""
        with self._connect() as connection:
            connection.autocommit = True
            cursor = connection.execute(query.encode())
            return cursor.fetchall()[0][0] if cursor.description else None

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(host=str(self.directory), user="laas", dbname="postgres")


class _Standby(PostgreSql):
    def __init__(self, primary: PostgreSql) -> None:
        super().__init__(disk=primary._size)
        self._primary = primary

    def prepare(self) -> None:
        self.run(
            _tool("pg_basebackup"),
            *("-h", str(self._primary.directory), "-U", "laas", "-D", str(self.data)),
            *("--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
        )


def _tool(name: str) -> str:
    return str(_PROGRAMS / name) if _PROGRAMS else name
