# SPDX-License-Identifier: Apache-2.0

"""The use cases of moves: how to make room for a request, and what its tenants are told.

A plan moves tenants who consent. It is advice until somebody asks for it to be carried out; then
its first move is announced, and begins when the notice of its tenant is over.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from laas_service.app import lifecycle
from laas_service.app.lifecycle import State
from laas_service.app.lookup import Lookup
from laas_service.app.ports.allocations import (
    AllocationReader,
    PlacementChanges,
    every_allocation,
)
from laas_service.app.ports.fabrics import FabricReader
from laas_service.app.records import AllocationRecord, Caller, FabricRecord
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.constrained import explain_constraints
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.errors import ConcurrentUpdate, InvalidInput
from laas_service.domain.moves.consent import Movable
from laas_service.domain.moves.plan_moves import MOVES_WORK, MovePlan, plan_moves

MOST_MOVES = 4
"""The most tenants that one plan moves."""


class MoveStore(AllocationReader, PlacementChanges, FabricReader, Protocol):
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
        return self._described(fabric, answer, movable)

    def make_room(self, caller: Caller, fabric_id: str, wanted: RoomRequest) -> RoomPlan | NoFit:
        """As ``advise``, and announce the first move; the others follow when it is asked again.

        Raises: as ``advise``; ConcurrentUpdate, Conflict: its tenant changed meanwhile.
        """
        plan = self.advise(fabric_id, wanted)
        if isinstance(plan, NoFit) or not plan.moves:
            return plan
        first, *others = plan.moves
        size = wanted.asked.hosts
        begins = first.begins.isoformat(timespec="seconds")
        reason = lifecycle.announced_reason(first.old, first.new, size, begins, caller.user_id)
        record = self._store.announce(
            first.record, first.new, first.begins, reason, by=caller.initiator
        )
        self._wake()
        told = PlannedMove(
            record, first.old, first.new, first.new_hosts, first.begins, announced=True
        )
        return RoomPlan(plan.fabric, plan.placement, (told, *others), plan.cut_off)

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
