# SPDX-License-Identifier: Apache-2.0

"""What a node owes: random crashes, failures and operators, against a model of Ironic."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.adapters.ironic_cleaning import (
    CleaningAction,
    PendingCleaning,
    cleaning_from,
    next_of,
    read_steps,
)
from laas_service.domain.errors import InvalidInput


class Node:
    """A node of Ironic whose steps take a moment; ``clean`` tells whether they ran to their end."""

    def __init__(self):
        self.state, self.clock, self.since = "available", 0, "0000"
        self.last_error = self.inspected = ""
        self.clean = False
        self.pending = PendingCleaning("a1")

    def become(self, state, error=None):
        self.clock += 1
        self.state, self.since = state, f"{self.clock:04d}"
        if error is not None:
            self.last_error = error

    def ask(self, action):
        allowed = {
            CleaningAction.MANAGE: ("available", "clean failed"),
            CleaningAction.RUN: ("manageable",),
            CleaningAction.PROVIDE: ("manageable",),
        }
        if self.state not in allowed[action]:
            return
        if action is CleaningAction.RUN:
            self.become("cleaning", error="")
        else:
            self.become("manageable" if action is CleaningAction.MANAGE else "available")


def serve(node, crash):
    """One call of the service, which may crash after it has recorded what follows."""
    if node.state == "cleaning":
        return
    following = next_of(node.pending, node.state, node.since, node.last_error, node.inspected)
    node.pending = following.pending
    if following.action and not crash:
        node.ask(following.action)


EVENTS = {
    "serve": lambda node: serve(node, crash=False),
    "crash": lambda node: serve(node, crash=True),
    "done": lambda node: end(node, failed=False),
    "failed": lambda node: end(node, failed=True),
    "operator manages": lambda node: node.ask(CleaningAction.MANAGE),
    "operator inspects": lambda node: inspect(node),
}


def end(node, *, failed):
    if node.state == "cleaning":
        node.clean = not failed
        node.become(
            "clean failed" if failed else "manageable", error="it failed" if failed else None
        )


def inspect(node):
    if node.state == "manageable":
        node.become("inspecting", error="")
        node.become("manageable")
        node.inspected = node.since


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=40))
def test_a_node_has_paid_only_when_its_steps_ran(events):
    node = Node()
    for event in events:
        EVENTS[event](node)
        assert node.clean or not node.pending.paid, events
    for _ in range(8):  # nothing disturbs any more
        end(node, failed=False)
        if node.state == "clean failed":
            node.ask(CleaningAction.MANAGE)
        serve(node, crash=False)
    assert node.pending.paid
    assert node.clean


def test_a_node_that_an_operator_manages_after_it_paid_is_left_alone():
    paid = PendingCleaning("a1", "0007", paid=True)
    assert next_of(paid, "manageable", "0007").action is CleaningAction.PROVIDE
    assert next_of(paid, "manageable", "0009").action is None
    assert next_of(paid, "clean failed", "0009").pending == paid


def test_a_debt_is_read_as_it_was_written():
    for pending in (
        PendingCleaning("a1"),
        PendingCleaning("a1", "2026-11-26T10:00:00+00:00", paid=True),
    ):
        assert cleaning_from(json.loads(json.dumps(pending.document()))) == pending
    for strange in (None, "x", {}, {"seen": 1}):
        assert cleaning_from(strange) is None


def test_files_of_steps(tmp_path):
    file = tmp_path / "steps.json"
    steps = [{"interface": "deploy", "step": "erase_devices", "args": {}}]
    file.write_text(json.dumps(steps))
    assert read_steps(str(file)) == steps
    assert read_steps(None) == []
    wrong = ["", "{}", "[]", "[1]", '[{"step": "x"}]', '[{"interface":"a","step":"b","order":1}]']
    for text in wrong:
        file.write_text(text)
        with pytest.raises(InvalidInput, match=r"\[compute\] clean_steps"):
            read_steps(str(file))
    with pytest.raises(InvalidInput, match="can be read"):
        read_steps(str(tmp_path / "none.json"))
