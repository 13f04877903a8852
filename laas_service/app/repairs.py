# SPDX-License-Identifier: Apache-2.0

"""The decision to repair: a change of placement in which the hosts stay."""

from __future__ import annotations

from laas_service.app.changes import named
from laas_service.app.ports.allocations import PlacementChanges
from laas_service.app.records import AllocationRecord, Move
from laas_service.domain.errors import ConcurrentUpdate, Conflict
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.repair import repair
from laas_service.domain.ledger import Ledger
from laas_service.messages import Initiator


def mend(
    store: PlacementChanges, record: AllocationRecord, by: Initiator | None = None
) -> AllocationRecord | Degraded:
    """Begin to replace the failed links of an allocation; as it is if none of them has failed.

    Raises:
        Conflict: it is not active.
        ConcurrentUpdate: it moved on; read it again.
    """
    placed = record.placed
    if placed is not None and placed.container:
        raise Conflict(
            f"allocation {record.id!r} is a container, and others may be on its links; repair "
            "those, or release them and it"
        )
    if placed is None:
        raise Conflict(f"allocation {record.id!r} is {record.state.value}, not active")
    if record.phase is not None or record.faults is None:
        return record

    def choose(fabric: Ledger) -> Move | Degraded | None:
        ledger = fabric.ledger(placed.parent)
        if ledger.allocations.get(record.id) != placed:
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        answer = repair(ledger.surface(), placed)
        if isinstance(answer, Degraded):
            return answer
        if answer is placed:
            return None
        topology = fabric.topology
        gone = sorted(placed.beyond(answer).links(topology), key=topology.tree.link_id)
        new = sorted(answer.beyond(placed).links(topology), key=topology.tree.link_id)
        return Move(answer, f"repair: {named(gone)} replaced by {named(new)}")

    answer = store.move(record, choose, by=by)
    return record if answer is None else answer
