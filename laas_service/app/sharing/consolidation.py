# SPDX-License-Identifier: Apache-2.0

"""Plans that empty shared hosts: which virtual machines of them would move; changes nothing."""

from contextlib import suppress
from dataclasses import dataclass

from laas_service.app.lifecycle import State
from laas_service.app.plans import PlanStep, RecordedPlan, remaining
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord
from laas_service.app.room_planner import MovePlan, Permission, RoomPlanner
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import Conflict, DoubleClaim
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.nearest import Nearest
from laas_service.domain.moves.plan_moves import MOVES_WORK
from laas_service.domain.sharing.consolidation import Emptying, empty_hosts
from laas_service.domain.sharing.policy import SharedSlots


@dataclass(frozen=True, slots=True)
class ConsolidationPlan(MovePlan):
    """The moves of virtual machines after which shared hosts are empty."""

    parent: str
    """The allocation that shares its hosts, by id."""
    emptied: Emptying


class ConsolidationPlanner:
    """Plans moves to other shared hosts, of the tenants that ``planner`` says may move."""

    def __init__(self, store: Store, planner: RoomPlanner, slots: SharedSlots) -> None:
        self._store = store
        self._planner = planner
        self._slots = slots

    def plan(
        self,
        fabric_id: str,
        parent: str,
        permission: Permission,
        most_per_host: float,
        known: RecordedPlan | None = None,
    ) -> ConsolidationPlan:
        """Moves of virtual machines, of allocations that may move, that empty shared hosts.

        Those of ``known``, if that plan holds.

        At most ``permission.moves`` virtual machines move, and ``most_per_host`` for each host.
        Places that announced moves lead to are left free for them.

        Raises:
            NotFound: there is no such fabric.
            Conflict: links of the shared hosts have failed.
            ConcurrentUpdate: an allocation changed meanwhile.
        """
        fabric = self._store.fabrics.get(fabric_id)
        draft = self._store.fabrics.ledger(fabric_id)[0].copy()
        inner = draft.ledger(parent)
        if inner.part is not None:
            lost = draft.failed_links.intersection(inner.part.links(draft.topology))
            if lost:
                raise Conflict(f"links of {parent!r} have failed; repair them, then consolidate")
        if known is not None and known.emptied is not None:
            active = every_allocation(
                self._store.allocations, fabric=fabric_id, states={State.ACTIVE}
            )
            sharers = {one.id: one for one in active if one.part == parent}
            held = remaining(known, sharers, draft, lambda step: True)
            if held is not None:
                rest, emptied = self._planner.remaining_moves(held[0], sharers), _emptied(known)
                return ConsolidationPlan(
                    fabric, rest, known.cut_off, parent, emptied, recorded=known
                )
        candidates, left = self._sharers(draft, fabric_id, parent, permission)
        budget = RequestBudget(MOVES_WORK)
        while True:
            plan = empty_hosts(
                self._slots,
                inner,
                permission.moves,
                most_per_host,
                candidates.__contains__,
                request_budget=budget,
            )
            moves = [Nearest(change, len(change.unit_moves)) for change in plan.changes]
            stay = [] if permission.override else self._planner.must_stay(moves, candidates, left)
            if not stay:
                planned = self._planner.planned(moves, candidates)
                recorded = _recorded(plan, tuple(move.step for move in planned))
                return ConsolidationPlan(
                    fabric, planned, plan.cut_off, parent, plan, recorded=recorded
                )
            for id in stay:
                del candidates[id]

    def _sharers(
        self, draft: Ledger, fabric_id: str, parent: str, permission: Permission
    ) -> tuple[dict[str, AllocationRecord], dict[str, int]]:
        """The allocations with slots of ``parent`` that may move, and the moves left to projects.

        The draft holds the places that announced moves lead to afterwards.
        """
        active = every_allocation(self._store.allocations, fabric=fabric_id, states={State.ACTIVE})
        records = [one for one in active if one.part == parent]
        left = {} if permission.override else self._planner.moves_left(records)
        inner, candidates = draft.ledger(parent), dict[str, AllocationRecord]()
        for record in records:
            placed, to = record.placed, record.announced
            if placed is None or inner.allocations.get(record.id) != placed:
                continue
            if to is not None:
                with suppress(DoubleClaim):
                    draft.change(to.joined(placed))
            elif (
                record.change is None
                and self._planner.why_hosts_stay(record, permission, left) is None
            ):
                candidates[record.id] = record
        return candidates, left


def _recorded(plan: Emptying, steps: tuple[PlanStep, ...]) -> RecordedPlan:
    """A plan as it is recorded, with what it empties."""
    emptied = {
        "hosts": list(plan.hosts),
        "costs": list(plan.costs),
        "leaves": [list(leaf) for leaf in plan.leaves],
        "searches": plan.searches,
    }
    return RecordedPlan(steps, plan.cut_off, emptied)


def _emptied(plan: RecordedPlan) -> Emptying:
    """What a recorded plan empties."""
    assert plan.emptied is not None
    known = plan.emptied
    return Emptying(
        tuple(step.new for step in plan.steps),
        tuple(known["hosts"]),
        tuple(known["costs"]),
        tuple((pod, number) for pod, number in known["leaves"]),
        known["searches"],
        plan.cut_off,
    )
