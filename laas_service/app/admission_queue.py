# SPDX-License-Identifier: Apache-2.0

"""The admission queue of every fabric: order, what each request waits for, admission.

The recorded requests are the queue, by priority and then in the order in which they were
recorded; a process keeps nothing that a crash could lose. Every decision follows the discipline of
``domain.admission.queue``, on the present ledger and records, and is committed only if
neither has changed meanwhile.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar, NamedTuple

from laas_service.app.lifecycle import HOLDING, State
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.snapshots import QueueState
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, QueueRoom, RoomState
from laas_service.app.requests import AllocationRequest, Place
from laas_service.domain.admission.admit import explain, largest_fit, propose_in_scope
from laas_service.domain.admission.constrained import explain_constraints, propose
from laas_service.domain.admission.queue import Discipline, EasyQueue, Queue, make_queue
from laas_service.domain.allocation import (
    Allocation,
    ColumnShare,
    GroupShare,
    NoFit,
    Refusal,
    Request,
    SlotDemand,
)
from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import LaasError
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies.base import BudgetedPolicy, Policy

LOG = logging.getLogger(__name__)

EXPLAINED = 32
"""Different requests of a queue that are searched for in one answer."""

NOT_SEARCHED = NoFit(
    Refusal.BUDGET,
    "what it waits for was not worked out, because the answer covers many other requests; "
    "ask for it alone",
)


HOLD = "held for the head"
"""Id, in a ledger for a search, of the room that a plan makes for the head of the queue."""

INSTANT = 1e-3
"""Seconds after which, for the head's reservation, the room held for it is free."""


class _Settled(NamedTuple):
    """The generation at which no queued request could start, and until when that holds."""

    generation: int
    until: float


class AdmissionQueue:
    """The queues of all fabrics and of the containers in them; may be shared by threads."""

    def __init__(
        self,
        store: Store,
        policies: Mapping[str, Policy],
        discipline: Discipline,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        """``policies`` are all that a request may have been recorded with."""
        self._store = store
        self._policies = policies
        self._discipline = discipline
        self._clock = clock
        self._settled: dict[str, _Settled] = {}

    def within(self, budget: RequestBudget) -> AdmissionQueue:
        """This queue on behalf of one request: its searches draw on the budget."""
        queue = copy.copy(self)
        queue._policies = {
            name: BudgetedPolicy(policy, budget) for name, policy in self._policies.items()
        }
        return queue

    def reload(self, discipline: Discipline) -> None:
        """Serve by this discipline from now on."""
        if discipline != self._discipline:
            self._discipline = discipline
            self._settled.clear()

    # -- admitting ------------------------------------------------------------

    def serve_all(self, generations: Mapping[str, int] | None = None) -> int:
        """Admit from every fabric's queue; returns how many requests were admitted.

        ``generations`` are those of all fabrics, if they were just read. An error on one fabric is
        logged and the other fabrics are served.

        Raises:
            Unavailable: the store does not answer.
        """
        admitted = 0
        if generations is None:
            generations = self._store.fabrics.generations()
        for id, generation in generations.items():
            try:
                admitted += self.serve(id, generation)
            except LaasError as error:
                LOG.warning("fabric %s: its queue is not served: %s", id, error)
            except Exception:
                LOG.exception("fabric %s: its queue could not be served", id)
        return admitted

    def serve(self, fabric_id: str, generation: int | None = None) -> int:
        """Admit every request that may start now; returns how many.

        ``generation`` is that of the fabric, if it was just read. Searches only if the fabric or
        the queue changed since the last search that admitted none, or if an allocation has
        outlived its expected end since.

        Raises:
            NotFound, Unavailable.
        """
        admitted = 0
        while True:
            if generation is None:
                generation = self._store.fabrics.get(fabric_id).generation
            now = self._now()
            settled = self._settled.get(fabric_id)
            if settled is not None and settled.generation == generation and now < settled.until:
                return admitted
            until = math.inf
            if waiting := self._queued(fabric_id):
                choose = functools.partial(self._startable, fabric_id)
                records = self._store.admissions.admit_waiting(fabric_id, choose)
                admitted += len(records)
                if records:
                    generation = None
                    continue
                ends = self._ends(fabric_id).values()
                until = min((end for end in ends if end > now), default=math.inf)
                LOG.debug("fabric %s: %d requests wait", fabric_id, len(waiting))
            self._settled[fabric_id] = _Settled(generation, until)

    def _startable(self, fabric_id: str, ledger: LedgerView) -> Sequence[Allocation]:
        """From every queue: the fabric has one, and so has each container in it.

        A head that room is made for starts alone; who overtakes it is decided without that room.
        """
        if (head := self._head_with_room(fabric_id, ledger)) is not None:
            return [head]
        startable: list[Allocation] = []
        for scope in self._scopes(fabric_id):
            waiting = self._waiting(fabric_id, scope)
            view = ledger.ledger(scope).flattened()
            ends, room = self._ends(fabric_id), self._room(fabric_id, scope)
            queue = self._queue(view, waiting, ends=ends, room=room)
            startable += queue.step(self._now())
        return startable

    def propose(
        self, newcomer: AllocationRequest, ledger: LedgerView, present: QueueState
    ) -> Allocation | NoFit:
        """A placement for a newcomer, unless it would overtake against the discipline.

        The newcomer stands behind all queued requests of its fabric or container that have its
        priority or a higher one. Those that may start now are placed before it, on a copy of the
        ledger; the worker admits them.
        """
        request = _request(newcomer)
        waiting = present.of(newcomer.parent)
        policy = self._policies[newcomer.policy]
        answer = propose_in_scope(policy, ledger, request)
        if isinstance(answer, NoFit):
            return explain_constraints(policy, ledger.ledger(newcomer.parent), request, answer)
        if not waiting:
            return answer
        scope = ledger.ledger(newcomer.parent).flattened()
        room = self._held(present.room) if newcomer.parent is None else None
        ends = self._needed_ends(present.ends or {})
        queue = self._queue(scope, waiting, newcomer, ends=ends, room=room)
        started = queue.step(self._now())
        for allocation in started:
            if allocation.id == newcomer.id:
                return allocation
        return NoFit(
            Refusal.OTHERS_WAIT,
            f"{newcomer.named} would fit, but {_counted(len(waiting))} here and "
            f'{self._why_not()}; ask with "wait": true (--queue) to join it',
        )

    # -- room made for the head -------------------------------------------------

    def head(self, fabric_id: str) -> AllocationRecord | None:
        """The first in the fabric's own queue; None if nobody waits."""
        return next(iter(self._waiting(fabric_id, None)), None)

    def expected_start(self, fabric_id: str) -> datetime | None:
        """When the head, which does not fit now, is expected to start without moves."""
        ledger, _ = self._store.fabrics.ledger(fabric_id)
        return self._expected_start(fabric_id, ledger, self._waiting(fabric_id, None))

    def request(self, record: AllocationRecord) -> tuple[Policy, Request]:
        """What a queued request asks for, and the policy that places it."""
        return self._policies[record.policy], _request(record)

    def fits(self, record: AllocationRecord, room: QueueRoom | None = None) -> Allocation | None:
        """Where the head fits now, also in the room made for it; None if nowhere."""
        return self._placed(record, self._store.fabrics.ledger(record.fabric)[0], room)

    def _placed(
        self, record: AllocationRecord, ledger: LedgerView, room: QueueRoom | None
    ) -> Allocation | None:
        policy, request = self.request(record)
        answer = propose(policy, ledger, request)
        if isinstance(answer, Allocation):
            return answer
        if room is None or room.made < len(room.moves):
            return None
        missing = room.placement.beyond(_free_part(ledger, room.placement))
        return None if missing.groups or missing.columns else room.placement

    def _head_with_room(self, fabric_id: str, ledger: LedgerView) -> Allocation | None:
        room, head = self._room(fabric_id, None), self.head(fabric_id)
        if room is None or head is None or head.id != room.allocation:
            return None
        return self._placed(head, ledger, room)

    def _room(self, fabric_id: str, scope: str | None) -> QueueRoom | None:
        """The plan whose room is held for the head of this queue."""
        return None if scope is not None else self._held(self._store.admissions.room(fabric_id))

    def _held(self, room: QueueRoom | None) -> QueueRoom | None:
        """The plan, if its room is held now."""
        return room if room is not None and room.holds_at(self._clock()) else None

    # -- explaining -----------------------------------------------------------

    def hopeless(self, newcomer: AllocationRequest, ledger: LedgerView) -> NoFit | None:
        """Why a request would not fit an empty fabric (or container) without faults; None if
        it would."""
        if not newcomer.kind.whole_hosts:
            return self._hopeless_slots(newcomer, ledger)
        policy, empty = self._policies[newcomer.policy], Ledger(ledger.topology)
        empty.inventory = ledger.inventory
        empty.withhold(ledger.shared_plane)
        empty.describe_hosts(ledger.features.hosts)
        if newcomer.parent is not None:
            container = ledger.holder(newcomer.parent).allocations[newcomer.parent]
            empty = empty.within(Masks.of(ledger.topology, container))
        request = Request(newcomer.id, newcomer.hosts, constraints=newcomer.constraints)
        answer = propose(policy, empty, request)
        if not isinstance(answer, NoFit):
            return None
        refusal = explain(policy, empty, request, answer)
        detail = f"it would wait for ever, as it does not fit the empty fabric: {refusal.detail}"
        return replace(refusal, detail=detail)

    def _hopeless_slots(self, newcomer: AllocationRequest, ledger: LedgerView) -> NoFit | None:
        """As ``hopeless``, for slots of shared hosts; those that are down count as taken."""
        empty, policy = ledger.ledger(newcomer.parent).unowned(), self._policies[newcomer.policy]
        answer = policy.propose(empty, _request(newcomer))
        if not isinstance(answer, NoFit):
            return None
        detail = f"it would wait for ever, as it fits no empty hosts: {answer.detail}"
        return replace(answer, detail=detail)

    def places(self, fabric_id: str, ids: Collection[str] | None = None) -> dict[str, Place]:
        """The places of queued requests, by allocation id; of these ids only, if given.

        At most ``EXPLAINED`` different requests are searched for, so that the time is bounded
        however many wait; the refusals of the others say so.
        """
        ledger, _ = self._store.fabrics.ledger(fabric_id)
        places: dict[str, Place] = {}
        searched: set[object] = set()
        for scope in self._scopes(fabric_id):
            if waiting := self._waiting(fabric_id, scope):  # else the last has just left it
                places |= self._places(fabric_id, ledger.ledger(scope), waiting, ids, searched)
        return places

    def _places(
        self,
        fabric_id: str,
        ledger: LedgerView,
        waiting: Sequence[AllocationRecord],
        ids: Collection[str] | None,
        searched: set[object],
    ) -> dict[str, Place]:
        """The places in one queue."""
        refuse = functools.cache(functools.partial(self._refusal, ledger))
        largest = functools.cache(functools.partial(self._largest, ledger))
        places = {}
        plan = None if waiting[0].parent else self._store.admissions.room(fabric_id)
        for position, record in enumerate(waiting, start=1):
            if ids is not None and record.id not in ids:
                continue
            kind = (record.policy, record.hosts, record.constraints, record.slots)
            searched.add((record.parent, *kind))
            if len(searched) > EXPLAINED:
                places[record.id] = Place(position, NOT_SEARCHED, None)
                continue
            refusal = refuse(*kind)
            start = None
            if refusal is None and position > 1:
                refusal = NoFit(
                    Refusal.OTHERS_WAIT,
                    f"{record.named} would fit, but {_counted(position - 1)} before it "
                    f"and {self._why_not()}",
                )
            elif refusal is not None and position == 1:
                start = self._expected_start(fabric_id, ledger, waiting)
            if refusal is not None and record.kind.whole_hosts:
                size = largest(record.policy, record.constraints)
                refusal = replace(refusal, largest_fit=size)
            room = plan if plan is not None and plan.allocation == record.id else None
            if room is not None and room.state is RoomState.DONE:
                room = None
            places[record.id] = Place(position, refusal, start, room)
        return places

    def _refusal(
        self,
        ledger: LedgerView,
        policy: str,
        hosts: int,
        constraints: Constraints | None,
        slots: SlotDemand | None,
    ) -> NoFit | None:
        musts = constraints and constraints.musts
        request = Request("", max(hosts, 1), constraints=musts, slots=slots)
        answer = propose(self._policies[policy], ledger, request)
        if not isinstance(answer, NoFit):
            return None
        return explain_constraints(self._policies[policy], ledger, request, answer)

    def _largest(self, ledger: LedgerView, policy: str, constraints: Constraints | None) -> int:
        return largest_fit(self._policies[policy], ledger, ledger.free_host_count + 1, constraints)

    def _expected_start(
        self, fabric_id: str, ledger: LedgerView, waiting: Sequence[AllocationRecord]
    ) -> datetime | None:
        """When the head, which does not fit now, is expected to start."""
        queue = self._queue(ledger.flattened(), waiting, ends=self._ends(fabric_id))
        if not isinstance(queue, EasyQueue) or not waiting:
            return None
        time = queue.reserve(self._now()).time
        return None if time == math.inf else datetime.fromtimestamp(time, UTC)

    def _why_not(self) -> str:
        if self._discipline.kind == "fifo":
            return "nobody overtakes (fifo)"
        return "starting it now could delay the first of them (easy)"

    # -- what is recorded -------------------------------------------------------

    def _now(self) -> float:
        return self._clock().timestamp()

    def _queued(self, fabric_id: str) -> list[AllocationRecord]:
        recorded = every_allocation(
            self._store.allocations, fabric=fabric_id, states={State.QUEUED}
        )
        return sorted(recorded, key=_turn)

    def _scopes(self, fabric_id: str) -> list[str | None]:
        """The containers with a queue, and None for the fabric's own."""
        return list(dict.fromkeys(record.parent for record in self._queued(fabric_id)))

    def _waiting(self, fabric_id: str, scope: str | None) -> list[AllocationRecord]:
        """The queue of the fabric, or of a container."""
        return [record for record in self._queued(fabric_id) if record.parent == scope]

    def _ends(self, fabric_id: str) -> dict[str, float]:
        """When the present allocations are expected to end, if the discipline needs it."""
        if self._discipline.kind == "fifo":
            return {}
        running = every_allocation(self._store.allocations, fabric=fabric_id, states=HOLDING)
        return self._needed_ends({one.id: one.ends_at for one in running if one.ends_at})

    def _needed_ends(self, ends: Mapping[str, datetime]) -> dict[str, float]:
        """The ends in seconds, if the discipline needs them."""
        if self._discipline.kind == "fifo":
            return {}
        return {id: at.timestamp() for id, at in ends.items()}

    def _queue(
        self,
        ledger: Ledger,
        waiting: Sequence[AllocationRecord],
        *newcomers: AllocationRequest,
        ends: dict[str, float],
        room: QueueRoom | None = None,
    ) -> Queue:
        """The queue as recorded, then newcomers, over a ledger that it may change.

        Nobody gets ``room``. The head's reservation counts it as free at once, as it is what the
        head has without the plan.
        """
        requests: list[AllocationRecord | AllocationRequest] = sorted(
            [*waiting, *newcomers], key=_turn
        )
        policies = {request.id: self._policies[request.policy] for request in requests}
        same = len({request.policy for request in requests}) == 1
        policy: Policy = self._policies[requests[0].policy] if same else _Each(policies)
        if room is not None and ((hold := _held(ledger, room)).groups or hold.columns):
            ledger.claim(hold)
            ends = {**ends, HOLD: self._now() + INSTANT}
        queue = make_queue(ledger, policy, self._discipline, ends)
        for request in requests:
            duration = math.inf if request.duration is None else request.duration
            queue.submit(_request(request), duration)
        return queue


def _turn(request: AllocationRecord | AllocationRequest) -> int:
    """Sorts a queue: the highest priority first, equal ones as they are."""
    return -(request.priority or 0)


def _request(asked: AllocationRecord | AllocationRequest) -> Request:
    return Request(
        asked.id,
        max(asked.hosts, 1),
        constraints=asked.constraints,
        parent=asked.parent,
        container=asked.container,
        sharing=asked.sharing,
        slots=asked.slots,
    )


def _held(ledger: LedgerView, room: QueueRoom) -> Allocation:
    """What is free now of all that the plan needs."""
    needed = room.placement
    for move in room.moves:
        needed = needed.joined(move.to)
    return replace(_free_part(ledger, needed), id=HOLD, container=False)


def _free_part(ledger: LedgerView, wanted: Allocation) -> Allocation:
    """The hosts and links of a placement that are free now."""
    hosts, uplinks, spines = ledger.free_hosts, ledger.free_uplinks, ledger.free_spines
    width = ledger.topology.columns_per_pod
    groups = (
        GroupShare(group, mask & hosts[group], ups & uplinks[group])
        for group, mask, ups in wanted.groups
    )
    columns = (
        ColumnShare(pod, column, ups & spines[pod * width + column])
        for pod, column, ups in wanted.columns
    )
    return replace(
        wanted,
        groups=tuple(share for share in groups if share.hosts or share.uplinks),
        columns=tuple(share for share in columns if share.uplinks),
    )


class _Each:
    """Answers every request by the policy that it was recorded with."""

    name: ClassVar[str] = "each"
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = False

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies = policies

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        return self._policies[request.id].propose(fabric, request)


def _counted(waiting: int) -> str:
    return "1 request waits" if waiting == 1 else f"{waiting} requests wait"
