# SPDX-License-Identifier: Apache-2.0

"""Discrete-event simulation of jobs that arrive, wait in a queue, run on a fabric, and end."""

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from laas_service.domain.admission.queue import Queue
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.constraints import Constraints
from laas_service.domain.moves.moving_queue import MovingQueue
from laas_service.domain.moves.nearest import Nearest
from laas_service.simulator.workload import KIND, Job, Jobs


class Observer(Protocol):
    """Receives the events of a simulation in order; ``now`` is in seconds."""

    def started(self, now: float, job: Job, allocation: Allocation) -> None:
        """The queue has started ``job`` on ``allocation``."""

    def finished(self, now: float, job: Job, allocation: Allocation) -> None:
        """``job`` has ended, and ``allocation`` is released."""

    def moved(self, now: float, move: Nearest, seconds_lost: float) -> None:
        """The queue has moved a running job, which ends so many seconds later."""

    def settled(self, now: float, waiting: int) -> None:
        """All events at ``now`` have been reported; ``waiting`` jobs remain in the queue."""


class Simulation:
    """Submits jobs to an admission queue by their arrival, and ends them by their run time.

    Events at the same time are handled in this order: jobs end, jobs arrive, the queue
    starts jobs. The jobs are sorted by arrival. Every job must have a run time and fit the
    empty fabric.

    The queue holds only as many jobs as one step of it can start or try, so that a long
    queue costs no memory. Other jobs that have arrived are submitted when it gets shorter.

    A job that a ``MovingQueue`` moves to other hosts ends ``move_cost`` seconds later.
    """

    def __init__(self, queue: Queue, jobs: Jobs, observer: Observer, move_cost: float = 0) -> None:
        self.now: float = 0
        """Seconds: the time of the last step."""
        self._queue = queue
        self._moving = queue if isinstance(queue, MovingQueue) else None
        self._observer = observer
        self._move_cost = move_cost
        self._jobs = jobs
        self._job_count = len(jobs)
        self._arrived = 0
        """Number of jobs that have arrived."""
        self._submitted = 0
        """Number of jobs that the queue has been given."""
        self._queued: dict[str, Job] = {}
        """Jobs in the queue by their ids."""
        self._ends: list[tuple[float, int, Job]] = []
        """Heap of (end in seconds, number of the start, job)."""
        self.started = 0
        """Number of jobs that have started."""

    @property
    def finished(self) -> int:
        """Number of jobs that have ended."""
        return self.started - len(self._ends)

    def run(self) -> None:
        """Step until every job has ended."""
        while self.step():
            pass

    def step(self) -> bool:
        """Advance to the next arrival or end and handle it; return False if there is none."""
        arrivals, ends, queue, observer = (
            self._jobs.arrivals,
            self._ends,
            self._queue,
            self._observer,
        )
        more = self._arrived < self._job_count
        if not ends and not more:
            return False
        now = ends[0][0] if ends else math.inf
        if more and arrivals[self._arrived] < now:
            now = arrivals[self._arrived]
        self.now = now
        while ends and ends[0][0] <= now:
            job = heapq.heappop(ends)[2]
            observer.finished(now, job, queue.finish(job.id, now))
        if more and arrivals[self._arrived] <= now:
            self._arrived = bisect_right(arrivals, now, lo=self._arrived)
        if self._submitted < self._arrived:
            self._submit()
        started = queue.step(now)
        if self._moving is not None:
            self._move(now, self._moving.moved())
        for allocation in started:
            self._start(now, allocation)
        observer.settled(now, self._arrived - self.started)
        return True

    def _submit(self) -> None:
        """Submit jobs that have arrived, as many as the queue may start or try in a step.

        A step starts at most one job for each free host, and tries a window of jobs behind the
        head that remains.
        """
        queue = self._queue
        depth = queue.fabric.free_host_count + queue.discipline.window + 1
        first = self._submitted
        self._submitted = min(self._arrived, first + max(0, depth - len(queue)))
        for index in range(first, self._submitted):
            job = self._jobs[index]
            self._queued[job.id] = job
            queue.submit(request_of(job), _run_time(job))

    def _move(self, now: float, moves: Sequence[Nearest]) -> None:
        """Report moves, and let the jobs that lose time by them end later."""
        lost: dict[str, float] = {}
        for move in moves:
            seconds = self._move_cost if move.new_hosts else 0
            lost[move.allocation.id] = lost.get(move.allocation.id, 0) + seconds
            self._observer.moved(now, move, seconds)
        if any(lost.values()):
            self._ends = [
                (end + lost.get(job.id, 0), number, job) for end, number, job in self._ends
            ]
            heapq.heapify(self._ends)

    def _start(self, now: float, allocation: Allocation) -> None:
        job = self._queued.pop(allocation.id)
        self.started += 1
        heapq.heappush(self._ends, (now + _run_time(job), self.started, job))
        self._observer.started(now, job, allocation)


def request_of(job: Job) -> Request:
    """What a job asks for."""
    constraints = None
    if job.domains is not None:
        constraints = Constraints(domains=job.domains, kind=KIND)
    return Request(job.id, job.hosts, constraints=constraints, bandwidth=job.bandwidth)


def _run_time(job: Job) -> float:
    if job.run is None:
        raise ValueError(f"job {job.id} has no run time")
    return job.run
