# SPDX-License-Identifier: Apache-2.0

"""Asks the nodes of Slurm whether a job has left them.

A slurmctld that was killed may have forgotten that it started a job. The job then runs until its
nodes have registered again and Slurm ends it. The nodes themselves know it all the time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from slurm_plugin import slurm
from slurm_plugin.slurm import SlurmFailed
from slurm_plugin.world import Allocation

LOG = logging.getLogger("laas-slurm")

QUIET = 10.0
"""Seconds between the two answers of a node that show that a job has left it. A start that was on
its way to the node arrives within them."""

ASKED_AT_ONCE = 16
"""Allocations whose nodes are asked at one time."""


class Departures:
    """Whether jobs have left the hosts of their allocations; never holds up its caller.

    It keeps nothing that matters: after a crash it asks again.
    """

    def __init__(
        self,
        stop: threading.Event,
        steps: Callable[[str], frozenset[int]] = slurm.steps,
        quiet: float = QUIET,
    ) -> None:
        """``steps`` returns the jobs that a node runs. ``stop`` ends all questions."""
        self._stop = stop
        self._steps = steps
        self._quiet = quiet
        self._pool = ThreadPoolExecutor(ASKED_AT_ONCE, "laas-slurm-nodes")
        self._asked: dict[str, Future[str]] = {}

    def has_left(self, allocation: Allocation, given_up: Collection[str]) -> bool:
        """Whether the job of an allocation has left its hosts; False while that is not known.

        Slurm has ``given_up`` some nodes, or never had them: one of these that does not answer
        counts as left. Call it again in the next round.
        """
        answer = self._asked.get(allocation.id)
        if answer is None:
            asked = self._pool.submit(self._staying, allocation, frozenset(given_up))
            self._asked[allocation.id] = asked
            return False
        if not answer.done():
            return False
        del self._asked[allocation.id]
        if why := answer.result():
            LOG.warning("allocation %s of job %d is kept: %s", allocation.id, allocation.job, why)
        return not why

    def forget_others(self, allocations: Collection[str]) -> None:
        """Drop the answers about allocations that need no question any more."""
        self._asked = {id: answer for id, answer in self._asked.items() if id in allocations}

    def _staying(self, allocation: Allocation, given_up: Collection[str]) -> str:
        """Why the job may still be there; "" if its nodes said twice that it is not."""
        why = self._present(allocation, given_up)
        if not why and self._stop.wait(self._quiet):
            return "laas-slurm ends"
        return why or self._present(allocation, given_up)

    def _present(self, allocation: Allocation, given_up: Collection[str]) -> str:
        for host in allocation.hosts:
            if self._stop.is_set():
                return "laas-slurm ends"
            try:
                if allocation.job in self._steps(host):
                    return f"{host} still runs the job"
            except SlurmFailed as error:
                if host not in given_up:
                    return f"{host} does not say that the job has left it: {error}"
        return ""
