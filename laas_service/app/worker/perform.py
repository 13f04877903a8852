# SPDX-License-Identifier: Apache-2.0

"""Carries out what decisions ask for: the only holder of compute, subnet manager and lease.

Every effect outside has a name, begins with a check of the lease, and is taken for the user who
asked for it. Answers and errors go back to the decision.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, TypeVar, assert_never

from laas_service.app.placement_changes import begin_announced_move, begin_link_repair
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.limits import SendingLimits
from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import PortMarks, SubnetManager
from laas_service.app.records import AllocationRecord
from laas_service.app.worker import instructions as do
from laas_service.app.worker.instructions import Instruction, Steps
from laas_service.app.worker.round import Outside, RoutesSeen, WorkerRules
from laas_service.app.worker.route_publisher import RoutePublisher
from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.errors import LeaseLost, NotFound
from laas_service.messages import Initiator

LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ports:
    """What a worker acts on, outside of the database."""

    compute: Compute
    subnet_manager: SubnetManager
    limits: SendingLimits | None = None
    """What keeps servers of class ``shared`` to what they may send; None: nothing does."""
    marks: PortMarks | None = None
    """Isolates the ports of links in quarantine; None: the manager does not."""

    @property
    def constant(self) -> Outside:
        """What is always true of them."""
        by = None if self.limits is None else self.limits.name
        marks = self.marks is not None
        scripted, claims = self.compute.scripted, self.compute.claims_slots
        return Outside(scripted=scripted, claims_slots=claims, limited_by=by, marks_ports=marks)


ActingFor = Callable[[Initiator | None], AbstractContextManager[None]]
"""A context in which every log line names this initiator; None names nobody."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Time, chance, and what is called around each effect outside."""

    now: Callable[[], datetime]
    chance: Random
    clock: Callable[[], float]
    """Measures seconds."""
    at: Callable[[str], None] = lambda step: None
    """Called with a step's name before and after each effect (for fault injection)."""
    before_effect: Callable[[], None] = lambda: None
    """Called before each effect; raises ``LeaseLost`` if the effect must not happen."""
    acting_for: ActingFor = lambda initiator: nullcontext()
    again: Callable[[float], None] = lambda seconds: None
    """Called with the seconds after which a hold-down ends: the next round should begin then."""


class Performer:
    """Carries out the decisions of one fabric, one instruction at a time."""

    def __init__(
        self,
        store: Store,
        ports: Ports,
        hooks: Hooks,
        rules: WorkerRules,
        fabric: str,
        routes: RoutePublisher,
    ) -> None:
        self._store, self._hooks, self._rules, self._fabric = store, hooks, rules, fabric
        self._compute, self._subnet_manager = ports.compute, ports.subnet_manager
        self._limits, self._marks = ports.limits, ports.marks
        self._routes = routes
        self._hosts: HostMemory | None = None  # as read in this round
        self.recorded = False
        """Something was recorded since the round was read that a round has."""

    def begin_round(self) -> None:
        """From now on the world is read anew."""
        self._routes.begin_round()
        self._hosts, self.recorded = None, False

    def run(self, decision: Steps[T]) -> T:
        """Carry out a decision; returns its result.

        Errors of instructions are raised in the decision. Raises: LeaseLost, and what the decision
        does not deal with.
        """
        initiator: Initiator | None = None
        try:
            instruction = next(decision)
            while True:
                answer = None
                try:
                    if isinstance(instruction, do.ActFor):
                        initiator = instruction.initiator
                    elif initiator is None:
                        answer = self._answer(instruction)
                    else:
                        with self._hooks.acting_for(initiator):
                            answer = self._answer(instruction)
                except LeaseLost:
                    decision.close()
                    raise
                except Exception as error:
                    instruction = decision.throw(error)
                else:
                    instruction = decision.send(answer)
        except StopIteration as ended:
            result: T = ended.value
            return result

    def effect(self, name: str, act: Callable[[], T]) -> T:
        """Take an effect outside, with its name; raises ``LeaseLost`` if it must not happen."""
        self._hooks.before_effect()
        self._hooks.at(f"before {name}")
        answer = act()
        self._hooks.at(f"after {name}")
        return answer

    def _answer(self, instruction: Instruction) -> Any:
        """Carry out one instruction; an error of it is raised. Raises: LaasError."""
        if isinstance(instruction, do.Question):
            return self._ask(instruction)
        if isinstance(instruction, do.Effect):
            return self._act(instruction)
        if isinstance(instruction, do.Tell):
            seen = self._store.observations
            note = seen.note_repaired if instruction.repaired else seen.note_drift
            return note(self._fabric, instruction.kind, instruction.text)
        if isinstance(instruction, do.Log):
            return LOG.log(instruction.level, "%s", instruction.text, exc_info=instruction.error)
        assert not isinstance(instruction, do.ActFor)
        self.recorded = self.recorded or not isinstance(instruction, do.QUIET)
        if isinstance(instruction, do.ROUTED):
            self._routes.changed_since()
        return self._record(instruction)

    # -- questions ----------------------------------------------------------------------

    def _ask(self, question: do.Question) -> Any:
        store, compute, fabric = self._store, self._compute, self._fabric
        match question:
            case do.Ask.TIME:
                return self._hooks.now()
            case do.Ask.SECONDS:
                return self._hooks.clock()
            case do.AskAllocation(id):
                return self._allocation(id)
            case do.AskAllocations(states):
                return list(every_allocation(store.allocations, fabric=fabric, states=states))
            case do.Ask.OTHER_HOSTS:
                return self._other_hosts()
            case do.Ask.LEDGER:
                return store.fabrics.ledger(fabric)[0]
            case do.Ask.APPLIED:
                return self._routes.applied()
            case do.AskPublished(generation):
                return self._routes.can_be_confirmed(generation)
            case do.AskSpent(generation):
                return self._routes.spent(generation)
            case do.Ask.HOST_MEMORY:
                return self._host_memory()
            case do.Ask.ROUTES:
                return self._routes_seen()
            case do.Ask.READING:
                return self._subnet_manager.reading(fabric)
            case do.Ask.COUNTERS:
                return self._subnet_manager.counters(fabric)
            case do.Ask.EXCESSES:
                return store.port_counters.findings(fabric, errors_only=True)
            case do.AskMarks(wanted):
                return self._marks is not None and self._marks.marks_differ(fabric, wanted)
            case do.Ask.HANDED_OVER:
                return compute.handed_over()
            case do.Ask.AGGREGATES:
                return compute.observed()
            case do.AskHosts(hosts):
                return compute.look(hosts)
            case do.AskNearest(hosts):
                return compute.nearest(hosts)
            case do.AskOccupants(hosts):
                return compute.occupants(hosts)
            case do.AskSlotHolders(handover):
                return compute.slot_holders(handover)
            case do.AskRunning(moves):
                return compute.running(moves)
            case _:
                assert_never(question)

    def _allocation(self, id: str) -> AllocationRecord | None:
        try:
            return self._store.allocations.get(id)
        except NotFound:
            return None

    def _other_hosts(self) -> frozenset[str]:
        others = (fabric for fabric in self._store.fabrics.all() if fabric.id != self._fabric)
        return frozenset(name for fabric in others for name in fabric.inventory.host_numbers)

    def _routes_seen(self) -> RoutesSeen:
        applied = self._routes.applied()
        ever = self._routes.runs_newest() or self._routes.ever_applied()
        return RoutesSeen(applied, self._routes.has_lost(applied), ever)

    def _host_memory(self) -> HostMemory:
        """Read once a round."""
        if self._hosts is None:
            self._hosts = self._store.compute_hosts.memory(self._fabric)
        return self._hosts

    # -- effects ------------------------------------------------------------------------

    def _act(self, effect: do.Effect) -> Any:
        compute = self._compute
        match effect:
            case do.Publish():
                return self._routes.publish()
            case do.HandOver(handover, ready):
                return self.effect("hand over", lambda: compute.hand_over(handover, ready))
            case do.TakeBack(handover, force):
                forced = {"force": True} if force else {}
                return self.effect("take back", lambda: compute.take_back(handover, **forced))
            case do.Fence(id):
                return self.effect("fence", lambda: compute.fence(id))
            case do.Pool(hosts):
                return self.effect("pool", lambda: compute.pool(hosts))
            case do.Close(hosts, closed):
                return self.effect("close", lambda: compute.close(hosts, closed))
            case do.StopServer(server):
                return self.effect("stop", lambda: compute.stop(server))
            case do.MoveServers(moves):
                return self.effect("move servers", lambda: compute.move_servers(moves))
            case do.Settle(slots):
                return self.effect("settle slots", lambda: compute.settle_slots(slots))
            case do.Limit(id, project, bandwidth, servers):
                assert self._limits is not None
                limit = partial(self._limits.limit, id, project, bandwidth, servers)
                return self.effect("limit", limit)
            case do.ForgetLimits(id):
                assert self._limits is not None
                return self.effect("forget limits", partial(self._limits.forget, id))
            case do.MarkPorts(wanted):
                assert self._marks is not None
                mark = partial(self._marks.mark_ports, self._fabric, wanted)
                return self.effect("mark ports", mark)
            case _:
                assert_never(effect)

    # -- records ------------------------------------------------------------------------

    def _record(self, kind: do.RecordKind) -> Any:
        store, fabric = self._store, self._fabric
        match kind:
            case do.Record(record, state, reason, error, by, seconds):
                return store.allocations.transition(
                    record, state, reason, error=error, confirmed_by=by, seconds=seconds or {}
                )
            case do.Wait(record, why):
                return self.postpone(record, why)
            case do.HandBack(record, reason, seconds):
                return store.allocations.hand_back(record, reason, seconds=seconds or {})
            case do.Free(record, reason, confirmed_by, seconds):
                return store.allocations.free(
                    record, reason, confirmed_by=confirmed_by, seconds=seconds
                )
            case do.Requeue(record, reason, by):
                return store.allocations.requeue(record, reason, confirmed_by=by)
            case do.Proceed(record, reason, by):
                return store.placement_changes.proceed(record, reason, confirmed_by=by)
            case do.TurnBack(record, reason):
                return store.placement_changes.turn_back(record, reason)
            case do.RepairLinks(record):
                return begin_link_repair(store.placement_changes, record)
            case do.BeginMove(record):
                settles = self._compute.claims_slots
                return begin_announced_move(store.placement_changes, record, settles=settles)
            case do.RecordLimits(record, by, reason):
                return store.allocations.note_limits(record, by, reason)
            case do.TakeOver():
                return self._routes.take_over()
            case do.RecordLoss(applied):
                return self._routes.record_loss(applied)
            case do.RecordFaults():
                return store.components.note_faults(fabric)
            case do.RecordComparison():
                return store.observations.note_compared(fabric)
            case do.RecordCounters(readings):
                return store.port_counters.record(fabric, readings)
            case do.AccountCounters(account):
                return store.port_counters.account(fabric, account)
            case do.JudgeReading(reading, judge, seconds, known):
                return store.faults.judged(fabric, reading, judge, seconds, known)
            case do.JudgeHosts(judge):
                return self._judge_hosts(judge)
            case _:
                assert_never(kind)

    def _judge_hosts(
        self, judge: Callable[[HostMemory], HostMemory]
    ) -> tuple[HostMemory, HostMemory]:
        """The memory of the hosts before and after; written only if it changes."""
        before = self._host_memory()
        if judge(before) != before:
            self._hosts = self._store.compute_hosts.judged(self._fabric, judge)
        return before, self._host_memory()

    def postpone(self, record: AllocationRecord, why: str) -> None:
        """Record why an allocation waits, and when it is tried again."""
        with self._hooks.acting_for(record.initiator):
            LOG.warning("allocation %s (%s): %s", record.id, record.state.value, why)
        pause = self._rules.pace.pause(record.failures, self._hooks.chance)
        until = self._hooks.now() + pause
        self._store.allocations.postpone(record.id, until, why, version=record.version)
