# SPDX-License-Identifier: Apache-2.0

"""``python -m tests.storm [--database KIND] [--minutes M]``; exit status 1 after complaints."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from tests.storm.journal import report
from tests.storm.site import KINDS
from tests.storm.storm import Outcome, Plan, run

WITHOUT: dict[str, dict[str, Any]] = {
    "fencing": {"only": ("pause_before_effect", "stall")},
    "generations": {"only": ("kill_api", "cut")},
    "digest": {"only": ("cut",), "disasters": ("failover asleep",), "round": 20.0},
    "constraint": {"only": ("forge", "kill_api")},
}
"""The guards, and the faults that they are for: the storm without a guard has these alone."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--database", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--minutes", type=float, default=5.0, help="of storm on each (%(default)s)")
    parser.add_argument("--round", type=float, default=60.0, help="seconds between two rests")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--apis", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--without",
        choices=["each", *WITHOUT],
        help="take a guard of the service away, and end with 1 unless that is noticed",
    )
    options = parser.parse_args()
    everywhere = [kind for kind in KINDS if kind != "galera"]
    kinds = everywhere if options.database == "all" else [options.database]
    wrong = 0
    if options.without:
        guards = WITHOUT if options.without == "each" else [options.without]
        return sum(unnoticed(kind, guard, options.seed) for kind in kinds for guard in guards)
    for kind in kinds:
        plan = Plan(
            kind,
            seconds=60 * options.minutes,
            round=options.round,
            clients=options.clients,
            apis=options.apis,
            workers=options.workers,
            seed=options.seed,
        )
        wrong += say(plan, run(plan))
    return 1 if wrong else 0


def unnoticed(kind: str, guard: str, seed: int) -> int:
    """1 if the storm does not notice within a minute that a guard is missing."""
    faults: dict[str, Any] = {"disasters": (), **WITHOUT[guard]}
    plan = Plan(kind, seconds=60, seed=seed, pause=(0.2, 1.0), without=guard, **faults)
    first = run(plan).complaints.first
    told = "not noticed" if first is None else f"noticed after {first:.0f} s"
    print(f"\n{kind} without {guard}: {told}", flush=True)
    return int(first is None or first > plan.seconds)


def say(plan: Plan, outcome: Outcome) -> int:
    load = os.getloadavg()[2]
    broken = ", ".join(f"{number} x {what}" for what, number in sorted(outcome.broken.items()))
    print(
        f"\n{plan.kind}: {plan.seconds:.0f} s of {plan.clients} clients, {plan.apis} API processes "
        f"and {plan.workers} workers on {os.cpu_count()} cores at a load of {load:.0f}, "
        f"{time.strftime('%Y-%m-%d')}"
        f"\n{outcome.figures.total:,} operations, {outcome.recorded:,} allocations; {broken}; "
        f"{outcome.looks} snapshots and {outcome.judged:,} operations in the history judged\n"
    )
    print(report(outcome.figures))
    print(f"\n{len(outcome.complaints)} complaints")
    for complaint in outcome.complaints:
        print(f"- {complaint}")
    return len(outcome.complaints)


if __name__ == "__main__":
    sys.exit(main())
