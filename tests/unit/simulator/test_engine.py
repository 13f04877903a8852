# SPDX-License-Identifier: Apache-2.0

"""The simulation starts jobs as a queue does that holds every job that has arrived."""

from __future__ import annotations

import heapq
from itertools import groupby
from random import Random

import pytest

from laas_service.domain.admission.queue import Discipline, Order, Shadow, make_queue
from laas_service.domain.allocation import Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology
from laas_service.simulator.engine import Simulation
from laas_service.simulator.scenario import full_tree
from laas_service.simulator.workload import Job, Jobs

DISCIPLINES = (
    Discipline("fifo"),
    Discipline(window=0),
    Discipline(window=3, order=Order.BIG_FIRST),
    Discipline(shadow=Shadow.END_BEFORE_SHADOW, packing=True),
)


class Journal:
    """An observer that notes all events, and the longest the queue has been."""

    def __init__(self, queue):
        self.events = []
        self.longest = 0
        self._queue = queue

    def started(self, now, job, allocation):
        self.events.append((now, job.id, allocation.groups))

    def finished(self, now, job, allocation):
        self.events.append((now, job.id))

    def settled(self, now, waiting):
        self.events.append((now, waiting))
        self.longest = max(self.longest, len(self._queue))


def submit_everything(queue, jobs, journal):
    """Simulate by submitting each job to the queue as soon as it arrives."""
    known = {job.id: job for job in jobs}
    todo = [(now, list(group)) for now, group in groupby(jobs, lambda job: job.arrival)][::-1]
    ends: list[tuple[float, int, str]] = []
    while todo or ends:
        now = min([at for at, _ in todo[-1:]] + [end for end, _, _ in ends[:1]])
        while ends and ends[0][0] <= now:
            _, _, id = heapq.heappop(ends)
            journal.finished(now, known[id], queue.finish(id, now))
        if todo and todo[-1][0] <= now:
            for job in todo.pop()[1]:
                queue.submit(Request(job.id, job.hosts), job.run)
        for allocation in queue.step(now):
            job = known[allocation.id]
            heapq.heappush(ends, (now + job.run, len(journal.events), job.id))
            journal.started(now, job, allocation)
        journal.settled(now, len(queue))


@pytest.mark.parametrize("discipline", DISCIPLINES, ids=repr)
@pytest.mark.parametrize("span", [0, 2000])
def test_a_short_queue_starts_the_same_jobs(discipline, span):
    rng = Random(7)
    arrivals = sorted(rng.randint(0, span) for _ in range(300))
    jobs = Jobs.of(
        Job(str(n), at, rng.randint(1, 9), rng.randint(1, 99)) for n, at in enumerate(arrivals)
    )

    def simulated(simulate):
        queue = make_queue(Ledger(Topology(full_tree(4))), POLICIES["laas"](), discipline)
        journal = Journal(queue)
        simulate(queue, jobs, journal)
        return journal

    reference = simulated(submit_everything)
    journal = simulated(lambda *given: Simulation(*given).run())
    assert journal.events == reference.events
    assert journal.longest <= 16 + discipline.window + 1 < reference.longest
