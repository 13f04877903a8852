# SPDX-License-Identifier: Apache-2.0

"""The promise of a shared plane: nothing but its owner's packets is on an owned link.

Switches forward by destination, so a packet's way is told by the switch where it starts
and the port it goes to. Walked are the ways from every switch that adapters hang on to
every adapter's port: idle hosts, storage and gateways, subnet managers, and what tenants
send to those. On a way to somebody else's port no link may have an owner. On a way to an
owner's port only its own links may be used, and only by what starts on a leaf where it
holds uplinks: there the switch cannot tell its packets from its neighbours'. A plane without
L2 indices promises less: on an owned spine link is nothing but what goes to its owner's ports.

Not walked are ways to a switch's own LID: outside the plane every cable of it may be owned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import Endpoint, Inventory
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import LeafLink, Link, Topology, link_name
from laas_service.domain.verification.nest import Nest
from laas_service.domain.verification.partition import WHOLE_LINKS
from laas_service.domain.verification.wires import Wires

SHOWN = 3
"""Ways named for each link on which foreign packets are."""


def withheld_violations(
    topology: Topology, allocations: Sequence[Allocation], plane: SharedPlane
) -> list[str]:
    """Allocations that have a link of the plane."""
    return [
        f"isolation: {allocation.id} holds link {link_name(link)}, which is withheld"
        for allocation in allocations
        for link in allocation.links(topology)
        if plane.holds(topology.tree, link)
    ]


class Shared:
    """The walks; ``violations`` names each link once, with the first ways that use it."""

    def __init__(
        self,
        topology: Topology,
        inventory: Inventory,
        tables: Mapping[int, Mapping[int, int]],
        allocations: Sequence[Allocation],
        plane: SharedPlane,
    ) -> None:
        self.pairs = 0
        self.neighbours = 0
        """Ordered pairs of a service and a tenant's port that start on the tenant's own leaf."""
        self._plane = plane
        self._wires = Wires(inventory, tables)
        nest = Nest(allocations)
        owning = [a for a in nest.outermost_first if a.policy in WHOLE_LINKS]
        self._owners = {
            link: a.id for a in owning for link in a.links(topology) if plane.clears(link)
        }
        carried = ((a, nest.carrier(a)) for a in nest.outermost_first if not a.container)
        self._owner_of_host = {
            host: carrier.id
            for a, carrier in carried
            if carrier is not None
            for host in a.hosts(topology)
        }
        self._leaves: dict[str, set[int]] = defaultdict(set)
        for allocation in owning:
            for link in allocation.links(topology):
                cable = inventory.cable_of_link.get(link)
                if isinstance(link, LeafLink) and cable is not None:
                    self._leaves[allocation.id].add(cable.lower.guid)
        self._hung: dict[int, list[Endpoint]] = defaultdict(list)
        for endpoint in inventory.endpoints:
            self._hung[endpoint.at.guid].append(endpoint)
        self._services = {e.guid for e in inventory.service_endpoints}
        self._found: dict[tuple[Link, str], list[str]] = defaultdict(list)
        self._lost: list[str] = []
        for target in inventory.endpoints:
            self._walk_to(target)

    @property
    def violations(self) -> list[str]:
        crossed = [
            f"sharing: link {link_name(link)} of {owner} carries what is not {owner}'s: "
            + ", ".join(ways[:SHOWN])
            + (f" and {len(ways) - SHOWN} more" if len(ways) > SHOWN else "")
            for (link, owner), ways in self._found.items()
        ]
        return self._lost + crossed

    def _walk_to(self, target: Endpoint) -> None:
        """From every switch with adapters to one port; a way is walked as far as it is new."""
        owner = self._owner_of_host.get(target.host) if target.host is not None else None
        own_leaves = self._leaves[owner] if owner is not None else set()
        clean: set[int] = set()
        for start, hung in self._hung.items():
            others = [e for e in hung if e.guid != target.guid]
            if start in own_leaves:
                services = sum(e.guid in self._services for e in others)
                self.neighbours += services if start != target.at.guid else 0
                continue
            self.pairs += len(others)
            path, wrong = self._wires.walk(start, target.guid, clean)
            if wrong and target.guid in self._services and others:
                way = f"from {others[0].name} to {target.name} ({target.guid:#018x})"
                self._lost.append(f"sharing: {way}: {wrong}")
            foreign = [
                cable.link
                for cable, _ in path
                if cable.link in self._owners
                and (self._plane.l2 or self._owners[cable.link] != owner)
            ]
            for link in foreign:
                if link is not None:
                    self._found[link, self._owners[link]].append(
                        f"from {hung[0].name} to {target.name}"
                    )
            if not wrong and not foreign:
                clean |= {start, *(far.guid for far in self._wires.passed(path))}
