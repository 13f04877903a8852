# SPDX-License-Identifier: Apache-2.0

"""Beginning a change of placement: what the worker and the API do alike.

The domain chooses the new placement, ``lifecycle`` says which steps follow, the store claims
and records.
"""

from dataclasses import dataclass, replace

from laas_service.app import lifecycle
from laas_service.app.lifecycle import Change
from laas_service.app.ports.allocations import PlacementChanges
from laas_service.app.records import AllocationRecord, Limits, Move
from laas_service.domain.admission.constrained import restricted_view
from laas_service.domain.allocation import Allocation, ByMoving, NoFit, Refusal
from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.errors import ConcurrentUpdate, DoubleClaim
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.repair import repair
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.replacement import replacement
from laas_service.domain.moves.resize import resize
from laas_service.domain.topology import Topology, bits
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


@dataclass(frozen=True, slots=True)
class Resize:
    """A change of size: ``hosts`` hosts, without some of ``give_back`` if that is fewer.

    ``budget`` bounds the searches, anew after each lost race.
    """

    hosts: int
    give_back: tuple[int, ...]
    budget: RequestBudget

    def chosen(
        self, fabric: Ledger, record: AllocationRecord, placed: Allocation
    ) -> Allocation | NoFit:
        """The new placement, or a refusal that says whether moved hosts would make it fit.

        Raises:
            ConcurrentUpdate: the ledger has another placement of the allocation.
            Conflict: its policy gives it no other size.
        """
        self.budget.renew()
        ledger = fabric.ledger(placed.parent)
        if ledger.allocations.get(record.id) != placed:
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        constraints = record.constraints
        view = ledger if constraints is None else _permitted(ledger, placed, constraints)
        answer = resize(view, placed, self.hosts, self.give_back or None, self.budget)
        if isinstance(answer, Allocation):
            return _spread(answer, fabric.topology, constraints) or answer
        if answer.reason is Refusal.TOO_FEW_HOSTS and view is not ledger:
            detail = f"{answer.detail}, of those that meet its constraints"
            answer = replace(answer, reason=Refusal.CONSTRAINT, detail=detail)
        moved = None
        if not self.give_back:
            moved = replacement(view, placed, self.hosts, (), self.budget)
        if moved is not None and not _spread(moved.allocation, fabric.topology, constraints):
            left = placed.beyond(moved.allocation).hosts(fabric.topology)
            way = ByMoving(left, moved.new_hosts) if left else None
            answer = replace(answer, by_moving=way)
        return replace(answer, cut_off=self.budget.cut)


def begin_resize(
    store: PlacementChanges,
    record: AllocationRecord,
    wanted: Resize,
    by: Initiator,
    limits: Limits,
) -> AllocationRecord | NoFit:
    """Begin to give an allocation another size; ``limits`` are those of projects without a quota.

    Raises:
        Conflict: it is not active, a container, or its placement changes already.
        ConcurrentUpdate: it moved on; read it again.
        QuotaExceeded: its project may not have so many hosts.
    """
    placed = lifecycle.check_resizable(record)

    def choose(fabric: Ledger) -> Move | NoFit:
        answer = wanted.chosen(fabric, record, placed)
        if isinstance(answer, NoFit):
            return answer
        change = Change.begun(placed, answer)
        return Move(answer, lifecycle.resize_reason(change, by.user_id))

    return store.move(record, choose, by=by, limits=limits)


def _permitted(ledger: Ledger, placed: Allocation, constraints: Constraints) -> Ledger:
    """The ledger without the free hosts that the allocation's constraints exclude."""
    topology, view = ledger.topology, ledger.surface()
    allowed = restricted_view(ledger, constraints).free_hosts
    groups = {share.group for share in placed.groups}
    if constraints.within is Within.POD:
        pods = {group // topology.groups_per_pod for group in groups}
        groups = {g for g in range(topology.groups) if g // topology.groups_per_pod in pods}
    for group, free in enumerate(view.free_hosts):
        inside = constraints.within is None or group in groups
        for slot in bits(free & ~allowed[group] if inside else free):
            host = topology.host_at(group, slot)
            if host is not None:
                view.drain_host(host)
    return view


def _spread(
    answer: Allocation, topology: Topology, constraints: Constraints | None
) -> NoFit | None:
    """The refusal of a placement in fewer pods than the constraints want."""
    pods = {share.group // topology.groups_per_pod for share in answer.groups}
    if constraints is None or len(pods) >= constraints.spread:
        return None
    return NoFit(
        Refusal.CONSTRAINT,
        f"the hosts that stay would lie in {len(pods)} pods, and the allocation was asked for "
        f"in {constraints.spread}: give back other hosts",
    )


def begin_announced_move(store: PlacementChanges, record: AllocationRecord) -> AllocationRecord:
    """Begin the move that was announced; drop the announcement if its hosts or links are taken.

    Raises:
        Conflict: no move is announced, or it cannot change its placement now.
        ConcurrentUpdate: it moved on; read it again.
    """
    placed, to = lifecycle.check_changeable(record), lifecycle.check_announced(record)

    def choose(fabric: Ledger) -> Move | str:
        if fabric.allocations.get(record.id) != placed:
            return "its placement has changed"
        try:
            fabric.change(to.joined(placed))
        except DoubleClaim:
            return "its new hosts or links are no longer free"
        return Move(to, lifecycle.moved_reason(Change.begun(placed, to)))

    answer = store.move(record, choose)
    if isinstance(answer, AllocationRecord):
        return answer
    return store.drop_announcement(record, lifecycle.not_moved_reason(answer))
