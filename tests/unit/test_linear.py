# SPDX-License-Identifier: Apache-2.0

"""The judge of histories notices bad ones made by hand, and explains good ones."""

from itertools import permutations
from random import Random

import pytest

from tests.storm.linear import LOST, Operation, State, after, is_linearizable, problems


def op(kind: str, value: str, answer: str, asked: float, answered: float) -> Operation:
    return Operation("k", kind, value, answer, asked, answered)


MADE = op("create", "a", "a", 0, 1)

GOOD = {
    "one after the other": [MADE, op("rename", "b", "b", 2, 3), op("show", "", "b", 4, 5)],
    "the same key again": [MADE, op("create", "a", "a", 2, 3)],
    "the key answers as it is now": [
        MADE,
        op("rename", "b", "b", 2, 3),
        op("create", "a", "b", 4, 5),
    ],
    "seen while it is renamed": [MADE, op("rename", "b", "b", 2, 9), op("show", "", "a", 3, 4)],
    "seen new while it is renamed": [MADE, op("rename", "b", "b", 2, 9), op("show", "", "b", 3, 4)],
    "two at once": [
        MADE,
        op("rename", "b", "b", 2, 9),
        op("rename", "c", "c", 2, 9),
        op("show", "", "b", 10, 11),
    ],
    "a lost one happened": [MADE, op("rename", "b", LOST, 2, 3), op("show", "", "b", 9, 10)],
    "a lost one did not": [MADE, op("rename", "b", LOST, 2, 3), op("show", "", "a", 9, 10)],
    "a lost one happens late": [
        MADE,
        op("rename", "b", LOST, 2, 3),
        op("show", "", "a", 4, 5),
        op("show", "", "b", 6, 7),
    ],
    "a lost creation": [op("create", "a", LOST, 0, 1), op("create", "a", "a", 2, 3)],
    "refused, and made later": [op("create", "a", "refused", 0, 1), op("create", "a", "a", 2, 3)],
    "released twice": [MADE, op("release", "", "gone", 2, 3), op("release", "", "gone", 4, 5)],
    "too late to rename": [MADE, op("release", "", "gone", 2, 3), op("rename", "b", "gone", 4, 5)],
}

BAD = {
    "lost": [MADE, op("show", "", "gone", 2, 3)],
    "an old name": [MADE, op("rename", "b", "b", 2, 3), op("show", "", "a", 4, 5)],
    "back and forth": [MADE, op("rename", "b", "b", 2, 20), op("show", "", "b", 3, 4),
                       op("show", "", "a", 5, 6)],
    "from nowhere": [MADE, op("show", "", "z", 2, 3)],
    "alive after release": [MADE, op("release", "", "gone", 2, 3), op("show", "", "a", 4, 5)],
    "renamed after release": [MADE, op("release", "", "gone", 2, 3), op("rename", "b", "b", 4, 5)],
    "made twice": [MADE, op("release", "", "gone", 2, 3), op("create", "a", "a", 4, 5)],
    "refused although made": [MADE, op("create", "a", "refused", 2, 3)],
    "seen before it was asked": [op("show", "", "a", 0, 1), op("create", "a", "a", 2, 3)],
    "a lost one undone": [MADE, op("rename", "b", LOST, 2, 3), op("show", "", "b", 4, 5),
                          op("show", "", "a", 6, 7)],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_histories_are_explained(name):
    assert is_linearizable(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_bad_histories_are_noticed(name):
    assert not is_linearizable(BAD[name])
    (said,) = problems([*BAD[name], *(o._replace(subject="other") for o in GOOD["two at once"])])
    assert "about k" in said


@pytest.mark.parametrize("seen", ["b", "z"])
def test_many_repetitions_of_lost_requests_are_judged_in_a_moment(seen):
    """As many as clients make while all processes are stopped."""
    lost = [("create", "a"), ("rename", "b"), ("rename", "c"), ("release", ""), ("show", "")]
    history = [op(*each, LOST, at / 100, at / 100 + 1) for at in range(100) for each in lost]
    assert is_linearizable([*history, op("show", "", seen, 9, 10)]) == (seen == "b")


def by_brute_force(operations: list[Operation]) -> bool:
    """Every order of every choice of the lost ones."""
    lost = [one for one in operations if one.answer == LOST]
    for chosen in range(1 << len(lost)):
        left_out = [one for at, one in enumerate(lost) if not chosen >> at & 1]
        kept = [one for one in operations if one not in left_out]
        for order in permutations(kept):
            state: State | None = State()
            for at, one in enumerate(order):
                early = any(
                    other.answer != LOST and other.answered < one.asked for other in order[at + 1 :]
                )
                state = None if early or state is None else after(state, one)
            if state is not None:
                return True
    return False


def test_random_histories_are_judged_as_by_brute_force():
    chance, verdicts = Random(7), set()
    for _ in range(2000):
        operations = []
        answers: tuple[str, ...]
        for number in range(chance.randint(1, 5)):
            kind = chance.choice(("create", "rename", "release", "show"))
            value = {"create": "a", "rename": f"n{number // 2}"}.get(kind, "")
            answers = {"create": ("a", "refused"), "release": ("gone",)}.get(
                kind, ("a", "gone", value)
            )
            asked = chance.randint(0, 6)
            answer = chance.choice((*answers, LOST))
            operations.append(
                Operation("k", kind, value, answer, asked, asked + chance.randint(1, 4))
            )
        verdict = is_linearizable(operations)
        assert verdict == by_brute_force(operations), operations
        verdicts.add(verdict)
    assert verdicts == {True, False}
