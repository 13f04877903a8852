# SPDX-License-Identifier: Apache-2.0

"""``python -m tests.storm [--database KIND] [--minutes M]``; exit status 1 after complaints."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.storm.journal import report
from tests.storm.site import SERVERS
from tests.storm.storm import Outcome, Plan, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--database", choices=[*SERVERS, "both"], default="both")
    parser.add_argument("--minutes", type=float, default=5.0, help="of storm on each (%(default)s)")
    parser.add_argument("--round", type=float, default=60.0, help="seconds between two rests")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--apis", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = list(SERVERS) if options.database == "both" else [options.database]
    wrong = 0
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


def say(plan: Plan, outcome: Outcome) -> int:
    load = os.getloadavg()[2]
    broken = ", ".join(f"{number} x {what}" for what, number in sorted(outcome.broken.items()))
    print(
        f"\n{plan.kind}: {plan.seconds:.0f} s of {plan.clients} clients, {plan.apis} API processes "
        f"and {plan.workers} workers on {os.cpu_count()} cores at a load of {load:.0f}, "
        f"{time.strftime('%Y-%m-%d')}"
        f"\n{outcome.figures.total:,} operations, {outcome.recorded:,} allocations; {broken}; "
        f"{outcome.looks} snapshots judged\n"
    )
    print(report(outcome.figures))
    print(f"\n{len(outcome.complaints)} complaints")
    for complaint in outcome.complaints:
        print(f"- {complaint}")
    return len(outcome.complaints)


if __name__ == "__main__":
    sys.exit(main())
