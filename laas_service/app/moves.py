# SPDX-License-Identifier: Apache-2.0

"""The use cases of moves: room for a request, evacuation of hosts, and what tenants are told.

A plan moves tenants who consent. It is advice until somebody asks for it to be carried out; then
a move is announced, and begins when the notice of its tenant is over. To make room the first move
of the plan is announced; the moves of an evacuation do not depend on each other, so all are.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from laas_service.app import lifecycle
from laas_service.app.lifecycle import State
from laas_service.app.lookup import Lookup
from laas_service.app.placement_changes import Replacement
from laas_service.app.ports.allocations import (
    AllocationReader,
    PlacementChanges,
    every_allocation,
)
from laas_service.app.ports.fabrics import ComponentStates, FabricReader
from laas_service.app.records import AllocationRecord, Caller, FabricRecord, HostState
from laas_service.app.requests import AllocationRequest
from laas_service.app.views import leaf
from laas_service.domain.admission.constrained import explain_constraints
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    DoubleClaim,
    InvalidInput,
    NotFound,
)
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import Movable
from laas_service.domain.moves.plan_moves import MOVES_WORK, MovePlan, plan_moves

MOST_MOVES = 4
"""The most tenants that one plan moves."""


class MoveStore(AllocationReader, PlacementChanges, FabricReader, ComponentStates, Protocol):
    """The recorded decisions, as moves need them."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One move of a plan: a tenant from its present placement to another one.

    ``begins`` is the earliest time, after the tenant's notice. ``announced`` says whether the
    tenant is told.
    """

    record: AllocationRecord
    old: Allocation
    new: Allocation
    new_hosts: int
    begins: datetime
    announced: bool = False

    @property
    def cost(self) -> float:
        return self.new_hosts * self.record.consent.move_cost


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """The moves after which a request fits, in order; none if it fits now."""

    fabric: FabricRecord
    placement: Allocation
    moves: tuple[PlannedMove, ...]
    cut_off: bool

    @property
    def new_hosts(self) -> int:
        return sum(move.new_hosts for move in self.moves)


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """A request to make room, of at most ``moves`` tenants.

    Tenants with a ``move_cost`` above ``max_cost`` stay. With ``override`` notice is given as
    theirs, but tenants who do not consent move as well.
    """

    asked: AllocationRequest
    moves: int = 1
    max_cost: float | None = None
    override: bool = False


@dataclass(frozen=True, slots=True)
class EvacuationRequest:
    """A request to drain hosts, or those of a leaf (``switch``), and to move their tenants.

    ``max_cost`` and ``override`` as in ``RoomRequest``.
    """

    hosts: tuple[str, ...] = ()
    switch: str | None = None
    max_cost: float | None = None
    override: bool = False


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
    """The use cases of moves. ``wake`` wakes a worker."""

    def __init__(
        self,
        store: MoveStore,
        lookup: Lookup,
        *,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._lookup = lookup
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
        if not 0 <= wanted.moves <= MOST_MOVES:
            raise InvalidInput("moves", wanted.moves, f"give 0 to {MOST_MOVES} tenants")
        policy = self._lookup.policy(asked.policy)
        fabric = self._store.fabric(fabric_id)
        ledger, _ = self._store.ledger(fabric_id)
        constraints = self._lookup.constraints(fabric_id, asked)
        request = Request("", asked.hosts, constraints=constraints)
        movable = self._movable(fabric_id, wanted)
        while True:
            answer = plan_moves(
                policy,
                ledger,
                request,
                wanted.moves,
                movable=lambda allocation: allocation.id in movable,
                work=MOVES_WORK,
            )
            if isinstance(answer, NoFit):
                return explain_constraints(policy, ledger, request, answer)
            stopped = [] if wanted.override else self._stopped(answer, movable)
            if not stopped:
                return self._described(fabric, answer, movable)
            for id in stopped:
                del movable[id]

    def make_room(self, caller: Caller, fabric_id: str, wanted: RoomRequest) -> RoomPlan | NoFit:
        """As ``advise``, and announce the first move; the others follow when it is asked again.

        Raises: as ``advise``; ConcurrentUpdate, Conflict: its tenant changed meanwhile.
        """
        plan = self.advise(fabric_id, wanted)
        if isinstance(plan, NoFit) or not plan.moves:
            return plan
        first, *others = plan.moves
        why = f"to make room for {wanted.asked.hosts} hosts"
        told = self._announced(caller, first, why, forced=wanted.override)
        self._wake()
        return RoomPlan(plan.fabric, plan.placement, (told, *others), plan.cut_off)

    def advise_evacuation(self, fabric_id: str, wanted: EvacuationRequest) -> Evacuation:
        """Where the tenants of hosts would move if these were drained; nothing changes.

        Each gets the placement with the fewest new hosts that leaves them.

        Raises:
            NotFound: there is no such fabric, host or switch.
            InvalidInput: the switch is no leaf, or neither hosts nor a switch are named.
        """
        fabric = self._store.fabric(fabric_id)
        hosts = self._to_evacuate(fabric, wanted)
        view, _ = self._store.ledger(fabric_id)
        draft = view.copy()
        for host in hosts:
            draft.drain_host(host)
        announced = list(every_allocation(self._store, fabric=fabric_id, states={State.ACTIVE}))
        for record in announced:
            if record.announced is not None and record.placed is not None:
                with suppress(DoubleClaim):
                    draft.change(record.announced.joined(record.placed))
        moves, staying = list[PlannedMove](), list[Staying]()
        for id, (held, _) in leaf.holders(fabric, view, hosts).items():
            answer = self._off(draft, self._store.allocation(id), held, wanted)
            if isinstance(answer, Staying):
                staying.append(answer)
            else:
                moves.append(answer)
        return Evacuation(fabric, hosts, tuple(moves), tuple(staying))

    def evacuate(self, caller: Caller, fabric_id: str, wanted: EvacuationRequest) -> Evacuation:
        """Drain the hosts, and announce the moves of ``advise_evacuation``.

        Safe to repeat: what was announced stays so.

        Raises: as ``advise_evacuation``; ConcurrentUpdate, Conflict: a tenant changed meanwhile.
        """
        fabric = self._store.fabric(fabric_id)
        hosts = self._to_evacuate(fabric, wanted)
        if wanted.switch is not None:
            switch = leaf.find(fabric, wanted.switch)
            self._store.set_leaf_state(
                fabric_id, switch.guid, HostState.DRAINED, by=caller.initiator
            )
        else:
            for host in hosts:
                self._store.set_host_state(fabric_id, host, HostState.DRAINED, by=caller.initiator)
        plan = self.advise_evacuation(fabric_id, wanted)
        moves = tuple(
            move
            if move.announced
            else self._announced(caller, move, "off drained hosts", forced=wanted.override)
            for move in plan.moves
        )
        self._wake()
        return replace(plan, moves=moves)

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
        wanted: EvacuationRequest,
    ) -> PlannedMove | Staying:
        """The move of a tenant off hosts, which the draft holds afterwards; or why it stays."""
        placed, to, consent = record.placed, record.announced, record.consent
        if placed is not None and to is not None and record.moves_at is not None:
            left = placed.beyond(to).hosts(draft.topology)
            if set(hosts) <= set(left):
                new = to.beyond(placed).size
                return PlannedMove(record, placed, to, new, record.moves_at, announced=True)
            return Staying(record, hosts, "another move of it is announced")
        if record.container:
            return Staying(record, hosts, "it is a container; what is inside moves within it")
        if consent.movable is not Movable.RESTART and not wanted.override:
            return Staying(record, hosts, f"movable is {consent.movable.value}")
        if wanted.max_cost is not None and consent.move_cost > wanted.max_cost:
            return Staying(record, hosts, f"its move_cost is {consent.move_cost}")
        search = Replacement(frozenset(hosts), RequestBudget(MOVES_WORK))
        try:
            placed = lifecycle.check_changeable(record)
            answer = search.chosen(draft, record, placed)
        except Conflict as error:
            return Staying(record, hosts, str(error))
        if isinstance(answer, NoFit):
            return Staying(record, hosts, answer.detail)
        draft.change(answer.joined(placed))
        begins = self._clock() + timedelta(seconds=consent.notice)
        return PlannedMove(record, placed, answer, answer.beyond(placed).size, begins)

    def _announced(
        self, caller: Caller, move: PlannedMove, why: str, *, forced: bool
    ) -> PlannedMove:
        """Record and tell the move. Raises: ConcurrentUpdate, Conflict."""
        begins = move.begins.isoformat(timespec="seconds")
        reason = lifecycle.announced_reason(
            move.old, move.new, why, begins, caller.user_id, forced=forced
        )
        record = self._store.announce(
            move.record, move.new, move.begins, reason, forced=forced, by=caller.initiator
        )
        return replace(move, record=record, announced=True)

    @staticmethod
    def _stopped(plan: MovePlan, records: Mapping[str, AllocationRecord]) -> Collection[str]:
        """Tenants whose servers may not stop, of those that the plan moves to other hosts."""
        return [
            move.allocation.id
            for move in plan.moves
            if move.new_hosts and records[move.allocation.id].consent.movable is Movable.LIVE
        ]

    def _movable(self, fabric_id: str, wanted: RoomRequest) -> dict[str, AllocationRecord]:
        """The allocations that may move, by id."""
        active = every_allocation(self._store, fabric=fabric_id, states={State.ACTIVE})
        return {
            record.id: record
            for record in active
            if not record.container
            and record.parent is None
            and record.constraints is None
            and record.change is None
            and record.announced is None
            and (wanted.override or record.consent.movable is not Movable.NEVER)
            and (wanted.max_cost is None or record.consent.move_cost <= wanted.max_cost)
        }

    def _described(
        self, fabric: FabricRecord, plan: MovePlan, records: dict[str, AllocationRecord]
    ) -> RoomPlan:
        """The plan with the records of its tenants. Raises: ConcurrentUpdate."""
        now, moves = self._clock(), []
        for move in plan.moves:
            record = records[move.allocation.id]
            if record.placed is None:
                raise ConcurrentUpdate(f"allocation {record.id!r} changed meanwhile")
            begins = now + timedelta(seconds=record.consent.notice)
            moves.append(
                PlannedMove(record, record.placed, move.allocation, move.new_hosts, begins)
            )
        return RoomPlan(fabric, plan.placement, tuple(moves), plan.cut_off)
