# SPDX-License-Identifier: Apache-2.0

"""Moves of tenants that make room for the head of a queue, or on a schedule.

A fabric has one plan at a time, which is recorded. Each call takes the plan one step further and
keeps nothing that a crash could lose: the first move is announced together with the plan, the next
one together with the end of the one before. Convergence carries an announced move out as any
other. The worker places the head by the queue's discipline, which holds the room for it.

No move is made that gains too little: the rule of Adaptive Fit (Tsai and Liao, StarCube, Springer
2016, chapter 2), with the time by which the head starts earlier as the gain.
"""

import enum
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import NamedTuple, Self

from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.lifecycle import State
from laas_service.app.ports.admissions import WithReason
from laas_service.app.ports.store import Store
from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import AllocationRecord, Limits, QueueRoom, RoomMove, RoomState
from laas_service.app.room_planner import (
    NO_OVERRIDE,
    Permission,
    RoomPlan,
    RoomPlanner,
    notice_class,
)
from laas_service.app.wording import reasons
from laas_service.domain.allocation import NoFit, Request
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    DoubleClaim,
    LaasError,
    NotFound,
    QuotaExceeded,
)
from laas_service.domain.moves.consent import Movable
from laas_service.domain.policies.base import Policy

LOG = logging.getLogger(__name__)


class RoomMode(enum.Enum):
    """What is done for the head of a queue that does not fit."""

    OFF = "off"
    ADVISE = "advise"
    ON = "on"


@dataclass(frozen=True, slots=True)
class RoomRules:
    """When and how room is made."""

    mode: RoomMode = RoomMode.OFF
    permission: Permission = NO_OVERRIDE
    gain: float = 0.0
    """The least number of seconds by which the head has to start earlier, if that is known."""
    interval: float = 60.0
    """The least number of seconds between two plans of a fabric."""
    window: tuple[time, time] | None = None
    """The time of day in which plans begin, in UTC; it may contain midnight. None: always."""
    hosts: int = 0
    """The size for which room is made where nobody waits; 0: none."""

    def opens(self, now: datetime) -> bool:
        """Whether a plan may begin now."""
        if self.window is None:
            return True
        first, last = self.window
        if first <= last:
            return first <= now.time() < last
        return now.time() >= first or now.time() < last


class _Look(NamedTuple):
    """When a plan was looked for last, and on what its outcome depends."""

    at: datetime
    state: object


MOST_ASKED = 2
"""How often plans may fail because of a tenant before none asks it again where it is."""


class _Mark(NamedTuple):
    """A tenant because of which plans failed: where it is, its consent, and how often."""

    place: str
    consent: str
    failed: int

    @classmethod
    def of(cls, record: AllocationRecord, failed: int) -> Self:
        placed = record.placed
        place = placed and (placed.groups, tuple(placed.columns))
        return cls(_digest(place), _digest(record.consent), failed)

    @classmethod
    def read(cls, text: str) -> Self | None:
        """None if an earlier release wrote it."""
        words = text.split("-")
        return cls(words[0], words[1], int(words[2])) if len(words) == len(cls._fields) else None

    def __str__(self) -> str:
        return "-".join(map(str, self))

    def may_be_asked(self, record: AllocationRecord) -> bool:
        """Whether a plan may move the tenant if there is no other one."""
        return self.failed < MOST_ASKED and self.consent != _digest(record.consent)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


class QueueMoves:
    """Makes room for the heads of queues; several processes may do so at once.

    ``default_policy`` places the tenant that room is made for on a schedule. ``live_ports`` is as
    in ``RoomPlanner``.
    """

    def __init__(
        self,
        store: Store,
        queue: AdmissionQueue,
        quotas: ProjectLimits,
        rules: RoomRules,
        default_policy: Policy,
        *,
        clock: Callable[[], datetime],
        live_ports: bool = False,
    ) -> None:
        self._store = store
        self._queue = queue
        self._quotas = quotas
        self._planner = RoomPlanner(store, quotas, clock=clock, live_ports=live_ports)
        self._rules = rules
        self._default_policy = default_policy
        self._clock = clock
        self._looked: dict[str, _Look] = {}
        self._at_rest: dict[str, int] = {}  # the generation at which ``OFF`` had nothing to end

    def reload(self, rules: RoomRules, limits: Limits, unmoved: Collection[str]) -> None:
        """Go by these rules, limits and exempt projects from now on."""
        if rules != self._rules:
            self._rules = rules
            self._looked.clear()
            self._at_rest.clear()
        self._quotas.limits, self._quotas.unmoved = limits, unmoved

    def serve_all(self, generations: Mapping[str, int] | None = None) -> int:
        """Take the step that is due on every fabric; returns how many were taken.

        ``generations`` are those of all fabrics, if they were just read. Where no room is made, a
        plan is read only at a new generation: whatever records one begins one. An error on one
        fabric is logged and the others are served.

        Raises:
            Unavailable: the store does not answer.
        """
        taken = 0
        if generations is None:
            generations = self._store.fabrics.generations()
        for id, generation in generations.items():
            if self._rules.mode is RoomMode.OFF and self._at_rest.get(id) == generation:
                continue
            try:
                step = self.serve(id)
                taken += step
                if not step and self._rules.mode is RoomMode.OFF:
                    self._at_rest[id] = generation
            except (ConcurrentUpdate, Conflict, QuotaExceeded) as error:
                LOG.info("fabric %s: room for its queue is planned anew: %s", id, error)
            except LaasError as error:
                LOG.warning("fabric %s: no room for its queue: %s", id, error)
            except Exception:
                LOG.exception("fabric %s: room for its queue could not be planned", id)
        return taken

    def serve(self, fabric_id: str) -> int:
        """Take the step that is due on a fabric; returns 1 if there was one.

        Raises:
            ConcurrentUpdate, Conflict, QuotaExceeded: what it depends on has changed.
        """
        room, on = self._store.admissions.room(fabric_id), self._rules.mode is RoomMode.ON
        if room is not None and room.state is RoomState.MOVING:
            return self._go_on(room) if on else self._end(room, "[queue] make_room is not on")
        if self._rules.mode is not RoomMode.OFF:
            return self._begin(fabric_id, room)
        return self._withdraw(room)

    # -- planning -----------------------------------------------------------------

    def _begin(self, fabric_id: str, room: QueueRoom | None) -> int:
        """Plan, and record the plan: as advice, or with its first move announced."""
        now, head = self._clock(), self._queue.head(fabric_id)
        if self._too_soon(fabric_id, room, now):
            return 0
        if head is None and (not self._rules.hosts or not self._rules.opens(now)):
            return self._withdraw(room)
        avoided = self._still_avoided(room)
        movable = {
            id: record
            for id, record in self._planner.movable(fabric_id, self._rules.permission).items()
            if id not in avoided or avoided[id].may_be_asked(record)
        }
        expected = self._queue.expected_start(fabric_id) if head is not None else None
        left = self._planner.moves_left(movable.values())
        depends = (
            self._store.fabrics.get(fabric_id).generation,
            None if head is None else head.id,
            sorted((id, record.version) for id, record in movable.items()),
            sorted(left.items()),
            expected,
            self._rules.opens(now),
        )
        looked = self._looked.get(fabric_id)
        self._looked[fabric_id] = _Look(now, depends)
        if not movable or (looked is not None and looked.state == depends):
            return 0 if movable else self._withdraw(room)
        if self._is_coming(fabric_id, head):
            return self._withdraw(room)
        trusted = {id: record for id, record in movable.items() if id not in avoided}
        plan = self._planned(fabric_id, head, trusted)
        if isinstance(plan, NoFit) and trusted.keys() != movable.keys():
            plan = self._planned(fabric_id, head, movable)
        if isinstance(plan, NoFit) or not plan.moves:
            return self._withdraw(room)
        marks = {id: str(mark) for id, mark in avoided.items()}
        planned = _recorded(plan, head, self._rules, expected, marks, now)
        if planned.gain is not None and planned.gain < self._rules.gain:
            return self._withdraw(room)
        planned = replace(planned, version=room.version if room is not None else 0)
        if self._rules.mode is RoomMode.ADVISE or not self._rules.opens(now):
            self._advise(room, planned)
            return 0
        self._store.admissions.record_room(
            planned,
            announce=WithReason(plan.moves[0].record, self._announcement(planned, plan)),
            tell=None
            if head is None
            else WithReason(head, reasons.room_reason(len(plan.moves), planned.new_hosts)),
            limits=self._quotas.limits,
        )
        return 1

    def _too_soon(self, fabric_id: str, room: QueueRoom | None, now: datetime) -> bool:
        """Whether the last plan, or the last look at one, is too recent."""
        interval, looked = timedelta(seconds=self._rules.interval), self._looked.get(fabric_id)
        recent = room is not None and room.state is not RoomState.ADVISED
        times = ([room.at] if recent and room is not None else []) + ([looked.at] if looked else [])
        return any(at <= now < at + interval for at in times)

    def _planned(
        self,
        fabric_id: str,
        head: AllocationRecord | None,
        movable: Mapping[str, AllocationRecord],
    ) -> RoomPlan | NoFit:
        policy, request = self._asked(head)
        permission = self._rules.permission
        return self._planner.plan_early(fabric_id, policy, request, permission, movable)

    def _is_coming(self, fabric_id: str, head: AllocationRecord | None) -> bool:
        """Whether the head fits after moves that are announced or under way."""
        return self._planner.coming(fabric_id, *self._asked(head)) is not None

    def _asked(self, head: AllocationRecord | None) -> tuple[Policy, Request]:
        """What room is made for."""
        if head is None:
            return self._default_policy, Request("", self._rules.hosts)
        return self._queue.request(head)

    def _advise(self, room: QueueRoom | None, planned: QueueRoom) -> None:
        """Record the plan as advice, unless it is recorded."""
        advice = replace(planned, state=RoomState.ADVISED)
        if room is None or _advised(room) != _advised(advice):
            self._store.admissions.record_room(advice)

    def _withdraw(self, room: QueueRoom | None) -> int:
        """Advice that no longer holds is withdrawn."""
        if room is not None and room.state is RoomState.ADVISED:
            self._store.admissions.record_room(
                replace(room, state=RoomState.DONE, reason="withdrawn")
            )
        return 0

    # -- carrying out -------------------------------------------------------------

    def _go_on(self, room: QueueRoom) -> int:
        """Take the next step of a plan whose moves are announced and made."""
        head = self._record(room.allocation)
        first = self._queue.head(room.fabric)
        if room.allocation is not None and (first is None or head is None or first.id != head.id):
            return self._end(room, "the request that it makes room for waits no longer")
        if room.made == len(room.moves):
            if head is None:
                return self._end(room, "there is room for a tenant to come")
            if self._queue.fits(head, room) is not None:
                return 0  # the queue admits it
            return self._fail(room, head, "the room that was made is taken")
        move = room.moves[room.made]
        record = self._record(move.allocation)
        if record is None or record.state is not State.ACTIVE:
            return self._fail(room, head, "a tenant that was to move has gone")
        if record.announced == move.to and record.change is None:
            return self._replaced(room, head, record)
        if record.announced == move.to or record.change is not None:
            return 0
        if record.placed == move.to:
            return self._made(room, head)
        return self._fail(room, head, self._why_not_moved(record, move), record, move)

    def _replaced(
        self, room: QueueRoom, head: AllocationRecord | None, record: AllocationRecord
    ) -> int:
        """Call the plan off if another one would make room much earlier than its notices end.

        Tenants of projects that failed a plan of this head cannot have another one called off: they
        would only have to consent and to object.
        """
        now, begins = self._clock(), record.moves_at
        if begins is None or self._too_soon(room.fabric, room, now):
            return 0
        left = notice_class((max(begins, room.moves[-1].begins) - now).total_seconds())
        distrusted = {
            known.project_id
            for id in self._still_avoided(room)
            if (known := self._record(id)) is not None
        }
        movable = {
            id: other
            for id, other in self._planner.movable(room.fabric, self._rules.permission).items()
            if notice_class(other.consent.notice) < left and other.project_id not in distrusted
        }
        depends = (
            self._store.fabrics.get(room.fabric).generation,
            room.allocation,
            sorted((id, other.version) for id, other in movable.items()),
        )
        looked = self._looked.get(room.fabric)
        self._looked[room.fabric] = _Look(now, depends)
        if not movable or (looked is not None and looked.state == depends):
            return 0
        plan = self._planned(room.fabric, head, movable)
        if isinstance(plan, NoFit) or not plan.moves:
            return 0
        self._looked.pop(room.fabric)
        return self._end(room, "other moves make room earlier")

    def _made(self, room: QueueRoom, head: AllocationRecord | None) -> int:
        """A move is over: announce the next one, if there is one."""
        room = replace(room, made=room.made + 1)
        if room.made == len(room.moves):
            self._store.admissions.record_room(room)
            return 1
        move = room.moves[room.made]
        record = self._record(move.allocation)
        left = self._planner.moves_left([] if record is None else [record])
        if record is None or record.placed is None or record.state is not State.ACTIVE:
            return self._fail(room, head, "a tenant that was to move has gone")
        permission = self._rules.permission
        why = (
            self._planner.why_hosts_stay(record, permission, left)
            if move.new_hosts
            else self._planner.why_not(record, permission)
        )
        if why is not None or record.change is not None or record.announced is not None:
            return self._fail(room, head, "a tenant that was to move does not consent any more")
        planned = (move.begins - room.moves[room.made - 1].begins).total_seconds()
        if notice_class(record.consent.notice) > notice_class(planned):
            why = "a tenant that was to move wants a longer notice now"
            return self._fail(room, head, why, record, move)
        begins = self._clock() + timedelta(seconds=record.consent.notice)
        later = begins - move.begins
        moves = room.moves[: room.made], room.moves[room.made :]
        shifted = (replace(step, begins=step.begins + later) for step in moves[1])
        room = replace(room, moves=(*moves[0], *shifted))
        reason = reasons.announced_reason(
            record.placed, move.to, _why(room), _told(begins), reasons.QUEUE, forced=False
        )
        self._store.admissions.record_room(
            room, announce=WithReason(record, reason), limits=self._quotas.limits
        )
        return 1

    def _why_not_moved(self, record: AllocationRecord, move: RoomMove) -> str:
        if record.consent.movable is Movable.NEVER:
            return "a tenant that was to move objects"
        if self._is_taken(record, move):
            return "the place of a tenant that was to move is taken"
        return "a tenant that was to move has kept its place"

    def _is_taken(self, record: AllocationRecord, move: RoomMove) -> bool:
        ledger = self._store.fabrics.ledger(record.fabric)[0].copy()
        if record.placed is None:
            return False
        try:
            ledger.change(move.to.joined(record.placed))
        except (DoubleClaim, NotFound):
            return True
        return False

    def _fail(
        self,
        room: QueueRoom,
        head: AllocationRecord | None,
        why: str,
        record: AllocationRecord | None = None,
        move: RoomMove | None = None,
    ) -> int:
        """The plan is over. A tenant that could have moved is avoided while it stays there."""
        avoided = dict(room.avoided)
        if record is not None and move is not None and not self._is_taken(record, move):
            before = self._still_avoided(room).get(record.id)
            avoided[record.id] = str(_Mark.of(record, 1 if before is None else before.failed + 1))
        self._store.admissions.record_room(
            replace(room, state=RoomState.FAILED, reason=why, avoided=avoided, at=self._clock()),
            tell=None if head is None else WithReason(head, reasons.no_room_reason(why)),
        )
        return 1

    def _end(self, room: QueueRoom, why: str) -> int:
        """The plan is over; a move that has not begun is called off."""
        call_off = None
        if room.made < len(room.moves):
            move = room.moves[room.made]
            record = self._record(move.allocation)
            if record is not None and record.announced == move.to:
                call_off = WithReason(record, reasons.not_moved_reason(why))
        self._store.admissions.record_room(
            replace(room, state=RoomState.DONE, reason=why, at=self._clock()), call_off=call_off
        )
        return 1

    # -- details ------------------------------------------------------------------

    def _still_avoided(self, room: QueueRoom | None) -> dict[str, _Mark]:
        """The tenants because of which plans failed and that are where they were, by id."""
        found = {}
        for id, text in ({} if room is None else room.avoided).items():
            mark, record = _Mark.read(text), self._record(id)
            if mark is None or record is None:
                continue
            if mark.place == _Mark.of(record, 0).place:
                found[id] = mark
        return found

    def _record(self, id: str | None) -> AllocationRecord | None:
        if id is None:
            return None
        try:
            return self._store.allocations.get(id)
        except NotFound:
            return None

    @staticmethod
    def _announcement(room: QueueRoom, plan: RoomPlan) -> str:
        first = plan.moves[0]
        return reasons.announced_reason(
            first.old, first.new, _why(room), _told(first.begins), reasons.QUEUE, forced=False
        )


def _advised(room: QueueRoom) -> object:
    """What makes one advice differ from another."""
    moves = [(move.allocation, move.to, move.cost) for move in room.moves]
    return room.state, room.allocation, room.hosts, moves


def _recorded(
    plan: RoomPlan,
    head: AllocationRecord | None,
    rules: RoomRules,
    expected: datetime | None,
    avoided: Mapping[str, str],
    now: datetime,
) -> QueueRoom:
    """A plan as it is recorded when it begins; each move follows the one before at once."""
    moves, begins = [], now
    for move in plan.moves:
        begins += move.begins - now if move.begins > now else timedelta()
        moves.append(RoomMove(move.record.id, move.new, move.new_hosts, move.cost, begins))
    return QueueRoom(
        fabric=plan.fabric.id,
        state=RoomState.MOVING,
        hosts=rules.hosts if head is None else head.hosts,
        allocation=None if head is None else head.id,
        placement=plan.placement,
        moves=tuple(moves),
        at=now,
        gain=None if expected is None else (expected - begins).total_seconds(),
        avoided=avoided,
    )


def _why(room: QueueRoom) -> str:
    return f"to make room for {room.hosts} hosts"


def _told(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
