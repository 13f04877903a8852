# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""The use cases: what a tenant or an operator can ask of the service.

Every method takes and gives plain values. A refusal is an answer (``NoFit``);
mistakes and lost races are exceptions of ``domain.errors``.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from laas_service.app import listing
from laas_service.app.convergence import Action, next_action
from laas_service.app.counted import Counted
from laas_service.app.line import HOLDING, Line, Place
from laas_service.app.ports import Applied, Compute, Store, SubnetManager
from laas_service.app.records import (
    NO_LIMITS,
    AllocationRecord,
    Caller,
    Drift,
    FabricRecord,
    Holding,
    HostState,
    Limits,
    LinkState,
    NewAllocation,
    State,
    Wait,
)
from laas_service.app.repairs import mend
from laas_service.domain import withholding
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.allocator import largest_fit
from laas_service.domain.constrained import blamed, check, propose
from laas_service.domain.constraints import Constraints
from laas_service.domain.degradation import Degraded
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    LaasError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from laas_service.domain.fabric import Fabric, FabricView
from laas_service.domain.features import HostChange
from laas_service.domain.plane import SharedPlane
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import Policy
from laas_service.domain.power import Idle, idle
from laas_service.domain.queue import Rules as Discipline
from laas_service.domain.room import fits_when_empty, make_room
from laas_service.domain.topology import LeafLink, Link

LOG = logging.getLogger(__name__)

T = TypeVar("T")

LIVE = frozenset(State) - {State.RELEASED}
"""The states in which an allocation holds (or waits for) hosts."""

MOVING = frozenset({State.QUEUED, State.ALLOCATING, State.RELEASING})
"""The states that convergence will still change by itself."""

LONGEST = 10 * 365 * 24 * 3600
"""The longest duration in seconds that can be announced."""

POLL = 0.05
"""Seconds between two looks at an allocation somebody waits for."""

PAGE = 1000
"""Records fetched at once where all are wanted."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What this deployment offers.

    ``policies`` by name; ``default_fabric`` is needed only where there are several.
    ``one_per_project`` limits a project to one live allocation: with Nova's stock
    filter alone the hosts of two allocations of one project look the same.
    ``waiters`` bounds how many callers may wait for outcomes at one time. ``queue``
    is how those are served who wait for room. ``limits`` are those of projects
    without a quota of their own.
    """

    policies: Mapping[str, Policy]
    default_policy: str
    default_fabric: str | None = None
    one_per_project: bool = False
    waiters: int = 8
    queue: Discipline = field(default_factory=Discipline)
    limits: Limits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Ask:
    """A wish for hosts. What is None is filled in: the caller's project, the defaults.

    With ``wait`` it is queued where there is no room. ``duration`` in seconds is how
    long it is expected to last; None if nobody knows. ``avoid`` are names of hosts that
    the constraints shall avoid. A ``container`` is for further allocations, who name it as
    ``parent``.
    """

    name: str
    hosts: int
    fabric: str | None = None
    policy: str | None = None
    project_id: str | None = None
    idempotency_key: str | None = None
    wait: bool = False
    duration: float | None = None
    constraints: Constraints | None = None
    avoid: tuple[str, ...] = ()
    parent: str | None = None
    container: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """What would be given if it were asked for now, and its hosts' cost; nothing is reserved."""

    fabric: FabricRecord
    project_id: str
    allocation: Allocation
    cost: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a size would fit now, and the largest that would."""

    answer: Allocation | NoFit
    largest: int


@dataclass(frozen=True, slots=True)
class Usage:
    """How many there are, how many have an owner, how many could be handed out now.

    ``withheld`` counts links of the shared plane, failed ones too.
    """

    total: int
    allocated: int
    free: int
    failed: int
    drained: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class Utilization:
    """A fabric's use at one generation. A leaf link is free where its twins on all rails are.

    ``degraded`` allocations hold something that has failed; of ``changing`` ones the
    placement changes.
    """

    generation: int
    hosts: Usage
    leaf_links: Usage
    spine_links: Usage
    allocations: Mapping[State, int] = field(default_factory=dict)
    degraded: int = 0
    changing: int = 0


@dataclass(frozen=True, slots=True)
class Routing:
    """The generation of the routes wanted, and what each subnet manager is seen to run.

    ``holding`` is what the worker that converges the fabric saw there last.
    """

    wanted: int
    applied: Mapping[str, Applied]
    holding: Holding


@dataclass(frozen=True, slots=True)
class Watched:
    """Whether the switches run what is wanted, and how often drift was found, by kind."""

    current: bool
    drift: Mapping[Drift, int]


@dataclass(frozen=True, slots=True)
class Progress:
    """The next step of an allocation (None: there is none), how often it failed in a row,
    when it is tried again, and the generation wanted and seen in the switches."""

    next_step: str | None
    failures: int
    next_try: datetime | None
    wanted: int | None
    applied: int | None


class Service:
    """The use cases over the ports.

    ``subnet_managers`` by name. ``wake`` nudges a worker; losing a nudge costs a
    poll interval, never work. ``new_id`` gives a fresh allocation id.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        subnet_managers: Mapping[str, SubnetManager],
        rules: Rules,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None],
        wake: Callable[[], None],
        new_id: Callable[[], str],
    ) -> None:
        if rules.default_policy not in rules.policies:
            raise InvalidInput(
                "default_policy", rules.default_policy, _choose(rules.policies, "policy")
            )
        self._store = store
        self._compute = compute
        self._subnet_managers = subnet_managers
        self._policies = {name: Counted.around(one) for name, one in rules.policies.items()}
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._wake = wake
        self._new_id = new_id
        everything = {name: policy() for name, policy in POLICIES.items()}
        self._line = Line(store, {**everything, **self._policies}, rules.queue, clock=clock)
        self._waiters = threading.BoundedSemaphore(rules.waiters)

    def exhausted(self) -> dict[str, int]:
        """By policy, how many searches of this process stopped at their budget."""
        return {name: policy.exhausted for name, policy in self._policies.items()}

    # -- fabrics --------------------------------------------------------------

    def ready(self) -> None:
        """Return if requests can be served. Raises: Unavailable."""
        self._store.check()

    def fabrics(self) -> list[FabricRecord]:
        """All fabrics by id."""
        return self._store.fabrics()

    def fabric(self, id: str) -> FabricRecord:
        """Raises: NotFound."""
        return self._store.fabric(id)

    def hosts(self, fabric_id: str) -> Iterator[listing.HostEntry]:
        """Raises: NotFound."""
        return listing.hosts(*self._with_ledger(fabric_id))

    def links(self, fabric_id: str) -> Iterator[listing.LinkEntry]:
        """Raises: NotFound."""
        return listing.links(*self._with_ledger(fabric_id))

    def switches(self, fabric_id: str) -> Iterator[listing.SwitchEntry]:
        """Raises: NotFound."""
        return listing.switches(self._store.fabric(fabric_id))

    def idle(self, fabric_id: str) -> tuple[FabricRecord, Idle]:
        """Links and switches that may be turned down, at one generation. Raises: NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        return fabric, idle(ledger, fabric.inventory)

    def shared_plane(self, fabric_id: str) -> tuple[FabricRecord, withholding.Reach]:
        """What is withheld for shared traffic, and where that does not reach. NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        return fabric, withholding.reach(ledger, fabric.inventory, ledger.shared_plane)

    def set_shared_plane(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> None:
        """Withhold these links instead of those before; without any, give all back.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: an index is not there, or nothing would be left for tenants.
            Conflict: a tenant has one of the links.
        """
        tree = self._store.fabric(fabric_id).topology.tree
        self._store.set_shared_plane(fabric_id, SharedPlane.of(tree, l2, spines))
        self._wake()

    def plane_cost(
        self, fabric_id: str, l2: tuple[int, ...], spines: tuple[int, ...]
    ) -> tuple[FabricRecord, withholding.Reach, list[tuple[withholding.Cost, withholding.Cost]]]:
        """Where a plane would reach, and what it would cost each policy: now, and then.

        Raises:
            NotFound, InvalidInput: as ``set_shared_plane``.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        plane = SharedPlane.of(fabric.topology.tree, l2, spines)
        costs = withholding.costs(ledger, plane, self._rules.policies.values())
        return fabric, withholding.reach(ledger, fabric.inventory, plane), costs

    def set_host_state(
        self, caller: Caller, fabric_id: str, name: str, state: HostState
    ) -> listing.HostEntry:
        """Drain, fail or repair a host; its present owner, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or host.
        """
        number = self._host(fabric_id, name)
        self._store.set_host_state(fabric_id, number, state, by=caller.initiator)
        self._wake()
        return next(host for host in self.hosts(fabric_id) if host.index == number)

    def describe_host(self, fabric_id: str, name: str, change: HostChange) -> listing.HostEntry:
        """Record what a host is like; its owner, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or host.
        """
        number = self._host(fabric_id, name)
        self._store.describe_hosts(fabric_id, {number: change})
        self._wake()
        return next(host for host in self.hosts(fabric_id) if host.index == number)

    def _host(self, fabric_id: str, name: str) -> int:
        number = self._store.fabric(fabric_id).inventory.host_numbers.get(name)
        if number is None:
            raise NotFound("host", name)
        return number

    def set_link_state(
        self, caller: Caller, fabric_id: str, link: Link, state: LinkState
    ) -> listing.LinkEntry:
        """Fail or repair a link; its present owner, if any, keeps it.

        Raises:
            NotFound: there is no such fabric or link.
        """
        self._store.set_link_state(fabric_id, link, state, by=caller.initiator)
        self._wake()
        return next(entry for entry in self.links(fabric_id) if entry.link == link)

    def utilization(self, fabric_id: str) -> Utilization:
        """Raises: NotFound."""
        fabric, ledger = self._with_ledger(fabric_id)
        records = list(self._all_live(fabric=fabric_id))
        return replace(
            _utilization(fabric, ledger, Counter(record.state for record in records)),
            degraded=sum(record.faults is not None for record in records),
            changing=sum(record.phase is not None for record in records),
        )

    def fit(self, caller: Caller, fabric_id: str, ask: Ask) -> Fit:
        """Would ``ask.hosts`` fit now, what is the largest size that would, who is in the way?

        With ``parent`` inside a container.

        Raises:
            NotFound: there is no such fabric, or no container that the caller may see.
            InvalidInput: the policy is not offered, ``hosts`` is below 1, or the fabric
                has nothing of what the constraints say.
        """
        policy = self._policy(ask.policy)
        if ask.hosts < 1:
            raise InvalidInput("hosts", ask.hosts, "ask for at least 1 host")
        if ask.parent is not None:
            self._container(caller, ask.parent, fabric_id)
        ledger = self._store.ledger(fabric_id)[0].ledger(ask.parent)
        request = Request("", ask.hosts, constraints=self._constraints(fabric_id, ask))
        answer = propose(policy, ledger, request)
        if isinstance(answer, NoFit):
            answer = blamed(policy, ledger, request, answer)
            answer = _with_room(policy, ledger, request, answer, caller.admin)
        most = largest_fit(policy, ledger, ledger.free_host_count + 1, request.constraints)
        return Fit(answer, most)

    def routing(self, fabric_id: str) -> Routing:
        """Raises: NotFound."""
        wanted = self._store.fabric(fabric_id).routes_generation
        return Routing(
            wanted,
            {name: _applied(sm, fabric_id) for name, sm in sorted(self._subnet_managers.items())},
            self._store.holding(fabric_id),
        )

    def watched(self, fabric_id: str) -> Watched:
        """What the worker that converges the fabric has seen. Raises: NotFound."""
        wanted = self._store.fabric(fabric_id).routes_generation
        current = self._store.holding(fabric_id).applied == wanted
        return Watched(current, self._store.drift(fabric_id))

    # -- allocations ----------------------------------------------------------

    def allocate(self, caller: Caller, ask: Ask) -> AllocationRecord | NoFit:
        """Claim hosts and links and record the allocation; convergence does the rest.

        With ``wait`` it is queued where there is no room, unless it would not fit the
        empty fabric. Who waits is not overtaken but by the queue's discipline. A
        repeated idempotency key gives the first answer's record.

        Raises:
            InvalidInput: an unknown policy, no project or fabric to choose, no host asked,
                a duration that is none.
            NotFound: there is no such fabric.
            Forbidden: another project is named and the caller is no admin.
            IdempotencyMismatch: the key was used for another request.
            QuotaExceeded: the project would have more than it may.
        """
        new = self._new(caller, ask)
        if self._line.serve(new.fabric):
            self._wake()
        short = self._short_of_servers(new)

        def propose(fabric: Fabric) -> Allocation | NoFit | Wait:
            if over := short or self._over_quota(new):
                return over
            answer = self._line.propose(new, fabric)
            if isinstance(answer, Allocation) or not ask.wait:
                return answer
            return self._line.hopeless(new, fabric) or Wait(answer)

        answer = self._store.admit(new, propose)
        if isinstance(answer, NoFit):
            return self._explain(caller, new, answer)
        self._wake()
        return answer

    def propose(self, caller: Caller, ask: Ask) -> Proposal | NoFit:
        """The answer ``allocate`` would give now, without reserving anything.

        Raises: as ``allocate``.
        """
        new = self._new(caller, ask)
        self._store.within_limits(new)
        ledger, _ = self._store.ledger(new.fabric)
        over = self._short_of_servers(new) or self._over_quota(new)
        answer = over or self._line.propose(new, ledger)
        if isinstance(answer, NoFit):
            return self._explain(caller, new, answer)
        fabric = self._store.fabric(new.fabric)
        cost = ledger.features.cost(answer.hosts(fabric.topology))
        return Proposal(fabric, new.project_id, answer, cost)

    def allocation(self, caller: Caller, id: str) -> AllocationRecord:
        """One allocation with its history.

        Raises:
            NotFound: there is none of that id that the caller may see.
        """
        record = self._store.allocation(id)
        if not caller.admin and record.project_id != caller.project_id:
            raise NotFound("allocation", id)
        return record

    def allocations(
        self,
        caller: Caller,
        *,
        fabric: str | None = None,
        project_id: str | None = None,
        states: Collection[State] = LIVE,
        limit: int = PAGE,
        marker: str | None = None,
    ) -> list[AllocationRecord]:
        """What the caller may see, in order of creation, without history.

        Raises:
            NotFound: the marker is no allocation the caller may see.
        """
        if not caller.admin:
            if project_id not in (None, caller.project_id):
                return []
            project_id = caller.project_id
        if marker is not None:
            self.allocation(caller, marker)
        return self._store.allocations(
            fabric=fabric, project_id=project_id, states=states, limit=limit, marker=marker
        )

    def places(self, records: Collection[AllocationRecord]) -> dict[str, Place]:
        """Where those of the records that are queued stand, and what they wait for."""
        fabrics = {record.fabric for record in records if record.state is State.QUEUED}
        wanted = {record.id for record in records}
        return {
            id: place
            for fabric in sorted(fabrics)
            for id, place in self._line.places(fabric, wanted).items()
        }

    def rename(
        self, caller: Caller, id: str, name: str, versions: Collection[int] | None = None
    ) -> AllocationRecord:
        """Give an allocation another name; ``versions`` are those it may have now.

        Raises:
            NotFound: as ``allocation``.
            PreconditionFailed: it has another version.
            ConcurrentUpdate: somebody kept changing it meanwhile.
        """
        return _retried(
            lambda: self._store.rename(
                self._expected(caller, id, versions), name, by=caller.initiator
            ),
        )

    def release(
        self,
        caller: Caller,
        id: str,
        *,
        force: bool = False,
        versions: Collection[int] | None = None,
    ) -> AllocationRecord:
        """Begin to give everything back; asking again is safe.

        A queued request has nothing to give back: it is released at once.

        ``force`` skips the question whether servers still run there, also for a
        release that has begun.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            HostsBusy: servers still run on the hosts.
            Conflict: it is a container, and others are inside; force changes nothing then.
            Unavailable: compute cannot say whether servers run; nothing was changed.
        """
        record = _retried(lambda: self._release_once(caller, id, force, versions))
        self._wake()
        return record

    def _release_once(
        self, caller: Caller, id: str, force: bool, versions: Collection[int] | None
    ) -> AllocationRecord:
        record = self._expected(caller, id, versions)
        if record.state is State.RELEASED:
            return record
        if record.state is State.RELEASING and (record.force or not force):
            return record
        if record.state is State.QUEUED:
            reason = f"cancelled by {caller.user_id}"
            return self._store.cancel(record, reason, by=caller.initiator)
        if not force and not record.container:
            self._check_empty(record)
        reason = f"{'forced release' if force else 'release'} asked for by {caller.user_id}"
        return self._store.transition(
            record, State.RELEASING, reason, force=force, by=caller.initiator
        )

    def repair(
        self, caller: Caller, id: str, versions: Collection[int] | None = None
    ) -> AllocationRecord | Degraded:
        """Begin to replace failed links; as it is if there are none; asking again is safe.

        The hosts stay, and it holds as many links as before, so its project may ask too.
        ``Degraded`` where there are no other links for these hosts; nothing is changed.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is not active.
        """
        answer = _retried(lambda: self._repair_once(caller, id, versions))
        self._wake()
        return answer

    def _repair_once(
        self, caller: Caller, id: str, versions: Collection[int] | None
    ) -> AllocationRecord | Degraded:
        record = self._expected(caller, id, versions)
        if record.state is not State.ACTIVE:
            raise Conflict(f"allocation {id} is {record.state.value}; wait until it is active")
        return mend(self._store, record, caller.initiator)

    def retry(
        self, caller: Caller, id: str, versions: Collection[int] | None = None
    ) -> AllocationRecord:
        """Take the next step now; from ``error`` it goes on where it was parked.

        As it is if no step failed or waits. Its project may ask, too; asking again is safe.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is queued or released, and has no step to take.
        """
        record = _retried(lambda: self._retry_once(caller, id, versions))
        self._wake()
        return record

    def _retry_once(
        self, caller: Caller, id: str, versions: Collection[int] | None
    ) -> AllocationRecord:
        record = self._expected(caller, id, versions)
        if record.state in (State.QUEUED, State.RELEASED):
            raise Conflict(f"allocation {id} is {record.state.value}; there is no step to retry")
        if record.state is not State.ERROR and record.next_try is None:
            return record
        to: State = record.state
        if to is State.ERROR:
            to = record.parked or (State.RELEASING if record.handed_back else State.ALLOCATING)
        reason = f"retry asked for by {caller.user_id}"
        return self._store.transition(record, to, reason, by=caller.initiator)

    def progress(self, record: AllocationRecord) -> Progress:
        """What convergence will do next for it, and how far the switches are."""
        applied = self._store.holding(record.fabric).applied
        confirmed = applied is not None and applied >= record.generation
        step = next_action(record, confirmed)
        wanted = record.generation if record.state in HOLDING else None
        return Progress(
            None if step is Action.NOTHING else step.value,
            record.failures,
            record.next_try,
            wanted,
            None if wanted is None else applied,
        )

    def outcome(self, caller: Caller, id: str, seconds: float) -> AllocationRecord:
        """The allocation once convergence is done with it, or as it is after ``seconds``.

        When too many callers wait already, it is given as it is now.

        Raises:
            NotFound: as ``allocation``.
        """
        record = self.allocation(caller, id)
        if seconds <= 0 or not self._waiters.acquire(blocking=False):
            return record
        try:
            until = self._clock() + timedelta(seconds=seconds)
            while (record.state in MOVING or record.phase) and self._clock() < until:
                self._sleep(POLL)
                record = self.allocation(caller, id)
            return record
        finally:
            self._waiters.release()

    # -- parts ----------------------------------------------------------------

    def _with_ledger(self, fabric_id: str) -> tuple[FabricRecord, Fabric]:
        """The fabric and its ledger, of the same generation."""
        fabric = self._store.fabric(fabric_id)
        ledger, generation = self._store.ledger(fabric_id)
        return replace(fabric, generation=generation), ledger

    def _new(self, caller: Caller, ask: Ask) -> NewAllocation:
        """What was asked, checked and with everything filled in."""
        policy = self._policy(ask.policy)
        if ask.hosts < 1:
            raise InvalidInput("hosts", ask.hosts, "ask for at least 1 host")
        if ask.duration is not None and not 0 < ask.duration <= LONGEST:
            raise InvalidInput("duration", ask.duration, f"give 1 to {LONGEST} seconds")
        fabric = ask.fabric
        if ask.parent is not None:
            fabric = self._container(caller, ask.parent, ask.fabric).fabric
        fabric = self._choose_fabric(fabric)
        return NewAllocation(
            id=self._new_id(),
            fabric=fabric,
            name=ask.name,
            project_id=_project(caller, ask),
            policy=policy.name,
            hosts=ask.hosts,
            idempotency_key=ask.idempotency_key,
            duration=ask.duration,
            waits=ask.wait,
            by=caller.initiator,
            constraints=self._constraints(fabric, ask),
            parent=ask.parent,
            container=ask.container,
            limits=self._rules.limits,
        )

    def _constraints(self, fabric_id: str, ask: Ask) -> Constraints | None:
        """What was asked of hosts and place, the hosts to avoid by number; None if nothing.

        Raises:
            InvalidInput: the fabric has no such host, pod or trait.
        """
        numbers = self._store.fabric(fabric_id).inventory.host_numbers
        wish = ask.constraints or Constraints()
        if unknown := sorted(set(ask.avoid) - numbers.keys()):
            fix = f"fabric {fabric_id} has no host of this name"
            raise InvalidInput("constraints.avoid_hosts", ", ".join(unknown), fix)
        if ask.avoid:
            avoid = wish.avoid_hosts.union(numbers[name] for name in ask.avoid)
            wish = replace(wish, avoid_hosts=avoid)
        if not wish.names:
            return None
        check(self._store.ledger(fabric_id)[0], wish)
        return wish

    def _container(self, caller: Caller, id: str, fabric_id: str | None) -> AllocationRecord:
        """The container that somebody wants to be inside; it must be theirs, or they an admin.

        Raises:
            NotFound: there is no such allocation that the caller may see.
            InvalidInput: it is no container, of another fabric, or does not hold hosts (yet).
        """
        record = self.allocation(caller, id)
        if not record.container:
            raise InvalidInput("parent", id, "name an allocation made with container: true")
        if fabric_id is not None and fabric_id != record.fabric:
            raise InvalidInput("fabric", fabric_id, f"the container is on {record.fabric}")
        if record.state not in (State.ALLOCATING, State.ACTIVE):
            raise InvalidInput("parent", id, f"it is {record.state.value}; name one that is active")
        return record

    def _policy(self, name: str | None) -> Policy:
        name = self._rules.default_policy if name is None else name
        if name not in self._policies:
            raise InvalidInput("policy", name, _choose(self._policies, "policy"))
        return self._policies[name]

    def _choose_fabric(self, id: str | None) -> str:
        """The fabric asked for, the configured one, or the only one there is."""
        id = id or self._rules.default_fabric
        if id is not None:
            return self._store.fabric(id).id
        known = [fabric.id for fabric in self._store.fabrics()]
        if not known:
            raise NotFound("fabric", "default")
        if len(known) > 1:
            raise InvalidInput("fabric", None, _choose(known, "fabric"))
        return known[0]

    def _all_live(
        self, *, fabric: str | None = None, project_id: str | None = None
    ) -> Iterator[AllocationRecord]:
        marker = None
        while page := self._store.allocations(
            fabric=fabric, project_id=project_id, states=LIVE, limit=PAGE, marker=marker
        ):
            yield from page
            marker = page[-1].id

    def _over_quota(self, new: NewAllocation) -> NoFit | None:
        """Containers do not count, as Nova sees nothing of them."""
        if not self._rules.one_per_project or new.container:
            return None
        live = self._all_live(project_id=new.project_id)
        held = [record for record in live if not record.container]
        if not held:
            return None
        return NoFit(
            Refusal.QUOTA,
            f"project {new.project_id} has allocation {held[0].id} already; without the service's "
            "own Nova filter a project can hold one at a time: release it first",
            largest_fit=0,
        )

    def _short_of_servers(self, new: NewAllocation) -> NoFit | None:
        """More hosts than servers allowed are of no use. Who cannot tell now hinders nobody."""
        if new.container:
            return None
        try:
            limit = self._compute.server_limit(new.project_id)
        except LaasError as error:
            LOG.warning("quota of project %s is not known: %s", new.project_id, error)
            return None
        if limit is None or new.hosts <= limit:
            return None
        ledger, _ = self._store.ledger(new.fabric)
        return NoFit(
            Refusal.QUOTA,
            f"project {new.project_id} may run {limit} servers in Nova, fewer than {new.hosts} "
            "hosts: have its quota of instances raised, or ask for fewer hosts",
            largest_fit=largest_fit(self._policy(new.policy), ledger, limit + 1),
        )

    def _explain(self, caller: Caller, new: NewAllocation, refusal: NoFit) -> NoFit:
        """The refusal with the largest size there is room for now, and how to make room."""
        if refusal.reason is Refusal.QUOTA:
            return refusal
        policy = self._policy(new.policy)
        ledger = self._store.ledger(new.fabric)[0].ledger(new.parent)
        request = Request("", new.hosts, constraints=new.constraints)
        waits = refusal.reason is Refusal.OTHERS_WAIT
        if refusal.largest_fit is None:
            below = ledger.free_host_count + 1 if waits else new.hosts
            most = largest_fit(policy, ledger, below, new.constraints)
            refusal = replace(refusal, largest_fit=most)
        if waits:
            return refusal
        return _with_room(policy, ledger, request, refusal, caller.admin)

    def _expected(
        self, caller: Caller, id: str, versions: Collection[int] | None
    ) -> AllocationRecord:
        record = self.allocation(caller, id)
        if versions is not None and record.version not in versions:
            raise PreconditionFailed(
                f"allocation {id} has version {record.version}; read it again and decide anew"
            )
        return record

    def _check_empty(self, record: AllocationRecord) -> None:
        """Raises: HostsBusy, Unavailable."""
        if record.placed is None:
            return
        fabric = self._store.fabric(record.fabric)
        names = [fabric.inventory.host_names[h] for h in record.placed.hosts(fabric.topology)]
        busy = sorted({occupant.host for occupant in self._compute.occupants(names)})
        if busy:
            shown = ", ".join(busy[:5]) + (f" and {len(busy) - 5} more" if len(busy) > 5 else "")
            raise HostsBusy(
                f"servers still run on {shown}; delete them first, or release with force"
            )


def _choose(names: Collection[str], kind: str) -> str:
    return f"name a {kind} out of: {', '.join(sorted(names))}"


def _with_room(
    policy: Policy, ledger: FabricView, request: Request, refusal: NoFit, admin: bool
) -> NoFit:
    """Whether others are in the way, and for administrators who: tenants see no other's id."""
    ledger = ledger.surface()
    possible = fits_when_empty(policy, ledger, request)
    room = make_room(policy, ledger, request) if possible and admin else None
    return replace(refusal, fits_when_empty=possible, room=room)


def _project(caller: Caller, ask: Ask) -> str:
    """Whose the allocation will be; only an admin may name another project."""
    project = ask.project_id or caller.project_id
    if not project:
        raise InvalidInput("project_id", project, "name one, or use a project-scoped token")
    if project != caller.project_id and not caller.admin:
        raise Forbidden("only an administrator may allocate for another project")
    return project


def _retried(step: Callable[[], T]) -> T:
    """Do a step again when somebody else changed the same record first."""
    retrying = Retrying(
        retry=retry_if_exception_type(ConcurrentUpdate),
        stop=stop_after_attempt(5),
        wait=wait_random(0, 0.02),
        reraise=True,
    )
    return retrying(step)


def _applied(subnet_manager: SubnetManager, fabric_id: str) -> Applied:
    try:
        return subnet_manager.applied(fabric_id)
    except Unavailable as error:
        return Applied(None, str(error))


def _utilization(
    fabric: FabricRecord, ledger: FabricView, states: Mapping[State, int]
) -> Utilization:
    topology = fabric.topology
    tree = topology.tree
    present = sum(
        1
        for number, name in enumerate(fabric.inventory.host_names)
        if name and number not in topology.absent_hosts
    )
    owned = ledger.owners_of_links()
    leaf = Counter(isinstance(link, LeafLink) for link in owned)
    failed = Counter(isinstance(link, LeafLink) for link in ledger.failed_links)
    absent = Counter(isinstance(link, LeafLink) for link in topology.absent_links)
    withheld = Counter(
        isinstance(link, LeafLink)
        for link in ledger.shared_plane.links(tree)
        if link not in topology.absent_links
    )
    return Utilization(
        fabric.generation,
        Usage(
            present,
            len(ledger.owners_of_hosts()),
            ledger.free_host_count,
            len(ledger.failed_hosts),
            len(ledger.drained_hosts),
        ),
        Usage(
            tree.leaf_links - absent[True],
            leaf[True],
            _free_leaf_links(ledger),
            failed[True],
            withheld=withheld[True],
        ),
        Usage(
            tree.spine_links - absent[False],
            leaf[False],
            sum(mask.bit_count() for mask in ledger.free_spines),
            failed[False],
            withheld=withheld[False],
        ),
        states,
    )


def _free_leaf_links(ledger: FabricView) -> int:
    """Leaf links free for tenants; one bit of a plane stands for a link on each of its rails."""
    topology = ledger.topology
    width = topology.tree.w[1]
    planes = [
        ((1 << width) - 1 << plane * width, topology.rails_in_plane(plane))
        for plane in range(topology.planes)
    ]
    return sum(
        (mask & ones).bit_count() * rails for mask in ledger.free_uplinks for ones, rails in planes
    )
