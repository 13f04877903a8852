# SPDX-License-Identifier: Apache-2.0

"""The tables of measured faults on their page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.faults.mass import MASS, Result
from tests.faults.measure import Outcome
from tests.faults.scenarios import SCENARIOS

PAGE = Path(__file__).parents[2] / "doc" / "source" / "reference" / "fault-times.inc"

TITLES = {scenario.name: scenario.title for scenario in SCENARIOS}
MASS_TITLES = {event.name: event.title for event in MASS}

MASS_TITLE = "Mass events, 128 hosts"

_Rows = dict[str, Sequence[str]]
"""The rows of a table by their first column; first the heads of the columns."""

HEADS = (
    "Fault",
    "Noticed",
    "Recorded",
    "New routes",
    "No pair lost",
    "Confirmed",
    "Links replaced",
    "Generations",
    "Pairs lost",
    "Pairs on foreign links",
    "Pairs lost at the end",
    "Tenants degraded",
    "Load",
    "Processor",
)
MASS_HEADS = (
    "Event",
    "Alarms",
    "Links recorded",
    "Generations",
    "Hosts absent",
    "Pairs on foreign links",
    "Links recorded after recovery",
    "Generations of the recovery",
    "Pairs lost after recovery",
)


def render(results: Mapping[str, Sequence[Outcome]], mass: Sequence[Result]) -> str:
    """The tables, one for each fabric (by title), and one of the mass events."""
    tables = _rows(results, mass)
    return _text({title: _table(title, rows.values()) for title, rows in tables.items()})


def write(results: Mapping[str, Sequence[Outcome]], mass: Sequence[Result]) -> None:
    """Write the tables into the page, in place of older rows of the same faults and fabrics."""
    parts = PAGE.read_text().split(_HEAD)[1:] if PAGE.exists() else []
    rows = {part.splitlines()[0]: _rows_of(part) for part in parts}
    for title, table in _rows(results, mass).items():
        older = rows.get(title, {})
        rows[title] = {fault: table.get(fault) or older[fault] for fault in older | table}
    PAGE.write_text(_text({title: _table(title, one.values()) for title, one in rows.items()}))


def _rows_of(part: str) -> _Rows:
    """The rows of a table on the page, without its directive."""
    lines = [line.strip() for line in part.splitlines() if line.startswith("   ")]
    return {row[0]: row for row in csv.reader(x for x in lines if not x.startswith(":"))}


_HEAD = ".. csv-table:: "


def _text(tables: Mapping[str, str]) -> str:
    """The tables by title; that of the mass events is the last one."""
    ordered = sorted(tables, key=lambda title: title == MASS_TITLE)
    return "\n".join([".. Written by tox -e faults.\n", *(tables[title] for title in ordered)])


def _rows(results: Mapping[str, Sequence[Outcome]], mass: Sequence[Result]) -> dict[str, _Rows]:
    """By title of the table, and by fault."""
    tables = {title: [HEADS, *map(_row, outcomes)] for title, outcomes in results.items()}
    if mass:
        tables[MASS_TITLE] = [MASS_HEADS, *map(_mass_row, mass)]
    return {title: {row[0]: row for row in rows} for title, rows in tables.items()}


def _table(title: str, rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    head = [f"{_HEAD}{title}", "   :header-rows: 1", "   :stub-columns: 1", ""]
    return "\n".join([*head, *(f"   {row}" for row in text.getvalue().splitlines()), ""])


def _row(one: Outcome) -> list[str]:
    return [
        TITLES[one.scenario],
        _seconds(one.noticed),
        *(_seconds(at, one.held) for at in (one.marked, one.published, one.restored)),
        _seconds(one.confirmed, one.held),
        _seconds(one.replaced, one.held),
        str(one.generations),
        f"{one.lost:,} of {one.walked:,}",
        str(one.foreign),
        str(one.lost_at_end),
        str(one.degraded),
        f"{one.load:.0f}",
        _seconds(one.processor),
    ]


def _mass_row(one: Result) -> list[str]:
    return [
        MASS_TITLES[one.name],
        str(one.alarms),
        str(one.marked),
        str(one.generations),
        str(one.absent),
        str(one.foreign),
        str(one.marked_after),
        str(one.generations_after),
        str(one.lost_after),
    ]


def _seconds(value: float | None, held: float = 0.0) -> str:
    return "-" if value is None else f"{max(0.0, value - held):.1f}"
