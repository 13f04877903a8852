# SPDX-License-Identifier: Apache-2.0

"""Cost of a request: ``python -m tests.bench.policies [--requests N] [--hosts H]``.

Full trees of K-port switches are filled from empty to saturation with tenants of
exponential size, mean K. After each refusal one random tenant leaves. The time of a
request includes the policy's search and, if it finds a placement, the ledger's claim.
Times are microseconds of processor time; they are reported, never asserted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from random import Random

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import (
    Allocation,
    ColumnShare,
    GroupShare,
    NoFit,
    Refusal,
    Request,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import Policy
from laas_service.domain.topology import Topology, Xgft

RADIX = {1024: 16, 5488: 28, 11664: 36, 27648: 48, 65536: 64}
POLICY_NAMES = ("laas", "jigsaw", "lc")


def full_tree(radix: int) -> Topology:
    """The full tree of switches with ``radix`` ports: radix ** 3 / 4 hosts."""
    half = radix // 2
    return Topology(Xgft((half, half, radix), (1, half, half)))


def timed(
    ask: Callable[[Policy, Ledger, Request], Allocation | NoFit],
    policy: Policy,
    fabric: Ledger,
    request: Request,
) -> tuple[Allocation | NoFit, float]:
    start = time.thread_time_ns()
    answer = ask(policy, fabric, request)
    return answer, (time.thread_time_ns() - start) / 1000


def churn(policy_name: str, radix: int, requests: int, seed: int = 1) -> dict[str, list[float]]:
    """Times of placements and of refusals, and the share of hosts in use after each request."""
    rng = Random(seed)
    fabric = Ledger(full_tree(radix))
    policy = POLICIES[policy_name]()
    hosts = fabric.topology.hosts
    times: dict[str, list[float]] = {"place": [], "refuse": [], "used": []}
    live: list[str] = []
    for number in range(requests):
        size = min(hosts, 1 + int(rng.expovariate(1 / radix)))
        request = Request(f"t{number}", size)
        answer, elapsed = timed(admit, policy, fabric, request)
        if isinstance(answer, Allocation):
            times["place"].append(elapsed)
            live.append(answer.id)
        else:
            times["refuse"].append(elapsed)
            victim = rng.randrange(len(live))
            live[victim], live[-1] = live[-1], live[victim]
            fabric.release(live.pop())
        times["used"].append(1 - fabric.free_host_count / hosts)
    return times


def crown(radix: int, pairs: bool) -> Ledger:
    """A ledger where each leaf (or each pair) lacks another uplink, and all have free hosts.

    The published recursion tries every combination of leaves here.
    """
    fabric = Ledger(full_tree(radix))
    half = radix // 2
    groups = []
    for group in range(fabric.topology.groups):
        leaf = group % half
        groups.append(GroupShare(group, 1, 1 << (leaf // 2 if pairs else leaf)))
    fabric.claim(Allocation("crown", len(groups), "jigsaw", tuple(groups)))
    return fabric


def spines(radix: int, taken: Callable[[int, int, int], bool]) -> Ledger:
    """A ledger where ``taken(pod, column, spine)`` chooses the spine uplinks that are in use."""
    fabric = Ledger(full_tree(radix))
    half = radix // 2
    columns = []
    for pod in range(radix):
        for column in range(half):
            mask = sum(1 << spine for spine in range(half) if taken(pod, column, spine))
            if mask:
                columns.append(ColumnShare(pod, column, mask))
    groups = [
        GroupShare(pod * half + leaf, 1, 1) for pod in range(radix) for leaf in range(half // 4)
    ]
    fabric.claim(Allocation("board", len(groups), "jigsaw", tuple(groups), tuple(columns)))
    return fabric


HARD: dict[str, Callable[[int], Ledger]] = {
    "crown": lambda radix: crown(radix, False),
    "pairs": lambda radix: crown(radix, True),
    "board": lambda radix: spines(radix, lambda p, c, s: bool((s + p + (c == p)) % 2)),
    "s-crown": lambda radix: spines(radix, lambda p, c, s: s == (p + c) % (radix // 2)),
    "s-pairs": lambda radix: spines(radix, lambda p, c, s: s == p // 2 % (radix // 2)),
    "s-random": lambda radix: spines(radix, lambda p, c, s: hash((p, c, s)) % 10 < 3),
}
"""States that are hard to search.

``crown`` and ``pairs`` lack uplinks of leaves. ``board`` has a displaced checkerboard of spine
uplinks in use. ``s-crown`` and ``s-pairs`` lack spine uplinks. ``s-random`` has 30 percent of
the spine uplinks in use.
"""


def adversarial(policy_name: str, radix: int, state: str, sizes: int) -> list[tuple[float, bool]]:
    """Times of about ``sizes`` sizes without caches, and whether the search budget ran out."""
    policy = POLICIES[policy_name]()
    fabric = HARD[state](radix)
    times = []
    for size in range(1, fabric.topology.hosts, max(1, fabric.topology.hosts // sizes)):
        fabric.reader_caches.clear()
        answer, elapsed = timed(type(policy).propose, policy, fabric, Request("t", size))
        times.append((elapsed, isinstance(answer, NoFit) and answer.reason is Refusal.BUDGET))
    return times


def figures(times: Sequence[float]) -> list[float]:
    """Mean, median, 99th percentile and maximum."""
    ordered = sorted(times) or [0.0]
    at = [ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99, 1)]
    return [sum(ordered) / len(ordered), *at]


def line(times: Sequence[float]) -> str:
    return "".join(f"{value:8.0f}" for value in figures(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--sizes", type=int, default=400, help="sizes tried on each hard state")
    parser.add_argument("--hosts", type=int, choices=RADIX, action="append")
    parser.add_argument("--policy", choices=POLICIES, action="append")
    options = parser.parse_args()
    heads = "".join(f"{head:>8}" for head in ("mean", "p50", "p99", "max"))
    print(f"{'hosts':>6} {'policy':7} {'what':9}{'number':>8}{heads}   microseconds")

    def show(what: str, times: Sequence[float], tail: str) -> None:
        print(f"{hosts:6} {name:7} {what:9}{len(times):8}{line(times)}   {tail}", flush=True)

    for hosts in options.hosts or RADIX:
        for name in options.policy or POLICY_NAMES:
            times = churn(name, RADIX[hosts], options.requests)
            used = times.pop("used")
            full = sum(used[len(used) // 2 :]) / (len(used) - len(used) // 2)
            for what, row in {**times, "all": times["place"] + times["refuse"]}.items():
                show(what, row, f"{full:.3f} of the hosts in use" if what == "all" else "")
            for state in HARD:
                tried = adversarial(name, RADIX[hosts], state, options.sizes)
                hits = sum(hit for _, hit in tried)
                show(state, [elapsed for elapsed, _ in tried], f"{hits} out of budget")


if __name__ == "__main__":
    main()
