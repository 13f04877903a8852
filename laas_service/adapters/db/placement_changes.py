# SPDX-License-Identifier: Apache-2.0

"""Changes of placement: both placements are claimed until no route uses the old one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from laas_service.adapters.db import claims, partition_keys, quotas, recorded_faults
from laas_service.adapters.db.concurrency.decider import Decider
from laas_service.adapters.db.concurrency.decision import Decision, Settled, Written
from laas_service.adapters.db.ledger_cache import CachedLedger, LedgerCache
from laas_service.adapters.db.plans import StoredPlans
from laas_service.adapters.db.transactions import (
    STEP_DONE,
    Transactions,
    evidence,
    read_record,
)
from laas_service.adapters.documents import (
    allocation_document,
    consent_document,
    demand_document,
    faults_document,
    mending_document,
)
from laas_service.app.lifecycle import (
    Change,
    Mending,
    Phase,
    check_changeable,
    check_changing,
    check_turning_back,
)
from laas_service.app.records import (
    NO_LIMITS,
    AllocationRecord,
    Confirmed,
    FabricRecord,
    Limits,
    NewPlacement,
)
from laas_service.app.settling import settling
from laas_service.app.wording import reasons
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import Conflict
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import Consent, Movable
from laas_service.domain.moves.mend import Joined
from laas_service.domain.routing.tenant_tables import joined_rails
from laas_service.messages import Initiator

T = TypeVar("T")

NOT_ANNOUNCED: Mapping[str, Any] = {"announced": None, "moves_at": None}
"""Columns of an allocation without an announced move."""


@dataclass
class StoredPlacementChanges(StoredPlans):
    """How an active allocation gets other hosts or links."""

    ledgers: LedgerCache
    decider: Decider

    def begin(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], NewPlacement | T],
        *,
        by: Initiator | None = None,
        limits: Limits = NO_LIMITS,
    ) -> AllocationRecord | T:
        check_changeable(record)
        beginning: _Beginning[T] = _Beginning(
            self.transactions, record.fabric, repr(record.id), record, choose, by, limits
        )
        beginning.ledgers = self.ledgers
        return self.decider.decide(beginning)

    def mend(
        self,
        record: AllocationRecord,
        choose: Callable[[Ledger], Joined | T],
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord | T:
        if check_changing(record).mending is not None:
            raise Conflict(f"failed links of allocation {record.id!r} are being replaced")
        beginning: _Mend[T] = _Mend(
            self.transactions, record.fabric, repr(record.id), record, choose, by, self.ledgers
        )
        return self.decider.decide(beginning)

    def _mend_on(
        self,
        record: AllocationRecord,
        change: Change,
        mending: Mending,
        reason: str,
        done: Mapping[str, Any],
    ) -> AllocationRecord:
        """The next step of replacing links; after the last one the failed ones are freed."""
        with self.transactions.writing("mend") as session:
            columns: dict[str, Any] = {**done}
            if mending.next_phase is not None:
                columns["mending"] = mending_document(replace(mending, phase=mending.next_phase))
                columns["generation"] = self._advance_routes(session, record)
                return self.transactions.update(session, record, record.state, reason, **columns)
            fabric, mended = self.ledgers.record(session, record.fabric), change.mended
            delta = {"change": allocation_document(mended.held)}
            self.transactions.advance(session, record.fabric, delta)
            claims.give_up(session, change.held.beyond(mended.held), fabric.topology)
            faults = recorded_faults.present(session, fabric).get(record.id)
            return self.transactions.update(
                session,
                record,
                record.state,
                reason,
                placed=allocation_document(mended.new),
                leaving=allocation_document(mended.old),
                bridge=mended.bridge and allocation_document(mended.bridge),
                mending=None,
                faults=faults and faults_document(faults),
                **columns,
            )

    def proceed(
        self,
        record: AllocationRecord,
        reason: str,
        *,
        confirmed: Confirmed | None = None,
    ) -> AllocationRecord:
        change, done = check_changing(record), STEP_DONE | evidence(confirmed)
        if change.mending is not None:
            return self._mend_on(record, change, change.mending, reason, done)
        if change.next_phase is None:
            return self._settle(record, change, reason, done)
        return self._next_phase(record, change.next_phase, reason, done)

    def _next_phase(
        self, record: AllocationRecord, phase: Phase, reason: str, done: Mapping[str, Any]
    ) -> AllocationRecord:
        change = check_changing(record)
        following = replace(change, phase=phase)
        with self.transactions.writing(phase.value) as session:
            columns: dict[str, Any] = {"phase": phase.value, **done}
            if phase is Phase.WITHDRAW:
                columns |= self._keys(session, record, change.new)
            if following.routes != change.routes:
                columns["generation"] = self._advance_routes(session, record)
            return self.transactions.update(session, record, record.state, reason, **columns)

    def turn_back(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        back = check_turning_back(record)
        with self.transactions.writing("turn back") as session:
            columns: dict[str, Any] = {
                "placed": allocation_document(back.new),
                "leaving": allocation_document(back.old),
                "phase": back.phase.value,
                "begun_at": self.transactions.now(),
                "generation": self._advance_routes(session, record),
                **NOT_ANNOUNCED,
                **STEP_DONE,
            }
            if back.phase is Phase.WITHDRAW:
                columns |= self._keys(session, record, back.new)
            return self.transactions.update(session, record, record.state, reason, by, **columns)

    def drop_announcement(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        return self._described("call off", record, reason, by, NOT_ANNOUNCED)

    def consent(
        self,
        record: AllocationRecord,
        consent: Consent,
        reason: str,
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        columns: dict[str, Any] = {"consent": consent_document(consent)}
        if consent.movable is Movable.NEVER and not record.move_forced:
            columns |= NOT_ANNOUNCED
        return self._described("consent", record, reason, by, columns)

    def _described(
        self,
        step: str,
        record: AllocationRecord,
        reason: str,
        by: Initiator | None,
        columns: Mapping[str, Any],
    ) -> AllocationRecord:
        with self.transactions.writing(step) as session:
            return self.transactions.update(session, record, record.state, reason, by, **columns)

    def _advance_routes(self, session: Session, record: AllocationRecord) -> int:
        return self.transactions.advance(session, record.fabric, {}, routes=True)

    def _keys(
        self, session: Session, record: AllocationRecord, placement: Allocation
    ) -> dict[str, Any]:
        """The columns with the keys of a placement, from those that the allocation has."""
        if not record.pkey:
            return {}
        fabric = self.ledgers.record(session, record.fabric)
        joined = joined_rails(fabric.topology, fabric.inventory, placement)
        present = record.keys_of(fabric.topology.rails)
        owned = partition_keys.claimed(session, record)
        keys = partition_keys.by_rail(joined, present, owned)
        return {"pkey": keys[0], "pkeys": list(keys) if len(set(keys)) > 1 else None}

    def _settle(
        self, record: AllocationRecord, change: Change, reason: str, done: Mapping[str, Any]
    ) -> AllocationRecord:
        """Free what only the old placement held."""
        if not change.new.kind.whole_hosts:
            return self._settle_slots(record, change, reason, done)
        with self.transactions.writing("settle") as session:
            fabric = self.ledgers.record(session, record.fabric)
            delta = {"change": allocation_document(change.new)}
            self.transactions.advance(session, record.fabric, delta)
            claims.give_up(session, change.freed, fabric.topology)
            partition_keys.keep_only(session, record, [record.pkey, *record.pkeys])
            faults = recorded_faults.present(session, fabric).get(record.id)
            return self.transactions.update(
                session,
                record,
                record.state,
                reason,
                hosts=change.new.requested,
                leaving=None,
                phase=None,
                begun_at=None,
                bridge=None,
                **NOT_ANNOUNCED,
                faults=faults and faults_document(faults),
                **done,
            )

    def _settle_slots(
        self, record: AllocationRecord, change: Change, reason: str, done: Mapping[str, Any]
    ) -> AllocationRecord:
        """Free the slots and promises that only the old placement had."""
        reached, held = _reached(change.new), change.held
        with self.transactions.writing("settle") as session:
            document = allocation_document(reached)
            self.transactions.advance(session, record.fabric, {"change": document})
            part = read_record(session, record.part).placed
            assert part is not None
            rows = self.transactions.slot_rows
            rows.exchange(session, record.fabric, part, held.held_slots, reached)
            return self.transactions.update(
                session,
                record,
                record.state,
                reason,
                slots=reached.held_slots.demand.slots,
                placed=document,
                leaving=None,
                phase=None,
                begun_at=None,
                **done,
            )


def _reached(placed: Allocation) -> Allocation:
    """The placement once no virtual machine has to move."""
    return replace(placed, slots=placed.held_slots.reached)


@dataclass
class _Beginning(Decision[NewPlacement, AllocationRecord | T]):
    """The beginning of a change of placement: both placements are claimed."""

    step = "move"
    record: AllocationRecord
    choose: Callable[[Ledger], NewPlacement | T]
    by: Initiator | None
    limits: Limits = NO_LIMITS
    ledgers: LedgerCache = field(init=False)
    _change: Change = field(init=False)
    _old: Allocation = field(init=False)
    _moving: bool = field(init=False)

    def prepare(self, session: Session) -> None:
        self.limits = quotas.limits(session, self.record.project_id, self.limits)

    def lock(self, session: Session) -> None:
        if (self._more > 0 or self._more_slots > 0) and self.limits.admission:
            quotas.lock_all(session)

    @property
    def _more(self) -> int:
        """The hosts that count in addition; those in a container count with the container."""
        record = self.record
        return self._change.new.requested - record.hosts if record.parent is None else 0

    @property
    def _more_slots(self) -> int:
        """The slots that count in addition."""
        new, old = (placed.kind.uses(0, inside=True) for placed in (self._change.new, self._old))
        return new.slots - old.slots

    def search(self, draft: Ledger) -> NewPlacement | Settled[AllocationRecord | T]:
        answer = self.choose(draft.copy())
        return answer if isinstance(answer, NewPlacement) else Settled(answer)

    def claim(self, draft: Ledger, answer: NewPlacement) -> None:
        """Hold both placements. The change is remembered for ``write``."""
        id = self.record.id
        placed = draft.holder(id).allocations[id]
        self._change = Change.begun(placed, answer.to, answer.bridge)
        self._moving = bool(self._change.steps()) or answer.settles
        if answer.settles and not self._change.steps():
            self._change = settling(placed, answer.to)
        self._old = placed
        draft.change(self._change.held if self._moving else self._change.new)

    def write(
        self, session: Session, answer: NewPlacement, draft: Ledger
    ) -> Written[AllocationRecord | T]:
        record, change = self.record, self._change
        if not change.new.kind.whole_hosts:
            return self._write_slots(session, answer, draft)
        if self._more > 0:
            quotas.check_growth(session, record.project_id, self._more, self.limits)
        announced = record.announced == answer.to
        if announced and change.claimed.size:
            quotas.count_move(session, record.project_id, self.transactions.now())
        fabric = self.ledgers.record(session, record.fabric)
        _take_keys(self.transactions, session, record, fabric, change.new)
        delta = {"change": allocation_document(change.held)}
        changed = self.transactions.update(
            session,
            record,
            record.state,
            answer.reason,
            self.by,
            hosts=max(record.hosts, change.new.requested),
            placed=allocation_document(change.new),
            leaving=allocation_document(change.old),
            phase=change.phase.value,
            begun_at=self.transactions.now(),
            bridge=change.bridge and allocation_document(change.bridge),
            generation=self.transactions.advance(session, record.fabric, delta, routes=True),
            announced=None,
            moves_at=record.moves_at if announced else None,
            **STEP_DONE,
        )
        claims.take(session, record.fabric, change.claimed, draft.topology)
        return Written(changed, CachedLedger(draft, changed.generation))

    def _write_slots(
        self, session: Session, answer: NewPlacement, draft: Ledger
    ) -> Written[AllocationRecord | T]:
        """Hold both places while virtual machines move, else the new one at once."""
        record, change, moving = self.record, self._change, self._moving
        if self._more_slots > 0:
            quotas.check_slots(session, record.project_id, self._more_slots, self.limits)
        if record.announced == answer.to:
            quotas.count_move(session, record.project_id, self.transactions.now())
        held = change.held if moving else change.new
        part = draft.ledger(record.parent).part
        assert part is not None
        delta = {"change": allocation_document(held)}
        generation = self.transactions.advance(session, record.fabric, delta)
        rows = self.transactions.slot_rows
        rows.exchange(session, record.fabric, part, self._old.held_slots, held)
        demand, was = change.new.held_slots.demand, self._old.held_slots.demand
        changed = self.transactions.update(
            session,
            record,
            record.state,
            answer.reason,
            self.by,
            slots=max(demand.slots, was.slots) if moving else demand.slots,
            demand=demand_document(demand),
            placed=allocation_document(change.new),
            leaving=allocation_document(change.old) if moving else None,
            phase=change.phase.value if moving else None,
            begun_at=self.transactions.now() if moving else None,
            **NOT_ANNOUNCED,
            **STEP_DONE,
        )
        return Written(changed, CachedLedger(draft, generation))


def _take_keys(
    transactions: Transactions,
    session: Session,
    record: AllocationRecord,
    fabric: FabricRecord,
    placement: Allocation,
) -> None:
    """Claim the partition keys that a placement needs besides those that its tenant has."""
    if not record.pkey:
        return
    joined = joined_rails(fabric.topology, fabric.inventory, placement)
    more = partition_keys.missing(joined, record.keys_of(fabric.topology.rails))
    if more:
        keys = partition_keys.free(session, fabric.id, transactions.pkeys, more)
        partition_keys.take(session, record, keys)


@dataclass
class _Mend(Decision[Joined, AllocationRecord | T]):
    """The beginning of a replacement of failed links while hosts change: all is claimed."""

    step = "mend"
    record: AllocationRecord
    choose: Callable[[Ledger], Joined | T]
    by: Initiator | None
    ledgers: LedgerCache
    _change: Change = field(init=False)

    def search(self, draft: Ledger) -> Joined | Settled[AllocationRecord | T]:
        answer = self.choose(draft.copy())
        return answer if isinstance(answer, Joined) else Settled(answer)

    def claim(self, draft: Ledger, answer: Joined) -> None:
        """Hold the links that are laid beside the present ones."""
        self._change = replace(check_changing(self.record), mending=Mending(answer))
        draft.change(self._change.held)

    def write(
        self, session: Session, answer: Joined, draft: Ledger
    ) -> Written[AllocationRecord | T]:
        record, change = self.record, self._change
        fabric = self.ledgers.record(session, record.fabric)
        for placement in (answer.new, answer.old):
            _take_keys(self.transactions, session, record, fabric, placement)
        delta = {"change": allocation_document(change.held)}
        changed = self.transactions.update(
            session,
            record,
            record.state,
            reasons.mend_reason(change, draft.topology),
            self.by,
            mending=mending_document(Mending(answer)),
            generation=self.transactions.advance(session, record.fabric, delta, routes=True),
            **STEP_DONE,
        )
        taken = change.held.beyond(replace(change, mending=None).held)
        claims.take(session, record.fabric, taken, draft.topology)
        return Written(changed, CachedLedger(draft, changed.generation))
