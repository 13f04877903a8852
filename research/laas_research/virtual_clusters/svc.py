# SPDX-License-Identifier: Apache-2.0

"""SVC: allocation of stochastic virtual clusters whose machines have the same demand.

Source: Yu and Shen, "Bandwidth Guarantee under Demand Uncertainty in Multi-tenant Clouds",
sections IV and V. The allocators take the first of the lowest subtrees that hold the cluster,
and return an embedding, or None if the cluster does not fit. They do not change the site.
"""

from collections.abc import Iterator

import numpy as np

from laas_research.virtual_clusters.site import Site, crossing
from laas_service.domain.sharing.cluster import Cluster, Embedding, Numbers


def svc(site: Site, cluster: Cluster) -> Embedding | None:
    """Algorithm 1: in the lowest subtree, the embedding with the least occupied worst link.

    All machines have the same demand; with variance 0 this allocates Oktopus' deterministic
    virtual clusters. Two corrections to the printed algorithm: line 15 runs over
    ``S_v[i-1]``, and lines 20 and 22 must not overwrite a better value of Opt.
    """
    return _Search(site, cluster, least_occupied=True).answer()


def tivc(site: Site, cluster: Cluster) -> Embedding | None:
    """The adapted TIVC search (section VI-B3): any embedding in the lowest subtree."""
    return _Search(site, cluster, least_occupied=False).answer()


class _Search:
    """The search for one request, level by level from the machines up.

    Opt is the least possible occupancy of the most occupied link, or infinity if an embedding
    is not allowed.
    """

    def __init__(self, site: Site, cluster: Cluster, *, least_occupied: bool) -> None:
        self.site = site
        self.cluster = cluster
        self.size = len(cluster.demands)
        self.least_occupied = least_occupied
        self.entering: list[Numbers] = []
        """``entering[level][v, x]``: Opt for x machines below vertex v, with the link above v."""

    def answer(self) -> Embedding | None:
        """The embedding; None if the cluster does not fit."""
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
        """Opt with the link above each vertex, from Opt ``within`` the vertices."""
        demands = crossing(self.cluster.demands, range(within.shape[1]))
        occupancy = self.site.links.allowed(level, demands)
        if self.least_occupied:
            return np.maximum(within, occupancy)
        return np.where(np.isfinite(within) & np.isfinite(occupancy), 0.0, np.inf)

    def _joined(self, entering: Numbers, children: int) -> Numbers:
        """Opt of the parents from that of all their children: formulas (11) and (12)."""
        parts = entering.reshape(-1, children, entering.shape[1])
        *_, last = self._prefixes(parts)
        return last

    def _prefixes(self, parts: Numbers) -> Iterator[Numbers]:
        """Opt over the first i children for i = 0, 1, ...; ``parts``: (parents, children, x)."""
        parents, children, width = parts.shape
        table = np.zeros((parents, 1))
        yield table
        for child in range(children):
            reach = min(self.size + 1, table.shape[1] + width - 1)
            next_table = np.full((parents, reach), np.inf)
            for x in range(min(width, reach)):
                previous = table[:, : reach - x]
                target = next_table[:, x : x + previous.shape[1]]
                np.minimum(target, np.maximum(previous, parts[:, child, x, None]), out=target)
            yield next_table
            table = next_table

    def _embedding(self, level: int, vertex: int) -> Embedding:
        """The embedding that the tables lead to, from a vertex down."""
        counts: dict[int, int] = {}
        pending = [(level, vertex, self.size)]
        while pending:
            level, vertex, amount = pending.pop()
            if level == 0:
                counts[vertex] = amount
                continue
            first = vertex * self.site.tree.children[level - 1]
            chosen = self._shares(level, vertex, amount)
            pending += [(level - 1, first + i, x) for i, x in enumerate(chosen) if x]
        numbers = iter(range(self.size))
        return {m: tuple(next(numbers) for _ in range(counts[m])) for m in sorted(counts)}

    def _shares(self, level: int, vertex: int, amount: int) -> list[int]:
        """How many of ``amount`` machines each child takes."""
        children = self.site.tree.children[level - 1]
        parts = self.entering[level - 1].reshape(-1, children, self.entering[level - 1].shape[1])
        own_parts = parts[vertex : vertex + 1]
        prefixes = [table[0] for table in self._prefixes(own_parts)]
        shares = [0] * children
        for child in range(children - 1, -1, -1):
            previous, own = prefixes[child], own_parts[0, child]
            low, high = max(0, amount - len(previous) + 1), min(len(own) - 1, amount)
            x = np.arange(low, high + 1)
            shares[child] = low + int(np.argmin(np.maximum(previous[amount - x], own[x])))
            amount -= shares[child]
        return shares
