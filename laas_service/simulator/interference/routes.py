# SPDX-License-Identifier: Apache-2.0

"""The links that flows take: over forwarding tables, random up-paths, or all shortest paths.

Links are directed and numbered. Those of hosts come first and are the same under every routing:
2 * (host * rails + rail) is what a port sends, one more what it receives.
"""

from collections import defaultdict
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.inventory import Inventory
from laas_service.domain.routing.fabric_tables import ForwardingTables
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology
from laas_service.simulator.interference.rates import NO_LINK

Ints = NDArray[np.int64]

LONGEST = 4
"""Links between switches on a path up and down a tree of three levels."""


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
        taken = np.full((len(sources), LONGEST + 2), NO_LINK)
        for hop in range(LONGEST + 2):
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
            raise ValueError(f"the path {ends} has more than {LONGEST + 2} links between switches")
        return with_host_links(self._topology, rail, sources, targets, taken)


class RandomRoutes:
    """A random shortest path for each flow (ECMP), over all links that are not absent."""

    def __init__(self, topology: Topology, random: Random) -> None:
        self._topology, self._random = topology, random
        tree = topology.tree
        self._first = 2 * topology.hosts * topology.rails
        self.capacity = np.ones(self._first + 2 * (tree.leaf_links + tree.spine_links))
        self._up: dict[tuple[int, int], dict[int, list[Link]]] = defaultdict(
            lambda: defaultdict(list)
        )
        """By (level, leaf or L2 switch) and switch above it: the links between the two."""
        for link in tree.links():
            if link in topology.absent_links:
                continue
            if isinstance(link, LeafLink):
                lower, above = (1, tree.leaf_id(link.pod, link.leaf)), link.up // tree.cables[0]
            else:
                lower, above = (2, tree.l2_id(link.pod, link.l2)), link.up // tree.cables[1]
            self._up[lower][above].append(link)

    def paths(self, rail: int, sources: Ints, targets: Ints) -> Ints:
        rest = [self._path(int(s), int(t), rail) for s, t in zip(sources, targets, strict=True)]
        return with_host_links(
            self._topology, rail, sources, targets, np.array(rest).reshape(len(rest), LONGEST)
        )

    def _path(self, source: int, target: int, rail: int) -> list[int]:
        tree, choose = self._topology.tree, self._random.choice
        here, there = (self._topology.ports_of(host)[rail][:2] for host in (source, target))
        if here == there:
            return [NO_LINK] * LONGEST
        first, last = (self._up[1, tree.leaf_id(*leaf)] for leaf in (here, there))
        middle = []
        common = sorted(first.keys() & last.keys())
        if here[0] != there[0]:
            l2s = [(x, self._spines(here[0], x), self._spines(there[0], x)) for x in common]
            ways = [(x, s, up, down) for x, up, down in l2s for s in up.keys() & down.keys()]
            l2, spine, up, down = choose(ways)
            middle = [self._number(choose(up[spine]), 0), self._number(choose(down[spine]), 1)]
        else:
            l2 = choose(common)
        climb, fall = self._number(choose(first[l2]), 0), self._number(choose(last[l2]), 1)
        return [climb, fall, *(middle or [NO_LINK, NO_LINK])]

    def _spines(self, pod: int, l2: int) -> dict[int, list[Link]]:
        return self._up[2, self._topology.tree.l2_id(pod, l2)]

    def _number(self, link: Link, down: int) -> int:
        return self._first + 2 * self._topology.tree.link_id(link) + down


class FluidRoutes:
    """Every flow split evenly over all shortest paths: what adaptive routing reaches at best.

    The links of a leaf carry equal parts, and so do the spine links of a pod. So each is one link
    of the sum of their capacities in either direction.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology, tree = topology, topology.tree
        self._first = 2 * topology.hosts * topology.rails
        self._pods = self._first + 2 * tree.leaves
        uplinks, spines = np.zeros(tree.leaves), np.zeros(tree.m[2])
        for link in tree.links():
            if link in topology.absent_links:
                continue
            if isinstance(link, SpineLink):
                spines[link.pod] += 1
            else:
                uplinks[tree.leaf_id(link.pod, link.leaf)] += 1
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
