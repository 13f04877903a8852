# SPDX-License-Identifier: Apache-2.0

"""Fabrics: which there are, their ledgers, and what their switches should route."""

import re
from dataclasses import dataclass, replace
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import ColumnElement, bindparam, delete, exists, func, select

from laas_service.adapters.db import allocation_rows, models
from laas_service.adapters.db.apart import refuse_shared
from laas_service.adapters.db.desired_state import DesiredState
from laas_service.adapters.db.generation_recovery import GenerationRecovery
from laas_service.adapters.db.generations import new_stamp, stamp_of, stored
from laas_service.adapters.db.reimport import Reimports
from laas_service.adapters.db.retention import WITH_ALLOCATIONS
from laas_service.adapters.db.transactions import locked_generation
from laas_service.adapters.documents import inventory_document, topology_document
from laas_service.app.lifecycle import OVER
from laas_service.app.records import FabricRecord
from laas_service.domain.errors import Conflict, InvalidInput, NotFound
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Topology
from laas_service.domain.wording import listed

FABRIC_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""A fabric's id is also the name of a directory."""

_FABRICS = select(models.FabricRow.id)
_ALLOCATION, _HOST, _LINK = models.AllocationRow, models.HostStateRow, models.LinkStateRow
_SWITCH, _COUNTERS = models.SwitchStateRow, models.PortCountersRow


def _one(value: Any, table: type[models.Base], *conditions: ColumnElement[bool]) -> Any:
    of_fabric = table.__table__.c.fabric == bindparam("fabric")
    return select(value).select_from(table).where(of_fabric, *conditions).scalar_subquery()


_LIVE = _ALLOCATION.state.not_in([state.value for state in OVER])
_REVISION = select(
    models.FabricRow.generation,
    models.FabricRow.stamp,
    models.FabricRow.layout,
    _one(func.count(), _ALLOCATION, _LIVE),
    _one(func.max(_ALLOCATION.sequence), _ALLOCATION, _LIVE),
    _one(func.sum(_ALLOCATION.version), _ALLOCATION, _LIVE),
    *(
        _one(value, table)
        for table in (_HOST, _LINK)
        for value in (
            func.count(),
            func.max(table.operator_since),
            func.max(table.observed_since),
            func.sum(func.length(table.evidence)),
            func.sum(func.length(table.reason)),
        )
    ),
    _one(func.max(_HOST.nova_since), _HOST),
    _one(func.sum(func.length(_HOST.nova_evidence)), _HOST),
    *(
        _one(value, _SWITCH)
        for value in (
            func.count(),
            func.max(_SWITCH.since),
            func.max(_SWITCH.repaired_at),
            func.sum(func.length(_SWITCH.reason)),
        )
    ),
    _one(
        func.max(_COUNTERS.read_at),
        _COUNTERS,
        exists().where(models.SharedLinkRow.fabric == bindparam("fabric")),
    ),
).where(models.FabricRow.id == bindparam("fabric"))
"""Moves with everything that a map shows; an allocation that comes or goes moves count or sequence,
and each other change of one its version."""

_GENERATIONS = select(models.FabricRow.id, models.FabricRow.generation, models.FabricRow.stamp)


@dataclass
class StoredFabrics(DesiredState, GenerationRecovery, Reimports):
    """``app.ports.fabrics.Fabrics``; it also adds fabrics, and takes in what changed."""

    def get(self, id: str) -> FabricRecord:
        with self.transactions.reading() as session:
            return self.ledgers.record(session, id)

    def ids(self) -> list[str]:
        with self.transactions.reading() as session:
            return sorted(session.scalars(_FABRICS))

    def generations(self) -> dict[str, int]:
        with self.transactions.reading() as session:
            rows = session.execute(_GENERATIONS).all()
        for row in rows:
            self.ledgers.note(row.id, row.generation, stamp_of(row.generation, row.stamp))
        return {row.id: row.generation for row in sorted(rows, key=lambda row: row.id)}

    def all(self) -> list[FabricRecord]:
        with self.transactions.reading() as session:
            ids = session.scalars(_FABRICS).all()
            return [self.ledgers.record(session, id) for id in sorted(ids)]

    def ledger(self, fabric_id: str) -> tuple[LedgerView, int]:
        with self.transactions.reading() as session:
            cached = self.ledgers.caught_up(session, fabric_id)
        self.settle(fabric_id)
        return cached.ledger, cached.generation

    def with_ledger(self, fabric_id: str) -> tuple[FabricRecord, LedgerView]:
        while True:
            with self.transactions.reading() as session:
                fabric = self.ledgers.record(session, fabric_id)
                cached = self.ledgers.caught_up_to(session, fabric)
            self.settle(fabric_id)
            if cached.ledger.topology is fabric.topology:  # else a re-import came in between
                return replace(fabric, generation=cached.generation), cached.ledger

    def revision(self, fabric_id: str) -> str:
        with self.transactions.reading() as session:
            row = session.execute(_REVISION, {"fabric": fabric_id}).one_or_none()
        if row is None:
            raise NotFound("fabric", fabric_id)
        return " ".join(map(str, row))

    def add(self, id: str, topology: Topology, inventory: Inventory) -> FabricRecord:
        """Raises: ManagedElsewhere: another fabric has one of its switches or ports."""
        if not FABRIC_ID.fullmatch(id):
            fix = "give an id of 1 to 64 of A-Z a-z 0-9 . _ -, not . or - in front"
            raise InvalidInput("fabric", id, fix)
        stamp, now = new_stamp(), self.transactions.now()
        try:
            with self.transactions.writing("add fabric") as session:
                refuse_shared(session, id, inventory)
                session.add(
                    models.FabricRow(
                        id=id,
                        generation=1,
                        routes_generation=1,
                        stamp=stored(1, stamp),
                        routes_stamp=stored(1, stamp),
                        topology=topology_document(topology),
                        inventory=inventory_document(inventory),
                        created_at=now,
                    )
                )
                session.flush()
                session.add(models.DeltaRow(fabric=id, generation=1, change={}, stamp=stamp))
        except DBDuplicateEntry as error:
            fix = "take another id, or laas-manage fabric reimport, which takes in what changed"
            raise Conflict(f"there is a fabric {id!r} already; {fix}") from error
        return FabricRecord(id, topology, inventory, 1, now, stamp=stamp, routes_stamp=stamp)

    def delete(self, id: str) -> FabricRecord:
        allocation = models.AllocationRow
        its_own = select(allocation.id).where(allocation.fabric == id)
        with self.transactions.writing("delete fabric") as session:
            # The lease first, as everywhere; admission waits for the lock of the fabric.
            session.execute(
                select(models.LeaseRow.token).where(models.LeaseRow.fabric == id).with_for_update()
            )
            locked_generation(session, id)
            record = self.ledgers.record(session, id)
            over = allocation.state.in_([state.value for state in OVER])
            live = session.scalars(its_own.where(~over).order_by(allocation.sequence)).all()
            if live:
                raise Conflict(
                    f"fabric {id} has {len(live)} allocations: {listed(live)}; delete them first"
                )
            allocation_rows.forget(session, its_own)
            for other in WITH_ALLOCATIONS:
                session.execute(delete(other).where(other.allocation.in_(its_own)))
            for table in reversed(models.Base.metadata.sorted_tables):
                if "fabric" in table.columns:
                    session.execute(delete(table).where(table.columns.fabric == id))
            session.execute(delete(models.FabricRow).where(models.FabricRow.id == id))
        self.ledgers.forget(id)
        return record
