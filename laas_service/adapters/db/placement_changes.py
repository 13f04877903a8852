# SPDX-License-Identifier: Apache-2.0

"""Changes of placement: both placements are claimed until no route uses the old one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import delete
from sqlalchemy.orm import Session

from laas_service.adapters.db import faults, models
from laas_service.adapters.db.admission import Admission
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.ledger_cache import CachedLedger
from laas_service.adapters.db.transactions import FEW, STEP_DONE, locked_generation
from laas_service.adapters.documents import allocation_document
from laas_service.app.lifecycle import Change, Phase, check_changeable, check_changing
from laas_service.app.records import AllocationRecord, Move
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.ledger import Ledger
from laas_service.messages import Initiator

T = TypeVar("T")


class PlacementChanges(Admission):
    """How an allocation gets other hosts or links while it lives."""

    def move(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Move | T],
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord | T:
        return retrying()(self._move, record, choose, by)

    def _move(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Move | T],
        by: Initiator | None,
    ) -> AllocationRecord | T:
        """As ``_admit``: search without a lock; if the fabric moved on, again with it."""
        check_changeable(record)
        with self._admitting:
            with self._reading() as session:
                ledger = self._ledgers.caught_up(session, record.fabric)
            answer = choose(ledger.fabric.copy())
            if not isinstance(answer, Move):
                return answer
            try:
                with self._writing("move") as session:
                    if locked_generation(session, record.fabric) != ledger.generation:
                        ledger = self._ledgers.caught_up(session, record.fabric)
                        answer = choose(ledger.fabric.copy())
                        if not isinstance(answer, Move):
                            return answer
                    draft = ledger.fabric.copy()
                    changed = self._hold_both(session, record, answer, draft, by)
            except DBDuplicateEntry as error:
                self._ledgers.forget(record.fabric)
                raise DoubleClaim(f"the database refused the claims of {record.id!r}") from error
            self._ledgers.keep(record.fabric, CachedLedger(draft, changed.generation))
            return changed

    def _hold_both(
        self,
        session: Session,
        record: AllocationRecord,
        move: Move,
        draft: Ledger,
        by: Initiator | None,
    ) -> AllocationRecord:
        """Claim what the new placement has beyond the old one; ``draft`` holds both then."""
        change = Change.begun(draft.holder(record.id).allocations[record.id], move.to)
        draft.change(change.held)
        delta = {"change": allocation_document(change.held)}
        self._change(
            session,
            record,
            placed=allocation_document(move.to),
            leaving=allocation_document(change.old),
            phase=change.phase.value,
            generation=self._advance(session, record.fabric, delta, routes=True),
            **STEP_DONE,
        )
        self._insert_claims(session, record.fabric, change.claimed, draft.topology)
        self._tell(session, record.id, record.state, move.reason, by)
        return self._record(session, record.id)

    def proceed(self, record: AllocationRecord, reason: str) -> AllocationRecord:
        change = check_changing(record)
        if change.next_phase is None:
            return self._settle(record, change, reason)
        return self._next_phase(record, change.next_phase, reason)

    def _next_phase(self, record: AllocationRecord, phase: Phase, reason: str) -> AllocationRecord:
        with self._writing(phase.value) as session:
            generation = self._advance(session, record.fabric, {}, routes=True)
            self._change(
                session,
                record,
                phase=phase.value,
                generation=generation,
                **STEP_DONE,
            )
            self._tell(session, record.id, record.state, reason)
            return self._record(session, record.id)

    def _settle(self, record: AllocationRecord, change: Change, reason: str) -> AllocationRecord:
        """Free what only the old placement held."""
        fabric, gone = self.fabric(record.fabric), change.freed
        tree = fabric.topology.tree
        host, link = models.HostClaim, models.LinkClaim
        hosts: Sequence[int] = gone.hosts(fabric.topology)
        links: Sequence[int] = [tree.link_id(one) for one in gone.links(fabric.topology)]
        with self._writing("settle") as session:
            self._advance(session, record.fabric, {"change": allocation_document(change.new)})
            for table, column, numbers in ((host, host.host, hosts), (link, link.link, links)):
                for first in range(0, len(numbers), FEW):
                    some = column.in_(numbers[first : first + FEW])
                    session.execute(delete(table).where(table.allocation == record.id, some))
            found = faults.found(session, fabric).get(record.id)
            self._change(
                session,
                record,
                leaving=None,
                phase=None,
                faults=found and faults.document(found),
                **STEP_DONE,
            )
            self._tell(session, record.id, record.state, reason)
            return self._record(session, record.id)
