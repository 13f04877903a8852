# SPDX-License-Identifier: Apache-2.0

"""Admission of new and queued requests: what is checked, and what an admission writes.

``concurrency`` says how a search and its commit belong together.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy.orm import Session

from laas_service.adapters.db import (
    allocation_rows,
    claims,
    models,
    partition_keys,
    quotas,
    unique_names,
)
from laas_service.adapters.db.concurrency.decider import Decider
from laas_service.adapters.db.concurrency.decision import Decision, Settled, Written
from laas_service.adapters.db.concurrency.group_commit import GroupCommit
from laas_service.adapters.db.engine import insert_rows, inserting_together
from laas_service.adapters.db.ledger_cache import CachedLedger, LedgerCache
from laas_service.adapters.db.queue_rooms import QueueRooms
from laas_service.adapters.db.snapshots import read_queue
from laas_service.adapters.db.transactions import Transactions, read_enclosing, read_record
from laas_service.adapters.documents import (
    allocation_document,
    consent_document,
    constraints_document,
    demand_document,
    sharing_document,
)
from laas_service.app.lifecycle import ENTERABLE, State
from laas_service.app.ports.snapshots import Draft, QueueState, Snapshot
from laas_service.app.records import (
    NO_LIMITS,
    AllocationRecord,
    Enclosing,
    FabricRecord,
    Limits,
    QueueWait,
)
from laas_service.app.requests import AllocationRequest
from laas_service.app.wording import reasons
from laas_service.domain.admission.admit import requires_undisturbed
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    IdempotencyMismatch,
    LaasError,
    Unavailable,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import NO_CONSENT
from laas_service.domain.routing.tenant_tables import joined_rails
from laas_service.domain.tenancy import Container, Owned, SharedHosts, Slots
from laas_service.domain.wording import listed

KEY_TAKEN = "a request with the same key was faster"

LONG = 0.1
"""Seconds of search in a group after which it takes in no further request."""


class StoredAdmissions(QueueRooms):
    """``app.ports.admissions.Admissions``."""

    def __init__(self, transactions: Transactions, decider: Decider) -> None:
        self.transactions = transactions
        self.decider = decider
        self._ledgers = decider.ledgers
        self.group = GroupCommit(decider, self._joined)

    def answered(
        self,
        project_id: str,
        asked: AllocationRequest,
        completed: Callable[[], AllocationRequest],
    ) -> AllocationRecord | None:
        with self.transactions.reading() as session:
            row = session.get(models.IdempotencyRow, (project_id, asked.idempotency_key))
            if row is None:
                return None
            if row.asked == _asked_document(asked):
                return read_record(session, row.allocation)
            request, allocation = row.request, row.allocation
        try:
            same = request == _request_document(completed())
        except Unavailable:
            raise  # nobody can tell yet
        except LaasError:  # what the first request named is there no more, or never was
            same = False
        if not same:
            raise _mismatch(asked.idempotency_key)
        with self.transactions.reading() as session:
            return read_record(session, allocation)

    def admit(
        self,
        new: AllocationRequest,
        propose: Callable[[Draft], Allocation | NoFit | QueueWait],
        snapshot: Snapshot | None = None,
    ) -> AllocationRecord | NoFit:
        request = _NewRequest(
            self.transactions, new.fabric, repr(new.id), new, propose, self._ledgers
        )
        if snapshot is not None and not snapshot.limits.admission:  # else what it uses counts
            request.begin_from(snapshot)
        if not new.kind.whole_hosts:  # it has to see the rows of those before it
            alone: AllocationRecord | NoFit = self.decider.decide(request)
            return alone
        return self.group.decide(request)

    def _joined(self, several: Sequence["_NewRequest"]) -> "_NewRequests":
        subject = listed(request.subject for request in several)
        return _NewRequests(self.transactions, several[0].fabric_id, subject, several)

    def admit_waiting(
        self, fabric_id: str, choose: Callable[[Ledger], Sequence[Allocation]]
    ) -> list[AllocationRecord]:
        return self.decider.decide(
            _QueuedRequests(self.transactions, fabric_id, "queued requests", choose, self._ledgers)
        )


@dataclass
class _NewRequest(Decision[Allocation | QueueWait, AllocationRecord | NoFit]):
    """The admission of a new request, or its place in the queue."""

    new: AllocationRequest
    propose: Callable[[Draft], Allocation | NoFit | QueueWait]
    ledgers: LedgerCache
    limits: Limits = NO_LIMITS
    queue: QueueState = field(init=False, default_factory=QueueState)

    def begin_from(self, snapshot: Snapshot) -> None:
        """Search first on what the caller has read."""
        here = snapshot.possible[self.fabric_id]
        self.limits, self.queue = snapshot.limits, here.queue
        self.seen = CachedLedger(here.ledger, here.fabric.generation, here.fabric.stamp)

    def prepare(self, session: Session) -> AllocationRecord | None:
        if previous := self.checked(session):
            return previous
        self.queue = read_queue(session, self.fabric_id)
        return None

    def checked(self, session: Session) -> AllocationRecord | None:
        """The answer to an earlier request with the same key. Raises: QuotaExceeded."""
        if previous := self._answered(session):
            return previous
        self.limits = quotas.limits(session, self.new.project_id, self.new.limits)
        quotas.check(session, self.new, self.limits)  # before a search that may take long
        return None

    def _answered(self, session: Session) -> AllocationRecord | None:
        """The allocation of an earlier request with the same key. Raises: IdempotencyMismatch."""
        key, table = self.new.idempotency_key, models.IdempotencyRow
        if key is None:
            return None
        row = session.get(table, (self.new.project_id, key))
        if row is None:
            return None
        if row.request != _request_document(self.new):
            raise _mismatch(key)
        return read_record(session, row.allocation)

    def search(self, draft: Ledger) -> Allocation | QueueWait | Settled[AllocationRecord | NoFit]:
        answer = self.propose(Draft(draft, self.queue))
        return Settled(answer) if isinstance(answer, NoFit) else answer

    def claim(self, draft: Ledger, answer: Allocation | QueueWait) -> None:
        if isinstance(answer, Allocation):
            _claim_once(draft, answer, self.new.constraints)

    def lock(self, session: Session) -> None:
        quotas.lock(session, self.new, self.limits)

    def write(
        self, session: Session, answer: Allocation | QueueWait, draft: Ledger
    ) -> Written[AllocationRecord | NoFit]:
        new = self.new
        quotas.check(session, new, self.limits)
        quotas.check_alone(session, new)
        parent = None if new.parent is None else read_enclosing(session, new.parent)
        if parent is not None:
            _must_contain(parent, new)
        if isinstance(answer, QueueWait):
            # A new generation, so that concurrent searches see the request.
            generation = self.transactions.advance(session, new.fabric, {})
            columns = {"generation": generation}
            reason = reasons.queued_reason(answer.refusal.detail) + self._remark()
            record = self._insert(session, State.QUEUED, reason, columns)
            return Written(record, None, unchanged=generation)
        fabric = self.ledgers.record_of(session, new.fabric, draft.topology)
        columns, generation = _admitted(self.transactions, session, fabric, answer, new, parent)
        reason = _admitted_reason(answer, columns) + self._remark()
        record = self._insert(session, State.ALLOCATING, reason, columns)
        _take(self.transactions, session, record, answer, draft)
        return Written(record, CachedLedger(draft, generation))

    def _remark(self) -> str:
        return "" if self.new.project_checked else reasons.unchecked_remark(self.new.project_id)

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
            "constraints": new.constraints and constraints_document(new.constraints),
            "consent": consent_document(new.consent),
            "duration": new.duration,
            "priority": new.priority,
            "parent": new.parent,
            "kind": allocation_rows.KINDS[type(new.kind)],
            "sharing": new.sharing and sharing_document(new.sharing),
            "slots": new.slots and new.slots.slots,
            "demand": new.slots and demand_document(new.slots),
            "created_at": now,
            "updated_at": now,
        }
        values |= columns
        if new.unique_name:
            unique_names.take(session, new.project_id, new.name, new.id)
        allocation_rows.insert(session, values)
        if new.idempotency_key is not None:
            self._insert_key(session)
        return self.transactions.record_event(
            session, new.id, state, reason, new.by, self.seconds(), values
        )

    def _insert_key(self, session: Session) -> None:
        new = self.new
        key = {"project_id": new.project_id, "key": new.idempotency_key, "allocation": new.id}
        asked = _asked_document(new.as_asked or new)
        documents = {"request": _request_document(new), "asked": asked}
        try:
            insert_rows(session, models.IdempotencyRow, {**key, **documents})
        except DBDuplicateEntry as error:
            raise ConcurrentUpdate(KEY_TAKEN) from error


@dataclass
class _NewRequests(
    Decision[Sequence[Allocation | QueueWait], Mapping[int, AllocationRecord | NoFit]],
):
    """The admission of several new requests, in their order, or of the first ones.

    It has the outcome of deciding them one after the other. So it ends with one that joins the
    queue, as those behind it have to see it there. Requests that have to see another one's rows
    are left out: of a project with a quota, or with the same key or name.
    """

    members: Sequence[_NewRequest]
    results: dict[int, AllocationRecord | NoFit] = field(init=False, default_factory=dict)
    joined: list[int] = field(init=False, default_factory=list)
    """Places of the members that are searched for; after the search of those with an answer."""

    def prepare(self, session: Session) -> Mapping[int, AllocationRecord | NoFit] | None:
        self.results, self.joined = {}, []
        projects: set[str] = set()
        keys: set[tuple[str, str]] = set()
        names: set[tuple[str, str]] = set()
        for place, member in enumerate(self.members):
            if (previous := member.checked(session)) is not None:
                self.results[place] = previous
                continue
            project, key = member.new.project_id, member.new.idempotency_key
            limited = member.limits.admission or member.new.alone
            name = (project, member.new.name)
            if (limited and project in projects) or (project, key) in keys or name in names:
                continue
            self.joined.append(place)
            projects.add(project)
            names.add(name)
            if key is not None:
                keys.add((project, key))
        if not self.joined:
            return self.results
        queue = read_queue(session, self.fabric_id)
        for place in self.joined:
            self.members[place].queue = queue
        return None

    def search(
        self, draft: Ledger
    ) -> Sequence[Allocation | QueueWait] | Settled[Mapping[int, AllocationRecord | NoFit]]:
        begun = time.monotonic()
        answers: dict[int, Allocation | QueueWait] = {}
        for place in self.joined:
            member, started = self.members[place], time.monotonic()
            if started - begun > LONG:
                break
            answer = member.search(draft)
            member.searching += time.monotonic() - started
            if isinstance(answer, Settled):
                self.results[place] = answer.result
                continue
            answers[place] = answer
            if isinstance(answer, QueueWait):
                break
            member.claim(draft, answer)
        self.joined = list(answers)
        for place in self.joined:
            self.members[place].searched = time.monotonic()
        return list(answers.values()) or Settled(self.results)

    def claim(self, draft: Ledger, answer: Sequence[Allocation | QueueWait]) -> None:
        for place, one in zip(self.joined, answer, strict=True):
            self.members[place].claim(draft, one)

    def lock(self, session: Session) -> None:
        limited = [place for place in self.joined if self.members[place].limits.admission]
        alone = [place for place in self.joined if self.members[place].new.alone]
        for place in (limited + alone)[:1]:  # it locks the rows of all fabrics
            self.members[place].lock(session)

    def write(
        self, session: Session, answer: Sequence[Allocation | QueueWait], draft: Ledger
    ) -> Written[Mapping[int, AllocationRecord | NoFit]]:
        members = [self.members[place] for place in self.joined]
        try:
            claims = sum(isinstance(one, Allocation) for one in answer)
            with inserting_together(session):
                if claims:
                    self.transactions.advance_ahead(session, self.fabric_id, claims)
                written = [
                    member.write(session, one, draft)
                    for member, one in zip(members, answer, strict=True)
                ]
        except DBDuplicateEntry as error:
            if any(member.new.idempotency_key is not None for member in members):
                raise ConcurrentUpdate(KEY_TAKEN) from error
            if any(member.new.unique_name for member in members):
                raise ConcurrentUpdate(unique_names.TAKEN) from error
            raise
        results = (one.result for one in written)
        self.results.update(zip(self.joined, results, strict=True))
        unchanged = written[-1].unchanged if len(written) == 1 else None
        return Written(self.results, written[-1].ledger, unchanged)


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
        admitted = [self._admit(session, allocation, draft) for allocation in answer]
        records = [record for record, _ in admitted]
        return Written(records, CachedLedger(draft, admitted[-1][1]))

    def _admit(
        self, session: Session, answer: Allocation, draft: Ledger
    ) -> tuple[AllocationRecord, int]:
        """The record, and the fabric's generation. Raises: ConcurrentUpdate."""
        queued = read_record(session, answer.id)
        if queued.state is not State.QUEUED:
            raise ConcurrentUpdate(f"allocation {answer.id!r} is {queued.state.value}, not queued")
        fabric = self.ledgers.record(session, queued.fabric)
        parent = None if queued.parent is None else read_enclosing(session, queued.parent)
        columns, generation = _admitted(self.transactions, session, fabric, answer, queued, parent)
        reason = _admitted_reason(answer, columns)
        waited = (self.transactions.now() - queued.updated_at).total_seconds()
        record = self.transactions.update(
            session, queued, State.ALLOCATING, reason, seconds=self.seconds(waited), **columns
        )
        if requires_undisturbed(queued.constraints):
            draft.keep_undisturbed(answer.id)
        _take(self.transactions, session, record, answer, draft)
        return record, generation


def _admitted(
    transactions: Transactions,
    session: Session,
    fabric: FabricRecord,
    answer: Allocation,
    asked: AllocationRequest | AllocationRecord,
    parent: Enclosing | None,
) -> tuple[dict[str, Any], int]:
    """The columns of a request that is admitted, at the fabric's next generation (second).

    Slots of shared hosts have the routes and the partition key of the hosts.
    """
    document, kind = allocation_document(answer), answer.kind
    keys: tuple[int, ...] = ()
    if kind.own_keys:
        joined = joined_rails(fabric.topology, fabric.inventory, answer)
        free = partition_keys.free(session, fabric.id, transactions.pkeys, len(set(joined)))
        key_of = dict(zip(sorted(set(joined)), free, strict=True))
        keys = tuple(key_of[first] for first in joined)
    delta: dict[str, Any] = {"claim": document}
    if requires_undisturbed(asked.constraints):
        delta["undisturbed"] = True
    generation = transactions.advance(session, fabric.id, delta, routes=kind.whole_hosts)
    part = None if kind.whole_hosts else parent
    columns = {
        "generation": generation if part is None else part.generation,
        "pkey": keys[0] if keys else 0,
        "pkeys": list(keys) if len(set(keys)) > 1 else None,
        "placed": document,
        "ends_at": asked.duration and transactions.now() + timedelta(seconds=asked.duration),
    }
    return columns, generation


def _admitted_reason(answer: Allocation, columns: dict[str, Any]) -> str:
    if not answer.kind.whole_hosts:
        return reasons.slots_reason(answer)
    return reasons.claimed_reason(answer.size, _partitions(columns))


def _partitions(columns: dict[str, Any]) -> int:
    """How many partition keys an admitted request has, at least 1."""
    return len(set(columns["pkeys"] or [0]))


def _take(
    transactions: Transactions,
    session: Session,
    record: AllocationRecord,
    answer: Allocation,
    draft: Ledger,
) -> None:
    """Insert the claims of an admitted request."""
    if not answer.kind.whole_hosts:
        part = draft.ledger(answer.parent).part
        assert part is not None
        transactions.slot_rows.take(session, record.fabric, part, answer)
        return
    partition_keys.take(session, record, sorted({record.pkey, *record.pkeys} - {0}))
    claims.take(session, record.fabric, answer, draft.topology)


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
    if new.priority is not None:
        document["priority"] = new.priority
    if new.consent != NO_CONSENT:
        document["consent"] = consent_document(new.consent)
    if new.wait:
        document["wait"] = True
    if new.parent is not None:
        document["parent"] = new.parent
    match new.kind:
        case Container():
            document["container"] = True
        case SharedHosts(sharing):
            document["sharing"] = sharing_document(sharing)
        case Slots(demand):
            document["demand"] = demand_document(demand)
        case Owned():
            pass
    if new.risk is not None:
        document["risk"] = new.risk
    return document


def _asked_document(asked: AllocationRequest) -> dict[str, Any]:
    """The fields of a request as its caller made it, with the names of hosts to avoid."""
    return {**_request_document(asked), "avoid": list(asked.avoid)}


def _mismatch(key: str | None) -> IdempotencyMismatch:
    return IdempotencyMismatch(
        f"Idempotency-Key {key!r} was used for another request; use a new key"
    )


def _claim_once(
    draft: Ledger, allocation: Allocation, constraints: Constraints | None = None
) -> None:
    """Claim on the draft, unless the search has done so."""
    if not any(allocation.id in ledger.allocations for ledger in draft.ledgers()):
        draft.claim(allocation)
        if requires_undisturbed(constraints):
            draft.keep_undisturbed(allocation.id)


def _must_contain(parent: Enclosing, new: AllocationRequest) -> None:
    """Return if an allocation accepts others of this class inside. Raises: Conflict."""
    if not parent.kind.accepts(new.kind) or parent.fabric != new.fabric:
        raise Conflict(f"allocation {parent.id!r} {new.kind.needs_parent} on fabric {new.fabric!r}")
    if parent.state not in ENTERABLE:
        raise Conflict(f"container {parent.id!r} is {parent.state.value}; name another")
