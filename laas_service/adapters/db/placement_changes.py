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
from laas_service.app.records import AllocationRecord, Move, Phase, State
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import Conflict, DoubleClaim
from laas_service.domain.ledger import Ledger
from laas_service.messages import Initiator

T = TypeVar("T")

NEXT_PHASE = {Phase.PREPARE: Phase.SWITCH, Phase.SWITCH: Phase.WITHDRAW}
"""What follows in a change of placement; after the last phase the old claims are freed."""


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
        _must_stand(record)
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
        before = draft.holder(record.id).allocations[record.id]
        both = move.to.joined(before)
        draft.change(both)
        change = {"change": allocation_document(both)}
        self._change(
            session,
            record,
            placed=allocation_document(move.to),
            leaving=allocation_document(before),
            phase=Phase.PREPARE.value,
            generation=self._advance(session, record.fabric, change, routes=True),
            **STEP_DONE,
        )
        self._insert_claims(session, record.fabric, move.to.beyond(before), draft.topology)
        self._tell(session, record.id, record.state, move.reason, by)
        return self._record(session, record.id)

    def proceed(self, record: AllocationRecord, reason: str) -> AllocationRecord:
        old, new, phase = record.leaving, record.placed, record.phase
        if record.state is not State.ACTIVE or old is None or new is None or phase is None:
            raise Conflict(f"no change of placement of allocation {record.id!r} is under way")
        if phase is Phase.WITHDRAW:
            return self._settle(record, old, new, reason)
        following = NEXT_PHASE[phase]
        with self._writing(following.value) as session:
            generation = self._advance(session, record.fabric, {}, routes=True)
            self._change(
                session,
                record,
                phase=following.value,
                generation=generation,
                **STEP_DONE,
            )
            self._tell(session, record.id, record.state, reason)
            return self._record(session, record.id)

    def _settle(
        self, record: AllocationRecord, old: Allocation, new: Allocation, reason: str
    ) -> AllocationRecord:
        """Free what only the old placement held."""
        fabric, gone = self.fabric(record.fabric), old.beyond(new)
        tree = fabric.topology.tree
        host, link = models.HostClaim, models.LinkClaim
        hosts: Sequence[int] = gone.hosts(fabric.topology)
        links: Sequence[int] = [tree.link_id(one) for one in gone.links(fabric.topology)]
        with self._writing("settle") as session:
            self._advance(session, record.fabric, {"change": allocation_document(new)})
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


def _must_stand(record: AllocationRecord) -> None:
    if record.state is not State.ACTIVE or record.placed is None:
        raise Conflict(f"allocation {record.id!r} is {record.state.value}, not active")
    if record.leaving is not None:
        raise Conflict(f"the placement of allocation {record.id!r} is changing already")
