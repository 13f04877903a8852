# SPDX-License-Identifier: Apache-2.0

"""A private MariaDB for a test, on a socket in its directory.

    with MariaDb() as server:
        engine = connect(server.database())

The data need not survive a crash, so the server never waits for the disk.
"""

from __future__ import annotations

import getpass
import shutil
import signal
from collections.abc import Sequence
from uuid import uuid4

import pymysql

from tests.servers.daemon import Daemon

TOOLS = ("mariadbd", "mariadb-install-db")
_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"

AVAILABLE = all(shutil.which(tool, path=_PATH) for tool in TOOLS)
"""Whether the package mariadb-server is installed."""

_HASTY = (
    "--innodb-flush-method=nosync",
    "--innodb-doublewrite=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--debug-no-sync",
)


class MariaDb(Daemon):
    """A MariaDB; ``options`` are further ones of mariadbd, e.g. ``--max-connections=500``."""

    end = signal.SIGKILL

    def __init__(self, *options: str) -> None:
        super().__init__("mariadb")
        self._options = options
        self.socket = self.directory / "socket"

    def prepare(self) -> None:
        self.run(
            _tool("mariadb-install-db"),
            "--no-defaults",
            f"--user={self.user or getpass.getuser()}",
            f"--datadir={self.directory}/data",
            f"--tmpdir={self.directory}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *_HASTY,
        )

    def command(self) -> Sequence[str]:
        return (
            _tool("mariadbd"),
            "--no-defaults",
            f"--user={self.user or getpass.getuser()}",
            f"--datadir={self.directory}/data",
            f"--tmpdir={self.directory}",
            f"--socket={self.socket}",
            f"--pid-file={self.directory}/pid",
            "--skip-networking",
            "--innodb-buffer-pool-size=64M",
            *_HASTY,
            *self._options,
        )

    def ready(self) -> bool:
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def database(self, name: str | None = None, like: str | None = None) -> str:
        """The URL of a new database; its name is unique unless ``name`` is given.

        It is empty, or a copy of the database ``like``.
        """
        name = name or f"t{uuid4().hex}"
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
            cursor.execute(f"SHOW TABLES FROM `{like or name}`")
            tables = [table for (table,) in cursor.fetchall()]
            cursor.execute(f"USE `{name}`")
            cursor.execute("SET foreign_key_checks = 0")
            for table in tables:
                cursor.execute(f"SHOW CREATE TABLE `{like}`.`{table}`")
                cursor.execute(cursor.fetchall()[0][1])
                cursor.execute(f"INSERT INTO `{table}` SELECT * FROM `{like}`.`{table}`")
            connection.commit()
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={self.socket}&charset=utf8mb4"

    def _connect(self) -> pymysql.Connection:
        return pymysql.connect(unix_socket=str(self.socket), user="root")


def _tool(name: str) -> str:
    return shutil.which(name, path=_PATH) or name
