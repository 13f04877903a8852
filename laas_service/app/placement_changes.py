# SPDX-License-Identifier: Apache-2.0

"""Beginning a change of placement: what the worker and the API do alike.

The domain chooses the new placement, ``lifecycle`` says which steps follow, the store claims
and records.
"""

from laas_service.app import lifecycle
from laas_service.app.lifecycle import Change
from laas_service.app.ports.allocations import PlacementChanges
from laas_service.app.records import AllocationRecord, Move
from laas_service.domain.errors import ConcurrentUpdate
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.repair import repair
from laas_service.domain.ledger import Ledger
from laas_service.messages import Initiator


def begin_link_repair(
    store: PlacementChanges, record: AllocationRecord, by: Initiator | None = None
) -> AllocationRecord | Degraded:
    """Begin to replace the failed links of an allocation, and those under maintenance.

    ``by`` is the user who asked for it. The record comes back unchanged if none of its links has
    failed or is under maintenance, or a change is under way; ``Degraded`` if there are no other
    links for its hosts.

    Raises:
        Conflict: it is not active, or a container.
        ConcurrentUpdate: it moved on; read it again.
    """
    placed = lifecycle.check_repairable(record)
    if record.change is not None or record.faults is None:
        return record
    leave = frozenset(record.faults.drained)

    def choose(fabric: Ledger) -> Move | Degraded | None:
        ledger = fabric.ledger(placed.parent)
        if ledger.allocations.get(record.id) != placed:
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        answer = repair(ledger.surface(), placed, leave)
        if isinstance(answer, Degraded):
            return answer
        if answer is placed:
            return None
        change = Change.begun(placed, answer)
        return Move(answer, lifecycle.link_repair_reason(change, fabric.topology))

    answer = store.move(record, choose, by=by)
    return record if answer is None else answer
