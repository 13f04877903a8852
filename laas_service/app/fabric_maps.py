# SPDX-License-Identifier: Apache-2.0

"""The use case of the fabric's map: who owns what, what waits, what is down, why it is refused."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from laas_service.app import lifecycle
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.lifecycle import HOLDING, LIVE, State
from laas_service.app.lookup import Lookup
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Caller, FabricRecord, Word
from laas_service.app.refusals import with_room
from laas_service.app.requests import AllocationRequest
from laas_service.app.views import inventory
from laas_service.app.views.crossed import crossed_by
from laas_service.app.views.parts import part
from laas_service.app.views.utilization import UseCount, course, utilization
from laas_service.domain.admission.admit import largest_fit
from laas_service.domain.admission.constrained import explain_constraints, propose
from laas_service.domain.admission.undisturbed import disturbance
from laas_service.domain.allocation import NoFit, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import LaasError
from laas_service.domain.fabric_map.cells import Viewer, cells_of, fabric_map
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.plan_moves import plan_moves
from laas_service.domain.policies.base import BudgetedPolicy, Policy
from laas_service.domain.topology import link_name

MOST_MOVES = 2
"""The most tenants that a map suggests to move for a refused request."""

MOST_CHANGES = 2000
"""The most changes of what allocations hold that a map shows over time, the newest."""

MOST_FAULTS = 1000
"""The most hosts, links and switches that a map lists as not up."""


LATELY = 0.5
"""Seconds for which a process does not ask the database again whether a map has changed."""

EXPECTED = 60
"""Seconds after which expected starts are computed again although nothing was recorded."""

Section = TypeVar("Section")

Cells = dict[str, dict[int, list[dict[str, Any]]]]
"""What is shown, by matrix and cell."""


PromiseCells = Callable[[FabricRecord, LedgerView, Viewer], Cells]
"""Shows what links promise on hosts that the viewer's allocations share."""

SlotAnswer = Callable[
    [Caller, AllocationRequest, Sequence[float], RequestBudget, bool], dict[str, Any]
]
"""Says whether slots fit, on which hosts (if everything may be seen), and how many such tenants at
other risks."""


class FabricMaps:
    """Maps of fabrics; the searches for one map share ``search_budget``."""

    def __init__(
        self,
        store: Store,
        lookup: Lookup,
        queue: AdmissionQueue,
        promises: PromiseCells,
        slot_answer: SlotAnswer,
        *,
        search_budget: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._lookup = lookup
        self._queue = queue
        self._promises = promises
        self._slot_answer = slot_answer
        self._search_budget = search_budget
        self._clock = clock
        self._revisions: dict[str, tuple[float, str]] = {}

    def fabric_map(
        self,
        caller: Caller,
        fabric_id: str,
        everything: bool,
        asked: AllocationRequest | None = None,
        risks: Sequence[float] = (),
        *,
        named: Callable[[str], bool] = lambda project_id: True,
    ) -> dict[str, Any]:
        """The map as a JSON object, as ``domain.fabric_map`` describes it, with what is recorded.

        Unless ``everything``, it shows what the caller's project holds, and all else is alike.
        ``named`` says of which projects allocations are shown with name and project.
        What cannot be read of one tenant, or of one section, is left out (``views.parts``).
        ``asked`` adds whether a size would fit, where it would lie, and what is in the way.
        ``risks`` as for ``FabricUseCases.fit``.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: the policy that is asked for is not offered.
        """
        fabric, ledger = self._with_ledger(fabric_id)
        records = [
            record
            for record in every_allocation(self._store.allocations, fabric=fabric_id, states=LIVE)
            if everything or record.project_id == caller.project_id
        ]
        records = [
            record
            if named(record.project_id)
            else replace(record, name="", project_id="", error=None)
            for record in records
        ]
        viewer = Viewer(None if everything else frozenset(record.id for record in records))
        crossed = part(
            f"map of fabric {fabric_id}: crossed", lambda: crossed_by(records, lambda _: ledger), {}
        )
        tenants = [
            tenant
            for record in records
            for tenant in part(
                f"map: allocation {record.id}",
                partial(_tenants, record, crossed.get(record.id)),
                [],
            )
        ]
        asked = asked and replace(asked, fabric=fabric_id)
        drawn = fabric_map(ledger, fabric.inventory, tenants, viewer)
        project = None if everything else caller.project_id

        def section(name: str, read: Callable[[], Section], instead: Any) -> Section:
            return part(f"map of fabric {fabric_id}: {name}", read, instead)

        nothing: Cells = {"hosts": {}, "leaf": {}, "spine": {}}
        use = utilization(fabric, ledger, {})
        counts = {"hosts": use.hosts, "leaf_links": use.leaf_links, "spine_links": use.spine_links}
        return {
            **drawn,
            "fabric": fabric_id,
            "promises": section(
                "promises", lambda: self._promises(fabric, ledger, viewer), nothing
            ),
            "generation": fabric.generation,
            "at": self._clock(),
            "counts": {name: _usage(usage) for name, usage in counts.items()},
            "series": section("series", lambda: self._series(fabric_id, records, project), []),
            "queue": section("queue", lambda: self._waiting(fabric_id, records), []),
            "faults": section("faults", lambda: self._faults(fabric, ledger, viewer), []),
            "question": asked and self._answer(caller, ledger, asked, risks, everything),
        }

    def revision(self, fabric_id: str, *, lately: bool) -> str:
        """A text that changes when the map does; ``lately``: as it was ``LATELY`` seconds ago.

        Expected starts of queued requests depend on the time, so it changes with that too.

        Raises:
            NotFound: there is no such fabric.
        """
        at, known = self._revisions.get(fabric_id, (-math.inf, ""))
        if not lately or time.monotonic() - at >= LATELY:
            at, known = time.monotonic(), self._store.fabrics.revision(fabric_id)
            self._revisions[fabric_id] = (at, known)
        return f"{known} {int(self._clock().timestamp() // EXPECTED)}"

    def _with_ledger(self, fabric_id: str) -> tuple[FabricRecord, LedgerView]:
        return self._store.fabrics.with_ledger(fabric_id)

    def _series(
        self, fabric_id: str, records: list[AllocationRecord], project_id: str | None
    ) -> list[tuple[datetime, int]]:
        """Hosts that the viewer's allocations hold over time, those inside a container once."""
        shown = {record.id for record in records}
        held = sum(
            record.hosts
            for record in records
            if record.state in HOLDING and record.parent not in shown
        )
        events = self._store.allocations.size_events(fabric_id, project_id, MOST_CHANGES)
        return course(events, held, self._clock())

    def _waiting(self, fabric_id: str, records: list[AllocationRecord]) -> list[dict[str, Any]]:
        """The queued requests that the viewer sees, with reservations where there are any."""
        queued = [record for record in records if record.state is State.QUEUED]
        if not queued:
            return []
        queue = self._queue.within(RequestBudget(self._search_budget))
        places = queue.places(fabric_id, {record.id for record in queued})
        return [
            {
                "id": record.id,
                "name": record.name,
                "requested": record.hosts,
                "duration": record.duration,
                "position": place.position,
                "expected_start": place.expected_start,
                "detail": place.refusal and place.refusal.detail,
            }
            for record in queued
            if (place := places.get(record.id)) is not None
        ]

    def _faults(
        self, fabric: FabricRecord, ledger: LedgerView, viewer: Viewer
    ) -> list[dict[str, Any]]:
        """What is not up: switches, hosts and links, at most ``MOST_FAULTS``; repairs under way."""
        id = fabric.id
        said = inventory.Said(
            self._store.components.words(id), self._store.faults.observation(id), {}
        )
        owners = ledger.owners_of_hosts()
        down = sorted({*ledger.failed_hosts, *ledger.drained_hosts})
        faults: list[dict[str, Any]] = []
        if viewer.owned is None:
            for entry in inventory.switches(fabric, said):
                if entry.word is not None:
                    faults.append(_fault("switch", entry.switch.name, entry.word))
        seen = [host for host in down if viewer.sees(owners.get(host))]
        for host in inventory.hosts(fabric, ledger, said, seen):
            faults.append(_fault("host", host.name, host.word, host.state.value))
        link_owners = ledger.owners_of_links()
        for link in sorted(
            {*ledger.failed_links, *ledger.drained_links}, key=ledger.topology.tree.link_id
        ):
            if viewer.sees(link_owners.get(link)) and len(faults) < MOST_FAULTS:
                shown = inventory.link(fabric, ledger, link, said)
                faults.append(_fault("link", link_name(link), shown.word, shown.state.value))
        return faults[:MOST_FAULTS]

    def _answer(
        self,
        caller: Caller,
        ledger: LedgerView,
        asked: AllocationRequest,
        risks: Sequence[float],
        everything: bool,
    ) -> dict[str, Any]:
        """Whether the size fits, where it lies now or after the changes, and these changes.

        Only a viewer of everything learns where it would lie, and only an administrator what is
        in the way.
        """
        budget = RequestBudget(self._search_budget)
        if not asked.kind.whole_hosts:
            return self._slot_answer(caller, asked, risks, budget, everything)
        policy = BudgetedPolicy(self._lookup.policy(asked.policy), budget)
        request = Request("", asked.hosts)
        answer = propose(policy, ledger, request)
        document: dict[str, Any] = {
            "hosts": asked.hosts,
            "policy": policy.name,
            "fits": not isinstance(answer, NoFit),
            "largest_fit": largest_fit(policy, ledger, ledger.free_host_count + 1),
        }
        if not isinstance(answer, NoFit):
            routes = disturbance(ledger, request, answer)
            shape: dict[str, Any] = {"shape": None if answer.shape is None else str(answer.shape)}
            if routes is not None:
                shape |= {"crossed_by": routes.crossing, "crossed_more": routes.others}
            return document | shape | ({"cells": cells_of(ledger, answer)} if everything else {})
        answer = explain_constraints(policy, ledger, request, answer)
        words = self._store.components.words(asked.fabric)
        answer = with_room(policy, ledger, request, answer, caller.admin, words, budget)
        document |= {"reason": answer.reason.value, "detail": answer.detail}
        if not caller.admin:
            return document
        names = self._store.fabrics.get(asked.fabric).inventory.host_names
        if answer.room is not None:
            freed = ledger.flattened()
            for id in answer.room.releases:
                freed.release(id)
            for host in answer.room.undrain:
                freed.repair_host(host)
            placement = propose(policy, freed, request)
            if not isinstance(placement, NoFit):
                document["cells"] = cells_of(ledger, placement)
            document["releases"] = list(answer.room.releases)
            document["undrain"] = [names[host] for host in answer.room.undrain]
        return document | _moves(policy, ledger, request)


def _moves(policy: Policy, ledger: LedgerView, request: Request) -> dict[str, Any]:
    """The tenants to move so that the request fits, if the planner finds such moves."""
    try:
        plan = plan_moves(policy, ledger, request, MOST_MOVES, thorough=False)
    except LaasError:
        return {}
    if isinstance(plan, NoFit) or not plan.moves:
        return {}
    return {"moves": [move.allocation.id for move in plan.moves], "moved_hosts": plan.new_hosts}


def _tenants(record: AllocationRecord, crossed: int | None) -> list[dict[str, Any]]:
    placed = record.placed
    tenant = {
        "id": record.id,
        "name": record.name,
        "project": record.project_id,
        "state": record.state.value,
        "requested": record.hosts,
        "policy": record.policy,
        "shape": None if placed is None or placed.shape is None else str(placed.shape),
        "parent": record.parent,
        "degraded": lifecycle.is_degraded(record),
        "crossed_by": crossed,
        "changing": record.change is not None,
        "confirmed": {
            "routes": record.routes_confirmed and asdict(record.routes_confirmed),
            "keys": record.keys_confirmed and asdict(record.keys_confirmed),
        },
        "error": record.error,
        "updated_at": record.updated_at,
        "created_at": record.created_at,
        "ends_at": record.ends_at,
        "movable": record.consent.movable,
        "moves_at": record.moves_at,
    }
    return [tenant]


def _usage(usage: UseCount) -> dict[str, int]:
    fields = ("total", "allocated", "free", "failed", "drained", "withheld")
    return {name: getattr(usage, name) for name in fields}


def _fault(kind: str, name: str, word: Word | None, state: str = "") -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "state": word.state if word else state,
        "source": word.source.value if word else None,
        "since": word.since if word else None,
        "evidence": word.evidence if word else None,
        "reason": word.reason if word else None,
    }
