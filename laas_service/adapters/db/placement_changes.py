# SPDX-License-Identifier: Apache-2.0

"""Changes of placement: both placements are claimed until no route uses the old one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import delete
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, recorded_faults
from laas_service.adapters.db.admission import Admission
from laas_service.adapters.db.ledger_cache import CachedLedger
from laas_service.adapters.db.optimistic import Decision, Settled, Written
from laas_service.adapters.db.transactions import STEP_DONE, batches
from laas_service.adapters.documents import allocation_document, faults_document
from laas_service.app.lifecycle import Change, Phase, check_changeable, check_changing
from laas_service.app.records import AllocationRecord, Move
from laas_service.domain.ledger import Ledger
from laas_service.domain.topology import Topology
from laas_service.messages import Initiator

T = TypeVar("T")


class PlacementChanges(Admission):
    """How an active allocation gets other hosts or links."""

    def move(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Move | T],
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord | T:
        check_changeable(record)
        return self._decide(_Beginning(self, record, choose, by))

    def _hold_both(
        self,
        session: Session,
        record: AllocationRecord,
        change: Change,
        reason: str,
        topology: Topology,
        by: Initiator | None,
    ) -> AllocationRecord:
        """Claim what the new placement has beyond the old one."""
        delta = {"change": allocation_document(change.held)}
        changed = self._update(
            session,
            record,
            record.state,
            reason,
            by,
            placed=allocation_document(change.new),
            leaving=allocation_document(change.old),
            phase=change.phase.value,
            generation=self._advance(session, record.fabric, delta, routes=True),
            **STEP_DONE,
        )
        self._insert_claims(session, record.fabric, change.claimed, topology)
        return changed

    def proceed(self, record: AllocationRecord, reason: str) -> AllocationRecord:
        change = check_changing(record)
        if change.next_phase is None:
            return self._settle(record, change, reason)
        return self._next_phase(record, change.next_phase, reason)

    def _next_phase(self, record: AllocationRecord, phase: Phase, reason: str) -> AllocationRecord:
        with self._writing(phase.value) as session:
            generation = self._advance(session, record.fabric, {}, routes=True)
            return self._update(
                session,
                record,
                record.state,
                reason,
                phase=phase.value,
                generation=generation,
                **STEP_DONE,
            )

    def _settle(self, record: AllocationRecord, change: Change, reason: str) -> AllocationRecord:
        """Free what only the old placement held."""
        fabric, freed = self.fabric(record.fabric), change.freed
        tree = fabric.topology.tree
        host_claim, link_claim = models.HostClaim, models.LinkClaim
        hosts: Sequence[int] = freed.hosts(fabric.topology)
        links: Sequence[int] = [tree.link_id(link) for link in freed.links(fabric.topology)]
        with self._writing("settle") as session:
            self._advance(session, record.fabric, {"change": allocation_document(change.new)})
            for table, column, numbers in (
                (host_claim, host_claim.host, hosts),
                (link_claim, link_claim.link, links),
            ):
                for batch in batches(numbers):
                    step = delete(table).where(table.allocation == record.id, column.in_(batch))
                    session.execute(step)
            faults = recorded_faults.present(session, fabric).get(record.id)
            return self._update(
                session,
                record,
                record.state,
                reason,
                leaving=None,
                phase=None,
                faults=faults and faults_document(faults),
                **STEP_DONE,
            )


class _Beginning(Decision[Move, AllocationRecord | T]):
    """The beginning of a change of placement: both placements are claimed."""

    step = "move"

    def __init__(
        self,
        changes: PlacementChanges,
        record: AllocationRecord,
        choose: Callable[[Ledger], Move | T],
        by: Initiator | None,
    ) -> None:
        super().__init__(record.fabric, repr(record.id))
        self._changes = changes
        self._record = record
        self._choose = choose
        self._by = by

    def search(self, draft: Ledger) -> Move | Settled[AllocationRecord | T]:
        answer = self._choose(draft.copy())
        return answer if isinstance(answer, Move) else Settled(answer)

    def claim(self, draft: Ledger, answer: Move) -> None:
        """Hold both placements. The change is remembered for ``write``."""
        id = self._record.id
        self._change = Change.begun(draft.holder(id).allocations[id], answer.to)
        draft.change(self._change.held)

    def write(
        self, session: Session, answer: Move, draft: Ledger, generation: int
    ) -> Written[AllocationRecord | T]:
        changed = self._changes._hold_both(
            session, self._record, self._change, answer.reason, draft.topology, self._by
        )
        return Written(changed, CachedLedger(draft, changed.generation))
