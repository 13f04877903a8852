# SPDX-License-Identifier: Apache-2.0

"""Power: links and switches that nobody needs now and that may be turned down.

LaaS (ANCS'16) section 5: as every tenant's links are known, the power of the network
can follow the use of the cloud, without guessing from traffic.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from laas_service.domain.inventory import Inventory, Switch
from laas_service.domain.ledger import LedgerView
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.routing.tenant_tables import routed_allocations
from laas_service.domain.topology import Link


@dataclass(frozen=True, slots=True)
class Idle:
    """What may be turned down: links in order of their numbers, switches in the inventory's.

    The links of an idle switch are among ``links``.
    """

    links: tuple[Link, ...]
    switches: tuple[Switch, ...]


def idle(fabric: LedgerView, inventory: Inventory) -> Idle:
    """Everything that is up for nobody.

    With all of it turned down at once, and not one forwarding entry changed, these
    still reach each other:

    * the hosts of each tenant, also of one that owns no links (``baseline``, ``ta``);
    * each host with an owner and each *service endpoint* (a port that is no tenant's:
      subnet manager, storage, gateways), both ways, and service endpoints one another;
    * each switch that stays and each service endpoint, both ways.

    So a leaf with an owned host or a service endpoint stays, and so does every switch
    with an owned link. Where no service endpoint is known the subnet manager may be on
    any host: then every leaf stands for one. Aggregation nodes are parts of switches
    and keep nothing up. Hosts without an owner on a leaf that goes are cut off.

    A link is listed whether up or failed; absent ones are not. Switches are physical:
    a director that is the spine of several L2 indices goes only if none of them needs it.
    """
    topology = fabric.topology
    owned = fabric.owners_of_links()
    tables = forwarding_tables(
        topology,
        inventory,
        routed_allocations(fabric.everybody()),
        fabric.failed_links,
        plane=fabric.shared_plane,
    )
    needed = _Needed(inventory, tables)
    for link in owned:
        cable = inventory.cable_of_link.get(link)
        if cable is not None:
            needed.switches |= {cable.lower.guid, cable.upper.guid}
    services = inventory.service_endpoints
    doors = {endpoint.at.guid for endpoint in services} or {g for g in inventory.leaf_guids if g}
    targets = [endpoint.guid for endpoint in services] or sorted(doors)
    for allocation in routed_allocations(fabric.everybody()):
        ports = [
            endpoint
            for host in allocation.hosts(topology)
            for rail in range(topology.rails)
            if (endpoint := inventory.endpoint_of_port.get((host, rail))) is not None
        ]
        leaves = {endpoint.at.guid for endpoint in ports}
        for endpoint in ports:
            needed.ways(leaves | doors, endpoint.guid)
    for target in targets:
        needed.ways(doors, target)
    needed.manage(doors, targets)
    tree, absent = topology.tree, topology.absent_links
    numbers = range(tree.leaf_links + tree.spine_links)
    return Idle(
        tuple(
            link
            for link in map(tree.link_at, numbers)
            if link not in absent and link not in owned and link not in needed.links
        ),
        tuple(switch for switch in inventory.switches if switch.guid not in needed.switches),
    )


class _Needed:
    """Links and switches (by GUID) that lie on ways which must stay."""

    def __init__(self, inventory: Inventory, tables: ForwardingTables) -> None:
        self.links: set[Link] = set()
        self.switches: set[int] = set()
        self._tables = tables
        self._ways: dict[tuple[int, int], tuple[int, Link | None]] = {}
        for cable in inventory.cables:
            self._ways[cable.lower] = (cable.upper.guid, cable.link)
            self._ways[cable.upper] = (cable.lower.guid, cable.link)
        self._walked: dict[int, set[int]] = defaultdict(set)

    def ways(self, sources: set[int], target: int) -> None:
        """Keep what packets from these switches to a GUID pass."""
        walked = self._walked[target]
        for at in sources:
            while at not in walked:
                walked.add(at)
                self.switches.add(at)
                port = self._tables.port(at, target)
                way = None if port is None else self._ways.get((at, port))
                if way is None:
                    break  # the target hangs on this switch, is it, or cannot be reached
                at, link = way
                if link is not None:
                    self.links.add(link)

    def manage(self, doors: set[int], targets: list[int]) -> None:
        """Keep the ways between each switch that stays, those on such ways too, and the doors."""
        done: set[int] = set()
        while new := self.switches - done:
            for switch in new:
                self.ways(doors, switch)
            for target in targets:
                self.ways(new, target)
            done |= new
