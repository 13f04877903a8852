# SPDX-License-Identifier: Apache-2.0

"""``tox -e faults``: play faults under the real OpenSM, and print what was measured."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from tests.faults import table
from tests.faults.fabrics import DUMPS, FABRICS, LARGE, Fabric
from tests.faults.measure import Outcome, play
from tests.faults.scenarios import SCENARIOS, NotHere
from tests.faults.site import Site
from tests.shared import SHARED

PATIENCE = {"128": 120.0, "lassen-edr-2019": 300.0, "3456": 900.0, "11664": 3600.0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("fabrics", nargs="*", help=f"among {', '.join(FABRICS)}")
    parser.add_argument("--scenario", action="append", help="by name; all if omitted")
    parser.add_argument("--hold-down", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two walks")
    parser.add_argument("--write", action="store_true", help="write the table of the page")
    options = parser.parse_args()
    names = options.fabrics or [name for name in FABRICS if name not in LARGE]
    results: dict[str, list[Outcome]] = {}
    for name in names:
        if name in DUMPS and not SHARED.exists():
            print(f"{name}: left out, {SHARED} is not here")
            continue
        fabric = FABRICS[name]()
        results[name] = _measured(fabric, options)
    print(table.render(results, options.hold_down))
    complaints = [x for outcomes in results.values() for one in outcomes for x in one.complaints]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _measured(fabric: Fabric, options: argparse.Namespace) -> list[Outcome]:
    outcomes = []
    for scenario in SCENARIOS:
        if options.scenario and scenario.name not in options.scenario:
            continue
        begun = time.monotonic()
        patience = PATIENCE.get(fabric.name, 120.0)
        try:
            with Site(fabric, faults={"hold_down": options.hold_down}, patience=patience) as site:
                up = time.monotonic() - begun
                outcome = play(site, scenario, pause=options.pause)
        except NotHere as reason:
            print(f"{fabric.name}, {scenario.name}: {reason}", flush=True)
            continue
        held = options.hold_down if scenario.held else 0.0
        outcomes.append(replace(outcome, held=held))
        print(f"{fabric.name} (up after {up:.1f} s): {outcomes[-1]}", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
