# SPDX-License-Identifier: Apache-2.0

"""Drives Nova and the subnet manager towards what is recorded, one safe step at a time.

Level-triggered: every round starts from the record and from what is observed, so any step can
be repeated, at any time, after any crash. ``app.lifecycle`` decides which step is next. The
order of the steps keeps the promises:

* allocate: routes confirmed, then hosts handed over, then ``active``;
* release: hosts fenced and empty and taken back, then routes withdrawn and
  confirmed, then the claims freed;
* a container: no project uses its hosts, so they stay in the pool; allocations inside are
  converged like any other;
* forced release: hosts fenced, then the network cut and confirmed, then hosts
  taken back when they are empty, then the claims freed;
* a change of slots: both claimed where something is given up; the new slots set in compute, servers
  beyond them gone or moved, one after the other, then the old claims freed;
* a change of placement (a repair, a resize): both placements claimed; the new routes laid
  beside the old ones and confirmed, then traffic switched and confirmed, then new hosts handed
  over, then old hosts taken back and empty (the service moves their servers where the owner
  consents), then the old routes withdrawn and confirmed, then the old claims freed. Where no links
  join old and new hosts, servers on the old ones stop first, and start when all have left.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NoReturn, TypeVar

from laas_service.app import lifecycle
from laas_service.app.handovers import handover_of, host_names, is_in_compute, slots_by_name
from laas_service.app.lifecycle import Action, State
from laas_service.app.placement_changes import begin_announced_move, begin_link_repair
from laas_service.app.ports.compute import (
    NOTHING_MOVED,
    MoveProgress,
    MoveStage,
    ServerMoves,
    SlotMoves,
)
from laas_service.app.ports.limits import Limited
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, FabricRecord
from laas_service.app.worker.decide import drift, faults, hosts, limits
from laas_service.app.worker.instructions import Steps
from laas_service.app.worker.memory import NOTHING_REMEMBERED, DriftMemory
from laas_service.app.worker.perform import Hooks, Performer, Ports
from laas_service.app.worker.round import Round, WorkerRules
from laas_service.app.worker.route_publisher import RoutePublisher
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    Forbidden,
    HostsBusy,
    LaasError,
    LeaseLost,
)
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.faults.observation import Mode
from laas_service.domain.inventory import Inventory
from laas_service.domain.wording import listed
from laas_service.messages import Applied, ConfirmedBy, Span

LOG = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_SECONDS = 10.0
"""So long a round takes steps before it publishes, and after that, until faults are observed again.

However many allocations have a step then, one publication is for all of them.
"""

PUBLISH_SECONDS = 1.0
"""So long routes that wait when a round begins may wait for steps of other allocations."""


class Converger:
    """Takes the steps of the allocations of one fabric, one at a time, never two at once.

    A step that fails with an unexpected error (a bug, or an answer that makes no sense) is tried
    ``park_after`` times; then its allocation is parked in ``error``, and the others go on.
    ``LeaseLost``, from ``hooks`` or from the store, ends every method. Every step of an allocation
    is taken inside ``acting_for`` of the user who asked for it.
    """

    def __init__(
        self, store: Store, ports: Ports, rules: WorkerRules, hooks: Hooks, fabric: str
    ) -> None:
        self._store, self._compute = store, ports.compute
        self._rules, self._hooks, self._fabric = rules, hooks, fabric
        self._outside = ports.constant
        self._clock, self._now, self._acting_for = hooks.clock, hooks.now, hooks.acting_for
        self._move_window = timedelta(seconds=rules.move_window)
        self._steps: dict[Action, Callable[[AllocationRecord], AllocationRecord]] = {
            Action.HAND_OVER: self._hand_over,
            Action.TAKE_BACK: self._take_back,
            Action.CUT_OFF: self._cut_off,
            Action.FREE: self._free,
            Action.REQUEUE: self._requeue,
            Action.REPAIR: self._repair_failed_links,
            Action.PROCEED: self._proceed,
            Action.OPEN: self._open,
            Action.GIVE_BACK: self._give_back,
            Action.MOVE: self._move,
            Action.STOP: self._stop,
            Action.SETTLE: self._settle_slots,
        }
        self._routes = RoutePublisher(
            store,
            ports.subnet_manager,
            now=hooks.now,
            apply_timeout=rules.pace.apply_timeout,
            effect=self._effect,
            frozen=self._is_frozen,
            clock=hooks.clock,
        )
        self._performer = Performer(store, ports, hooks, rules, fabric, self._routes)
        self._memory = NOTHING_REMEMBERED
        self._cabling: tuple[Inventory, Cabling] | None = None
        self._idle: set[str] = set()  # due, without a step to take: no reason for another round

    # -- driving --------------------------------------------------------------

    def run_once(self) -> int:
        """Take steps that are due; returns how many allocations had one.

        First links and hosts are observed: what has failed is replaced in the same round. Steps are
        taken for ``BATCH_SECONDS`` before their routes are published, and for as long afterwards;
        the next round takes the others.

        Raises:
            Unavailable: the store does not answer; nothing is lost.
        """
        self._routes.begin_round()
        self._observe()
        due = self._store.allocations.due(
            self._now(),
            longest=timedelta(seconds=self._rules.pace.last),
            faulty=self._rules.repair_links,
            fabric=self._fabric,
        )
        self._idle.clear()
        self._drive(due, BATCH_SECONDS)
        fabric = self._store.fabrics.get(self._fabric)
        # changes that no allocation waits for: a link's state
        changed = self._routes.has_changed(fabric) and not self._is_frozen(fabric.id)
        if changed and (problem := self._routes.publish(fabric.id)):
            LOG.warning("fabric %s: %s", fabric.id, problem)
        self._routes.read_back(fabric.id)
        self._return_switches(fabric)
        return len(set(due) - self._idle)

    def _read(self) -> Round:
        """The round as it is now. ``NotFound``, ``Unavailable``."""
        fabric = self._store.fabrics.get(self._fabric)
        seen = self._store.faults.observation(self._fabric)
        return Round(
            now=self._now(),
            fabric=fabric,
            observation=seen,
            outside=self._outside,
            rules=self._rules,
        )

    def _observe(self) -> None:
        """Look at ports, hosts and limits, where it is time, and record what follows."""
        round, memory, run = self._read(), self._memory, self._performer.run
        if not self._routes.has_taken_over(self._fabric):
            found, _ = run(drift.take_over(round, memory.drift))
            memory = replace(memory, drift=found)
        seen = run(faults.observe(round, self._cabling_of(round.fabric), memory.excesses))
        if seen.hold_down is not None:
            self._hooks.again(seen.hold_down)
        held = seen.hold_down is not None
        memory = replace(memory, excesses=seen.excesses, holds_down=held)
        memory = replace(memory, hosts=run(hosts.observe(round, memory.hosts)))
        self._memory = replace(memory, limits=run(limits.keep(round, memory.limits)))

    def _cabling_of(self, fabric: FabricRecord) -> Cabling:
        """The cabling of the fabric, made once for each layout."""
        if self._cabling is None or self._cabling[0] is not fabric.inventory:
            self._cabling = fabric.inventory, Cabling(fabric.inventory)
        return self._cabling[1]

    def _return_switches(self, fabric: FabricRecord) -> None:
        """Make repaired switches usable if they have the newest routes."""
        repaired = self._store.faults.observation(fabric.id).repaired
        if repaired and self._routes.applied(fabric.id).generation == fabric.routes_generation:
            returned = self._routes.compared(fabric, repaired)
            if returned:
                self._store.components.return_switches(fabric.id, returned)

    def step(self, allocation_id: str) -> None:
        """Take every step of one allocation that can be taken now. ``NotFound``."""
        self._drive([self._store.allocations.get(allocation_id).id])

    def prepared(self) -> bool:
        """Whether ``reconcile`` and ``check_drift`` need not wait until all tables are read.

        If not, ask again in a later round: meanwhile they are read, and faults are observed. No
        reading begins while a hold-down is running: on a large fabric it takes longer than that.
        """
        return self._memory.holds_down or self._routes.prepared(self._fabric)

    def reconcile(self) -> list[str]:
        """Compare all that is recorded with all that is observed; see ``decide.drift``."""
        self._routes.begin_round()
        with self._compute.comparison():
            return self._compare(drift.reconcile)

    def check_drift(self) -> list[str]:
        """Compare what costs little to observe; see ``decide.drift``.

        Not while a hold-down is running: the tables of a large fabric take longer to read.
        """
        if self._memory.holds_down:
            return []
        self._routes.begin_round()
        return self._compare(drift.check)

    def _compare(self, decide: Callable[[Round, DriftMemory], Steps[drift.Found]]) -> list[str]:
        known, findings = self._performer.run(decide(self._read(), self._memory.drift))
        self._memory = replace(self._memory, drift=known)
        return findings

    def _drive(self, ids: Iterable[str], seconds: float = math.inf) -> None:
        """Take the steps that change routes, publish once for all of them, then go on.

        Where these steps are slow, the subnet manager programs routes meanwhile: those that wait
        ``PUBLISH_SECONDS`` after the first step are published at once, and the others afterwards.
        An allocation that changes its routes several times waits for as many publications. After
        ``seconds`` no further allocation has its turn before the publication, or after it.
        """
        self._routes.begin_round()
        waiting, others = self._waiting_first(self._within(seconds, ids))
        early = self._clock() + PUBLISH_SECONDS
        for id in self._within(seconds, others):
            if record := self._advance(id):
                waiting.append(record)
            if waiting and self._clock() >= early:
                early = math.inf
                for fabric in {record.fabric for record in waiting}:
                    self._routes.publish(fabric)  # repeated below if it fails
        while waiting:
            problems = {
                fabric: self._routes.publish(fabric)
                for fabric in {record.fabric for record in waiting}
            }
            still_waiting = []
            for record in self._within(seconds, waiting):
                problem = problems[record.fabric]
                if problem is None:
                    advanced = self._advance(record.id)
                    if advanced is None:
                        continue
                    if advanced.generation > record.generation:
                        still_waiting.append(advanced)
                        continue
                    problem = self._awaited(record)
                self._postpone(record, problem)
            waiting = still_waiting

    def _waiting_first(self, ids: Iterable[str]) -> tuple[list[AllocationRecord], list[str]]:
        """The records of those that wait for their routes, and the ids that may have a step."""
        waiting, others = [], []
        for id in ids:
            record = self._store.allocations.get(id)
            if self._may_have_step(record):
                others.append(id)
            else:
                waiting.append(record)
        return waiting, others

    def _may_have_step(self, record: AllocationRecord) -> bool:
        """False only if it waits for its routes."""
        try:
            if self._unusable(record):
                return True
            return self._next_action(record) is not Action.PUBLISH
        except LeaseLost:
            raise
        except Exception:  # its step meets the error again, and deals with it
            return True

    def _within(self, seconds: float, items: Iterable[T]) -> Iterator[T]:
        """The first item, and those that are asked for within so many seconds from now."""
        end = self._clock() + seconds
        for item in items:
            yield item
            if self._clock() >= end:
                return

    def _advance(self, id: str) -> AllocationRecord | None:
        """Take steps until none is left (None), one fails (None), or it waits for its routes.

        In the last case its record is returned.
        """
        record = self._store.allocations.get(id)
        with self._acting_for(record.initiator):
            return self._advance_from(record)

    def _advance_from(self, record: AllocationRecord) -> AllocationRecord | None:
        first, id = record, record.id
        try:
            while True:
                if unusable := self._unusable(record):
                    record = self._give_up(record, unusable)
                    continue
                if turned_back := self._keep_stopped(record):
                    record = turned_back
                    continue
                action = self._next_action(record)
                if action is Action.NOTHING:
                    self._idle |= {id} if record is first else set()
                    return None
                if action is Action.PUBLISH:
                    return record
                record = self._steps[action](record)
        except ConcurrentUpdate:
            LOG.info("allocation %s changed meanwhile; its next step starts anew", id)
        except LeaseLost:
            raise
        except LaasError as error:
            if record is first or lifecycle.has_step_now(record):
                self._postpone(record, str(error))
            else:  # its last step is done, and whether there is another one could not be read
                LOG.warning("allocation %s (%s): %s", id, record.state.value, error)
        except Exception as error:
            LOG.exception("allocation %s: unexpected error", id)
            self._retry_or_park(record, f"unexpected {type(error).__name__}: {error}")
        return None

    def _next_action(self, record: AllocationRecord) -> Action:
        confirmed = False
        published = self._routes.can_be_confirmed(record.fabric, record.generation)
        if lifecycle.awaits_routes(record) and published:
            applied = self._routes.applied(record.fabric)
            confirmed = lifecycle.confirmed(record, applied.generation)
            confirmed = confirmed and not self._silent_switches(record, applied)
        frozen = self._is_frozen(record.fabric)
        repairs = self._rules.repair_links and not frozen
        now = None if frozen else self._now()
        return lifecycle.next_action(record, confirmed, repair_links=repairs, now=now)

    def _silent_switches(self, record: AllocationRecord, applied: Applied) -> list[str]:
        """Names of the switches whose silence keeps the awaited routes from being confirmed.

        A silent switch may forward by old tables. Nobody begins to use a link of it; a link that
        observation withholds may be freed, as nobody new gets it.
        """
        changing = lifecycle.awaited_change(record)
        if not applied.unconfirmed or changing is None:
            return []
        fabric, (ledger, _) = (
            self._store.fabrics.get(record.fabric),
            self._store.fabrics.ledger(record.fabric),
        )
        harmless = set(ledger.failed_links)
        if lifecycle.frees(record):
            harmless |= ledger.drained_links
        cables = fabric.inventory.cable_of_link
        links = set(changing.links(fabric.topology)).difference(harmless) & cables.keys()
        used = {end.guid for link in links for end in (cables[link].lower, cables[link].upper)}
        known = fabric.inventory.switch_of_guid
        return [known[guid].name for guid in applied.unconfirmed if guid in used]

    def _is_frozen(self, fabric_id: str) -> bool:
        faults = self._rules.faults
        if faults is None:
            return False
        return (self._store.faults.mode(fabric_id) or faults.mode) is Mode.FROZEN

    def _retry_or_park(self, record: AllocationRecord, why: str) -> None:
        """Retry a step that failed unexpectedly, but not for ever: then an operator decides."""
        tries = record.failures + 1
        if tries < self._rules.park_after:
            self._postpone(record, why)
            return
        reason = lifecycle.parked_reason(tries, why)
        try:
            self._store.allocations.transition(record, State.ERROR, reason, error=why)
        except ConcurrentUpdate:
            LOG.info("allocation %s changed meanwhile; its next step starts anew", record.id)
        else:
            LOG.error("allocation %s (%s): %s", record.id, record.state.value, reason)

    def _postpone(self, record: AllocationRecord, why: str) -> None:
        self._performer.postpone(record, why)

    def _effect(self, name: str, act: Callable[[], T]) -> T:
        return self._performer.effect(name, act)

    def _limit(self, record: AllocationRecord) -> Limited | None:
        return self._performer.run(limits.limit(self._read(), record))

    def _note_limits(self, record: AllocationRecord, found: Limited | None) -> AllocationRecord:
        told = self._memory.limits
        decision = limits.note(self._read(), record, found, told.unlimited)
        record, unlimited = self._performer.run(decision)
        self._memory = replace(self._memory, limits=replace(told, unlimited=unlimited))
        return record

    def _forget_limits(self, record: AllocationRecord) -> None:
        self._performer.run(limits.forget(self._read(), record))

    def _look_after(self, moment: datetime) -> None:
        looked = self._performer.run(hosts.look_after(self._read(), self._memory.hosts, moment))
        self._memory = replace(self._memory, hosts=looked)

    def _unusable(self, record: AllocationRecord) -> str:
        if lifecycle.awaited_hosts(record) is None:
            return ""
        withheld = self._store.compute_hosts.memory(record.fabric).withheld()
        return hosts.unusable(self._read(), withheld, record) if withheld else ""

    # -- routes ---------------------------------------------------------------

    def _awaited(self, record: AllocationRecord) -> str:
        applied = self._routes.applied(record.fabric)
        if silent := self._silent_switches(record, applied):
            text = f"waiting for {listed(silent)}, which may forward by old tables"
            return f"{text}; 'laas switch fail' takes the links out of use"
        text = f"waiting for the subnet manager to apply generation {record.generation}"
        return f"{text}: {applied.problem}" if applied.problem else text

    def _confirmed_by(self, record: AllocationRecord) -> ConfirmedBy:
        """What confirms the routes that a step has waited for."""
        return self._routes.applied(record.fabric).by

    # -- hosts ----------------------------------------------------------------

    def _hand_over(self, record: AllocationRecord) -> AllocationRecord:
        nova = 0.0
        if self._is_in_compute(record):
            handover = handover_of(self._store.fabrics.get(record.fabric), record)
            begun = self._clock()
            ready = handover.hosts
            self._effect("hand over", lambda: self._compute.hand_over(handover, ready))
            nova = self._clock() - begun
        by = self._confirmed_by(record)
        limited = self._limit(record)
        reason = lifecycle.active_reason(
            by,
            scripted=self._compute.scripted,
            claimed=self._compute.claims_slots,
            **_kind(record),
        )
        spent = self._since(record, nova, self._routes.spent(record.fabric, record.generation))
        active = self._store.allocations.transition(
            record, State.ACTIVE, reason, confirmed_by=by, seconds=spent
        )
        return self._note_limits(active, limited)

    def _since(
        self, record: AllocationRecord, nova: float, routes: Mapping[Span, float]
    ) -> Mapping[Span, float]:
        """Where the time since the last entry of the history went; the rest is waiting.

        ``nova`` are the seconds of the step that just ended.
        """
        spent = {**routes, Span.NOVA: nova}
        since = (self._now() - record.updated_at).total_seconds()
        return {Span.WAIT: max(0.0, since - sum(spent.values())), **spent}

    def _give_up(self, record: AllocationRecord, unusable: str) -> AllocationRecord:
        """Give up a placement with hosts that cannot be used; it is placed anew.

        A change of placement turns back.
        """
        if record.change is not None:
            return self._store.placement_changes.turn_back(
                record, lifecycle.unusable_joining_reason(unusable)
            )
        handover = handover_of(self._store.fabrics.get(record.fabric), record)
        self._effect("fence", lambda: self._compute.fence(record.id))
        self._effect("take back", lambda: self._compute.take_back(handover))
        self._forget_limits(record)
        return self._store.allocations.hand_back(record, lifecycle.unusable_reason(unusable))

    def _requeue(self, record: AllocationRecord) -> AllocationRecord:
        self._look_after(record.updated_at)
        by = self._confirmed_by(record)
        reason = lifecycle.requeued_reason(by)
        return self._store.allocations.requeue(record, reason, confirmed_by=by)

    def _take_back(self, record: AllocationRecord) -> AllocationRecord:
        begun = self._clock()
        if self._is_in_compute(record):
            handover = handover_of(self._store.fabrics.get(record.fabric), record)
            self._effect("fence", lambda: self._compute.fence(record.id))
            self._unlock(record)
            self._effect("take back", lambda: self._compute.take_back(handover))
        spent = self._since(record, self._clock() - begun, {})
        return self._store.allocations.hand_back(record, seconds=spent)

    def _cut_off(self, record: AllocationRecord) -> AllocationRecord:
        if self._is_in_compute(record):
            self._effect("fence", lambda: self._compute.fence(record.id))
        return self._store.allocations.hand_back(record)

    def _free(self, record: AllocationRecord) -> AllocationRecord:
        begun = self._clock()
        if record.force and self._is_in_compute(record):
            self._unlock(record)
            handover = handover_of(self._store.fabrics.get(record.fabric), record)
            self._effect("take back", lambda: self._compute.take_back(handover, force=True))
        nova = self._clock() - begun
        if self._is_in_compute(record):
            emptied = self._now() if record.force else record.updated_at
            self._look_after(emptied)
        self._forget_limits(record)
        by = self._confirmed_by(record)
        reason = lifecycle.freed_reason(by, scripted=self._compute.scripted, **_kind(record))
        spent = self._since(record, nova, self._routes.spent(record.fabric, record.generation))
        return self._store.allocations.free(record, reason, confirmed_by=by, seconds=spent)

    # -- placement ------------------------------------------------------------

    def _repair_failed_links(self, record: AllocationRecord) -> AllocationRecord:
        """Raises: Conflict, which says what is degraded."""
        answer = begin_link_repair(self._store.placement_changes, record)
        if isinstance(answer, Degraded):
            kind = "degraded" if answer.links else "not moved before maintenance"
            raise Conflict(f"{kind}: {answer}")
        if answer is record:
            raise ConcurrentUpdate(f"the links of allocation {record.id!r} are up again")
        return answer

    def _move(self, record: AllocationRecord) -> AllocationRecord:
        """Begin the move that was announced, or call it off."""
        return begin_announced_move(
            self._store.placement_changes, record, settles=self._compute.claims_slots
        )

    def _stop(self, record: AllocationRecord) -> AllocationRecord:
        """Close the hosts that are to be left, and stop their servers."""
        self._hand_over_open(record)
        with self._until_the_window_ends(record) as ended:
            self._stop_servers(record)
        return ended[0] if ended else self._proceed(record)

    def _stop_servers(self, record: AllocationRecord) -> None:
        """Stop the servers on hosts that are left; where its owner does not consent, it does.

        The service stops those, too, while others run on the new hosts.

        Raises: HostsBusy, until none runs there.
        """
        consents = self._server_moves(record) is not None
        progress = self._at_stage(record, MoveStage.STOP if consents else MoveStage.CHECK)
        if not consents and progress != NOTHING_MOVED and self._runs_on_new(record):
            progress = self._at_stage(record, MoveStage.HALT)
        if progress.under_way or progress.stuck:
            raise HostsBusy(lifecycle.not_stopped(progress.under_way, progress.stuck))

    def _keep_stopped(self, record: AllocationRecord) -> AllocationRecord | None:
        """Stop servers that were started since they had to stop; the record if that turns it back.

        Those of an owner who has not consented get no lock: the owner may have to delete them.

        Raises: HostsBusy, if one runs.
        """
        if not lifecycle.keeps_servers_stopped(record):
            return None
        if self._check_stopped(self._all_moves(record)) == NOTHING_MOVED:
            return None
        if record.state is State.RELEASING:
            self._stop_again(record, MoveStage.HALT)
        consents = self._server_moves(record) is not None
        with self._until_the_window_ends(record) as ended:
            self._stop_again(record, MoveStage.STOP if consents else MoveStage.HALT)
        return ended[0]

    def _stop_again(self, record: AllocationRecord, stage: MoveStage) -> NoReturn:
        progress = self._at_stage(record, stage)
        raise HostsBusy(lifecycle.stopped_again(progress.under_way, progress.stuck))

    def _check_stopped(self, moves: ServerMoves) -> MoveProgress:
        """The servers that run on the hosts that ``moves`` empties; no effect outside."""
        try:
            return self._compute.move_servers(replace(moves, stage=MoveStage.CHECK))
        except Forbidden as error:
            busy = self._compute.occupants(sorted(moves.targets))
            return MoveProgress(stuck=(str(error),)) if busy else NOTHING_MOVED

    def _runs_on_new(self, record: AllocationRecord) -> bool:
        moves = self._all_moves(record)
        back = {new: old for old, new in moves.targets.items()}
        return self._check_stopped(replace(moves, targets=back)) != NOTHING_MOVED

    def _unlock(self, record: AllocationRecord) -> None:
        """Unlock servers that stopped for a move that a release ends, so they can be deleted.

        Raises: Conflict, if one stays locked.
        """
        if record.change is None or not record.change.parted:
            return
        moves = replace(self._all_moves(record), stage=MoveStage.UNLOCK)
        try:
            found = self._effect("move servers", lambda: self._compute.move_servers(moves))
        except Forbidden as error:  # then it could not lock any either
            LOG.warning("servers of allocation %s are not unlocked: %s", record.id, error)
            return
        if found.stuck:
            raise Conflict(lifecycle.not_unlocked(found.stuck))

    def _open(self, record: AllocationRecord) -> AllocationRecord:
        """Hand over the new hosts beside the old ones."""
        self._hand_over_open(record, lifecycle.awaited_hosts(record))
        moves = self._server_moves(record)
        remark = ""
        if moves is not None:
            remark = lifecycle.servers_go_remark(len(moves.targets), live=moves.live)
        return self._proceed(record, remark)

    def _give_back(self, record: AllocationRecord) -> AllocationRecord:
        """Take back the old hosts, and prove them empty: no server starts there any more.

        Where its owner consents, their servers are moved to the new hosts first. Where nothing
        joins both, no new host accepts servers while one runs on an old host.
        """
        moves, progress = self._server_moves(record), NOTHING_MOVED
        parted = lifecycle.check_changing(record).parted
        with self._until_the_window_ends(record) as ended:
            if parted:
                self._stop_servers(record)
            self._hand_over_open(record)
            if moves is not None:
                progress = self._move_servers(record, moves)
            if progress.arrived:
                reason = lifecycle.arrived_reason(progress.arrived)
                return self._store.allocations.transition(record, record.state, reason)
            self._check_left(record, progress)
        if ended:
            return ended[0]
        if parted:
            progress = self._at_stage(record, MoveStage.START)
            if progress.under_way or progress.stuck:
                raise Conflict(lifecycle.not_started(progress.under_way, progress.stuck))
        return self._proceed(record)

    @contextmanager
    def _until_the_window_ends(self, record: AllocationRecord) -> Iterator[list[AllocationRecord]]:
        """Turn an announced move back whose hosts are busy for too long.

        The list has the record then. Raises: HostsBusy, before that.
        """
        ended: list[AllocationRecord] = []
        try:
            yield ended
        except HostsBusy as error:
            begun = record.moves_at
            if begun is None or self._now() < begun + self._move_window:
                raise
            reason = lifecycle.window_over_reason(str(error))
            ended.append(self._store.placement_changes.turn_back(record, reason))

    def _settle_slots(self, record: AllocationRecord) -> AllocationRecord:
        """Set the new slots in compute; servers beyond them have to go before they are given away.

        Where its owner consents the service moves them. Where compute claims no slots the moves
        count as done.
        """
        if not self._compute.claims_slots:
            limited = self._limit(record)
            return self._note_limits(self._proceed(record), limited)
        self._hand_over_open(record)
        moves = self._slot_moves(record)
        try:
            progress = self._effect("settle slots", lambda: self._compute.settle_slots(moves))
        except Forbidden as error:
            LOG.warning("allocation %s: servers are left to its owner: %s", record.id, error)
            alone = replace(moves, consents=False)
            progress = self._effect("settle slots", lambda: self._compute.settle_slots(alone))
        if progress.arrived:
            reason = lifecycle.arrived_reason(progress.arrived)
            return self._store.allocations.transition(record, record.state, reason)
        if progress.under_way or progress.stuck:
            raise HostsBusy(lifecycle.not_settled(progress.under_way, progress.stuck))
        limited = self._limit(record)
        if limited is None:
            self._forget_limits(record)
        by = self._confirmed_by(record)
        reason = lifecycle.settled_reason(lifecycle.check_changing(record))
        settled = self._store.placement_changes.proceed(record, reason, confirmed_by=by)
        return self._note_limits(settled, limited)

    def _slot_moves(self, record: AllocationRecord) -> SlotMoves:
        """The servers that go in a change of slots."""
        fabric, change = self._store.fabrics.get(record.fabric), lifecycle.check_changing(record)
        names, new = fabric.inventory.host_names, change.new.slots
        kept = dict.fromkeys(host_names(fabric, change.held), 0) | slots_by_name(fabric, change.new)
        planned = () if new is None else tuple((names[a], names[b]) for _, a, b in new.moves)
        live = self._rules.live_ports
        consents = record.consent.lets_servers_go(live=live)
        return SlotMoves(handover_of(fabric, record), kept, planned, consents, live)

    def _is_in_compute(self, record: AllocationRecord) -> bool:
        return is_in_compute(record, self._outside)

    def _at_stage(self, record: AllocationRecord, stage: MoveStage) -> MoveProgress:
        """Stop or start servers of a change, or see which run."""
        return self._move_servers(record, replace(self._all_moves(record), stage=stage))

    def _server_moves(self, record: AllocationRecord) -> ServerMoves | None:
        """The servers that the service moves in a change of hosts; None: the owner does."""
        moves = self._all_moves(record)
        if not moves.targets or not record.consent.lets_servers_go(live=moves.live):
            return None
        return moves

    def _all_moves(self, record: AllocationRecord) -> ServerMoves:
        """The servers that change hosts; none does so live where nothing joins the hosts."""
        fabric, change = self._store.fabrics.get(record.fabric), record.change
        assert change is not None
        numbers, names = change.server_targets(fabric.topology), fabric.inventory.host_names
        targets = {names[old]: names[new] for old, new in numbers.items()}
        live = self._rules.live_ports and not change.parted
        return ServerMoves(record.id, record.project_id, targets, live)

    def _move_servers(self, record: AllocationRecord, moves: ServerMoves) -> MoveProgress:
        """Take the next step of each server; without the right the owner has to move them.

        A server that breaks on its way leaves no trace on its old host, so this is asked even if
        that is empty.
        """
        try:
            return self._effect("move servers", lambda: self._compute.move_servers(moves))
        except Forbidden as error:
            if moves.stage is MoveStage.STOP:
                return self._at_stage(record, MoveStage.CHECK)
            return MoveProgress(stuck=(str(error),)) if self._busy(record) else NOTHING_MOVED

    def _hand_over_open(self, record: AllocationRecord, ready: Allocation | None = None) -> None:
        """Hand over the hosts of the present step; ``ready`` are those that join now."""
        fabric = self._store.fabrics.get(record.fabric)
        handover, names = handover_of(fabric, record), host_names(fabric, ready)
        self._effect("hand over", lambda: self._compute.hand_over(handover, names))

    def _busy(self, record: AllocationRecord) -> list[str]:
        """The hosts that the allocation leaves and that have a server, by name."""
        assert record.change is not None
        names = host_names(self._store.fabrics.get(record.fabric), record.change.freed)
        return sorted({occupant.host for occupant in self._compute.occupants(names)})

    def _check_left(self, record: AllocationRecord, progress: MoveProgress = NOTHING_MOVED) -> None:
        """Raises: HostsBusy, if a server is on a host that the allocation leaves."""
        busy = self._busy(record)
        if busy or progress.under_way or progress.stuck:
            raise HostsBusy(lifecycle.not_left(busy, progress.under_way, progress.stuck))

    def _proceed(self, record: AllocationRecord, remark: str = "") -> AllocationRecord:
        """End the present step; ``remark`` is added to what is told."""
        change = lifecycle.check_changing(record)
        if change.next_phase is None and change.freed.size and self._is_in_compute(record):
            self._look_after(record.updated_at)
            self._check_left(record)
        topology = self._store.fabrics.get(record.fabric).topology
        by = self._confirmed_by(record)
        told = change.done(topology, by, scripted=self._compute.scripted)
        return self._store.placement_changes.proceed(record, told + remark, confirmed_by=by)


def _kind(record: AllocationRecord) -> dict[str, bool]:
    """What is told of its hosts depends on."""
    return {"container": record.encloses, "shared": record.slots is not None}
