# SPDX-License-Identifier: Apache-2.0

"""Rate limits: which servers of class ``shared`` to limit; pure.

Servers come at any time, so their ports are looked at again and again. A limit that others changed
is drift: counted, told once, and set again, also where drift is only reported, because other
tenants rely on it.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta

from laas_service.app.handovers import handover_of
from laas_service.app.lifecycle import HANDED_OVER
from laas_service.app.ports.rate_limits import Limited
from laas_service.app.records import AllocationRecord, Drift
from laas_service.app.wording import reasons
from laas_service.app.worker import instructions as do
from laas_service.app.worker.instructions import Log, Steps
from laas_service.app.worker.memory import RateLimitsMemory
from laas_service.app.worker.round import Round
from laas_service.domain.allocation import SlotDemand
from laas_service.domain.errors import ConcurrentUpdate, LaasError
from laas_service.domain.wording import listed


def keep(round: Round, memory: RateLimitsMemory) -> Steps[RateLimitsMemory]:
    """Limit the servers of the fabric if it is time; errors are logged."""
    is_early = memory.next_look is not None and round.now < memory.next_look
    if round.outside.limited_by is None or is_early:
        return memory
    unlimited = memory.unlimited
    records = yield from do.allocations(HANDED_OVER)
    for record in records:
        if record.kind.whole_hosts or record.change is not None:
            continue
        try:
            unlimited = yield from _keep_one(round, record, unlimited)
        except ConcurrentUpdate:
            yield Log(f"allocation {record.id} changed meanwhile", logging.INFO)
        except LaasError as error:
            yield Log(f"allocation {record.id}: what servers send is not limited: {error}")
    ended = yield from do.time()
    return RateLimitsMemory(ended + timedelta(seconds=round.rules.rate_limits_interval), unlimited)


def _keep_one(
    round: Round, record: AllocationRecord, unlimited: Mapping[str, str]
) -> Steps[Mapping[str, str]]:
    found = yield from limit(round, record)
    if found is None:
        return unlimited
    if found.changed:
        text = f"allocation {record.id}: limits were changed: {listed(found.changed)}"
        yield from do.note_drift(round.fabric.id, Drift.RATES, text)
        yield from do.note_repaired(round.fabric.id, Drift.RATES, text)
        yield Log(f"{text}; set again")
    newest = yield from do.allocation(record.id)
    if newest is None:
        return unlimited
    _, unlimited = yield from note(round, newest, found, unlimited)
    return unlimited


def limit(round: Round, record: AllocationRecord) -> Steps[Limited | None]:
    """Limit the servers of an allocation now; None if its servers are not limited.

    The demand of a stochastic one may be above its mean, so nothing limits its servers. Raises:
    LaasError.
    """
    demand = record.slots
    if round.outside.limited_by is None or demand is None or not _is_limited(demand):
        return None
    servers = frozenset[str]()
    if round.hands_over(record):
        holders = yield from do.slot_holders(handover_of(round.fabric, record))
        servers = frozenset(holder.consumer for holder in holders)
    bandwidth = demand.each[0][0]
    return (yield from do.limit(record.id, record.project_id, bandwidth, servers))


def note(
    round: Round, record: AllocationRecord, found: Limited | None, unlimited: Mapping[str, str]
) -> Steps[tuple[AllocationRecord, Mapping[str, str]]]:
    """Record whether the servers of an allocation are limited, if that has changed."""
    by = round.outside.limited_by if found is not None else None
    text = listed(found.open) if found is not None and found.open else ""
    if text and unlimited.get(record.id) != text:
        yield Log(f"allocation {record.id}: {text}", logging.INFO)
    unlimited = {**unlimited, record.id: text}
    if record.limited_by != by and record.state in HANDED_OVER:
        record = yield from do.note_limits(record, by, reasons.limited_reason(by))
    return record, unlimited


def forget(round: Round, record: AllocationRecord) -> Steps[None]:
    """Take back the limits of an allocation that is released. Raises: LaasError."""
    if round.outside.limited_by is not None and not record.kind.whole_hosts:
        yield from do.forget_limits(record.id)


def _is_limited(demand: SlotDemand) -> bool:
    """Whether all servers have the same certain demand; which one has which is not known."""
    return demand.alike and demand.deviation == 0
