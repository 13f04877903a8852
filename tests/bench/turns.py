# SPDX-License-Identifier: Apache-2.0

"""Two trees in turns: ``python -m tests.bench.turns OTHER_TREE [--turns N] [--allocations A]``.

Each turn starts ``laas-api`` and ``laas-worker`` of a tree with 1,024 hosts, SQLite and adapters
that write to directories. A allocations are requested over REST and become active. Printed are the
medians of the processor time of the API for a POST and of the worker for an activation, of this
tree and of the other one. Both run on the libraries of this environment. Reported, never asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.bench import house
from tests.bench.idling import PATIENCE, answering, call, seconds_spent
from tests.storm.journal import table

XGFT = "3;8,8,16;1,8,8"
SIZES = (2, 5, 9, 3, 14, 6, 1, 4)
"""Hosts of the allocations, in turns."""

FIRST = 8
"""Allocations that become active before the measurement."""


class Spent(NamedTuple):
    """Milliseconds of processor time."""

    post: float
    activation: float


def measure(tree: Path, allocations: int) -> Spent:
    with TemporaryDirectory(prefix="laas-turns-") as name, contextlib.ExitStack() as running:
        directory = Path(name)
        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        config = directory / "laas.conf"
        config.write_text(
            f"[DEFAULT]\nstate_dir = {directory}\n"
            f"[database]\nconnection = sqlite:///{directory}/laas.sqlite\n"
            f"[worker]\npoll_interval = 0.2\n[api]\nbind_port = {url.rpartition(':')[2]}\n"
        )
        configured, dump = ("--config-file", str(config)), str(directory / "dump")
        log = running.enter_context((directory / "log").open("wb"))
        for words in (
            ("fabric", "generate", XGFT, "--output", dump),
            (*configured, "db", "upgrade"),
            (*configured, "fabric", "import", dump, "--id", "bench"),
        ):
            subprocess.run(command(tree, "manage", *words), cwd=tree, stdout=log, check=True)
        api, worker = (
            running.enter_context(started(command(tree, name, *configured), tree, log.fileno()))
            for name in ("api", "worker")
        )
        answering(api, f"{url}/healthcheck", directory / "log")
        request(url, FIRST)
        before = seconds_spent(worker.pid)
        post = request(url, allocations, api.pid)
        active(url)
        spent = seconds_spent(worker.pid) - before
    return Spent(1000 * post / allocations, 1000 * spent / allocations)


def command(tree: Path, name: str, *words: str) -> list[str]:
    run = f"import sys; from laas_service.cmd.{name} import main; sys.exit(main())"
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tree)!r}); {run}", *words]


@contextlib.contextmanager
def started(words: list[str], tree: Path, log: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words, cwd=tree, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def request(url: str, count: int, pid: int | None = None) -> float:
    """Post so many requests; returns the seconds that the process spent on them.

    Without a process, returns 0 once the allocations are active.
    """
    before = seconds_spent(pid) if pid else 0.0
    for number in range(count):
        call(f"{url}/v1/allocations", {"name": f"t{number}", "hosts": SIZES[number % len(SIZES)]})
    if pid:
        return seconds_spent(pid) - before
    active(url)
    return 0.0


def active(url: str) -> None:
    """Wait until nothing is being allocated. Raises: SystemExit."""
    until = time.monotonic() + PATIENCE
    while call(f"{url}/v1/allocations?state=allocating&limit=1")["allocations"]:
        if time.monotonic() > until:
            raise SystemExit("not all allocations become active")
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.turns", description=__doc__)
    parser.add_argument("other", type=Path, help="checkout of another commit")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--allocations", type=int, default=100)
    options = parser.parse_args()
    trees = {"this": house.HERE, "other": options.other.resolve()}
    found: dict[str, list[Spent]] = {name: [] for name in trees}
    for _ in range(options.turns):
        for name, tree in trees.items():
            found[name].append(measure(tree, options.allocations))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}; milliseconds:\n")
    rows = [
        (name, *(f"{statistics.median(column):.1f}" for column in zip(*spent, strict=True)))
        for name, spent in found.items()
    ]
    print(table(("tree", "POST", "activation"), rows))


if __name__ == "__main__":
    main()
