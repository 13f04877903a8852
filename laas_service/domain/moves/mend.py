# SPDX-License-Identifier: Apache-2.0

"""Other links for both placements of a tenant that moves, and for the bridge between them.

Each placement keeps its hosts and gets links as in ``faults.repair``; then the bridge is chosen
anew where it lacks a link. A link of one placement may serve the other one, too: both have one
owner.
"""

from dataclasses import dataclass, replace

from laas_service.domain.allocation import Allocation
from laas_service.domain.faults.degradation import Degraded, degradation
from laas_service.domain.faults.repair import best_links
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.bridge import bridge


@dataclass(frozen=True, slots=True)
class Joined:
    """Two placements of one tenant, and what joins their hosts; None: nothing does."""

    old: Allocation
    new: Allocation
    bridge: Allocation | None

    @property
    def held(self) -> Allocation:
        """All of it."""
        both = self.new.joined(self.old)
        return both if self.bridge is None else both.joined(self.bridge)


def mended(fabric: LedgerView, present: Joined) -> Joined | Degraded:
    """The same hosts on working links, or what they lack if no failed link can be replaced.

    ``fabric`` holds all of ``present``. Links that are free, or the tenant's own, and up may be
    taken. A part for which there are no such links stays as it is.
    """
    topology, held = fabric.topology, present.held
    failed = frozenset(x for x in held.links(topology) if x in fabric.failed_links)
    view = fabric.copy()
    view.release(held.id)
    for link in held.links(topology):
        if link in fabric.drained_links and link not in failed:
            view.repair_link(link)  # it may stay

    def on_working_links(placed: Allocation) -> Allocation:
        if failed.isdisjoint(placed.links(topology)):
            return placed
        return best_links(view, placed) or placed

    old, new = on_working_links(present.old), on_working_links(present.new)
    joined = present.bridge
    if joined is not None:
        stays = (old, new) == (present.old, present.new)
        if not stays or not failed.isdisjoint(joined.links(topology)):
            joined = bridge(view, old, new) or joined
    answer = replace(present, old=old, new=new, bridge=joined)
    if answer != present:
        return answer
    found = degradation(topology, held, failed, fabric.failed_hosts)
    return replace(found, obstacle="no free links join its old and new hosts")
