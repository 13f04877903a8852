# SPDX-License-Identifier: Apache-2.0

"""The steps of an allocation, from its claim to its release, one safe step at a time; pure.

Level-triggered: every round starts from the record and from what is observed, so any step can
be repeated, at any time, after any crash. ``app.lifecycle`` decides which step is next; here is
what the step does. The order of the steps keeps the promises::

    allocate     routes confirmed -> hosts handed over -> active
    release      hosts fenced, empty, taken back -> routes withdrawn, confirmed -> claims freed
    by force     hosts fenced -> routes withdrawn, confirmed -> hosts empty, taken back -> freed
    new slots    both claimed -> new slots set in compute -> servers beyond them gone -> old freed
    new hosts    both claimed -> new routes laid beside the old ones, confirmed
    or links       -> traffic switched, confirmed -> new hosts handed over
                   -> old hosts taken back and empty -> old routes withdrawn, confirmed -> old freed

The hosts of a container stay in the pool, as no project uses them; allocations inside take the same
steps. Where the owner consents, the service moves servers off old hosts. Where no links join
old and new hosts, servers on the old ones stop first, and start when all have left.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from laas_service.app import lifecycle, safeguards
from laas_service.app.handovers import handover_of, host_names, slots_by_name
from laas_service.app.lifecycle import Action, State
from laas_service.app.ports.compute import (
    NOTHING_MOVED,
    MoveProgress,
    MoveStage,
    ServerMoves,
    SlotMoves,
)
from laas_service.app.ports.rate_limits import Limited
from laas_service.app.records import AllocationRecord, Confirmed, Evidence
from laas_service.app.wording import reasons, waits
from laas_service.app.worker import instructions as do
from laas_service.app.worker.decide import hosts, rate_limits
from laas_service.app.worker.instructions import ActFor, Log, Steps
from laas_service.app.worker.memory import Memory
from laas_service.app.worker.round import Round
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    Forbidden,
    HostsBusy,
    LaasError,
)
from laas_service.domain.faults.degradation import Degraded, degradation
from laas_service.domain.wording import listed
from laas_service.messages import Applied, ConfirmedBy, Span

Next = Steps[AllocationRecord]
"""A step; its result is the new record."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """Where the steps of an allocation ended."""

    memory: Memory
    waiting: AllocationRecord | None = None
    """The record of an allocation that waits for its routes."""
    idle: bool = False
    """It had no step to take."""


def advance(round: Round, memory: Memory, record: AllocationRecord) -> Steps[Advanced]:
    """Take steps until none is left, one fails, or the allocation waits for its routes."""
    life = _Life(round, memory)
    waiting = yield from life.advance(record)
    return Advanced(life.memory, waiting, life.idle)


def waits_for_routes(round: Round, record: AllocationRecord) -> Steps[bool]:
    """Whether the allocation has no step before its routes are confirmed."""
    life = _Life(round, Memory())
    try:
        if (yield from life.unusable(record)):
            return False
        return (yield from life.next_action(record)) is Action.PUBLISH
    except Exception:  # its step meets the error again, and deals with it
        return False


def note_standing(record: AllocationRecord) -> Next:
    """The record with evidence of its routes, if they stand before the sweep for its keys ends."""
    if record.state is not State.ALLOCATING or record.handed_back or _has_routes(record):
        return record
    stand = yield from do.standing()
    keys = set(record.pkeys or (record.pkey,))
    if stand is None or stand.generation < record.generation or not keys <= stand.keys:
        return record
    spent = yield from _since(record, 0.0, (yield from do.spent(stand.generation)))
    routes = Evidence(stand.by, (yield from do.time()), stand.generation)
    reason = reasons.standing_reason(stand.by)
    try:
        return (
            yield from do.transition(
                record,
                record.state,
                reason,
                confirmed=Confirmed(stand.by, routes),
                seconds={span: spent[span] for span in spent.keys() - {Span.NOVA}},
            )
        )
    except ConcurrentUpdate:  # its next step starts anew
        return record


def still_waits(round: Round, record: AllocationRecord, problem: str | None) -> Steps[None]:
    """Let an allocation wait whose routes are not confirmed; ``problem`` of the publication."""
    if problem is None:
        problem = yield from _Life(round, Memory()).awaited(record)
    yield from do.wait(record, problem)


class _Life:
    """The steps of one allocation in one round; collects the next memory."""

    def __init__(self, round: Round, memory: Memory) -> None:
        self.memory, self.idle = memory, False
        self._round, self._fabric, self._rules = round, round.fabric, round.rules
        self._steps: Mapping[Action, Callable[[AllocationRecord], Next]] = {
            Action.HAND_OVER: self._hand_over,
            Action.TAKE_BACK: self._take_back,
            Action.CUT_OFF: self._cut_off,
            Action.FREE: self._free,
            Action.REQUEUE: self._requeue,
            Action.REPAIR: self._repair_failed_links,
            Action.PROCEED: self._proceed,
            Action.OPEN: self._open,
            Action.GIVE_BACK: self._give_back,
            Action.MOVE: do.begin_move,
            Action.STOP: self._stop,
            Action.SETTLE: self._settle_slots,
        }

    def advance(self, record: AllocationRecord) -> Steps[AllocationRecord | None]:
        """The record of an allocation that waits for its routes; None where it ends otherwise."""
        first = record
        yield ActFor(record.initiator)
        try:
            while True:
                if unusable := (yield from self.unusable(record)):
                    record = yield from self._give_up(record, unusable)
                    continue
                if turned_back := (yield from self._keep_stopped(record)):
                    record = turned_back
                    continue
                if other := (yield from self._mend(record)):
                    record = other
                    continue
                if turned_back := (yield from self._leave_nothing_broken(record)):
                    record = turned_back
                    continue
                action = yield from self.next_action(record)
                if action is Action.NOTHING:
                    self.idle = record is first
                    return None
                if action is Action.PUBLISH:
                    return record
                record = yield from self._steps[action](record)
        except ConcurrentUpdate:
            yield Log(
                f"allocation {record.id} changed meanwhile; its next step starts anew", logging.INFO
            )
        except LaasError as error:
            if record is first or lifecycle.has_step_now(record):
                yield from do.wait(record, str(error))
            else:  # its last step is done, and whether there is another one could not be read
                yield Log(f"allocation {record.id} ({record.state.value}): {error}")
        except Exception as error:
            text = f"allocation {record.id}: unexpected error"
            yield Log(text, logging.ERROR, error)
            yield from self._retry_or_park(record, f"unexpected {type(error).__name__}: {error}")
        return None

    def next_action(self, record: AllocationRecord) -> Steps[Action]:
        """The next safe action."""
        confirmed = False
        if lifecycle.awaits_routes(record) and (yield from do.can_be_confirmed(record.generation)):
            applied = yield from do.applied()
            confirmed = lifecycle.confirmed(record, applied.generation)
            confirmed = confirmed and not (yield from self._silent_switches(record, applied))
            confirmed = confirmed and not safeguards.held_for(record, applied)
            confirmed = confirmed and not self._lacks_evidence(record, applied)
        repairs = self._rules.repair_links and not self._round.frozen
        now = None if self._round.frozen else (yield from do.time())
        return lifecycle.next_action(record, confirmed, repair_links=repairs, now=now)

    def _silent_switches(self, record: AllocationRecord, applied: Applied) -> Steps[list[str]]:
        """Names of the switches whose silence keeps the awaited routes from being confirmed.

        A silent switch may forward by old tables. Nobody begins to use a link of it; a link that
        observation withholds may be freed, as nobody new gets it.
        """
        changing = lifecycle.awaited_change(record)
        if not applied.unconfirmed or changing is None:
            return []
        ledger = yield from do.ledger()
        harmless = set(ledger.failed_links)
        if lifecycle.frees(record):
            harmless |= ledger.drained_links
        cables = self._fabric.inventory.cable_of_link
        links = set(changing.links(self._fabric.topology)).difference(harmless) & cables.keys()
        used = {end.guid for link in links for end in (cables[link].lower, cables[link].upper)}
        known = self._fabric.inventory.switch_of_guid
        return [known[guid].name for guid in applied.unconfirmed if guid in used]

    def _lacks_evidence(self, record: AllocationRecord, applied: Applied) -> bool:
        free = self._rules.free_unread
        return not free and safeguards.lacks_evidence(record, applied)

    def awaited(self, record: AllocationRecord) -> Steps[str]:
        """What an allocation waits for whose routes are not confirmed."""
        applied = yield from do.applied()
        if silent := (yield from self._silent_switches(record, applied)):
            text = f"waiting for {listed(silent)}, which may forward by old tables"
            return f"{text}; 'laas switch fail' takes the links out of use"
        if managers := safeguards.held_for(record, applied):
            return waits.held_for(sorted(managers))
        if self._lacks_evidence(record, applied):
            return waits.unread(self._fabric.id, record.generation)
        text = f"waiting for the subnet manager to apply generation {record.generation}"
        return f"{text}: {applied.problem}" if applied.problem else text

    def _retry_or_park(self, record: AllocationRecord, why: str) -> Steps[None]:
        """Retry a step that failed unexpectedly, but not for ever: then an operator decides."""
        tries = record.failures + 1
        if tries < self._rules.park_after:
            yield from do.wait(record, why)
            return
        reason = reasons.parked_reason(tries, why)
        try:
            yield from do.transition(record, State.ERROR, reason, error=why)
        except ConcurrentUpdate:
            text = f"allocation {record.id} changed meanwhile; its next step starts anew"
            yield Log(text, logging.INFO)
        else:
            text = f"allocation {record.id} ({record.state.value}): {reason}"
            yield Log(text, logging.ERROR)

    # -- hosts ----------------------------------------------------------------------------

    def unusable(self, record: AllocationRecord) -> Steps[str]:
        """What keeps it from going on to hosts or links that it does not use yet; or empty.

        Hosts that are withheld, and failed parts of the placement that a change leads to.
        """
        if broken := safeguards.broken_ahead(record, self._fabric.topology):
            return waits.broken_ahead(broken, self._fabric.inventory.host_names)
        if lifecycle.awaited_hosts(record) is None:
            return ""
        memory = yield from do.host_memory()
        return hosts.unusable(self._fabric, memory.withheld(), record)

    def _look_after(self, moment: datetime) -> Steps[None]:
        looked = yield from hosts.look_after(self._round, self.memory.hosts, moment)
        self.memory = replace(self.memory, hosts=looked)

    def _hand_over(self, record: AllocationRecord) -> Next:
        begun = yield from do.seconds()
        if self._round.hands_over(record):
            handover = handover_of(self._fabric, record)
            yield from do.hand_over(handover, handover.hosts)
        nova = (yield from do.seconds()) - begun
        confirmed = yield from _confirmed(record)
        limited = yield from rate_limits.limit(self._round, record)
        outside = self._round.outside
        reason = reasons.active_reason(
            confirmed.by, record.kind, scripted=outside.scripted, claimed=outside.claims_slots
        )
        routes = {} if _has_routes(record) else (yield from do.spent(record.generation))
        spent = yield from _since(record, nova, routes)
        active = yield from do.transition(
            record, State.ACTIVE, reason, confirmed=confirmed, seconds=spent
        )
        return (yield from self._note_limits(active, limited))

    def _note_limits(self, record: AllocationRecord, found: Limited | None) -> Next:
        remembered = self.memory.rate_limits
        noted = rate_limits.note(self._round, record, found, remembered.unlimited)
        record, unlimited = yield from noted
        self.memory = replace(self.memory, rate_limits=replace(remembered, unlimited=unlimited))
        return record

    def _give_up(self, record: AllocationRecord, unusable: str) -> Next:
        """Give up a placement with hosts that cannot be used; it is placed anew.

        A change of placement turns back.
        """
        if record.change is not None:
            return (yield from do.turn_back(record, reasons.unusable_joining_reason(unusable)))
        yield from do.fence(record.id)
        yield from do.take_back(handover_of(self._fabric, record))
        yield from rate_limits.forget(self._round, record)
        return (yield from do.hand_back(record, reasons.unusable_reason(unusable)))

    def _requeue(self, record: AllocationRecord) -> Next:
        yield from self._look_after(record.updated_at)
        by = yield from _confirmed_by()
        return (yield from do.requeue(record, reasons.requeued_reason(by), confirmed_by=by))

    def _take_back(self, record: AllocationRecord) -> Next:
        begun = yield from do.seconds()
        if self._round.hands_over(record):
            yield from do.fence(record.id)
            yield from self._unlock(record)
            yield from do.take_back(handover_of(self._fabric, record))
        nova = (yield from do.seconds()) - begun
        spent = yield from _since(record, nova, {})
        return (yield from do.hand_back(record, seconds=spent))

    def _cut_off(self, record: AllocationRecord) -> Next:
        if self._round.hands_over(record):
            yield from do.fence(record.id)
        return (yield from do.hand_back(record))

    def _free(self, record: AllocationRecord) -> Next:
        begun = yield from do.seconds()
        if record.force and self._round.hands_over(record):
            yield from self._unlock(record)
            yield from do.take_back(handover_of(self._fabric, record), force=True)
        nova = (yield from do.seconds()) - begun
        if self._round.hands_over(record):
            emptied = (yield from do.time()) if record.force else record.updated_at
            yield from self._look_after(emptied)
        yield from rate_limits.forget(self._round, record)
        by = yield from _confirmed_by()
        scripted = self._round.outside.scripted
        reason = reasons.freed_reason(by, record.kind, scripted=scripted)
        spent = yield from _since(record, nova, (yield from do.spent(record.generation)))
        return (yield from do.free(record, reason, confirmed_by=by, seconds=spent))

    # -- placement ------------------------------------------------------------------------

    def _repair_failed_links(self, record: AllocationRecord) -> Next:
        """Raises: Conflict, which says what is degraded."""
        answer = yield from do.repair_links(record)
        if isinstance(answer, Degraded):
            kind = "degraded" if answer.links else "not moved before maintenance"
            raise Conflict(f"{kind}: {answer}")
        if answer is record:
            raise ConcurrentUpdate(f"the links of allocation {record.id!r} are up again")
        return answer

    def _stop(self, record: AllocationRecord) -> Next:
        """Close the hosts that are to be left, and stop their servers."""
        yield from _hand_over_open(self._round, record)
        try:
            yield from self._stop_servers(record)
        except HostsBusy as error:
            return (yield from _turned_back(self._round, record, error))
        return (yield from self._proceed(record))

    def _stop_servers(self, record: AllocationRecord) -> Steps[None]:
        """Stop the servers on hosts that are left; where its owner does not consent, it does.

        The service stops those, too, while others run on the new hosts.

        Raises: HostsBusy, until none runs there.
        """
        if _server_moves(self._round, record) is not None:
            progress = yield from self._at_stage(record, MoveStage.STOP)
        else:
            moves = _all_moves(self._round, record)
            progress = yield from _running(moves)
            back = {new: old for old, new in moves.targets.items()}
            if (
                progress != NOTHING_MOVED
                and (yield from _running(replace(moves, targets=back))) != NOTHING_MOVED
            ):
                progress = yield from self._at_stage(record, MoveStage.STOP, locks=False)
        if progress.under_way or progress.stuck:
            raise HostsBusy(waits.not_stopped(progress.under_way, progress.stuck))

    def _keep_stopped(self, record: AllocationRecord) -> Steps[AllocationRecord | None]:
        """Stop servers that were started since they had to stop; the record if that turns it back.

        Those of an owner who has not consented get no lock: the owner may have to delete them.

        Raises: HostsBusy, if one runs.
        """
        if not lifecycle.keeps_servers_stopped(record):
            return None
        if (yield from _running(_all_moves(self._round, record))) == NOTHING_MOVED:
            return None
        ends = record.state is State.RELEASING
        consents = not ends and _server_moves(self._round, record) is not None
        try:
            progress = yield from self._at_stage(record, MoveStage.STOP, locks=consents)
            raise HostsBusy(waits.stopped_again(progress.under_way, progress.stuck))
        except HostsBusy as error:
            if ends:
                raise
            return (yield from _turned_back(self._round, record, error))

    def _mend(self, record: AllocationRecord) -> Steps[AllocationRecord | None]:
        """Begin to replace failed links of a change of hosts; the record if that has begun."""
        repairs = self._rules.repair_links and not self._round.frozen
        if not repairs or not safeguards.can_mend(record):
            return None
        answer = yield from do.repair_links(record)
        return None if isinstance(answer, Degraded) else answer

    def _leave_nothing_broken(self, record: AllocationRecord) -> Steps[AllocationRecord | None]:
        """Turn a change back whose new links, hosts or bridge fail while servers are on old hosts.

        The record if that turns it back. Links are replaced before that, where others are free.
        Once servers are on new hosts it goes on: the rest is replaced when it is over.
        """
        broken = safeguards.broken_while_leaving(record, self._fabric.topology)
        if broken is None or not (yield from _busy(self._round, record)):
            return None
        if (yield from _has_moved(self._round, record)):
            return None
        why = waits.broken_ahead(broken, self._fabric.inventory.host_names)
        return (yield from do.turn_back(record, reasons.unusable_joining_reason(why)))

    def _unlock(self, record: AllocationRecord) -> Steps[None]:
        """Unlock servers that stopped for a move that a release ends, so they can be deleted.

        Raises: Conflict, if one stays locked.
        """
        if record.change is None or not record.change.parted:
            return
        moves = replace(_all_moves(self._round, record), stage=MoveStage.UNLOCK)
        try:
            found = yield from do.move_servers(moves)
        except Forbidden as error:  # then it could not lock any either
            yield Log(f"servers of allocation {record.id} are not unlocked: {error}")
            return
        if found.stuck:
            raise Conflict(waits.not_unlocked(found.stuck))

    def _open(self, record: AllocationRecord) -> Next:
        """Hand over the new hosts beside the old ones."""
        yield from _hand_over_open(self._round, record, lifecycle.awaited_hosts(record))
        moves, remark = _server_moves(self._round, record), ""
        if moves is not None:
            remark = reasons.servers_go_remark(len(moves.targets), live=moves.live)
        return (yield from self._proceed(record, remark))

    def _give_back(self, record: AllocationRecord) -> Next:
        """Take back the old hosts, and prove them empty: no server starts there any more.

        Where its owner consents, their servers are moved to the new hosts first. Where nothing
        joins both, no new host accepts servers while one runs on an old host.
        """
        moves, progress = _server_moves(self._round, record), NOTHING_MOVED
        parted = lifecycle.check_changing(record).parted
        try:
            if parted:
                yield from self._stop_servers(record)
            else:
                yield from self._stop_cut_off(record)
            yield from _hand_over_open(self._round, record)
            if moves is not None:
                progress = yield from self._move_servers(record, moves)
            if progress.arrived:
                reason = reasons.arrived_reason(progress.arrived)
                return (yield from do.transition(record, record.state, reason))
            yield from _check_left(self._round, record, progress)
        except HostsBusy as error:
            return (yield from _turned_back(self._round, record, error))
        if parted:
            progress = yield from self._at_stage(record, MoveStage.START)
            if progress.under_way or progress.stuck:
                raise Conflict(waits.not_started(progress.under_way, progress.stuck))
        return (yield from self._proceed(record))

    def _stop_cut_off(self, record: AllocationRecord) -> Steps[None]:
        """Stop servers on old hosts that faults cut off from new ones, once its time is over.

        No free links can replace those that failed, and servers are on both sides, so it neither
        goes on nor turns back by itself. The servers get no lock: their owner starts them again.

        Raises: HostsBusy, until none runs there.
        """
        change, faults = lifecycle.check_changing(record), record.faults
        if (
            faults is None
            or not degradation(self._fabric.topology, change.held, faults.links).apart
        ):
            return
        window, now = self._round.rules.move_window, (yield from do.time())
        overdue = safeguards.is_overdue(record, now, record.consent.notice, window)
        if not overdue or not (yield from _has_moved(self._round, record)):
            return
        progress = yield from self._at_stage(record, MoveStage.STOP, locks=False)
        waiting = progress.under_way or progress.stuck
        if waiting or _server_moves(self._round, record) is None:
            busy = yield from _busy(self._round, record)
            if busy:
                raise HostsBusy(waits.cut_off(busy, progress.under_way, progress.stuck))

    def _settle_slots(self, record: AllocationRecord) -> Next:
        """Set the new slots in compute; servers beyond them have to go before they are given away.

        Where its owner consents the service moves them. Where compute claims no slots the moves
        count as done.
        """
        if not self._round.outside.claims_slots:
            limited = yield from rate_limits.limit(self._round, record)
            proceeded = yield from self._proceed(record)
            return (yield from self._note_limits(proceeded, limited))
        yield from _hand_over_open(self._round, record)
        moves = _slot_moves(self._round, record)
        try:
            progress = yield from do.settle_slots(moves)
        except Forbidden as error:
            yield Log(f"allocation {record.id}: servers are left to its owner: {error}")
            progress = yield from do.settle_slots(replace(moves, consents=False))
        if progress.arrived:
            reason = reasons.arrived_reason(progress.arrived)
            return (yield from do.transition(record, record.state, reason))
        if progress.under_way or progress.stuck:
            raise HostsBusy(waits.not_settled(progress.under_way, progress.stuck))
        limited = yield from rate_limits.limit(self._round, record)
        if limited is None:
            yield from rate_limits.forget(self._round, record)
        confirmed = yield from _confirmed(record)
        reason = reasons.settled_reason(lifecycle.check_changing(record))
        settled = yield from do.proceed(record, reason, confirmed=confirmed)
        return (yield from self._note_limits(settled, limited))

    def _at_stage(
        self, record: AllocationRecord, stage: MoveStage, *, locks: bool = True
    ) -> Steps[MoveProgress]:
        """Stop or start servers of a change."""
        moves = replace(_all_moves(self._round, record), stage=stage, locks=locks)
        return (yield from self._move_servers(record, moves))

    def _move_servers(self, record: AllocationRecord, moves: ServerMoves) -> Steps[MoveProgress]:
        """Take the next step of each server; without the right the owner has to move them.

        A server that breaks on its way leaves no trace on its old host, so this is asked even if
        that is empty.
        """
        try:
            return (yield from do.move_servers(moves))
        except Forbidden as error:
            if moves.stage is MoveStage.STOP:
                return (yield from _running(moves))
            is_busy = yield from _busy(self._round, record)
            return MoveProgress(stuck=(str(error),)) if is_busy else NOTHING_MOVED

    def _proceed(self, record: AllocationRecord, remark: str = "") -> Next:
        """End the present step; ``remark`` is added to what is told."""
        change = lifecycle.check_changing(record)
        if change.next_phase is None and change.freed.size and self._round.hands_over(record):
            yield from self._look_after(record.updated_at)
            yield from _check_left(self._round, record)
        confirmed = yield from _confirmed(record)
        reason = reasons.step_reason(
            change, self._fabric.topology, confirmed.by, scripted=self._round.outside.scripted
        )
        return (yield from do.proceed(record, reason + remark, confirmed=confirmed))


def _slot_moves(round: Round, record: AllocationRecord) -> SlotMoves:
    """The servers that go in a change of slots."""
    fabric, change = round.fabric, lifecycle.check_changing(record)
    names, new = fabric.inventory.host_names, change.new.slots
    kept = dict.fromkeys(host_names(fabric, change.held), 0) | slots_by_name(fabric, change.new)
    planned = () if new is None else tuple((names[a], names[b]) for _, a, b in new.moves)
    live = round.rules.live_ports
    consents = record.consent.lets_servers_go(live=live)
    return SlotMoves(handover_of(fabric, record), kept, planned, consents, live)


def _server_moves(round: Round, record: AllocationRecord) -> ServerMoves | None:
    """The servers that the service moves in a change of hosts; None: the owner does."""
    moves = _all_moves(round, record)
    if not moves.targets or not record.consent.lets_servers_go(live=moves.live):
        return None
    return moves


def _all_moves(round: Round, record: AllocationRecord) -> ServerMoves:
    """The servers that change hosts; none does so live where nothing joins the hosts."""
    change = record.change
    assert change is not None
    numbers = change.server_targets(round.fabric.topology)
    names = round.fabric.inventory.host_names
    targets = {names[old]: names[new] for old, new in numbers.items()}
    live = round.rules.live_ports and not change.parted
    return ServerMoves(record.id, record.project_id, targets, live)


def _since(
    record: AllocationRecord, nova: float, routes: Mapping[Span, float]
) -> Steps[Mapping[Span, float]]:
    """Where the time since the last entry of the history went; the rest is waiting.

    ``nova`` are the seconds of the step that just ended.
    """
    spent = {**routes, Span.NOVA: nova}
    since = ((yield from do.time()) - record.updated_at).total_seconds()
    return {Span.WAIT: max(0.0, since - sum(spent.values())), **spent}


def _confirmed_by() -> Steps[ConfirmedBy]:
    """What confirms the routes that a step has waited for."""
    applied = yield from do.applied()
    return applied.by


def _confirmed(record: AllocationRecord) -> Steps[Confirmed]:
    """The evidence of the routes that a step has waited for, and of their keys.

    Evidence of these routes that is recorded already stays.
    """
    applied = yield from do.applied()
    confirmed = Confirmed.of(applied, (yield from do.time()))
    earlier = record.routes_confirmed if _has_routes(record) else None
    return confirmed if earlier is None else replace(confirmed, routes=earlier)


def _has_routes(record: AllocationRecord) -> bool:
    """Whether its present routes are confirmed."""
    evidence = record.routes_confirmed
    return evidence is not None and evidence.generation >= record.generation


def _hand_over_open(
    round: Round, record: AllocationRecord, ready: Allocation | None = None
) -> Steps[None]:
    """Hand over the hosts of the present step; ``ready`` are those that join now."""
    yield from do.hand_over(handover_of(round.fabric, record), host_names(round.fabric, ready))


def _busy(round: Round, record: AllocationRecord) -> Steps[list[str]]:
    """The hosts that the allocation leaves and that have a server, by name."""
    assert record.change is not None
    names = host_names(round.fabric, record.change.freed)
    occupants = yield from do.occupants(names)
    return sorted({occupant.host for occupant in occupants})


def _check_left(
    round: Round, record: AllocationRecord, progress: MoveProgress = NOTHING_MOVED
) -> Steps[None]:
    """Raises: HostsBusy, if a server is on a host that the allocation leaves."""
    busy = yield from _busy(round, record)
    if busy or progress.under_way or progress.stuck:
        raise HostsBusy(waits.not_left(busy, progress.under_way, progress.stuck))


def _turned_back(round: Round, record: AllocationRecord, error: HostsBusy) -> Next:
    """Turn a change back whose old hosts are busy for too long. Raises: HostsBusy, until then.

    A change that was not announced stays once servers are on its new hosts: all is held.
    """
    window, now = round.rules.move_window, (yield from do.time())
    if not safeguards.is_overdue(record, now, record.consent.notice, window):
        raise error
    if record.moves_at is None and (yield from _has_moved(round, record)):
        raise HostsBusy(waits.overdue(str(error)))
    return (yield from do.turn_back(record, reasons.window_over_reason(str(error))))


def _has_moved(round: Round, record: AllocationRecord) -> Steps[bool]:
    """Whether servers are on hosts that its change claims."""
    names = host_names(round.fabric, lifecycle.check_changing(record).claimed)
    return bool(names) and bool((yield from do.occupants(names)))


def _running(moves: ServerMoves) -> Steps[MoveProgress]:
    """The servers that run on the hosts that ``moves`` empties."""
    try:
        return (yield from do.running(moves))
    except Forbidden as error:
        busy = yield from do.occupants(tuple(sorted(moves.targets)))
        return MoveProgress(stuck=(str(error),)) if busy else NOTHING_MOVED
