# SPDX-License-Identifier: Apache-2.0

"""Walks forwarding tables, computed or read back, and asserts isolation and reachability."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise, permutations

import networkx as nx

from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import Cable, Inventory, PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fabric_tables import ForwardingTables
from laas_service.domain.topology import Link, Topology

LONGEST = 20

Hop = tuple[Cable, bool]
"""A cable, and whether the packet goes down on it."""


class Walks:
    """``port(switch, destination)`` is the out port by GUIDs; None if there is no entry."""

    def __init__(self, inventory: Inventory, port: Callable[[int, int], int | None]) -> None:
        self.inventory = inventory
        self.port = port
        self.ends = {
            here: (cable, there)
            for cable in inventory.cables
            for here, there in ((cable.lower, cable.upper), (cable.upper, cable.lower))
        }
        self.hung = {endpoint.at: endpoint.guid for endpoint in inventory.endpoints}

    @classmethod
    def over(cls, inventory: Inventory, tables: ForwardingTables) -> Walks:
        return cls(inventory, tables.port)

    @classmethod
    def over_rows(cls, inventory: Inventory, rows: Mapping[int, bytes]) -> Walks:
        """Walk rows of out ports by LID, as read back from switches."""

        def port(switch: int, destination: int) -> int | None:
            row, lid = rows[switch], inventory.lids[destination]
            return row[lid] if lid < len(row) and row[lid] != NO_ROUTE else None

        return cls(inventory, port)

    def path(self, switch: int, destination: int) -> list[Hop]:
        hops: list[Hop] = []
        while len(hops) < LONGEST:
            port = self.port(switch, destination)
            assert port is not None, f"dead end at {switch:#x} towards {destination:#x}"
            here = PortRef(switch, port)
            if port == 0 or here in self.hung:
                assert destination == (switch if port == 0 else self.hung[here])
                return hops
            cable, there = self.ends[here]
            hops.append((cable, cable.upper == here))
            switch = there.guid
        raise AssertionError(f"a loop towards {destination:#x}")

    def assert_isolated(self, topology: Topology, tenant: Allocation) -> int:
        """Assert that packets between any two ports of the tenant use only its links.

        Includes pairs of ports on different rails. Returns the number of pairs walked.
        """
        own = set(tenant.links(topology))
        ports = [
            self.inventory.endpoint_of_port[host, rail]
            for host in tenant.hosts(topology)
            for rail in range(topology.rails)
        ]
        for source, target in permutations(ports, 2):
            path = self.path(source.at.guid, target.guid)
            foreign = {cable.link for cable, _ in path} - own
            assert not foreign, f"{tenant.id}: {source.name} to {target.name} over {foreign}"
            downs = [down for _, down in path]
            assert downs == sorted(downs), "a path went up after it had gone down"
        return len(ports) * (len(ports) - 1)

    def assert_reaches(self, switches: Iterable[int]) -> None:
        """Assert that these switches reach all ports and switches without a credit loop."""
        inventory = self.inventory
        everything = [*(e.guid for e in inventory.endpoints), *(s.guid for s in inventory.switches)]
        needs: nx.DiGraph[tuple[PortRef, bool]] = nx.DiGraph()
        for switch in switches:
            for destination in everything:
                hops = self.path(switch, destination)
                needs.add_edges_from(pairwise((cable.lower, down) for cable, down in hops))
        assert nx.is_directed_acyclic_graph(needs), "a credit loop"


class Mixed:
    """All paths of a tenant's packets while the switches change from one table to another.

    Each switch may use its entry of any of the tables, independently of the others.
    ``foreign`` are links of others that a packet may use. ``lost`` are pairs of a leaf and
    a destination GUID: a packet from that leaf may end without an entry, on a failed link
    or in a loop.
    """

    def __init__(
        self,
        topology: Topology,
        walks: Sequence[Walks],
        tenant: Allocation,
        failed: Collection[Link] = (),
    ) -> None:
        self._walks, inventory = walks, walks[0].inventory
        self._own, self._failed = set(tenant.links(topology)), set(failed)
        self.foreign: set[Link | None] = set()
        self.lost: set[tuple[int, int]] = set()
        for rail in range(topology.rails):
            hosts = tenant.hosts(topology)
            ports = [inventory.endpoint_of_port[host, rail] for host in hosts]
            for leaf in {port.at.guid for port in ports}:
                for target in ports:
                    if not self._arrives(leaf, target.guid, ()):
                        self.lost.add((leaf, target.guid))

    def _arrives(self, switch: int, target: int, before: tuple[int, ...]) -> bool:
        """Whether a packet arrives from this switch on every path that the tables allow."""
        if switch in before:
            return False
        arrived = [self._steps(walks, switch, target, (*before, switch)) for walks in self._walks]
        return all(arrived)

    def _steps(self, walks: Walks, switch: int, target: int, before: tuple[int, ...]) -> bool:
        port = walks.port(switch, target)
        if port is None:
            return False
        here = PortRef(switch, port)
        if port == 0 or here in walks.hung:
            return walks.hung.get(here) == target
        cable, there = walks.ends[here]
        if cable.link in self._failed:
            return False
        if cable.link not in self._own:
            self.foreign.add(cable.link)
            return False
        return self._arrives(there.guid, target, before)
