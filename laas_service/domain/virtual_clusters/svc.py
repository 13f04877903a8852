# SPDX-License-Identifier: Apache-2.0

"""Stochastic virtual clusters: where machines go so that every link keeps its promises.

Yu and Shen, "Bandwidth Guarantee under Demand Uncertainty in Multi-tenant Clouds",
sections IV and V. All allocators here look for the lowest subtree with room, the first of
a level, and answer with an embedding or None; none of them changes the site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from laas_service.domain.virtual_clusters.links import Numbers
from laas_service.domain.virtual_clusters.site import Cluster, Embedding, Site, crossing

Allocator = Callable[[Site, Cluster], Embedding | None]


def svc(site: Site, cluster: Cluster) -> Embedding | None:
    """Algorithm 1: in the lowest subtree, the embedding whose worst link is least occupied.

    For machines with the same demand; with variance 0 it serves Oktopus' deterministic
    virtual clusters. Read with these corrections: line 15 runs over ``S_v[i-1]``, and
    lines 20 and 22 must not overwrite a better value of Opt.
    """
    return _Search(site, cluster, least_occupied=True).answer()


def tivc(site: Site, cluster: Cluster) -> Embedding | None:
    """The adapted TIVC search (section VI-B3): the same, but any embedding will do."""
    return _Search(site, cluster, least_occupied=False).answer()


class _Search:
    """Tables for one request, a level at a time.

    ``entering[level][v, x]`` is Opt for x machines of the cluster below vertex v, the
    link above v included: the worst occupancy, or infinity where that is not allowed.
    """

    def __init__(self, site: Site, cluster: Cluster, *, least_occupied: bool) -> None:
        self.site = site
        self.cluster = cluster
        self.size = len(cluster.demands)
        self.least_occupied = least_occupied
        self.entering: list[Numbers] = []

    def answer(self) -> Embedding | None:
        if not 0 < self.size <= self.site.free.sum():
            return None
        tree = self.site.tree
        slots = np.arange(min(tree.slots, self.size) + 1)
        within = np.where(slots <= self.site.free[:, None], 0.0, np.inf)
        for level in range(tree.top + 1):
            if level:
                within = self._joined(self.entering[-1], tree.children[level - 1])
            if within.shape[1] > self.size:
                (fitting,) = np.nonzero(np.isfinite(within[:, self.size]))
                if len(fitting):
                    return self._embedding(level, int(fitting[0]))
            if level < tree.top:
                self.entering.append(self._under_link(level, within))
        return None

    def _under_link(self, level: int, within: Numbers) -> Numbers:
        """Opt with the link above each vertex."""
        asked = crossing(self.cluster.demands, range(within.shape[1]))
        occupancy = self.site.links.allowed(level, asked)
        if self.least_occupied:
            return np.maximum(within, occupancy)
        return np.where(np.isfinite(within) & np.isfinite(occupancy), 0.0, np.inf)

    def _joined(self, entering: Numbers, children: int) -> Numbers:
        """Opt of the parents, from all their children: formulas (11) and (12)."""
        parts = entering.reshape(-1, children, entering.shape[1])
        *_, last = self._prefixes(parts)
        return last

    def _prefixes(self, parts: Numbers) -> Iterator[Numbers]:
        """Opt over the first i children, i = 0, 1, ...; ``parts`` is (parents, children, x)."""
        parents, children, width = parts.shape
        before = np.zeros((parents, 1))
        yield before
        for child in range(children):
            reach = min(self.size + 1, before.shape[1] + width - 1)
            after = np.full((parents, reach), np.inf)
            for x in range(min(width, reach)):
                some = before[:, : reach - x]
                target = after[:, x : x + some.shape[1]]
                np.minimum(target, np.maximum(some, parts[:, child, x, None]), out=target)
            yield after
            before = after

    def _embedding(self, level: int, vertex: int) -> Embedding:
        """Follow the choices down: machine -> the numbers of the machines on it."""
        counts: dict[int, int] = {}
        todo = [(level, vertex, self.size)]
        while todo:
            level, vertex, amount = todo.pop()
            if level == 0:
                counts[vertex] = amount
                continue
            first = vertex * self.site.tree.children[level - 1]
            chosen = self._shares(level, vertex, amount)
            todo += [(level - 1, first + i, x) for i, x in enumerate(chosen) if x]
        numbers = iter(range(self.size))
        return {m: tuple(next(numbers) for _ in range(counts[m])) for m in sorted(counts)}

    def _shares(self, level: int, vertex: int, amount: int) -> list[int]:
        """How many of ``amount`` machines each child takes."""
        children = self.site.tree.children[level - 1]
        parts = self.entering[level - 1].reshape(-1, children, self.entering[level - 1].shape[1])
        mine = parts[vertex : vertex + 1]
        prefixes = [table[0] for table in self._prefixes(mine)]
        shares = [0] * children
        for child in range(children - 1, -1, -1):
            before, own = prefixes[child], mine[0, child]
            low, high = max(0, amount - len(before) + 1), min(len(own) - 1, amount)
            x = np.arange(low, high + 1)
            shares[child] = low + int(np.argmin(np.maximum(before[amount - x], own[x])))
            amount -= shares[child]
        return shares
