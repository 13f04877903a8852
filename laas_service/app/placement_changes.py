# SPDX-License-Identifier: Apache-2.0

"""Beginning a change of placement: what the worker and the API do alike.

The domain chooses the new placement, ``lifecycle`` says which steps follow, the store claims
and records.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from laas_service.app import lifecycle, safeguards
from laas_service.app.lifecycle import Change
from laas_service.app.ports.placement_changes import PlacementChanges
from laas_service.app.records import AllocationRecord, Limits, NewPlacement
from laas_service.app.wording import reasons
from laas_service.domain.admission.by_domain import unmet
from laas_service.domain.admission.constrained import restricted_view
from laas_service.domain.admission.undisturbed import harm
from laas_service.domain.allocation import Allocation, ByMoving, NoFit, Refusal
from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import Constraints, ContentionFree, Within
from laas_service.domain.errors import ConcurrentUpdate, Conflict, DoubleClaim
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.features import Domain
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.moves.consent import Movable
from laas_service.domain.moves.mend import Joined
from laas_service.domain.moves.replacement import can_be_replaced, replacement
from laas_service.domain.moves.resize import resize
from laas_service.domain.moves.sparing import sparing_bridge, sparing_mend, sparing_repair
from laas_service.domain.routing.contention import contention
from laas_service.domain.tenancy import Kind
from laas_service.domain.topology import Topology, bits
from laas_service.messages import Initiator


def begin_link_repair(
    changes: PlacementChanges, record: AllocationRecord, by: Initiator | None = None
) -> AllocationRecord | Degraded:
    """Begin to replace the failed links of an allocation, and those under maintenance.

    ``by`` is the user who asked for it. The record comes back unchanged if none of its links has
    failed or is under maintenance, or they are being replaced; ``Degraded`` if there are no other
    links for its hosts.

    Raises:
        Conflict: it is not active, or a container, or its hosts are changing.
        ConcurrentUpdate: it moved on; read it again.
    """
    placed = lifecycle.check_repairable(record)
    if safeguards.can_mend(record):
        return _mend_change(changes, record, by)
    safeguards.check_repairs_now(record)
    if record.change is not None or record.faults is None:
        return record
    leave = frozenset(record.faults.drained)

    def choose(fabric: Ledger) -> NewPlacement | Degraded | None:
        ledger = fabric.ledger(placed.parent)
        if ledger.allocations.get(record.id) != placed:
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        answer = sparing_repair(ledger, placed, leave)
        if isinstance(answer, Degraded):
            return answer
        if answer is placed:
            return None
        change = Change.begun(placed, answer)
        return NewPlacement(answer, reasons.link_repair_reason(change, fabric.topology))

    answer = changes.begin(record, choose, by=by)
    return record if answer is None else answer


def _mend_change(
    changes: PlacementChanges, record: AllocationRecord, by: Initiator | None
) -> AllocationRecord | Degraded:
    """Begin to replace failed links of a change of hosts, and of the bridge."""
    change = lifecycle.check_changing(record)

    def choose(fabric: Ledger) -> Joined | Degraded:
        ledger = fabric.ledger(change.new.parent)
        if ledger.allocations.get(record.id) != change.held:
            raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
        return sparing_mend(ledger, Joined(change.old, change.new, change.bridge))

    return changes.mend(record, choose, by=by)


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
        ledger = current_ledger(fabric, record, placed, self.budget)
        constraints = record.constraints
        view = ledger if constraints is None else _permitted(ledger, placed, constraints)
        answer = resize(view, placed, self.hosts, self.give_back or None, self.budget)
        if isinstance(answer, Allocation):
            return _unmet(answer, fabric, constraints) or answer
        if answer.reason.facts.by_count and view is not ledger:
            detail = f"{answer.detail}, of those that meet its constraints"
            answer = replace(answer, reason=Refusal.CONSTRAINT, detail=detail)
        moved = None
        if not self.give_back:
            moved = replacement(view, placed, self.hosts, (), self.budget)
        if moved is not None and not _unmet(moved.allocation, fabric, constraints):
            left = placed.beyond(moved.allocation).hosts(fabric.topology)
            way = ByMoving(left, moved.new_hosts) if left else None
            answer = replace(answer, by_moving=way)
        return replace(answer, cut_off=self.budget.cut)


def begin_resize(
    changes: PlacementChanges,
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

    def choose(fabric: Ledger) -> NewPlacement | NoFit:
        answer = wanted.chosen(fabric, record, placed)
        if isinstance(answer, NoFit):
            return answer
        change = begun(fabric, placed, answer)
        reason = reasons.resize_reason(change, by.user_id)
        return _move(change, reason, fabric.topology)

    return changes.begin(record, choose, by=by, limits=limits)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Other hosts in place of ``leave``, numbers of hosts of an allocation; its size stays.

    ``budget`` bounds the searches, anew after each lost race.
    """

    leave: frozenset[int]
    budget: RequestBudget

    def chosen(
        self, fabric: Ledger, record: AllocationRecord, placed: Allocation
    ) -> Allocation | NoFit:
        """The placement with the fewest new hosts, or a refusal with the largest size that fits.

        Raises:
            ConcurrentUpdate: the ledger has another placement of the allocation.
            Conflict: its policy gives it no other placement.
        """
        if not can_be_replaced(placed):
            raise Conflict(f"{record.id!r} keeps its hosts: its policy is {placed.policy}")
        ledger = current_ledger(fabric, record, placed, self.budget)
        answer = self._sized(ledger, record, placed, placed.requested)
        if answer is None:
            return self._refusal(ledger, record, placed)
        return harm(ledger, answer) or answer

    def _sized(
        self, ledger: Ledger, record: AllocationRecord, placed: Allocation, hosts: int
    ) -> Allocation | None:
        topology, constraints = ledger.topology, record.constraints
        if constraints is None:
            found = replacement(ledger, placed, hosts, self.leave, self.budget)
            return None if found is None else found.allocation
        for groups in _regions(topology, placed, constraints):
            view = _permitted(ledger, placed, constraints, groups)
            elsewhere = tuple(share for share in placed.groups if share.group not in groups)
            outside = replace(placed, groups=elsewhere).hosts(topology)
            found = replacement(view, placed, hosts, self.leave.union(outside), self.budget)
            if found is not None and _meets(found.allocation, ledger, constraints):
                return found.allocation
        return None

    def _refusal(self, ledger: Ledger, record: AllocationRecord, placed: Allocation) -> NoFit:
        size, free = placed.requested, ledger.free_host_count
        cut_off, largest = self.budget.cut, 0
        for hosts in range(size - 1, 0, -1):
            if self.budget.cut or self._sized(ledger, record, placed, hosts) is not None:
                largest = 0 if self.budget.cut else hosts
                break
        detail = f"{size} hosts without the {len(self.leave)} to leave: {free} hosts are free"
        reason = Refusal.NO_LEGAL_SHAPE
        if free < len(self.leave):
            reason = Refusal.TOO_FEW_HOSTS
        elif cut_off:
            reason, detail = Refusal.BUDGET, f"{detail}, and the search stopped at its budget"
        else:
            detail += ", but no legal shape has enough of them and free links in common"
            if record.constraints is not None:
                reason, detail = Refusal.CONSTRAINT, f"{detail} under its constraints"
        if largest:
            detail += f"; {largest} hosts would fit"
        return NoFit(reason, detail, largest, cut_off=self.budget.cut)


def begin_replacement(
    changes: PlacementChanges, record: AllocationRecord, wanted: Replacement, by: Initiator
) -> AllocationRecord | NoFit:
    """Begin to give an allocation other hosts in place of some.

    Raises:
        Conflict: it is not active, a container, of a policy without shapes, or changes already.
        ConcurrentUpdate: it moved on; read it again.
    """
    placed = lifecycle.check_resizable(record)

    def choose(fabric: Ledger) -> NewPlacement | NoFit:
        answer = wanted.chosen(fabric, record, placed)
        if isinstance(answer, NoFit):
            return answer
        change, movable = begun(fabric, placed, answer), record.consent.movable
        reason = reasons.replacement_reason(change, by.user_id, movable)
        return _move(change, reason, fabric.topology)

    return changes.begin(record, choose, by=by)


def begun(fabric: LedgerView, placed: Allocation, to: Allocation) -> Change:
    """The change to a placement, with the bridge that is free now."""
    return Change.begun(placed, to, sparing_bridge(fabric.ledger(placed.parent), placed, to))


def _move(change: Change, reason: str, topology: Topology) -> NewPlacement:
    return NewPlacement(change.new, reason + reasons.bridge_remark(change, topology), change.bridge)


def current_ledger(
    fabric: Ledger, record: AllocationRecord, placed: Allocation, budget: RequestBudget
) -> Ledger:
    """The ledger that holds the allocation, for a search that begins. Raises: ConcurrentUpdate."""
    budget.renew()
    ledger = fabric.ledger(placed.parent)
    if ledger.allocations.get(record.id) != placed:
        raise ConcurrentUpdate(f"allocation {record.id!r} is past version {record.version}")
    return ledger


def _regions(
    topology: Topology, placed: Allocation, constraints: Constraints
) -> Iterator[frozenset[int]]:
    """The sets of leaf groups that may hold all hosts; the one of the present hosts first."""
    width, everywhere = topology.groups_per_pod, range(topology.groups)
    own = frozenset(share.group for share in placed.groups)
    if constraints.place is None:
        yield frozenset(everywhere)
        return
    together = width if constraints.place is Within.POD else 1
    present = {group // together for group in own}
    regions = {group // together for group in everywhere}
    for region in sorted(regions, key=lambda region: (region not in present, region)):
        yield frozenset(group for group in everywhere if group // together == region)


def _meets(answer: Allocation, ledger: LedgerView, constraints: Constraints) -> bool:
    """Whether a placement on permitted hosts meets the constraints on its shape and domains."""
    required = constraints.contention_free is ContentionFree.REQUIRE
    if required and not contention(ledger.topology, answer).free:
        return False
    return _unmet(answer, ledger, constraints) is None


def _permitted(
    ledger: Ledger,
    placed: Allocation,
    constraints: Constraints,
    groups: Collection[int] | None = None,
) -> Ledger:
    """The ledger without the free hosts that the allocation's constraints exclude.

    ``groups`` are the leaf groups that hold all hosts where the constraints want them together;
    by default those of the present hosts.
    """
    topology, view = ledger.topology, ledger.flattened()
    allowed: Sequence[int] = restricted_view(ledger, constraints).free_hosts
    if kind := constraints.within_kind:
        own = _cells(
            domain
            for domain in ledger.features.domains(topology, kind)
            if any(dict(domain.cells).get(share.group, 0) & share.hosts for share in placed.groups)
        )
        allowed = [mask & own.get(group, 0) for group, mask in enumerate(allowed)]
    if groups is None:
        groups = {share.group for share in placed.groups}
        if constraints.place is Within.POD:
            pods = {group // topology.groups_per_pod for group in groups}
            groups = {g for g in range(topology.groups) if g // topology.groups_per_pod in pods}
    for group, free in enumerate(view.free_hosts):
        inside = constraints.place is None or group in groups
        for position in bits(free & ~allowed[group] if inside else free):
            host = topology.host_at(group, position)
            if host is not None:
                view.drain_host(host)
    return view


def _cells(domains: Iterable[Domain]) -> dict[int, int]:
    """The positions of domains by leaf group."""
    cells: dict[int, int] = {}
    for domain in domains:
        for group, mask in domain.cells:
            cells[group] = cells.get(group, 0) | mask
    return cells


def _unmet(answer: Allocation, ledger: LedgerView, constraints: Constraints | None) -> NoFit | None:
    """The refusal of a placement in fewer pods than the constraints want, or not on domains as
    they want."""
    if constraints is None:
        return None
    topology = ledger.topology
    hosts = answer.hosts(topology)
    name = unmet(ledger.features, topology, constraints, hosts)
    if name is None and constraints.exclusive and not _stays(answer, ledger):
        name = "exclusive"
    if name is not None:
        wanted = constraints.described(name)
        detail = f"{len(hosts)} hosts would not meet {wanted}, as the allocation was asked for"
        return NoFit(Refusal.CONSTRAINT, detail)
    pods = {share.group // topology.groups_per_pod for share in answer.groups}
    if len(pods) >= constraints.least_pods:
        return None
    return NoFit(
        Refusal.CONSTRAINT,
        f"the hosts that stay would lie in {len(pods)} pods, and the allocation was asked for "
        f"in {constraints.least_pods}: give back other hosts",
    )


def _stays(answer: Allocation, ledger: LedgerView) -> bool:
    """Whether the allocation keeps its hosts: those that it leaves would be others' to take."""
    holder = ledger.holder(answer.id).allocations[answer.id]
    return answer.hosts(ledger.topology) == holder.hosts(ledger.topology)


AnnouncedMove = Callable[[Ledger, AllocationRecord, Allocation, Allocation], NewPlacement | str]
"""Decides on an announced move of an allocation, from its present placement to another one.

It gets the fabric's ledger, which it may change. The answer is why the move is called off, or how
it begins.
"""


def announced_hosts(
    fabric: Ledger, record: AllocationRecord, placed: Allocation, to: Allocation
) -> NewPlacement | str:
    """Decides on an announced move to other hosts and links; as ``AnnouncedMove``."""
    if (harmed := harm(fabric.ledger(placed.parent), to)) is not None:
        return harmed.detail
    try:
        fabric.change(to.joined(placed))
    except DoubleClaim:
        return f"its new {to.kind.claims} are no longer free"
    change = begun(fabric, placed, to)
    if change.parted and record.consent.movable is Movable.LIVE and not record.move_forced:
        return "its servers may not stop, and no free links join old and new hosts"
    reason = reasons.moved_reason(change, record.consent.movable)
    return _move(change, reason, fabric.topology)


def begin_announced_move(
    changes: PlacementChanges,
    record: AllocationRecord,
    others: Mapping[type[Kind], AnnouncedMove],
) -> AllocationRecord:
    """Begin the move that was announced; drop the announcement if its place is taken.

    ``others`` decide for the kinds that do not move to whole hosts.

    Raises:
        Conflict: no move is announced, or it cannot change its placement now.
        ConcurrentUpdate: it moved on; read it again.
    """
    placed, to = lifecycle.check_changeable(record), lifecycle.check_announced(record)
    decide = others.get(type(to.kind), announced_hosts)

    def choose(fabric: Ledger) -> NewPlacement | str:
        if fabric.ledger(placed.parent).allocations.get(record.id) != placed:
            return "its placement has changed"
        return decide(fabric, record, placed, to)

    answer = changes.begin(record, choose)
    if isinstance(answer, AllocationRecord):
        return answer
    return changes.drop_announcement(record, reasons.not_moved_reason(answer))
