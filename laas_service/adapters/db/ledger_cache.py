# SPDX-License-Identifier: Apache-2.0

"""The cache of fabrics and their ledgers in a process, and how it catches up with the database.

The newest ledger of each fabric is kept and never changed. To catch up, the missing deltas are
applied to a copy that replaces it, so threads that read the old one are not disturbed.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Executable, Row, Select, String, bindparam, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.allocation_rows import with_parts
from laas_service.adapters.db.generations import stamp_of
from laas_service.adapters.db.transactions import COMMITTED, ONE_STATE
from laas_service.adapters.documents import (
    allocation_from,
    constraints_from,
    inventory_from,
    mending_from,
    plane_from,
    topology_from,
)
from laas_service.app.records import FabricRecord, HostState, LinkState, Stamped
from laas_service.domain.admission.admit import requires_undisturbed
from laas_service.domain.errors import NotFound
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.topology import Link, Topology, parse_link
from laas_service.domain.wording import alike

T = TypeVar("T")

_COLUMNS = (
    models.FabricRow.generation,
    models.FabricRow.routes_generation,
    models.FabricRow.stamp,
    models.FabricRow.routes_stamp,
    models.FabricRow.created_at,
    models.FabricRow.shared_plane,
    models.FabricRow.layout,
)
_NUMBERS = select(*_COLUMNS).where(models.FabricRow.id == bindparam("id"))
_COMPARED = (
    select(
        *_COLUMNS,
        models.ObservationRow.mode,
        (models.FabricRow.routes_stamp == bindparam("published", type_=String)).label("same"),
    )
    .outerjoin(models.ObservationRow, models.ObservationRow.fabric == models.FabricRow.id)
    .where(models.FabricRow.id == bindparam("id"))
)
_PRESENT = select(models.FabricRow.generation, models.FabricRow.stamp).where(
    models.FabricRow.id == bindparam("id")
)
_LOCKED = _PRESENT.with_for_update()
_ALL = (
    select(*_COLUMNS, models.FabricRow.id, models.LeaseRow)
    .outerjoin(models.LeaseRow, models.LeaseRow.fabric == models.FabricRow.id)
    .order_by(models.FabricRow.id)
)


class CachedLedger(NamedTuple):
    """A ledger and its generation; all threads share it, so it is read only."""

    ledger: LedgerView
    generation: int
    stamp: str = ""


class LedgerCache:
    """The newest fabrics and ledgers of this process; safe to share between threads.

    ``doubtful`` has the newest generation and stamp that was read of each fabric of which an older
    or another one was read since: the database went back, or that transaction began earlier.
    """

    def __init__(self) -> None:
        self.doubtful: dict[str, tuple[int, str]] = {}
        self._newest: dict[str, tuple[int, str]] = {}
        self._fabrics: dict[str, tuple[int, FabricRecord]] = {}
        self._read: dict[str, FabricRecord] = {}  # as committed
        self._ledgers: dict[str, CachedLedger] = {}
        self._lock = threading.Lock()

    def record(self, session: Session, id: str) -> FabricRecord:
        """The fabric; cables and names are read only if its layout changed. ``NotFound``.

        A transaction that writes compares the generation with the one that was read last.
        """
        if id in self._read and not session.info.get(COMMITTED):
            return self._compared(session, id, _PRESENT)
        row = session.execute(_NUMBERS, {"id": id}).one_or_none()
        if row is None:
            known = session.scalars(select(models.FabricRow.id).order_by(models.FabricRow.id))
            raise NotFound("fabric", id, alike(id, known, "the service"))
        return self._record(session, id, row)

    def compared(
        self, session: Session, id: str, published: Stamped | None
    ) -> tuple[FabricRecord, str | None, bool]:
        """The fabric, the mode that an operator chose, and whether these are its routes still.

        ``NotFound``.
        """
        known = "" if published is None else f"{published[0]}-{published[1]}"
        row = session.execute(_COMPARED, {"id": id, "published": known}).one_or_none()
        if row is None:
            raise NotFound("fabric", id)
        return self._record(session, id, row), row.mode, bool(row.same)

    def locked(self, session: Session, id: str) -> FabricRecord:
        """The fabric, which does not change before this transaction ends. ``NotFound``."""
        return self._compared(session, id, _LOCKED)

    def _compared(self, session: Session, id: str, present: Executable) -> FabricRecord:
        """The fabric as read last, if it is at that generation still, else as it is now."""
        now = session.execute(present, {"id": id}).one_or_none()
        if now is None:
            raise NotFound("fabric", id)
        known, stamp = self._read.get(id), stamp_of(now.generation, now.stamp)
        if known and stamp and (known.generation, known.stamp) == (now.generation, stamp):
            return known
        return self._record(session, id, session.execute(_NUMBERS, {"id": id}).one())

    def records(self, session: Session) -> dict[str, tuple[FabricRecord, models.LeaseRow | None]]:
        """All fabrics by id, ascending, with the lease of each."""
        rows = session.execute(_ALL).all()
        return {row.id: (self._record(session, row.id, row), row.LeaseRow) for row in rows}

    def _record(self, session: Session, id: str, row: Row[Any]) -> FabricRecord:
        """The fabric of a row of numbers."""
        layout, cached = self._fabrics.get(id, (0, None))
        if cached is None or cached.created_at != row.created_at or layout != row.layout:
            row = session.execute(  # in one statement, so that they belong together
                _NUMBERS.add_columns(models.FabricRow.topology, models.FabricRow.inventory),
                {"id": id},
            ).one()
            cached = FabricRecord(
                id, topology_from(row.topology), inventory_from(row.inventory), 0, row.created_at
            )
            self._fabrics[id] = row.layout, cached
        record = FabricRecord(
            id,
            cached.topology,
            cached.inventory,
            row.generation,
            row.created_at,
            row.routes_generation,
            plane_from(row.shared_plane),
            stamp_of(row.generation, row.stamp),
            stamp_of(row.routes_generation, row.routes_stamp),
        )
        if session.info.get(COMMITTED):
            self.note(id, record.generation, record.stamp)
            self._read[id] = record
        return record

    def record_of(self, session: Session, id: str, topology: Topology) -> FabricRecord:
        """The fabric with a ledger's topology; its generation may be an earlier one."""
        _, cached = self._fabrics.get(id, (0, None))
        if cached is None or cached.topology is not topology:
            return self.record(session, id)
        return cached

    def note(self, fabric_id: str, generation: int, stamp: str) -> None:
        """Compare a committed generation with the newest one."""
        with self._lock:
            newest = self._newest.setdefault(fabric_id, (generation, stamp))
            if newest[0] < generation:
                self._newest[fabric_id] = generation, stamp
            elif newest[0] > generation or _differ(newest[1], stamp):
                self.doubtful[fabric_id] = newest

    def caught_up(self, session: Session, fabric_id: str) -> CachedLedger:
        """The ledger at the present generation. ``NotFound``."""
        return self.caught_up_to(session, self.record(session, fabric_id))

    def newest(self, fabric_id: str) -> CachedLedger | None:
        """The newest ledger that this process has read; the database may have a later one."""
        return self._ledgers.get(fabric_id)

    def caught_up_to(self, session: Session, record: FabricRecord) -> CachedLedger:
        """The ledger of a fabric that this session has just read."""
        fabric_id = record.id
        cached = self._ledgers.get(fabric_id)
        if cached and cached.ledger.topology is not record.topology:
            cached = None
        if cached and cached.generation == record.generation:
            if not _differ(cached.stamp, record.stamp):
                return cached
            cached = None
        replayed = cached and self._replayed(session, fabric_id, cached)
        return self.keep(fabric_id, replayed or self._rebuilt(session, record))

    def _replayed(
        self, session: Session, fabric_id: str, cached: CachedLedger
    ) -> CachedLedger | None:
        """The cached ledger with the deltas it lacks.

        None if some of them are deleted, the cached one is not of the database's past, or a later
        release wrote a kind of delta that this one does not know.
        """
        table = models.DeltaRow
        query = (
            select(table.generation, table.change, table.stamp)
            .where(table.fabric == fabric_id, table.generation >= cached.generation)
            .order_by(table.generation)
        )
        rows = list(session.execute(query))
        if rows and rows[0].generation == cached.generation:
            if _differ(cached.stamp, rows.pop(0).stamp or ""):
                return None
        elif cached.stamp:
            return None
        if not rows or rows[-1].generation - cached.generation != len(rows):
            return None
        ledger = cached.ledger.copy()
        for row in rows:
            if not _apply(ledger, row.change):
                return None
        return CachedLedger(ledger, rows[-1].generation, rows[-1].stamp or "")

    def _rebuilt(self, session: Session, record: FabricRecord) -> CachedLedger:
        if session.info.get(ONE_STATE):
            return CachedLedger(_rebuild(session, record), record.generation, record.stamp)
        ledger, record = self.steady(session, record.id, lambda: _rebuild(session, record))
        return CachedLedger(ledger, record.generation, record.stamp)

    def steady(
        self, session: Session, fabric_id: str, read: Callable[[], T]
    ) -> tuple[T, FabricRecord]:
        """The result of ``read`` and its fabric; read again if a change came between.

        PostgreSQL lets each statement of a transaction see what was committed before it.
        """
        record = self.record(session, fabric_id)
        while True:
            value = read()
            previous, record = record, self.record(session, fabric_id)
            if (previous.generation, previous.stamp) == (record.generation, record.stamp):
                return value, record

    def keep(self, fabric_id: str, ledger: CachedLedger) -> CachedLedger:
        """Cache the ledger unless a later one is cached; returns ``ledger``."""
        with self._lock:
            cached = self._ledgers.get(fabric_id)
            if (
                cached is None
                or cached.generation < ledger.generation
                or (cached.generation == ledger.generation and cached.stamp != ledger.stamp)
                or cached.ledger.topology is not ledger.ledger.topology
            ):
                self._ledgers[fabric_id] = ledger
        return ledger

    def forget(self, fabric_id: str) -> None:
        """Drop the fabric from the cache, so that the next reader reads it from the database."""
        with self._lock:
            for cache in (self._ledgers, self._fabrics, self._read, self._newest, self.doubtful):
                cache.pop(fabric_id, None)


def _differ(stamp: str, other: str) -> bool:
    """Whether two stamps of one number are of different generations; an unknown one is of any."""
    return bool(stamp and other and stamp != other)


def _rebuild(session: Session, record: FabricRecord) -> Ledger:
    """The ledger from the tables: owners first, because they keep hosts and links that fail."""
    ledger = Ledger(record.topology)
    ledger.inventory = record.inventory
    ledger.withhold(record.shared_plane)
    table, host, link = models.AllocationRow, models.HostStateRow, models.LinkStateRow
    feature, placement, change = models.HostFeatureRow, models.PlacementPart, models.ChangePart
    request = models.TermsPart
    columns: Select[Any] = select(
        request.constraints, placement.placed, change.mending, change.leaving, change.bridge
    ).select_from(table)
    held = (
        with_parts(columns, request, placement, change)
        .where(table.fabric == record.id, placement.placed.is_not(None))
        .order_by(table.sequence)  # a container before the allocations inside it
    )
    for constraints, placed, mending, *others in session.execute(held):
        allocation = allocation_from(placed)
        if mending:
            allocation = allocation.joined(mending_from(mending).links.held)
        for other in filter(None, others):
            allocation = allocation.joined(allocation_from(other))
        ledger.claim(allocation)
        if constraints and requires_undisturbed(constraints_from(constraints)):
            ledger.keep_undisturbed(allocation.id)
    for row in session.execute(select(host.host, host.state).where(host.fabric == record.id)):
        _set_host(ledger, row.host, HostState(row.state))
    for row in session.execute(select(link.link, link.state).where(link.fabric == record.id)):
        _set_link(ledger, record.topology.tree.link_at(row.link), LinkState(row.state))
    features = select(feature.host, feature.traits, feature.cost, feature.domains)
    rows = session.execute(features.where(feature.fabric == record.id))
    ledger.describe_hosts(
        {host: stored_features(traits, cost, domains) for host, traits, cost, domains in rows}
    )
    return ledger


def stored_features(
    traits: Iterable[str], cost: int, domains: Mapping[str, str] | None
) -> HostFeatures:
    """The features of a host as they are stored."""
    return HostFeatures(frozenset(traits), cost, tuple(sorted((domains or {}).items())))


def _apply(ledger: Ledger, change: dict[str, Any]) -> bool:
    """Apply a delta to a ledger; an empty one only marks a generation.

    False if the delta is of a kind that is not known.
    """
    match change:
        case {"claim": document}:
            allocation = allocation_from(document)
            ledger.claim(allocation)
            if change.get("undisturbed"):
                ledger.keep_undisturbed(allocation.id)
        case {"change": document}:
            ledger.change(allocation_from(document))
        case {"release": id}:
            ledger.release(id)
        case {"host": host, "state": state}:
            _set_host(ledger, host, HostState(state))
        case {"hosts": hosts, "links": links}:
            for host, state in hosts:
                _set_host(ledger, host, HostState(state))
            for name, state in links:
                _set_link(ledger, parse_link(name), LinkState(state))
        case {"shared_plane": document}:
            ledger.withhold(plane_from(document))
        case {"link": name, "state": state}:
            _set_link(ledger, parse_link(name), LinkState(state))
        case {"features": described}:
            domains = dict(change.get("domains", ()))
            ledger.describe_hosts(
                {h: stored_features(traits, cost, domains.get(h)) for h, traits, cost in described}
            )
        case _:
            return not change
    return True


def _set_host(ledger: Ledger, host: int, state: HostState) -> None:
    ledger.repair_host(host)
    if state is HostState.DRAINED:
        ledger.drain_host(host)
    elif state is HostState.FAILED:
        ledger.fail_host(host)


def _set_link(ledger: Ledger, link: Link, state: LinkState) -> None:
    ledger.repair_link(link)
    if state is LinkState.DRAINED:
        ledger.drain_link(link)
    elif state is LinkState.FAILED:
        ledger.fail_link(link)
