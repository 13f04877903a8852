# SPDX-License-Identifier: Apache-2.0

"""Cost of publishing files: ``python -m tests.bench.rendering [--hosts H] [--named]``.

A full tree of K-port switches is filled to nine tenths with tenants of exponential size.
One process publishes the set of files (plan, write, sync, read back) from nothing, with one more
tenant, with a failed cable of a spine, and with one of a leaf. With ``--named`` the tables name
port GUIDs. Processor seconds, elapsed seconds and memory are reported, never asserted.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from laas_service.adapters.fabric_import import generator
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Link, Topology
from laas_service.messages import FabricState, TenantRoute
from opensm_writer import desired, publish, render
from tests.bench.policies import RADIX

HOSTS = (1024, 11664)


def tenants(topology: Topology, count: int, seed: int = 1) -> list[Allocation]:
    """Tenants that fit, of ``count`` whose sizes add up to about nine tenths of the hosts."""
    rng, fabric, policy = Random(seed), Ledger(topology), POLICIES["jigsaw"]()
    mean = 0.9 * topology.hosts / count
    for number in range(count):
        size = 1 + int(rng.expovariate(1 / max(1.0, mean - 0.5)))
        admit(policy, fabric, Request(f"t{number:04d}", size))
    return list(fabric.allocations.values())


@contextmanager
def measured(hosts: int, live: int, what: str) -> Iterator[None]:
    processor, clock = time.process_time(), time.perf_counter()
    yield
    processor, clock = time.process_time() - processor, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    load = os.getloadavg()[0]
    print(
        f"{hosts:6}{live:8} {what:12}{processor:10.1f}{clock:8.1f}{peak:8}{load:6.1f}", flush=True
    )


def measure(hosts: int, count: int, named: bool) -> None:
    """Publish all tenants but one from nothing, then one more, then two failed links."""
    half = RADIX[hosts] // 2
    made = generator.generate(
        generator.Description(xgft=f"3;{half},{half},{2 * half};1,{half},{half}", subnet_managers=1)
    )
    *first, newcomer = tenants(made.topology, count + 1)
    routes = [TenantRoute(a, key) for key, a in enumerate([*first, newcomer], 1)]

    tree = made.topology.tree
    leaf_link, spine_link = tree.link_at(0), tree.link_at(tree.leaf_links + tree.spine_links - 1)

    def state(generation: int, live: int, *failed: Link) -> FabricState:
        return FabricState(
            "bench", generation, made.topology, made.inventory, tuple(routes[:live]), failed
        )

    with TemporaryDirectory() as directory:
        root, live = Path(directory), len(first)
        settings = render.Settings(f"{root}/bench/current", bare=not named)
        with measured(hosts, live, "from nothing"):
            last = publish.publish_set(
                desired.subnet_configuration(state(1, live)), settings, root, 0
            )
        for what, each in (
            ("one more", state(2, live + 1)),
            ("spine cable", state(3, live + 1, spine_link)),
            ("leaf cable", state(4, live + 1, leaf_link, spine_link)),
        ):
            with measured(hosts, len(each.tenants), what):
                last = publish.publish_set(
                    desired.subnet_configuration(each, last.configuration), settings, root, 0, last
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, choices=RADIX, action="append")
    parser.add_argument("--tenants", type=int, default=400)
    parser.add_argument("--named", action="store_true")
    options = parser.parse_args()
    print(" hosts tenants what         processor   clock  MiB max  load   seconds")
    for hosts in options.hosts or HOSTS:
        arguments = (hosts, options.tenants, options.named)
        process = get_context("spawn").Process(target=measure, args=arguments)
        process.start()  # a process for each size, as peak memory is by process
        process.join()


if __name__ == "__main__":
    main()
