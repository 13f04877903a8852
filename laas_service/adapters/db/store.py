# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""The store in a relational database: every decision is one transaction.

An admission works on a copy of the ledger that takes its place only when the
database has committed, so a failed one leaves nothing behind in memory either.
"""

from __future__ import annotations

import copy
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import tenacity
from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import (
    Engine,
    Select,
    and_,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from laas_service.adapters.db import faults, leases, models, outbox, quotas, schema
from laas_service.adapters.db.engine import WRITES, matched, translated
from laas_service.adapters.db.ledgers import Ledger, Ledgers
from laas_service.adapters.documents import (
    allocation_document,
    allocation_from,
    constraints_document,
    constraints_from,
    inventory_document,
    plane_document,
    topology_document,
)
from laas_service.app import notifications
from laas_service.app.records import (
    SUCCESSORS,
    AllocationRecord,
    Drift,
    Event,
    FabricRecord,
    Holding,
    HostState,
    Lease,
    LinkState,
    Move,
    NewAllocation,
    Phase,
    State,
    Wait,
)
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    DoubleClaim,
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from laas_service.domain.fabric import Fabric
from laas_service.domain.features import PLAIN, HostChange, HostFeatures
from laas_service.domain.inventory import Inventory
from laas_service.domain.plane import SharedPlane
from laas_service.domain.routing import as_routed
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.messages import Applied, FabricState, Initiator, Notification, TenantRoute

T = TypeVar("T")

FABRIC_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""A fabric's id is also the name of a directory."""

PKEYS = range(0x0001, 0x7FFF)
"""Partition keys for tenants; 0x7FFF is the default partition."""

KEEP_DELTAS = 10_000
"""Generations a process may lag behind before it has to read the fabric anew."""

NEXT_PHASE = {Phase.PREPARE: Phase.SWITCH, Phase.SWITCH: Phase.WITHDRAW}
"""What follows in a change of placement; after the last phase the old claims are freed."""

FEW = 500
"""Hosts or links that one statement names."""

ATTEMPTS = 5
"""Tries of an admission that the database makes give way to another transaction."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def nowhere(step: str) -> None:
    """The hook that does nothing."""


class SqlStore:
    """``app.ports.Store`` on SQLite, PostgreSQL or MariaDB; safe to share between threads.

    ``at`` is called with a step's name around every commit (for fault injection). With
    ``announce``, what others are to be told is put into the outbox.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        now: Callable[[], datetime] = utc_now,
        at: Callable[[str], None] = nowhere,
        keep_deltas: int = KEEP_DELTAS,
        announce: bool = False,
    ) -> None:
        self._engine = engine
        self._now = now
        self._at = at
        self._keep_deltas = keep_deltas
        self._announces = announce
        self._ledgers = Ledgers()
        self._admitting = threading.Lock()
        self._lease: Lease | None = None

    def under(self, lease: Lease) -> SqlStore:
        """See ``app.ports.Store.under``; what is known in memory is shared."""
        held = copy.copy(self)
        held._lease = lease
        return held

    # -- transactions ---------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with translated(), Session(self._engine) as session:
            yield session

    @contextmanager
    def _writing(self, step: str) -> Iterator[Session]:
        """A transaction that is committed at the end, or leaves nothing behind."""
        with translated(), Session(self._engine) as session:
            session.connection(execution_options={WRITES: True})
            if self._lease is not None:
                leases.guard(session, self._lease)
            yield session
            session.flush()
            self._at(f"before commit: {step}")
            session.commit()
        self._at(f"after commit: {step}")

    def check(self) -> None:
        with self._reading() as session:
            revision, wanted = schema.current(session.connection()), schema.head()
        if revision != wanted:
            raise Unavailable(
                f"the database is at revision {revision}, this release needs {wanted}; "
                "run laas-manage db upgrade"
            )

    # -- fabrics --------------------------------------------------------------

    def add_fabric(self, id: str, topology: Topology, inventory: Inventory) -> FabricRecord:
        if not FABRIC_ID.fullmatch(id):
            fix = "give an id of 1 to 64 of A-Z a-z 0-9 . _ -, not . or - in front"
            raise InvalidInput("fabric", id, fix)
        try:
            with self._writing("add fabric") as session:
                session.add(
                    models.Fabric(
                        id=id,
                        generation=1,
                        routes_generation=1,
                        topology=topology_document(topology),
                        inventory=inventory_document(inventory),
                        created_at=self._now(),
                    )
                )
        except DBDuplicateEntry as error:
            raise Conflict(f"there is a fabric {id!r} already") from error
        return self.fabric(id)

    def fabrics(self) -> list[FabricRecord]:
        with self._reading() as session:
            ids = session.scalars(select(models.Fabric.id)).all()
            return [self._ledgers.record(session, id) for id in sorted(ids)]

    def fabric(self, id: str) -> FabricRecord:
        with self._reading() as session:
            return self._ledgers.record(session, id)

    # -- the ledger -----------------------------------------------------------

    def ledger(self, fabric_id: str) -> tuple[Fabric, int]:
        with self._reading() as session:
            return self._ledgers.caught_up(session, fabric_id)

    def _advance(
        self, session: Session, fabric_id: str, change: dict[str, Any], *, routes: bool = False
    ) -> int:
        """The fabric's next generation, recorded with its delta."""
        table = models.Fabric
        session.execute(
            update(table).where(table.id == fabric_id).values(generation=table.generation + 1)
        )
        generation = session.scalars(select(table.generation).where(table.id == fabric_id)).one()
        if routes:
            session.execute(
                update(table).where(table.id == fabric_id).values(routes_generation=generation)
            )
        delta = models.Delta
        session.execute(
            insert(delta).values(fabric=fabric_id, generation=generation, change=change)
        )
        session.execute(
            delete(delta).where(
                delta.fabric == fabric_id, delta.generation <= generation - self._keep_deltas
            )
        )
        return generation

    # -- admission ------------------------------------------------------------

    def admit(
        self, new: NewAllocation, propose: Callable[[Fabric], Allocation | NoFit | Wait]
    ) -> AllocationRecord | NoFit:
        return _retrying()(self._admit, new, propose)

    def _admit(
        self, new: NewAllocation, propose: Callable[[Fabric], Allocation | NoFit | Wait]
    ) -> AllocationRecord | NoFit:
        """Search without a lock, so that no other writer waits; if the race is lost, with it.

        Nobody starves: the second search cannot lose.
        """
        with self._admitting:
            with self._reading() as session:
                if previous := self._answered(session, new):
                    return previous
                limits = quotas.limits(session, new)
                quotas.check(session, new, limits)  # before the search, which may take long
                ledger = self._ledgers.caught_up(session, new.fabric)
            draft, answer = _proposed(ledger, propose)
            if isinstance(answer, NoFit):
                return answer
            try:
                with self._writing("admit") as session:
                    quotas.lock(session, limits)
                    if _locked_generation(session, new.fabric) != ledger.generation:
                        if previous := self._answered(session, new):
                            return previous
                        ledger = self._ledgers.caught_up(session, new.fabric)
                        draft, answer = _proposed(ledger, propose)
                        if isinstance(answer, NoFit):
                            return answer
                    quotas.check(session, new, limits)
                    if isinstance(answer, Wait):
                        return self._enqueue(session, new, answer.refusal)
                    self._insert(session, new, ledger.generation + 1)
                    record = self._claim(session, new.id, answer, draft.topology, new.by)
            except DBDuplicateEntry as error:
                self._ledgers.forget(new.fabric)
                raise DoubleClaim(f"the database refused the claims of {new.id!r}") from error
            self._ledgers.keep(new.fabric, Ledger(draft, record.generation))
            return record

    def within_limits(self, new: NewAllocation) -> None:
        with self._reading() as session:
            quotas.check(session, new, quotas.limits(session, new))

    def admit_waiting(
        self, fabric_id: str, choose: Callable[[Fabric], Sequence[Allocation]]
    ) -> list[AllocationRecord]:
        return _retrying()(self._admit_waiting, fabric_id, choose)

    def _admit_waiting(
        self, fabric_id: str, choose: Callable[[Fabric], Sequence[Allocation]]
    ) -> list[AllocationRecord]:
        """As ``_admit``, for requests that are recorded already."""
        with self._admitting:
            with self._reading() as session:
                ledger = self._ledgers.caught_up(session, fabric_id)
            draft, chosen = _chosen(ledger, choose)
            if not chosen:
                return []
            try:
                with self._writing("admit") as session:
                    if _locked_generation(session, fabric_id) != ledger.generation:
                        ledger = self._ledgers.caught_up(session, fabric_id)
                        draft, chosen = _chosen(ledger, choose)
                    records = [self._claim(session, one.id, one, draft.topology) for one in chosen]
            except DBDuplicateEntry as error:
                self._ledgers.forget(fabric_id)
                raise DoubleClaim("the database refused the claims of who waited") from error
            if records:
                self._ledgers.keep(fabric_id, Ledger(draft, records[-1].generation))
            return records

    def _answered(self, session: Session, new: NewAllocation) -> AllocationRecord | None:
        """What an earlier request with the same key got."""
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
        if row.request != _asked(new):
            raise IdempotencyMismatch(
                f"Idempotency-Key {new.idempotency_key!r} was used for another request; "
                "use a new key"
            )
        return self._record(session, row.allocation)

    def _insert(self, session: Session, new: NewAllocation, generation: int) -> None:
        """The row of a request without claims, and its key; the fabric's row is locked."""
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
            self._remember(session, new)

    def _enqueue(self, session: Session, new: NewAllocation, refusal: NoFit) -> AllocationRecord:
        """Record a request that waits; who decides by the queue has to look again."""
        _locked_generation(session, new.fabric)
        self._insert(session, new, self._advance(session, new.fabric, {}))
        self._change(session, self._record(session, new.id))
        self._tell(session, new.id, State.QUEUED, f"waits: {refusal.detail}", new.by)
        return self._record(session, new.id)

    def _claim(
        self,
        session: Session,
        id: str,
        answer: Allocation,
        topology: Topology,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        """Write everything that an admission is, for a request whose row is there."""
        record = self._record(session, id)
        if record.state is not State.QUEUED:
            raise ConcurrentUpdate(f"allocation {id!r} is {record.state.value}, not queued")
        document = allocation_document(answer)
        generation = self._advance(session, record.fabric, {"claim": document}, routes=True)
        pkey = 0 if answer.container else _free_pkey(session, record.fabric)
        seconds = record.duration
        self._change(
            session,
            record,
            state=State.ALLOCATING.value,
            pkey=pkey,
            placed=document,
            generation=generation,
            ends_at=None if seconds is None else self._now() + timedelta(seconds=seconds),
        )
        if pkey:
            owner = {"fabric": record.fabric, "allocation": id}
            session.execute(insert(models.PkeyClaim), [{**owner, "pkey": pkey}])
        self._insert_claims(session, record.fabric, answer, topology)
        self._tell(session, id, State.ALLOCATING, f"claimed {answer.size} hosts", by)
        return self._record(session, id)

    def _insert_claims(
        self, session: Session, fabric_id: str, held: Allocation, topology: Topology
    ) -> None:
        owner: dict[str, Any] = {"fabric": fabric_id, "allocation": held.id}
        owner |= {"scope": held.parent or "", "parent": held.parent}
        hosts = held.hosts(topology)
        links = [topology.tree.link_id(link) for link in held.links(topology)]
        if hosts:
            session.execute(insert(models.HostClaim), [{**owner, "host": x} for x in hosts])
        if links:
            session.execute(insert(models.LinkClaim), [{**owner, "link": x} for x in links])

    def _remember(self, session: Session, new: NewAllocation) -> None:
        try:
            session.execute(
                insert(models.Idempotency).values(
                    project_id=new.project_id,
                    key=new.idempotency_key,
                    request=_asked(new),
                    allocation=new.id,
                )
            )
        except DBDuplicateEntry as error:
            raise ConcurrentUpdate("a request with the same key was faster") from error

    # -- allocations ----------------------------------------------------------

    def allocation(self, id: str) -> AllocationRecord:
        with self._reading() as session:
            return self._record(session, id)

    def allocations(
        self,
        *,
        fabric: str | None = None,
        project_id: str | None = None,
        states: Collection[State] = (),
        limit: int = 1000,
        marker: str | None = None,
    ) -> list[AllocationRecord]:
        table = models.Allocation
        query = select(table).order_by(table.sequence).limit(limit)
        if fabric is not None:
            query = query.where(table.fabric == fabric)
        if project_id is not None:
            query = query.where(table.project_id == project_id)
        if states:
            query = query.where(table.state.in_([state.value for state in states]))
        with self._reading() as session:
            if marker is not None:
                query = query.where(table.sequence > self._sequence(session, marker))
            return [_as_record(row) for row in session.scalars(query)]

    def _sequence(self, session: Session, id: str) -> int:
        table = models.Allocation
        found = session.scalar(select(table.sequence).where(table.id == id))
        if found is None:
            raise NotFound("allocation", id)
        return found

    def _record(self, session: Session, id: str) -> AllocationRecord:
        table, event = models.Allocation, models.Event
        row = session.scalar(select(table).where(table.id == id))
        if row is None:
            raise NotFound("allocation", id)
        events = session.scalars(select(event).where(event.allocation == id).order_by(event.id))
        return _as_record(row, tuple(map(_as_event, events)))

    def _tell(
        self, session: Session, id: str, state: State, reason: str, by: Initiator | None = None
    ) -> None:
        """The next line of the story; others are told of it, too."""
        asked = {} if by is None else asdict(by)
        session.execute(
            insert(models.Event).values(
                allocation=id, at=self._now(), state=state.value, reason=reason, **asked
            )
        )
        if self._announces:
            record = self._record(session, id)
            outbox.put(session, notifications.allocation_changed(_new_id(), record))

    def _change(self, session: Session, record: AllocationRecord, **values: Any) -> None:
        """Change the row of a record that has not moved on."""
        table = models.Allocation
        step = (
            update(table)
            .where(table.id == record.id, table.version == record.version)
            .values(version=record.version + 1, updated_at=self._now(), **values)
        )
        if matched(session, step) == 0:
            self._sequence(session, record.id)
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")

    def transition(
        self,
        record: AllocationRecord,
        to: State,
        reason: str,
        *,
        force: bool = False,
        error: str | None = None,
        by: Initiator | None = None,
    ) -> AllocationRecord:
        if to not in SUCCESSORS[record.state] or to is State.RELEASED:
            raise Conflict(f"allocation {record.id!r} is {record.state.value}, not {to.value}")
        with self._writing(f"{to.value}") as session:
            if record.container and to is State.RELEASING:
                _locked_generation(session, record.fabric)
                self._must_be_empty(session, record)
            self._change(
                session,
                record,
                state=to.value,
                force=record.force or force,
                error=error,
                failures=0,
                due_at=None,
                parked=_parked(record, to),
            )
            self._tell(session, record.id, to, reason, by)
            return self._record(session, record.id)

    def _must_be_empty(self, session: Session, container: AllocationRecord) -> None:
        """Raises: Conflict; the fabric's row is locked, so that nobody enters meanwhile."""
        table = models.Allocation
        inside = session.scalars(
            select(table.id)
            .where(table.parent == container.id, table.state != State.RELEASED.value)
            .order_by(table.sequence)
        ).all()
        if inside:
            shown = ", ".join(inside[:5]) + (f" and {len(inside) - 5} more" if inside[5:] else "")
            raise Conflict(
                f"container {container.id!r} has {len(inside)} allocations inside; "
                f"release them first: {shown}"
            )

    def rename(
        self, record: AllocationRecord, name: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        with self._writing("rename") as session:
            self._change(session, record, name=name)
            self._tell(session, record.id, record.state, f"renamed from {record.name!r}", by)
            return self._record(session, record.id)

    def cancel(
        self, record: AllocationRecord, reason: str, *, by: Initiator | None = None
    ) -> AllocationRecord:
        if record.state is not State.QUEUED:
            raise Conflict(f"allocation {record.id!r} is {record.state.value}, not queued")
        with self._writing("cancel") as session:
            self._advance(session, record.fabric, {})
            self._change(session, record, state=State.RELEASED.value)
            self._tell(session, record.id, State.RELEASED, reason, by)
            return self._record(session, record.id)

    def hand_back(self, record: AllocationRecord) -> AllocationRecord:
        _must_release(record)
        with self._writing("hand back") as session:
            generation = self._advance(session, record.fabric, {}, routes=True)
            self._change(
                session,
                record,
                handed_back=True,
                generation=generation,
                error=None,
                failures=0,
                due_at=None,
            )
            self._tell(session, record.id, record.state, "the routes have to go")
            return self._record(session, record.id)

    def free(self, record: AllocationRecord, reason: str) -> AllocationRecord:
        _must_release(record)
        if not record.handed_back:
            raise Conflict(f"allocation {record.id!r} is not handed back")
        with self._writing("free") as session:
            self._advance(session, record.fabric, {"release": record.id})
            self._change(
                session,
                record,
                state=State.RELEASED.value,
                placed=None,
                leaving=None,
                phase=None,
                faults=None,
                error=None,
                failures=0,
                due_at=None,
            )
            for claim in (models.HostClaim, models.LinkClaim, models.PkeyClaim):
                session.execute(delete(claim).where(claim.allocation == record.id))
            self._tell(session, record.id, State.RELEASED, reason)
            return self._record(session, record.id)

    # -- changes of placement -------------------------------------------------

    def move(
        self,
        record: AllocationRecord,
        choose: Callable[[Fabric], Move | T],
        *,
        by: Initiator | None = None,
    ) -> AllocationRecord | T:
        return _retrying()(self._move, record, choose, by)

    def _move(
        self,
        record: AllocationRecord,
        choose: Callable[[Fabric], Move | T],
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
                    if _locked_generation(session, record.fabric) != ledger.generation:
                        ledger = self._ledgers.caught_up(session, record.fabric)
                        answer = choose(ledger.fabric.copy())
                        if not isinstance(answer, Move):
                            return answer
                    draft = ledger.fabric.copy()
                    changed = self._hold_both(session, record, answer, draft, by)
            except DBDuplicateEntry as error:
                self._ledgers.forget(record.fabric)
                raise DoubleClaim(f"the database refused the claims of {record.id!r}") from error
            self._ledgers.keep(record.fabric, Ledger(draft, changed.generation))
            return changed

    def _hold_both(
        self,
        session: Session,
        record: AllocationRecord,
        move: Move,
        draft: Fabric,
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
            error=None,
            failures=0,
            due_at=None,
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
                error=None,
                failures=0,
                due_at=None,
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
                error=None,
                failures=0,
                due_at=None,
            )
            self._tell(session, record.id, record.state, reason)
            return self._record(session, record.id)

    # -- work to do -----------------------------------------------------------

    def due(
        self,
        now: datetime,
        limit: int = 100,
        *,
        faulty: bool = False,
        fabric: str | None = None,
    ) -> list[str]:
        table = models.Allocation
        ready = or_(table.due_at.is_(None), table.due_at <= now)
        if fabric is not None:
            ready = and_(table.fabric == fabric, ready)
        moving = or_(
            table.state.in_([State.ALLOCATING.value, State.RELEASING.value]),
            and_(table.state == State.ACTIVE.value, table.leaving.is_not(None)),
        )
        query = select(table.id).where(ready, moving).order_by(table.sequence).limit(limit)
        with self._reading() as session:
            found = list(session.scalars(query))
            if faulty:
                broken = select(table.id, table.faults).where(
                    ready,
                    table.state == State.ACTIVE.value,
                    table.faults.is_not(None),
                    table.leaving.is_(None),
                )
                rows = session.execute(broken.order_by(table.sequence)).all()
                found += [row.id for row in rows if faults.parsed(row.faults).links]
            return found[:limit]

    def postpone(self, id: str, until: datetime, error: str) -> None:
        table = models.Allocation
        with self._writing("postpone") as session:
            row = session.scalar(select(table).where(table.id == id).with_for_update())
            if row is None:
                raise NotFound("allocation", id)
            row.failures += 1
            row.due_at = until
            if row.error != error:
                row.error = error
                row.version += 1
                row.updated_at = self._now()
                self._tell(session, id, State(row.state), error)

    # -- states of hosts and links --------------------------------------------

    def set_host_state(
        self, fabric_id: str, host: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        fabric = self.fabric(fabric_id)
        topology = fabric.topology
        if not 0 <= host < topology.hosts or host in topology.absent_hosts:
            raise NotFound("host", host)
        table = models.HostState

        def told(old: str) -> Notification:
            return notifications.part_changed(
                _new_id(),
                fabric_id,
                host=fabric.inventory.host_names[host] or str(host),
                old=HostState(old),
                new=state,
                at=self._now(),
                by=by,
            )

        return self._set_state(
            fabric_id,
            {"host": host, "state": state.value},
            state.value,
            select(table).where(table.fabric == fabric_id, table.host == host),
            table(fabric=fabric_id, host=host, state=state.value),
            told,
            by,
        )

    def set_link_state(
        self, fabric_id: str, link: Link, state: LinkState, *, by: Initiator | None = None
    ) -> int:
        topology = self.fabric(fabric_id).topology
        if not topology.tree.has_link(link) or link in topology.absent_links:
            raise NotFound("link", link_name(link))
        table, number = models.LinkState, topology.tree.link_id(link)

        def told(old: str) -> Notification:
            return notifications.part_changed(
                _new_id(),
                fabric_id,
                link=link_name(link),
                old=LinkState(old),
                new=state,
                at=self._now(),
                by=by,
            )

        return self._set_state(
            fabric_id,
            {"link": link_name(link), "state": state.value},
            state.value,
            select(table).where(table.fabric == fabric_id, table.link == number),
            table(fabric=fabric_id, link=number, state=state.value),
            told,
            by,
            routes=True,
        )

    def _set_state(
        self,
        fabric_id: str,
        change: dict[str, Any],
        state: str,
        query: Select[Any],
        row: models.HostState | models.LinkState,
        told: Callable[[str], Notification],
        by: Initiator | None,
        *,
        routes: bool = False,
    ) -> int:
        """Keep a row for what is not up; the same state again is no change.

        ``told`` is what others are told of it, given the state before; ``by`` is who asked.
        """
        with self._writing("set state") as session:
            _locked_generation(session, fabric_id)  # first, as everybody does: no deadlocks
            present = session.scalar(query.with_for_update())
            old = present.state if present else "up"
            if state == old:
                return self._ledgers.record(session, fabric_id).generation
            if self._announces:
                outbox.put(session, told(old))
            if present is None:
                session.add(row)
            elif state == "up":
                session.delete(present)
            else:
                present.state = state
            session.flush()
            generation = self._advance(session, fabric_id, change, routes=routes)
            self._note(session, self._ledgers.record(session, fabric_id), by)
            return generation

    def note_faults(self, fabric_id: str) -> list[str]:
        fabric = self.fabric(fabric_id)
        with self._reading() as session:
            if not faults.misnoted(session, fabric):
                return []
        with self._writing("note faults") as session:
            _locked_generation(session, fabric_id)
            return self._note(session, fabric)

    def _note(
        self, session: Session, fabric: FabricRecord, by: Initiator | None = None
    ) -> list[str]:
        noted = faults.note(session, fabric, self._now())
        for id, (state, news) in noted.items():
            self._tell(session, id, state, news, by)
        return list(noted)

    def describe_hosts(self, fabric_id: str, changes: Mapping[int, HostChange]) -> int:
        topology = self.fabric(fabric_id).topology
        for host in changes:
            if not 0 <= host < topology.hosts or host in topology.absent_hosts:
                raise NotFound("host", host)
        table = models.HostFeature
        here = table.fabric == fabric_id
        with self._writing("describe hosts") as session:
            _locked_generation(session, fabric_id)
            query = select(table).where(here)
            if len(changes) <= FEW:
                query = query.where(table.host.in_(changes))
            before = {
                row.host: HostFeatures(frozenset(row.traits), row.cost)
                for row in session.scalars(query)
            }
            news = {host: changes[host].of(before.get(host, PLAIN)) for host in sorted(changes)}
            news = {host: one for host, one in news.items() if one != before.get(host, PLAIN)}
            if not news:
                return self._ledgers.record(session, fabric_id).generation
            for some in _batched(sorted(before.keys() & news)):
                session.execute(delete(table).where(here, table.host.in_(some)))
            rows = [
                {"fabric": fabric_id, "host": h, "traits": sorted(one.traits), "cost": one.cost}
                for h, one in news.items()
                if one != PLAIN
            ]
            if rows:
                session.execute(insert(table), rows)
            change = [[h, sorted(one.traits), one.cost] for h, one in news.items()]
            return self._advance(session, fabric_id, {"features": change})

    def set_shared_plane(self, fabric_id: str, plane: SharedPlane) -> int:
        self.fabric(fabric_id)
        with self._admitting, self._writing("set shared plane") as session:
            _locked_generation(session, fabric_id)
            ledger = self._ledgers.caught_up(session, fabric_id)
            if ledger.fabric.shared_plane == plane:
                return ledger.generation
            ledger.fabric.copy().withhold(plane)  # raises if a tenant is in the way
            document = plane_document(plane)
            table = models.Fabric
            session.execute(
                update(table).where(table.id == fabric_id).values(shared_plane=document)
            )
            return self._advance(session, fabric_id, {"shared_plane": document}, routes=True)

    def note_applied(self, fabric_id: str, applied: Applied) -> None:
        table = models.Lease
        with self._writing("note applied") as session:
            session.execute(
                update(table)
                .where(table.fabric == fabric_id)
                .values(applied=applied.generation, problem=applied.problem, seen_at=self._now())
            )

    def holding(self, fabric_id: str) -> Holding:
        self.fabric(fabric_id)
        with self._reading() as session:
            row = session.scalar(select(models.Lease).where(models.Lease.fabric == fabric_id))
        if row is None:
            return Holding()
        until = row.expires_at if row.owner else None
        return Holding(row.owner, until, row.applied, row.problem, row.seen_at)

    def note_drift(self, fabric_id: str, kind: Drift, detail: str) -> None:
        table = models.Drift
        news = {"detail": detail, "at": self._now()}
        with self._writing("note drift") as session:
            _locked_generation(session, fabric_id)
            here = (table.fabric == fabric_id, table.kind == kind.value)
            if not matched(
                session, update(table).where(*here).values(found=table.found + 1, **news)
            ):
                row = {"fabric": fabric_id, "kind": kind.value, "found": 1, **news}
                session.execute(insert(table).values(**row))

    def drift(self, fabric_id: str) -> Mapping[Drift, int]:
        table = models.Drift
        with self._reading() as session:
            rows = session.execute(
                select(table.kind, table.found).where(table.fabric == fabric_id)
            ).all()
        return {Drift(row.kind): row.found for row in rows}

    # -- for the subnet manager -----------------------------------------------

    def routed(self, fabric_id: str) -> FabricState:
        with self._reading() as session:
            state, _ = self._ledgers.steady(
                session, fabric_id, lambda: self._routed(session, fabric_id)
            )
        return state

    def _routed(self, session: Session, fabric_id: str) -> FabricState:
        record = self._ledgers.record(session, fabric_id)
        table, down = models.Allocation, models.LinkState
        rows = session.execute(
            select(table.placed, table.leaving, table.phase, table.pkey).where(
                table.fabric == fabric_id,
                table.placed.is_not(None),
                table.handed_back.is_(False),
            )
        )
        routes = {route.allocation.id: route for route in map(_route, rows)}
        tenants = [
            replace(routes[one.id], allocation=one)
            for one in as_routed(route.allocation for route in routes.values())
        ]
        links = session.scalars(select(down.link).where(down.fabric == fabric_id))
        return FabricState(
            record.id,
            record.routes_generation,
            record.topology,
            record.inventory,
            tuple(sorted(tenants, key=lambda tenant: tenant.allocation.id)),
            tuple(record.topology.tree.link_at(link) for link in sorted(links)),
            record.shared_plane,
        )


def _route(row: Any) -> TenantRoute:
    """How a tenant is routed; while its placement changes, as its phase says."""
    placed = allocation_from(row.placed)
    if row.leaving is None or row.phase == Phase.WITHDRAW.value:
        return TenantRoute(placed, row.pkey)
    before = allocation_from(row.leaving)
    if row.phase == Phase.PREPARE.value:
        return TenantRoute(before, row.pkey, beside=placed)
    return TenantRoute(placed, row.pkey, beside=before)


def _batched(hosts: list[int]) -> Iterator[list[int]]:
    """``FEW`` at a time: databases bound the parameters of a statement."""
    for first in range(0, len(hosts), FEW):
        yield hosts[first : first + FEW]


def _retrying() -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(ConcurrentUpdate),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_random(0, 0.05),
        reraise=True,
    )


def _asked(new: NewAllocation) -> dict[str, Any]:
    """What a repeated key must repeat; what was not asked for is left out."""
    asked: dict[str, Any] = {
        "fabric": new.fabric,
        "name": new.name,
        "policy": new.policy,
        "hosts": new.hosts,
    }
    if new.constraints is not None:
        asked["constraints"] = constraints_document(new.constraints)
    if new.duration is not None:
        asked["duration"] = new.duration
    if new.waits:
        asked["wait"] = True
    if new.parent is not None:
        asked["parent"] = new.parent
    if new.container:
        asked["container"] = True
    return asked


def _proposed(
    ledger: Ledger, propose: Callable[[Fabric], Allocation | NoFit | Wait]
) -> tuple[Fabric, Allocation | NoFit | Wait]:
    """The answer, and a copy of the ledger on which it is claimed."""
    draft = ledger.fabric.copy()
    answer = propose(draft)
    if isinstance(answer, Allocation) and not _holds(draft, answer.id):
        draft.claim(answer)
    return draft, answer


def _chosen(
    ledger: Ledger, choose: Callable[[Fabric], Sequence[Allocation]]
) -> tuple[Fabric, Sequence[Allocation]]:
    """What is chosen, and a copy of the ledger on which it is claimed."""
    draft = ledger.fabric.copy()
    chosen = choose(draft)
    for allocation in chosen:
        if not _holds(draft, allocation.id):
            draft.claim(allocation)
    return draft, chosen


def _holds(fabric: Fabric, id: str) -> bool:
    return any(id in ledger.allocations for ledger in fabric.ledgers())


def _locked_generation(session: Session, fabric_id: str) -> int:
    """The fabric's generation; it cannot move on before this transaction ends."""
    table = models.Fabric
    query = select(table.generation).where(table.id == fabric_id).with_for_update()
    return session.scalars(query).one()


def _parked(record: AllocationRecord, to: State) -> str | None:
    """From where an allocation came into ``error``."""
    if to is not State.ERROR:
        return None
    came_from = record.parked if record.state is State.ERROR else record.state
    return came_from and came_from.value


def _must_stand(record: AllocationRecord) -> None:
    if record.state is not State.ACTIVE or record.placed is None:
        raise Conflict(f"allocation {record.id!r} is {record.state.value}, not active")
    if record.leaving is not None:
        raise Conflict(f"the placement of allocation {record.id!r} is changing already")


def _must_contain(parent: AllocationRecord, fabric_id: str) -> None:
    """Return if allocations can be made inside. Raises: Conflict."""
    if not parent.container or parent.fabric != fabric_id:
        raise Conflict(f"allocation {parent.id!r} is no container of fabric {fabric_id!r}")
    if parent.state not in (State.ALLOCATING, State.ACTIVE):
        raise Conflict(f"container {parent.id!r} is {parent.state.value}; name another")


def _must_release(record: AllocationRecord) -> None:
    if record.state is not State.RELEASING:
        raise Conflict(f"allocation {record.id!r} is {record.state.value}, not releasing")


def _free_pkey(session: Session, fabric_id: str) -> int:
    """The lowest partition key nobody has."""
    table = models.PkeyClaim
    taken = set(session.scalars(select(table.pkey).where(table.fabric == fabric_id)))
    for pkey in PKEYS:
        if pkey not in taken:
            return pkey
    raise LimitExceeded(f"all {len(PKEYS)} partition keys of fabric {fabric_id!r} are in use")


def _new_id() -> str:
    return str(uuid.uuid4())


def _as_event(row: models.Event) -> Event:
    by = None
    if row.request_id is not None:
        by = Initiator(row.request_id, row.user_id or "", row.project_id or "")
    return Event(row.at, State(row.state), row.reason, by)


def _as_record(row: models.Allocation, history: tuple[Event, ...] = ()) -> AllocationRecord:
    return AllocationRecord(
        id=row.id,
        fabric=row.fabric,
        name=row.name,
        project_id=row.project_id,
        policy=row.policy,
        hosts=row.hosts,
        state=State(row.state),
        version=row.version,
        pkey=row.pkey,
        placed=row.placed and allocation_from(row.placed),
        handed_back=row.handed_back,
        force=row.force,
        error=row.error,
        created_at=row.created_at,
        updated_at=row.updated_at,
        history=history,
        generation=row.generation,
        failures=row.failures,
        constraints=row.constraints and constraints_from(row.constraints),
        duration=row.duration,
        ends_at=row.ends_at,
        parent=row.parent,
        container=row.container,
        leaving=row.leaving and allocation_from(row.leaving),
        phase=Phase(row.phase) if row.phase else None,
        faults=row.faults and faults.parsed(row.faults),
        next_try=row.due_at,
        parked=State(row.parked) if row.parked else None,
    )
