# SPDX-License-Identifier: Apache-2.0

"""Moves of running jobs in a simulation: which may move, what they lose, what was moved."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from laas_service.domain.admission.queue import Waiting
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.moves.plan_moves import MovesToFit, plan_moves
from laas_service.domain.moves.repack import repack
from laas_service.domain.policies.base import Policy
from laas_service.domain.search.budget import WORK
from laas_service.simulator.workload import Job

WORK_OF_A_PLAN = 4 * WORK
"""Budget of the search for one plan, in units of ``SearchBudget``."""

WORTH = 0.5
"""A move is worth it if the moved job loses at most this share of the host-seconds that the
started job gains. Source: Adaptive Fit's rule that a move must gain enough (StarCube, Springer
2016, chapter 2)."""


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """How a simulation moves running jobs."""

    most: int | None = 0
    """At most so many jobs move for each job that starts; 0 moves none. With None all that may move
    are placed again (``repack``) if a job does not fit."""
    movable: float = 1.0
    """The share of jobs that may move, 0..1."""
    cost: float = 0.0
    """Seconds by which a job that moves to other hosts ends later."""
    links_only: bool = False
    """Whether jobs keep their hosts and exchange links alone."""


@dataclass(slots=True)
class MovePlanner:
    """Plans moves with the settings of a run, and measures the time of each plan."""

    policy: Policy
    settings: MoveSettings
    seed: int
    clock: Callable[[], int]
    """Returns nanoseconds."""
    cut_off: int = 0
    """Plans whose search stopped at its budget."""
    times: list[int] = field(default_factory=list)
    """Nanoseconds of each plan."""

    def __call__(self, fabric: Ledger, waiting: Waiting) -> MovesToFit | NoFit:
        gain = waiting.request.hosts * waiting.duration
        start = self.clock()
        plan = self._plan(fabric, waiting.request, lambda tenant: self.may_move(tenant, gain))
        self.times.append(self.clock() - start)
        self.cut_off += plan.cut_off
        return plan

    def _plan(
        self, fabric: Ledger, request: Request, movable: Callable[[Allocation], bool]
    ) -> MovesToFit | NoFit:
        settings = self.settings
        if settings.most is None:
            return repack(self.policy, fabric, request, movable)
        return plan_moves(
            self.policy,
            fabric,
            request,
            settings.most,
            movable,
            WORK_OF_A_PLAN,
            thorough=False,
            links_only=settings.links_only,
        )

    def may_move(self, tenant: Allocation, gain: float) -> bool:
        """Whether a job is one of those that may move, and loses little beside ``gain``."""
        settings = self.settings
        if tenant.size * settings.cost > WORTH * gain:
            return False
        if settings.movable >= 1:
            return True
        draw = Random(f"movable/{self.seed}/{tenant.id}").random()  # noqa: S311 - a simulation
        return draw < settings.movable

    @property
    def calls(self) -> int:
        return len(self.times)

    def plan_us(self) -> dict[str, float]:
        """Microseconds per plan: mean, 99th percentile and maximum; 0 without plans."""
        times = sorted(self.times) or [0]
        values = {
            "mean": sum(times) / len(times),
            "p99": times[min(len(times) - 1, len(times) * 99 // 100)],
            "max": times[-1],
        }
        return {name: round(value / 1000, 3) for name, value in values.items()}


@dataclass(slots=True)
class MoveCounts:
    """What was moved in a run, and what the moved jobs lost by it."""

    moves: int = 0
    links_only: int = 0
    """Moves that exchanged links alone."""
    hosts: int = 0
    """Hosts that jobs newly got."""
    placed: int = 0
    """Hosts of all jobs that started."""
    slowdowns: float = 0
    """The sum of the slowdowns of moved jobs that have ended."""
    ended: int = 0
    """The number of these jobs."""
    lost: dict[str, float] = field(default_factory=dict)
    """Seconds lost by each running job that was moved to other hosts."""

    def moved(self, move: Nearest, seconds: float) -> None:
        self.moves += 1
        self.hosts += move.new_hosts
        if move.new_hosts:
            id = move.allocation.id
            self.lost[id] = self.lost.get(id, 0) + seconds
        else:
            self.links_only += 1

    def finished(self, job: Job) -> None:
        lost = self.lost.pop(job.id, None)
        if lost is not None and job.run:
            self.ended += 1
            self.slowdowns += (job.run + lost) / job.run

    def summary(self) -> dict[str, Any]:
        """By their names in JSON; ``moved_slowdown`` is the mean of (run time + loss) / run time
        over the jobs that were moved to other hosts."""
        return {
            "moves": self.moves,
            "moves_of_links_only": self.links_only,
            "moved_hosts": self.hosts,
            "hosts_moved_per_host_placed": round(self.hosts / max(1, self.placed), 4),
            "moved_jobs": self.ended,
            "moved_slowdown": round(self.slowdowns / self.ended, 4) if self.ended else None,
        }
