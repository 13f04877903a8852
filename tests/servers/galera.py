# SPDX-License-Identifier: Apache-2.0

"""Three private MariaDB nodes that replicate synchronously with Galera, for a test.

    with Galera() as cluster:
        engine = connect(cluster.database())        # on the first node
        cluster.sockets                             # of all nodes

The nodes reach each other over loopback. Debian's packages are mariadb-server, galera-4 and rsync.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.servers import mariadb
from tests.servers.process import Port

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")

AVAILABLE = mariadb.AVAILABLE and PROVIDER.exists() and bool(shutil.which("rsync"))
"""Whether the packages are installed."""


class _Node(mariadb.MariaDb):
    """A node; ``others`` is the address of a node of the cluster to join, empty for the first.

    Ports are for replication, and for what a node that joins receives. rsync does not serve a
    directory of root, so root runs the nodes as Debian's user ``mysql``.
    """

    def __init__(self, others: str = "") -> None:
        super().__init__()
        self._others = others
        self._ports = [Port() for _ in range(3)]
        if os.geteuid() == 0:
            self.user = "mysql"
            shutil.chown(self.directory, self.user)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports[0].number}"

    def prepare(self) -> None:
        if self._others:
            self.run("mkdir", "data")
        else:
            super().prepare()

    def command(self) -> Sequence[str]:
        replication, incremental, state = (port.number for port in self._ports)
        for port in self._ports:
            port.close()
        provider = f"gmcast.listen_addr=tcp://127.0.0.1:{replication}"
        provider += f";ist.recv_addr=127.0.0.1:{incremental};gcache.size=32M"
        return (
            *super().command(),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            f"--wsrep-cluster-address=gcomm://{self._others}",
            f"--wsrep-node-address={self.address}",
            f"--wsrep-provider-options={provider}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{state}",
        )

    def ready(self) -> bool:
        if not super().ready():
            return False
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'wsrep_ready'")
            return bool(cursor.fetchone() == ("wsrep_ready", "ON"))


class Galera:
    """A cluster of three nodes, with the methods of a daemon that the storm needs."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []

    @property
    def sockets(self) -> list[Path]:
        return [node.socket for node in self.nodes]

    def __enter__(self) -> Galera:
        try:
            for _ in range(3):
                node = _Node(self.nodes[0].address if self.nodes else "")
                self.nodes.append(node)
                node.__enter__()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def database(self, name: str | None = None) -> str:
        return self.nodes[0].database(name)

    def close(self) -> None:
        for node in self.nodes[::-1]:
            node.close()
