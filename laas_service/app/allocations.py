# SPDX-License-Identifier: Apache-2.0

"""The use cases, plain values in and out; a refusal is an answer (``NoFit``), mistakes
and lost races are exceptions of ``domain.errors``. Those of fabrics are in ``fabrics``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from laas_service.app.admission_queue import HOLDING, Place
from laas_service.app.base import PAGE, with_room
from laas_service.app.fabrics import Fabrics
from laas_service.app.records import AllocationRecord, Caller, NewAllocation, State, Usage, Wait
from laas_service.app.repairs import mend
from laas_service.app.requests import LIVE, MOVING, AllocationRequest, Progress, Proposal
from laas_service.app.worker.converger import Action, next_action
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    LaasError,
    PreconditionFailed,
)
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.base import BudgetedPolicy

LOG = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST = 10 * 365 * 24 * 3600
"""The longest duration in seconds that can be announced."""

POLL = 0.05
"""Seconds between two looks at an allocation somebody waits for."""


class Service(Fabrics):
    """The use cases over the ports; ``base.Base`` says what it is made of."""

    def allocate(self, caller: Caller, ask: AllocationRequest) -> AllocationRecord | NoFit:
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
        meter = self._meter(2)
        if self._line.on(self._meter(2)).serve(new.fabric):
            self._wake()
        line = self._line.on(meter)
        short = self._short_of_servers(new)

        def propose(fabric: Ledger) -> Allocation | NoFit | Wait:
            if over := short or self._over_quota(new):
                return over
            answer = line.propose(new, fabric)
            if isinstance(answer, Allocation) or not ask.wait:
                return answer
            return line.hopeless(new, fabric) or Wait(answer)

        answer = self._store.admit(new, propose)
        if isinstance(answer, NoFit):
            return self._explain(caller, new, answer, meter)
        self._wake()
        return answer

    def usage(self, caller: Caller, project_id: str | None = None) -> Usage:
        """What a project may have and has: the caller's own, or for an admin any.

        Raises:
            Forbidden: another project is named and the caller is no admin.
            InvalidInput: no project is known.
        """
        project = project_id or caller.project_id
        if project != caller.project_id and not caller.admin:
            raise Forbidden(f"project {project!r} is another one; only administrators see it")
        if not project:
            raise InvalidInput("project_id", project_id, "name a project")
        return self._store.usage(project, self._rules.limits)

    def propose(self, caller: Caller, ask: AllocationRequest) -> Proposal | NoFit:
        """The answer ``allocate`` would give now, without reserving anything.

        Raises: as ``allocate``.
        """
        new = self._new(caller, ask)
        self._store.within_limits(new)
        ledger, _ = self._store.ledger(new.fabric)
        over = self._short_of_servers(new) or self._over_quota(new)
        meter = self._meter()
        answer = over or self._line.on(meter).propose(new, ledger)
        if isinstance(answer, NoFit):
            return self._explain(caller, new, answer, meter)
        fabric = self._store.fabric(new.fabric)
        cost = ledger.features.cost(answer.hosts(fabric.topology))
        return Proposal(fabric, new.project_id, answer, cost)

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
        line = self._line.on(self._meter())
        return {
            id: place
            for fabric in sorted(fabrics)
            for id, place in line.places(fabric, wanted).items()
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

    def _new(self, caller: Caller, ask: AllocationRequest) -> NewAllocation:
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

    def _explain(
        self, caller: Caller, new: NewAllocation, refusal: NoFit, meter: RequestBudget
    ) -> NoFit:
        """The refusal with the largest size there is room for now, and how to make room."""
        if refusal.reason is Refusal.QUOTA:
            return refusal
        policy = BudgetedPolicy(self._policy(new.policy), meter)
        ledger = self._store.ledger(new.fabric)[0].ledger(new.parent)
        request = Request("", new.hosts, constraints=new.constraints)
        waits = refusal.reason is Refusal.OTHERS_WAIT
        if refusal.largest_fit is None:
            below = ledger.free_host_count + 1 if waits else new.hosts
            most = largest_fit(policy, ledger, below, new.constraints)
            refusal = replace(refusal, largest_fit=most)
        if not waits:
            refusal = with_room(policy, ledger, request, refusal, caller.admin)
        return replace(refusal, cut_off=meter.cut)

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


def _project(caller: Caller, ask: AllocationRequest) -> str:
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
