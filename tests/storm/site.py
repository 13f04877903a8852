# SPDX-License-Identifier: Apache-2.0

"""The service of the storm: a database, gates, API and worker processes, and their faults."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import sqlalchemy as sa
from oslo_db.exception import DBDuplicateEntry, DBError
from sqlalchemy.pool import NullPool

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.documents import inventory_document, inventory_from
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.domain.inventory import Inventory
from tests.servers import mariadb, postgresql
from tests.servers.galera import Galera
from tests.servers.leash import spawn
from tests.servers.process import Port
from tests.servers.small_disk import SmallDisk
from tests.storm import evidence, release
from tests.storm.gate import ANSWERS, REQUESTS, Gate, Gates
from tests.storm.wire import LostError, ask
from tests.waiting import eventually

DISK = 400
"""MiB of the file system with the database, which faults fill, if root runs the storm."""

SERVERS: dict[str, Callable[[], postgresql.PostgreSql | mariadb.Replicated | Galera]] = {
    "postgresql": partial(postgresql.PostgreSql, disk=DISK),
    "mariadb": partial(mariadb.Replicated, disk=DISK),
    "galera": Galera,
}
KINDS = [*SERVERS, "sqlite"]
LEASE = 4
"""Seconds of a lease; another worker takes over from one that is stopped for longer."""

TAKEN_OVER = 20
"""Seconds for another worker to take the fabrics of one whose lease has ended."""

VENDORS = {"f": "2c90", "g": "2d90", evidence.WIDE: "2e90"}
"""Digits of the GUIDs that differ from fabric to fabric."""

FABRICS = {"f": "3;4,4,4;1,4,4", "g": "3;4,4,4;1,4,4"}
"""One fabric of 64 hosts for each of two workers."""

WIDE_XGFT = "3;8,8,8;1,8,8"
"""512 hosts for the expensive questions."""

ASKER = "asker"
"""The project that asks them."""

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
[sharing]
access = together
[worker]
poll_interval = 0.2
reconcile_interval = 15
lease_seconds = {lease}
retry_first = 0.2
retry_last = 3
"""


class Server:
    """A process that can be started again after it ended, with the same log.

    ``releases`` are the directories with the code of the releases that it may run; each start
    chooses one. ``port`` is its own, ``gates`` those between it, its clients and the database.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        port: int | None = None,
        *,
        gates: Collection[Gate] = (),
        without: str = "",
    ) -> None:
        self.name = name
        self.port = port
        self.log = log
        self.gates = list(gates)
        self.releases = [release.ROOT]
        self._command = command
        self._without = without
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, code: Path | None = None) -> None:
        """Start with this code, or with one of ``releases``."""
        code = code or self.releases[int(time.time()) % len(self.releases)]
        with self.log.open("ab") as said:
            self._process = spawn(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.log.parent,
                env={**environment(code), "LAAS_STORM_WITHOUT": self._without},
            )

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

    def end(self) -> None:
        """Let the process finish what it does, and wait for its end."""
        self.send(signal.SIGTERM)
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


def environment(code: Path) -> dict[str, str]:
    """The environment of a process that runs the code in this directory."""
    return {**os.environ, "PYTHONPATH": f"{code}{os.pathsep}{release.ROOT}"}


class Site:
    """``with Site("mariadb", directory, apis=4, workers=2) as site:`` starts all processes.

    ``without`` names a guard that is taken away: ``constraint``, or one of ``process.GUARDS``.
    ``pressed`` adds the fabric ``WIDE`` with shared hosts, for the expensive questions.
    """

    def __init__(
        self,
        kind: str,
        directory: Path,
        *,
        apis: int,
        workers: int,
        without: str = "",
        pressed: bool = False,
    ) -> None:
        self.kind = kind
        self.directory = directory
        self.without = without
        self.release = release.ROOT
        """The code of the newest release, of which the tables are."""
        self._ports = [Port() for _ in range(2 * apis)]
        self._workers = workers
        self._pressed = pressed
        self._gates = Gates()
        self._database_gates: dict[str, Gate] = {}
        self._restores = 0
        self._former: postgresql.PostgreSql | mariadb.Replicated | None = None
        self._disk: SmallDisk | None = None
        self.pool = ""
        """The allocation of shared hosts for the expensive questions."""
        self.servers: list[Server] = []
        self.fabrics = {
            id: (made.topology, _apart(made.inventory, id))
            for id, xgft in FABRICS.items()
            for made in [generate(Description(xgft=xgft))]
        }

    @property
    def ports(self) -> list[int]:
        """Those of the gates in front of the API processes."""
        return [port.number for port in self._ports[1::2]]

    def __enter__(self) -> Site:
        self._daemon = SERVERS[self.kind]() if self.kind in SERVERS else None
        try:
            if self._daemon is not None:
                self._daemon.__enter__()
            elif SmallDisk.AVAILABLE:
                self._home.mkdir()
                self._disk = SmallDisk(self._home, DISK)
            self._use_new_database()
            self._prepare()
            for server in self.servers:
                server.start()
            self.wait_until_up()
            if self._pressed:
                self._make_pool()
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def _home(self) -> Path:
        """The directory of the SQLite database."""
        return self.directory / "disk" if SmallDisk.AVAILABLE else self.directory

    def __exit__(self, *exc: object) -> None:
        for server in self.servers:
            server.send(signal.SIGCONT)
            server.send(signal.SIGKILL)
        self._gates.close()
        for port in self._ports:
            port.close()
        self.engine.dispose()
        for daemon in (self._daemon, self._former):
            if daemon is not None:
                daemon.close()
        if self._disk is not None:
            self._disk.close()

    def _use_new_database(self) -> None:
        """Use a database without tables from now on."""
        self._restores += 1
        if self._daemon is None:
            self.url = f"sqlite:///{self._home}/laas-{self._restores}.sqlite"
            self.engine = connect(self.url)
        else:
            self.url = self._daemon.database()
            self.engine = sa.create_engine(self.url, poolclass=NullPool)

    def _prepare(self) -> None:
        engine = connect(self.url)
        schema.upgrade(engine)
        for id, (topology, inventory) in self.fabrics.items():
            SqlStore(engine).fabrics.add(id, topology, inventory)
        if self._pressed:
            wide = generate(Description(xgft=WIDE_XGFT))
            inventory = _apart(wide.inventory, evidence.WIDE)
            SqlStore(engine).fabrics.add(evidence.WIDE, wide.topology, inventory)
        engine.dispose()
        self._add_clock()
        if self.without == "constraint":
            drop_constraints(self.engine)
        for number in range(len(self._ports) // 2):
            self._add("api", number, self._ports[2 * number], self._ports[2 * number + 1])
        for number in range(self._workers):
            self._add("worker", number, None, None)

    def _make_pool(self) -> None:
        """Make the shared hosts for the expensive questions; half of the fabric ``WIDE``."""
        wish = {
            "name": "pool",
            "fabric": evidence.WIDE,
            "hosts": 256,
            "sharing": {"slots": 16, "bandwidth": 100},
        }
        port = self.servers[0].port
        assert port is not None
        answer = ask(port, "POST", "/v1/allocations", wish, project=ASKER)
        assert answer.status == 202, answer
        self.pool = answer.document["id"]
        path = f"/v1/allocations/{self.pool}"

        def active() -> bool:
            found = ask(port, "GET", path, project=ASKER).document
            return bool(found["state"] == "active")

        eventually(active, "the shared hosts are active")

    def _add_clock(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.text("create table storm_clock (shift integer)"))
            connection.execute(sa.text("insert into storm_clock values (0)"))

    def _add(self, kind: str, number: int, port: Port | None, front: Port | None) -> None:
        name = f"{kind}-{number}"
        self._configure(name, port)
        file = self.directory / f"{name}.conf"
        command = [sys.executable, "-m", "tests.storm.process", kind, name, str(self.directory)]
        command += ["--config-file", str(file)]
        gates = [self._database_gates[name]] if name in self._database_gates else []
        if port is not None and front is not None:
            gates.append(self._gates.add(front.number, port.number))
        log = self.directory / f"{name}.log"
        number_of = None if port is None else port.number
        self.servers.append(
            Server(name, command, log, number_of, gates=gates, without=self.without)
        )

    def _configure(self, name: str, port: Port | None) -> None:
        file = self.directory / f"{name}.conf"
        url, number = self._url_behind_gate(name), port.number if port else 0
        file.write_text(
            CONFIGURATION.format(directory=self.directory, url=url, port=number, lease=LEASE)
        )

    def _url_behind_gate(self, name: str) -> str:
        """The database's URL for this process, with the socket of a gate of its own."""
        found = re.search(r"(host|unix_socket)=([^&]+)", self.url)
        if found is None:  # SQLite is a file
            return self.url
        home = self.directory / name
        postgresql = found[1] == "host"
        listen = home / (".s.PGSQL.5432" if postgresql else "socket")
        if name not in self._database_gates:
            home.mkdir()
            to = Path(found[2], ".s.PGSQL.5432") if postgresql else Path(found[2])
            if isinstance(self._daemon, Galera):  # each process uses the next node
                to = self._daemon.sockets[len(self._database_gates) % 3]
            self._database_gates[name] = self._gates.add(listen, to)
        inside = str(home if postgresql else listen)
        return self.url.replace(found[0], f"{found[1]}={inside}")

    def wait_until_up(self) -> None:
        """Wait for all processes. Raises: AssertionError: one has ended, or does not answer."""
        for server in self.servers:
            eventually(server.up, partial(server.last_words, "answers"))

    def manage(self, *words: str) -> None:
        """Run ``laas-manage`` of the newest release. Raises: CalledProcessError."""
        file = self.directory / "manage.conf"
        file.write_text(
            CONFIGURATION.format(directory=self.directory, url=self.url, port=0, lease=LEASE)
        )
        command = [sys.executable, "-m", "laas_service.cmd.manage", "--config-file", str(file)]
        code = environment(self.release)
        subprocess.run([*command, *words], check=True, env=code, cwd=self.directory)

    # -- disasters ----------------------------------------------------------------

    @property
    def fails_over(self) -> bool:
        """Whether the database can have a standby."""
        return isinstance(self._daemon, postgresql.PostgreSql | mariadb.Replicated)

    def promote(self) -> None:
        """Promote a standby, behind the address of the database.

        The old primary stays up until the next time, with its sessions, and takes no writes.
        """
        old: Any = self._daemon
        new = old.standby(self._former)
        self._former, self._daemon = old, new
        old.retire()
        new.promote(old)
        for gate in self._database_gates.values():
            gate.to = new.address
        self.url = self.url.replace(str(old.directory), str(new.directory))
        self.engine = sa.create_engine(self.url, poolclass=NullPool)

    @property
    def disk(self) -> SmallDisk | None:
        """The file system with the database, if it is a small one."""
        daemon = self._daemon
        if isinstance(daemon, postgresql.PostgreSql | mariadb.Replicated):
            return daemon.disk
        return self._disk

    def mend_database(self) -> None:
        """Start the database again, if it ended: PostgreSQL does on a full disk."""
        daemon = self._daemon
        if isinstance(daemon, postgresql.PostgreSql | mariadb.Replicated) and daemon.ended():
            daemon.start()

    def restore(self, backup: Path) -> None:
        """All processes end; they start again on a new database, made from a backup."""
        for server in self.servers:
            server.kill()
        self.engine.dispose()
        self._use_new_database()
        self.manage("db", "restore", str(backup))
        self._add_clock()
        for server, port in zip(self.servers, self._ports[::2], strict=False):
            self._configure(server.name, port if server.port else None)
        for server in self.servers[len(self._ports) // 2 :]:
            self._configure(server.name, None)
        for server in self.servers:
            server.start()
        self.wait_until_up()

    def upgrade(self) -> None:
        """Upgrade to the next release, process by process; both may be started afterwards."""
        self.release = code = release.make(self.directory / "next")
        self.manage("db", "upgrade")
        for server in self.servers:
            server.end()
            server.releases.append(code)
            server.start(code)
            eventually(server.up, partial(server.last_words, "answers"))

    def shift_clock(self, seconds: int) -> None:
        """Set the database's clock wrong by so many seconds."""
        with self.engine.begin() as connection:
            connection.execute(sa.text("update storm_clock set shift = :by"), {"by": seconds})

    def clean_compute(self, recorded: Collection[str]) -> None:
        """Remove the hosts of allocations that are not recorded, as the documentation says."""
        home = self.directory / "compute"
        if not (home / "journal").exists():
            return
        with open(home / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = (home / "journal").read_text().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]
            kept = [line for line in whole if json.loads(line).get("id") in {None, *recorded}]
            if len(kept) < len(lines):
                draft = home / ".storm"
                draft.write_text("".join(kept))
                draft.replace(home / "journal")

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """All processes are stopped meanwhile, with no transaction open."""
        while True:
            for server in self.servers:
                server.send(signal.SIGSTOP)
            self.cut_connections(1.0, Random(0))
            if self.kind in SERVERS or self._is_unlocked():
                break
            for server in self.servers:
                server.send(signal.SIGCONT)
            time.sleep(0.05)  # whoever had the lock goes on
        yield
        for server in self.servers:
            server.send(signal.SIGCONT)

    def _is_unlocked(self) -> bool:
        """Whether no process has the write lock of the SQLite database."""
        connection = sqlite3.connect(str(self.engine.url.database), timeout=0)
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True

    # -- evidence ---------------------------------------------------------------

    def tables(self) -> evidence.Tables:
        """The present tables; reconnects if the connection is cut meanwhile."""
        while True:
            try:
                return evidence.tables(self.engine)
            except (sa.exc.DBAPIError, DBError):
                time.sleep(0.1)  # the gate that cut the connection opens again

    def generations(self) -> dict[str, int]:
        with self.engine.connect() as connection:
            rows = connection.execute(sa.text("select id, generation from fabric")).all()
        return dict(rows)

    def leases(self) -> dict[str, str]:
        """The owner of each fabric's lease; empty if it was given back."""
        with self.engine.connect() as connection:
            rows = connection.execute(sa.text("select fabric, owner from lease")).all()
        return {fabric: owner or "" for fabric, owner in rows}

    def said(self) -> dict[str, str]:
        return {
            server.name: server.log.read_text(errors="replace")
            for server in self.servers
            if server.log.exists()
        }

    def cut_connections(self, chance: float, rng: Random) -> int:
        """Cut each connection to the database with this probability; returns their number."""
        mariadb = self.kind != "postgresql"
        if self.kind not in SERVERS:
            return 0
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


def drop_constraints(engine: sa.Engine) -> None:
    """Let the database take a second owner of a host or link."""
    with engine.begin() as connection:
        for what in ("host", "link"):
            table = f"{what}_claim"
            if engine.dialect.name == "postgresql":
                connection.execute(sa.text(f"alter table {table} drop constraint pk_{table}"))
            elif engine.dialect.name == "sqlite":
                for change in (
                    f"create table plain as select * from {table} where 0",
                    f"drop table {table}",
                    f"alter table plain rename to {table}",
                ):
                    connection.execute(sa.text(change))
            else:
                first = f"alter table {table} add index storm_fabric (fabric)"
                connection.execute(sa.text(first))
                connection.execute(sa.text(f"alter table {table} drop primary key"))


def _apart(inventory: Inventory, fabric: str) -> Inventory:
    """Give hosts names, and parts GUIDs, that no other fabric has."""
    names = tuple(f"{fabric}-{name}" for name in inventory.host_names)
    document = inventory_document(replace(inventory, host_names=names))
    return inventory_from(json.loads(json.dumps(document).replace("2c90", VENDORS[fabric])))


class Chaos:
    """Faults at random, one after the other; ``rest`` makes all run again.

    ``only`` are names of methods, without the underscore in front; all if it is empty.
    """

    def __init__(
        self, site: Site, seed: int, pause: tuple[float, float], only: Collection[str] = ()
    ) -> None:
        self._only = only
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
            self._pause_before_effect: 5,
            self._part: 5,
            self._jump: 4,
            self._fill_disk: 3,
            self._forge: 3,
        }
        if self._only:
            acts = {act: often for act, often in acts.items() if act.__name__[1:] in self._only}
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
        self._wait_for_others(server)
        server.send(signal.SIGCONT)

    def _pause_before_effect(self) -> None:
        """Stop a worker after its last check and before its effect, for longer than its lease."""
        server = self._some("worker")
        home = self._site.directory
        asked, paused = home / f"pause-{server.name}", home / f"paused-{server.name}"
        asked.touch()
        until = time.monotonic() + 5
        while not paused.exists() and time.monotonic() < until and server.ended() is None:
            self._resting.wait(0.05)
        asked.unlink(missing_ok=True)
        if paused.exists():
            self._wait_for_others(server)
            server.send(signal.SIGCONT)
            paused.unlink()
            self.done["laas-worker stopped between its last check and its effect"] += 1

    def _wait_for_others(self, stopped: Server) -> None:
        """Wait until other workers hold all fabrics of this one, or do not take them.

        They cannot if it was stopped in the middle of a transaction, whose locks it keeps.
        """
        time.sleep(LEASE)
        until = time.monotonic() + TAKEN_OVER
        mine = f"/{stopped.pid}-"
        while time.monotonic() < until:
            with suppress(sa.exc.DBAPIError):  # the connection was cut
                if not any(mine in owner for owner in self._site.leases().values()):
                    return
            time.sleep(0.1)  # between two looks at the leases

    def _part(self) -> None:
        """Hold back one direction between a process and its clients, or the database."""
        server = self._rng.choice([one for one in self._site.servers if one.gates])
        gate = self._rng.choice(server.gates)
        way = self._rng.choice((REQUESTS, ANSWERS))
        gate.hold(way)
        self._resting.wait(self._rng.choice((1, LEASE + 2)))
        gate.let_go(cut=self._rng.random() < 0.5)
        where = "database" if isinstance(gate.to, Path) else "API"
        self.done[f"{way} {'to' if way == REQUESTS else 'of'} the {where} held back"] += 1

    def _fill_disk(self) -> None:
        """Fill the disk with the database for some seconds."""
        disk = self._site.disk
        if disk is None:
            return
        disk.fill()
        try:
            self._resting.wait(self._rng.choice((1, 3, 6)))
        finally:
            disk.empty()
            self._site.mend_database()
        self.done["the disk with the database was full"] += 1

    def _jump(self) -> None:
        """Set the database's clock, or that of one process, an hour or a day wrong."""
        shift = self._rng.choice((-86_400, -3600, -30, 30, 3600, 86_400))
        if self._rng.random() < 0.5:
            self._site.shift_clock(shift)
            self.done["the database's clock jumped, and back"] += 1
            self._resting.wait(self._rng.uniform(1, 4))
            self._site.shift_clock(0)
        else:
            server = self._rng.choice(self._site.servers)
            draft = self._site.directory / "clock"
            draft.write_text(str(shift))
            draft.replace(self._site.directory / f"clock-{server.name}")
            self.done["the clock of a process jumped"] += 1

    def _forge(self) -> None:
        """Try to give a host or link a second owner, as a faulty process might."""
        try:
            with self._site.engine.connect() as connection:
                self._forge_with(connection)
        except (sa.exc.DBAPIError, DBError):
            return  # the database is away, or the service was faster

    def _forge_with(self, connection: sa.Connection) -> None:
        what = self._rng.choice(("host", "link"))
        row = f"fabric, scope, {what}, allocation, parent"
        rows = connection.execute(sa.text(f"select {row} from {what}_claim")).all()
        if not rows:
            return
        fabric, scope, number, owner, parent = self._rng.choice(rows)
        query = "select id from allocation where fabric = :fabric and id <> :owner"
        others = connection.scalars(sa.text(query), {"fabric": fabric, "owner": owner}).all()
        if not others:
            return
        text = f"insert into {what}_claim ({row}) values (:f, :s, :n, :a, :p)"
        values = {"f": fabric, "s": scope, "n": number, "a": others[-1], "p": parent}
        try:
            connection.execute(sa.text(text), values)
        except (sa.exc.IntegrityError, DBDuplicateEntry):
            self.done["second owners refused by the database"] += 1
        else:
            said = f"the database takes a second owner of {what} {number} of {fabric}"
            self.complaints.append(said)
        connection.rollback()

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
