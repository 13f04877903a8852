# SPDX-License-Identifier: Apache-2.0

"""The links that flows take: over forwarding tables, random up-paths, or all shortest paths.

Links are directed and numbered. Those of hosts come first and are the same under every routing:
2 * (host * rails + rail) is what a port sends, one more what it receives.
"""

from collections import defaultdict, deque
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from laas_research.interference.rates import NO_LINK
from laas_service.domain.inventory import Inventory
from laas_service.domain.routing.fabric_tables import ForwardingTables
from laas_service.domain.topology import Topology

Ints = NDArray[np.int64]

LONGEST = 6
"""Links between switches on a path: 4 up and down a tree of three levels, 2 more past a fault."""


class Routes(Protocol):
    """A routing: the links of paths, and what each link carries."""

    capacity: NDArray[np.float64]
    """By link, in link speeds."""

    def paths(self, rail: int, sources: Ints, targets: Ints) -> Ints:
        """By flow between hosts of these numbers, its links, filled up with ``NO_LINK``."""
        ...


def ports(topology: Topology, rail: int, hosts: Ints) -> Ints:
    """The number of each host's port on a rail."""
    return hosts * topology.rails + rail


def with_host_links(
    topology: Topology, rail: int, sources: Ints, targets: Ints, rest: Ints
) -> Ints:
    """The paths ``rest`` between switches with the links of both hosts before them."""
    up, down = (ports(topology, rail, hosts) for hosts in (sources, targets))
    return np.column_stack([2 * up, 2 * down + 1, rest])


class PrivateRoutes:
    """A switch of its own for every tenant: only the links of hosts are shared."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.capacity = np.ones(2 * topology.hosts * topology.rails)

    def paths(self, rail: int, sources: Ints, targets: Ints) -> Ints:
        return with_host_links(
            self._topology, rail, sources, targets, np.empty((len(sources), 0), dtype=np.int64)
        )


class TableRoutes:
    """The paths of packets over the forwarding tables of all switches."""

    def __init__(self, topology: Topology, inventory: Inventory, tables: ForwardingTables) -> None:
        self._topology, self._inventory = topology, inventory
        first = 2 * topology.hosts * topology.rails
        self.capacity = np.ones(first + 2 * len(inventory.cables))
        number = {guid: i for i, guid in enumerate(tables.rows)}
        self._rows = np.array([np.frombuffer(row, dtype=np.uint8) for row in tables.rows.values()])
        shape = len(number), 256
        self._next, self._link = np.full(shape, -1), np.full(shape, NO_LINK)
        for i, cable in enumerate(inventory.cables):
            for down, (here, there) in enumerate(
                ((cable.lower, cable.upper), (cable.upper, cable.lower))
            ):
                self._next[number[here.guid], here.port] = number[there.guid]
                self._link[number[here.guid], here.port] = first + 2 * i + down
        count = topology.hosts * topology.rails
        self._at, self._column = np.full(count, -1), np.full(count, -1)
        for (host, rail), endpoint in inventory.endpoint_of_port.items():
            port = host * topology.rails + rail
            self._at[port] = number[endpoint.at.guid]
            self._column[port] = tables.index[endpoint.guid]

    def paths(self, rail: int, sources: Ints, targets: Ints) -> Ints:
        switch = self._at[ports(self._topology, rail, sources)].copy()
        to = ports(self._topology, rail, targets)
        last, column = self._at[to], self._column[to]
        taken = np.full((len(sources), LONGEST), NO_LINK)
        for hop in range(LONGEST):
            going = switch != last
            if not going.any():
                break
            port = self._rows[switch, column]
            link, following = self._link[switch, port], self._next[switch, port]
            if (following[going] < 0).any():
                flow = int(np.flatnonzero(going & (following < 0))[0])
                raise ValueError(f"no path from host {sources[flow]} to host {targets[flow]}")
            taken[going, hop] = link[going]
            switch = np.where(going, following, switch)
        if len(far := np.flatnonzero(switch != last)):
            ends = f"from host {sources[far[0]]} to host {targets[far[0]]}"
            raise ValueError(f"the path {ends} has more than {LONGEST} links between switches")
        return with_host_links(self._topology, rail, sources, targets, taken)


class RandomRoutes:
    """A random shortest path for each flow (ECMP), over all cables.

    Each switch chooses among the cables with which a shortest path goes on, all alike.
    """

    def __init__(self, topology: Topology, inventory: Inventory, random: Random) -> None:
        self._topology, self._random = topology, random
        first = 2 * topology.hosts * topology.rails
        self.capacity = np.ones(first + 2 * len(inventory.cables))
        self._cables: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """By switch: the number of each link that leaves it, and the switch behind it."""
        for number, cable in enumerate(inventory.cables):
            up = first + 2 * number
            self._cables[cable.lower.guid].append((up, cable.upper.guid))
            self._cables[cable.upper.guid].append((up + 1, cable.lower.guid))
        self._at = {port: end.at.guid for port, end in inventory.endpoint_of_port.items()}
        self._ways: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """By the last switch, and by switch: the links with which shortest paths go on."""

    def paths(self, rail: int, sources: Ints, targets: Ints) -> Ints:
        rows = [self._path(int(s), int(t), rail) for s, t in zip(sources, targets, strict=True)]
        rest = np.full((len(rows), LONGEST), NO_LINK)
        for number, row in enumerate(rows):
            rest[number, : len(row)] = row
        return with_host_links(self._topology, rail, sources, targets, rest)

    def _path(self, source: int, target: int, rail: int) -> list[int]:
        switch, last = self._at[source, rail], self._at[target, rail]
        if last not in self._ways:
            self._ways[last] = self._ways_to(last)
        taken: list[int] = []
        while switch != last:
            ways = self._ways[last].get(switch, ())
            if not ways or len(taken) == LONGEST:
                reason = f"no path of at most {LONGEST} links between switches"
                raise ValueError(f"{reason} from host {source} to host {target}")
            link, switch = self._random.choice(ways)
            taken.append(link)
        return taken

    def _ways_to(self, last: int) -> dict[int, list[tuple[int, int]]]:
        far = {last: 0}
        queue = deque(far)
        while queue:
            switch = queue.popleft()
            for _, beyond in self._cables[switch]:
                if beyond not in far:
                    far[beyond] = far[switch] + 1
                    queue.append(beyond)
        return {
            switch: [way for way in self._cables[switch] if far[way[1]] < far[switch]]
            for switch in far
        }


class FluidRoutes:
    """Every flow split over all shortest paths: what adaptive routing reaches at best.

    The cables up from a leaf count as one link of the sum of their capacities in either direction,
    and so do the spine cables of a pod. In a whole tree an even split reaches exactly that; with
    missing cables it is a bound.
    """

    def __init__(self, topology: Topology, inventory: Inventory) -> None:
        self._topology, tree = topology, topology.tree
        self._first = 2 * topology.hosts * topology.rails
        self._pods = self._first + 2 * tree.leaves
        leaf_of = {guid: leaf for leaf, guid in enumerate(inventory.leaf_guids)}
        pod_of = {guid: l2 // tree.l2_per_pod for l2, guid in enumerate(inventory.l2_guids)}
        uplinks, spines = np.zeros(tree.leaves), np.zeros(tree.m[2])
        for cable in inventory.cables:
            if (lower := cable.lower.guid) in leaf_of:
                uplinks[leaf_of[lower]] += 1
            elif lower in pod_of:
                spines[pod_of[lower]] += 1
        hosts = np.ones(self._first)
        both = np.repeat(np.maximum(np.concatenate([uplinks, spines]), 1e-9), 2)
        self.capacity = np.concatenate([hosts, both])

    def paths(self, rail: int, sources: Ints, targets: Ints) -> Ints:
        tree = self._topology.tree
        ends = np.array(
            [
                [tree.leaf_id(*self._topology.ports_of(int(host))[rail][:2]) for host in hosts]
                for hosts in (sources, targets)
            ]
        ).reshape(2, len(sources))
        pods = ends // tree.m[1]
        leaf = np.where(ends[0] != ends[1], self._first + 2 * ends + [[0], [1]], NO_LINK)
        pod = np.where(pods[0] != pods[1], self._pods + 2 * pods + [[0], [1]], NO_LINK)
        return with_host_links(self._topology, rail, sources, targets, np.vstack([leaf, pod]).T)
