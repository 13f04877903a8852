# SPDX-License-Identifier: Apache-2.0

"""Checks fabrics for drift and acts on it: counts, logs, tells, repairs, postpones.

Two depths. The drift check costs one request to Nova and one to the subnet manager, whatever
the number of hosts, and finds what others did to aggregates and switches. Reconciling also asks
placement about every host, and touches every aggregate.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime

from laas_service.app import lifecycle
from laas_service.app.handovers import handover_of, is_in_compute
from laas_service.app.lifecycle import HANDED_OVER
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import Compute, Handover, Observed
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Drift, FabricRecord, kind_of_loss
from laas_service.app.wording import reasons
from laas_service.app.worker import drift
from laas_service.app.worker.drift import Difference, Fence, HandOver, Pool, Publish, TakeBack
from laas_service.app.worker.route_publisher import ActingFor, Effect, RoutePublisher
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    LaasError,
    NotFound,
    Unavailable,
)

LOG = logging.getLogger(__name__)


class DriftControl:
    """Finds drift on the fabrics of one worker, and acts on it.

    With ``repair`` False, drift is reported and left alone. With ``fabric`` only that fabric is
    checked. ``postpone`` records why an allocation has to wait. A difference is counted and
    told once, until it is gone or another one.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        routes: RoutePublisher,
        *,
        repair: bool,
        fabric: str | None,
        now: Callable[[], datetime],
        effect: Effect,
        postpone: Callable[[AllocationRecord, str], None],
        acting_for: ActingFor,
    ) -> None:
        self._store = store
        self._compute = compute
        self._routes = routes
        self._repair = repair
        self._fabric = fabric
        self._now = now
        self._effect = effect
        self._postpone = postpone
        self._acting_for = acting_for
        self._known: dict[tuple[Drift, str], str] = {}  # what differs -> how, as last told
        self._suspected: set[str] = set()  # fabrics whose routes seemed lost at the last check
        self._unpooled: dict[str, frozenset[str] | None] = {}  # None: not known which

    def prepared(self) -> bool:
        """Whether all tables are read that a comparison needs; if not, ask again later."""
        return all(self._routes.prepared(fabric.id) for fabric in self.fabrics())

    # -- reconciling ----------------------------------------------------------------

    def reconcile(self) -> list[str]:
        """Compare all that is recorded with all that is observed; act, and return the findings.

        Active allocations are handed over again in any case: this changes nothing where all is
        well, and repairs schedulers that lost a message.
        """
        with self._compute.comparison():
            return self._compared()

    def _compared(self) -> list[str]:
        self._routes.begin_round()
        findings = [text for fabric in self.fabrics() for text in self.take_over(fabric)]
        try:
            observed = self._compute.handed_over()
        except LaasError as error:
            return [*findings, *_logged(str(error))]
        for record in self._active(self._fabric):
            findings += self._check_hosts(record.id, observed.get(record.id))
        for _, handover in sorted(observed.items()):
            if difference := self._leftover(handover):
                findings += self._act(difference)
        for fabric in self.fabrics():
            self._store.observations.note_compared(fabric.id)
        return findings

    def take_over(self, fabric: FabricRecord) -> list[str]:
        """Put the fabric's free hosts into the pool, and publish its newest routes.

        Without ``repair`` routes that the switches ran and lost are left alone.
        """
        self._store.components.note_faults(fabric.id)
        findings = self._pool(fabric)
        self._routes.take_over(fabric)
        return findings + self._check_routes(fabric, at_once=True)

    def _pool(self, fabric: FabricRecord) -> list[str]:
        """Put all hosts into the pool; without ``repair`` only the first time."""
        subject = f"pool of {fabric.id}"
        if not self._repair and fabric.id in self._unpooled:
            return []
        self._unpooled[fabric.id] = frozenset()
        try:
            hosts = sorted(drift.managed(fabric))
            self._effect("pool", lambda: self._compute.pool(hosts))
        except (Conflict, NotFound) as error:
            self._unpooled[fabric.id] = None
            return self._act(Difference(Drift.POOL, subject, (fabric.id,), str(error)))
        except LaasError as error:
            self._unpooled[fabric.id] = None
            return _logged(f"fabric {fabric.id}: {error}")
        self._known.pop((Drift.POOL, subject), None)
        return []

    # -- the drift check --------------------------------------------------------------

    def check_drift(self) -> list[str]:
        """Compare what costs little to observe; act on what is new, and return the findings.

        Lost routes are believed only if two checks in a row see them: OpenSM may be starting,
        or sweep by itself. Wrong partition keys and another master are believed at once.
        """
        self._routes.begin_round()
        fabrics = self.fabrics()
        findings = [t for fabric in fabrics for t in self._check_routes(fabric, at_once=False)]
        try:
            observed = self._compute.observed()
        except LaasError as error:
            return [*findings, *_logged(str(error))]
        for fabric in fabrics:
            findings += self._check_pool(fabric, observed)
            findings += self._check_allocations(fabric, observed)
        return findings

    def _check_pool(self, fabric: FabricRecord, observed: Observed) -> list[str]:
        """Hosts that have left the pool, or that an aggregate of others opens."""
        missing = drift.managed(fabric) - observed.pooled
        known_missing = self._unpooled.get(fabric.id, frozenset())
        self._unpooled[fabric.id] = missing
        left = missing - known_missing if known_missing is not None else frozenset()
        findings = []
        if difference := drift.pool_difference(fabric, left):
            self._known.pop(difference.about, None)  # other hosts, or the same ones once more
            findings += self._act(difference)
        difference = drift.opened_difference(fabric, observed.opened)
        if difference is None:
            self._known.pop((Drift.POOL, drift.opened_subject(fabric)), None)
        elif self._is_new(difference):
            findings += self._act(difference)
        return findings

    def _check_allocations(self, fabric: FabricRecord, observed: Observed) -> list[str]:
        findings, active = [], set()
        for record in self._active(fabric.id):
            active.add(record.id)
            if lifecycle.hands_over(record):
                continue
            handover = observed.handed_over.get(record.id)
            is_known = is_in_compute(record, self._compute)
            if is_known and self._needs_attention(fabric, record, handover):
                findings += self._check_hosts(record.id, handover)
        for id, handover in sorted(observed.handed_over.items()):
            if id in active or not _on(fabric, handover):
                continue
            difference = self._leftover(handover)
            if id not in observed.fenced:
                difference = difference or self._misled(fabric, handover)
            if difference is not None and self._is_new(difference):
                findings += self._act(difference)
        for kind, id in [*self._known]:
            if kind is Drift.LEFTOVER and id not in observed.handed_over:
                del self._known[kind, id]
        return findings

    def _needs_attention(
        self, fabric: FabricRecord, record: AllocationRecord, observed: Handover | None
    ) -> bool:
        """Whether a difference is new, is due for another try, or was repaired by others."""
        difference = drift.hosts_difference(fabric, record, observed)
        if difference is None:
            detail = self._known.pop((Drift.HOSTS, record.id), None)
            return detail is not None and record.error == detail
        is_due = record.next_try is None or record.next_try <= self._now()
        return self._is_new(difference) or (self._repair and is_due)

    # -- one thing -----------------------------------------------------------------------

    def _check_routes(self, fabric: FabricRecord, *, at_once: bool) -> list[str]:
        """Act on routes that the switches lost, and publish those that they do not run.

        Lost routes are published again with ``repair``, routes that the switches never ran only
        if ``at_once``.
        """
        try:
            applied = self._routes.applied(fabric.id)
            certain = at_once or kind_of_loss(applied).facts.certain
            suspected = certain or fabric.id in self._suspected
            self._suspected.discard(fabric.id)
            if applied.generation == fabric.routes_generation:
                return []
            if self._routes.has_lost(fabric, applied):
                if not suspected:
                    self._suspected.add(fabric.id)
                    return []
                difference = drift.routes_difference(fabric, applied)
                self._routes.record_loss(fabric.id, applied)
                self._known.pop(difference.about, None)  # lost once more
                return self._act(difference)
            publishes = self._repair if self._routes.ever_applied(fabric) else at_once
            problem = self._routes.publish(fabric.id) if publishes else None
        except LaasError as error:
            problem = str(error)
        return _logged(f"fabric {fabric.id}: {problem}") if problem else []

    def _check_hosts(self, id: str, observed: Handover | None) -> list[str]:
        """One active allocation against what is handed over."""
        record = self._store.allocations.get(id)
        is_known = is_in_compute(record, self._compute)
        if record.state not in HANDED_OVER or not is_known or lifecycle.hands_over(record):
            return []
        fabric = self._store.fabrics.get(record.fabric)
        with self._acting_for(record.initiator):
            if difference := drift.hosts_difference(fabric, record, observed):
                return self._act(difference)
            self._known.pop((Drift.HOSTS, id), None)
            return self._confirm_hosts(record, handover_of(fabric, record))

    def _confirm_hosts(self, record: AllocationRecord, handover: Handover) -> list[str]:
        """Hand over again what is handed over; an error about it is over then."""
        try:
            self._effect("hand over", lambda: self._compute.hand_over(handover))
            if record.error and lifecycle.is_at_rest(record):
                self._record_repair(record, record.error)
        except ConcurrentUpdate:
            return []
        except LaasError as error:
            self._postpone(record, str(error))
            return _logged(f"allocation {record.id}: {error}")
        return []

    def _leftover(self, handover: Handover) -> Difference | None:
        """Whether an aggregate is left over, or belongs to no allocation that was recorded."""
        record: AllocationRecord | None
        try:
            record = self._store.allocations.get(handover.allocation_id)
        except NotFound:
            record = None
        if self._fabric is not None and self._is_elsewhere(record, handover):
            return None
        fabrics = (f for f in self.fabrics() if self._fabric is not None or _on(f, handover))
        return drift.leftover_difference(record, handover, tuple(f.id for f in fabrics))

    def _misled(self, fabric: FabricRecord, handover: Handover) -> Difference | None:
        """Whether an aggregate admits another project than that of its allocation in error."""
        try:
            record = self._store.allocations.get(handover.allocation_id)
        except NotFound:
            return None
        if record.fabric != fabric.id:
            return None
        return drift.misled_difference(record, handover)

    def _is_elsewhere(self, record: AllocationRecord | None, handover: Handover) -> bool:
        """Whether an aggregate belongs to other fabrics than the one that is checked."""
        if record is not None:
            return record.fabric != self._fabric
        if not handover.hosts:
            return False
        others = [fabric for fabric in self._store.fabrics.all() if fabric.id != self._fabric]
        known = {name for fabric in others for name in fabric.inventory.host_numbers}
        return known.issuperset(handover.hosts)

    # -- acting ----------------------------------------------------------------------------

    def _is_new(self, difference: Difference) -> bool:
        return self._known.get(difference.about) != difference.detail

    def _act(self, difference: Difference) -> list[str]:
        """Count, tell and repair a difference, or postpone its allocation; the findings."""
        is_new = self._is_new(difference)
        self._known[difference.about] = difference.detail
        if is_new:
            for fabric in difference.fabrics:
                self._store.observations.note_drift(fabric, difference.kind, difference.told)
        if difference.repair is None or not self._repair:
            if is_new and isinstance(difference.repair, HandOver):
                self._postpone(difference.repair.record, difference.detail)
            return _logged(difference.finding)
        try:
            repaired = self._carry_out(difference)
        except ConcurrentUpdate:
            return []
        except LaasError as error:
            if isinstance(difference.repair, HandOver):
                self._postpone(difference.repair.record, str(error))
            return _logged(f"{difference.finding}; not repaired: {error}")
        if not repaired:
            return _logged(difference.finding)
        del self._known[difference.about]
        for fabric in difference.fabrics:
            self._store.observations.note_repaired(fabric, difference.kind, difference.told)
        return _logged(f"{difference.finding}; repaired")

    def _carry_out(self, difference: Difference) -> bool:
        """Whether the difference is repaired now; routes are once the switches run them."""
        match difference.repair:
            case HandOver(record, handover):
                self._effect("hand over", lambda: self._compute.hand_over(handover))
                self._record_repair(record, difference.detail)
            case TakeBack(handover):
                self._effect("take back", lambda: self._compute.take_back(handover))
            case Fence(allocation_id):
                self._effect("fence", lambda: self._compute.fence(allocation_id))
            case Pool(hosts):
                self._effect("pool", lambda: self._compute.pool(hosts))
            case Publish(fabric):
                if problem := self._routes.publish(fabric):
                    raise Unavailable(problem)
                return False
        return True

    def _record_repair(self, record: AllocationRecord, detail: str) -> None:
        reason = reasons.hosts_repaired_reason(detail)
        self._store.allocations.transition(record, record.state, reason)

    # -- what is checked ---------------------------------------------------------------------

    def fabrics(self) -> list[FabricRecord]:
        """The fabrics that are checked. ``NotFound``."""
        return (
            self._store.fabrics.all()
            if self._fabric is None
            else [self._store.fabrics.get(self._fabric)]
        )

    def _active(self, fabric: str | None) -> Iterator[AllocationRecord]:
        """Every allocation that is handed over, without history."""
        return every_allocation(self._store.allocations, fabric=fabric, states=HANDED_OVER)


def _on(fabric: FabricRecord, handover: Handover) -> bool:
    """Whether one of the hosts is in the fabric."""
    return not fabric.inventory.host_numbers.keys().isdisjoint(handover.hosts)


def _logged(finding: str) -> list[str]:
    LOG.warning("%s", finding)
    return [finding]
