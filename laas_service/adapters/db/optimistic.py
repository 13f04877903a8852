# SPDX-License-Identifier: Apache-2.0

"""Optimistic decisions: search on a copy, compare the generation, commit, or try again.

All decisions that search (admission, queue, repair, change of placement) use this protocol:

1. Read the ledger, and whatever else the decision depends on, in a short transaction.
2. Search on a copy. No lock is held and no transaction is open, so a slow search delays no other
   request. The search reads the store in transactions of its own. If one of those reads is
   newer than the ledger, the generation has changed, and step 3 notices.
3. Open a transaction that writes, lock the fabric's row and compare the generation. If it is the
   one of the search, write and commit. Otherwise the race is lost: end the transaction and go
   back to step 1.

Threads of one process would lose most races against each other, so they decide about a fabric in
order (``thread_order``), new requests together (``group_commit``). Processes that lost a race
lately decide in order too (``process_order``). This is no lock over a search: the next one waits
for a slow one only for a short time, and then searches beside it.

Changes that are no claims, such as a release or a failed link, advance the generation too. They do
not cost the request another search: if the hosts and links that it found are still free, they are
claimed at the later generation. The result is the same as if the request had come first. This
would not hold after another claim: some policies and the queue promise more than that no host or
link has two owners.

A slow search would lose for ever against a stream of fast commits. So after ``LOSSES`` lost
races a request takes the fabric's turn (``turns``), and no newcomer commits while it searches,
unless the turn is overrun.

The alternative was to search inside the transaction, with the fabric's row locked. It has three
disadvantages. On SQLite no other fabric could write and no lease could be renewed during the
search. PostgreSQL and MariaDB end a transaction that is idle for ``IDLE_SECONDS``. And the reads
of the search would need a second connection while other threads wait for the row with theirs,
which can exhaust the pool.
"""

import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple, TypeVar

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy.orm import Session

from laas_service.adapters.db.engine import ATTEMPTS, gave_way
from laas_service.adapters.db.ledger_cache import CachedLedger, LedgerCache
from laas_service.adapters.db.process_order import ProcessOrder
from laas_service.adapters.db.thread_order import ThreadOrder
from laas_service.adapters.db.transactions import STAMP, Transactions
from laas_service.adapters.db.turns import Turns
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import ConcurrentUpdate, Conflict, DoubleClaim, NotFound
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.messages import Span

LOG = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Result = TypeVar("Result")

LOSSES = 3
"""Lost races after which a request is decided before newcomers."""

DECISIONS = 5
"""Decisions that raise ConcurrentUpdate themselves before it is raised."""


@dataclass(frozen=True, slots=True)
class Settled(Generic[Result]):
    """The result of a search after which nothing is written."""

    result: Result


class Written(NamedTuple, Generic[Result]):
    """The result of a commit, and the ledger after it, if the draft is that ledger."""

    result: Result
    ledger: CachedLedger | None


@dataclass
class Decision(ABC, Generic[Answer, Result]):
    """What one kind of decision adds to the protocol; a new object for each decision.

    ``step`` is the name of the commit; ``subject`` names the request in errors.
    """

    step: ClassVar[str] = "admit"
    transactions: Transactions
    fabric_id: str
    subject: str
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


class _LostRace(Exception):
    """The fabric moved on during the search, or another request has the turn."""


class _TurnTaken(_LostRace):
    """Another request has the turn."""


@dataclass
class Optimist:
    """Carries out decisions; safe to share between threads.

    ``settle`` is called with the fabric before a search, in case the database has gone back.
    """

    transactions: Transactions
    ledgers: LedgerCache
    turns: Turns
    threads: ThreadOrder
    processes: ProcessOrder
    settle: Callable[[str], None]

    def decide(self, decision: Decision[Answer, Result]) -> Result:
        """Search and commit, as often as it takes.

        Raises:
            ConcurrentUpdate: the decision raised it ``DECISIONS`` times, or the database rolled
                back ``ATTEMPTS`` of its transactions.
            DoubleClaim: in the database, a host or link has another owner than in the ledger, also
                after the ledger was read again.

        Other errors of the decision are raised as they are.
        """
        with self.threads.after_previous(decision.fabric_id):
            return self.in_turn(decision)

    def in_turn(self, decision: Decision[Answer, Result]) -> Result:
        """As ``decide``, for a thread whose turn it is. Raises: as ``decide``."""
        lost, conflicts, courteous, doubled = 0, 0, True, False
        with self.processes.after_previous(decision.fabric_id), ExitStack() as turn:
            while True:
                try:
                    return self._attempt(decision, courteous)
                except _LostRace:
                    lost += 1
                except DoubleClaim as error:
                    if doubled:
                        raise
                    LOG.error("%s; the ledger is read again from the tables", error)
                    lost, doubled = lost + 1, True
                except ConcurrentUpdate as error:
                    lost, conflicts = lost + 1, conflicts + 1
                    if conflicts == (ATTEMPTS if gave_way(error) else DECISIONS):
                        raise
                    longest = min(1.0, 0.02 * 2**conflicts)
                    time.sleep(random.uniform(0, longest))  # noqa: S311
                self.transactions.at(f"lost race: {decision.step}")
                self.processes.lost(decision.fabric_id)
                if lost == LOSSES:
                    turn.enter_context(self.turns.taken(decision.fabric_id))
                    courteous = False
                elif courteous:
                    courteous = self.turns.wait(decision.fabric_id)

    def _attempt(self, decision: Decision[Answer, Result], courteous: bool) -> Result:
        """One search and its commit. Raises: _LostRace."""
        with self.transactions.reading() as session:
            result = decision.prepare(session)
            if result is not None:
                return result
            cached = self.ledgers.caught_up(session, decision.fabric_id)
        if decision.fabric_id in self.ledgers.doubtful:
            self.settle(decision.fabric_id)
            raise _LostRace
        draft = cached.ledger.copy()
        started = time.monotonic()
        answer = decision.search(draft)
        decision.searched = time.monotonic()
        decision.searching += decision.searched - started
        if isinstance(answer, Settled):
            return answer.result
        decision.claim(draft, answer)
        while True:
            try:
                return self._commit(decision, answer, draft, cached, courteous)
            except _TurnTaken:
                raise
            except _LostRace:
                cached, draft = self._claimed_again(decision, answer, cached)

    def _commit(
        self,
        decision: Decision[Answer, Result],
        answer: Answer,
        draft: Ledger,
        cached: CachedLedger,
        courteous: bool,
    ) -> Result:
        """One transaction.

        Raises:
            _TurnTaken: ``courteous`` is set, and another request has the turn.
            _LostRace: the fabric is at another generation than ``cached``.
        """
        try:
            with self.transactions.writing(decision.step) as session:
                decision.lock(session)
                *present, taken = self.turns.locked_generation(session, decision.fabric_id)
                if courteous and taken:
                    raise _TurnTaken
                if present != [cached.generation, cached.stamp]:
                    raise _LostRace
                written = decision.write(session, answer, draft)
                stamp = session.info.get(STAMP, "")
        except DoubleClaim:  # by a CHECK
            self.ledgers.forget(decision.fabric_id)
            raise
        except DBDuplicateEntry as error:
            self.ledgers.forget(decision.fabric_id)
            raise DoubleClaim(f"the database refused the claims of {decision.subject}") from error
        if written.ledger is not None:
            self.ledgers.keep(decision.fabric_id, written.ledger._replace(stamp=stamp))
        return written.result

    def _claimed_again(
        self, decision: Decision[Answer, Result], answer: Answer, before: CachedLedger
    ) -> tuple[CachedLedger, Ledger]:
        """The ledger now, and a copy on which the answer is claimed. Raises: _LostRace."""
        with self.transactions.reading() as session:
            cached = self.ledgers.caught_up(session, decision.fabric_id)
        if cached.ledger.topology is not before.ledger.topology:  # numbers mean other hosts now
            raise _LostRace
        if not _owners(cached.ledger) <= _owners(before.ledger):
            raise _LostRace
        draft = cached.ledger.copy()
        try:
            decision.claim(draft, answer)
        except (DoubleClaim, NotFound, Conflict) as error:
            raise _LostRace from error
        return cached, draft


def _owners(ledger: LedgerView) -> set[Allocation]:
    """Everybody who holds hosts, links or slots."""
    return {*ledger.everybody(), *ledger.sharers()}
