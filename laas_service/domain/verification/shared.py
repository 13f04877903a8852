# SPDX-License-Identifier: Apache-2.0

"""Common plane: an owned link carries no packets but its owner's; checked by walking the tables.

Switches forward by destination, so the path of a packet depends only on the switch where it
starts and on the port that it goes to. ``Shared`` walks from every switch with adapters to
every adapter's port: idle hosts, storage, gateways, subnet managers, and tenants' ports.

On a path to a port that belongs to no owner, no link may have an owner. On a path to an
owner's port, only the owner's links may be used, and only from leaves where the owner holds
uplinks: the switch cannot distinguish the owner's packets from its neighbours' there. A plane
without L2 indices promises less: an owned spine link carries only packets to its owner's ports.

Paths to a switch's own LID are not walked: a switch outside the plane may have no cable
without an owner.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Endpoint, Inventory
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.domain.verification.nest import Nest
from laas_service.domain.verification.partition import WHOLE_LINKS
from laas_service.domain.verification.wires import Wires
from laas_service.domain.wording import listed

SHOWN = 3
"""Paths that a violation names for a link with packets of others."""


def withheld_violations(
    topology: Topology, allocations: Sequence[Allocation], plane: CommonPlane
) -> list[str]:
    """Violations by allocations that hold a link of the plane."""
    return [
        f"isolation: {allocation.id} holds link {link_name(link)}, which is withheld"
        for allocation in allocations
        for link in allocation.links(topology)
        if plane.withholds(topology.tree, link)
    ]


class Shared:
    """Walks the tables when it is made; ``violations`` has the result, once for each link."""

    def __init__(
        self,
        topology: Topology,
        inventory: Inventory,
        tables: Mapping[int, Mapping[int, int]],
        allocations: Sequence[Allocation],
        plane: CommonPlane,
    ) -> None:
        self.pairs = 0
        """Ordered pairs (adapter, port) that were walked."""
        self.neighbours = 0
        """Ordered pairs of a service and a tenant's port that start on the tenant's own leaf."""
        self._plane = plane
        self._wires = Wires(inventory, tables)
        nest = Nest(allocations)
        owning = [a for a in nest.outermost_first if a.policy in WHOLE_LINKS]
        self._owners = {
            link: a.id for a in owning for link in a.links(topology) if plane.keeps_clear(link)
        }
        carried = ((a, nest.carrier(a)) for a in nest.outermost_first if not a.container)
        self._owner_of_host = {
            host: carrier.id
            for a, carrier in carried
            if carrier is not None
            for host in a.hosts(topology)
        }
        cables = inventory.cable_of_link
        self._leaves = {
            a.id: {cables[link].lower.guid for link in a.leaf_links(topology) if link in cables}
            for a in owning
        }
        self._attached = grouped((e.at.guid, e) for e in inventory.endpoints)
        self._services = {e.guid for e in inventory.service_endpoints}
        self._foreign: dict[tuple[Link, str], list[str]] = defaultdict(list)
        self._lost: list[str] = []
        for target in inventory.endpoints:
            self._walk_to(target)

    @property
    def violations(self) -> list[str]:
        """Paths that do not arrive, and owned links that carry packets of others."""
        crossed = [
            f"sharing: link {link_name(link)} of {owner} carries packets that are not {owner}'s: "
            + listed(paths, SHOWN)
            for (link, owner), paths in self._foreign.items()
        ]
        return self._lost + crossed

    def _walk_to(self, target: Endpoint) -> None:
        """Walk to a port from every switch with adapters, until a switch whose path is known."""
        owner = self._owner_of_host.get(target.host) if target.host is not None else None
        own_leaves = self._leaves[owner] if owner is not None else set()
        clean: set[int] = set()
        for start, attached in self._attached.items():
            senders = [e for e in attached if e.guid != target.guid]
            if start in own_leaves:
                services = sum(e.guid in self._services for e in senders)
                self.neighbours += services if start != target.at.guid else 0
                continue
            self.pairs += len(senders)
            path, problem = self._wires.walk(start, target.guid, clean)
            if problem and target.guid in self._services and senders:
                pair = f"from {senders[0].name} to {target.name} ({target.guid:#018x})"
                self._lost.append(f"sharing: {pair}: {problem}")
            owned = [
                link
                for cable, _ in path
                if (link := cable.link) is not None
                and link in self._owners
                and (self._plane.l2 or self._owners[link] != owner)
            ]
            for link in owned:
                sender = attached[0].name
                self._foreign[link, self._owners[link]].append(f"from {sender} to {target.name}")
            if not problem and not owned:
                clean |= {start, *(far.guid for far in self._wires.passed(path))}
