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
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import psycopg

from tests.servers.daemon import Daemon

_PROGRAMS = max(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parent.name, default=None
)
"""Directories of the server's programs: Debian has one for each release, outside PATH."""

AVAILABLE = bool(_PROGRAMS or shutil.which("initdb"))
"""Whether the package postgresql is installed."""


class PostgreSql(Daemon):
    end = signal.SIGQUIT

    def __init__(self) -> None:
        super().__init__("postgresql", user="postgres")
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

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(host=str(self.directory), user="laas", dbname="postgres")


def _tool(name: str) -> str:
    return str(_PROGRAMS / name) if _PROGRAMS else name
