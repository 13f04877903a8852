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
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql

from tests.servers.daemon import Daemon
from tests.servers.process import Port

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
    """A MariaDB; ``options`` are further ones of mariadbd, e.g. ``--max-connections=500``.

    ``login`` is the user of the URLs, who may do everything in the databases there, and no more.
    """

    end = signal.SIGKILL

    def __init__(self, *options: str, login: str = "root", disk: int = 0) -> None:
        super().__init__("mariadb", disk=disk)
        self._options = options
        self._login = login
        self._size = disk
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
            *self.network(),
            "--innodb-buffer-pool-size=64M",
            *_HASTY,
            *self._options,
        )

    def network(self) -> Sequence[str]:
        """Options of the network."""
        return ("--skip-networking",)

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
            if self._login != "root":
                cursor.execute(f"GRANT ALL ON `{name}`.* TO '{self._login}'@'localhost'")
            cursor.execute(f"SHOW TABLES FROM `{like or name}`")
            tables = [table for (table,) in cursor.fetchall()]
            cursor.execute(f"USE `{name}`")
            cursor.execute("SET foreign_key_checks = 0")
            for table in tables:
                cursor.execute(f"SHOW CREATE TABLE `{like}`.`{table}`")
                cursor.execute(cursor.fetchall()[0][1])
                cursor.execute(f"INSERT INTO `{table}` SELECT * FROM `{like}`.`{table}`")
            connection.commit()
        query = f"unix_socket={self.socket}&charset=utf8mb4"
        return f"mysql+pymysql://{self._login}@localhost/{name}?{query}"

    def _connect(self) -> pymysql.Connection:
        return pymysql.connect(unix_socket=str(self.socket), user="root")


class Replicated(MariaDb):
    """A MariaDB that others can replicate, with a binary log outside of its small disk.

    The user of its URLs cannot write while it is read-only. ``primary`` is replicated from the
    beginning.
    """

    def __init__(self, *, disk: int = 0, primary: Replicated | None = None) -> None:
        super().__init__(login="laas", disk=disk)
        self._port = Port()
        self._primary = primary
        self._logs = Path(tempfile.mkdtemp(prefix="laas-binlog-", dir="/tmp"))

    def network(self) -> Sequence[str]:
        self._port.close()
        return (
            *("--bind-address=127.0.0.1", f"--port={self._port.number}"),
            *(f"--server-id={self._port.number}", f"--log-bin={self._logs}/log"),
            *("--log-slave-updates", "--sync-binlog=0", "--binlog-format=ROW"),
        )

    def __enter__(self) -> Replicated:
        super().__enter__()
        if self._primary is not None:
            self.follow(self._primary)
        else:
            self._run("CREATE USER IF NOT EXISTS 'laas'@'localhost'")
            self._run("CREATE USER 'copy'@'127.0.0.1' IDENTIFIED BY 'copy'")
            self._run("GRANT REPLICATION SLAVE ON *.* TO 'copy'@'127.0.0.1'")
        return self

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._logs, ignore_errors=True)

    # -- failover ---------------------------------------------------------------

    @property
    def address(self) -> Path:
        """The socket."""
        return self.socket

    def standby(self, former: Replicated | None = None) -> Replicated:
        """A running server that replicates what this one commits: the ``former`` primary if any."""
        if former is not None:
            former.follow(self)
            return former
        return Replicated(disk=self._size, primary=self).__enter__()

    def follow(self, primary: Replicated) -> None:
        """Replicate another server, and take no other writes."""
        self._run("SET GLOBAL read_only = 1")
        self._run(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary._port.number}, "
            "MASTER_USER = 'copy', MASTER_PASSWORD = 'copy', MASTER_CONNECT_RETRY = 1, "
            "MASTER_USE_GTID = current_pos"
        )
        self._run("START SLAVE")

    def retire(self) -> None:
        """Take no more writes, with all sessions left open; open transactions fail at commit."""
        self._run("SET GLOBAL read_only = 1")

    def promote(self, old: Replicated) -> None:
        """Become the primary, once everything that ``old`` committed is here."""
        last = old._run("SELECT @@global.gtid_binlog_pos")
        found = self._run(f"SELECT MASTER_GTID_WAIT('{last}', 60)")
        assert found == 0, self._run("SHOW SLAVE STATUS")
        self._run("STOP SLAVE")
        self._run("RESET SLAVE ALL")
        self._run("SET GLOBAL read_only = 0")

    def _run(self, query: str) -> Any:
        """The first value of an answer, None if there is none."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            found = cursor.fetchone()
            return found[0] if found else None


def _tool(name: str) -> str:
    return shutil.which(name, path=_PATH) or name
