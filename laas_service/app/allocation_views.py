# SPDX-License-Identifier: Apache-2.0

"""Views of allocations: with the fabric, place in the queue, degradation and progress."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from laas_service.app import lifecycle, safeguards
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.lifecycle import HOLDING, Action, State
from laas_service.app.ports.store import Store
from laas_service.app.records import (
    AllocationRecord,
    FabricRecord,
    Holding,
)
from laas_service.app.requests import (
    AllocationView,
    Place,
    Progress,
)
from laas_service.app.views.crossed import crossed_by
from laas_service.domain.budget import RequestBudget
from laas_service.domain.constraints import ContentionFree, Undisturbed
from laas_service.domain.faults.degradation import Degraded, degradation, joined
from laas_service.domain.routing.contention import contention
from laas_service.domain.topology import Topology

Lacking = Callable[[Iterable[AllocationRecord]], Mapping[str, Degraded]]


class AllocationViews:
    """Adds to recorded allocations what is known of them now.

    ``search_budget`` bounds the searches for one answer. ``repair_links`` says whether the workers
    replace links that have failed. ``lacking`` tells what tenants on shared hosts lack, by id.
    """

    def __init__(
        self,
        store: Store,
        queue: AdmissionQueue,
        *,
        search_budget: int,
        repair_links: bool,
        lacking: Lacking,
    ) -> None:
        self._store = store
        self._queue = queue
        self._search_budget = search_budget
        self._repair_links = repair_links
        self._lacking = lacking

    def view(self, record: AllocationRecord) -> AllocationView:
        """The allocation with its fabric, place in the queue, degradation and progress."""
        return self.of(record, *self._store.observations.fabric_and_holding(record.fabric))

    def of(
        self, record: AllocationRecord, fabric: FabricRecord, holding: Holding
    ) -> AllocationView:
        """As ``view``, with the fabric and its holding as they were read."""
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
        places, crossed = self._places(records), self._crossed_by(records)
        lacking = self._lacking(records)
        return [
            AllocationView(
                record,
                fabric,
                places.get(record.id),
                lacking.get(record.id)
                or _degradation_now(record, fabric.topology, crossed.get(record.id, 0)),
                _delay(record, holding),
                crossed_by=crossed.get(record.id),
            )
            for record in records
            for fabric, holding in [fabrics[record.fabric]]
        ]

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

    def _crossed_by(self, records: Iterable[AllocationRecord]) -> dict[str, int]:
        return crossed_by(records, lambda fabric: self._store.fabrics.ledger(fabric)[0])

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


def _delay(record: AllocationRecord, holding: Holding) -> str | None:
    """What keeps the worker from its next step, or what is not as promised without one."""
    if lifecycle.has_step_now(record):
        return holding.waits_for
    return safeguards.not_kept(record, holding.applied, holding.problem, holding.confirmed)


def _degradation_now(
    record: AllocationRecord, topology: Topology, crossed_by: int
) -> Degraded | None:
    """The failed hosts and links of its traffic, and what it requires and lacks; else None.

    ``crossed_by`` are the pairs of others that cross its links.
    """
    if record.traffic is None:
        return None
    degraded = Degraded()
    if record.faults is not None:
        links, hosts = record.faults.links, record.faults.hosts
        degraded = degradation(topology, record.traffic, links, hosts)
        change = record.change
        if change is not None and change.bridge is not None:
            # Old and new hosts send to each other, over the bridge too.
            together = degradation(topology, change.held, links, hosts)
            degraded = joined([degraded, together])
    if _requires_no_contention(record):
        reached = contention(topology, record.traffic, degraded.links)
        degraded = replace(degraded, contention=not reached.free)
    if record.constraints and record.constraints.undisturbed is Undisturbed.REQUIRE:
        degraded = replace(degraded, crossed_by=crossed_by)
    return None if degraded == Degraded() else degraded


def _requires_no_contention(record: AllocationRecord) -> bool:
    constraints = record.constraints
    return constraints is not None and constraints.contention_free is ContentionFree.REQUIRE
