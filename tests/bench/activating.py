# SPDX-License-Identifier: Apache-2.0

"""Allocations to active: ``python -m tests.bench.activating [--hosts H] [--requests N]``.

In one process, on SQLite, with the adapters that write to directories: N requests are posted, and a
worker takes its rounds until all are active. Reported, never asserted: processor time and seconds
of the worker by the clock, and where the time of the allocations went. ``--profile`` prints the
functions of the worker with the most time of their own.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.bench.policies import RADIX
from tests.bench.posting import Posting
from tests.storm.journal import table


def measure(hosts: int, requests: int, mean: float, profile: bool) -> str:
    rng = Random(1)
    with TemporaryDirectory(prefix="laas-activating-") as name:
        posting = Posting(Path(name), hosts)
        worker = posting.parts.fabric_leases
        worker.run_once()  # takes the fabric
        answers = [posting.ask(1 + int(rng.expovariate(1 / mean)))[0] for _ in range(requests)]
        profiler = cProfile.Profile()
        clock, processor = time.perf_counter(), time.process_time()
        if profile:
            profiler.enable()
        while worker.run_once():
            pass
        profiler.disable()
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
        holding = posting.parts.use_cases(lambda: None).fabrics.watched("bench").holding
        active = holding.activated
        spans = [(span.value, f"{s / max(active, 1):.3f}") for span, s in holding.seconds.items()]
        return (
            f"{answers.count(202)} of {requests} requests placed, {active} became active: worker "
            f"{processor:.1f} s of processor time, {clock:.1f} s by the clock, "
            f"{active / processor:.1f} a second of processor time\n\n"
            f"{table(('span', 'mean seconds'), spans)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.activating", description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, default=11664)
    parser.add_argument("--requests", type=int, default=400, help="at once (%(default)s)")
    parser.add_argument("--mean", type=float, default=6.0, help="hosts of an allocation")
    parser.add_argument("--profile", action="store_true", help="of the worker; it takes longer")
    options = parser.parse_args()
    load = os.getloadavg()[1]
    print(f"{options.hosts:,} hosts, SQLite, {os.cpu_count()} cores, load {load:.1f}:\n")
    print(measure(options.hosts, options.requests, options.mean, options.profile))


if __name__ == "__main__":
    main()
