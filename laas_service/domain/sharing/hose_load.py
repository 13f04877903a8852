# SPDX-License-Identifier: Apache-2.0

"""The worst load that a cluster can put on each directed link of routed hosts.

A cluster has ``counts`` units (virtual machines) on its machines. Each unit sends at most its
bandwidth, and receives at most its bandwidth (the hose model). The pairs (sender, receiver) that
the tables route over a link are known, so the most that the cluster can put there is a maximum
flow from the senders to the receivers over these pairs. In units of one unit's bandwidth it is
a whole number, the *load*.

* The lesser of the senders' and the receivers' units is a bound. It is the load itself if every
  such sender is routed over the link to every such receiver, as on every link of a leaf, and on
  all links under plain D-mod-k.
* The load never falls when units are added anywhere, so whatever fits still fits with fewer
  units (``placement`` relies on it).

A load is also a *cover*: by the theorem of Koenig, as many units have all pairs of the link among
them, as sender or receiver. Every unit is on one side of a link only, so the units of a cover
are different ones. ``link_promises`` needs this for stochastic demands.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.sharing.cluster import Whole
from laas_service.domain.sharing.routes import NO_LINK, Routes


class Crossing(NamedTuple):
    """The links that a cluster can use, those of its hosts apart."""

    links: Whole
    """Numbers, ascending; ``NO_ROUTE`` if a pair has no route."""
    bound: Whole
    """By link: the lesser of the senders' and the receivers' units, at least the load."""
    exact: NDArray[np.bool_]
    """By link: whether the bound is the load."""
    leaves: Whole
    """Units below each leaf of the cluster."""
    units: Whole
    """Units on each machine of the cluster."""
    pairs: tuple[Whole, Whole, Whole]
    """(positions in ``links``, in ``leaves``, in ``units``) of all routed pairs."""

    def load(self, position: int) -> int:
        """The load of the link at a position of ``links``."""
        if self.exact[position]:
            return int(self.bound[position])
        return maximum_flow(self.leaves.tolist(), self.units.tolist(), self._joined(position))

    def cover(self, position: int, leaves: Whole, machines: Whole) -> tuple[list[int], list[int]]:
        """Leaves and machines, by position, whose demands add up to the worst load of a link.

        ``leaves`` and ``machines`` are the demands of all.
        """
        cover = least_cover(leaves.tolist(), machines.tolist(), self._joined(position))
        return sorted(cover[0]), sorted(cover[1])

    def _joined(self, position: int) -> dict[int, list[int]]:
        """Leaf -> the machines that its units reach over a link, by position."""
        link, leaf, machine = self.pairs
        here = link == position
        joined: dict[int, list[int]] = {}
        for a, b in zip(leaf[here].tolist(), machine[here].tolist(), strict=True):
            joined.setdefault(a, []).append(b)
        return joined

    def loads(self) -> Whole:
        """By link: the load."""
        loads = self.bound.copy()
        for position in np.nonzero(~self.exact)[0].tolist():
            loads[position] = self.load(position)
        return loads


def crossing(routes: Routes, counts: Mapping[int, int]) -> Crossing:
    """The links that a cluster with ``counts[machine]`` units can use; every count is above 0."""
    machines = np.array(sorted(counts), dtype=np.int64)
    units = np.array([counts[machine] for machine in machines.tolist()], dtype=np.int64)
    leaf_ids, of_machine = np.unique(routes.leaf_of[machines], return_inverse=True)
    leaves = np.bincount(of_machine, units, len(leaf_ids)).astype(np.int64)
    steps = routes.walk(leaf_ids, machines)
    leaf, machine, step = np.nonzero(steps > NO_LINK)
    links, link = np.unique(steps[leaf, machine, step], return_inverse=True)
    sends = np.zeros((len(links), len(leaves)), dtype=bool)
    receives = np.zeros((len(links), len(units)), dtype=bool)
    sends[link, leaf] = receives[link, machine] = True
    bound = np.minimum(sends @ leaves, receives @ units)
    pairs = np.bincount(link, minlength=len(links))
    exact = pairs == sends.sum(axis=1) * receives.sum(axis=1)
    return Crossing(links.astype(np.int64), bound, exact, leaves, units, (link, leaf, machine))


def cost_of_crossing(routes: Routes, machines: Collection[int]) -> int:
    """Units of work (``domain.budget``) of ``crossing``."""
    leaves = len({int(routes.leaf_of[machine]) for machine in machines})
    return 150 + leaves * len(machines)


def cost_of_load(cross: Crossing) -> int:
    """Units of work of one ``Crossing.load`` or ``cover``, at the most."""
    pairs = len(cross.leaves) * len(cross.units)
    return 100 + 2 * pairs


def worst_loads(routes: Routes, counts: Mapping[int, int]) -> dict[int, int]:
    """Directed link -> load of a cluster, for each link that it can use."""
    cross = crossing(routes, counts)
    loads = dict(zip(cross.links.tolist(), cross.loads().tolist(), strict=True))
    size = sum(counts.values())
    for machine, units in counts.items():
        if 0 < units < size:
            loads[routes.of_hosts + machine] = min(units, size - units)
            loads[routes.of_hosts + routes.tree.machines + machine] = min(units, size - units)
    return loads


def maximum_flow(
    supply: Sequence[int], demand: Sequence[int], joined: Mapping[int, Sequence[int]]
) -> int:
    """The maximum flow from suppliers to the demands that each is joined to."""
    senders, receivers = least_cover(supply, demand, joined)
    return sum(supply[a] for a in senders) + sum(demand[b] for b in receivers)


def least_cover(
    supply: Sequence[int], demand: Sequence[int], joined: Mapping[int, Sequence[int]]
) -> tuple[set[int], set[int]]:
    """Suppliers and demands of which each joined pair has one, with the least sum of all.

    That sum is the maximum flow. Augmenting paths; each saturates a supply or a demand, or empties
    an earlier flow. In the end, the cover is what keeps flow from growing.
    """
    left, room = list(supply), list(demand)
    flow: dict[tuple[int, int], int] = {}
    for start in joined:
        while left[start]:
            path = _augmenting(start, room, joined, flow)
            if not path:
                break
            amount = min(left[start], room[path[-1]])
            for before, back in zip(path[1:-1:2], path[2::2], strict=True):
                amount = min(amount, flow[back, before])
            for place, (a, b) in enumerate(pairwise(path)):
                pair, sign = ((a, b), 1) if place % 2 == 0 else ((b, a), -1)
                flow[pair] = flow.get(pair, 0) + sign * amount
            left[start] -= amount
            room[path[-1]] -= amount
    waiting = [a for a in joined if left[a]]
    reached: set[int] = set()
    for a in waiting:
        for b in joined[a]:
            if b not in reached:
                reached.add(b)
                waiting += [x for x in joined if x not in waiting and flow.get((x, b), 0)]
    return joined.keys() - set(waiting), reached


def _augmenting(
    start: int,
    room: Sequence[int],
    joined: Mapping[int, Sequence[int]],
    flow: Mapping[tuple[int, int], int],
) -> list[int]:
    """supplier, demand, supplier, ..., demand with room; empty if there is none."""
    before: dict[int, tuple[int, int]] = {}
    """Supplier -> the supplier and the demand that it was reached from."""
    waiting, seen = [start], {start}
    tried: set[int] = set()
    for a in waiting:
        for b in joined[a]:
            if b in tried:
                continue
            tried.add(b)
            if room[b]:
                path = [b, a]
                while a != start:
                    a, b = before[a]
                    path += [b, a]
                return path[::-1]
            for other in joined:
                if other not in seen and flow.get((other, b), 0):
                    seen.add(other)
                    before[other] = (a, b)
                    waiting.append(other)
    return []
