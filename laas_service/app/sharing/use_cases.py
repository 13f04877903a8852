# SPDX-License-Identifier: Apache-2.0

"""The use cases of shared hosts: other slots, promises of links, hosts that become empty."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from laas_service.app import lifecycle
from laas_service.app.lifecycle import Change
from laas_service.app.lookup import Lookup
from laas_service.app.moves import Asked, Moves, found
from laas_service.app.plans import PlanKind, PlanQuestion
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.store import Store
from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import AllocationRecord, Caller
from laas_service.app.refusals import with_withheld_hosts
from laas_service.app.requests import Proposal
from laas_service.app.retries import REPEATED
from laas_service.app.room_planner import Permission
from laas_service.app.sharing.consolidation import ConsolidationPlan, ConsolidationPlanner
from laas_service.app.sharing.promises import PromiseEntry, promises, promises_to
from laas_service.app.sharing.requests import check_demand
from laas_service.app.sharing.slot_changes import SlotChange, SlotsRequest, begin_slot_change
from laas_service.domain.allocation import NoFit
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import Conflict, InvalidInput
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.ledger import LedgerView
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.tenancy import Slots

MOST_UNITS = 64
"""The most virtual machines that one plan moves to other shared hosts."""


@dataclass(frozen=True, slots=True)
class ConsolidationRequest:
    """A request to empty shared hosts, those of ``parent`` (by id) or of the only allocation.

    ``permission.moves`` counts virtual machines; ``per_host`` is the most for each host emptied.
    """

    parent: str | None
    per_host: float
    permission: Permission


class SharingUseCases:
    """The use cases of tenants on shared hosts, and of those hosts.

    ``wake`` as for ``UseCases``. ``search_budget`` bounds the searches for one request together.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        lookup: Lookup,
        quotas: ProjectLimits,
        moves: Moves,
        slots: SharedSlots,
        *,
        search_budget: int,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._compute = compute
        self._lookup = lookup
        self._quotas = quotas
        self._moves = moves
        self._slots = slots
        self._consolidation = ConsolidationPlanner(store, moves.planner, slots)
        self._search_budget = search_budget
        self._wake = wake

    def prepare(self) -> None:
        """Read ahead of requests what those for slots need."""
        for fabric in self._store.fabrics.all():
            ledger, _ = self._store.fabrics.ledger(fabric.id)
            for id in ledger.inside:
                self._slots.prepare(partial(self._inside, fabric.id, id))

    def _inside(self, fabric_id: str, id: str) -> LedgerView:
        return self._store.fabrics.ledger(fabric_id)[0].ledger(id)

    def promises(self, fabric_id: str) -> Iterator[PromiseEntry]:
        """The promises of links to those who share hosts, with the traffic measured there.

        Raises: NotFound.
        """
        fabric, ledger = self._store.fabrics.with_ledger(fabric_id)
        counters = self._store.faults.counter_findings(fabric.id)
        return promises(fabric, ledger, self._slots, counters)

    def promise(
        self, caller: Caller, id: str
    ) -> tuple[AllocationRecord, list[PromiseEntry], Degraded | None]:
        """A tenant on shared hosts, what each link promises it, and what it lacks now.

        Raises:
            NotFound: the caller has no such allocation.
            Conflict: it is not on shared hosts, or has no place yet.
        """
        record = self._lookup.expected(caller, id, None)
        fabric, ledger = self._store.fabrics.with_ledger(record.fabric)
        inner = ledger.inside.get(record.part)
        if inner is None or record.id not in inner.allocations:
            raise Conflict(f"allocation {id} has no slots of shared hosts: no link promises it any")
        lacks = self._slots.lacks(inner, {record.id}).get(record.id)
        return record, promises_to(fabric, inner, self._slots, record.id), lacks

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
        record = self._lookup.expected(caller, id, versions)
        if isinstance(kind := record.kind, Slots) and asked.demand(kind.demand) == kind.demand:
            return record
        wanted = self._slot_change(record, asked)
        limits = self._quotas.limits
        answer = begin_slot_change(
            self._store.placement_changes, record, wanted, caller.initiator, limits
        )
        if isinstance(answer, NoFit):
            return with_withheld_hosts(self._store, answer, record, caller)
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
        record = self._lookup.expected(caller, id, versions)
        placed, wanted = lifecycle.check_slots_changeable(record), self._slot_change(record, asked)
        if (more := wanted.demand.slots - record.demand.slots) > 0:
            self._quotas.check_slots(record.project_id, more)
        view, _ = self._store.fabrics.ledger(record.fabric)
        answer = wanted.chosen(view.copy(), record, placed)
        if isinstance(answer, NoFit):
            return with_withheld_hosts(self._store, answer, record, caller)
        fabric = self._store.fabrics.get(record.fabric)
        return Proposal(fabric, record.project_id, answer, change=Change.begun(placed, answer))

    def advise_consolidation(
        self, caller: Caller, fabric_id: str, wanted: ConsolidationRequest
    ) -> ConsolidationPlan:
        """Moves of virtual machines that empty shared hosts; nothing else changes.

        The same request gets the same plan while that holds.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: a number is out of range, no allocation shares its hosts, or several do
                and none of them is named.
            Conflict: links of the shared hosts have failed.
            ConcurrentUpdate: an allocation changed meanwhile.
        """
        return found(self._moves.advised(caller, self._asked(fabric_id, wanted)))

    def consolidate(
        self,
        caller: Caller,
        fabric_id: str,
        wanted: ConsolidationRequest,
        key: str | None = None,
    ) -> ConsolidationPlan:
        """As ``advise_consolidation``, and announce all moves, which do not depend on each other.

        With an idempotency ``key`` that was used before, nothing is announced.

        Raises: as ``advise_consolidation``; Conflict, QuotaExceeded: a tenant changed meanwhile;
            IdempotencyMismatch: the key was used for another request.
        """
        return found(self._moves.begun(caller, self._asked(fabric_id, wanted), key))

    def _asked(self, fabric_id: str, wanted: ConsolidationRequest) -> Asked[ConsolidationPlan]:
        permission, per_host = wanted.permission, wanted.per_host
        if not 0 <= permission.moves <= MOST_UNITS:
            fix = f"give 0 to {MOST_UNITS} virtual machines"
            raise InvalidInput("moves", permission.moves, fix)
        if per_host <= 0:
            raise InvalidInput("moves_per_host", per_host, "give a number above 0")
        parent = self._shared(fabric_id, wanted.parent)
        return Asked(
            PlanQuestion(fabric_id, PlanKind.CONSOLIDATION, (parent, per_host, permission)),
            lambda known: self._consolidation.plan(fabric_id, parent, permission, per_host, known),
            "so that shared hosts are empty",
            permission.override,
            all_at_once=True,
        )

    def _shared(self, fabric_id: str, parent: str | None) -> str:
        """The id of the allocation that shares its hosts. Raises: NotFound, InvalidInput."""
        ledger, _ = self._store.fabrics.ledger(self._store.fabrics.get(fabric_id).id)
        parts = [inner.part for inner in ledger.inside.values()]
        known = sorted(part.id for part in parts if part is not None)
        if not known:
            fix = f"no allocation of {fabric_id} shares its hosts; have one made with sharing"
            raise InvalidInput("parent", parent, fix)
        if parent is None and len(known) == 1:
            return known[0]
        if parent not in known:
            fix = f"name an allocation that shares its hosts: {', '.join(known)}"
            raise InvalidInput("parent", parent, fix)
        return parent

    def _slot_change(self, record: AllocationRecord, asked: SlotsRequest) -> SlotChange:
        """Raises: Conflict, InvalidInput."""
        lifecycle.check_slots_changeable(record)
        demand = asked.demand(record.demand)
        check_demand(demand)
        names = self._store.fabrics.get(record.fabric).inventory.host_names
        budget = RequestBudget(self._search_budget)
        return SlotChange(demand, self._slots, names, budget, self._compute.claims_slots)
