# SPDX-License-Identifier: Apache-2.0

"""Cost of requests for whole domains: ``python -m tests.bench.domains [--requests N] [--hosts H]``.

Fabrics of hosts with four ports, each in a plane of its own, on leaves of 72 hosts; 18 hosts in a
row are a domain. Half of the requests ask for 1 to 8 whole domains, and the others have exponential
sizes of mean 18. The same stream is also asked as plain hosts. After each refusal a random tenant
leaves. The time of a request is that of ``elapsed_us`` in ``laas-plan``: search and claim. Only
the requests of the half that asks for domains count, in both streams. Times are microseconds of
processor time; they are reported, never asserted.

What domains cost in utilization: ``laas-simulate run --rails 4 --domains 18``, and the same with
``--domains-as-hosts``.
"""

from __future__ import annotations

import argparse
from random import Random

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import PLANNING
from laas_service.domain.topology import Xgft
from laas_service.simulator.engine import request_of
from laas_service.simulator.scenario import Scenario
from laas_service.simulator.workload import Exponential, WholeDomains
from tests.bench.policies import line, timed

TREES = {576: Xgft((72, 8, 4), (1, 72, 1)), 10368: Xgft((72, 72, 8), (1, 72, 72))}
SIZE = 18


def stream(
    hosts: int, policy: str, requests: int, seed: int, *, plain: bool
) -> dict[str, list[float]]:
    """Times of the placements and of the refusals of requests for whole domains."""
    wish = WholeDomains(SIZE, as_hosts=False)
    source = Exponential(SIZE, requests)
    scenario = Scenario(
        policy, TREES[hosts], source, rails=4, domains=wish, runtime=(1, 1), seed=seed
    )
    jobs, fabric = scenario.load().jobs, scenario.ledger()
    rng = Random(seed)
    times: dict[str, list[float]] = {"place": [], "refuse": [], "used": []}
    live: list[str] = []
    asked = PLANNING[policy]()
    for job in jobs:
        request = request_of(job._replace(domains=None) if plain else job)
        answer, elapsed = timed(admit, asked, fabric, request)
        placed = isinstance(answer, Allocation)
        if job.domains:
            times["place" if placed else "refuse"].append(elapsed)
        if placed:
            live.append(job.id)
        else:
            fabric.release(live.pop(rng.randrange(len(live))))
        times["used"].append(100 * used(fabric))
    return times


def used(fabric: Ledger) -> float:
    return 1 - fabric.free_host_count / fabric.topology.hosts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--hosts", type=int, choices=TREES, action="append")
    parser.add_argument("--policy", choices=PLANNING, action="append")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    heads = "".join(f"{head:>8}" for head in ("mean", "p50", "p99", "max"))
    print(
        f"{'hosts':>6} {'policy':7} {'asked as':9}{'answer':8}{'number':>7}{heads}   microseconds"
    )
    for hosts in options.hosts or TREES:
        for policy in options.policy or ("jigsaw",):
            for plain in (True, False):
                runs = [
                    stream(hosts, policy, options.requests, seed, plain=plain)
                    for seed in range(1, options.seeds + 1)
                ]
                for answers in (("place",), ("refuse",), ("place", "refuse")):
                    times = [t for run in runs for answer in answers for t in run[answer]]
                    what = "hosts" if plain else "domains"
                    name = answers[0] if len(answers) == 1 else "all"
                    print(
                        f"{hosts:6} {policy:7} {what:9}{name:8}{len(times):7}{line(times)}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
