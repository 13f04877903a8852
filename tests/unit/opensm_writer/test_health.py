# SPDX-License-Identifier: Apache-2.0

"""Each condition of an OpenSM is distinguished from similar conditions."""

import math
from dataclasses import replace
from typing import Any

import pytest

from laas_service.messages import AgentReport, Condition
from opensm_writer.health import OpenSMState, report
from opensm_writer.opensm import NOT_MASTER, UNFINISHED, Sweep

FINE = OpenSMState(published=7, matches=7, current=True)
OTHERS = replace(FINE, current=False, matches=None, difference="1 of 9 switches differ")
EARLIER = replace(OTHERS, matches=5)
JUST_TOLD: dict[str, Any] = {"unconfirmed": True, "waited": 1.0}
LATE: dict[str, Any] = {"unconfirmed": True, "waited": 61.0}
NOT_SWEPT = Sweep(False, "OpenSM has not swept since the files changed")
KEPT = Sweep(True, "OpenSM could not use the tables and kept the old ones; see its log")
MINHOP = Sweep(True, "OpenSM routed with minhop, not file")


@pytest.mark.parametrize(
    ("observation", "condition", "detail"),
    [
        (FINE, Condition.APPLIED, None),
        (replace(FINE, **JUST_TOLD), Condition.APPLIED, None),
        (replace(FINE, dead="no such process"), Condition.DEAD, "no such process"),
        (replace(FINE, stopped=True), Condition.WEDGED, "stopped"),
        (replace(FINE, stopped=True, refused="torn"), Condition.WEDGED, "stopped"),
        (replace(FINE, refused="torn"), Condition.REFUSED, "torn"),
        (
            replace(FINE, foreign_master=NOT_MASTER),
            Condition.NOT_MASTER,
            "another subnet manager",
        ),
        (
            replace(FINE, foreign_master=NOT_MASTER, sweep=NOT_SWEPT, **LATE),
            Condition.NOT_MASTER,
            "another",
        ),
        (
            replace(FINE, foreign_master=NOT_MASTER, refused="torn"),
            Condition.REFUSED,
            "torn",
        ),
        (
            replace(FINE, foreign_master=NOT_MASTER, dead="gone"),
            Condition.DEAD,
            "gone",
        ),
        (replace(FINE, refused="torn", dead="gone"), Condition.DEAD, "gone"),
        (OpenSMState(), Condition.STARTING, "no set has been published"),
        (OpenSMState(refused="torn"), Condition.REFUSED, "torn"),
        (
            replace(FINE, restarted=True, unsignalled=True),
            Condition.RESTARTED,
            "not the process that",
        ),
        (replace(FINE, restarted=True), Condition.APPLIED, None),
        (replace(FINE, sweep=NOT_SWEPT, **JUST_TOLD), Condition.SWEEPING, "not swept"),
        (replace(FINE, sweep=NOT_SWEPT, restarted=True, **JUST_TOLD), Condition.RESTARTED, "not"),
        (replace(FINE, sweep=NOT_SWEPT, **LATE), Condition.WEDGED, "not swept"),
        (replace(FINE, sweep=Sweep(False, UNFINISHED), **LATE), Condition.WEDGED, "not finished"),
        (replace(FINE, sweep=NOT_SWEPT, waited=math.inf), Condition.WEDGED, "not swept"),
        (replace(FINE, blind="no device"), Condition.BLIND, "no device"),
        (replace(FINE, blind="no device", **JUST_TOLD), Condition.SWEEPING, "no device"),
        (replace(FINE, blind="no device", **LATE), Condition.BLIND, "no device"),
        (replace(FINE, sweep=MINHOP), Condition.OTHER_ENGINE, "minhop"),
        (replace(FINE, sweep=KEPT), Condition.DIFFERS, "kept the old ones"),
        (replace(FINE, wrong_keys="2 ports"), Condition.WRONG_KEYS, "2 ports"),
        (replace(FINE, wrong_keys="2 ports", **JUST_TOLD), Condition.SWEEPING, "2 ports"),
        (replace(FINE, wrong_keys="2 ports", **LATE), Condition.WRONG_KEYS, "2 ports"),
        (replace(FINE, wrong_keys="2 ports", sweep=MINHOP), Condition.OTHER_ENGINE, "minhop"),
        (replace(FINE, wrong_settings="level 2"), Condition.WRONG_SETTINGS, "level 2"),
        (replace(FINE, wrong_settings="level 2", **JUST_TOLD), Condition.SWEEPING, "level 2"),
        (replace(FINE, wrong_settings="x", wrong_keys="2 ports"), Condition.WRONG_KEYS, "2 ports"),
        (OTHERS, Condition.DIFFERS, "1 of 9 switches differ"),
        (replace(OTHERS, sweep=MINHOP, **JUST_TOLD), Condition.OTHER_ENGINE, "minhop"),
        (replace(OTHERS, **JUST_TOLD), Condition.SWEEPING, "1 of 9 switches differ"),
        (replace(OTHERS, restarted=True, **JUST_TOLD), Condition.RESTARTED, "1 of 9 switches"),
        (replace(OTHERS, **LATE), Condition.DIFFERS, "1 of 9 switches differ"),
        (EARLIER, Condition.OTHER_GENERATION, "the switches have generation 5, not 7"),
        (replace(EARLIER, **JUST_TOLD), Condition.SWEEPING, "1 of 9 switches differ"),
        (replace(EARLIER, **LATE), Condition.OTHER_GENERATION, "generation 5, not 7"),
    ],
)
def test_conditions(observation, condition, detail):
    found = report(observation, timeout=60)
    assert found.condition is condition
    assert detail in (found.detail or "") if detail else found.detail is None
    assert found.published == observation.published
    confirmed = condition in (Condition.APPLIED, Condition.OTHER_GENERATION)
    assert found.generation == (observation.matches if confirmed else None)


def test_conditions_in_which_an_agent_is_unable():
    unable = {
        *(Condition.DEAD, Condition.WEDGED, Condition.REFUSED, Condition.BLIND),
        Condition.NOT_MASTER,
    }
    assert {condition for condition in Condition if not condition.able} == unable
    assert AgentReport(Condition.STARTING).condition.able
