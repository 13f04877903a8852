# SPDX-License-Identifier: Apache-2.0

"""Group commit: decisions about a fabric that wait for the same thread are written together.

A decision needs about ten statements and a commit, whatever its search takes. Threads that wait for
the previous one (``arrival_order``) stand in a line. The first that goes on takes the whole line,
searches for one decision after the other on one draft, and commits them in one transaction.
The outcome is that of deciding them in the order of the line.

A group may leave decisions out, and if anything goes wrong it decides nothing: those are decided
alone, each by its own thread. So a decision never fails because of another one.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from laas_service.adapters.db.concurrency.decider import Decider
from laas_service.adapters.db.concurrency.decision import Decision
from laas_service.domain.errors import LaasError

One = TypeVar("One", bound=Decision[Any, Any])
Result = TypeVar("Result")

Join = Callable[[Sequence[One]], Decision[Any, Mapping[int, Result]]]
"""Makes one decision of several; its result has the results of those that it decided, by place."""


class _Member(Generic[One, Result]):
    """A decision in the line."""

    def __init__(self, decision: One) -> None:
        self.decision = decision
        self.left = threading.Event()
        """Set once no other thread decides it any more."""
        self.results: list[Result] = []
        """The result, if a group decided it."""


class GroupCommit(Generic[One, Result]):
    """The lines of decisions of one kind; safe to share between threads.

    ``join`` makes one decision of several.
    """

    def __init__(self, decider: Decider, join: Join[One, Result]) -> None:
        self._decider = decider
        self._join = join
        self._lines: defaultdict[str, list[_Member[One, Result]]] = defaultdict(list)
        self._lock = threading.Lock()

    def decide(self, decision: One) -> Result:
        """Decide, together with others that wait. Raises: as ``Decider.decide``."""
        member = _Member[One, Result](decision)
        with self._lock:
            self._lines[decision.fabric_id].append(member)
        with self._decider.threads.after_previous(decision.fabric_id):
            group = self._taken_by(member)
            if len(group) > 1:
                self._decide(group)
            elif group:
                alone: Result = self._decider.decide_after_previous(decision)
                return alone
        member.left.wait()
        if member.results:
            return member.results[0]
        left_out: Result = self._decider.decide(decision)
        return left_out

    def _taken_by(self, member: _Member[One, Result]) -> list[_Member[One, Result]]:
        """The line, which is empty then; nobody if another thread has taken the member."""
        with self._lock:
            line = self._lines[member.decision.fabric_id]
            if member not in line:
                return []
            del self._lines[member.decision.fabric_id]
            return line

    def _decide(self, group: Sequence[_Member[One, Result]]) -> None:
        """Decide as many as belong together. Errors concern one of them, which meets it alone."""
        try:
            joint = self._join([member.decision for member in group])
            for place, result in self._decider.decide_after_previous(joint).items():
                group[place].results.append(result)
        except LaasError:
            return
        finally:
            for member in group:
                member.left.set()
