# SPDX-License-Identifier: Apache-2.0

"""Admission of new and queued requests: what is checked, and what an admission writes.

``optimistic`` says how a search and its commit belong together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy.orm import Session

from laas_service.adapters.db import claims, models, partition_keys, quotas
from laas_service.adapters.db.engine import insert_rows
from laas_service.adapters.db.ledger_cache import CachedLedger, LedgerCache
from laas_service.adapters.db.optimistic import Decision, Optimist, Settled, Written
from laas_service.adapters.db.transactions import Transactions, read_record
from laas_service.adapters.documents import (
    allocation_document,
    consent_document,
    constraints_document,
)
from laas_service.app.lifecycle import (
    ENTERABLE,
    State,
    claimed_reason,
    queued_reason,
    unchecked_remark,
)
from laas_service.app.records import NO_LIMITS, AllocationRecord, FabricRecord, Limits, Wait
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    IdempotencyMismatch,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import NO_CONSENT
from laas_service.domain.routing.tenant_tables import joined_rails
from laas_service.domain.topology import Topology

"""Partition keys for tenants; 0x7FFF is the default partition."""


@dataclass
class Admission:
    """Admission of new and queued requests."""

    transactions: Transactions
    optimist: Optimist

    @property
    def _ledgers(self) -> LedgerCache:
        return self.optimist.ledgers

    def answered(self, project_id: str, asked: AllocationRequest) -> AllocationRecord | None:
        with self.transactions.reading() as session:
            row = session.get(models.Idempotency, (project_id, asked.idempotency_key))
            if row is None or row.asked != _asked_document(asked):
                return None
            return read_record(session, row.allocation)

    def admit(
        self, new: AllocationRequest, propose: Callable[[Ledger], Allocation | NoFit | Wait]
    ) -> AllocationRecord | NoFit:
        return self.optimist.decide(
            _NewRequest(self.transactions, new.fabric, repr(new.id), new, propose, self._ledgers)
        )

    def admit_waiting(
        self, fabric_id: str, choose: Callable[[Ledger], Sequence[Allocation]]
    ) -> list[AllocationRecord]:
        return self.optimist.decide(
            _QueuedRequests(self.transactions, fabric_id, "queued requests", choose, self._ledgers)
        )


@dataclass
class _NewRequest(Decision[Allocation | Wait, AllocationRecord | NoFit]):
    """The admission of a new request, or its place in the queue."""

    new: AllocationRequest
    propose: Callable[[Ledger], Allocation | NoFit | Wait]
    ledgers: LedgerCache
    limits: Limits = NO_LIMITS

    def prepare(self, session: Session) -> AllocationRecord | None:
        if previous := self._answered(session):
            return previous
        self.limits = quotas.limits(session, self.new.project_id, self.new.limits)
        quotas.check(session, self.new, self.limits)  # before a search that may take long
        return None

    def _answered(self, session: Session) -> AllocationRecord | None:
        """The allocation of an earlier request with the same key. Raises: IdempotencyMismatch."""
        key, table = self.new.idempotency_key, models.Idempotency
        if key is None:
            return None
        row = session.get(table, (self.new.project_id, key))
        if row is None:
            return None
        if row.request != _request_document(self.new):
            raise IdempotencyMismatch(
                f"Idempotency-Key {key!r} was used for another request; use a new key"
            )
        return read_record(session, row.allocation)

    def search(self, draft: Ledger) -> Allocation | Wait | Settled[AllocationRecord | NoFit]:
        answer = self.propose(draft)
        return Settled(answer) if isinstance(answer, NoFit) else answer

    def claim(self, draft: Ledger, answer: Allocation | Wait) -> None:
        if isinstance(answer, Allocation):
            _claim_once(draft, answer)

    def lock(self, session: Session) -> None:
        quotas.lock(session, self.new, self.limits)

    def write(
        self, session: Session, answer: Allocation | Wait, draft: Ledger
    ) -> Written[AllocationRecord | NoFit]:
        new = self.new
        quotas.check(session, new, self.limits)
        quotas.check_alone(session, new)
        if new.parent is not None:
            _must_contain(read_record(session, new.parent), new.fabric)
        if isinstance(answer, Wait):
            # A new generation, so that concurrent searches see the request.
            columns = {"pkey": 0, "generation": self.transactions.advance(session, new.fabric, {})}
            reason = queued_reason(answer.refusal.detail) + self._remark()
            return Written(self._insert(session, State.QUEUED, reason, columns), None)
        fabric = self.ledgers.record_of(session, new.fabric, draft.topology)
        columns = _admitted(self.transactions, session, fabric, answer, new.duration)
        reason = claimed_reason(answer.size, _partitions(columns)) + self._remark()
        record = self._insert(session, State.ALLOCATING, reason, columns)
        _take(session, record, answer, draft.topology)
        return Written(record, CachedLedger(draft, record.generation))

    def _remark(self) -> str:
        return "" if self.new.project_checked else unchecked_remark(self.new.project_id)

    def _insert(
        self, session: Session, state: State, reason: str, columns: dict[str, Any]
    ) -> AllocationRecord:
        """Insert the request and its key; the fabric's row must be locked."""
        new, now = self.new, self.transactions.now()
        values = {
            "id": new.id,
            "fabric": new.fabric,
            "name": new.name,
            "project_id": new.project_id,
            "policy": new.policy,
            "hosts": new.hosts,
            "state": state.value,
            "version": 1,
            "handed_back": False,
            "force": False,
            "failures": 0,
            "forgotten": 0,
            "constraints": new.constraints and constraints_document(new.constraints),
            "consent": consent_document(new.consent),
            "duration": new.duration,
            "parent": new.parent,
            "container": new.container,
            "created_at": now,
            "updated_at": now,
        }
        values |= columns
        insert_rows(session, models.Allocation, values)
        if new.idempotency_key is not None:
            self._insert_key(session)
        row = models.Allocation(**values)
        return self.transactions.record_event(
            session, new.id, state, reason, new.by, self.seconds(), row
        )

    def _insert_key(self, session: Session) -> None:
        new = self.new
        key = {"project_id": new.project_id, "key": new.idempotency_key, "allocation": new.id}
        asked = _asked_document(new.as_asked or new)
        documents = {"request": _request_document(new), "asked": asked}
        try:
            insert_rows(session, models.Idempotency, {**key, **documents})
        except DBDuplicateEntry as error:
            raise ConcurrentUpdate("a request with the same key was faster") from error


@dataclass
class _QueuedRequests(Decision[Sequence[Allocation], list[AllocationRecord]]):
    """The admission of requests from the queue."""

    choose: Callable[[Ledger], Sequence[Allocation]]
    ledgers: LedgerCache

    def search(self, draft: Ledger) -> Sequence[Allocation] | Settled[list[AllocationRecord]]:
        return self.choose(draft) or Settled([])

    def claim(self, draft: Ledger, answer: Sequence[Allocation]) -> None:
        for allocation in answer:
            _claim_once(draft, allocation)

    def write(
        self, session: Session, answer: Sequence[Allocation], draft: Ledger
    ) -> Written[list[AllocationRecord]]:
        records = [self._admit(session, allocation, draft.topology) for allocation in answer]
        return Written(records, CachedLedger(draft, records[-1].generation))

    def _admit(self, session: Session, answer: Allocation, topology: Topology) -> AllocationRecord:
        """Raises: ConcurrentUpdate."""
        queued = read_record(session, answer.id)
        if queued.state is not State.QUEUED:
            raise ConcurrentUpdate(f"allocation {answer.id!r} is {queued.state.value}, not queued")
        fabric = self.ledgers.record(session, queued.fabric)
        columns = _admitted(self.transactions, session, fabric, answer, queued.duration)
        reason = claimed_reason(answer.size, _partitions(columns))
        waited = (self.transactions.now() - queued.updated_at).total_seconds()
        record = self.transactions.update(
            session, queued, State.ALLOCATING, reason, seconds=self.seconds(waited), **columns
        )
        _take(session, record, answer, topology)
        return record


def _admitted(
    transactions: Transactions,
    session: Session,
    fabric: FabricRecord,
    answer: Allocation,
    duration: float | None,
) -> dict[str, Any]:
    """The columns of a request that is admitted, at the fabric's next generation."""
    document = allocation_document(answer)
    keys: tuple[int, ...] = ()
    if not answer.container:
        joined = joined_rails(fabric.topology, fabric.inventory, answer)
        free = partition_keys.free(session, fabric.id, transactions.pkeys, len(set(joined)))
        key_of = dict(zip(sorted(set(joined)), free, strict=True))
        keys = tuple(key_of[first] for first in joined)
    return {
        "generation": transactions.advance(session, fabric.id, {"claim": document}, routes=True),
        "pkey": keys[0] if keys else 0,
        "pkeys": list(keys) if len(set(keys)) > 1 else None,
        "placed": document,
        "ends_at": None if duration is None else transactions.now() + timedelta(seconds=duration),
    }


def _partitions(columns: dict[str, Any]) -> int:
    """How many partition keys an admitted request has, at least 1."""
    return len(set(columns["pkeys"] or [0]))


def _take(
    session: Session, record: AllocationRecord, answer: Allocation, topology: Topology
) -> None:
    """Insert the claims of an admitted request."""
    partition_keys.take(session, record, sorted({record.pkey, *record.pkeys} - {0}))
    claims.take(session, record.fabric, answer, topology)


def _request_document(new: AllocationRequest) -> dict[str, Any]:
    """The fields that a repeated key must repeat, without those at their defaults."""
    document: dict[str, Any] = {
        "fabric": new.fabric,
        "name": new.name,
        "policy": new.policy,
        "hosts": new.hosts,
    }
    if new.constraints is not None:
        document["constraints"] = constraints_document(new.constraints)
    if new.duration is not None:
        document["duration"] = new.duration
    if new.consent != NO_CONSENT:
        document["consent"] = consent_document(new.consent)
    if new.wait:
        document["wait"] = True
    if new.parent is not None:
        document["parent"] = new.parent
    if new.container:
        document["container"] = True
    return document


def _asked_document(asked: AllocationRequest) -> dict[str, Any]:
    """The fields of a request as its caller made it, with the names of hosts to avoid."""
    return {**_request_document(asked), "avoid": list(asked.avoid)}


def _claim_once(draft: Ledger, allocation: Allocation) -> None:
    """Claim on the draft, unless the search has done so."""
    if not any(allocation.id in ledger.allocations for ledger in draft.ledgers()):
        draft.claim(allocation)


def _must_contain(parent: AllocationRecord, fabric_id: str) -> None:
    """Return if a container of the fabric accepts allocations. Raises: Conflict."""
    if not parent.container or parent.fabric != fabric_id:
        raise Conflict(f"allocation {parent.id!r} is no container of fabric {fabric_id!r}")
    if parent.state not in ENTERABLE:
        raise Conflict(f"container {parent.id!r} is {parent.state.value}; name another")
