# SPDX-License-Identifier: Apache-2.0

"""The crash matrix in the documentation matches the code; some of its cells are run here.

These cells cover every step and every fault at least once; ``tox -e matrix`` runs all cells.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.marks import needs_ibsim, needs_rabbitmq
from tests.matrix import table
from tests.matrix.faults import FAULTS
from tests.matrix.runner import Matrix
from tests.matrix.scenarios import LISTED
from tests.matrix.site import World
from tests.servers import postgresql

pytestmark = [
    needs_ibsim,
    needs_rabbitmq,
    pytest.mark.skipif(not postgresql.AVAILABLE, reason="needs the Debian package postgresql"),
]

STEPS, CELLS = table.parse(table.PAGE.read_text())
SLOW = [("allocate", "opensm"), ("release", "broker")]
"""Faults of servers that take seconds to start: each is run once, with this scenario."""

REPEATS = 3
"""Repetitions of a step that are kinds of their own."""


def kinds() -> Iterator[tuple[str, str]]:
    """Distinct steps, each with one scenario that has it.

    Steps of one name are the same in the worker, and also in the API except for the request
    itself. Rounds of a worker repeat some steps; after ``REPEATS`` they count as one kind.
    """
    seen = set()
    for scenario, steps in STEPS.items():
        for number, step in enumerate(steps):
            asked = scenario if step == "request" else number <= steps.index("answer")
            name, _, repeat = step.rstrip(")").partition(" (")
            kind = (name, min(int(repeat or 1), REPEATS), asked)
            if kind not in seen:
                seen.add(kind)
                yield scenario, step


def diagonal() -> list[tuple[str, list[str], str]]:
    """One cell for each distinct step; the faults take turns among those that apply to it."""
    used = dict.fromkeys(FAULTS.keys() - {fault for _, fault in SLOW}, 0)
    met = {
        cell: [one for one in FAULTS if one in used and FAULTS[one].meets(*cell)]
        for cell in kinds()
    }
    rare = {fault: sum(fault in faults for faults in met.values()) for fault in used}
    chosen = []
    for (scenario, step), faults in met.items():
        fault = min(faults, key=lambda one: (used[one], rare[one]))
        used[fault] += 1
        chosen.append((scenario, [step], fault))
    runs = [(name, Matrix.runs(name, STEPS[name], fault)[0], fault) for name, fault in SLOW]
    return chosen + runs


@pytest.fixture(scope="module")
def matrix():
    with World() as world:
        yield Matrix(world, verified=False)


def test_the_page_is_whole():
    assert list(STEPS) == [scenario.name for scenario in LISTED]
    assert CELLS.keys() == {
        (scenario, step, fault)
        for scenario, steps in STEPS.items()
        for step in steps
        for fault in FAULTS
    }
    assert table.render(STEPS, CELLS) == table.PAGE.read_text()
    assert {fault for _, _, fault in diagonal()} == FAULTS.keys()


@pytest.mark.parametrize("scenario", [scenario.name for scenario in LISTED])
def test_no_step_is_missing(matrix, scenario):
    """A new step of the service needs a row, which ``tox -e matrix`` writes."""
    assert matrix.clean(scenario) == STEPS[scenario]


def test_where_no_links_join_the_hosts_servers_stop_before_the_routes_change(matrix):
    steps = STEPS["stopped"]
    assert steps.index("move servers") < steps.index("commit: prepare") < steps.index("publish (2)")


@pytest.mark.parametrize(
    ("scenario", "steps", "fault"),
    diagonal(),
    ids=[f"{scenario}-{steps[0]}-{fault}" for scenario, steps, fault in diagonal()],
)
def test_a_cell_is_as_the_page_says(matrix, scenario, steps, fault):
    outcome = matrix.cell(scenario, steps, fault)
    assert {CELLS[scenario, step, fault] for step in steps} == {outcome}
