# SPDX-License-Identifier: Apache-2.0

"""Discrete-event simulation of jobs that arrive, wait in a queue, run on a fabric, and end."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Protocol

from laas_service.domain.admission.queue import Queue
from laas_service.domain.allocation import Allocation, Request
from laas_service.simulator.workload import Job


class Observer(Protocol):
    """Receives the events of a simulation in order; ``now`` is in seconds."""

    def started(self, now: float, job: Job, allocation: Allocation) -> None:
        """The queue has started ``job`` on ``allocation``."""

    def finished(self, now: float, job: Job, allocation: Allocation) -> None:
        """``job`` has ended, and ``allocation`` is released."""

    def settled(self, now: float, waiting: int) -> None:
        """All events at ``now`` have been reported; ``waiting`` jobs remain in the queue."""


class Simulation:
    """Submits jobs to an admission queue by their arrival, and ends them by their run time.

    Events at the same time are handled in this order: jobs end, jobs arrive, the queue
    starts jobs. Every job must have a run time and fit the empty fabric.
    """

    def __init__(self, queue: Queue, jobs: Iterable[Job], observer: Observer) -> None:
        self.now: float = 0
        """Seconds: the time of the last step."""
        self._queue = queue
        self._observer = observer
        self._jobs = {job.id: job for job in jobs}
        self._arrivals = sorted(self._jobs.values(), key=lambda job: job.arrival)[::-1]
        self._ends: list[tuple[float, int, str]] = []
        """Heap of (end in seconds, number of the start, job id)."""
        self._starts = 0

    def run(self) -> None:
        """Step until every job has ended."""
        while self.step():
            pass

    def step(self) -> bool:
        """Advance to the next arrival or end and handle it; return False if there is none."""
        if not self._ends and not self._arrivals:
            return False
        next_end = self._ends[0][0] if self._ends else float("inf")
        next_arrival = self._arrivals[-1].arrival if self._arrivals else float("inf")
        now = self.now = min(next_end, next_arrival)
        while self._ends and self._ends[0][0] <= now:
            _, _, id = heapq.heappop(self._ends)
            self._observer.finished(now, self._jobs[id], self._queue.finish(id, now))
        while self._arrivals and self._arrivals[-1].arrival <= now:
            job = self._arrivals.pop()
            self._queue.submit(Request(job.id, job.hosts, bandwidth=job.bandwidth), _run_time(job))
        for allocation in self._queue.step(now):
            self._start(now, allocation)
        self._observer.settled(now, len(self._queue))
        return True

    def _start(self, now: float, allocation: Allocation) -> None:
        job = self._jobs[allocation.id]
        self._starts += 1
        heapq.heappush(self._ends, (now + _run_time(job), self._starts, job.id))
        self._observer.started(now, job, allocation)


def _run_time(job: Job) -> float:
    if job.run is None:
        raise ValueError(f"job {job.id} has no run time")
    return job.run
