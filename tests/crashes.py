# SPDX-License-Identifier: Apache-2.0

"""The table of crashes at Ironic, Nova and placement on the page ``crash-matrix``.

A test that kills after each change tells its rows, of which the page has each once. With
``LAAS_CRASH=full`` they are written on the page; without it each has to be on the page. Which rows
occur depends on what Ironic's cleaning and a worker's round do first.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "doc" / "source" / "reference" / "crash-nodes.inc"
FULL = os.environ.get("LAAS_CRASH") == "full"

HEADER = ["killed after", "what it left", "afterwards"]
DONE = "taken up after the restart"

Rows = list[list[str]]

_WORDS = (
    (r"node [\w-]+", "a node"),
    (r"host [\w-]+", "a hypervisor"),
    (r"server [\w-]+", "a server"),
    (r"aggregate laas-pool\S*", "the pool"),
    (r"aggregate laas-\S+", "the aggregate"),
    (r"/resource_providers/\S+/aggregates of placement", "the aggregates of a node in placement"),
)


def change(action: str) -> str:
    """The change that a call makes, without names."""
    for pattern, words in _WORDS:
        action = re.sub(pattern, words, action)
    return action


def tell(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Write the rows of a section, or compare them with the page."""
    sections = parse(PAGE.read_text()) if PAGE.exists() else {}
    mine = [[*row] for row in dict.fromkeys(map(tuple, rows))]
    assert mine, f"{title}: nothing was killed"
    if FULL:
        PAGE.write_text(render({**sections, title: mine}))
        return
    new = [row for row in mine if row not in sections[title]]
    assert not new, f"{PAGE.name} lacks {new}: run tox -e node-crashes"


def render(sections: dict[str, Rows]) -> str:
    lines = [".. Written by tox -e node-crashes.", ""]
    for title, rows in sorted(sections.items()):
        lines += [f".. csv-table:: {title}", "   :header-rows: 1", ""]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
        lines += [f"   {line}" for line in text.getvalue().splitlines()]
        lines.append("")
    return "\n".join(lines)


def parse(text: str) -> dict[str, Rows]:
    sections: dict[str, Rows] = {}
    rows: Rows = []
    for line in text.splitlines():
        if line.startswith(".. csv-table:: "):
            rows = sections.setdefault(line.removeprefix(".. csv-table:: "), [])
        elif line.startswith("   ") and not line.startswith("   :"):
            (row,) = csv.reader([line.strip()])
            if row != HEADER:
                rows.append(row)
    return sections
