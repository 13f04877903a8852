# SPDX-License-Identifier: Apache-2.0

"""``tox -e matrix``: run every cell and write the table of the page.

``python -m tests.matrix SCENARIO ...`` runs those scenarios only and writes their part of the
table. ``SCENARIO:FAULT`` runs one column and writes nothing.
"""

from __future__ import annotations

import sys
import time

from tests.matrix import table
from tests.matrix.cell import Failed
from tests.matrix.faults import FAULTS
from tests.matrix.runner import Matrix
from tests.matrix.scenarios import LISTED, SCENARIOS
from tests.matrix.site import World


def main(wanted: list[str]) -> int:
    steps: dict[str, list[str]] = {}
    cells: dict[tuple[str, str, str], str] = {}
    failures: list[str] = []
    with World() as world:
        matrix = Matrix(world)
        named = [one for one in SCENARIOS.values() if _is_named(one.name, wanted)]
        for scenario in named or LISTED:
            name = scenario.name
            faults = [one for one in FAULTS if not wanted or {name, f"{name}:{one}"} & {*wanted}]
            if faults:
                steps[name] = matrix.clean(name)
            for fault in faults:
                _column(matrix, name, steps[name], fault, cells, failures)
    for failure in failures:
        print(failure, file=sys.stderr)
    if not failures and not any(":" in word for word in wanted):
        old_steps, old_cells = table.parse(table.PAGE.read_text()) if wanted else ({}, {})
        others = {cell: text for cell, text in old_cells.items() if cell[0] not in steps}
        table.PAGE.write_text(table.render(old_steps | steps, others | cells))
    print(f"{len(cells)} cells, {len(failures)} runs failed")
    return 1 if failures else 0


def _is_named(name: str, wanted: list[str]) -> bool:
    return any(word.partition(":")[0] == name for word in wanted)


def _column(
    matrix: Matrix,
    scenario: str,
    steps: list[str],
    fault: str,
    cells: dict[tuple[str, str, str], str],
    failures: list[str],
) -> None:
    begun = time.monotonic()
    for some in matrix.runs(scenario, steps, fault):
        try:
            outcome = matrix.cell(scenario, some, fault)
        except (Failed, RuntimeError, AssertionError) as error:
            failures.append(str(error))
            outcome = "FAILED"
        cells |= {(scenario, step, fault): outcome for step in some}
        print(
            f"{time.monotonic() - begun:6.1f} s {scenario}, {fault}, {some}: {outcome}", flush=True
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
