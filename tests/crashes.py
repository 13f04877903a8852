# SPDX-License-Identifier: Apache-2.0

"""The tables of crashes at Ironic, Nova and placement on the page ``crash-matrix``.

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

REFERENCE = Path(__file__).parents[1] / "doc" / "source" / "reference"
NODES = REFERENCE / "crash-nodes.inc"
SLOTS = REFERENCE / "crash-slots.inc"
WRITTEN_BY = {NODES: "node-crashes", SLOTS: "slot-crashes"}
"""The environment of tox that writes a page."""

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


def tell(title: str, rows: Sequence[Sequence[str]], page: Path = NODES) -> None:
    """Write the rows of a section, or compare them with the page."""
    sections = parse(page.read_text()) if page.exists() else {}
    mine = [[*row] for row in dict.fromkeys(map(tuple, rows))]
    assert mine, f"{title}: nothing was killed"
    if FULL:
        page.write_text(render({**sections, title: mine}, WRITTEN_BY[page]))
        return
    new = [row for row in mine if row not in sections[title]]
    assert not new, f"{page.name} lacks {new}: run tox -e {WRITTEN_BY[page]}"


def render(sections: dict[str, Rows], written_by: str) -> str:
    lines = [f".. Written by tox -e {written_by}.", ""]
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
