# SPDX-License-Identifier: Apache-2.0

"""The admission queue: FIFO and EASY backfilling, and the reservation of the first request.

FIFO starts requests in order and stops at the first that does not fit. EASY lets
later requests overtake, but the first one (the *head*) holds a reservation: the
*shadow time*, the earliest time at which it fits if all running allocations end as
expected. Neither discipline delays the head past its reservation.

The shadow time is searched on a second ledger, the fabric as it will be at a later
time. That ledger is copied once and then updated: each running allocation is claimed
and released there once. While allocations end as expected, a reservation stays exact
until the head starts, because a backfilled request leaves less free before the shadow
time and enough at it.

Source: Skovira et al., EASY-LoadLeveler (JSSPP'96); Jigsaw (HPDC'21), 5.3.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

from laas_service.domain.admission.admit import OTHERS_WAIT, admit
from laas_service.domain.admission.constrained import propose
from laas_service.domain.admission.vetoes import Vetoes
from laas_service.domain.allocation import (
    WHOLE,
    Allocation,
    Ground,
    NoFit,
    Packing,
    Request,
    SlotDemand,
)
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.base import Policy
from laas_service.domain.search.known_fits import KnownFits
from laas_service.domain.search.size_bounds import most_that_may_fit

PACKING_SHARE = 0.25
"""By how much of a request's duration ends may differ to save one free host in a leaf.

Found by trial: values between 0.1 and 0.5 change utilization by a tenth of a point."""

Accept = Callable[[Allocation], bool]
Started = Allocation | None

_RequestKind = int | tuple[int, Constraints | None, int | None, SlotDemand | None]
"""Hosts, constraints, bandwidth and slots: requests equal in these get the same answer.

The hosts alone if there is nothing else."""

KINDS = ("fifo", "easy")
"""Whether a request may overtake the head: never, or as EASY backfilling allows."""


class Shadow(enum.Enum):
    """When a request may overtake the head.

    ``END_BEFORE_SHADOW``: only if it ends by the shadow time. ``WHAT_IF``: also if
    the head still has a legal placement at the shadow time with this one in place;
    for a policy without placement rules this is EASY's count of extra hosts.
    """

    END_BEFORE_SHADOW = "end-before-shadow"
    WHAT_IF = "what-if"


class Order(enum.Enum):
    """In which order the requests in the window are tried."""

    ARRIVAL = "arrival"
    BIG_FIRST = "big-first"


@dataclass(frozen=True, slots=True)
class Discipline:
    """How the queue is served.

    Raises:
        InvalidInput: the kind is not one of ``KINDS``, or the window is negative.
    """

    kind: str = "easy"
    """One of ``KINDS``."""

    window: int = 50
    """How many requests behind the head are tried, 0 or more."""

    shadow: Shadow = Shadow.WHAT_IF
    order: Order = Order.ARRIVAL

    packing: bool = False
    """Whether a request with a known duration prefers a leaf whose other tenants end when it
    does."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput("discipline", self.kind, f"choose one of {', '.join(KINDS)}")
        if self.window < 0:
            raise InvalidInput("window", self.window, "give 0 or more requests")


class Waiting:
    """A request in the queue. ``duration`` in any unit of time; infinite if unknown."""

    __slots__ = ("duration", "least_hosts", "request")

    def __init__(self, request: Request, duration: float = math.inf) -> None:
        self.request = request
        self.duration = duration
        self.least_hosts = request.hosts if request.bandwidth is None else 0
        """``Request.hosts``; 0 if it shares links: it may fit where others of its size do not."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The head starts at ``time`` at the latest, for example as ``planned``.

    ``time`` is infinite and ``planned`` None if too few ends of running allocations are
    known. Then no request may overtake, as it might delay the head.
    """

    time: float
    planned: Allocation | None


def make_queue(
    fabric: Ledger,
    policy: Policy,
    discipline: Discipline,
    ends: Mapping[str, float] | None = None,
) -> Queue:
    """The queue that serves by this discipline; ``ends`` as in ``EasyQueue``."""
    if discipline.kind == "fifo":
        return Queue(fabric, policy, discipline)
    return EasyQueue(fabric, policy, discipline, ends)


class Queue:
    """FIFO: the requests waiting for a fabric, started in order.

    Every change of the fabric's allocations must go through the queue.
    """

    def __init__(self, fabric: Ledger, policy: Policy, discipline: Discipline) -> None:
        self.fabric = fabric
        self.policy = policy
        self.discipline = discipline
        self._waiting: deque[Waiting] = deque()
        self._refusals = _Refusals(policy.monotone)
        self._closing = [-math.inf] * fabric.topology.groups

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        """The waiting requests, the head first."""
        return iter(self._waiting)

    def submit(self, request: Request, duration: float = math.inf) -> None:
        """Put a request at the end of the queue; the next ``step`` may start it."""
        self._waiting.append(Waiting(request, duration))

    def cancel(self, request_id: str) -> Waiting:
        """Take a waiting request out of the queue.

        Raises:
            NotFound: no request with that id is waiting.
        """
        for waiting in self._waiting:
            if waiting.request.id == request_id:
                self._waiting.remove(waiting)
                return waiting
        raise NotFound("waiting request", request_id)

    def finish(self, allocation_id: str, now: float) -> Allocation:
        """Release a running allocation; call it before ``step`` at the same time.

        Raises:
            NotFound: no allocation with that id is running.
        """
        allocation = self.fabric.release(allocation_id)
        self._refusals = _Refusals(self.policy.monotone)
        return allocation

    def step(self, now: float) -> list[Allocation]:
        """Start all requests that may start at ``now``, which must not decrease."""
        started = []
        while self._waiting:
            allocation = self._admit(self._waiting[0], now)
            if allocation is None:
                break
            self._waiting.popleft()
            started.append(allocation)
        return started

    def _admit(self, waiting: Waiting, now: float, accept: Accept | None = None) -> Started:
        """Start a request if it fits; the policy is asked only if no earlier refusal applies."""
        request = waiting.request
        if request.hosts > self.fabric.free_host_count or self._refusals.apply_to(request):
            return None
        answer = admit(self.policy, self.fabric, self._packed(waiting, now), accept)
        if isinstance(answer, NoFit):
            self._refusals.add(request, answer)
            return None
        if self.discipline.packing:
            for group, _, _ in answer.groups:
                self._closing[group] = max(self._closing[group], now + waiting.duration)
        return answer

    def _packed(self, waiting: Waiting, now: float) -> Request:
        """The request with its preference for a leaf, if packing is set."""
        if not self.discipline.packing or waiting.duration == math.inf:
            return waiting.request
        per_host = waiting.duration * PACKING_SHARE
        packing = Packing(self._closing, now + waiting.duration, per_host)
        return replace(waiting.request, packing=packing)


class EasyQueue(Queue):
    """EASY backfilling: a request that does not delay the head may overtake it.

    ``ends`` says by id when the present allocations are expected to end. The end of an
    allocation that is not in it, or that runs longer than expected, is unknown.
    """

    moves: ClassVar[bool] = False
    """Whether the head may get its place by moves of running allocations."""

    def __init__(
        self,
        fabric: Ledger,
        policy: Policy,
        discipline: Discipline,
        ends: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(fabric, policy, discipline)
        self._future = _Future(fabric, ends or {})
        fabric.reader_cache(KnownFits)
        self._reserved: tuple[Waiting, Reservation] | None = None
        self._vetoes: Vetoes | None = None
        """What is known of the reservation; not None once there is one."""

    @property
    def reservation(self) -> Reservation | None:
        """The head's reservation; None while none was needed."""
        if self._reserved is None or not self._waiting:
            return None
        head, reservation = self._reserved
        return reservation if head is self._waiting[0] else None

    def finish(self, allocation_id: str, now: float) -> Allocation:
        allocation = super().finish(allocation_id, now)
        if self._future.forget(allocation_id) > now:
            self._reserved = None  # earlier than expected: the head may start earlier
        return allocation

    def step(self, now: float) -> list[Allocation]:
        if self._future.note_overruns(now):
            self._reserved = None
        started = []
        reservation = self.reservation
        if reservation is None or reservation.time <= now or reservation.planned is None:
            started = super().step(now)
        return started + self._backfill(now)

    def _admit(self, waiting: Waiting, now: float, accept: Accept | None = None) -> Started:
        allocation = super()._admit(waiting, now, accept)
        if allocation is not None:
            self._future.start(allocation, now + waiting.duration)
        return allocation

    def _backfill(self, now: float) -> list[Allocation]:
        most = self._most_hosts()
        window = islice(self._waiting, 1, self.discipline.window + 1)
        candidates = [waiting for waiting in window if waiting.least_hosts <= most]
        if not candidates:
            return []
        shadow = self.reserve(now).time
        if shadow == math.inf:
            return []
        if self.discipline.order is Order.BIG_FIRST:
            candidates.sort(key=lambda waiting: -waiting.request.hosts)
        most_beside = self._most_hosts_beside_head()
        started, claimed = [], False
        for waiting in candidates:
            if waiting.least_hosts > most:
                continue
            if claimed:  # less fits since the last start
                most, most_beside = self._most_hosts(), self._most_hosts_beside_head()
                claimed = False
                if waiting.least_hosts > most:
                    continue
            if now + waiting.duration <= shadow:
                allocation = self._admit(waiting, now)
            elif waiting.request.hosts > most_beside or self._delays_head(waiting.request):
                continue
            else:
                allocation = self._admit(waiting, now, self._head_fits_beside)
            if allocation is None:
                most = min(most, self._smallest_refused - 1)
                continue
            self._waiting.remove(waiting)
            self._refusals.forget_vetoes()
            started.append(allocation)
            claimed = True
        return started

    def _most_hosts(self) -> float:
        """More hosts than this do not fit now."""
        most, below = self.fabric.free_host_count, self._smallest_refused
        if not self.moves:
            limit = most_that_may_fit(self.fabric, self.policy.name)
            most = limit if limit < most else most
        return most if most < below else below - 1

    @property
    def _smallest_refused(self) -> float:
        """No request for so many hosts or more can start now."""
        return self._refusals.smallest

    def _most_hosts_beside_head(self) -> int:
        """More hosts than this delay the head, unless they are free again at its shadow time."""
        if self.discipline.shadow is Shadow.END_BEFORE_SHADOW:
            return -1
        spare = self._future.fabric.free_host_count - self._waiting[0].request.hosts
        return spare if self._vetoes is None else min(spare, self._vetoes.most_hosts(self.fabric))

    def _delays_head(self, request: Request) -> bool:
        """Whether a request, started now, is known to delay the head; no search is made."""
        if self._refusals.vetoed(request):
            return True
        if request.constraints is not None or self.discipline.packing or self._vetoes is None:
            return False
        if not self._vetoes.delays(self.fabric, request.hosts):
            return False
        self._refusals.add(request, OTHERS_WAIT)
        return True

    def _head_fits_beside(self, newcomer: Allocation) -> bool:
        """Whether the head still fits at its shadow time beside the newcomer."""
        reservation, vetoes = self.reservation, self._vetoes
        if reservation is None or vetoes is None:
            return False
        taken, known = 0, None
        whole_hosts = newcomer.kind.whole_hosts
        if whole_hosts:  # vetoes compare whole hosts and links
            taken = vetoes.taken(newcomer)
            known = vetoes.known(taken, newcomer, reservation.planned)
        if known is not None:
            return known
        head, future = self._waiting[0], self._future.fabric
        with self._beside(newcomer):
            answer = self._head_at_shadow(future)
        if isinstance(answer, NoFit):
            if whole_hosts:
                vetoes.add(taken, newcomer, proven=not answer.reason.unproven)
            return False
        self._reserved = (head, Reservation(reservation.time, answer))
        return True

    def _beside(self, newcomer: Allocation) -> AbstractContextManager[None]:
        """Inside the block the newcomer has its place at the shadow time."""
        future = self._future.fabric
        if self.moves or newcomer.parent is not None or newcomer.bandwidth != WHOLE:
            return self._claimed(newcomer)
        return future.taking(newcomer)

    @contextmanager
    def _claimed(self, newcomer: Allocation) -> Iterator[None]:
        with self._future.fabric.trial():
            self._future.fabric.claim(newcomer)
            yield

    def _head_at_shadow(self, future: Ledger) -> Allocation | NoFit:
        """What the head can have on ``future``, the fabric at its shadow time.

        Hosts and links beside this may be taken without delaying the head.
        """
        return propose(self.policy, future, self._waiting[0].request)

    def reserve(self, now: float) -> Reservation:
        """The reservation of the head, which must not fit at ``now``.

        Searched once: it holds until the head starts.
        """
        known = self.reservation
        if known is not None and known.time > now:
            return known
        head = self._waiting[0]
        reservation = self._future.earliest(self.policy, head.request, now)
        self._reserved = (head, reservation)
        self._vetoes = Vetoes(self.policy, head.request, self._future.fabric, self.moves)
        return reservation


class _Future:
    """The fabric as it will be at ``time`` if all allocations end as expected.

    It holds the allocations of ``present`` that end after ``time``.
    """

    def __init__(self, present: Ledger, ends: Mapping[str, float]) -> None:
        self.fabric = present.copy()
        self.time = -math.inf
        self._present = present
        self._ends = {id: ends.get(id, math.inf) for id in present.allocations}
        self._by_end = sorted((end, id) for id, end in self._ends.items())

    def start(self, allocation: Allocation, end: float) -> None:
        self._ends[allocation.id] = end
        insort(self._by_end, (end, allocation.id))
        if end > self.time:
            self.fabric.claim(allocation)

    def forget(self, allocation_id: str) -> float:
        """Remove an allocation that has ended; returns when it was expected to end."""
        end = self._ends.pop(allocation_id)
        del self._by_end[bisect_left(self._by_end, (end, allocation_id))]
        if end > self.time:
            self.fabric.release(allocation_id)
        return end

    def end_of(self, allocation_id: str) -> float:
        """When an allocation is expected to end."""
        return self._ends[allocation_id]

    def note_overruns(self, now: float) -> bool:
        """Make the ends of allocations that run longer than expected unknown; whether any does."""
        if not self._by_end or self._by_end[0][0] > now:
            return False
        late = self._by_end[: self._after(now)]
        for end, id in late:
            self._ends[id] = math.inf
            if end <= self.time:
                self.fabric.claim(self._present.allocations[id])
        self._by_end = self._by_end[len(late) :] + [(math.inf, id) for _, id in late]
        self._by_end.sort()
        return True

    def earliest(self, policy: Policy, request: Request, now: float) -> Reservation:
        """Advance to the first known end after ``now`` at which the request fits."""
        self._set_back(now)
        while self._advance():
            if request.hosts <= most_that_may_fit(self.fabric, policy.name):
                planned = propose(policy, self.fabric, request)
                if isinstance(planned, Allocation):
                    return Reservation(self.time, planned)
        return Reservation(math.inf, None)

    def _set_back(self, now: float) -> None:
        """Return to ``now`` after an advance for an earlier head."""
        for _, id in self._by_end[self._after(now) : self._after(self.time)]:
            self.fabric.claim(self._present.allocations[id])
        self.time = now

    def _advance(self) -> bool:
        """Advance to the next known end; False if there is none."""
        first = self._after(self.time)
        if first == len(self._by_end) or self._by_end[first][0] == math.inf:
            return False
        self.time = self._by_end[first][0]
        for _, id in self._by_end[first : self._after(self.time)]:
            self.fabric.release(id)
        return True

    def _after(self, time: float) -> int:
        """The index in ``_by_end`` of the first end after ``time``."""
        return bisect_left(self._by_end, (math.nextafter(time, math.inf), ""))


class _Refusals:
    """Requests that do not fit until an allocation is released; a claim never makes room.

    A monotone policy that refuses N hosts refuses every larger size, also under
    constraints; if it refuses a share of links, every larger share too. A refusal under
    constraints applies to equal requests only, and so does one of a search that exhausted
    its budget. A *veto* says that the present placement of a request would delay the head;
    it holds until a request starts.
    """

    def __init__(self, monotone: bool) -> None:
        self._monotone = monotone
        self._refused: set[_RequestKind] = set()
        self._vetoed: set[_RequestKind] = set()
        self._shared: dict[int, int] = {}
        self.smallest: float = math.inf

    def add(self, request: Request, refusal: NoFit) -> None:
        if refusal.reason.facts.ground is Ground.QUEUE:
            self._vetoed.add(_kind(request))
        elif not self._monotone or refusal.reason.unproven or request.constraints is not None:
            self._refused.add(_kind(request))
        elif request.bandwidth is None:
            self.smallest = min(self.smallest, request.hosts)
        else:
            known = self._shared.get(request.bandwidth, request.hosts)
            self._shared[request.bandwidth] = min(known, request.hosts)

    def apply_to(self, request: Request) -> bool:
        if request.bandwidth is None:
            if request.hosts >= self.smallest:
                return True
            return bool(self._refused) and _kind(request) in self._refused
        return _kind(request) in self._refused or any(
            request.bandwidth >= bandwidth and request.hosts >= hosts
            for bandwidth, hosts in self._shared.items()
        )

    def vetoed(self, request: Request) -> bool:
        return bool(self._vetoed) and _kind(request) in self._vetoed

    def forget_vetoes(self) -> None:
        self._vetoed.clear()


def _kind(request: Request) -> _RequestKind:
    constraints, bandwidth, slots = request.constraints, request.bandwidth, request.slots
    if constraints is None and bandwidth is None and request.kind.whole_hosts:
        return request.hosts
    return request.hosts, constraints, bandwidth, slots
