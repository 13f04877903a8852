# SPDX-License-Identifier: Apache-2.0

"""Where an experiment places virtual clusters: a paper's tree, or hosts with forwarding tables."""

import numpy as np

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.routes import Routes
from laas_service.domain.sharing.tree import SlotTree
from laas_service.domain.topology import Topology, Xgft

PAPER = "paper's tree"
"""The paper's engine and ledger."""
SUMMED = "summed links"
"""The service's search and ledger, where each switch has one link up, of the same capacity."""
ROUTED = "routed links"
"""The service's search and ledger on a fat-tree, whose tables decide which link a packet takes."""
GROUNDS = (PAPER, SUMMED, ROUTED)


def routed_site(tree: SlotTree, ground: str, risk: float = 0.05) -> RoutedSite:
    """The service's ledger on all hosts of a fat-tree that has the capacities of a tree.

    The tree has machines, racks and pods below one root. On ``ROUTED`` the uplink of a rack or a
    pod becomes as many links as it has capacity for a machine's link (rounded).
    """
    size, racks, pods = tree.children
    link, rack, pod = tree.capacity
    ups = max(1, round(rack / link)) if ground == ROUTED else 1
    spines = max(1, round(pod / link / ups)) if ground == ROUTED else 1
    topology = Topology(Xgft((size, racks, pods), (1, ups, spines)))
    hosts, up, across = ((1 << count) - 1 for count in (size, ups, spines))
    groups = tuple(GroupShare(group, hosts, up) for group in range(racks * pods))
    columns = tuple(ColumnShare(p, l2, across) for p in range(pods) for l2 in range(ups))
    every = Allocation("all", tree.machines, "all", groups, columns)
    routes = Routes(topology, every)
    bandwidth = np.full(routes.count, link)
    between = np.where(routes.level_of == 1, rack / ups, pod / ups / spines)
    bandwidth[2 : routes.of_hosts] = np.repeat(between, 2)
    return RoutedSite(routes, tree.slots, bandwidth, risk)
