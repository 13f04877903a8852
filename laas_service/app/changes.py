# SPDX-License-Identifier: Apache-2.0

"""The use cases that change a placement: another size, other hosts, other links."""

from collections.abc import Callable, Collection

from laas_service.app import lifecycle
from laas_service.app.lookup import Lookup
from laas_service.app.placement_changes import (
    Replacement,
    Resize,
    begin_link_repair,
    begin_replacement,
    begin_resize,
    begun,
)
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.store import Store
from laas_service.app.quotas import ProjectLimits, too_few_servers
from laas_service.app.records import (
    AllocationRecord,
    Caller,
)
from laas_service.app.refusals import with_withheld_hosts
from laas_service.app.requests import (
    AllocationRequest,
    Proposal,
    ReplaceRequest,
    ResizeRequest,
)
from laas_service.app.retries import REPEATED
from laas_service.app.wording import reasons, waits
from laas_service.domain.allocation import Allocation, NoFit
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import (
    Conflict,
    HostsBusy,
    InvalidInput,
)
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.ledger import LedgerView
from laas_service.domain.wording import listed


class ChangeUseCases:
    """Changes of what an allocation has; each is begun here, and the worker completes it.

    ``wake`` as for ``UseCases``. ``search_budget`` bounds the searches for one request together.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        lookup: Lookup,
        quotas: ProjectLimits,
        *,
        search_budget: int,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._compute = compute
        self._lookup = lookup
        self._quotas = quotas
        self._search_budget = search_budget
        self._wake = wake

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
        record = self._lookup.expected(caller, id, versions)
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
        return self._begun(answer, record, caller)

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
        record = self._lookup.expected(caller, id, versions)
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
            return with_withheld_hosts(self._store, answer, record, caller)
        return self._proposed(record, view, placed, answer)

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
        record = self._lookup.expected(caller, id, versions)
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
        return self._begun(answer, record, caller)

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
        record = self._lookup.expected(caller, id, versions)
        placed, leave = lifecycle.check_resizable(record), self._to_leave(record, asked)
        wanted = Replacement(leave, RequestBudget(self._search_budget))
        view, _ = self._store.fabrics.ledger(record.fabric)
        answer = wanted.chosen(view.copy(), record, placed) if leave else placed
        if isinstance(answer, NoFit):
            return with_withheld_hosts(self._store, answer, record, caller)
        return self._proposed(record, view, placed, answer)

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
        record = self._lookup.expected(caller, id, versions)
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

    @REPEATED.wraps
    def repair(
        self, caller: Caller, id: str, versions: Collection[int] | None = None
    ) -> AllocationRecord | Degraded:
        """Begin to replace failed links; returns the record unchanged if none has failed.

        Safe to repeat. The hosts stay, and it holds as many links as before, so its project may
        ask too. ``Degraded`` if no other links fit these hosts; nothing is changed.

        Raises:
            NotFound, PreconditionFailed, ConcurrentUpdate: as ``rename``.
            Conflict: it is not active, or links have failed while its hosts change.
        """
        record = self._lookup.expected(caller, id, versions)
        answer = begin_link_repair(self._store.placement_changes, record, caller.initiator)
        self._wake()
        return answer

    def _begun(
        self, answer: AllocationRecord | NoFit, record: AllocationRecord, caller: Caller
    ) -> AllocationRecord | NoFit:
        """The answer to a request for a change, once the worker knows of it."""
        if isinstance(answer, NoFit):
            return with_withheld_hosts(self._store, answer, record, caller)
        self._wake()
        return answer

    def _proposed(
        self, record: AllocationRecord, view: LedgerView, placed: Allocation, answer: Allocation
    ) -> Proposal:
        fabric = self._store.fabrics.get(record.fabric)
        cost = view.features.cost(answer.hosts(fabric.topology))
        return Proposal(fabric, record.project_id, answer, cost, begun(view, placed, answer))

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
