# SPDX-License-Identifier: Apache-2.0

"""The use cases of allocations: allocate, list, rename, release, retry, wait.

Plain values in and out. A refusal is an answer (``NoFit``); callers' mistakes and lost races
are exceptions of ``domain.errors``.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

from laas_service.app import lifecycle, requested_states
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.allocation_views import AllocationViews
from laas_service.app.handovers import handover_of, host_names, is_in_compute
from laas_service.app.kinds import Kinds
from laas_service.app.lifecycle import LIVE, State
from laas_service.app.lookup import hosts_wanted
from laas_service.app.ports.compute import KEPT, Compute
from laas_service.app.ports.snapshots import Draft, Snapshot
from laas_service.app.ports.store import Store
from laas_service.app.quotas import ProjectLimits, too_few_servers
from laas_service.app.records import (
    AllocationRecord,
    Caller,
    Event,
    QueueWait,
)
from laas_service.app.refusals import with_withheld_hosts
from laas_service.app.requests import (
    AllocationRequest,
    AllocationView,
    Proposal,
    Runtime,
    ServicePolicy,
)
from laas_service.app.retries import REPEATED
from laas_service.app.wording import reasons, waits
from laas_service.domain.admission.undisturbed import disturbance
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import (
    Conflict,
    HostsBusy,
    InvalidInput,
)
from laas_service.domain.moves.consent import Consent
from laas_service.domain.topology import Topology

LONGEST = 10 * 365 * 24 * 3600
"""The longest duration in seconds that can be announced."""

PAGE = 1000
"""Allocations listed at once, if the caller names no limit."""

BRIEF = 10_000
"""Units of work in which a refused request is told how to make room; a dry run has all of them."""

POLL = 0.05
"""Seconds between two looks at an allocation whose outcome a caller waits for."""


class AllocationUseCases:
    """The use cases of allocations."""

    def __init__(
        self,
        store: Store,
        compute: Compute,
        kinds: Kinds,
        queue: AdmissionQueue,
        quotas: ProjectLimits,
        views: AllocationViews,
        offer: ServicePolicy,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._compute = compute
        self._kinds, self._lookup = kinds, kinds.lookup
        self._queue = queue
        self._quotas = quotas
        self._views = views
        self._offer = offer
        self._runtime = runtime
        self._waiters = threading.BoundedSemaphore(offer.waiters)

    def allocate(self, caller: Caller, asked: AllocationRequest) -> AllocationView | NoFit:
        """Claim hosts and links and record the allocation; convergence does the rest.

        With ``wait`` it is queued if there is no room, unless it would not fit the
        empty fabric. A queued request is overtaken only as the queue discipline allows. A
        repeated idempotency key gives the first answer's record, even if the request itself
        would be refused now.

        Raises:
            InvalidInput: an unknown policy, no project or fabric to choose, no host asked for,
                a duration out of range, or a project that Keystone does not have or disabled.
            Unavailable: Keystone did not answer about a project of others.
            NotFound: there is no such fabric.
            Forbidden: another project is named and the caller is no admin.
            IdempotencyMismatch: the key was used for another request.
            QuotaExceeded: the project would have more than it may.
            NotSupported: it shares hosts or asks for slots, and this is not offered.
        """
        if previous := self._answered(caller, asked):
            return self._views.view(previous)
        self._check(asked)
        snapshot = self._read(caller, asked)
        request = self._completed(caller, asked, snapshot)
        here = snapshot.possible[request.fabric]
        budget = RequestBudget(self._offer.search_budget)
        queue = self._queue.within(budget)
        server_limit = self._quotas.server_limit(request)
        topology: Topology | None = None  # in which the answer numbers hosts

        def propose(draft: Draft) -> Allocation | NoFit | QueueWait:
            nonlocal topology
            ledger, topology = draft.ledger, draft.ledger.topology
            budget.renew()  # after a lost race too: other requests must not use it up
            if refusal := self._over_quota(request, server_limit):
                return refusal
            answer = queue.propose(request, ledger, draft.queue)
            if isinstance(answer, Allocation) or not request.wait:
                return answer
            return queue.hopeless(request, ledger) or QueueWait(answer)

        answer = self._store.admissions.admit(request, propose, snapshot)
        if isinstance(answer, NoFit):
            effort = RequestBudget(min(BRIEF, budget.left))
            return self._explained(caller, request, answer, budget, effort, server_limit)
        if answer.state is not State.QUEUED:
            self._kinds.of(answer.kind).admitted(answer)
        self._runtime.wake()
        if topology is not here.fabric.topology:  # a re-import, or an answer to the same key
            return self._views.view(answer)
        return self._views.of(answer, here.fabric, here.holding)

    def propose(self, caller: Caller, asked: AllocationRequest) -> Proposal | NoFit:
        """The answer that ``allocate`` would give now, without reserving anything.

        Raises: as ``allocate``.
        """
        self._check(asked)
        snapshot = self._read(caller, asked)
        request = self._completed(caller, asked, snapshot)
        self._quotas.check(request)
        here = snapshot.possible[request.fabric]
        server_limit = self._quotas.server_limit(request)
        budget = RequestBudget(self._offer.search_budget)
        refusal = self._over_quota(request, server_limit)
        answer = refusal or self._queue.within(budget).propose(request, here.ledger, here.queue)
        if isinstance(answer, NoFit):
            return self._explained(caller, request, answer, budget, budget, server_limit)
        cost = here.ledger.features.cost(answer.hosts(here.fabric.topology))
        wanted = Request("", request.hosts, constraints=request.constraints, parent=request.parent)
        scope = here.ledger.ledger(request.parent)
        routes = disturbance(scope, wanted, answer) if request.kind.whole_hosts else None
        return Proposal(here.fabric, request.project_id, answer, cost, disturbance=routes)

    def allocation(self, caller: Caller, id: str) -> AllocationRecord:
        """One allocation with its newest events.

        Raises:
            NotFound: there is no allocation of this id that the caller may see.
        """
        return self._lookup.allocation(caller, id)

    def events(self, caller: Caller, id: str, after: int, limit: int) -> tuple[int, list[Event]]:
        """Up to ``limit`` events of an allocation after the first ``after``, oldest first.

        The number of the first comes before them.

        Raises:
            NotFound: as ``allocation``.
            InvalidInput: it has fewer than ``after`` events.
        """
        record = self.allocation(caller, id)
        if after >= record.first_event + len(record.history):
            raise InvalidInput("marker", after, "use the last item of the page before")
        return self._store.allocations.events(id, after, limit)

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
        """The allocations that the caller may see, in order of creation, without history.

        Raises:
            NotFound: the marker is no allocation that the caller may see.
        """
        if not caller.admin:
            if project_id not in (None, caller.project_id):
                return []
            project_id = caller.project_id
        if marker is not None:
            self.allocation(caller, marker)
        return self._store.allocations.page(
            fabric=fabric, project_id=project_id, states=states, limit=limit, marker=marker
        )

    @REPEATED.wraps
    def rename(
        self,
        caller: Caller,
        id: str,
        name: str,
        versions: Collection[int] | None = None,
        *,
        unique: bool = False,
    ) -> AllocationRecord:
        """Give an allocation another name; ``versions`` are those it may have now.

        With ``unique`` no other live allocation of its project may have it.

        Raises:
            NotFound: as ``allocation``.
            NameTaken: another one has it.
            PreconditionFailed: it has another version.
            ConcurrentUpdate: other requests kept changing it meanwhile.
        """
        record = self._lookup.expected(caller, id, versions)
        return self._store.allocations.rename(record, name, unique=unique, by=caller.initiator)

    @REPEATED.wraps
    def prioritize(
        self, caller: Caller, id: str, priority: int, versions: Collection[int] | None = None
    ) -> AllocationRecord:
        """Give a queued request another priority; the queue is served in the new order.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is not queued.
        """
        record = self._lookup.expected(caller, id, versions)
        if record.priority != priority:
            record = self._store.allocations.prioritize(record, priority, by=caller.initiator)
            self._runtime.wake()
        return record

    def release(
        self,
        caller: Caller,
        id: str,
        *,
        force: bool = False,
        versions: Collection[int] | None = None,
    ) -> AllocationRecord:
        """Begin to release an allocation; safe to repeat.

        A queued request holds nothing: it is released at once. ``force`` skips the check
        whether servers still run there, also of a release that has begun.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            HostsBusy: servers still run on the hosts.
            Conflict: it is a container and others are inside; ``force`` changes nothing then.
            Unavailable: compute cannot say whether servers run; nothing was changed.
        """
        record = self._release(caller, id, force, versions)
        self._runtime.wake()
        return record

    @REPEATED.wraps
    def _release(
        self, caller: Caller, id: str, force: bool, versions: Collection[int] | None
    ) -> AllocationRecord:
        record = self._lookup.expected(caller, id, versions)
        to = requested_states.state_after_release(record, force=force)
        if to is None:
            return record
        if to is State.RELEASED:
            reason = reasons.cancelled_reason(caller.user_id)
            return self._store.allocations.cancel(record, reason, by=caller.initiator)
        if not force and is_in_compute(record, claims_slots=self._compute.claims_slots):
            self._check_empty(record)
        reason = reasons.release_reason(caller.user_id, force=force)
        return self._store.allocations.transition(
            record, to, reason, force=force, by=caller.initiator
        )

    @REPEATED.wraps
    def consent(
        self,
        caller: Caller,
        id: str,
        changed: Callable[[Consent], Consent],
        versions: Collection[int] | None = None,
    ) -> AllocationRecord:
        """Change what the owner consents to; without consent an announced move is called off.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is released.
        """
        record = self._lookup.expected(caller, id, versions)
        consent = changed(record.consent)
        if consent == record.consent:
            return record
        if record.state not in LIVE:
            raise Conflict(f"allocation {id} is {record.state.value}; nothing of it can move")
        reason = reasons.consent_reason(consent.movable.value, caller.user_id)
        return self._store.placement_changes.consent(record, consent, reason, by=caller.initiator)

    @REPEATED.wraps
    def retry(
        self, caller: Caller, id: str, versions: Collection[int] | None = None
    ) -> AllocationRecord:
        """Take the next step now; from ``error`` it continues in the state it was parked in.

        Returns the record unchanged if no step failed or waits. A step in which the worker is
        held up starts anew when that ends. Safe to repeat; its project may ask too.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is queued or released, and has no step to take.
        """
        record = self._lookup.expected(caller, id, versions)
        waits = self._store.observations.holding(record.fabric).waits_for is not None
        to = requested_states.state_after_retry(record, waits=waits)
        if to is not None:
            reason = reasons.retry_reason(caller.user_id)
            record = self._store.allocations.transition(record, to, reason, by=caller.initiator)
        self._runtime.wake()
        return record

    def outcome(self, caller: Caller, id: str, seconds: float) -> AllocationRecord:
        """The allocation once convergence has no further step, or after ``seconds``.

        If too many callers wait already, the present record is returned at once.

        Raises:
            NotFound: as ``allocation``.
        """
        record = self.allocation(caller, id)
        if seconds <= 0 or not self._waiters.acquire(blocking=False):
            return record
        try:
            until = self._runtime.clock() + timedelta(seconds=seconds)
            while lifecycle.is_moving(record) and self._runtime.clock() < until:
                self._runtime.sleep(POLL)
                record = self.allocation(caller, id)
            return record
        finally:
            self._waiters.release()

    def _answered(self, caller: Caller, asked: AllocationRequest) -> AllocationRecord | None:
        """The record of the first answer to this key.

        Raises: InvalidInput, Forbidden, IdempotencyMismatch, Unavailable.
        """
        if asked.idempotency_key is None:
            return None
        project = self._lookup.project(caller, asked.project_id)

        def completed() -> AllocationRequest:
            self._check(asked)
            return self._completed(caller, asked, self._read(caller, asked))

        return self._store.admissions.answered(project, asked, completed)

    def _read(self, caller: Caller, asked: AllocationRequest) -> Snapshot:
        project = asked.project_id or caller.project_id
        return self._lookup.read(asked, project, self._quotas.limits)

    def _check(self, asked: AllocationRequest) -> None:
        """Return if the request itself is right. Raises: InvalidInput, NotSupported."""
        self._kinds.of(asked.kind).check(asked)
        if asked.duration is not None and not 0 < asked.duration <= LONGEST:
            raise InvalidInput("duration", asked.duration, f"give 1 to {LONGEST} seconds")

    def _completed(
        self, caller: Caller, asked: AllocationRequest, snapshot: Snapshot
    ) -> AllocationRequest:
        """The request with an id, the defaults and numbers instead of names."""
        target = self._kinds.of(asked.kind).target(caller, snapshot, asked)
        here = snapshot.possible[target.fabric]
        project = self._lookup.project(caller, asked.project_id)
        constraints = self._lookup.constraints(here, asked)
        hosts = asked.hosts
        if asked.kind.whole_hosts:
            policy, ledger = self._lookup.policy(target.policy), here.ledger.ledger(target.parent)
            hosts = hosts_wanted(asked, policy, ledger, constraints)
        return replace(
            asked,
            hosts=hosts,
            id=self._runtime.new_id(),
            fabric=target.fabric,
            parent=target.parent,
            policy=target.policy,
            project_id=project,
            project_checked=self._lookup.is_known(caller, project),
            constraints=constraints,
            avoid=(),
            by=caller.initiator,
            limits=self._quotas.limits,
            alone=self._quotas.one_per_project and not asked.kind.encloses,
            as_asked=asked,
        )

    def _over_quota(self, request: AllocationRequest, server_limit: int | None) -> NoFit | None:
        return too_few_servers(request, server_limit) or self._quotas.second_allocation(request)

    def _explained(
        self,
        caller: Caller,
        request: AllocationRequest,
        refusal: NoFit,
        budget: RequestBudget,
        effort: RequestBudget,
        server_limit: int | None,
    ) -> NoFit:
        """The refusal with what would fit, as far as the budget allows to search for it.

        ``effort`` is for how to make room.
        """
        answer = self._kinds.of(request.kind).explained(
            caller, request, refusal, budget, effort, server_limit
        )
        return with_withheld_hosts(self._store, answer, request, caller)

    def _check_empty(self, record: AllocationRecord) -> None:
        """Raises: HostsBusy, Unavailable."""
        if record.held is None:
            return
        fabric = self._store.fabrics.get(record.fabric)
        if not record.kind.whole_hosts:
            found = self._compute.slot_holders(handover_of(fabric, record))
        else:
            found = self._compute.occupants(host_names(fabric, record.held))
        busy = sorted({occupant.host for occupant in found if not occupant.deleted_at})
        kept = sorted(f"{one.host} {one.text}" for one in found if one.deleted_at)
        if busy or kept:
            raise HostsBusy(waits.not_empty(busy, kept, KEPT))
