# SPDX-License-Identifier: Apache-2.0

"""Cost of the ledger: ``python -m tests.bench.ledger [--hosts H] [--verify H]``.

The policy jigsaw fills a full tree until it refuses a request. Then the benchmark reports the
memory of the ledger, and the times to rebuild the ledger from the database (SQLite), to catch
up with 1,000 changes of another process, to copy the ledger, to try a change on it, and to
verify the filled state.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
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
from laas_service.domain.topology import LeafLink, Topology
from laas_service.domain.verification import violations
from tests.bench.policies import RADIX, full_tree

CHANGES = 1000


@contextmanager
def measured(hosts: int, what: str) -> Iterator[None]:
    processor, clock = time.process_time(), time.perf_counter()
    yield
    processor, clock = time.process_time() - processor, time.perf_counter() - clock
    print(f"{hosts:6} {what:44}{processor:10.3f}{clock:10.3f}", flush=True)


def filled(topology: Topology, seed: int = 1) -> Ledger:
    """Fill a ledger with tenants of exponential size, whose mean is the ports of a switch."""
    rng, fabric, policy = Random(seed), Ledger(topology), POLICIES["jigsaw"]()
    mean = 2 * topology.slots
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


def database(hosts: int) -> None:
    """Time writes of one store, and reads of others: the whole ledger, or later changes."""
    half = RADIX[hosts] // 2
    made = generator.generate(
        generator.Description(xgft=f"3;{half},{half},{2 * half};1,{half},{half}")
    )
    rng, policy = Random(1), POLICIES["jigsaw"]()
    with TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/bench.sqlite"
        engine = connect(url)
        upgrade(engine)
        writer = SqlStore(engine)
        writer.add_fabric("bench", made.topology, made.inventory)

        def allocate(number: int) -> bool:
            size = _size(rng, 2 * half)
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
                writer.admit(new, lambda fabric: policy.propose(fabric, ask)), AllocationRecord
            )

        number = 0
        with measured(hosts, "tenants admitted until one is refused"):
            while allocate(number):
                number += 1
        reader = SqlStore(connect(url))
        with measured(hosts, f"ledger of {number} tenants from the database"):
            reader.ledger("bench")
        for change in range(CHANGES // 2):
            link = LeafLink(change % (2 * half), change % half, change % half)
            for state in ("failed", "up"):
                writer.set_link_state("bench", link, LinkState(state))
        with measured(hosts, f"{CHANGES} changes caught up"):
            caught_up, _ = reader.ledger("bench")
        assert caught_up.state() == SqlStore(connect(url)).ledger("bench")[0].state()


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
    options = parser.parse_args()
    print(" hosts what                                         processor     clock   seconds")
    memory(options.hosts)
    database(options.hosts)
    verification(options.verify)


if __name__ == "__main__":
    main()
