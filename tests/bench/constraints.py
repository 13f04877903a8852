# SPDX-License-Identifier: Apache-2.0

"""Cost of constraints: ``python -m tests.bench.constraints [--requests N] [--hosts H]``.

Full trees of K-port switches are filled to 70 percent with tenants of exponential size, mean K.
The hosts of half of the leaves have a trait, and each host has one of five costs. Requests of
mean size 2 K are searched and not claimed. Times are microseconds of processor time; they are
reported, never asserted.
"""

from __future__ import annotations

import argparse
from random import Random

from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.constrained import propose
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from tests.bench.policies import RADIX, full_tree, line, timed

WISHES = {
    "none": None,
    "traits": Constraints(traits=frozenset({"gpu"})),
    "avoid": Constraints(avoid_hosts=frozenset(range(0, 1000, 37))),
    "max cost": Constraints(max_host_cost=5),
    "within pod": Constraints(within=Within.POD),
    "spread 4": Constraints(spread=4),
    "cheapest": Constraints(cheapest=True),
}


def inhabited(radix: int, rng: Random) -> Ledger:
    """A fabric whose hosts differ in traits and costs; 30 percent of the hosts are free."""
    fabric, jigsaw = Ledger(full_tree(radix)), POLICIES["jigsaw"]()
    hosts = fabric.topology.hosts
    fabric.describe_hosts(
        {
            host: HostFeatures(
                frozenset({"gpu"} if host // (radix // 2) % 2 else ()), rng.choice((1, 2, 3, 5, 8))
            )
            for host in range(hosts)
        }
    )
    number = 0
    while fabric.free_host_count > 0.3 * hosts:
        size = min(hosts // 8, 1 + int(rng.expovariate(1 / radix)))
        admit(jigsaw, fabric, Request(f"t{number}", size))
        number += 1
    return fabric


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--hosts", type=int, choices=RADIX, action="append")
    parser.add_argument("--policy", choices=POLICIES, action="append")
    options = parser.parse_args()
    heads = "".join(f"{head:>8}" for head in ("mean", "p50", "p99", "max"))
    print(f"{'hosts':>6} {'policy':7} {'constraint':11}{'fit':>4}{heads}   microseconds")
    for hosts in options.hosts or (1024, 11664):
        radix = RADIX[hosts]
        fabric = inhabited(radix, Random(1))
        for name in options.policy or ("jigsaw", "lc"):
            for what, wish in WISHES.items():
                times, fits, rng = [], 0, Random(2)
                for _ in range(options.requests):
                    size = 1 + int(rng.expovariate(1 / radix / 2))
                    request = Request("t", size, constraints=wish)
                    answer, elapsed = timed(propose, POLICIES[name](), fabric, request)
                    times.append(elapsed)
                    fits += isinstance(answer, Allocation)
                print(f"{hosts:6} {name:7} {what:11}{fits:4}{line(times)}", flush=True)


if __name__ == "__main__":
    main()
