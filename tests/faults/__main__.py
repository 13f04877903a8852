# SPDX-License-Identifier: Apache-2.0

"""``tox -e faults``: play faults under the real OpenSM, and print what was measured.

Exit status 1 if packets of a tenant crossed a link that is not its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from tests.faults import histories, table
from tests.faults.fabrics import DUMPS, FABRICS, LARGE, Fabric
from tests.faults.mass import MASS, Result
from tests.faults.mass import play as play_mass
from tests.faults.measure import Outcome, play
from tests.faults.scenarios import SCENARIOS, NotHere
from tests.faults.site import Site
from tests.shared import SHARED

RARELY = 1000.0
"""Seconds between two walks over a large fabric: each delays OpenSM by seconds."""

PATIENCE = {"3456": 1800.0, "11664": 7200.0}
"""Seconds that a step may take; 600 where nothing is said."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("fabrics", nargs="*", help=f"among {', '.join(FABRICS)}; all but large")
    parser.add_argument("--scenario", action="append", help="by name; all if omitted")
    parser.add_argument("--hold-down", type=float, default=5.0, help="seconds (%(default)s)")
    parser.add_argument(
        "--pause", type=float, help=f"seconds between two walks; 0, or {RARELY:g} on large fabrics"
    )
    parser.add_argument("--mass", action="store_true", help="also the mass events, on 128 hosts")
    parser.add_argument("--histories", type=int, default=0, help="random histories, after all else")
    parser.add_argument("--write", action="store_true", help="write the tables of the page")
    options = parser.parse_args()
    results: dict[str, list[Outcome]] = {}
    mass: list[Result] = []
    for name in options.fabrics or [name for name in FABRICS if name not in LARGE]:
        if name in DUMPS and not SHARED.exists():
            print(f"{name}: left out, {SHARED} is not here")
            continue
        fabric = FABRICS[name]()
        results[fabric.title] = _measured(fabric, options)
        _tell(options, results, mass)
    if options.mass:
        for event in MASS:
            with Site(FABRICS["128"](), faults={"hold_down": 2}, patience=600) as site:
                mass.append(play_mass(site, event))
            print(mass[-1], flush=True)
        _tell(options, results, mass)
    if options.histories:
        histories.run(options.histories)
        print(f"{options.histories} histories", flush=True)
    complaints = [x for outcomes in results.values() for one in outcomes for x in one.complaints]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints or any(one.foreign for one in mass) else 0


def _tell(
    options: argparse.Namespace, results: dict[str, list[Outcome]], mass: list[Result]
) -> None:
    print(table.render(results, mass), flush=True)
    if options.write:
        table.write(results, mass)


def _measured(fabric: Fabric, options: argparse.Namespace) -> list[Outcome]:
    """Each scenario on a site of its own."""
    outcomes = []
    for scenario in SCENARIOS:
        if options.scenario and scenario.name not in options.scenario:
            continue
        begun = time.monotonic()
        patience = PATIENCE.get(fabric.name, 600.0)
        pause = options.pause
        if pause is None:
            pause = RARELY if fabric.name in LARGE else 0.0
        try:
            with Site(fabric, faults={"hold_down": options.hold_down}, patience=patience) as site:
                up = time.monotonic() - begun
                outcome = play(site, scenario, pause=pause)
        except NotHere as reason:
            print(f"{fabric.name}, {scenario.name}: {reason}", flush=True)
            continue
        outcomes.append(replace(outcome, held=options.hold_down if scenario.held else 0.0))
        print(f"{fabric.name} (up after {up:.1f} s): {outcomes[-1]}", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
