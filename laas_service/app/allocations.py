# SPDX-License-Identifier: Apache-2.0

"""The use cases of allocations: allocate, list, rename, resize, release, repair, retry, wait.

Plain values in and out. A refusal is an answer (``NoFit``); callers' mistakes and lost races
are exceptions of ``domain.errors``.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from tenacity import wait_random

from laas_service.app import lifecycle
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.handovers import handover_of, host_names, is_in_compute
from laas_service.app.lifecycle import HOLDING, LIVE, Action, Change, State
from laas_service.app.lookup import Lookup
from laas_service.app.placement_changes import (
    Replacement,
    Resize,
    SlotChange,
    begin_link_repair,
    begin_replacement,
    begin_resize,
    begin_slot_change,
    begun,
)
from laas_service.app.ports.compute import KEPT, Compute
from laas_service.app.ports.projects import Projects
from laas_service.app.ports.store import Store
from laas_service.app.quotas import Quotas, too_few_servers
from laas_service.app.records import (
    AllocationRecord,
    Caller,
    Event,
    FabricRecord,
    Holding,
    Wait,
)
from laas_service.app.refusals import explained, naming_withheld
from laas_service.app.requests import (
    AllocationRequest,
    AllocationView,
    Place,
    Progress,
    Proposal,
    ReplaceRequest,
    ResizeRequest,
    SlotsRequest,
    check_demand,
)
from laas_service.app.retries import retrying
from laas_service.app.wording import reasons, waits
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import ContentionFree
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    HostsBusy,
    InvalidInput,
    NotSupported,
    PreconditionFailed,
)
from laas_service.domain.faults.degradation import Degraded, degradation
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import Consent
from laas_service.domain.policies.base import BudgetedPolicy
from laas_service.domain.routing.contention import contention
from laas_service.domain.tenancy import SharedHosts, Slots
from laas_service.domain.topology import Topology
from laas_service.domain.virtual_clusters.shared_slots import SharedSlots
from laas_service.domain.wording import listed

LONGEST = 10 * 365 * 24 * 3600
"""The longest duration in seconds that can be announced."""

PAGE = 1000
"""Allocations listed at once, if the caller names no limit."""

BRIEF = 10_000
"""Units of work in which a refused request is told how to make room; a dry run has all of them."""

POLL = 0.05
"""Seconds between two looks at an allocation whose outcome a caller waits for."""

REPEATED = retrying(ConcurrentUpdate, attempts=5, wait=wait_random(0, 0.02))
"""Repeats a step if another request changed the same record first."""


class Allocations:
    """The use cases of allocations.

    ``wake`` wakes a worker; if it is lost, the worker acts one poll interval later. ``new_id``
    gives a fresh allocation id. ``search_budget`` bounds the searches for one request together,
    anew after each lost race; ``waiters`` how many callers may wait for outcomes at one time.
    ``repair_links`` says whether the workers replace links that have failed. ``slots`` places
    virtual machines on shared hosts; ``unshared`` is why this is not offered, empty if it is.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        lookup: Lookup,
        queue: AdmissionQueue,
        quotas: Quotas,
        *,
        search_budget: int,
        waiters: int,
        repair_links: bool,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None],
        wake: Callable[[], None],
        new_id: Callable[[], str],
        projects: Projects,
        slots: SharedSlots,
        unshared: str = "",
    ) -> None:
        self._slots = slots
        self._unshared = unshared
        self._store = store
        self._compute = compute
        self._lookup = lookup
        self._queue = queue
        self._quotas = quotas
        self._search_budget = search_budget
        self._waiters = threading.BoundedSemaphore(waiters)
        self._repair_links = repair_links
        self._clock = clock
        self._sleep = sleep
        self._wake = wake
        self._new_id = new_id
        self._projects = projects

    def allocate(self, caller: Caller, asked: AllocationRequest) -> AllocationRecord | NoFit:
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
            return previous
        request = self._completed(caller, asked)
        budget = RequestBudget(self._search_budget)
        queue = self._queue.within(budget)
        server_limit = self._quotas.server_limit(request)

        def propose(ledger: Ledger) -> Allocation | NoFit | Wait:
            budget.renew()  # after a lost race too: other requests must not use it up
            if refusal := self._over_quota(request, server_limit):
                return refusal
            answer = queue.propose(request, ledger)
            if isinstance(answer, Allocation) or not request.wait:
                return answer
            return queue.hopeless(request, ledger) or Wait(answer)

        answer = self._store.admissions.admit(request, propose)
        if isinstance(answer, NoFit):
            effort = RequestBudget(min(BRIEF, budget.left))
            return self._explained(caller, request, answer, budget, effort, server_limit)
        if isinstance(answer.kind, SharedHosts) and answer.state is not State.QUEUED:
            fabric, id = answer.fabric, answer.id
            self._slots.prepare(lambda: self._store.fabrics.ledger(fabric)[0].ledger(id))
        self._wake()
        return answer

    def propose(self, caller: Caller, asked: AllocationRequest) -> Proposal | NoFit:
        """The answer that ``allocate`` would give now, without reserving anything.

        Raises: as ``allocate``.
        """
        request = self._completed(caller, asked)
        self._quotas.check(request)
        ledger, _ = self._store.fabrics.ledger(request.fabric)
        server_limit = self._quotas.server_limit(request)
        budget = RequestBudget(self._search_budget)
        refusal = self._over_quota(request, server_limit)
        answer = refusal or self._queue.within(budget).propose(request, ledger)
        if isinstance(answer, NoFit):
            return self._explained(caller, request, answer, budget, budget, server_limit)
        fabric = self._store.fabrics.get(request.fabric)
        cost = ledger.features.cost(answer.hosts(fabric.topology))
        return Proposal(fabric, request.project_id, answer, cost)

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

    def view(self, record: AllocationRecord) -> AllocationView:
        """The allocation with its fabric, place in the queue, degradation and progress."""
        fabric, holding = self._store.observations.fabric_and_holding(record.fabric)
        [view] = self._views([record], {record.fabric: (fabric, holding)})
        return replace(view, progress=self._progress(record, holding))

    def views(self, records: Collection[AllocationRecord]) -> list[AllocationView]:
        """As ``view``, without progress."""
        ids = {record.fabric for record in records}
        return self._views(
            records, {id: self._store.observations.fabric_and_holding(id) for id in ids}
        )

    def _views(
        self,
        records: Collection[AllocationRecord],
        fabrics: Mapping[str, tuple[FabricRecord, Holding]],
    ) -> list[AllocationView]:
        places = self._places(records)
        return [
            AllocationView(
                record,
                fabric,
                places.get(record.id),
                _degradation_now(record, fabric.topology),
                holding.waits_for if lifecycle.has_step_now(record) else None,
            )
            for record in records
            for fabric, holding in [fabrics[record.fabric]]
        ]

    @REPEATED.wraps
    def rename(
        self, caller: Caller, id: str, name: str, versions: Collection[int] | None = None
    ) -> AllocationRecord:
        """Give an allocation another name; ``versions`` are those it may have now.

        Raises:
            NotFound: as ``allocation``.
            PreconditionFailed: it has another version.
            ConcurrentUpdate: other requests kept changing it meanwhile.
        """
        record = self._expected(caller, id, versions)
        return self._store.allocations.rename(record, name, by=caller.initiator)

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
        self._wake()
        return record

    @REPEATED.wraps
    def _release(
        self, caller: Caller, id: str, force: bool, versions: Collection[int] | None
    ) -> AllocationRecord:
        record = self._expected(caller, id, versions)
        to = lifecycle.state_after_release(record, force=force)
        if to is None:
            return record
        if to is State.RELEASED:
            reason = reasons.cancelled_reason(caller.user_id)
            return self._store.allocations.cancel(record, reason, by=caller.initiator)
        if not force and is_in_compute(record, self._compute):
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
        record = self._expected(caller, id, versions)
        consent = changed(record.consent)
        if consent == record.consent:
            return record
        if record.state not in LIVE:
            raise Conflict(f"allocation {id} is {record.state.value}; nothing of it can move")
        reason = reasons.consent_reason(consent.movable.value, caller.user_id)
        return self._store.placement_changes.consent(record, consent, reason, by=caller.initiator)

    @REPEATED.wraps
    def resize(
        self,
        caller: Caller,
        id: str,
        asked: ResizeRequest,
        versions: Collection[int] | None = None,
    ) -> AllocationRecord | NoFit:
        """Begin to give an allocation another size where it is; safe to repeat.

        A larger one keeps all its hosts. A smaller one loses hosts without servers: those that
        are named, or as many as are needed. While its size changes, asking for the old size
        turns the change back until the old routes are withdrawn. The record comes back unchanged
        if it has the size, or gets it already.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is not active, a container, of a policy that gives no other size, or its
                placement changes otherwise.
            InvalidInput: a host to give back is not its own, or too few are named.
            HostsBusy: servers run on the hosts to give back.
            QuotaExceeded: its project would have more hosts than it may.
            Unavailable: compute cannot say whether servers run; nothing was changed.
        """
        record = self._expected(caller, id, versions)
        if record.change is not None:
            return self._while_changing(caller, record, asked)
        placed = lifecycle.check_resizable(record)
        if asked.hosts == placed.requested:
            return record
        if refusal := self._over_server_limit(record, asked):
            return refusal
        budget = RequestBudget(self._search_budget)
        wanted = Resize(asked.hosts, self._given_back(record, placed, asked), budget)
        limits = self._quotas.limits
        answer = begin_resize(
            self._store.placement_changes, record, wanted, caller.initiator, limits
        )
        if isinstance(answer, NoFit):
            return self._naming_withheld(answer, caller, record)
        self._wake()
        return answer

    def propose_resize(
        self,
        caller: Caller,
        id: str,
        asked: ResizeRequest,
        versions: Collection[int] | None = None,
    ) -> Proposal | NoFit:
        """The answer that ``resize`` would give now, without changing anything.

        Raises: as ``resize``; Conflict also if a change turned back.
        """
        record = self._expected(caller, id, versions)
        placed = lifecycle.check_resizable(record)
        if refusal := self._over_server_limit(record, asked):
            return refusal
        more = asked.hosts - record.hosts
        if more > 0 and record.parent is None:
            self._quotas.check_growth(record.project_id, more)
        budget = RequestBudget(self._search_budget)
        wanted = Resize(asked.hosts, self._given_back(record, placed, asked), budget)
        view, _ = self._store.fabrics.ledger(record.fabric)
        ledger = view.copy()
        answer = wanted.chosen(ledger, record, placed)
        if isinstance(answer, NoFit):
            return self._naming_withheld(answer, caller, record)
        fabric = self._store.fabrics.get(record.fabric)
        cost = ledger.features.cost(answer.hosts(fabric.topology))
        change = begun(view, placed, answer)
        return Proposal(fabric, record.project_id, answer, cost, change)

    @REPEATED.wraps
    def change_slots(
        self,
        caller: Caller,
        id: str,
        asked: SlotsRequest,
        versions: Collection[int] | None = None,
    ) -> AllocationRecord | NoFit:
        """Begin to give an allocation other slots, another bandwidth, or both; safe to repeat.

        Fewest virtual machines move, and less of both moves none. The record comes back unchanged
        if it has what is asked for, or gets it already.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it has hosts and no slots, is not active, or its slots change already.
            InvalidInput: less than 1 slot, or a bandwidth that is not above 0.
        """
        record = self._expected(caller, id, versions)
        if isinstance(kind := record.kind, Slots) and asked.demand(kind.demand) == kind.demand:
            return record
        wanted = self._slot_change(record, asked)
        limits = self._quotas.limits
        answer = begin_slot_change(
            self._store.placement_changes, record, wanted, caller.initiator, limits
        )
        if isinstance(answer, NoFit):
            return self._naming_withheld(answer, caller, record)
        self._wake()
        return answer

    def propose_slots(
        self,
        caller: Caller,
        id: str,
        asked: SlotsRequest,
        versions: Collection[int] | None = None,
    ) -> Proposal | NoFit:
        """The answer that ``change_slots`` would give now, without changing anything.

        Raises: as ``change_slots``.
        """
        record = self._expected(caller, id, versions)
        placed, wanted = lifecycle.check_slots_changeable(record), self._slot_change(record, asked)
        if (more := wanted.demand.slots - record.demand.slots) > 0:
            self._quotas.check_slots(record.project_id, more)
        view, _ = self._store.fabrics.ledger(record.fabric)
        answer = wanted.chosen(view.copy(), record, placed)
        if isinstance(answer, NoFit):
            return self._naming_withheld(answer, caller, record)
        fabric = self._store.fabrics.get(record.fabric)
        return Proposal(fabric, record.project_id, answer, change=Change.begun(placed, answer))

    def _slot_change(self, record: AllocationRecord, asked: SlotsRequest) -> SlotChange:
        """Raises: Conflict, InvalidInput."""
        lifecycle.check_slots_changeable(record)
        demand = asked.demand(record.demand)
        check_demand(demand)
        names = self._store.fabrics.get(record.fabric).inventory.host_names
        budget = RequestBudget(self._search_budget)
        return SlotChange(demand, self._slots, names, budget, self._compute.claims_slots)

    def _while_changing(
        self, caller: Caller, record: AllocationRecord, asked: ResizeRequest
    ) -> AllocationRecord:
        """The record of a change that leads to the size, or turns back to it. Raises: Conflict."""
        change = lifecycle.check_changing(record)
        if asked.hosts == change.new.requested:
            return record
        if asked.hosts != change.old.requested:
            raise Conflict(
                f"allocation {record.id} gets {change.new.requested} hosts; wait until its "
                f"placement has changed, or ask for {change.old.requested} hosts to turn back"
            )
        reason = reasons.called_off_reason(caller.user_id)
        answer = self._store.placement_changes.turn_back(record, reason, by=caller.initiator)
        self._wake()
        return answer

    def _over_server_limit(self, record: AllocationRecord, asked: ResizeRequest) -> NoFit | None:
        if asked.hosts <= record.hosts:
            return None
        request = AllocationRequest(
            name=record.name, hosts=asked.hosts, project_id=record.project_id
        )
        return too_few_servers(request, self._quotas.server_limit(request))

    def _given_back(
        self, record: AllocationRecord, placed: Allocation, asked: ResizeRequest
    ) -> tuple[int, ...]:
        """Numbers of the hosts that a smaller allocation may lose; () if it is not smaller.

        Raises:
            InvalidInput: a host is not one of its own, or too few are named.
            HostsBusy: servers run on so many that too few are left.
        """
        fabric = self._store.fabrics.get(record.fabric)
        numbers = {fabric.inventory.host_names[h]: h for h in placed.hosts(fabric.topology)}
        for name in asked.give_back:
            if name not in numbers:
                raise InvalidInput("give_back", name, "name hosts of the allocation")
        fewer = placed.requested - asked.hosts
        if fewer <= 0:
            if asked.give_back:
                fix = "leave it out: hosts are given back for a smaller size"
                raise InvalidInput("give_back", listed(asked.give_back), fix)
            return ()
        asked_for = list(dict.fromkeys(asked.give_back)) or list(numbers)
        if len(asked_for) < fewer:
            fix = f"name at least {fewer}, or none for hosts without servers"
            raise InvalidInput("give_back", listed(asked.give_back), fix)
        busy = {occupant.host for occupant in self._compute.occupants(asked_for)}
        empty = [numbers[name] for name in asked_for if name not in busy]
        if len(empty) < fewer:
            raise HostsBusy(waits.too_few_empty(fewer, len(empty), len(asked_for), sorted(busy)))
        return tuple(sorted(empty))

    @REPEATED.wraps
    def replace_hosts(
        self,
        caller: Caller,
        id: str,
        asked: ReplaceRequest,
        versions: Collection[int] | None = None,
    ) -> AllocationRecord | NoFit:
        """Begin to give an allocation other hosts in place of some; its size stays.

        It keeps as many hosts and links as possible, and leaves the hosts that are named, or
        those that have failed. The record comes back unchanged if there is none to leave, or
        they leave already.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is not active, a container, of a policy without shapes, or its placement
                changes otherwise.
            InvalidInput: a host is not its own.
        """
        record = self._expected(caller, id, versions)
        leave = self._to_leave(record, asked)
        if record.change is not None:
            leaving = record.change.freed.hosts(self._store.fabrics.get(record.fabric).topology)
            if leave and leave <= set(leaving):
                return record
        lifecycle.check_resizable(record)
        if not leave:
            return record
        wanted = Replacement(leave, RequestBudget(self._search_budget))
        answer = begin_replacement(self._store.placement_changes, record, wanted, caller.initiator)
        if isinstance(answer, NoFit):
            return self._naming_withheld(answer, caller, record)
        self._wake()
        return answer

    def propose_replacement(
        self,
        caller: Caller,
        id: str,
        asked: ReplaceRequest,
        versions: Collection[int] | None = None,
    ) -> Proposal | NoFit:
        """The answer that ``replace_hosts`` would give now, without changing anything.

        Raises: as ``replace_hosts``.
        """
        record = self._expected(caller, id, versions)
        placed, leave = lifecycle.check_resizable(record), self._to_leave(record, asked)
        wanted = Replacement(leave, RequestBudget(self._search_budget))
        view, _ = self._store.fabrics.ledger(record.fabric)
        answer = wanted.chosen(view.copy(), record, placed) if leave else placed
        if isinstance(answer, NoFit):
            return self._naming_withheld(answer, caller, record)
        fabric = self._store.fabrics.get(record.fabric)
        cost = view.features.cost(answer.hosts(fabric.topology))
        change = begun(view, placed, answer)
        return Proposal(fabric, record.project_id, answer, cost, change)

    @REPEATED.wraps
    def turn_back(
        self, caller: Caller, id: str, versions: Collection[int] | None = None
    ) -> AllocationRecord:
        """Turn back a change of hosts under way, so that the allocation keeps its old ones.

        Administrators also call off a move that is announced and has not begun.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: its hosts do not change, it is too late, or a move was announced and the
                caller is no admin.
        """
        record = self._expected(caller, id, versions)
        if record.announced is not None and record.change is None and caller.admin:
            reason = reasons.not_moved_reason(f"{caller.user_id} asked for it")
            return self._store.placement_changes.drop_announcement(
                record, reason, by=caller.initiator
            )
        change = lifecycle.check_changing(record)
        if record.moves_at is not None and not caller.admin:
            raise Conflict(
                f"the move of allocation {id} was announced and has begun; it turns back if its "
                "old hosts are not empty in time, or when an administrator turns it back"
            )
        if not (change.claimed.size or change.freed.size):
            raise Conflict(f"only links of allocation {id} change; its hosts stay")
        reason = reasons.called_off_reason(caller.user_id)
        answer = self._store.placement_changes.turn_back(record, reason, by=caller.initiator)
        self._wake()
        return answer

    def _to_leave(self, record: AllocationRecord, asked: ReplaceRequest) -> frozenset[int]:
        """Numbers of the hosts to leave. Raises: InvalidInput, if one is not its own."""
        held, fabric = record.held, self._store.fabrics.get(record.fabric)
        if not asked.hosts:
            return frozenset(record.faults.hosts if record.faults is not None else ())
        own = () if held is None else held.hosts(fabric.topology)
        numbers = {fabric.inventory.host_names[host]: host for host in own}
        for name in asked.hosts:
            if name not in numbers:
                raise InvalidInput("hosts", name, "name hosts of the allocation")
        return frozenset(numbers[name] for name in asked.hosts)

    @REPEATED.wraps
    def repair(
        self, caller: Caller, id: str, versions: Collection[int] | None = None
    ) -> AllocationRecord | Degraded:
        """Begin to replace failed links; returns the record unchanged if none has failed.

        Safe to repeat. The hosts stay, and it holds as many links as before, so its project may
        ask too. ``Degraded`` if no other links fit these hosts; nothing is changed.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is not active.
        """
        record = self._expected(caller, id, versions)
        answer = begin_link_repair(self._store.placement_changes, record, caller.initiator)
        self._wake()
        return answer

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
        record = self._expected(caller, id, versions)
        waits = self._store.observations.holding(record.fabric).waits_for is not None
        to = lifecycle.state_after_retry(record, waits=waits)
        if to is not None:
            reason = reasons.retry_reason(caller.user_id)
            record = self._store.allocations.transition(record, to, reason, by=caller.initiator)
        self._wake()
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
            until = self._clock() + timedelta(seconds=seconds)
            while lifecycle.is_moving(record) and self._clock() < until:
                self._sleep(POLL)
                record = self.allocation(caller, id)
            return record
        finally:
            self._waiters.release()

    # -- details ----------------------------------------------------------------

    def _answered(self, caller: Caller, asked: AllocationRequest) -> AllocationRecord | None:
        """The record of the first answer to this key.

        Raises: InvalidInput, Forbidden, IdempotencyMismatch, Unavailable.
        """
        if asked.idempotency_key is None:
            return None
        project = self._lookup.project(caller, asked.project_id)
        return self._store.admissions.answered(
            project, asked, lambda: self._completed(caller, asked)
        )

    def _completed(self, caller: Caller, asked: AllocationRequest) -> AllocationRequest:
        """The request, checked, with an id, the defaults and numbers instead of names."""
        kind = asked.kind
        policy = self._lookup.policy(asked.policy) if kind.whole_hosts else self._slots
        if self._unshared and isinstance(kind, SharedHosts | Slots):
            raise NotSupported(f"hosts are not shared here: {self._unshared}")
        if isinstance(kind, Slots):
            check_demand(kind.demand)
        elif asked.hosts < 1:
            raise InvalidInput("hosts", asked.hosts, "ask for at least 1 host")
        if asked.duration is not None and not 0 < asked.duration <= LONGEST:
            raise InvalidInput("duration", asked.duration, f"give 1 to {LONGEST} seconds")
        parent = asked.parent
        if not kind.whole_hosts:
            part = self._lookup.part(caller, asked)
            fabric, parent = part.fabric, part.id
        elif asked.parent is not None:
            fabric = self._lookup.container(caller, asked.parent, asked.fabric).fabric
        else:
            fabric = self._lookup.fabric(asked.fabric)
        if isinstance(kind, SharedHosts) and self._store.fabrics.get(fabric).topology.rails > 1:
            raise InvalidInput("sharing", "...", f"hosts of {fabric} have more than one rail")
        project = self._lookup.project(caller, asked.project_id)
        return replace(
            asked,
            id=self._new_id(),
            fabric=fabric,
            parent=parent,
            policy=policy.name,
            project_id=project,
            project_checked=project == caller.project_id or self._projects.check(project),
            constraints=self._lookup.constraints(fabric, asked),
            avoid=(),
            by=caller.initiator,
            limits=self._quotas.limits,
            alone=self._quotas.one_per_project and not kind.encloses,
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
        if isinstance(kind := request.kind, Slots):
            ledger, _ = self._store.fabrics.ledger(request.fabric)
            empty = ledger.ledger(request.parent).unowned()
            possible = self._slots.fits(empty, kind.demand, budget)
            cut_off = refusal.cut_off or budget.cut
            answer = replace(refusal, fits_when_empty=possible, cut_off=cut_off)
            return self._naming_withheld(answer, caller, request)
        policy = BudgetedPolicy(self._lookup.policy(request.policy), budget)
        ledger = self._store.fabrics.ledger(request.fabric)[0].ledger(request.parent)
        words = self._store.components.words(request.fabric)
        admin = caller.admin
        answer = explained(refusal, request, policy, ledger, admin, words, effort, server_limit)
        answer = replace(answer, cut_off=budget.cut or effort.cut)
        return self._naming_withheld(answer, caller, request)

    def _naming_withheld(
        self, refusal: NoFit, caller: Caller, asked: AllocationRequest | AllocationRecord
    ) -> NoFit:
        """The refusal with the withheld hosts of the fabric, or of the parent."""
        memory = self._store.compute_hosts.memory(asked.fabric)
        if asked.parent is not None and memory.withheld():
            parent = self._store.allocations.get(asked.parent)
            memory = memory.only(host_names(self._store.fabrics.get(asked.fabric), parent.held))
        return naming_withheld(refusal, memory, caller.admin)

    def _places(self, records: Iterable[AllocationRecord]) -> dict[str, Place]:
        """The places of the records that are queued."""
        queued = [record for record in records if record.state is State.QUEUED]
        ids = {record.id for record in queued}
        queue = self._queue.within(RequestBudget(self._search_budget))
        return {
            id: place
            for fabric in sorted({record.fabric for record in queued})
            for id, place in queue.places(fabric, ids).items()
        }

    def _progress(self, record: AllocationRecord, holding: Holding) -> Progress:
        """The next step of convergence, and the generation that was seen in the switches."""
        applied, by = holding.applied, holding.applied_by
        confirmed = lifecycle.confirmed(record, applied)
        step = lifecycle.next_action(record, confirmed, repair_links=self._repair_links)
        wanted = record.generation if record.state in HOLDING else None
        return Progress(
            None if step is Action.NOTHING else step.value,
            record.failures,
            record.next_try,
            wanted,
            None if wanted is None else applied,
            wanted is not None
            and (applied is not None and applied >= wanted)
            and (by is not None and by.was_read),
        )

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


def _degradation_now(record: AllocationRecord, topology: Topology) -> Degraded | None:
    """What its traffic lacks now: failed hosts and links, a shape that it requires; None if
    nothing."""
    if record.traffic is None:
        return None
    degraded = Degraded()
    if record.faults is not None:
        links, hosts = record.faults.links, record.faults.hosts
        degraded = degradation(topology, record.traffic, links, hosts)
    if _requires_no_contention(record):
        reached = contention(topology, record.traffic, degraded.links)
        degraded = replace(degraded, contention=not reached.free)
    return degraded if degraded.links or degraded.hosts or degraded.contention else None


def _requires_no_contention(record: AllocationRecord) -> bool:
    constraints = record.constraints
    return constraints is not None and constraints.contention_free is ContentionFree.REQUIRE
