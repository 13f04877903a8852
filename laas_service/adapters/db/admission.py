# SPDX-License-Identifier: Apache-2.0

"""Admission of new and queued requests: what is checked, and what an admission writes.

``optimistic`` says how a search and its commit belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, quotas
from laas_service.adapters.db.ledger_cache import CachedLedger
from laas_service.adapters.db.optimistic import Decision, Optimist, Settled, Written
from laas_service.adapters.documents import allocation_document, constraints_document
from laas_service.app.lifecycle import ENTERABLE, State, claimed_reason, queued_reason
from laas_service.app.records import NO_LIMITS, AllocationRecord, Limits, Usage, Wait
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    IdempotencyMismatch,
    LimitExceeded,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.topology import Topology
from laas_service.messages import Initiator

PKEYS = range(0x0001, 0x7FFF)
"""Partition keys for tenants; 0x7FFF is the default partition."""


class Admission(Optimist):
    """Admission of new and queued requests."""

    def admit(
        self, new: AllocationRequest, propose: Callable[[Ledger], Allocation | NoFit | Wait]
    ) -> AllocationRecord | NoFit:
        return self._decide(_NewRequest(self, new, propose))

    def admit_waiting(
        self, fabric_id: str, choose: Callable[[Ledger], Sequence[Allocation]]
    ) -> list[AllocationRecord]:
        return self._decide(_QueuedRequests(self, fabric_id, choose))

    def usage(self, project_id: str, limits: Limits) -> Usage:
        with self._reading() as session:
            return quotas.usage(session, project_id, limits)

    def within_limits(self, new: AllocationRequest) -> None:
        with self._reading() as session:
            quotas.check(session, new, quotas.limits(session, new.project_id, new.limits))

    def _answered(self, session: Session, new: AllocationRequest) -> AllocationRecord | None:
        """The allocation of an earlier request with the same key. Raises: IdempotencyMismatch."""
        if new.idempotency_key is None:
            return None
        table = models.Idempotency
        row = session.execute(
            select(table.request, table.allocation).where(
                table.project_id == new.project_id, table.key == new.idempotency_key
            )
        ).one_or_none()
        if row is None:
            return None
        if row.request != _request_document(new):
            raise IdempotencyMismatch(
                f"Idempotency-Key {new.idempotency_key!r} was used for another request; "
                "use a new key"
            )
        return self._record(session, row.allocation)

    def _insert(self, session: Session, new: AllocationRequest, generation: int) -> None:
        """Insert a request without claims, and its key; the fabric's row must be locked."""
        now = self._now()
        if new.parent is not None:
            _must_contain(self._record(session, new.parent), new.fabric)
        session.execute(
            insert(models.Allocation).values(
                id=new.id,
                fabric=new.fabric,
                name=new.name,
                project_id=new.project_id,
                policy=new.policy,
                hosts=new.hosts,
                state=State.QUEUED.value,
                version=0,
                pkey=0,
                generation=generation,
                handed_back=False,
                force=False,
                failures=0,
                constraints=new.constraints and constraints_document(new.constraints),
                duration=new.duration,
                parent=new.parent,
                container=new.container,
                created_at=now,
                updated_at=now,
            )
        )
        if new.idempotency_key is not None:
            self._record_key(session, new)

    def _enqueue(
        self, session: Session, new: AllocationRequest, refusal: NoFit
    ) -> AllocationRecord:
        """Record a queued request; the new generation makes concurrent searches see it."""
        self._insert(session, new, self._advance(session, new.fabric, {}))
        record = self._record(session, new.id)
        return self._update(session, record, State.QUEUED, queued_reason(refusal.detail), new.by)

    def _claim(
        self,
        session: Session,
        id: str,
        answer: Allocation,
        topology: Topology,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        """Write the admission of a request whose row exists. Raises: ConcurrentUpdate."""
        record = self._record(session, id)
        if record.state is not State.QUEUED:
            raise ConcurrentUpdate(f"allocation {id!r} is {record.state.value}, not queued")
        document = allocation_document(answer)
        generation = self._advance(session, record.fabric, {"claim": document}, routes=True)
        pkey = 0 if answer.container else _free_pkey(session, record.fabric)
        seconds = record.duration
        claimed = self._update(
            session,
            record,
            State.ALLOCATING,
            claimed_reason(answer.size),
            by,
            pkey=pkey,
            placed=document,
            generation=generation,
            ends_at=None if seconds is None else self._now() + timedelta(seconds=seconds),
        )
        if pkey:
            owner = {"fabric": record.fabric, "allocation": id}
            session.execute(insert(models.PkeyClaim), [{**owner, "pkey": pkey}])
        self._insert_claims(session, record.fabric, answer, topology)
        return claimed

    def _insert_claims(
        self, session: Session, fabric_id: str, held: Allocation, topology: Topology
    ) -> None:
        """Insert the claims of hosts and links; the database refuses a second owner."""
        owner: dict[str, Any] = {"fabric": fabric_id, "allocation": held.id}
        owner |= {"scope": held.parent or "", "parent": held.parent}
        hosts = held.hosts(topology)
        links = [topology.tree.link_id(link) for link in held.links(topology)]
        if hosts:
            session.execute(insert(models.HostClaim), [{**owner, "host": x} for x in hosts])
        if links:
            session.execute(insert(models.LinkClaim), [{**owner, "link": x} for x in links])

    def _record_key(self, session: Session, new: AllocationRequest) -> None:
        try:
            session.execute(
                insert(models.Idempotency).values(
                    project_id=new.project_id,
                    key=new.idempotency_key,
                    request=_request_document(new),
                    allocation=new.id,
                )
            )
        except DBDuplicateEntry as error:
            raise ConcurrentUpdate("a request with the same key was faster") from error


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
    if new.wait:
        document["wait"] = True
    if new.parent is not None:
        document["parent"] = new.parent
    if new.container:
        document["container"] = True
    return document


class _NewRequest(Decision[Allocation | Wait, AllocationRecord | NoFit]):
    """The admission of a new request, or its place in the queue."""

    def __init__(
        self,
        admission: Admission,
        new: AllocationRequest,
        propose: Callable[[Ledger], Allocation | NoFit | Wait],
    ) -> None:
        super().__init__(new.fabric, repr(new.id))
        self._admission = admission
        self._new = new
        self._propose = propose
        self._limits = NO_LIMITS

    def prepare(self, session: Session) -> AllocationRecord | None:
        if previous := self._admission._answered(session, self._new):
            return previous
        self._limits = quotas.limits(session, self._new.project_id, self._new.limits)
        quotas.check(session, self._new, self._limits)  # before a search that may take long
        return None

    def search(self, draft: Ledger) -> Allocation | Wait | Settled[AllocationRecord | NoFit]:
        answer = self._propose(draft)
        return Settled(answer) if isinstance(answer, NoFit) else answer

    def claim(self, draft: Ledger, answer: Allocation | Wait) -> None:
        if isinstance(answer, Allocation):
            _claim_once(draft, answer)

    def lock(self, session: Session) -> None:
        quotas.lock(session, self._new, self._limits)

    def write(
        self, session: Session, answer: Allocation | Wait, draft: Ledger, generation: int
    ) -> Written[AllocationRecord | NoFit]:
        quotas.check(session, self._new, self._limits)
        quotas.check_alone(session, self._new)
        if isinstance(answer, Wait):
            return Written(self._admission._enqueue(session, self._new, answer.refusal), None)
        self._admission._insert(session, self._new, generation + 1)
        new, topology = self._new, draft.topology
        record = self._admission._claim(session, new.id, answer, topology, new.by)
        return Written(record, CachedLedger(draft, record.generation))


class _QueuedRequests(Decision[Sequence[Allocation], list[AllocationRecord]]):
    """The admission of requests from the queue."""

    def __init__(
        self,
        admission: Admission,
        fabric_id: str,
        choose: Callable[[Ledger], Sequence[Allocation]],
    ) -> None:
        super().__init__(fabric_id, "queued requests")
        self._admission = admission
        self._choose = choose

    def search(self, draft: Ledger) -> Sequence[Allocation] | Settled[list[AllocationRecord]]:
        return self._choose(draft) or Settled([])

    def claim(self, draft: Ledger, answer: Sequence[Allocation]) -> None:
        for allocation in answer:
            _claim_once(draft, allocation)

    def write(
        self, session: Session, answer: Sequence[Allocation], draft: Ledger, generation: int
    ) -> Written[list[AllocationRecord]]:
        admission, topology = self._admission, draft.topology
        records = [
            admission._claim(session, allocation.id, allocation, topology) for allocation in answer
        ]
        return Written(records, CachedLedger(draft, records[-1].generation))


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


def _free_pkey(session: Session, fabric_id: str) -> int:
    """The lowest partition key that no tenant of the fabric has. Raises: LimitExceeded."""
    table = models.PkeyClaim
    taken = set(session.scalars(select(table.pkey).where(table.fabric == fabric_id)))
    for pkey in PKEYS:
        if pkey not in taken:
            return pkey
    raise LimitExceeded(f"all {len(PKEYS)} partition keys of fabric {fabric_id!r} are in use")
