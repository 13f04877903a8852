# SPDX-License-Identifier: Apache-2.0

"""Cost of the ledger: ``python -m tests.bench.ledger [--hosts H] [--verify H] [--process H]``.

The policy jigsaw fills a full tree until it refuses a request. Then the benchmark reports the
memory of the ledger, and the times to rebuild the ledger from the database (SQLite), to catch
up with 1,000 changes of another process, to copy the ledger, to try a change on it, and to
verify the filled state.

For each ``--process`` it also fills a database through the service, and reports the resident
memory of a new process before and after it has read the fabric, with names, GUIDs and tenants.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.schema import upgrade
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import import generator
from laas_service.app.records import AllocationRecord, LinkState
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, Topology, Xgft
from laas_service.domain.verification import violations
from tests.bench.policies import RADIX, full_tree

CHANGES = 1000
TREES = {hosts: full_tree(radix).tree for hosts, radix in RADIX.items()} | {
    262144: Xgft((64, 64, 64), (1, 64, 64))
}
"""Trees by their number of hosts."""

READER = """\
import gc, sys
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.cmd import api

def resident():
    with open("/proc/self/status") as status:
        sizes = dict(line.split(":") for line in status)
    return [int(sizes[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM")]

before, _ = resident()
store = SqlStore(connect(sys.argv[1]))
ledger = store.fabrics.ledger("bench")
gc.collect()
print(before, *resident())
"""
"""Prints the MiB of a process with the modules of laas-api, then with the fabric, and its peak."""


@contextmanager
def measured(hosts: int, what: str) -> Iterator[None]:
    processor, clock = time.process_time(), time.perf_counter()
    yield
    processor, clock = time.process_time() - processor, time.perf_counter() - clock
    print(f"{hosts:6} {what:44}{processor:10.3f}{clock:10.3f}", flush=True)


def filled(topology: Topology, seed: int = 1) -> Ledger:
    """Fill a ledger with tenants of exponential size, whose mean is the ports of a switch."""
    rng, fabric, policy = Random(seed), Ledger(topology), POLICIES["jigsaw"]()
    mean = 2 * topology.hosts_per_group
    while isinstance(
        admit(policy, fabric, Request(f"t{len(fabric.allocations)}", _size(rng, mean))), Allocation
    ):
        pass
    return fabric


def _size(rng: Random, mean: int) -> int:
    return 1 + int(rng.expovariate(1 / mean))


def memory(hosts: int) -> None:
    topology = full_tree(RADIX[hosts])
    tracemalloc.start()
    fabric = filled(topology)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    live = len(fabric.allocations)
    print(f"{hosts:6} memory of the ledger, {live} tenants: {size / 2**20:.1f} MiB", flush=True)
    with measured(hosts, "100 copies"):
        for _ in range(100):
            fabric.copy()
    ids = list(fabric.allocations)[:100]
    with measured(hosts, "100 releases tried and undone"):
        for id in ids:
            with fabric.trial():
                fabric.release(id)


def written(hosts: int, url: str) -> tuple[SqlStore, int]:
    """A store whose fabric is filled with tenants until one is refused, and their number."""
    tree = TREES[hosts]
    sizes = ";".join(",".join(map(str, numbers)) for numbers in (tree.m, tree.w))
    made = generator.generate(generator.Description(xgft=f"3;{sizes}"))
    rng, policy = Random(1), POLICIES["jigsaw"]()
    engine = connect(url)
    upgrade(engine)
    writer = SqlStore(engine)
    writer.fabrics.add("bench", made.topology, made.inventory)

    def allocate(number: int) -> bool:
        size = _size(rng, 2 * tree.m[0])
        new = AllocationRequest(
            id=f"t{number}",
            fabric="bench",
            name="b",
            project_id="p",
            policy="jigsaw",
            hosts=size,
        )
        ask = Request(new.id, size)
        return isinstance(
            writer.admissions.admit(new, lambda draft: policy.propose(draft.ledger, ask)),
            AllocationRecord,
        )

    number = 0
    with measured(hosts, "tenants admitted until one is refused"):
        while allocate(number):
            number += 1
    return writer, number


def process(hosts: int) -> None:
    """Report the resident memory of a new process that reads a full fabric."""
    with TemporaryDirectory() as directory:
        url = f"sqlite:///{Path(directory, 'bench.sqlite')}"
        _, number = written(hosts, url)
        reader = [sys.executable, "-c", READER, url]
        ended = subprocess.run(reader, check=True, stdout=subprocess.PIPE, text=True)
    before, after, peak = ended.stdout.split()
    print(
        f"{hosts:6} memory of a process: {before} MiB without the fabric, "
        f"{after} MiB with {number} tenants, {peak} MiB while it reads them",
        flush=True,
    )


def database(hosts: int) -> None:
    """Time writes of one store, and reads of others: the whole ledger, or later changes."""
    half = RADIX[hosts] // 2
    with TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/bench.sqlite"
        writer, number = written(hosts, url)
        reader = SqlStore(connect(url))
        with measured(hosts, f"ledger of {number} tenants from the database"):
            reader.fabrics.ledger("bench")
        for change in range(CHANGES // 2):
            link = LeafLink(change % (2 * half), change % half, change % half)
            for state in ("failed", "up"):
                writer.components.set_link_state("bench", link, LinkState(state))
        with measured(hosts, f"{CHANGES} changes caught up"):
            caught_up, _ = reader.fabrics.ledger("bench")
        assert caught_up.state() == SqlStore(connect(url)).fabrics.ledger("bench")[0].state()


def verification(hosts: int) -> None:
    topology = full_tree(RADIX[hosts])
    fabric = filled(topology)
    live = list(fabric.allocations.values())
    with measured(hosts, f"{len(live)} tenants verified, 3 random permutations each"):
        found = violations(topology, live, Random(1))
    assert not found, found[:3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, default=65536)
    parser.add_argument("--verify", type=int, choices=RADIX, default=11664)
    parser.add_argument("--process", type=int, choices=TREES, action="append")
    options = parser.parse_args()
    print(" hosts what                                         processor     clock   seconds")
    memory(options.hosts)
    database(options.hosts)
    verification(options.verify)
    for hosts in options.process or (65536, 262144):
        process(hosts)


if __name__ == "__main__":
    main()
