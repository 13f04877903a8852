# SPDX-License-Identifier: Apache-2.0

"""Changes of placement: both placements are claimed until no route uses the old one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from laas_service.adapters.db import claims, recorded_faults
from laas_service.adapters.db.ledger_cache import CachedLedger, LedgerCache
from laas_service.adapters.db.optimistic import Decision, Optimist, Settled, Written
from laas_service.adapters.db.transactions import STEP_DONE, Transactions, confirmation
from laas_service.adapters.documents import allocation_document, faults_document
from laas_service.app.lifecycle import Change, Phase, check_changeable, check_changing
from laas_service.app.records import AllocationRecord, Move
from laas_service.domain.ledger import Ledger
from laas_service.messages import ConfirmedBy, Initiator

T = TypeVar("T")


@dataclass
class PlacementChanges:
    """How an active allocation gets other hosts or links."""

    transactions: Transactions
    ledgers: LedgerCache
    optimist: Optimist

    def move(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Move | T],
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord | T:
        check_changeable(record)
        return self.optimist.decide(
            _Beginning(self.transactions, record.fabric, repr(record.id), record, choose, by)
        )

    def proceed(
        self,
        record: AllocationRecord,
        reason: str,
        *,
        confirmed_by: ConfirmedBy | None = None,
    ) -> AllocationRecord:
        change, done = check_changing(record), STEP_DONE | confirmation(confirmed_by)
        if change.next_phase is None:
            return self._settle(record, change, reason, done)
        return self._next_phase(record, change.next_phase, reason, done)

    def _next_phase(
        self, record: AllocationRecord, phase: Phase, reason: str, done: Mapping[str, Any]
    ) -> AllocationRecord:
        with self.transactions.writing(phase.value) as session:
            generation = self.transactions.advance(session, record.fabric, {}, routes=True)
            return self.transactions.update(
                session,
                record,
                record.state,
                reason,
                phase=phase.value,
                generation=generation,
                **done,
            )

    def _settle(
        self, record: AllocationRecord, change: Change, reason: str, done: Mapping[str, Any]
    ) -> AllocationRecord:
        """Free what only the old placement held."""
        with self.transactions.writing("settle") as session:
            fabric = self.ledgers.record(session, record.fabric)
            delta = {"change": allocation_document(change.new)}
            self.transactions.advance(session, record.fabric, delta)
            claims.give_up(session, change.freed, fabric.topology)
            faults = recorded_faults.present(session, fabric).get(record.id)
            return self.transactions.update(
                session,
                record,
                record.state,
                reason,
                leaving=None,
                phase=None,
                faults=faults and faults_document(faults),
                **done,
            )


@dataclass
class _Beginning(Decision[Move, AllocationRecord | T]):
    """The beginning of a change of placement: both placements are claimed."""

    step = "move"
    record: AllocationRecord
    choose: Callable[[Ledger], Move | T]
    by: Initiator | None

    def search(self, draft: Ledger) -> Move | Settled[AllocationRecord | T]:
        answer = self.choose(draft.copy())
        return answer if isinstance(answer, Move) else Settled(answer)

    def claim(self, draft: Ledger, answer: Move) -> None:
        """Hold both placements. The change is remembered for ``write``."""
        id = self.record.id
        self._change = Change.begun(draft.holder(id).allocations[id], answer.to)
        draft.change(self._change.held)

    def write(self, session: Session, answer: Move, draft: Ledger) -> Written[AllocationRecord | T]:
        record, change = self.record, self._change
        delta = {"change": allocation_document(change.held)}
        changed = self.transactions.update(
            session,
            record,
            record.state,
            answer.reason,
            self.by,
            placed=allocation_document(change.new),
            leaving=allocation_document(change.old),
            phase=change.phase.value,
            generation=self.transactions.advance(session, record.fabric, delta, routes=True),
            **STEP_DONE,
        )
        claims.take(session, record.fabric, change.claimed, draft.topology)
        return Written(changed, CachedLedger(draft, changed.generation))
