# SPDX-License-Identifier: Apache-2.0

"""Whether the slots that an announced move leads to can still be promised."""

import math
from statistics import NormalDist

from laas_service.domain.allocation import Allocation, Promise
from laas_service.domain.ledger import LedgerView
from laas_service.domain.tenancy.slots import GRAIN, steps_down


def in_the_way(ledger: LedgerView, present: Allocation, to: Allocation) -> str | None:
    """What keeps an allocation from going to slots that were chosen before; None: nothing.

    Judged by what the ledger holds for others. Whether slots are free is left to the ledger.
    """
    part = ledger.part
    assert part is not None
    targets = {new for _, _, new in to.held_slots.moves}
    if not targets.isdisjoint(ledger.failed_hosts | ledger.drained_hosts):
        return "a host that it would go to has failed or is drained"
    if not frozenset(ledger.failed_links).isdisjoint(part.links(ledger.topology)):
        return "links of the shared hosts have failed, so traffic takes others"
    both = to.joined(present).held_slots
    total = {promise.link: promise for promise in both.promised}
    for id, other in ledger.allocations.items():
        for promise in other.held_slots.promised if id != to.id else ():
            if (sums := total.get(promise.link)) is not None:
                added = (a + b for a, b in zip(sums[1:], promise[1:], strict=True))
                total[promise.link] = Promise(promise.link, *added)
    capacity = steps_down(part.terms.bandwidth)
    quantile = NormalDist().inv_cdf(1 - part.terms.risk)
    for _, certain, mean, variance in total.values():
        if certain + mean + math.ceil(quantile * math.sqrt(variance * GRAIN)) > capacity:
            return "a link can no longer promise its bandwidth there"
    return None
