# SPDX-License-Identifier: Apache-2.0

"""The rounds of one fabric: read it in one transaction, decide, carry out, read what changed.

A turn reads the round, lets each of ``decide`` look at it, and carries out what they ask for. What
a step records comes back as the new record of its allocation, so its next step rests on that. When
something else was recorded (a judgement of the ports, of the hosts), the round is read again before
the steps of allocations are decided. A record that was read more than ``FRESH`` seconds ago is read
again before its step; one that changed meanwhile is refused by its version.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from laas_service.app.placement_changes import AnnouncedMove
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord
from laas_service.app.worker.decide import drift, faults, hosts, life, rate_limits
from laas_service.app.worker.fabric_store import FabricStore
from laas_service.app.worker.hooks import Hooks
from laas_service.app.worker.instructions import Steps
from laas_service.app.worker.memory import NOTHING_REMEMBERED, DriftMemory
from laas_service.app.worker.perform import Performer, Ports
from laas_service.app.worker.round import Round, WorkerRules
from laas_service.app.worker.route_publisher import RoutePublisher
from laas_service.domain.tenancy import Kind

LOG = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_SECONDS = 10.0
"""So long a round takes steps before it publishes, and after that, until faults are observed again.

However many allocations have a step then, one publication is for all of them.
"""

PUBLISH_SECONDS = 1.0
"""So long routes that wait when a round begins may wait for steps of other allocations."""

FRESH = 1.0
"""Seconds for which the record of an allocation counts as newly read."""


class Converger:
    """Takes the steps of the allocations of one fabric, one at a time, never two at once.

    ``moves`` as in ``FabricStore``.

    ``LeaseLost``, from ``hooks`` or from the store, ends every method.
    """

    def __init__(
        self,
        store: Store,
        ports: Ports,
        rules: WorkerRules,
        hooks: Hooks,
        fabric: str,
        moves: Mapping[type[Kind], AnnouncedMove],
    ) -> None:
        self._store, self._compute = store, ports.compute
        self._rules, self._hooks, self._fabric = rules, hooks, fabric
        self._reader = FabricStore(store, fabric, rules, ports.constant, hooks, moves)
        self._routes = RoutePublisher(store, ports.subnet_manager, fabric, rules, hooks)
        self._performer = Performer(store, ports, hooks, self._reader, self._routes)
        self._memory = NOTHING_REMEMBERED
        self._read_at = -math.inf

    # -- driving --------------------------------------------------------------

    def run_once(self) -> int:
        """Take steps that are due; returns how many allocations had one.

        First links and hosts are observed: what has failed is replaced in the same round. Steps are
        taken for ``BATCH_SECONDS`` before their routes are published, and for as long afterwards;
        the next round takes the others.

        Raises:
            Unavailable: the store does not answer; nothing is lost.
        """
        round = self._read()
        self._observe(round)
        if self._performer.recorded:
            round = self._read_again()
        idle = self._drive(round, round.due, BATCH_SECONDS)
        # changes that no allocation waits for: a link's state
        if self._routes.has_changed and not round.frozen and (problem := self._routes.publish()):
            LOG.warning("fabric %s: %s", self._fabric, problem)
        self._routes.read_back()
        self._performer.run(faults.return_switches(round))
        return len({record.id for record in round.due} - idle)

    def _read(self) -> Round:
        """A new round: everything is asked again. ``NotFound``, ``Unavailable``."""
        self._routes.begin_round()
        self._reader.begin_round()
        return self._read_again()

    def _read_again(self) -> Round:
        """This round with what was recorded since it began."""
        self._performer.recorded = False
        self._read_at = self._hooks.clock()
        round = self._reader.round()
        self._routes.see(round.fabric)
        return round

    def _observe(self, round: Round) -> None:
        """Look at ports, hosts and rate limits, where it is time, and record what follows."""
        memory, run = self._memory, self._performer.run
        if not self._routes.has_taken_over:
            known, _ = run(drift.take_over(round, memory.drift))
            self._memory = memory = replace(memory, drift=known)
        memory = replace(memory, faults=run(faults.observe(round, memory.faults)))
        if memory.faults.hold_down is not None:
            self._hooks.again(memory.faults.hold_down)
        memory = replace(memory, hosts=run(hosts.observe(round, memory.hosts)))
        self._memory = replace(memory, rate_limits=run(rate_limits.keep(round, memory.rate_limits)))

    # -- comparisons ----------------------------------------------------------

    def prepared(self) -> bool:
        """Whether ``reconcile`` and ``check_drift`` need not wait until all tables are read.

        If not, ask again in a later round: meanwhile they are read, and faults are observed. No
        reading begins while a hold-down is running: on a large fabric it takes longer than that.
        """
        return self._holds_down or self._routes.prepared()

    def reconcile(self) -> list[str]:
        """Compare all that is recorded with all that is observed; see ``decide.drift``."""
        with self._compute.comparison():
            return self._compare(drift.reconcile)

    def check_drift(self) -> list[str]:
        """Compare what costs little to observe; see ``decide.drift``.

        Not while a hold-down is running: the tables of a large fabric take longer to read.
        """
        return [] if self._holds_down else self._compare(drift.check)

    @property
    def _holds_down(self) -> bool:
        return self._memory.faults.hold_down is not None

    def _compare(self, decide: Callable[[Round, DriftMemory], Steps[drift.Found]]) -> list[str]:
        known, findings = self._performer.run(decide(self._read(), self._memory.drift))
        self._memory = replace(self._memory, drift=known)
        return findings

    # -- steps ----------------------------------------------------------------

    def step(self, allocation_id: str) -> None:
        """Take every step of one allocation that can be taken now. ``NotFound``."""
        round = self._read()
        self._drive(round, [self._store.allocations.get(allocation_id)])

    def _drive(
        self, round: Round, records: Iterable[AllocationRecord], seconds: float = math.inf
    ) -> set[str]:
        """Take the steps that change routes, publish once for all of them, then go on.

        Where these steps are slow, the subnet manager programs routes meanwhile: if some waited at
        the beginning, they are published ``PUBLISH_SECONDS`` after the first step, and the others
        afterwards. An allocation that changes its routes several times waits for as many
        publications. After ``seconds`` no further allocation has its turn before the publication,
        or after it. Returns the ids of those without a step to take.
        """
        waiting: list[AllocationRecord] = []
        others: list[AllocationRecord] = []
        idle = set[str]()
        for record in self._within(seconds, records):
            waits = self._performer.run(life.waits_for_routes(round, record))
            (waiting if waits else others).append(record)
        early = self._hooks.clock() + PUBLISH_SECONDS
        for record in self._within(seconds, others):
            done = self._advance(round, record)
            idle |= {record.id} if done.idle else set()
            waiting += [done.waiting] if done.waiting is not None else []
            if waiting and self._hooks.clock() >= early:
                early = math.inf
                self._routes.publish()  # repeated below if it fails
        while waiting:
            problem, still_waiting = self._routes.publish(), []
            if problem is None:
                waiting = [self._performer.run(life.note_standing(r)) for r in waiting]
            for record in self._within(seconds, waiting):
                if problem is None:
                    done = self._advance(round, record)
                    if done.waiting is None:
                        idle |= {record.id} if done.idle else set()
                        continue
                    if done.waiting.generation > record.generation:
                        still_waiting.append(done.waiting)
                        continue
                self._performer.run(life.still_waits(round, record, problem))
            waiting = still_waiting
        return idle

    def _advance(self, round: Round, record: AllocationRecord) -> life.Advanced:
        """Take the steps of one allocation."""
        if self._hooks.clock() - self._read_at > FRESH:
            record = self._store.allocations.newest(record)
        done = self._performer.run(life.advance(round, self._memory, record))
        self._memory = done.memory
        return done

    def _within(self, seconds: float, items: Iterable[T]) -> Iterator[T]:
        """The first item, and those that are asked for within so many seconds from now."""
        end = self._hooks.clock() + seconds
        for item in items:
            yield item
            if self._hooks.clock() >= end:
                return
