# SPDX-License-Identifier: Apache-2.0

"""Requests under load: ``python -m tests.bench.load [--database D] [--requests N] [--apis N]``.

``laas-api`` and ``laas-worker`` run as processes, with the adapters that write to directories,
on a full tree of switches; with several API processes, the clients are divided among them. Each
client thread repeats three requests: create an allocation, show one, and release the oldest one
beyond ``--live``. A client with too many unfinished releases shows the oldest of them every half
second until it is released, so that the worker keeps up with the clients. With ``--posts`` the
clients only create allocations, until the fabric is full. The benchmark reports
requests a second, times by method, and over time the memory of the processes and the processor
time of all: the API, the worker, the clients, and the processes of PostgreSQL (SQLite works in the
other processes). It asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.schema import upgrade
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import import generator
from tests.bench.policies import RADIX
from tests.servers import postgresql
from tests.servers.process import Port
from tests.storm.journal import share, table
from tests.storm.site import Server

DATABASES = ("sqlite", "postgresql")
TREES = {640: "3;8,8,10;1,8,8"} | {
    hosts: f"3;{k // 2},{k // 2},{k};1,{k // 2},{k // 2}" for hosts, k in RADIX.items()
}
"""The trees by their number of hosts."""

CURVE = 10
"""Number of memory samples in the report."""

PATIENCE = 0.5
"""Seconds between two requests for an allocation that is being released."""

CONFIGURATION = """\
[DEFAULT]
state_dir = {directory}
[database]
connection = {url}
[api]
bind_port = {port}
[opensm]
keep = 0
"""


class Service:
    """API processes and one worker, with an empty fabric."""

    def __init__(
        self, directory: Path, url: str, hosts: int, apis: int, database: int | None
    ) -> None:
        self._ports = [Port() for _ in range(apis)]
        self.ports = [port.number for port in self._ports]
        self._database = database
        made = generator.generate(generator.Description(xgft=TREES[hosts]))
        engine = connect(url)
        upgrade(engine)
        SqlStore(engine).fabrics.add("bench", made.topology, made.inventory)
        engine.dispose()
        self.processes = []
        for port in (*self.ports, None):
            kind, name = ("api", f"api-{port}") if port else ("worker", "worker")
            config = directory / f"{name}.conf"
            text = CONFIGURATION.format(directory=directory, url=url, port=port or self.ports[0])
            config.write_text(text)
            command = [
                sys.executable,
                "-m",
                f"laas_service.cmd.{kind}",
                "--config-file",
                str(config),
            ]
            self.processes.append(Server(name, command, directory / f"{name}.log", port))

    def __enter__(self) -> Service:
        for process in self.processes:
            process.start()
        while not all(process.answers() for process in self.processes):
            time.sleep(0.2)
        self._wait_for_first()
        return self

    def _wait_for_first(self) -> None:
        """Allocate one host and wait until it is active: the worker has written all tables once."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=600)
        shown = _answer(connection, "POST", "/v1/allocations", {"name": "first", "hosts": 1})[1]
        while shown["state"] != "active":
            time.sleep(0.2)
            shown = _answer(connection, "GET", f"/v1/allocations/{shown['id']}")[1]
        connection.close()

    def __exit__(self, *exc: object) -> None:
        for process in self.processes:
            process.send(signal.SIGKILL)
        for port in self._ports:
            port.close()

    def memory(self) -> list[int]:
        """Resident memory of the API processes together and of the worker, in MiB."""
        *apis, worker = [psutil.Process(one.pid).memory_info().rss >> 20 for one in self.processes]
        return [sum(apis), worker]

    def processor(self) -> list[float]:
        """Processor time of the API, the worker, the clients and the database, in seconds."""
        *apis, worker = [_processor(psutil.Process(process.pid)) for process in self.processes]
        spent = [sum(apis), worker]
        clients = psutil.Process().cpu_times()
        database = 0.0
        if self._database is not None:
            server = psutil.Process(self._database)
            database = sum(map(_processor, [server, *server.children(recursive=True)]))
        return [*spent, clients.user + clients.system, database]


def _processor(process: psutil.Process) -> float:
    """Processor time of a process and of its children that have ended; 0 if it has ended."""
    try:
        spent = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(spent.user + spent.system + spent.children_user + spent.children_system)


class Load:
    """Makes ``requests`` requests by ``threads`` clients, each with its own connection."""

    def __init__(self, service: Service, options: argparse.Namespace) -> None:
        self._service = service
        self._options = options
        self._lock = threading.Lock()
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._asked = 0
        self._every = max(1, options.requests // CURVE)
        self._curve: list[tuple[str, ...]] = []
        self._began = time.perf_counter()

    def run(self) -> float:
        """Run the clients; returns the elapsed seconds."""
        self._point()
        threads = [
            threading.Thread(target=self._client, args=(number,))
            for number in range(self._options.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - self._began

    def _client(self, number: int) -> None:
        rng, ports = Random(number), self._service.ports
        port = ports[number % len(ports)]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        most = self._options.live // self._options.threads
        mine: deque[str] = deque()
        going: deque[str] = deque()
        while self._asked < self._options.requests:
            size = 1 + int(rng.expovariate(1 / (self._options.mean - 0.5)))
            made = self._ask(connection, "POST", "", {"name": "load", "hosts": size})
            if made:
                mine.append(made["id"])
            if self._options.posts:
                continue
            if mine:
                self._ask(connection, "GET", rng.choice(mine))
            if mine and (len(mine) > most or not made):
                going.append(mine.popleft())
                self._ask(connection, "DELETE", going[-1])
            while len(going) > most and self._asked < self._options.requests:
                seen = self._ask(connection, "GET", going[0])
                if seen and seen["state"] == "released":
                    going.popleft()
                else:
                    time.sleep(PATIENCE)
        connection.close()

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        id: str,
        body: object = None,
    ) -> dict[str, str] | None:
        """Send a request; returns the allocation, or None if it was refused."""
        started = time.perf_counter()
        status, document = _answer(connection, method, f"/v1/allocations{id and '/'}{id}", body)
        self._count(method, status, time.perf_counter() - started)
        return document if status < 300 else None

    def _count(self, method: str, status: int, seconds: float) -> None:
        kind = f"{method} {status}"
        with self._lock:
            self._seconds[kind].append(seconds)
            self._asked += 1
            if self._asked % self._every == 0:
                self._point()

    def _point(self) -> None:
        seconds = time.perf_counter() - self._began
        numbers = (seconds, *self._service.memory(), *self._service.processor())
        self._curve.append((f"{self._asked:,}", *(f"{number:,.0f}" for number in numbers)))
        print(f"# {' '.join(self._curve[-1])}", file=sys.stderr, flush=True)

    def report(self, seconds: float) -> str:
        rows = []
        for kind, values in sorted(self._seconds.items()):
            values = sorted(values)
            each = [share(values, 0.5), share(values, 0.99), values[-1]]
            rate = f"{len(values) / seconds:.1f}"
            rows.append((kind, f"{len(values):,}", rate, *(f"{1000 * x:,.0f}" for x in each)))
        times = table(("answer", "number", "a second", "p50 ms", "p99 ms", "max ms"), rows)
        processor = (f"{process} CPU s" for process in ("API", "worker", "clients", "database"))
        header = ("requests", "seconds", "API MiB", "worker MiB", *processor)
        memory = table(header, self._curve)
        return f"{times}\n\n{memory}"


def _answer(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None
) -> tuple[int, dict[str, str]]:
    """Send a request; returns the status and the document of the answer."""
    sent = None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"} if sent else {}
    connection.request(method, path, sent, headers)
    response = connection.getresponse()
    document: dict[str, str] = json.loads(response.read())
    return response.status, document


@contextlib.contextmanager
def database(kind: str, directory: Path) -> Iterator[tuple[str, int | None]]:
    """URL of an empty database, and the id of the process that serves it, if one does.

    The tests' PostgreSQL does not wait for the disk.
    """
    if kind == "sqlite":
        yield f"sqlite:///{directory}/laas.sqlite", None
        return
    with postgresql.PostgreSql() as server:
        yield server.database(), server.process.pid if server.process else None


def measure(kind: str, options: argparse.Namespace) -> None:
    with (
        TemporaryDirectory(prefix="laas-load-") as name,
        database(kind, Path(name)) as (url, pid),
        Service(Path(name), url, options.hosts, options.apis, pid) as service,
    ):
        load = Load(service, options)
        seconds = load.run()
        print(
            f"{kind}, {options.hosts:,} hosts, {options.apis} API, {options.threads} clients, "
            f"{options.requests:,} requests in {seconds:,.0f} s "
            f"({options.requests / seconds:.0f} a second), {os.cpu_count()} cores, "
            f"load {os.getloadavg()[1]:.1f}:\n\n{load.report(seconds)}\n",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description=__doc__)
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--hosts", type=int, choices=TREES, default=11664)
    parser.add_argument("--requests", type=int, default=50_000, help="on each (%(default)s)")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--apis", type=int, default=1, help="API processes (%(default)s)")
    parser.add_argument("--posts", action="store_true", help="clients only create allocations")
    parser.add_argument("--live", type=int, default=320, help="allocations at a time, of all")
    parser.add_argument("--mean", type=float, default=6.0, help="hosts of an allocation")
    options = parser.parse_args()
    for kind in options.database or DATABASES:
        measure(kind, options)


if __name__ == "__main__":
    main()
