# SPDX-License-Identifier: Apache-2.0

"""Idle links and switches, which may be turned down to save power.

LaaS (ANCS'16) section 5: the links of every tenant are known, so the network's power can
follow the use of the cloud without measuring traffic.
"""

from collections import defaultdict
from dataclasses import dataclass

from laas_service.domain.crossed_links import tables_of
from laas_service.domain.inventory import Inventory, PortRef, Switch
from laas_service.domain.ledger import LedgerView
from laas_service.domain.routing.fabric_tables import ForwardingTables
from laas_service.domain.routing.tenant_tables import routed_allocations
from laas_service.domain.topology import Link


@dataclass(frozen=True, slots=True)
class IdleComponents:
    """Links and switches that may be turned down."""

    links: tuple[Link, ...]
    """In order of their numbers; those of idle switches are included."""

    switches: tuple[Switch, ...]
    """In the order of the inventory."""


def idle_components(fabric: LedgerView, inventory: Inventory) -> IdleComponents:
    """All links and switches that no required path uses.

    With all of them turned down at once, and without a change of the forwarding tables,
    these still reach each other:

    * the hosts of each tenant, also of one that owns no links (``baseline``, ``ta``);
    * each host with an owner and each *service endpoint* (a port that is not for tenants:
      subnet manager, storage, gateways), both ways; and service endpoints one another;
    * each switch that is not idle and each service endpoint, both ways.

    So a leaf with an owned host or a service endpoint is not idle, nor is a switch with an
    owned link. If no service endpoint is known, the subnet manager may be on any host, so
    every leaf counts as one. Aggregation nodes are parts of switches and need no link. Hosts
    without an owner on an idle leaf are cut off.

    Links are listed whether up or failed; absent ones are not. Switches are physical: a
    director that is the spine of several L2 indices is idle only if none of them needs it.
    """
    topology = fabric.topology
    owned = fabric.owners_of_links()
    tables = tables_of(fabric, inventory)
    needed = _NeededComponents(inventory, tables)
    for link in owned:
        cable = inventory.cable_of_link.get(link)
        if cable is not None:
            needed.switches |= {cable.lower.guid, cable.upper.guid}
    services = inventory.service_endpoints
    service_leaves = {endpoint.at.guid for endpoint in services} or {
        guid for guid in inventory.leaf_guids if guid
    }
    service_guids = [endpoint.guid for endpoint in services] or sorted(service_leaves)
    for allocation in routed_allocations(fabric.everybody()):
        ports = [
            endpoint
            for host in allocation.hosts(topology)
            for rail in range(topology.rails)
            if (endpoint := inventory.endpoint_of_port.get((host, rail))) is not None
        ]
        leaves = {endpoint.at.guid for endpoint in ports}
        for endpoint in ports:
            needed.add_paths(leaves | service_leaves, endpoint.guid)
    for guid in service_guids:
        needed.add_paths(service_leaves, guid)
    needed.add_management_paths(service_leaves, service_guids)
    tree, absent = topology.tree, topology.absent_links
    return IdleComponents(
        tuple(
            link
            for link in tree.links()
            if link not in absent and link not in owned and link not in needed.links
        ),
        tuple(switch for switch in inventory.switches if switch.guid not in needed.switches),
    )


class _NeededComponents:
    """Links and switches (by GUID) on the paths that are required."""

    def __init__(self, inventory: Inventory, tables: ForwardingTables) -> None:
        self.links: set[Link] = set()
        self.switches: set[int] = set()
        self._tables = tables
        self._far_ends = inventory.far_ends
        self._walked: dict[int, set[int]] = defaultdict(set)

    def add_paths(self, sources: set[int], destination: int) -> None:
        """Add the paths of packets from these switches to a GUID."""
        walked = self._walked[destination]
        for switch in sources:
            while switch not in walked:
                walked.add(switch)
                self.switches.add(switch)
                port = self._tables.port(switch, destination)
                neighbor = None if port is None else self._far_ends.get(PortRef(switch, port))
                if neighbor is None:
                    break  # at the destination, at its leaf, or where no route leads on
                (switch, _), cable = neighbor
                if cable.link is not None:
                    self.links.add(cable.link)

    def add_management_paths(self, service_leaves: set[int], service_guids: list[int]) -> None:
        """Add the paths between services and needed switches, also those on these paths."""
        done: set[int] = set()
        while new := self.switches - done:
            for switch in new:
                self.add_paths(service_leaves, switch)
            for guid in service_guids:
                self.add_paths(new, guid)
            done |= new
