# SPDX-License-Identifier: Apache-2.0

"""How far a move is, from an allocation as the service shows it."""

from __future__ import annotations

import pytest

from watcher_plugin.moves import (
    Move,
    SlotMove,
    Stage,
    moved,
    placement,
    slots_digest,
    units_of,
)

OLD = {"hosts": [{"name": "n1"}, {"name": "n2"}], "links": ["leaf-0-0-0"], "state": "active"}
NEW = {**OLD, "hosts": [{"name": "n2"}, {"name": "n3"}]}
ELSEWHERE = {**OLD, "hosts": [{"name": "n2"}, {"name": "n4"}]}
MOVE = Move("a1", placement(OLD), joining=("n3",), leaving=("n1",))
LINKS = Move("a1", placement(OLD), joining=(), leaving=())
NEWS = {"joining": ["n3"], "leaving": ["n1"]}
OTHER_NEWS = {"joining": ["n4"], "leaving": ["n1"]}


@pytest.mark.parametrize(
    ("shown", "changing", "announced", "stage"),
    [
        (OLD, None, None, Stage.NOT_BEGUN),
        (OLD, None, NEWS, Stage.ANNOUNCED),
        (OLD, None, OTHER_NEWS, Stage.NOT_BEGUN),
        (NEW, "prepare", None, Stage.HOLDING),
        (NEW, "switch", None, Stage.HOLDING),
        (NEW, "enter", None, Stage.HOLDING),
        (NEW, "leave", None, Stage.EMPTYING),
        (NEW, "withdraw", None, Stage.WITHDRAWING),
        (NEW, None, None, Stage.DONE),
        (OLD, "leave", None, Stage.TURNING_BACK),
        (ELSEWHERE, "leave", None, Stage.OTHER),
        ({**NEW, "state": "releasing"}, None, None, Stage.OTHER),
        ({**OLD, "hosts": [], "links": [], "state": "released"}, None, None, Stage.OTHER),
    ],
)
def test_stages(shown, changing, announced, stage):
    assert MOVE.stage({**shown, "changing": changing, "announced": announced}) is stage


def test_an_exchange_of_links_alone_has_stages_too():
    exchanged = {**OLD, "links": ["leaf-0-0-1"], "announced": None}
    assert LINKS.stage({**exchanged, "changing": "switch"}) is Stage.HOLDING
    assert LINKS.stage({**exchanged, "changing": None}) is Stage.DONE
    assert LINKS.stage({**OLD, "announced": None, "changing": None}) is Stage.NOT_BEGUN


def test_a_plan_matches_its_own_move_alone():
    assert MOVE.matches({"allocation": "a1", **NEWS})
    assert not MOVE.matches({"allocation": "a2", **NEWS})
    assert not MOVE.matches({"allocation": "a1", **OTHER_NEWS})
    assert not MOVE.matches(None)


UNITS = {
    "units": [{"name": "n1", "units": [0]}, {"name": "n2", "units": [1, 2]}],
    "state": "active",
    "changing": None,
    "announced": None,
}
MOVES = [{"unit": 0, "leaves": "n1", "joins": "n2"}]
THERE = {**UNITS, "units": [{"name": "n2", "units": [0, 1, 2]}]}
OTHER = {**UNITS, "units": [{"name": "n2", "units": [0, 1]}, {"name": "n3", "units": [2]}]}
SLOTS = SlotMove(
    slots_digest(units_of(UNITS)), slots_digest(moved(units_of(UNITS), MOVES)), (), ("n1",)
)


@pytest.mark.parametrize(
    ("shown", "stage"),
    [
        (UNITS, Stage.NOT_BEGUN),
        ({**UNITS, "announced": {"joining": [], "leaving": ["n1"]}}, Stage.ANNOUNCED),
        ({**UNITS, "announced": {"joining": ["n3"], "leaving": ["n1"]}}, Stage.NOT_BEGUN),
        ({**THERE, "changing": "leave"}, Stage.EMPTYING),
        (THERE, Stage.DONE),
        ({**THERE, "state": "releasing"}, Stage.OTHER),
        ({**UNITS, "changing": "leave"}, Stage.OTHER),
        (OTHER, Stage.OTHER),
    ],
)
def test_the_stage_of_a_move_of_virtual_machines(shown, stage):
    assert SLOTS.stage(shown) is stage
