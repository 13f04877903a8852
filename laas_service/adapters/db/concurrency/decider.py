# SPDX-License-Identifier: Apache-2.0

"""Optimistic decisions: search on a copy, compare the generation, commit, or try again.

The package's docstring draws the steps and proves them. The alternative was to search inside the
transaction, with the fabric's row locked. It has three disadvantages. On SQLite no other fabric
could write and no lease could be renewed during the search. PostgreSQL and MariaDB end a
transaction that is idle for ``IDLE_SECONDS``. And the reads of the search would need a second
connection while other threads wait for the row with theirs, which can exhaust the pool.
"""

import logging
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

from oslo_db.exception import DBDuplicateEntry

from laas_service.adapters.db.concurrency.arrival_order import ProcessOrder, ThreadOrder
from laas_service.adapters.db.concurrency.decision import Decision, Settled
from laas_service.adapters.db.concurrency.priority_locks import PriorityLocks
from laas_service.adapters.db.engine import ATTEMPTS, gave_way
from laas_service.adapters.db.ledger_cache import CachedLedger, LedgerCache
from laas_service.adapters.db.transactions import STAMP, Transactions
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import ConcurrentUpdate, Conflict, DoubleClaim, NotFound
from laas_service.domain.ledger import Ledger, LedgerView

LOG = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Result = TypeVar("Result")

LOSSES = 3
"""Lost races after which a decision takes priority over newcomers."""

DECISIONS = 5
"""Decisions that raise ConcurrentUpdate themselves before it is raised."""


class _LostRace(Exception):
    """The fabric moved on during the search, or another decision has priority."""


class _OtherHasPriority(_LostRace):
    """Another decision has priority."""


@dataclass
class Decider:
    """Carries out decisions; safe to share between threads.

    ``settle`` is called with the fabric before a search, in case the database has gone back.
    """

    transactions: Transactions
    ledgers: LedgerCache
    priority: PriorityLocks
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
            return self.decide_after_previous(decision)

    def decide_after_previous(self, decision: Decision[Answer, Result]) -> Result:
        """As ``decide``, for a thread that is inside ``threads.after_previous``."""
        lost, conflicts, gives_way, doubled = 0, 0, True, False
        with self.processes.after_previous(decision.fabric_id), ExitStack() as held:
            while True:
                try:
                    return self._attempt(decision, gives_way)
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
                    held.enter_context(self.priority.held(decision.fabric_id))
                    gives_way = False
                elif gives_way:
                    gives_way = self.priority.wait_until_free(decision.fabric_id)

    def _attempt(self, decision: Decision[Answer, Result], gives_way: bool) -> Result:
        """One search and its commit. Raises: _LostRace."""
        cached = self._seen(decision)
        if cached is None:
            with self.transactions.reading_one_state() as session:
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
                return self._commit(decision, answer, draft, cached, gives_way)
            except _OtherHasPriority:
                raise
            except _LostRace:
                cached, draft = self._claimed_again(decision, answer, cached)

    def _seen(self, decision: Decision[Answer, Result]) -> CachedLedger | None:
        """The ledger that the caller has read, before the first search; None if it is not newest.

        A thread that waited for others often finds a newer one.
        """
        seen, decision.seen = decision.seen, None
        newest = self.ledgers.newest(decision.fabric_id)
        return newest if seen is not None and seen == newest else None

    def _commit(
        self,
        decision: Decision[Answer, Result],
        answer: Answer,
        draft: Ledger,
        cached: CachedLedger,
        gives_way: bool,
    ) -> Result:
        """One transaction.

        Raises:
            _OtherHasPriority: ``gives_way`` is set, and another decision has priority.
            _LostRace: the fabric is at another generation than ``cached``.
        """
        try:
            with self.transactions.writing(decision.step) as session:
                decision.lock(session)
                *present, taken = self.priority.locked_generation(session, decision.fabric_id)
                if gives_way and taken:
                    raise _OtherHasPriority
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
        after = written.ledger
        if written.unchanged is not None:
            after = cached._replace(generation=written.unchanged)
        if after is not None:
            self.ledgers.keep(decision.fabric_id, after._replace(stamp=stamp))
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
