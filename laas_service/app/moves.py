# SPDX-License-Identifier: Apache-2.0

"""The use cases of moves: room, evacuation, power, and what tenants are told.

A plan moves tenants who consent. It is advice until somebody asks for it to be carried out; then
a move is announced, and begins when the notice of its tenant is over. To make room, or to let
switches sleep, the first move of the plan is announced; the moves of an evacuation, and those that
empty shared hosts, do not depend on each other, so all are.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from laas_service.app import lifecycle
from laas_service.app.lifecycle import State
from laas_service.app.lookup import Lookup
from laas_service.app.placement_changes import Replacement, begun
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import Compute, ServerLoad
from laas_service.app.ports.store import Store
from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import AllocationRecord, Caller, FabricRecord, HostState, QueueRoom
from laas_service.app.requests import AllocationRequest
from laas_service.app.room_planner import (
    NO_OVERRIDE,
    Permission,
    PlannedMove,
    PowerPlan,
    RoomPlan,
    RoomPlanner,
)
from laas_service.app.views import leaf
from laas_service.app.wording import reasons
from laas_service.domain.allocation import NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import Conflict, DoubleClaim, InvalidInput, LaasError, NotFound
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


@dataclass(frozen=True, slots=True)
class Staying:
    """An allocation that keeps ``hosts`` (numbers) for now, and why."""

    record: AllocationRecord
    hosts: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Evacuation:
    """The moves off ``hosts`` (numbers), those announced before included, and who stays."""

    fabric: FabricRecord
    hosts: tuple[int, ...]
    moves: tuple[PlannedMove, ...] = field(default=())
    staying: tuple[Staying, ...] = field(default=())


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

    def advise(self, fabric_id: str, wanted: RoomRequest) -> RoomPlan | NoFit:
        """The cheapest moves found after which the request fits; nothing changes.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: the policy is not offered, or a number is out of range.
        """
        asked = wanted.asked
        if asked.hosts < 1:
            raise InvalidInput("hosts", asked.hosts, "ask for at least 1 host")
        _check_moves(wanted.permission)
        policy = self._lookup.policy(asked.policy)
        asked = replace(asked, fabric=fabric_id)
        snapshot = self._lookup.read(asked)
        here = snapshot.possible[self._lookup.fabric(snapshot, fabric_id)]
        constraints = self._lookup.constraints(here, asked)
        request = Request("", asked.hosts, constraints=constraints)
        plan = self.planner.plan(fabric_id, policy, request, wanted.permission)
        if isinstance(plan, NoFit):
            return plan
        return replace(plan, moves=self._priced(plan.fabric, plan.moves))

    def make_room(self, caller: Caller, fabric_id: str, wanted: RoomRequest) -> RoomPlan | NoFit:
        """As ``advise``, and announce the first move; the others follow when it is asked again.

        Raises: as ``advise``; ConcurrentUpdate, Conflict: its tenant changed meanwhile.
        """
        plan = self.advise(fabric_id, wanted)
        if isinstance(plan, NoFit) or not plan.moves:
            return plan
        first, *others = plan.moves
        why = f"to make room for {wanted.asked.hosts} hosts"
        told = self.announce(caller, first, why, forced=wanted.permission.override)
        self._wake()
        return RoomPlan(plan.fabric, (told, *others), plan.cut_off, plan.placement)

    def advise_sleep(self, fabric_id: str, permission: Permission) -> PowerPlan:
        """Moves that empty leaves, so that more switches can sleep; nothing changes.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: the number of moves is out of range.
            ConcurrentUpdate: an allocation changed meanwhile.
        """
        _check_moves(permission)
        plan = self.planner.plan_sleep(fabric_id, permission)
        return replace(plan, moves=self._priced(plan.fabric, plan.moves))

    def let_sleep(self, caller: Caller, fabric_id: str, permission: Permission) -> PowerPlan:
        """As ``advise_sleep``, and announce the first move; the others follow when asked again.

        Raises: as ``advise_sleep``; Conflict: its tenant changed meanwhile.
        """
        plan = self.advise_sleep(fabric_id, permission)
        if not plan.moves:
            return plan
        first, *others = plan.moves
        forced = permission.override
        told = self.announce(caller, first, "so that switches can sleep", forced=forced)
        self._wake()
        return replace(plan, moves=(told, *others))

    def queue_room(self, fabric_id: str) -> QueueRoom | None:
        """The last plan that makes room for the fabric's queue; None if there never was one."""
        return self._store.admissions.room(fabric_id)

    def advise_evacuation(self, fabric_id: str, wanted: EvacuationRequest) -> Evacuation:
        """Where the tenants of hosts would move if these were drained; nothing changes.

        Each gets the placement with the fewest new hosts that leaves them.

        Raises:
            NotFound: there is no such fabric, host or switch.
            InvalidInput: the switch is no leaf, or neither hosts nor a switch are named.
        """
        fabric = self._store.fabrics.get(fabric_id)
        hosts = self._to_evacuate(fabric, wanted)
        view, _ = self._store.fabrics.ledger(fabric_id)
        draft = view.copy()
        for host in hosts:
            draft.drain_host(host)
        announced = list(
            every_allocation(self._store.allocations, fabric=fabric_id, states={State.ACTIVE})
        )
        for record in announced:
            if record.announced is not None and record.placed is not None:
                with suppress(DoubleClaim):
                    draft.change(record.announced.joined(record.placed))
        moves, staying = list[PlannedMove](), list[Staying]()
        left, effort = self.planner.moves_left(announced), RequestBudget(MOVES_WORK)
        for id, (held, _) in leaf.holders(fabric, view, hosts).items():
            record = self._store.allocations.get(id)
            answer = self._off(draft, record, held, wanted.permission, left, effort)
            if isinstance(answer, Staying):
                staying.append(answer)
            else:
                moves.append(answer)
        return Evacuation(fabric, hosts, self._priced(fabric, moves), tuple(staying))

    def evacuate(self, caller: Caller, fabric_id: str, wanted: EvacuationRequest) -> Evacuation:
        """Drain the hosts, and announce the moves of ``advise_evacuation``.

        Safe to repeat: what was announced stays so.

        Raises: as ``advise_evacuation``; ConcurrentUpdate, Conflict: a tenant changed meanwhile.
        """
        fabric = self._store.fabrics.get(fabric_id)
        hosts = self._to_evacuate(fabric, wanted)
        if wanted.switch is not None:
            switch = leaf.find(fabric, wanted.switch)
            self._store.components.set_leaf_state(
                fabric_id, switch.guid, HostState.DRAINED, by=caller.initiator
            )
        else:
            for host in hosts:
                self._store.components.set_host_state(
                    fabric_id, host, HostState.DRAINED, by=caller.initiator
                )
        plan = self.advise_evacuation(fabric_id, wanted)
        forced = wanted.permission.override
        moves = tuple(
            move
            if move.announced
            else self.announce(caller, move, "off drained hosts", forced=forced)
            for move in plan.moves
        )
        self._wake()
        return replace(plan, moves=moves)

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
        record: AllocationRecord,
        hosts: tuple[int, ...],
        permission: Permission,
        left: dict[str, int],
        effort: RequestBudget,
    ) -> PlannedMove | Staying:
        """The move of a tenant off hosts, which the draft holds afterwards; or why it stays.

        The move is taken off those ``left`` to its project, and its search off ``effort``.
        """
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
            answer = search.chosen(draft, record, placed)
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

    def announce(self, caller: Caller, move: PlannedMove, why: str, *, forced: bool) -> PlannedMove:
        """Record and tell the move. Raises: ConcurrentUpdate, Conflict, QuotaExceeded."""
        begins = move.begins.isoformat(timespec="seconds")
        reason = reasons.announced_reason(
            move.old, move.new, why, begins, caller.user_id, forced=forced
        )
        record = self._store.placement_changes.announce(
            move.record,
            move.new,
            move.begins,
            reason,
            forced=forced,
            limits=self._quotas.limits,
            by=caller.initiator,
        )
        return replace(move, record=record, announced=True)


def _check_moves(permission: Permission) -> None:
    """Raises: InvalidInput, if a plan may not move so many tenants."""
    if not 0 <= permission.moves <= MOST_MOVES:
        raise InvalidInput("moves", permission.moves, f"give 0 to {MOST_MOVES} tenants")
