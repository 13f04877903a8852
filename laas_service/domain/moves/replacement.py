# SPDX-License-Identifier: Apache-2.0

"""Another placement of one tenant: without some of its hosts, or of a size that fits elsewhere."""

from collections.abc import Collection
from dataclasses import replace

from laas_service.domain.allocation import WHOLE, Allocation, GroupShare
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.moves.host_roles import HostSupply
from laas_service.domain.moves.legal_shapes import SHAPED, legal_shapes
from laas_service.domain.moves.nearest import Nearest, nearest
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.budget import WORK, SearchBudget


def can_be_replaced(allocation: Allocation) -> bool:
    """Whether its policy has shapes, or hosts alone, so that other placements are known."""
    return allocation.policy in SHAPED | {"baseline"} and allocation.bandwidth == WHOLE


def replacement(
    fabric: LedgerView,
    allocation: Allocation,
    hosts: int,
    leave: Collection[int] = (),
    budget: RequestBudget | None = None,
) -> Nearest | None:
    """The placement of ``hosts`` hosts that takes the fewest new hosts; None if none is found.

    ``fabric`` holds the allocation, and is the ledger of its container if it has one. Any of its
    present hosts may stay but those of ``leave``; free hosts are new ones. Links as in ``resize``.
    None also for policies that have neither shapes nor hosts alone, and once the budget is spent.
    """
    topology, shape = fabric.topology, allocation.shape
    if not can_be_replaced(allocation):
        return None
    present = {share.group: share.hosts for share in allocation.groups}
    own = [present.get(group, 0) for group in range(topology.groups)]
    left = topology.positions_of(leave)
    supply = HostSupply(
        [0] * len(own),
        [mask & ~out for mask, out in zip(own, left, strict=True)],
        tuple(fabric.free_hosts),
    )
    if allocation.policy == "baseline":
        return _hosts_alone(allocation, supply, hosts)
    extended = shape is not None and shape.extended
    shapes = legal_shapes(allocation.policy, hosts, topology, two_pods=extended)
    search = SearchBudget(4 * WORK, budget or RequestBudget(4 * WORK))
    wanted = replace(allocation, requested=hosts)
    return nearest(without(fabric, allocation), wanted, supply, shapes, search)


def without(fabric: LedgerView, allocation: Allocation) -> Ledger:
    """The fabric without an allocation, whose drained links may be used again."""
    view = fabric.flattened()
    view.release(allocation.id)
    for link in allocation.links(fabric.topology):
        if link in fabric.drained_links and link not in fabric.failed_links:
            view.repair_link(link)
    return view


def _hosts_alone(allocation: Allocation, supply: HostSupply, hosts: int) -> Nearest | None:
    """Present hosts, then free ones, by number of leaf group."""
    chosen, missing, new_hosts = [0] * len(supply.new), hosts, 0
    for masks in (supply.spare, supply.new):
        for group, mask in enumerate(masks):
            taken = lowest_bits(mask, missing)
            chosen[group] |= taken
            missing -= taken.bit_count()
            new_hosts += taken.bit_count() if masks is supply.new else 0
    if missing:
        return None
    groups = tuple(GroupShare(group, mask, 0) for group, mask in enumerate(chosen) if mask)
    return Nearest(replace(allocation, requested=hosts, groups=groups), new_hosts)
