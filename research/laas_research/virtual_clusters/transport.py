# SPDX-License-Identifier: Apache-2.0

"""Kraken with migration costs that depend on the path (section IV-F): least cost by flows.

If all migrations cost the same, units can be taken one by one (``kraken``). If not, it also matters
which former place a unit of the new embedding is paired with. For a given centre this is a flow of
least cost: from the former places, and from a pool of new units, over the links to the machines,
and from there to the centre. Each link on the way to the centre takes as many units as it has
bandwidth for. So the cheapest flow of all centres is the cheapest embedding of all, but it takes a
flow for each centre: seconds where there are hundreds of machines.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_research.virtual_clusters.site import Site
from laas_service.domain.grouping import grouped
from laas_service.domain.sharing.cluster import Cluster
from laas_service.domain.sharing.migration import MachineMove, UnitMigration
from laas_service.domain.tenancy.slots import GRAIN


class PathCosts(NamedTuple):
    """Costs of an embedding, in any unit; none is below 0.

    They are whole numbers: sums of floats differ by the order, and a cycle in a flow that costs
    nothing would seem to gain.
    """

    crossing: Sequence[NDArray[np.int64]]
    """By level and vertex: of a unit that migrates over the link above the vertex, up or down."""
    link: int
    """For each link that the bandwidth of a unit crosses."""


PathModel = Callable[[Site, Cluster], PathCosts]
"""(site, the changed cluster) -> costs."""


def nearest_migrations(site: Site, cluster: Cluster) -> PathCosts:
    """Moves within a rack cost 1, within a pod 2, ...; then the footprint."""
    tree, move = site.tree, 2 * site.tree.top * len(cluster.demands) + 1
    return PathCosts([np.full(tree.vertices(level), move) for level in range(tree.top)], 2)


def fastest_migrations(site: Site, cluster: Cluster) -> PathCosts:
    """A move costs the time on each link of its path; then the footprint.

    The time to move a unit over a link is 1 over the bandwidth that no cluster, this one included,
    has reserved there now; at least a millionth of the link's bandwidth counts as free. Times
    that differ by less than a millionth of the time over a free link count as equal.
    """
    tree, spare = site.tree, site.links.spare({})
    unit = 10**6 * (2 * tree.top * len(cluster.demands) + 1)
    times = []
    for level in range(tree.top):
        whole = tree.capacity[level]
        free = np.maximum(spare[level] / GRAIN, whole * 1e-6)
        times.append(np.rint(whole / free * unit).astype(np.int64))
    return PathCosts(times, 1)


class _Edge(NamedTuple):
    """An edge of the network; its reverse has the number that differs in the last bit."""

    to: int
    cost: int


class Network:
    """A directed network, and the cheapest flow through it."""

    def __init__(self, nodes: int) -> None:
        self.edges: list[_Edge] = []
        self.room: list[int] = []
        """By number of an edge: the flow that it still takes."""
        self._out: list[list[int]] = [[] for _ in range(nodes)]

    def join(self, a: int, b: int, room: int, cost: int = 0) -> int:
        """Add an edge; return its number."""
        number = len(self.edges)
        self.edges += [_Edge(b, cost), _Edge(a, -cost)]
        self.room += [room, 0]
        self._out[a].append(number)
        self._out[b].append(number + 1)
        return number

    def cheapest(self, source: int, target: int, amount: int) -> float:
        """The cost of the cheapest flow of an amount; infinite if there is none.

        Shortest augmenting paths, found by labels that are corrected (Bellman, Ford, Moore).
        """
        total = 0
        while amount:
            distance = [math.inf] * len(self._out)
            distance[source] = 0
            by: list[int] = [-1] * len(self._out)
            waiting, queued = deque([source]), {source}
            while waiting:
                node = waiting.popleft()
                queued.discard(node)
                for number in self._out[node]:
                    to, cost = self.edges[number]
                    if self.room[number] and distance[node] + cost < distance[to]:
                        distance[to], by[to] = distance[node] + cost, number
                        if to not in queued:
                            queued.add(to)
                            waiting.append(to)
            if by[target] < 0:
                return math.inf
            path, node = [], target
            while node != source:
                path.append(by[node])
                node = self.edges[by[node] ^ 1].to
            part = min(amount, *(self.room[number] for number in path))
            for number in path:
                self.room[number] -= part
                self.room[number ^ 1] += part
            amount -= part
            total += part * int(distance[target])
        return total

    def paths(self, source: int, target: int) -> Iterator[tuple[list[int], int]]:
        """The nodes of each path that the flow takes, and how much; takes it away."""
        while True:
            nodes, path = [source], list[int]()
            while nodes[-1] != target:
                numbers = self._out[nodes[-1]]
                used = [n for n in numbers if n % 2 == 0 and self.room[n + 1]]
                if not used:
                    return
                path.append(used[0])
                nodes.append(self.edges[used[0]].to)
            part = min(self.room[number + 1] for number in path)
            for number in path:
                self.room[number + 1] -= part
            yield nodes, part


Pairs = Counter[tuple[int | None, int]]
"""(former machine or None, machine) -> units."""


class _Search:
    """The cheapest flow of each centre; the cluster's own slots and links count as free."""

    def __init__(self, site: Site, cluster: Cluster, costs: PathCosts) -> None:
        self.tree, self.size, self.costs = site.tree, len(cluster.demands), costs
        self.slots, self.limits = site.offered(cluster)
        _, embedding, _ = site.clusters.get(cluster.id, (cluster, {}, {}))
        self.here = {machine: len(units) for machine, units in embedding.items() if units}
        levels = range(self.tree.top + 1)
        self.first = np.cumsum([0, *(self.tree.vertices(x) for x in levels)]).tolist()

    def best(self) -> Pairs | None:
        """Where units come from and go to, at the least cost; None if the cluster does not fit."""
        least, best = math.inf, None
        for level in range(self.tree.top + 1):
            below = self.slots.reshape(self.tree.vertices(level), -1).sum(axis=1)
            for vertex in np.nonzero(2 * below >= self.size)[0].tolist():
                network = self.network(level, vertex)
                cost = network.cheapest(SOURCE, TARGET, self.size)
                if cost < least:
                    least, best = cost, self._pairs(network)
        return best

    def network(self, level: int, vertex: int) -> Network:
        """Former places and the pool, the tree's links, the machines' slots, and the way to the
        centre."""
        tree, vertices = self.tree, self.first[-1]
        on_way, slot = self._node(vertices), self._node(2 * vertices)
        network, old = Network(slot + tree.machines), sum(self.here.values())
        network.join(SOURCE, POOL, max(0, self.size - old))
        for machine, units in self.here.items():
            network.join(SOURCE, self._node(machine), units)
        for machine, free in enumerate(self.slots.tolist()):
            if free:
                for come_from in (POOL, self._node(machine)):
                    network.join(come_from, slot + machine, self.size)
                network.join(slot + machine, on_way + machine, free)
        for at in range(tree.top):
            for v in range(tree.vertices(at)):
                node, parent = self.first[at] + v, self.first[at + 1] + v // tree.children[at]
                move = int(self.costs.crossing[at][v])
                network.join(self._node(node), self._node(parent), self.size, move)
                network.join(self._node(parent), self._node(node), self.size, move)
                inside = at >= level and vertex // (tree.below[at] // tree.below[level]) == v
                ends = (parent, node) if inside else (node, parent)
                limit = min(int(self.limits[at][v]), self.size)
                network.join(on_way + ends[0], on_way + ends[1], limit, self.costs.link)
        network.join(on_way + self.first[level] + vertex, TARGET, self.size)
        return network

    @staticmethod
    def _node(number: int) -> int:
        return len((SOURCE, POOL, TARGET)) + number

    def _pairs(self, network: Network) -> Pairs:
        slot = self._node(2 * self.first[-1])
        pairs = Pairs()
        for nodes, units in network.paths(SOURCE, TARGET):
            [machine] = [node - slot for node in nodes if node >= slot]
            pairs[None if nodes[1] == POOL else nodes[1] - self._node(0), machine] += units
        return pairs


SOURCE, POOL, TARGET = range(3)


def change(
    site: Site, cluster: Cluster, costs: PathModel = nearest_migrations
) -> UnitMigration | None:
    """From what the site holds by this id to ``cluster``, of any size and bandwidth; or a new one.

    None if that does not fit.

    Raises:
        InvalidInput: the demands differ or have a variance, or there are none.
    """
    pairs = _Search(site, cluster, costs(site, cluster)).best()
    return None if pairs is None else _planned(site, cluster, pairs)


def _planned(site: Site, cluster: Cluster, pairs: Pairs) -> UnitMigration:
    """The plan that moves as many units between machines as ``pairs`` say."""
    _, held, _ = site.clusters.get(cluster.id, (cluster, {}, {}))
    at: dict[int, int] = {}
    moves, removed = list[MachineMove](), list[tuple[int, int]]()
    for machine, units in sorted(held.items()):
        left = list(units)
        targets = sorted((t, n) for (source, t), n in pairs.items() if source == machine)
        targets.sort(key=lambda pair: pair[0] != machine)
        for target, count in targets:
            going, left = left[:count], left[count:]
            at.update(dict.fromkeys(going, target))
            moves += [MachineMove(unit, machine, target) for unit in going if target != machine]
        removed += [(unit, machine) for unit in left]
    stay = [at[unit] for unit in sorted(at)]
    new = [
        t for (source, t), n in sorted(pairs.items(), key=str) if source is None for _ in range(n)
    ]
    on = grouped((machine, unit) for unit, machine in enumerate(stay + new))
    embedding = {machine: tuple(units) for machine, units in sorted(on.items())}
    return UnitMigration(
        cluster, embedding, tuple(moves), tuple(enumerate(new, len(stay))), tuple(removed)
    )
