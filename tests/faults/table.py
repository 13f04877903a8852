# SPDX-License-Identifier: Apache-2.0

"""The table of measured faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.faults.measure import Outcome
from tests.faults.scenarios import SCENARIOS

TITLES = {scenario.name: scenario.title for scenario in SCENARIOS}


def render(results: Mapping[str, Sequence[Outcome]], hold_down: float) -> str:
    lines = []
    for name, outcomes in results.items():
        lines.append(f"{name}, hold-down {hold_down:g} s")
        for one in outcomes:
            lines.append(f"  {TITLES[one.scenario]}: {_row(one)}")
    return "\n".join(lines)


def _row(one: Outcome) -> list[str]:
    return [
        _seconds(one.noticed),
        _seconds(one.marked, one.held),
        _seconds(one.published, one.held),
        _seconds(one.restored, one.held),
        _seconds(one.confirmed, one.held),
        str(one.generations),
        f"{one.lost} of {one.walked}",
        str(one.foreign),
        str(one.lost_at_end),
        str(one.degraded),
    ]


def _seconds(value: float | None, held: float = 0.0) -> str:
    return "-" if value is None else f"{value - held:.1f}"
