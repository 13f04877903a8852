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

HEADS = (
    "Fault",
    "Noticed",
    "Recorded",
    "New routes",
    "No pair lost",
    "Confirmed",
    "Generations",
    "Pairs lost",
    "Pairs on foreign links",
    "Pairs lost at the end",
    "Tenants degraded",
    "Load",
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
    lines = [".. Written by tox -e faults.", ""]
    for title, outcomes in results.items():
        lines += _table(title, [HEADS, *map(_row, outcomes)])
    if mass:
        lines += _table("Mass events, 128 hosts", [MASS_HEADS, *map(_mass_row, mass)])
    return "\n".join(lines)


def _table(title: str, rows: Iterable[Sequence[str]]) -> list[str]:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    head = [f".. csv-table:: {title}", "   :header-rows: 1", "   :stub-columns: 1", ""]
    return [*head, *(f"   {row}" for row in text.getvalue().splitlines()), ""]


def _row(one: Outcome) -> list[str]:
    return [
        TITLES[one.scenario],
        _seconds(one.noticed),
        *(_seconds(at, one.held) for at in (one.marked, one.published, one.restored)),
        _seconds(one.confirmed, one.held),
        str(one.generations),
        f"{one.lost:,} of {one.walked:,}",
        str(one.foreign),
        str(one.lost_at_end),
        str(one.degraded),
        f"{one.load:.0f}",
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
