# SPDX-License-Identifier: Apache-2.0

"""The table of the matrix on its page: render it from outcomes, and parse it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.matrix.faults import FAULTS
from tests.matrix.scenarios import LISTED

PAGE = Path(__file__).parents[2] / "doc" / "source" / "reference" / "crash-matrix.inc"

HALVES = {
    "The service's own processes and connections": [
        fault.name for fault in FAULTS.values() if fault.own
    ],
    "What it depends on": [fault.name for fault in FAULTS.values() if not fault.own],
}

Cells = Mapping[tuple[str, str, str], str]
"""Text of each cell, by scenario, step and fault."""


def render(steps: Mapping[str, Iterable[str]], cells: Cells) -> str:
    lines = [".. Written by tox -e matrix.", ""]
    for scenario in [one for one in LISTED if one.name in steps]:
        lines += [scenario.title, "-" * len(scenario.title), ""]
        for title, faults in HALVES.items():
            lines += [f".. csv-table:: {title}", "   :header-rows: 1", "   :stub-columns: 1", ""]
            rows = [["Step", *(FAULTS[fault].title for fault in faults)]]
            for step in steps[scenario.name]:
                rows.append([step, *(cells[scenario.name, step, fault] for fault in faults)])
            lines += [f"   {row}" for row in _written(rows)]
            lines.append("")
    return "\n".join(lines)


def _written(rows: Iterable[Iterable[str]]) -> list[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().splitlines()


def parse(text: str) -> tuple[dict[str, list[str]], dict[tuple[str, str, str], str]]:
    """Read steps by scenario, and the cells. Raises: ValueError, KeyError."""
    names = {scenario.title: scenario.name for scenario in LISTED}
    titles = {fault.title: fault.name for fault in FAULTS.values()}
    steps: dict[str, list[str]] = {}
    cells: dict[tuple[str, str, str], str] = {}
    scenario, faults = "", [""]
    for line in text.splitlines():
        if line in names:
            scenario = names[line]
        elif line.startswith("   ") and not line.startswith("   :"):
            (row,) = csv.reader([line.strip()])
            if row[0] == "Step":
                faults = [titles[title] for title in row[1:]]
                steps[scenario] = []
                continue
            steps[scenario].append(row[0])
            for fault, outcome in zip(faults, row[1:], strict=True):
                cells[scenario, row[0], fault] = outcome
    return steps, cells
