# SPDX-License-Identifier: Apache-2.0

"""Recorded plans of moves: the question, the moves, and how far they are; pure.

A plan is a value: its id follows from the question and from the moves. Whoever asks the same
question again gets the same plan while it holds.
"""

import enum
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from typing import Any

from laas_service.app.lifecycle import State
from laas_service.app.records import AllocationRecord
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import DoubleClaim, NotFound
from laas_service.domain.ledger import Ledger, LedgerView


class PlanKind(enum.Enum):
    """What a plan of moves is for."""

    ROOM = "room"
    SLEEP = "sleep"
    CONSOLIDATION = "consolidation"
    EVACUATION = "evacuation"


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What a plan was asked for: equal questions have equal digests."""

    fabric: str
    kind: PlanKind
    asked: tuple[Any, ...]
    """Numbers, texts, sets, and frozen values of them."""

    @property
    def digest(self) -> str:
        return _digest([self.fabric, self.kind.value, [_plain(value) for value in self.asked]])


class Progress(enum.Enum):
    """How far a move of a plan is."""

    TO_COME = "to come"
    BEGUN = "begun"
    """It is announced, or under way."""
    MADE = "made"
    LOST = "lost"
    """It cannot take place any more."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A move of a plan: the allocation (id), and its placements before and after."""

    allocation: str
    old: Allocation
    new: Allocation
    new_hosts: int
    """As in ``room_planner.PlannedMove``."""
    move_cost: float

    def progress(self, record: AllocationRecord | None) -> Progress:
        """How far the move is; ``record`` is None if the allocation is gone."""
        if record is None or record.state is not State.ACTIVE:
            return Progress.LOST
        if record.change is not None:
            return Progress.BEGUN if record.placed == self.new else Progress.LOST
        if record.announced is not None:
            return Progress.BEGUN if record.announced == self.new else Progress.LOST
        if record.placed == ended(self.new):
            return Progress.MADE
        same = record.placed == self.old and record.consent.move_cost == self.move_cost
        return Progress.TO_COME if same else Progress.LOST


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """The moves that a question was answered with, in order."""

    steps: tuple[PlanStep, ...]
    cut_off: bool = False
    """Whether the search stopped at its budget."""
    emptied: Mapping[str, Any] | None = None
    """What a consolidation empties; None of other kinds."""

    def id(self, question: PlanQuestion) -> str:
        """Equal for equal plans that answer equal questions."""
        moves = [[step.allocation, *map(_placement, (step.old, step.new))] for step in self.steps]
        return _digest([question.digest, moves])


NO_MOVES = RecordedPlan(())
"""The answer where nobody has to move."""


@dataclass(frozen=True, slots=True)
class KnownPlans:
    """What is recorded of a question. ``serial`` grows with every plan of the fabric."""

    serial: int
    newest: RecordedPlan | None = None
    """The last answer to the question."""
    keyed: RecordedPlan | None = None
    """The answer to the request with the same idempotency key."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A move to announce with a plan."""

    record: AllocationRecord
    to: Allocation
    begins: datetime
    reason: str
    forced: bool


def remaining(
    plan: RecordedPlan,
    records: Mapping[str, AllocationRecord],
    ledger: LedgerView,
    may_move: Callable[[PlanStep], bool],
) -> tuple[Sequence[PlanStep], Ledger] | None:
    """The moves of a plan that are not made yet, and the ledger after them.

    None if the plan does not hold: one of these cannot take place, or all are made. The ``ledger``
    has the moves from elsewhere that are to count. ``may_move`` says whether a move to come is
    allowed.
    """
    draft, left = ledger.copy(), list[PlanStep]()
    for step in plan.steps:
        match step.progress(records.get(step.allocation)):
            case Progress.LOST:
                return None
            case Progress.MADE:
                continue
            case Progress.TO_COME if not may_move(step):
                return None
        if not moved(draft, step.old, step.new):
            return None
        left.append(step)
    return (left, draft) if left else None


def ended(new: Allocation) -> Allocation:
    """The placement once a move to it is over: no virtual machine has to move any more."""
    if new.kind.whole_hosts:
        return new
    return replace(new, slots=new.held_slots.reached)


def moved(draft: Ledger, old: Allocation, new: Allocation) -> bool:
    """Move a tenant in a draft; False, and nothing changes, if its new place is not free."""
    try:
        draft.change(new.joined(old))
    except DoubleClaim:
        return False
    draft.change(ended(new))
    return True


def is_pending(record: AllocationRecord) -> bool:
    """Whether a change of its placement is announced or under way."""
    return record.announced is not None or record.change is not None


def with_pending(ledger: LedgerView, pending: Sequence[AllocationRecord], *, done: bool) -> Ledger:
    """The ledger after moves that are announced or under way; not ``done``: while they last."""
    draft = ledger.copy()
    for record in pending:
        placed, to = record.placed, record.announced
        with suppress(NotFound, DoubleClaim):  # it is gone, or its announcement no longer holds
            if record.change is not None and placed is not None and done:
                draft.change(placed)
            elif to is not None and placed is not None:
                draft.change(to.joined(placed))
                if done:
                    draft.change(ended(to))
    return draft


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _placement(placed: Allocation) -> Any:
    return _plain(replace(placed, id=""))


def _plain(value: Any) -> Any:
    """A value that JSON writes alike in every process."""
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(one)) for key, one in value.items())
    if isinstance(value, frozenset | set):
        return sorted(map(_plain, value), key=repr)
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value
