# SPDX-License-Identifier: Apache-2.0

"""The service of the storm: a database server, API and worker processes, and their faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.inventory import Inventory
from tests.servers import mariadb, postgresql
from tests.servers.leash import spawn
from tests.servers.process import Port
from tests.storm import evidence
from tests.storm.wire import LostError, ask
from tests.waiting import eventually

SERVERS = {"postgresql": postgresql, "mariadb": mariadb}
LEASE = 4
"""Seconds of a lease; another worker takes over from one that is stopped for longer."""

FABRICS = {"f": "3;4,4,4;1,4,4", "g": "3;4,4,4;1,4,4"}
"""One fabric of 64 hosts for each of two workers."""

CONFIGURATION = """\
[DEFAULT]
state_dir = {directory}
[database]
connection = {url}
[api]
bind_port = {port}
threads = 8
default_fabric = f
enabled_policies = jigsaw,laas
[worker]
poll_interval = 0.2
reconcile_interval = 15
lease_seconds = {lease}
retry_first = 0.2
retry_last = 3
"""


class Server:
    """A process that can be started again after it ended, with the same log."""

    def __init__(self, name: str, command: list[str], log: Path, port: int | None = None) -> None:
        self.name = name
        self.port = port
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as said:
            self._process = spawn(self._command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def ended(self) -> int | None:
        """Exit status of the process; None if it runs."""
        assert self._process is not None
        return self._process.poll()

    def last_words(self, what: str) -> str:
        return f"{self.name} {what}: {self.log.read_text()[-3000:]}"

    def up(self) -> bool:
        """Whether the process answers. Raises: AssertionError: it has ended."""
        ended = self.ended() is not None
        answers = self.answers()
        assert answers or not ended, self.last_words("has ended")
        return answers

    def answers(self) -> bool:
        try:
            return self.port is None or ask(self.port, "GET", "/healthcheck").status == 200
        except LostError:
            return False


class Site:
    """``with Site("mariadb", directory, apis=4, workers=2) as site:`` starts all processes."""

    def __init__(self, kind: str, directory: Path, *, apis: int, workers: int) -> None:
        self._server = SERVERS[kind]
        self.kind = kind
        self.directory = directory
        self._ports = [Port() for _ in range(apis)]
        self._workers = workers
        self.servers: list[Server] = []
        self.fabrics = {
            id: (made.topology, _named(made.inventory, id))
            for id, xgft in FABRICS.items()
            for made in [generate(Description(xgft=xgft))]
        }

    @property
    def ports(self) -> list[int]:
        return [port.number for port in self._ports]

    def __enter__(self) -> Site:
        daemon = mariadb.MariaDb() if self.kind == "mariadb" else postgresql.PostgreSql()
        self._daemon = daemon.__enter__()
        try:
            self.url = daemon.database()
            self.engine = sa.create_engine(self.url, poolclass=NullPool)
            self._prepare()
            for server in self.servers:
                server.start()
            self.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self.servers:
            server.send(signal.SIGCONT)
            server.send(signal.SIGKILL)
        for port in self._ports:
            port.close()
        self._daemon.close()

    def _prepare(self) -> None:
        engine = connect(self.url)
        schema.upgrade(engine)
        for id, (topology, inventory) in self.fabrics.items():
            SqlStore(engine).add_fabric(id, topology, inventory)
        engine.dispose()
        for number, port in enumerate(self.ports):
            self._add("api", number, port)
        for number in range(self._workers):
            self._add("worker", number, None)

    def _add(self, kind: str, number: int, port: int | None) -> None:
        name = f"{kind}-{number}"
        file = self.directory / f"{name}.conf"
        file.write_text(
            CONFIGURATION.format(
                directory=self.directory, url=self.url, port=port or 0, lease=LEASE
            )
        )
        command = [sys.executable, "-m", f"laas_service.cmd.{kind}", "--config-file", str(file)]
        self.servers.append(Server(name, command, self.directory / f"{name}.log", port))

    def wait_until_up(self) -> None:
        """Wait for all processes. Raises: AssertionError: one has ended, or does not answer."""
        for server in self.servers:
            eventually(server.up, partial(server.last_words, "answers"))

    # -- evidence ---------------------------------------------------------------

    def tables(self) -> evidence.Tables:
        """The present tables; reconnects if the connection is cut meanwhile."""
        while True:
            try:
                return evidence.tables(self.engine)
            except sa.exc.DBAPIError:
                time.sleep(0.1)

    def said(self) -> dict[str, str]:
        return {
            server.name: server.log.read_text(errors="replace")
            for server in self.servers
            if server.log.exists()
        }

    def cut_connections(self, chance: float, rng: Random) -> int:
        """Cut each connection to the database with this probability; returns their number."""
        mariadb = self.kind == "mariadb"
        if mariadb:
            whose = "select id from information_schema.processlist where db = database()"
            cut = "kill connection {}"
        else:
            whose = "select pid from pg_stat_activity where datname = current_database()"
            cut = "select pg_terminate_backend({})"
        own = "select connection_id()" if mariadb else "select pg_backend_pid()"
        count = 0
        with self.engine.connect() as connection:
            me = connection.scalar(sa.text(own))
            for number in connection.scalars(sa.text(whose)).all():
                if number != me and rng.random() < chance:
                    with suppress(sa.exc.DBAPIError):  # the connection has ended already
                        connection.execute(sa.text(cut.format(int(number))))
                        count += 1
        return count


def _named(inventory: Inventory, fabric: str) -> Inventory:
    """Make names of hosts unique, as compute knows the hosts of all fabrics by name."""
    return replace(inventory, host_names=tuple(f"{fabric}-{name}" for name in inventory.host_names))


class Chaos:
    """Kills and stops processes and cuts connections at random; ``rest`` makes all run again."""

    def __init__(self, site: Site, seed: int, pause: tuple[float, float]) -> None:
        self._site = site
        self._rng = Random(f"{seed}/chaos")
        self._pause = pause
        self._resting = threading.Event()
        self._thread: threading.Thread | None = None
        self.done: Counter[str] = Counter()
        self.complaints: list[str] = []

    def resume(self) -> None:
        self._resting.clear()
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self._thread.start()

    def rest(self) -> None:
        self._resting.set()
        if self._thread is not None:
            self._thread.join()
        self._revive()
        self._site.wait_until_up()

    def _run(self) -> None:
        acts: dict[Callable[[], None], int] = {
            self._kill_api: 9,
            self._kill_worker: 7,
            self._cut: 6,
            self._stall: 3,
        }
        while not self._resting.wait(self._rng.uniform(*self._pause)):
            (act,) = self._rng.choices(list(acts), list(acts.values()))
            try:
                act()
            except Exception as error:
                self.complaints.append(f"chaos: {act.__name__}: {error!r}")
            self._revive()

    def _some(self, kind: str) -> Server:
        return self._rng.choice([s for s in self._site.servers if s.name.startswith(kind)])

    def _kill(self, kind: str) -> None:
        server = self._some(kind)
        server.kill()
        self.done[f"kill -9 of laas-{kind}"] += 1
        self._resting.wait(self._rng.choice((0, 0, 1, 3)))
        server.start()

    def _kill_api(self) -> None:
        self._kill("api")

    def _kill_worker(self) -> None:
        self._kill("worker")

    def _cut(self) -> None:
        chance = self._rng.choice((0.3, 1.0))
        self.done["connections to the database cut"] += self._site.cut_connections(
            chance, self._rng
        )

    def _stall(self) -> None:
        """Stop a worker for longer than its lease, possibly in the middle of a step."""
        server = self._some("worker")
        server.send(signal.SIGSTOP)
        self.done["laas-worker stopped for longer than its lease"] += 1
        time.sleep(LEASE + 1)
        server.send(signal.SIGCONT)

    def _revive(self) -> None:
        """Start processes that have ended by themselves.

        A process may end with status 1 if it cannot reach the database at its start. Any other
        end is a complaint.
        """
        for server in self._site.servers:
            status = server.ended()
            if status == 1 and "the database failed" in server.log.read_text()[-500:]:
                self.done["start without a database"] += 1
            elif status is not None:
                self.complaints.append(f"{server.name} ended by itself with {status}")
            if status is not None:
                server.start()
