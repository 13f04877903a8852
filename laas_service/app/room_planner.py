# SPDX-License-Identifier: Apache-2.0

"""Plans moves of tenants after which a request fits, switches can sleep, or shared hosts are empty.

Within consent, quotas and exemptions.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from laas_service.app.lifecycle import Change, State
from laas_service.app.plans import (
    NO_MOVES,
    PlanStep,
    RecordedPlan,
    is_pending,
    moved,
    remaining,
    with_pending,
)
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import ServerLoad
from laas_service.app.ports.store import Store
from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import AllocationRecord, FabricRecord
from laas_service.domain.admission.constrained import explain_constraints, propose
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.errors import ConcurrentUpdate
from laas_service.domain.idle_links import idle_components
from laas_service.domain.inventory import Switch
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.moves.consent import Movable
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.moves.plan_moves import MOVES_WORK, plan_moves
from laas_service.domain.moves.sleep import plan_sleep
from laas_service.domain.policies.base import Policy

NO_MOVES_LEFT = "its project has had its moves to other hosts of these 24 hours"


def notice_class(seconds: float) -> int:
    """How long a notice is, in powers of two: plans of one class differ by their cost alone."""
    return math.ceil(max(seconds, 0.0)).bit_length()


@dataclass(frozen=True, slots=True)
class Permission:
    """What a plan may do: move at most ``moves`` tenants.

    Tenants with a ``move_cost`` above ``max_cost`` stay. With ``override`` notice is given as
    theirs, but tenants who do not consent, or are exempt, move as well.
    """

    moves: int = 1
    max_cost: float | None = None
    override: bool = False


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One move of a plan: a tenant from its present placement to another one.

    ``new_hosts`` are, of slots, the virtual machines that go to other hosts. ``begins`` is the
    earliest time, after the tenant's notice. ``announced`` says whether the tenant is told.
    """

    record: AllocationRecord
    old: Allocation
    new: Allocation
    new_hosts: int
    begins: datetime
    announced: bool = False
    load: ServerLoad | None = None
    """What is on the hosts that it leaves; None if compute cannot tell."""
    bridge: Allocation | None = None
    """As in ``lifecycle.Change``, of what is free when the plan is made."""

    @property
    def change(self) -> Change:
        return Change.begun(self.old, self.new, self.bridge)

    @property
    def step(self) -> PlanStep:
        """The move as it is recorded."""
        consent = self.record.consent
        return PlanStep(self.record.id, self.old, self.new, self.new_hosts, consent.move_cost)

    @property
    def cost(self) -> float:
        return self.new_hosts * self.record.consent.move_cost


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves of tenants, in order."""

    fabric: FabricRecord
    moves: tuple[PlannedMove, ...]
    cut_off: bool
    """Whether the planner stopped at its budget."""
    recorded: RecordedPlan = field(default=NO_MOVES, kw_only=True)
    """The whole plan; ``moves`` are those of it that are not over."""
    id: str = field(default="", kw_only=True)

    @property
    def new_hosts(self) -> int:
        return sum(move.new_hosts for move in self.moves)

    @property
    def cost(self) -> float:
        return sum(move.cost for move in self.moves)


@dataclass(frozen=True, slots=True)
class RoomPlan(MovePlan):
    """The moves after which a request fits; none if it fits now."""

    placement: Allocation

    @property
    def notice_class(self) -> int:
        """That of the tenant with the longest notice; 0 without moves."""
        notices = (move.record.consent.notice for move in self.moves)
        return max(map(notice_class, notices), default=0)


@dataclass(frozen=True, slots=True)
class SleepPlan(MovePlan):
    """The moves after which more switches can sleep, and those that can now and then."""

    now: tuple[Switch, ...]
    after: tuple[Switch, ...]


NO_OVERRIDE = Permission()


class RoomPlanner:
    """Plans moves; changes nothing.

    With ``live_ports`` the service moves servers live, so that also tenants whose servers may not
    stop get other hosts.
    """

    def __init__(
        self,
        store: Store,
        quotas: ProjectLimits,
        *,
        clock: Callable[[], datetime],
        live_ports: bool = False,
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._clock = clock
        self._live_ports = live_ports

    def plan(
        self,
        fabric_id: str,
        policy: Policy,
        request: Request,
        permission: Permission,
        known: RecordedPlan | None = None,
    ) -> RoomPlan | NoFit:
        """The moves after which the request fits: those of ``known``, if that plan holds.

        Otherwise the cheapest moves found. Moves that are announced or under way count as done:
        they come first in the plan if the request fits only after them.

        Raises:
            NotFound: there is no such fabric.
            ConcurrentUpdate: an allocation changed meanwhile.
        """
        fabric = self._store.fabrics.get(fabric_id)
        ledger, _ = self._store.fabrics.ledger(fabric_id)
        placement = propose(policy, ledger, request)
        if isinstance(placement, Allocation):
            return RoomPlan(fabric, (), False, placement)
        records = self._active(fabric_id)
        if known is not None and (held := self._held(records, permission, known, ledger)):
            steps, after = held
            placement = propose(policy, after, request)
            if isinstance(placement, Allocation):
                moves = self.remaining_moves(steps, records)
                return RoomPlan(fabric, moves, known.cut_off, placement, recorded=known)
        pending = [one for one in records.values() if is_pending(one)]
        coming = self._coming(fabric, ledger, policy, request, pending)
        if coming is not None:
            return coming
        done = with_pending(ledger, pending, done=True)
        movable = self._movable(records.values(), permission)
        answer = self._plan_among(fabric, done, policy, request, permission, movable)
        if isinstance(answer, NoFit):
            return answer
        moves = answer.moves
        if not _alone(with_pending(ledger, pending, done=False), moves, policy, request):
            moves = (*map(self._pending, pending), *moves)
        recorded = RecordedPlan(tuple(move.step for move in moves), answer.cut_off)
        return replace(answer, moves=moves, recorded=recorded)

    def coming(self, fabric_id: str, policy: Policy, request: Request) -> RoomPlan | None:
        """The moves under way or announced after which the request fits; None if it does not."""
        fabric = self._store.fabrics.get(fabric_id)
        ledger, _ = self._store.fabrics.ledger(fabric_id)
        pending = [one for one in self._active(fabric_id).values() if is_pending(one)]
        return self._coming(fabric, ledger, policy, request, pending)

    def _coming(
        self,
        fabric: FabricRecord,
        ledger: LedgerView,
        policy: Policy,
        request: Request,
        pending: Sequence[AllocationRecord],
    ) -> RoomPlan | None:
        """As ``coming``, with none of ``pending`` that is not needed."""
        needed = list(pending)
        placement = propose(policy, with_pending(ledger, needed, done=True), request)
        if not needed or isinstance(placement, NoFit):
            return None
        for record in pending:
            fewer = [one for one in needed if one is not record]
            draft = with_pending(with_pending(ledger, [record], done=False), fewer, done=True)
            answer = propose(policy, draft, request)
            if isinstance(answer, Allocation):
                needed, placement = fewer, answer
        moves = tuple(map(self._pending, needed))
        recorded = RecordedPlan(tuple(move.step for move in moves))
        return RoomPlan(fabric, moves, False, placement, recorded=recorded)

    def _pending(self, record: AllocationRecord) -> PlannedMove:
        """The move of a tenant that is announced or under way."""
        change, placed, to = record.change, record.placed, record.announced
        if change is not None:
            old, new = change.old, change.new
        else:
            assert placed is not None
            assert to is not None
            old, new = placed, to
        begins = record.moves_at or self._clock()
        return PlannedMove(record, old, new, _gained(old, new), begins, announced=True)

    def _held(
        self,
        records: Mapping[str, AllocationRecord],
        permission: Permission,
        known: RecordedPlan,
        ledger: LedgerView,
    ) -> tuple[Sequence[PlanStep], Ledger] | None:
        """The moves of a plan that are left, and the ledger after them; None: it does not hold."""
        movable = self._movable(records.values(), permission)
        left = {} if permission.override else self.moves_left(movable.values())
        own = {step.allocation for step in known.steps}
        others = [one for one in records.values() if is_pending(one) and one.id not in own]

        def may_move(step: PlanStep) -> bool:
            if step.allocation not in movable or permission.override:
                return step.allocation in movable
            return not self.must_stay([Nearest(step.new, step.new_hosts)], movable, left)

        return remaining(known, records, with_pending(ledger, others, done=False), may_move)

    def remaining_moves(
        self, steps: Sequence[PlanStep], records: Mapping[str, AllocationRecord]
    ) -> tuple[PlannedMove, ...]:
        """Moves of a plan that holds."""
        moves = list[PlannedMove]()
        for step in steps:
            record = records[step.allocation]
            begins = self._clock() + timedelta(seconds=record.consent.notice)
            if begun := is_pending(record):
                begins = record.moves_at or self._clock()
            moves.append(
                PlannedMove(record, step.old, step.new, step.new_hosts, begins, announced=begun)
            )
        return tuple(moves)

    def _active(self, fabric_id: str) -> dict[str, AllocationRecord]:
        """The active allocations with hosts of their own that lie in no other, by id."""
        active = every_allocation(self._store.allocations, fabric=fabric_id, states={State.ACTIVE})
        return {one.id: one for one in active if one.parent is None and one.placed is not None}

    def plan_early(
        self,
        fabric_id: str,
        policy: Policy,
        request: Request,
        permission: Permission,
        movable: Mapping[str, AllocationRecord],
    ) -> RoomPlan | NoFit:
        """As ``plan``, but the longest notice counts first, in steps of ``notice_class``.

        Raises: as ``plan``.
        """
        fabric = self._store.fabrics.get(fabric_id)
        classes = sorted({notice_class(one.consent.notice) for one in movable.values()})

        def within(most: int) -> RoomPlan | NoFit:
            some = {id: r for id, r in movable.items() if notice_class(r.consent.notice) <= most}
            ledger, _ = self._store.fabrics.ledger(fabric.id)
            return self._plan_among(fabric, ledger, policy, request, permission, some)

        best = within(classes[-1] if classes else 0)
        if isinstance(best, NoFit) or not best.moves:
            return best
        low, high = 0, classes.index(best.notice_class)
        while low < high:  # more tenants never make a plan impossible
            middle = (low + high) // 2
            answer = within(classes[middle])
            if isinstance(answer, NoFit):
                low = middle + 1
            else:
                best, high = answer, classes.index(answer.notice_class)
        return within(classes[low]) if best.notice_class > classes[low] else best

    def _plan_among(
        self,
        fabric: FabricRecord,
        ledger: LedgerView,
        policy: Policy,
        request: Request,
        permission: Permission,
        movable: Mapping[str, AllocationRecord],
    ) -> RoomPlan | NoFit:
        """The cheapest moves found of these allocations. Raises: ConcurrentUpdate."""
        candidates = dict(movable)
        left = {} if permission.override else self.moves_left(candidates.values())
        while True:
            answer = plan_moves(
                policy,
                ledger,
                request,
                permission.moves,
                movable=lambda allocation: allocation.id in candidates,
                work=MOVES_WORK,
            )
            if isinstance(answer, NoFit):
                return explain_constraints(policy, ledger, request, answer)
            stay = [] if permission.override else self.must_stay(answer.moves, candidates, left)
            if not stay:
                moves = self.planned(answer.moves, candidates)
                return RoomPlan(fabric, moves, answer.cut_off, answer.placement)
            for id in stay:
                del candidates[id]

    def plan_sleep(
        self, fabric_id: str, permission: Permission, known: RecordedPlan | None = None
    ) -> SleepPlan:
        """Moves that empty leaves, of tenants that may get other hosts, if more switches are idle.

        Those of ``known``, if that plan holds. Of the moves found only those are planned after
        which most switches are idle: a leaf may be empty at the price of an L2 switch or a spine
        that is used then. Moves that are announced or under way count as done.

        Raises:
            NotFound: there is no such fabric.
            ConcurrentUpdate: an allocation changed meanwhile.
        """
        fabric = self._store.fabrics.get(fabric_id)
        ledger, _ = self._store.fabrics.ledger(fabric_id)
        records = self._active(fabric_id)
        now = idle_components(ledger, fabric.inventory).switches
        if known is not None and (held := self._held(records, permission, known, ledger)):
            steps, after = held
            idle = idle_components(after, fabric.inventory).switches
            if len(idle) > len(now):
                moves = self.remaining_moves(steps, records)
                return SleepPlan(fabric, moves, known.cut_off, now, idle, recorded=known)
        pending = [one for one in records.values() if is_pending(one)]
        draft = with_pending(ledger, pending, done=True)
        candidates = self._movable(records.values(), permission)
        left = {} if permission.override else self.moves_left(candidates.values())
        while True:
            plan = plan_sleep(draft, permission.moves, lambda one: one.id in candidates)
            stay = [] if permission.override else self.must_stay(plan.moves, candidates, left)
            if not stay:
                break
            for id in stay:
                del candidates[id]
        found = [idle_components(draft, fabric.inventory).switches]
        for move in plan.moves:
            draft.change(move.allocation)
            found.append(idle_components(draft, fabric.inventory).switches)
        made = max(range(len(found)), key=lambda count: len(found[count]))
        moves = self.planned(plan.moves[:made], candidates)
        apart = with_pending(ledger, pending, done=False)
        alone = all(moved(apart, move.old, move.new) for move in moves)
        if len(found[0]) > len(now) or not alone:
            moves = (*map(self._pending, pending), *moves)
        recorded = RecordedPlan(tuple(move.step for move in moves), plan.cut_off)
        return SleepPlan(fabric, moves, plan.cut_off, now, found[made], recorded=recorded)

    def movable(self, fabric_id: str, permission: Permission) -> dict[str, AllocationRecord]:
        """The allocations that may move, if only their links change, by id."""
        return self._movable(self._active(fabric_id).values(), permission)

    def _movable(
        self, active: Iterable[AllocationRecord], permission: Permission
    ) -> dict[str, AllocationRecord]:
        return {
            record.id: record
            for record in active
            if record.in_compute
            and record.constraints is None
            and record.change is None
            and record.announced is None
            and self.why_not(record, permission) is None
        }

    def why_not(self, record: AllocationRecord, permission: Permission) -> str | None:
        """Why an allocation may not even get other links for others; None if it may."""
        consent = record.consent
        if permission.max_cost is not None and consent.move_cost > permission.max_cost:
            return f"its move_cost is {consent.move_cost}"
        if permission.override:
            return None
        if record.project_id in self._quotas.unmoved:
            return "its project is never moved"
        return "movable is never" if consent.movable is Movable.NEVER else None

    def why_hosts_stay(
        self, record: AllocationRecord, permission: Permission, left: MutableMapping[str, int]
    ) -> str | None:
        """Why an allocation may not get other hosts; None if it may.

        ``left`` as ``moves_left`` gives it.
        """
        why = self.why_not(record, permission)
        if why is not None or permission.override:
            return why
        if not record.consent.lets_servers_go(live=self._live_ports):
            return f"movable is {record.consent.movable.value}"
        return NO_MOVES_LEFT if left.get(record.project_id, 1) < 1 else None

    def moves_left(self, records: Collection[AllocationRecord]) -> dict[str, int]:
        """The moves that the projects of allocations may still have, of those with a limit."""
        return dict(self._quotas.moves_left({record.project_id for record in records}))

    def must_stay(
        self,
        moves: Sequence[Nearest],
        records: Mapping[str, AllocationRecord],
        left: Mapping[str, int],
    ) -> Collection[str]:
        """Of the tenants that a plan moves to other hosts, those whose servers may not stop, and
        those too many of a project."""
        moved, stay = Counter[str](), []
        for move in moves:
            record = records[move.allocation.id]
            if not move.new_hosts:
                continue
            moved[record.project_id] += 1
            too_many = moved[record.project_id] > left.get(record.project_id, len(moves))
            if not record.consent.lets_servers_go(live=self._live_ports) or too_many:
                stay.append(record.id)
        return stay

    def planned(
        self, moves: Iterable[Nearest], records: Mapping[str, AllocationRecord]
    ) -> tuple[PlannedMove, ...]:
        """The moves with the records of their tenants. Raises: ConcurrentUpdate."""
        now, planned = self._clock(), list[PlannedMove]()
        for move in moves:
            record = records[move.allocation.id]
            if record.placed is None:
                raise ConcurrentUpdate(f"allocation {record.id!r} changed meanwhile")
            begins = now + timedelta(seconds=record.consent.notice)
            planned.append(
                PlannedMove(record, record.placed, move.allocation, move.new_hosts, begins)
            )
        return tuple(planned)


def _alone(ledger: Ledger, moves: Iterable[PlannedMove], policy: Policy, request: Request) -> bool:
    """Whether the request fits after these moves on a ledger, which has them afterwards."""
    for move in moves:
        if not moved(ledger, move.old, move.new):
            return False
    return isinstance(propose(policy, ledger, request), Allocation)


def _gained(old: Allocation, new: Allocation) -> int:
    """The hosts that a change claims, or the virtual machines that move."""
    return new.beyond(old).size if new.kind.whole_hosts else len(new.unit_moves)
