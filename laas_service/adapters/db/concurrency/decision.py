# SPDX-License-Identifier: Apache-2.0

"""Decisions about a fabric: what each kind adds to the steps that ``decider`` carries out."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple, TypeVar

from sqlalchemy.orm import Session

from laas_service.adapters.db.ledger_cache import CachedLedger
from laas_service.adapters.db.transactions import Transactions
from laas_service.domain.ledger import Ledger
from laas_service.messages import Span

Answer = TypeVar("Answer")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Settled(Generic[Result]):
    """The result of a search after which nothing is written."""

    result: Result


class Written(NamedTuple, Generic[Result]):
    """The result of a commit, and the ledger after it, if the draft is that ledger.

    ``unchanged`` is the generation after a commit that leaves the ledger as it was.
    """

    result: Result
    ledger: CachedLedger | None
    unchanged: int | None = None


@dataclass
class Decision(ABC, Generic[Answer, Result]):
    """What one kind of decision adds to the protocol; a new object for each decision.

    ``step`` is the name of the commit; ``subject`` names the request in errors.
    """

    step: ClassVar[str] = "admit"
    transactions: Transactions
    fabric_id: str
    subject: str
    seen: CachedLedger | None = field(init=False, default=None)
    """The ledger in the request's snapshot; the first search may be on it."""
    begun: float = field(init=False, default_factory=time.monotonic)
    searching: float = field(init=False, default=0.0)  # seconds of all searches
    searched: float = field(init=False, default=0.0)  # clock at the end of the last search

    def seconds(self, waited: float | None = None) -> dict[Span, float]:
        """Where the time went until now, when it is being committed.

        ``waited`` are the seconds since the event before, if that is not this decision's beginning.
        """
        now = time.monotonic()
        commit = now - self.searched
        whole = now - self.begun if waited is None else waited
        wait = max(0.0, whole - self.searching - commit)
        return {Span.WAIT: wait, Span.SEARCH: self.searching, Span.COMMIT: commit}

    def prepare(self, session: Session) -> Result | None:
        """Read what the decision depends on; a result settles it before the search."""
        return None

    @abstractmethod
    def search(self, draft: Ledger) -> Answer | Settled[Result]:
        """Search on ``draft``, a copy of the ledger; the answer may be claimed on it already."""

    @abstractmethod
    def claim(self, draft: Ledger, answer: Answer) -> None:
        """Change the ledger as the commit will.

        Raises:
            DoubleClaim, NotFound, Conflict: the answer is not possible there.
        """

    def lock(self, session: Session) -> None:
        """Lock what has to be locked before the fabric's row."""
        return

    @abstractmethod
    def write(self, session: Session, answer: Answer, draft: Ledger) -> Written[Result]:
        """Write the answer; the fabric's row is locked, and ``draft`` holds the answer.

        Raises:
            ConcurrentUpdate: a record moved on; decide again.
        """
