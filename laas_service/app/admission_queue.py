# SPDX-License-Identifier: Apache-2.0

"""The queue of every fabric: who waits, for what, and who gets room when there is some.

The record is the queue: its order is that in which requests were recorded, and a
process keeps nothing that a crash could lose. Every decision is made anew by the
discipline of ``domain.queue`` from the ledger and the record, and holds only if
neither has moved on before it is committed.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, NamedTuple, Protocol

from laas_service.app.ports.allocations import Admissions, AllocationReader
from laas_service.app.ports.fabrics import FabricReader
from laas_service.app.records import AllocationRecord, NewAllocation, State
from laas_service.domain.admission import queue
from laas_service.domain.admission.admit import explain, largest_fit, offer
from laas_service.domain.admission.constrained import blamed, propose
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import LaasError
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies.base import BudgetedPolicy, Policy

LOG = logging.getLogger(__name__)

EXPLAINED = 32
"""Different requests of a queue for which it is worked out at once what they wait for."""

NOT_SEARCHED = NoFit(
    Refusal.BUDGET,
    "what it waits for was not worked out, as many others were asked about with it; "
    "ask for it alone",
)

HOLDING = frozenset({State.ALLOCATING, State.ACTIVE, State.RELEASING, State.ERROR})
"""The states in which an allocation has claims."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queued request stands (1 is the head) and what it waits for.

    ``refusal`` is None where it fits and is about to be admitted. ``expected_start``
    is the head's reservation, None where it has none.
    """

    position: int
    refusal: NoFit | None
    expected_start: datetime | None = None


class _Looked(NamedTuple):
    """The generation at which nobody could be admitted, and until when that holds."""

    generation: int
    until: float


class QueueStore(AllocationReader, Admissions, FabricReader, Protocol):
    """The recorded requests and fabrics, as the queue needs them."""


class AdmissionQueue:
    """The queues, over the store; safe to share between threads.

    ``policies`` are all that a request may have been recorded with.
    """

    def __init__(
        self,
        store: QueueStore,
        policies: Mapping[str, Policy],
        rules: queue.QueueSettings,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._policies = policies
        self._rules = rules
        self._clock = clock
        self._looked: dict[str, _Looked] = {}
        self._meter: RequestBudget | None = None

    def on(self, meter: RequestBudget) -> AdmissionQueue:
        """This line on behalf of one request: its searches draw on the meter."""
        line = copy.copy(self)
        line._policies = {
            name: BudgetedPolicy(policy, meter) for name, policy in self._policies.items()
        }
        line._meter = meter
        return line

    def adopt(self, rules: queue.QueueSettings) -> None:
        """Serve by these rules from now on."""
        if rules != self._rules:
            self._rules = rules
            self._looked.clear()

    # -- admitting ------------------------------------------------------------

    def serve_all(self) -> int:
        """Admit from every fabric's queue; returns how many requests got room.

        What goes wrong on one fabric is logged and leaves the others alone.

        Raises:
            Unavailable: the store does not answer.
        """
        admitted = 0
        for fabric in self._store.fabrics():
            try:
                admitted += self.serve(fabric.id)
            except LaasError as error:
                LOG.warning("fabric %s: its queue has to wait: %s", fabric.id, error)
            except Exception:
                LOG.exception("fabric %s: its queue could not be served", fabric.id)
        return admitted

    def serve(self, fabric_id: str) -> int:
        """Admit everybody who may start now; returns how many.

        Looks only if the fabric or the queue changed since it last found nobody, or
        something runs longer than was expected. Raises: NotFound, Unavailable.
        """
        admitted = 0
        while True:
            generation, now = self._store.fabric(fabric_id).generation, self._now()
            looked = self._looked.get(fabric_id)
            if looked is not None and looked.generation == generation and now < looked.until:
                return admitted
            until = math.inf
            if self._meter is not None and self._meter.cut:
                return admitted
            if waiting := self._all(fabric_id, {State.QUEUED}):
                choose = functools.partial(self._startable, fabric_id)
                records = self._store.admit_waiting(fabric_id, choose)
                admitted += len(records)
                if records:
                    continue
                ends = self._ends(fabric_id).values()
                until = min((end for end in ends if end > now), default=math.inf)
                LOG.debug("fabric %s: %d requests wait", fabric_id, len(waiting))
            if self._meter is None or not self._meter.cut:
                self._looked[fabric_id] = _Looked(generation, until)

    def _startable(self, fabric_id: str, fabric: LedgerView) -> Sequence[Allocation]:
        """From every queue: the fabric has one, and so has each container in it."""
        found: list[Allocation] = []
        scopes = dict.fromkeys(one.parent for one in self._all(fabric_id, {State.QUEUED}))
        for scope in scopes:
            waiting = self._waiting(fabric_id, scope)
            line = self._queue(fabric_id, fabric.ledger(scope).surface(), waiting)
            found += line.step(self._now())
        return found

    def propose(self, new: NewAllocation, fabric: LedgerView) -> Allocation | NoFit:
        """A place for a newcomer, unless somebody who waits would be overtaken.

        It stands behind all who wait; the discipline decides whether it may pass.
        """
        request, waiting = _request(new), self._waiting(new.fabric, new.parent)
        policy = self._policies[new.policy]
        answer = offer(policy, fabric, request)
        if isinstance(answer, NoFit):
            return blamed(policy, fabric.ledger(new.parent), request, answer)
        if not waiting:
            return answer
        ledger = fabric.ledger(new.parent).surface()
        line = self._queue(new.fabric, ledger, waiting, new)
        started = line.step(self._now())
        if [allocation.id for allocation in started] == [new.id]:
            return started[0]
        return NoFit(
            Refusal.OTHERS_WAIT,
            f"{new.hosts} hosts would fit, but {_counted(len(waiting))} here and "
            f"{self._why_not()}; ask with wait to join the queue",
        )

    # -- explaining -----------------------------------------------------------

    def hopeless(self, new: NewAllocation, fabric: LedgerView) -> NoFit | None:
        """Why a request could not be served by an empty fabric (or container) without faults;
        None if it could."""
        policy, empty = self._policies[new.policy], Ledger(fabric.topology)
        empty.withhold(fabric.shared_plane)
        empty.describe_hosts(fabric.features.hosts)
        if new.parent is not None:
            around = fabric.holder(new.parent).allocations[new.parent]
            empty = empty.within(Masks.of(fabric.topology, around))
        request = Request(new.id, new.hosts, constraints=new.constraints)
        answer = propose(policy, empty, request)
        if not isinstance(answer, NoFit):
            return None
        told = explain(policy, empty, request, answer)
        detail = f"it would wait for ever, as it does not fit the empty fabric: {told.detail}"
        return replace(told, detail=detail)

    def places(self, fabric_id: str, wanted: Collection[str] | None = None) -> dict[str, Place]:
        """The places of those who wait and are wanted (None: all), by allocation id, as of now.

        At most ``EXPLAINED`` different requests are searched for, so that the answer takes
        a bounded time however many wait; those beyond are told that this is why.
        """
        fabric, _ = self._store.ledger(fabric_id)
        scopes = dict.fromkeys(one.parent for one in self._all(fabric_id, {State.QUEUED}))
        places: dict[str, Place] = {}
        searched: set[object] = set()
        for scope in scopes:
            ledger, waiting = fabric.ledger(scope), self._waiting(fabric_id, scope)
            places |= self._places(fabric_id, ledger, waiting, wanted, searched)
        return places

    def _places(
        self,
        fabric_id: str,
        fabric: LedgerView,
        waiting: Sequence[AllocationRecord],
        wanted: Collection[str] | None,
        searched: set[object],
    ) -> dict[str, Place]:
        """Of one queue."""
        answer = functools.cache(functools.partial(self._answer, fabric))
        most = functools.cache(functools.partial(self._most, fabric))
        places = {}
        for position, record in enumerate(waiting, start=1):
            if wanted is not None and record.id not in wanted:
                continue
            searched.add((record.parent, record.policy, record.hosts, record.constraints))
            if len(searched) > EXPLAINED:
                places[record.id] = Place(position, NOT_SEARCHED, None)
                continue
            refusal = answer(record.policy, record.hosts, record.constraints)
            start = None
            if refusal is None and position > 1:
                refusal = NoFit(
                    Refusal.OTHERS_WAIT,
                    f"{record.hosts} hosts would fit, but {_counted(position - 1)} before it "
                    f"and {self._why_not()}",
                )
            elif refusal is not None and position == 1:
                start = self._expected_start(fabric_id, fabric, waiting)
            if refusal is not None:
                refusal = replace(refusal, largest_fit=most(record.policy, record.constraints))
            places[record.id] = Place(position, refusal, start)
        return places

    def _answer(
        self, fabric: LedgerView, policy: str, hosts: int, wish: Constraints | None
    ) -> NoFit | None:
        request = Request("", hosts, constraints=wish and wish.musts)
        answer = propose(self._policies[policy], fabric, request)
        if not isinstance(answer, NoFit):
            return None
        return blamed(self._policies[policy], fabric, request, answer)

    def _most(self, fabric: LedgerView, policy: str, wish: Constraints | None) -> int:
        return largest_fit(self._policies[policy], fabric, fabric.free_host_count + 1, wish)

    def _expected_start(
        self, fabric_id: str, fabric: LedgerView, waiting: Sequence[AllocationRecord]
    ) -> datetime | None:
        """When the head, which does not fit now, is expected to start."""
        line = self._queue(fabric_id, fabric.surface(), waiting)
        if not isinstance(line, queue.EasyQueue):
            return None
        time = line.reserve(self._now()).time
        return None if time == math.inf else datetime.fromtimestamp(time, UTC)

    def _why_not(self) -> str:
        if self._rules.discipline is queue.Discipline.FIFO:
            return "nobody overtakes (fifo)"
        return "starting it now could delay the first of them (easy)"

    # -- what is recorded -------------------------------------------------------

    def _now(self) -> float:
        return self._clock().timestamp()

    def _waiting(self, fabric_id: str, scope: str | None) -> list[AllocationRecord]:
        """Who waits for room in the fabric, or in a container."""
        queued = self._all(fabric_id, {State.QUEUED})
        return [record for record in queued if record.parent == scope]

    def _ends(self, fabric_id: str) -> dict[str, float]:
        """When the present allocations are expected to end, where the discipline asks."""
        if self._rules.discipline is queue.Discipline.FIFO:
            return {}
        running = self._all(fabric_id, HOLDING)
        return {record.id: record.ends_at.timestamp() for record in running if record.ends_at}

    def _all(self, fabric_id: str, states: Collection[State]) -> list[AllocationRecord]:
        found: list[AllocationRecord] = []
        marker = None
        while page := self._store.allocations(fabric=fabric_id, states=states, marker=marker):
            found += page
            marker = page[-1].id
        return found

    def _queue(
        self,
        fabric_id: str,
        fabric: Ledger,
        waiting: Sequence[AllocationRecord],
        *newcomers: NewAllocation,
    ) -> queue.Queue:
        """The queue as recorded, newcomers last, over a fabric it may change."""
        standing: list[AllocationRecord | NewAllocation] = [*waiting, *newcomers]
        policies = {one.id: self._policies[one.policy] for one in standing}
        same = len({one.policy for one in standing}) == 1
        policy: Policy = self._policies[standing[0].policy] if same else _Each(policies)
        line = queue.make_queue(fabric, policy, self._rules, self._ends(fabric_id))
        for one in standing:
            duration = math.inf if one.duration is None else one.duration
            line.submit(_request(one), duration)
        return line


def _request(one: AllocationRecord | NewAllocation) -> Request:
    return Request(
        one.id,
        one.hosts,
        constraints=one.constraints,
        parent=one.parent,
        container=one.container,
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
