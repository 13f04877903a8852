# SPDX-License-Identifier: Apache-2.0

"""Cost of POST: ``python -m tests.bench.posting [--hosts H] [--requests N] [--mean M]``.

The application answers requests for allocations in this process, without an HTTP server, on
SQLite: first in an empty fabric, then, once requests of ten times the size have filled it, nearly
always with a refusal. Processor time in milliseconds and statements of the database by answer are
reported, never asserted. ``--profile`` tells instead which packages the time of requests in the
empty fabric goes to; it takes twice as long.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from oslo_config import cfg
from sqlalchemy import event

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.schema import upgrade
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import import generator
from laas_service.cmd.api import application
from laas_service.conf import register_opts
from laas_service.wiring.composition import Composition
from tests.bench.policies import RADIX
from tests.storm.journal import share, table


class Posting:
    """An application with one empty fabric, whose requests are measured."""

    def __init__(self, directory: Path, hosts: int) -> None:
        half = RADIX[hosts] // 2
        xgft = f"3;{half},{half},{2 * half};1,{half},{half}"
        made = generator.generate(generator.Description(xgft=xgft))
        engine = connect(f"sqlite:///{directory}/laas.sqlite")
        upgrade(engine)
        SqlStore(engine).fabrics.add("bench", made.topology, made.inventory)
        engine.dispose()
        conf = cfg.ConfigOpts()
        register_opts(conf)
        conf([], project="laas", default_config_files=[], default_config_dirs=[])
        conf.set_override("state_dir", str(directory))
        conf.set_override("connection", f"sqlite:///{directory}/laas.sqlite", "database")
        conf.set_override("access", "together", "sharing")
        self.parts = parts = Composition(conf)
        self.client = application(conf, parts.use_cases(lambda: None)).test_client()
        self._statements = 0
        event.listen(parts.database.engine, "before_cursor_execute", self._count)

    def _count(self, *_: object) -> None:
        self._statements += 1

    def ask(self, hosts: int) -> tuple[int, float, int]:
        """The status of the answer, processor time in milliseconds, and statements."""
        before, began = self._statements, time.process_time()
        answer = self.client.post("/v1/allocations", json={"name": "load", "hosts": hosts})
        spent = 1000 * (time.process_time() - began)
        return answer.status_code, spent, self._statements - before


def measure(hosts: int, requests: int, mean: float) -> str:
    rows, rng = [], Random(1)
    with TemporaryDirectory(prefix="laas-posting-") as name:
        posting = Posting(Path(name), hosts)

        def one(mean: float) -> tuple[int, float, int]:
            return posting.ask(1 + int(rng.expovariate(1 / mean)))

        for phase, size in (("empty", mean), ("nearly full", 10 * mean)):
            while phase != "empty" and one(size)[0] != 409:
                pass
            seen = defaultdict(list)
            for number in range(requests + 20):
                status, spent, statements = one(size)
                if number >= 20:  # the first ones fill caches
                    seen[status].append((spent, statements))
            for status, each in sorted(seen.items()):
                times = sorted(spent for spent, _ in each)
                figures = (sum(times) / len(times), share(times, 0.5), share(times, 0.99))
                asked = sum(count for _, count in each) / len(each)
                numbers = (f"{x:.1f}" for x in (*figures, asked))
                rows.append((phase, str(status), str(len(each)), *numbers))
    return table(("fabric", "answer", "number", "mean ms", "p50", "p99", "statements"), rows)


def profile(hosts: int, requests: int, mean: float) -> str:
    """Calls and milliseconds a request by package, built-in functions with those of their kind."""
    rng, profiler = Random(1), cProfile.Profile()
    with TemporaryDirectory(prefix="laas-posting-") as name:
        posting = Posting(Path(name), hosts)
        sizes = [1 + int(rng.expovariate(1 / mean)) for _ in range(requests + 20)]
        for size in sizes[:20]:
            posting.ask(size)
        profiler.enable()
        for size in sizes[20:]:
            posting.ask(size)
        profiler.disable()
    calls: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    statistics: dict[tuple[str, int, str], Any] = vars(pstats.Stats(profiler))["stats"]
    for (file, _, function), (_, count, own, _, _) in statistics.items():
        package = _package(file, function)
        calls[package] += count
        seconds[package] += own
    rows = [
        (package, f"{calls[package] / requests:,.0f}", f"{1000 * spent / requests:.2f}")
        for package, spent in seconds.most_common(12)
    ]
    whole = ("all", f"{calls.total() / requests:,.0f}", f"{1000 * seconds.total() / requests:.2f}")
    return table(("package", "calls", "ms"), [*rows, whole])


def _package(file: str, function: str) -> str:
    if file == "~":
        return "sqlite3" if "sqlite3" in function else "built in"
    _, _, installed = file.rpartition("site-packages/")
    if installed != file:
        return installed.partition("/")[0]
    return "laas_service" if "/laas_service/" in file else "standard library and bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.posting", description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, default=11664)
    parser.add_argument("--requests", type=int, default=300, help="in each phase (%(default)s)")
    parser.add_argument("--mean", type=float, default=6.0, help="hosts of an allocation")
    parser.add_argument("--profile", action="store_true", help="which packages take the time")
    options = parser.parse_args()
    load = os.getloadavg()[1]
    print(f"POST, {options.hosts:,} hosts, SQLite, {os.cpu_count()} cores, load {load:.1f}:\n")
    measured = profile if options.profile else measure
    print(measured(options.hosts, options.requests, options.mean))


if __name__ == "__main__":
    main()
