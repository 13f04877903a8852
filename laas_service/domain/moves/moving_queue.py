# SPDX-License-Identifier: Apache-2.0

"""The admission queue that moves tenants: a request that does not fit may fit after moves.

Moves are made only for a request that starts at once. A backfilled request may not delay the
head by them either: the head must still fit at its shadow time with the moved tenants where
they are then. It may need moves at that time: a request may overtake the head if the planner
finds moves after which the head fits beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from laas_service.domain.admission.queue import (
    Accept,
    Discipline,
    EasyQueue,
    Queue,
    Reservation,
    Started,
    Waiting,
)
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.moves.plan_moves import MovesToFit
from laas_service.domain.policies.base import Policy

MovePlanner = Callable[[Ledger, Waiting], MovesToFit | NoFit]
"""Plans the moves for a waiting request, which does not fit as it is."""


class MovingQueue(EasyQueue):
    """EASY backfilling or FIFO, with moves of tenants that let a request start.

    ``seconds_lost`` is the time by which a moved tenant ends later, in the unit of durations;
    a tenant whose links alone are exchanged loses nothing.
    """

    moves: ClassVar[bool] = True

    def __init__(
        self,
        fabric: Ledger,
        policy: Policy,
        discipline: Discipline,
        planner: MovePlanner,
        seconds_lost: float = 0,
        ends: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(fabric, policy, discipline, ends)
        self._planner = planner
        self._seconds_lost = seconds_lost
        self._hopeless: float = float("inf")
        """The smallest size for which no plan was found since the last release or move."""
        self._moved: list[Nearest] = []

    def moved(self) -> list[Nearest]:
        """The moves made since this was last asked, in order."""
        moved, self._moved = self._moved, []
        return moved

    def finish(self, allocation_id: str, now: float) -> Allocation:
        self._hopeless = float("inf")
        return super().finish(allocation_id, now)

    def step(self, now: float) -> list[Allocation]:
        if self._future.note_overruns(now):
            self._reserved = None
        started = Queue.step(self, now)  # moves may let the head start before its reservation
        return started if self.discipline.kind == "fifo" else started + self._backfill(now)

    def _admit(self, waiting: Waiting, now: float, accept: Accept | None = None) -> Started:
        allocation = super()._admit(waiting, now, accept)
        hosts = waiting.request.hosts
        if (
            allocation is not None
            or hosts > self.fabric.free_host_count
            or hosts >= self._hopeless
            or self._refusals.vetoed(waiting.request)
        ):
            return allocation
        plan = self._planner(self.fabric, waiting)
        if isinstance(plan, NoFit):
            self._hopeless = min(self._hopeless, hosts)
            return None
        if not plan.moves or not self._head_fits_after(plan, waiting, now):
            return None
        self._make(plan, waiting, now)
        return plan.placement

    def _make(self, plan: MovesToFit, waiting: Waiting, now: float) -> None:
        """Move the tenants and start the request."""
        if plan.at_once:
            for move in plan.moves:
                self.fabric.release(move.allocation.id)
            for move in plan.moves:
                self.fabric.claim(move.allocation)
        else:
            for move in plan.moves:
                self.fabric.change(move.allocation)
        ends = [self._future.forget(move.allocation.id) for move in plan.moves]
        for move, end in zip(plan.moves, ends, strict=True):
            self._future.start(move.allocation, end + self._lost(move))
        self.fabric.claim(plan.placement)
        self._future.start(plan.placement, now + waiting.duration)
        self._moved += plan.moves
        self._forget_refusals()

    @property
    def _smallest_refused(self) -> float:
        """What does not fit as it is may fit after a move."""
        return self._hopeless

    def _forget_refusals(self) -> None:
        """Moves free hosts and links: what was refused or vetoed may fit now."""
        self._hopeless = float("inf")
        self._refusals = type(self._refusals)(self.policy.monotone)
        if self._vetoes is not None:
            self._vetoes.forget()

    def _lost(self, move: Nearest) -> float:
        return self._seconds_lost if move.new_hosts else 0

    def _head_fits_after(self, plan: MovesToFit, waiting: Waiting, now: float) -> bool:
        """Whether the head keeps its reservation beside the request and the moved tenants."""
        reservation = self.reservation
        if reservation is None or waiting is self._waiting[0]:
            return True
        future = self._future.fabric
        with future.trial():
            self._move_in(future, plan.moves)
            if now + waiting.duration > self._future.time:
                future.claim(plan.placement)
            answer = self._head_at_shadow(future)
        if isinstance(answer, NoFit):
            return False
        self._reserved = (self._waiting[0], Reservation(reservation.time, answer))
        return True

    def _head_at_shadow(self, future: Ledger) -> Allocation | NoFit:
        """As without moves; if that does not fit, what the head has after moves at that time.

        The answer includes the new places of the tenants moved.
        """
        head = self._waiting[0]
        answer = super()._head_at_shadow(future)
        if isinstance(answer, Allocation) or head.request.hosts > future.free_host_count:
            return answer
        plan = self._planner(future, head)
        if isinstance(plan, NoFit):
            return plan
        needed = plan.placement
        for move in plan.moves:
            needed = needed.joined(move.allocation)
        return needed

    def _move_in(self, future: Ledger, moves: Sequence[Nearest]) -> None:
        """The tenants at the shadow time, at their new places, those delayed beyond it too."""
        for move in moves:
            if move.allocation.id in future.allocations:
                future.release(move.allocation.id)
        for move in moves:
            if self._future.end_of(move.allocation.id) + self._lost(move) > self._future.time:
                future.claim(move.allocation)
