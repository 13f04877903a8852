# SPDX-License-Identifier: Apache-2.0

"""Optimistic decisions: search on a copy, compare the generation, commit, or try again.

Every decision that searches (admission, queue, repair, change of placement) goes this way:

1. Read the ledger in a short transaction, and whatever else the decision depends on.
2. Search on a copy. No lock is held and no transaction is open, so a slow search delays
   nobody, and what it reads from the store is read in transactions of its own. That has to
   be as fresh as the ledger; if it is fresher, the generation tells.
3. Open a transaction that writes and lock the fabric's row. At the generation of the search,
   write and commit. Otherwise the race is lost: end the transaction, go to 1.

A slow search would lose for ever against a stream of fast commits. So after ``LOSSES`` lost
races a request takes its fabric's turn (``turns``), and searches while no newcomer commits.
What else moves the generation on (a release, a failed link) may still come between, but can
no longer undo the search: if what was found is still free, it is claimed at the later
generation. That is what would have happened had the request come first.

The alternative was to search inside the transaction that has the fabric's row locked. A
search takes longer than any transaction should: on SQLite no other fabric could write, and no
lease could be renewed; a server ends a transaction that stands still for ``IDLE_SECONDS``;
and every reading of the search would need a second connection while others wait for the row
with theirs, which can use up the pool.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy.orm import Session

from laas_service.adapters.db.engine import ATTEMPTS
from laas_service.adapters.db.ledger_cache import CachedLedger
from laas_service.adapters.db.transactions import Transactions
from laas_service.domain.errors import ConcurrentUpdate, Conflict, DoubleClaim, NotFound
from laas_service.domain.ledger import Ledger

Answer = TypeVar("Answer")
Result = TypeVar("Result")

LOSSES = 3
"""Lost races after which a request is decided before newcomers."""

PAUSE = 0.05
"""Seconds, at most, before a transaction that the database made give way is tried again."""


@dataclass(frozen=True, slots=True)
class Settled(Generic[Result]):
    """The result of a search after which nothing is written."""

    result: Result


@dataclass(frozen=True, slots=True)
class Written(Generic[Result]):
    """The result of a commit, and the ledger after it, if the draft is that ledger."""

    result: Result
    ledger: CachedLedger | None


class Decision(ABC, Generic[Answer, Result]):
    """What one kind of decision adds to the protocol; a new object for each decision.

    ``step`` names the commit, and ``subject`` who makes claims, for the error.
    """

    step = "admit"

    def __init__(self, fabric_id: str, subject: str) -> None:
        self.fabric_id = fabric_id
        self.subject = subject

    def prepare(self, session: Session) -> Result | None:
        """Read what the decision depends on; a result settles it before the search."""
        return None

    @abstractmethod
    def search(self, draft: Ledger) -> Answer | Settled[Result]:
        """Search on ``draft``, a copy, which may be changed as ``claim`` changes it."""

    @abstractmethod
    def claim(self, draft: Ledger, answer: Answer) -> None:
        """Make the ledger what it is after the commit.

        Raises:
            DoubleClaim, NotFound, Conflict: the answer is not possible there.
        """

    def lock(self, session: Session) -> None:
        """Lock what has to be locked before the fabric's row."""
        return

    @abstractmethod
    def write(
        self, session: Session, answer: Answer, draft: Ledger, generation: int
    ) -> Written[Result]:
        """Write the answer; the fabric's row is locked, at ``generation``.

        Raises:
            ConcurrentUpdate: a record moved on; decide again.
        """


class _LostRace(Exception):
    """The fabric moved on during the search, or another request has the turn."""


class Optimist(Transactions):
    """Carries out decisions."""

    def _decide(self, decision: Decision[Answer, Result]) -> Result:
        """Raises: what the parts of the decision raise.

        ConcurrentUpdate: so did the decision ``ATTEMPTS`` times, or the database made its
            transaction give way.
        DoubleClaim: the database has another owner for a host or link than the ledger.
        """
        lost, conflicts, courteous = 0, 0, True
        with ExitStack() as turn:
            while True:
                try:
                    return self._attempt(decision, courteous)
                except _LostRace:
                    lost += 1
                except ConcurrentUpdate:
                    lost, conflicts = lost + 1, conflicts + 1
                    if conflicts == ATTEMPTS:
                        raise
                    time.sleep(random.uniform(0, PAUSE))  # noqa: S311
                self._at(f"lost race: {decision.step}")
                if lost == LOSSES:
                    turn.enter_context(self._turns.taken(decision.fabric_id))
                    courteous = False
                elif courteous:
                    courteous = self._turns.wait(decision.fabric_id)

    def _attempt(self, decision: Decision[Answer, Result], courteous: bool) -> Result:
        """One search and its commit. Raises: _LostRace."""
        with self._reading() as session:
            result = decision.prepare(session)
            if result is not None:
                return result
            cached = self._ledgers.caught_up(session, decision.fabric_id)
        draft = cached.ledger.copy()
        answer = decision.search(draft)
        if isinstance(answer, Settled):
            return answer.result
        decision.claim(draft, answer)
        while True:
            try:
                return self._commit(decision, answer, draft, cached.generation, courteous)
            except _LostRace:
                if courteous:
                    raise
                cached, draft = self._claimed_again(decision, answer, cached)

    def _commit(
        self,
        decision: Decision[Answer, Result],
        answer: Answer,
        draft: Ledger,
        generation: int,
        courteous: bool,
    ) -> Result:
        """Raises: _LostRace unless the fabric is at ``generation``, or if, being
        ``courteous``, it finds that another request has the turn."""
        try:
            with self._writing(decision.step) as session:
                decision.lock(session)
                present, taken = self._turns.locked_generation(session, decision.fabric_id)
                if present != generation or (courteous and taken):
                    raise _LostRace
                written = decision.write(session, answer, draft, generation)
        except DBDuplicateEntry as error:
            self._ledgers.forget(decision.fabric_id)
            raise DoubleClaim(f"the database refused the claims of {decision.subject}") from error
        if written.ledger is not None:
            self._ledgers.keep(decision.fabric_id, written.ledger)
        return written.result

    def _claimed_again(
        self, decision: Decision[Answer, Result], answer: Answer, before: CachedLedger
    ) -> tuple[CachedLedger, Ledger]:
        """The ledger now, and a copy on which the answer is claimed. Raises: _LostRace."""
        with self._reading() as session:
            cached = self._ledgers.caught_up(session, decision.fabric_id)
        if cached.ledger.topology is not before.ledger.topology:  # numbers mean other hosts now
            raise _LostRace
        draft = cached.ledger.copy()
        try:
            decision.claim(draft, answer)
        except (DoubleClaim, NotFound, Conflict) as error:
            raise _LostRace from error
        return cached, draft
