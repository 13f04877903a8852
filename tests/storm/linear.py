# SPDX-License-Identifier: Apache-2.0

"""Judges histories of requests and answers: is there an order in which each answer is right?

A history is linearizable if its operations can be put into an order in which an operation that
was answered before another one was asked stands first, and a single allocation, changed by one
after the other, gives the answers that were received (Herlihy and Wing, 1990). The search is that
of Wing and Gong with the memory of Lowe. Allocations are independent of each other, so each
has a history of its own.

An operation whose answer was lost may have taken effect at any time after it was asked, or never.
Clients repeat lost requests, so there may be many alike: of those that are left, the one that was
asked first can do all that the others can, and one that would change nothing need not be tried.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

LOST = "lost"
"""The answer of an operation of which none came."""

NEVER = float("inf")


class Operation(NamedTuple):
    """One request about an allocation (``subject``, its idempotency key), and its answer.

    ``kind`` is ``create``, ``rename``, ``release`` or ``show``; ``value`` is the name that it
    gives. ``answer`` is the name that came back, ``gone`` (released, or never there), ``refused``,
    or ``LOST``. Seconds are of one monotonic clock.
    """

    subject: str
    kind: str
    value: str
    answer: str
    asked: float
    answered: float


class State(NamedTuple):
    """An allocation: None before it is made, its name, or ``gone``."""

    name: str | None = None


def after(state: State, operation: Operation) -> State | None:
    """The state after an operation with this answer; None if that answer would be wrong.

    A lost answer is right whatever it would have been.
    """
    kind, value, answer = operation.kind, operation.value, operation.answer
    lives = state.name not in (None, "gone")
    match kind:
        case "create":
            if answer == "refused":
                return state if state.name is None else None
            if state.name is None:
                return State(value) if answer in (value, LOST) else None
            return state if answer in (state.name, LOST) else None  # the key answers again
        case "show":
            return state if answer in (state.name or "gone", LOST) else None
        case "rename" if answer == "gone" or (answer == LOST and not lives):
            return state if not lives else None
        case "rename":
            return State(value) if lives and answer in (value, LOST) else None
        case "release" if answer == LOST and state.name is None:
            return state
        case "release":
            return State("gone") if state.name is not None and answer in ("gone", LOST) else None
    raise ValueError(kind)


def problems(history: Iterable[Operation]) -> list[str]:
    """A sentence about each allocation whose history has no such order."""
    by_subject: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_subject[operation.subject].append(operation)
    return [
        f"no order explains the answers about {subject}: {_told(operations)}"
        for subject, operations in by_subject.items()
        if not is_linearizable(operations)
    ]


def is_linearizable(operations: Iterable[Operation]) -> bool:
    """Whether one order explains all answers; ``operations`` are about one allocation."""
    todo = tuple(sorted(operations, key=lambda one: one.asked))
    ends = [NEVER if one.answer == LOST else one.answered for one in todo]
    every = sum(1 << at for at, one in enumerate(todo) if one.answer != LOST)
    tried: set[tuple[int, State]] = set()
    stack = [(0, State())]
    while stack:
        done, state = stack.pop()
        if done & every == every:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        left = [at for at in range(len(todo)) if not done >> at & 1]
        first_end = min(ends[at] for at in left)
        lost: set[tuple[str, str]] = set()
        found = []
        for at in left:
            one = todo[at]
            if one.asked > first_end:  # something that is left was answered before
                break
            following = after(state, one)
            if one.answer == LOST:
                if following == state or (one.kind, one.value) in lost:
                    continue
                lost.add((one.kind, one.value))
            if following is not None:
                found.append((done | 1 << at, following))
        stack += reversed(found)
    return False


def _told(operations: list[Operation]) -> str:
    first = min(one.asked for one in operations)
    return "; ".join(
        f"{one.asked - first:.3f}-{one.answered - first:.3f} {one.kind} {one.value} -> {one.answer}"
        for one in sorted(operations, key=lambda one: one.asked)
    )


@dataclass
class History:
    """The operations of all clients; safe to share between threads.

    ``forget`` begins a new history after a failover with lost commits: ``names`` are those of the
    allocations that the database still has, by subject, or ``gone`` for released ones.
    """

    operations: list[Operation] = field(default_factory=list)
    judged: int = 0
    """Operations before the last ``forget``."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, subject: str, kind: str, value: str, answer: str, asked: float) -> None:
        operation = Operation(subject, kind, value, answer, asked, time.monotonic())
        with self._lock:
            self.operations.append(operation)

    def before(self, moment: float) -> list[Operation]:
        """The operations asked before then; those answered later count as lost."""
        with self._lock:
            return [
                one if one.answered <= moment else one._replace(answer=LOST)
                for one in self.operations
                if one.asked <= moment
            ]

    def forget(self, names: Mapping[str, str]) -> None:
        now = time.monotonic()
        with self._lock:
            self.judged += len(self.operations)
            self.operations = [
                Operation(subject, "create", name, name, now, now)
                for subject, name in names.items()
            ]
            self.operations += [
                Operation(subject, "release", "", "gone", now, now)
                for subject, name in names.items()
                if name == "gone"
            ]
