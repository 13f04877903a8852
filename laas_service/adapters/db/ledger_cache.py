# SPDX-License-Identifier: Apache-2.0


"""What a process remembers of its fabrics, and how it catches up with the database.

The last ledger seen of each fabric is kept and never changed: catching up works
on a copy that takes its place, so readers in other threads are not disturbed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.documents import (
    allocation_from,
    inventory_from,
    plane_from,
    topology_from,
)
from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.domain.errors import NotFound
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.topology import Link, parse_link

T = TypeVar("T")


class CachedLedger(NamedTuple):
    fabric: LedgerView
    generation: int


class LedgerCache:
    """Fabrics and their ledgers as last seen; safe to share between threads."""

    def __init__(self) -> None:
        self._fabrics: dict[str, tuple[int, FabricRecord]] = {}
        self._ledgers: dict[str, CachedLedger] = {}
        self._lock = threading.Lock()

    def record(self, session: Session, id: str) -> FabricRecord:
        """The fabric; its cables are read again when they were imported again. ``NotFound``."""
        table = models.Fabric
        numbers = (
            table.generation,
            table.routes_generation,
            table.created_at,
            table.shared_plane,
            table.layout,
        )
        row = session.execute(select(*numbers).where(table.id == id)).one_or_none()
        if row is None:
            raise NotFound("fabric", id)
        layout, known = self._fabrics.get(id, (0, None))
        if known is None or known.created_at != row.created_at or layout != row.layout:
            row = session.execute(  # in one statement, so that they belong together
                select(*numbers, table.topology, table.inventory).where(table.id == id)
            ).one()
            known = FabricRecord(
                id, topology_from(row.topology), inventory_from(row.inventory), 0, row.created_at
            )
            self._fabrics[id] = row.layout, known
        return FabricRecord(
            id,
            known.topology,
            known.inventory,
            row.generation,
            row.created_at,
            row.routes_generation,
            plane_from(row.shared_plane),
        )

    def caught_up(self, session: Session, fabric_id: str) -> CachedLedger:
        """The ledger at the present generation. ``NotFound``."""
        record = self.record(session, fabric_id)
        known = self._ledgers.get(fabric_id)
        if known and known.fabric.topology is not record.topology:
            known = None
        if known and known.generation == record.generation:
            return known
        fresh = known and self._replayed(session, fabric_id, known)
        return self.keep(fabric_id, fresh or self._rebuilt(session, record))

    def _replayed(
        self, session: Session, fabric_id: str, known: CachedLedger
    ) -> CachedLedger | None:
        """The known ledger with the deltas it lacks, None if they are not all there."""
        table = models.Delta
        rows = session.execute(
            select(table.generation, table.change)
            .where(table.fabric == fabric_id, table.generation > known.generation)
            .order_by(table.generation)
        ).all()
        if not rows or rows[-1].generation - known.generation != len(rows):
            return None
        fabric = known.fabric.copy()
        for row in rows:
            _apply(fabric, row.change)
        return CachedLedger(fabric, rows[-1].generation)

    def _rebuilt(self, session: Session, record: FabricRecord) -> CachedLedger:
        return CachedLedger(*self.steady(session, record.id, lambda: _rebuild(session, record)))

    def steady(self, session: Session, fabric_id: str, read: Callable[[], T]) -> tuple[T, int]:
        """What ``read`` finds and the generation it is of, no change having come between.

        Needed where a database shows each statement what was committed before it.
        """
        generation = self.record(session, fabric_id).generation
        while True:
            value = read()
            before, generation = generation, self.record(session, fabric_id).generation
            if before == generation:
                return value, generation

    def keep(self, fabric_id: str, ledger: CachedLedger) -> CachedLedger:
        """Remember the ledger unless a later one is known."""
        with self._lock:
            known = self._ledgers.get(fabric_id)
            if (
                known is None
                or known.generation < ledger.generation
                or known.fabric.topology is not ledger.fabric.topology
            ):
                self._ledgers[fabric_id] = ledger
        return ledger

    def forget(self, fabric_id: str) -> None:
        """The next one to ask reads the fabric anew."""
        with self._lock:
            self._ledgers.pop(fabric_id, None)
            self._fabrics.pop(fabric_id, None)


def _rebuild(session: Session, record: FabricRecord) -> Ledger:
    """The ledger from the tables: owners first, because they keep what fails later."""
    fabric = Ledger(record.topology)
    fabric.withhold(record.shared_plane)
    allocation, host, link = models.Allocation, models.HostState, models.LinkState
    feature = models.HostFeature
    held = (
        select(allocation.placed, allocation.leaving)
        .where(allocation.fabric == record.id, allocation.placed.is_not(None))
        .order_by(allocation.sequence)  # a container before what is inside it
    )
    for placed, leaving in session.execute(held):
        one = allocation_from(placed)
        fabric.claim(one if leaving is None else one.joined(allocation_from(leaving)))
    for row in session.execute(select(host.host, host.state).where(host.fabric == record.id)):
        _set_host(fabric, row.host, HostState(row.state))
    for row in session.execute(select(link.link, link.state).where(link.fabric == record.id)):
        _set_link(fabric, record.topology.tree.link_at(row.link), LinkState(row.state))
    known = select(feature.host, feature.traits, feature.cost).where(feature.fabric == record.id)
    fabric.describe_hosts(
        {row.host: HostFeatures(frozenset(row.traits), row.cost) for row in session.execute(known)}
    )
    return fabric


def _apply(fabric: Ledger, change: dict[str, Any]) -> None:
    """Do to a ledger what a delta says; an empty one changed nothing that it holds."""
    match change:
        case {"claim": document}:
            fabric.claim(allocation_from(document))
        case {"change": document}:
            fabric.change(allocation_from(document))
        case {"release": id}:
            fabric.release(id)
        case {"host": host, "state": state}:
            _set_host(fabric, host, HostState(state))
        case {"shared_plane": document}:
            fabric.withhold(plane_from(document))
        case {"link": name, "state": state}:
            _set_link(fabric, parse_link(name), LinkState(state))
        case {"features": described}:
            fabric.describe_hosts(
                {host: HostFeatures(frozenset(traits), cost) for host, traits, cost in described}
            )


def _set_host(fabric: Ledger, host: int, state: HostState) -> None:
    fabric.repair_host(host)
    if state is HostState.DRAINED:
        fabric.drain_host(host)
    elif state is HostState.FAILED:
        fabric.fail_host(host)


def _set_link(fabric: Ledger, link: Link, state: LinkState) -> None:
    if state is LinkState.FAILED:
        fabric.fail_link(link)
    else:
        fabric.repair_link(link)
