# SPDX-License-Identifier: Apache-2.0

"""Keeps the servers of class ``shared`` to the bandwidth that they may send.

Servers come at any time, so their ports are looked at again and again. A limit that others changed
is drift: counted, told once, and set again.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from laas_service.app.handovers import handover_of, is_in_compute
from laas_service.app.lifecycle import HANDED_OVER
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.compute import Compute
from laas_service.app.ports.limits import Limited, SendingLimits
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, Drift, FabricRecord
from laas_service.app.wording import reasons
from laas_service.app.worker.route_publisher import Effect
from laas_service.domain.allocation import SlotDemand
from laas_service.domain.errors import ConcurrentUpdate, LaasError, LeaseLost
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)


class LimitKeeper:
    """Limits what servers send, of allocations whose demand is certain.

    The demand of a stochastic one may be above its mean, so nothing limits its servers. Without
    ``limits`` nothing is limited at all. Looks are ``interval`` seconds apart. A limit that others
    changed is set again also where drift is only reported, because other tenants rely on it.
    """

    def __init__(
        self,
        store: Store,
        compute: Compute,
        limits: SendingLimits | None,
        *,
        interval: float,
        now: Callable[[], datetime],
        effect: Effect,
    ) -> None:
        self._store = store
        self._compute = compute
        self._limits = limits
        self._interval = timedelta(seconds=interval)
        self._now = now
        self._effect = effect
        self._next: dict[str, datetime] = {}
        self._told: dict[str, str] = {}

    def keep(self, fabric: FabricRecord) -> None:
        """Limit the servers of a fabric if it is time; errors are logged. Raises: LeaseLost."""
        now = self._now()
        if self._limits is None or now < self._next.get(fabric.id, now):
            return
        for record in every_allocation(
            self._store.allocations, fabric=fabric.id, states=HANDED_OVER
        ):
            if record.slots is None or record.change is not None:
                continue
            try:
                self._keep_one(record)
            except LeaseLost:
                raise
            except ConcurrentUpdate:
                LOG.info("allocation %s changed meanwhile", record.id)
            except LaasError as error:
                LOG.warning("allocation %s: what servers send is not limited: %s", record.id, error)
        self._next[fabric.id] = self._now() + self._interval

    def _keep_one(self, record: AllocationRecord) -> None:
        found = self.limit(record)
        if found is None:
            return
        if found.changed:
            text = f"allocation {record.id}: limits were changed: {listed(found.changed)}"
            self._store.observations.note_drift(record.fabric, Drift.RATES, text)
            self._store.observations.note_repaired(record.fabric, Drift.RATES, text)
            LOG.warning("%s; set again", text)
        self.note(self._store.allocations.get(record.id), found)

    def limit(self, record: AllocationRecord) -> Limited | None:
        """Limit the servers of an allocation now; None if its servers are not limited.

        Raises: LaasError.
        """
        limits, demand = self._limits, record.slots
        if limits is None or demand is None or not _is_limited(demand):
            return None
        handover = handover_of(self._store.fabrics.get(record.fabric), record)
        servers = set[str]()
        if is_in_compute(record, self._compute):
            servers = {holder.consumer for holder in self._compute.slot_holders(handover)}
        found: list[Limited] = []

        def act() -> None:
            found.append(limits.limit(record.id, record.project_id, demand.each[0][0], servers))

        self._effect("limit", act)
        return found[0]

    def note(self, record: AllocationRecord, found: Limited | None) -> AllocationRecord:
        """Record whether the servers of an allocation are limited, if that has changed."""
        by = self._limits.name if self._limits is not None and found is not None else None
        text = listed(found.open) if found is not None and found.open else ""
        if text and self._told.get(record.id) != text:
            LOG.info("allocation %s: %s", record.id, text)
        self._told[record.id] = text
        if record.limited_by == by or record.state not in HANDED_OVER:
            return record
        return self._store.allocations.note_limits(record, by, reasons.limited_reason(by))

    def forget(self, record: AllocationRecord) -> None:
        """Take back the limits of an allocation that is released. Raises: LaasError."""
        limits = self._limits
        if limits is not None and record.slots is not None:
            self._effect("forget limits", lambda: limits.forget(record.id))


def _is_limited(demand: SlotDemand) -> bool:
    """Whether all servers have the same certain demand; which one has which is not known."""
    return demand.alike and demand.deviation == 0
