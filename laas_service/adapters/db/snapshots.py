# SPDX-License-Identifier: Apache-2.0

"""Reads the snapshot of a request for an allocation, in one transaction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models, quotas
from laas_service.adapters.db.allocation_rows import ALLOCATIONS, record_of
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.observations import as_holding
from laas_service.adapters.db.transactions import Transactions, read_all_enclosing
from laas_service.adapters.documents import ROOM
from laas_service.app.lifecycle import HOLDING, State
from laas_service.app.ports.snapshots import FabricSnapshot, QueueState, Snapshot
from laas_service.app.records import FabricRecord, Limits
from laas_service.app.requests import AllocationRequest
from laas_service.domain.ledger import LedgerView

_QUEUED = ALLOCATIONS.where(
    models.AllocationRow.fabric == bindparam("fabric"),
    models.AllocationRow.state == State.QUEUED.value,
).order_by(models.AllocationRow.sequence)
_ENDS = (
    select(models.AllocationRow.id, models.PlacementPart.ends_at)
    .join(models.PlacementPart, models.PlacementPart.allocation == models.AllocationRow.id)
    .where(
        models.AllocationRow.fabric == bindparam("fabric"),
        models.AllocationRow.state.in_([state.value for state in HOLDING]),
        models.PlacementPart.ends_at.is_not(None),
    )
)


@dataclass
class Snapshots:
    """See ``app.ports.store.Store.snapshot``. ``settle`` as for ``concurrency.decider.Decider``."""

    transactions: Transactions
    ledgers: LedgerCache
    settle: Callable[[str], None]

    def read(
        self, asked: AllocationRequest, project_id: str, default: str | None, limits: Limits
    ) -> Snapshot:
        with self.transactions.reading_one_state() as session:
            found = self.ledgers.records(session)
            fabrics = {id: fabric for id, (fabric, _) in found.items()}
            enclosing = read_all_enclosing(session, [asked.parent]) if asked.parent else []
            parent = next(iter(enclosing), None)
            ids = _possible(asked, None if parent is None else parent.fabric, default, fabrics)
            ledgers = {
                id: self.ledgers.caught_up_to(session, fabrics[id]).ledger
                for id in ids
                if id in fabrics
            }
            parts = []
            if not asked.kind.whole_hosts and asked.parent is None:
                parts = read_all_enclosing(session, _shared(ledgers.values()))
            possible = {
                id: FabricSnapshot(
                    fabrics[id], as_holding(found[id][1]), ledger, read_queue(session, id)
                )
                for id, ledger in ledgers.items()
            }
            own = quotas.limits(session, project_id, limits)
            snapshot = Snapshot(fabrics, possible, parent, tuple(parts), own)
        for id in ledgers:
            self.settle(id)
        return snapshot


def _shared(ledgers: Iterable[LedgerView]) -> list[str]:
    """The allocations that share their hosts."""
    inside = [inner for ledger in ledgers for inner in ledger.inside.values()]
    return [inner.part.id for inner in inside if inner.part is not None]


def _possible(
    asked: AllocationRequest,
    parents: str | None,
    default: str | None,
    fabrics: Mapping[str, FabricRecord],
) -> Sequence[str]:
    """The fabrics that a request may be placed on; they need not exist."""
    if parents is not None:
        return [parents]
    if not asked.kind.whole_hosts:
        return [asked.fabric] if asked.fabric else list(fabrics)
    if named := asked.fabric or default:
        return [named]
    return list(fabrics) if len(fabrics) == 1 else []


def read_queue(session: Session, fabric_id: str) -> QueueState:
    """The queue of a fabric: its waiting requests, in order of creation."""
    waiting = tuple(map(record_of, session.execute(_QUEUED, {"fabric": fabric_id})))
    if not waiting:
        return QueueState()
    row = session.get(models.QueueRoomRow, fabric_id)
    room = None if row is None else replace(ROOM.read(row.document), version=row.version)
    ends = {row.id: row.ends_at for row in session.execute(_ENDS, {"fabric": fabric_id})}
    return QueueState(waiting, room, ends)
