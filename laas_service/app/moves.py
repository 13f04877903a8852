# SPDX-License-Identifier: Apache-2.0

"""The use cases of moves: room, evacuation, power, and what tenants are told.

A plan moves tenants who consent. It is advice until somebody asks for it to be carried out; then
a move is announced, and begins when the notice of its tenant is over. To make room, or to let
switches sleep, the first move of the plan is announced; the moves of an evacuation, and those that
empty shared hosts, do not depend on each other, so all are.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from tenacity import wait_random

from laas_service.app import lifecycle
from laas_service.app.lifecycle import State
from laas_service.app.lookup import Lookup, check_hosts, hosts_wanted
from laas_service.app.placement_changes import Replacement, begun
from laas_service.app.plans import (
    Announcement,
    PlanKind,
    PlanQuestion,
    PlanStep,
    Progress,
    RecordedPlan,
    moved,
)
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import Compute, ServerLoad
from laas_service.app.ports.store import Store
from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import AllocationRecord, Caller, FabricRecord, HostState, QueueRoom
from laas_service.app.requests import AllocationRequest
from laas_service.app.retries import retrying
from laas_service.app.room_planner import (
    NO_OVERRIDE,
    MovePlan,
    Permission,
    PlannedMove,
    RoomPlan,
    RoomPlanner,
    SleepPlan,
)
from laas_service.app.views import leaf
from laas_service.app.wording import reasons
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    DoubleClaim,
    InvalidInput,
    LaasError,
    NotFound,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.plan_moves import MOVES_WORK

LOG = logging.getLogger(__name__)

MOST_MOVES = 4
"""The most tenants that one plan moves."""


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """A request to make room."""

    asked: AllocationRequest
    permission: Permission = NO_OVERRIDE


@dataclass(frozen=True, slots=True)
class EvacuationRequest:
    """A request to drain hosts, or those of a leaf (``switch``), and to move all their tenants."""

    hosts: tuple[str, ...] = ()
    switch: str | None = None
    permission: Permission = NO_OVERRIDE
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Staying:
    """An allocation that keeps ``hosts`` (numbers) for now, and why."""

    record: AllocationRecord
    hosts: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Evacuation(MovePlan):
    """The moves off ``hosts`` (numbers), those announced before included, and who stays."""

    hosts: tuple[int, ...]
    staying: tuple[Staying, ...]


PLANNED = retrying(ConcurrentUpdate, attempts=20, wait=wait_random(0, 0.1))
"""Plans anew if another request recorded a plan of the fabric first."""

P = TypeVar("P", bound=MovePlan)


@dataclass(frozen=True, slots=True)
class Asked(Generic[P]):
    """A question about moves, and how it is answered."""

    question: PlanQuestion
    plan: Callable[[RecordedPlan | None], P | NoFit]
    """Gives the plan; takes the one that the question was answered with before, if any."""
    why: str
    """For the tenants."""
    forced: bool
    all_at_once: bool = False
    """The moves do not depend on each other."""


@dataclass(frozen=True, slots=True)
class _Leaving:
    """An allocation that is to leave ``hosts``, and where it was to go."""

    record: AllocationRecord
    hosts: tuple[int, ...]
    planned: PlanStep | None

    def as_planned(self, draft: Ledger) -> Allocation | None:
        """The place that was planned, if it is free."""
        step = self.planned
        if step is None or step.progress(self.record) is not Progress.TO_COME:
            return None
        return step.new if moved(draft.copy(), step.old, step.new) else None


class Moves:
    """The use cases of moves. ``wake`` wakes a worker.

    With ``live_ports`` the service moves servers live, so that also tenants whose servers may not
    stop get other hosts.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        lookup: Lookup,
        quotas: ProjectLimits,
        *,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
        live_ports: bool = False,
    ) -> None:
        self._store = store
        self._compute = compute
        self._lookup = lookup
        self._quotas = quotas
        self.planner = RoomPlanner(store, quotas, clock=clock, live_ports=live_ports)
        self._clock = clock
        self._wake = wake

    def advise(self, caller: Caller, fabric_id: str, wanted: RoomRequest) -> RoomPlan | NoFit:
        """The cheapest moves found after which the request fits; nothing else changes.

        Moves that are announced or under way count as done. The same request gets the same plan
        while that holds.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: the policy is not offered, or a number is out of range.
        """
        return self.advised(caller, self._room(fabric_id, wanted))

    def make_room(
        self, caller: Caller, fabric_id: str, wanted: RoomRequest, key: str | None = None
    ) -> RoomPlan | NoFit:
        """As ``advise``, and announce the first move; the others follow when it is asked again.

        The next move is announced once those before it are over. With an idempotency ``key`` that
        was used before, nothing is announced.

        Raises: as ``advise``; ConcurrentUpdate, Conflict: its tenant changed meanwhile;
            IdempotencyMismatch: the key was used for another request.
        """
        return self.begun(caller, self._room(fabric_id, wanted), key)

    def _room(self, fabric_id: str, wanted: RoomRequest) -> Asked[RoomPlan]:
        asked, permission = wanted.asked, wanted.permission
        check_hosts(asked)
        _check_moves(permission)
        policy = self._lookup.policy(asked.policy)
        asked = replace(asked, fabric=fabric_id)
        snapshot = self._lookup.read(asked)
        here = snapshot.possible[self._lookup.fabric(snapshot, fabric_id)]
        constraints = self._lookup.constraints(here, asked)
        hosts = hosts_wanted(asked, policy, here.ledger, constraints)
        request = Request("", hosts, constraints=constraints)
        given = (policy.name, hosts, constraints, permission)
        return Asked(
            PlanQuestion(fabric_id, PlanKind.ROOM, given),
            lambda known: self.planner.plan(fabric_id, policy, request, permission, known),
            f"to make room for {hosts} hosts",
            permission.override,
        )

    def advise_sleep(self, caller: Caller, fabric_id: str, permission: Permission) -> SleepPlan:
        """Moves that empty leaves, so that more switches can sleep; nothing else changes.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: the number of moves is out of range.
            ConcurrentUpdate: an allocation changed meanwhile.
        """
        return found(self.advised(caller, self._sleep(fabric_id, permission)))

    def let_sleep(
        self, caller: Caller, fabric_id: str, permission: Permission, key: str | None = None
    ) -> SleepPlan:
        """As ``advise_sleep``, and announce the first move; the others follow when asked again.

        ``key`` as in ``make_room``.

        Raises: as ``advise_sleep``; Conflict: its tenant changed meanwhile; IdempotencyMismatch.
        """
        return found(self.begun(caller, self._sleep(fabric_id, permission), key))

    def _sleep(self, fabric_id: str, permission: Permission) -> Asked[SleepPlan]:
        _check_moves(permission)
        return Asked(
            PlanQuestion(fabric_id, PlanKind.SLEEP, (permission,)),
            lambda known: self.planner.plan_sleep(fabric_id, permission, known),
            "so that switches can sleep",
            permission.override,
        )

    def advised(self, caller: Caller, asked: Asked[P]) -> P | NoFit:
        """The plan, recorded for those who ask again. Raises: ConcurrentUpdate."""
        return PLANNED(self._advised_once, caller, asked)

    def _advised_once(self, caller: Caller, asked: Asked[P]) -> P | NoFit:
        known = self._store.placement_changes.known_plans(asked.question, caller.project_id, None)
        plan = asked.plan(known.newest)
        if isinstance(plan, NoFit):
            return plan
        if plan.moves and plan.recorded != known.newest:
            by = caller.initiator
            self._store.placement_changes.record_plan(asked.question, plan.recorded, known, by=by)
        return self._shown(asked, plan)

    def begun(self, caller: Caller, asked: Asked[P], key: str | None) -> P | NoFit:
        """The plan, with its next move announced. Raises: ConcurrentUpdate and others."""
        return PLANNED(self._begun_once, caller, asked, key)

    def _begun_once(self, caller: Caller, asked: Asked[P], key: str | None) -> P | NoFit:
        known = self._store.placement_changes.known_plans(asked.question, caller.project_id, key)
        plan = asked.plan(known.newest if known.keyed is None else known.keyed)
        if isinstance(plan, NoFit):
            return plan
        announcements = list[Announcement]()
        if known.keyed is None:
            due = plan.moves if asked.all_at_once else plan.moves[:1]
            announcements = [
                _announcement(caller, move, asked) for move in due if not move.announced
            ]
        fresh = known.keyed is None and (key is not None or plan.recorded != known.newest)
        if announcements or (fresh and (key is not None or plan.moves)):
            told = self._store.placement_changes.record_plan(
                asked.question,
                plan.recorded,
                known,
                announce=announcements,
                key=key,
                limits=self._quotas.limits,
                by=caller.initiator,
            )
            plan = replace(plan, moves=tuple(_told(move, told) for move in plan.moves))
            self._wake()
        return self._shown(asked, plan)

    def _shown(self, asked: Asked[P], plan: P) -> P:
        """A plan with its id, and with what its moves cost."""
        moves = plan.moves
        if asked.question.kind is not PlanKind.CONSOLIDATION:
            moves = self._priced(plan.fabric, moves)
        return replace(plan, id=plan.recorded.id(asked.question), moves=moves)

    def queue_room(self, fabric_id: str) -> QueueRoom | None:
        """The last plan that makes room for the fabric's queue; None if there never was one."""
        return self._store.admissions.room(fabric_id)

    def advise_evacuation(
        self, caller: Caller, fabric_id: str, wanted: EvacuationRequest
    ) -> Evacuation:
        """Where the tenants of hosts would move if these were drained; nothing else changes.

        Each gets the placement with the fewest new hosts that leaves them.

        Raises:
            NotFound: there is no such fabric, host or switch.
            InvalidInput: the switch is no leaf, or neither hosts nor a switch are named.
        """
        fabric = self._store.fabrics.get(fabric_id)
        return found(self.advised(caller, self._evacuation(fabric, wanted)))

    def evacuate(
        self, caller: Caller, fabric_id: str, wanted: EvacuationRequest, key: str | None = None
    ) -> Evacuation:
        """Drain the hosts, and announce the moves of ``advise_evacuation``.

        Safe to repeat: what was announced stays so. ``key`` as in ``make_room``.

        Raises: as ``advise_evacuation``; ConcurrentUpdate, Conflict: a tenant changed meanwhile;
            IdempotencyMismatch.
        """
        fabric = self._store.fabrics.get(fabric_id)
        asked = self._evacuation(fabric, wanted)
        if (
            self._store.placement_changes.known_plans(asked.question, caller.project_id, key).keyed
            is None
        ):
            self._drain(caller, fabric, wanted)
        plan = found(self.begun(caller, asked, key))
        self._wake()
        return plan

    def _drain(self, caller: Caller, fabric: FabricRecord, wanted: EvacuationRequest) -> None:
        if wanted.switch is not None:
            switch = leaf.find(fabric, wanted.switch)
            self._store.components.set_leaf_state(
                fabric.id, switch.guid, HostState.DRAINED, by=caller.initiator, reason=wanted.reason
            )
            return
        for host in self._to_evacuate(fabric, wanted):
            self._store.components.set_host_state(
                fabric.id, host, HostState.DRAINED, by=caller.initiator, reason=wanted.reason
            )

    def _evacuation(self, fabric: FabricRecord, wanted: EvacuationRequest) -> Asked[Evacuation]:
        hosts, permission = self._to_evacuate(fabric, wanted), wanted.permission
        return Asked(
            PlanQuestion(fabric.id, PlanKind.EVACUATION, (hosts, permission)),
            lambda known: self._moves_off(fabric, hosts, permission, known),
            "off drained hosts",
            permission.override,
            all_at_once=True,
        )

    def _moves_off(
        self,
        fabric: FabricRecord,
        hosts: tuple[int, ...],
        permission: Permission,
        known: RecordedPlan | None,
    ) -> Evacuation:
        """Who moves off hosts, to the places of a ``known`` plan where they are free."""
        view, _ = self._store.fabrics.ledger(fabric.id)
        draft = view.copy()
        for host in hosts:
            draft.drain_host(host)
        announced = list(
            every_allocation(self._store.allocations, fabric=fabric.id, states={State.ACTIVE})
        )
        for record in announced:
            if record.announced is not None and record.placed is not None:
                with suppress(DoubleClaim):
                    draft.change(record.announced.joined(record.placed))
        planned = {} if known is None else {step.allocation: step for step in known.steps}
        moves, staying = list[PlannedMove](), list[Staying]()
        left, effort = self.planner.moves_left(announced), RequestBudget(MOVES_WORK)
        for id, (held, _) in leaf.holders(fabric, view, hosts).items():
            record = self._store.allocations.get(id)
            off = _Leaving(record, held, planned.get(id))
            answer = self._off(draft, off, permission, left, effort)
            if isinstance(answer, Staying):
                staying.append(answer)
            else:
                moves.append(answer)
        recorded = RecordedPlan(tuple(move.step for move in moves), effort.cut)
        return Evacuation(
            fabric, tuple(moves), effort.cut, hosts, tuple(staying), recorded=recorded
        )

    def _priced(
        self, fabric: FabricRecord, moves: Iterable[PlannedMove]
    ) -> tuple[PlannedMove, ...]:
        """The moves with their bridges, and the servers and disks on the hosts that they leave.

        Those only where compute tells; once a call fails, the others are not made.
        """
        priced, answers = list[PlannedMove](), True
        ledger, _ = self._store.fabrics.ledger(fabric.id)
        for move in moves:
            leaving = move.old.beyond(move.new).hosts(fabric.topology)
            names, load = [fabric.inventory.host_names[host] for host in leaving], None
            if not names:
                load = ServerLoad()
            elif answers:
                try:
                    load = self._compute.load(names)
                except LaasError as error:
                    LOG.warning("the servers of planned moves are not known: %s", error)
                    answers = False
            links = begun(ledger, move.old, move.new).bridge
            priced.append(replace(move, load=load, bridge=links))
        return tuple(priced)

    def _to_evacuate(self, fabric: FabricRecord, wanted: EvacuationRequest) -> tuple[int, ...]:
        """Numbers of the hosts. Raises: NotFound, InvalidInput."""
        if (wanted.switch is None) == (not wanted.hosts):
            raise InvalidInput("hosts", list(wanted.hosts), "name hosts, or one leaf as switch")
        if wanted.switch is not None:
            return leaf.hosts_on(fabric, leaf.find(fabric, wanted.switch).guid)
        numbers = fabric.inventory.host_numbers
        for name in wanted.hosts:
            if name not in numbers:
                raise NotFound("host", name)
        return tuple(sorted({numbers[name] for name in wanted.hosts}))

    def _off(
        self,
        draft: Ledger,
        off: _Leaving,
        permission: Permission,
        left: dict[str, int],
        effort: RequestBudget,
    ) -> PlannedMove | Staying:
        """The move of a tenant off hosts, which the draft holds afterwards; or why it stays.

        The move is taken off those ``left`` to its project, and its search off ``effort``.
        """
        record, hosts = off.record, off.hosts
        placed, to = record.placed, record.announced
        if placed is not None and to is not None and record.moves_at is not None:
            leaving = placed.beyond(to).hosts(draft.topology)
            if set(hosts) <= set(leaving):
                new = to.beyond(placed).size
                return PlannedMove(record, placed, to, new, record.moves_at, announced=True)
            return Staying(record, hosts, "another move of it is announced")
        if reason := record.kind.stays:
            return Staying(record, hosts, reason)
        if why := self.planner.why_hosts_stay(record, permission, left):
            return Staying(record, hosts, why)
        search = Replacement(frozenset(hosts), RequestBudget(effort.left))
        try:
            placed = lifecycle.check_changeable(record)
            answer = off.as_planned(draft) or search.chosen(draft, record, placed)
        except Conflict as error:
            return Staying(record, hosts, str(error))
        effort.left = search.budget.left
        if isinstance(answer, NoFit):
            return Staying(record, hosts, answer.detail)
        draft.change(answer.joined(placed))
        if record.project_id in left:
            left[record.project_id] -= 1
        begins = self._clock() + timedelta(seconds=record.consent.notice)
        return PlannedMove(record, placed, answer, answer.beyond(placed).size, begins)


def _told(move: PlannedMove, told: Mapping[str, AllocationRecord]) -> PlannedMove:
    """A move with its record as it is once its tenant is told."""
    record = told.get(move.record.id)
    return move if record is None else replace(move, record=record, announced=True)


def _announcement(caller: Caller, move: PlannedMove, asked: Asked[Any]) -> Announcement:
    begins = move.begins.isoformat(timespec="seconds")
    reason = reasons.announced_reason(
        move.old, move.new, asked.why, begins, caller.user_id, forced=asked.forced
    )
    return Announcement(move.record, move.new, move.begins, reason, asked.forced)


def found(plan: P | NoFit) -> P:
    """The plan of a question to which there is always one."""
    assert not isinstance(plan, NoFit)
    return plan


def _check_moves(permission: Permission) -> None:
    """Raises: InvalidInput, if a plan may not move so many tenants."""
    if not 0 <= permission.moves <= MOST_MOVES:
        raise InvalidInput("moves", permission.moves, f"give 0 to {MOST_MOVES} tenants")
