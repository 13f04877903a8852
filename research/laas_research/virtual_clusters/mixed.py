# SPDX-License-Identifier: Apache-2.0

"""Allocation of stochastic virtual clusters whose machines have different demands.

Source: Yu and Shen, section V. An exact search over sets of machines for small clusters, a
dynamic program over substrings of the machines in order of size, and first fit. As in
``svc``, all take the first of the lowest subtrees that hold the cluster. No function here
changes the site.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from laas_research.virtual_clusters.site import Demands, Site, smaller
from laas_service.domain.errors import LimitExceeded
from laas_service.domain.sharing.cluster import Cluster, Demand, Embedding, Numbers
from laas_service.domain.topology import bits

LARGEST = 10
"""Most machines of a cluster for ``exact``: its tables have up to 2^N entries for each vertex."""


def by_size(site: Site, cluster: Cluster) -> list[int]:
    """Numbers of the machines, smallest first by the (1 - risk) quantile of their demand.

    The paper orders by the 95th percentile, which is this quantile at a risk of 0.05.
    """

    def size(vm: int) -> float:
        mean, variance = cluster.demands[vm]
        return mean + site.links.quantile * float(np.sqrt(variance))

    return sorted(range(len(cluster.demands)), key=size)


def _link_demands(demands: Sequence[Demand], inside: Numbers) -> Demands:
    """The demands on a link, from the sums below it.

    ``inside`` has shape (..., 2), mean and variance; the result has shape (...).
    """
    whole = np.array(demands).sum(axis=0)
    outside = whole - inside
    return smaller(
        Demands(inside[..., 0], inside[..., 1]), Demands(outside[..., 0], outside[..., 1])
    )


# -- all sets -----------------------------------------------------------------


def exact(site: Site, cluster: Cluster) -> Embedding | None:
    """The embedding whose most occupied link is least occupied, over all sets of machines.

    None if the cluster does not fit.

    Raises:
        LimitExceeded: the cluster has more than ``LARGEST`` machines.
    """
    size = len(cluster.demands)
    if size > LARGEST:
        raise LimitExceeded(
            f"cluster {cluster.id!r} has {size} machines, the exact search takes {LARGEST};"
            " use the search over substrings"
        )
    return _Subsets(site, cluster).answer() if 0 < size <= site.free.sum() else None


class _Subsets:
    """Opt for every set of machines (a bit mask) below every vertex, level by level.

    Opt is the least possible occupancy of the most occupied link.
    """

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.site = site
        self.size = len(cluster.demands)
        masks = range(1 << self.size)
        amounts = np.array(cluster.demands, dtype=np.float64)
        inside = np.array([amounts[list(bits(mask))].sum(axis=0) for mask in masks])
        link_demands = _link_demands(cluster.demands, inside)
        within = np.array([0 < mask < masks[-1] for mask in masks])
        self.link_demands = Demands(
            np.where(within, link_demands.mean, 0.0), np.where(within, link_demands.variance, 0.0)
        )
        self.levels: list[list[dict[int, tuple[float, tuple[int, ...]]]]] = []
        """``levels[l][v][mask]``: Opt below vertex v without the link above it, and the masks
        of the children."""

    def answer(self) -> Embedding | None:
        """The embedding in the lowest subtree; None if the cluster does not fit."""
        tree, everything = self.site.tree, (1 << self.size) - 1
        self.levels.append(
            [
                {
                    sum(1 << vm for vm in vms): (0.0, ())
                    for count in range(min(int(free), self.size) + 1)
                    for vms in combinations(range(self.size), count)
                }
                for free in self.site.free
            ]
        )
        for level in range(tree.top + 1):
            if level:
                self.levels.append(list(self._joined(level)))
            for vertex, sets in enumerate(self.levels[level]):
                if everything in sets:
                    embedding: dict[int, tuple[int, ...]] = {}
                    self._collect(level, vertex, everything, embedding)
                    return embedding
        return None

    def _joined(self, level: int) -> Iterator[dict[int, tuple[float, tuple[int, ...]]]]:
        tree, below = self.site.tree, self.levels[level - 1]
        allowed = self.site.links.allowed(level - 1, self.link_demands)
        for vertex in range(tree.vertices(level)):
            first = vertex * tree.children[level - 1]
            sets: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
            for child in range(first, first + tree.children[level - 1]):
                next_sets: dict[int, tuple[float, tuple[int, ...]]] = {}
                for mask, (opt, _) in below[child].items():
                    opt_child = max(opt, allowed[child, mask])
                    for other_mask, (opt_before, masks) in (
                        sets.items() if opt_child < np.inf else ()
                    ):
                        value = (max(opt_child, opt_before), (*masks, mask))
                        if not mask & other_mask and value < next_sets.get(
                            mask | other_mask, (np.inf, ())
                        ):
                            next_sets[mask | other_mask] = value
                sets = next_sets
            yield sets

    def _collect(
        self, level: int, vertex: int, mask: int, embedding: dict[int, tuple[int, ...]]
    ) -> None:
        if level == 0:
            embedding[vertex] = tuple(bits(mask))
            return
        first = vertex * self.site.tree.children[level - 1]
        for child, part in enumerate(self.levels[level][vertex][mask][1], first):
            if part:
                self._collect(level - 1, child, part, embedding)


# -- substrings ---------------------------------------------------------------


def substrings(site: Site, cluster: Cluster) -> Embedding | None:
    """The best embedding in which each subtree has consecutive machines of the order ``by_size``.

    None if there is none.
    """
    if not 0 < len(cluster.demands) <= site.free.sum():
        return None
    return _Substrings(site, cluster).answer()


class _Substrings:
    """Opt for every substring [a, b) of the ordered machines below every vertex of a level.

    Tables have shape (vertices, N + 1, N + 1); they are infinite if b < a, or if the substring
    is not allowed there.
    """

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.site = site
        self.order = by_size(site, cluster)
        self.size = len(self.order)
        amounts = np.array([cluster.demands[vm] for vm in self.order], dtype=np.float64)
        sums = np.vstack([np.zeros((1, 2)), amounts.cumsum(axis=0)])
        inside = np.maximum(sums[None, :, :] - sums[:, None, :], 0.0)
        link_demands = _link_demands(cluster.demands, inside)
        ends = np.arange(self.size + 1)
        self.length = ends[None, :] - ends[:, None]
        crosses = (self.length > 0) & (self.length < self.size)
        self.link_demands = Demands(
            np.where(crosses, link_demands.mean, 0.0).ravel(),
            np.where(crosses, link_demands.variance, 0.0).ravel(),
        )
        self.entering: list[Numbers] = []
        """By level: Opt with the link above each vertex."""

    def answer(self) -> Embedding | None:
        """The embedding in the lowest subtree; None if there is none."""
        tree, shape = self.site.tree, (self.size + 1, self.size + 1)
        fits = (self.length >= 0) & (self.length <= self.site.free[:, None, None])
        within = np.where(fits, 0.0, np.inf)
        for level in range(tree.top + 1):
            if level:
                within = self._joined(self.entering[-1], level)
            (fitting,) = np.nonzero(np.isfinite(within[:, 0, self.size]))
            if len(fitting):
                return self._embedding(level, int(fitting[0]))
            if level < tree.top:
                allowed = self.site.links.allowed(level, self.link_demands).reshape(-1, *shape)
                self.entering.append(np.maximum(within, allowed))
        return None

    def _joined(self, entering: Numbers, level: int) -> Numbers:
        children = self.site.tree.children[level - 1]
        return self._prefixes(entering.reshape(-1, children, *entering.shape[1:]), level)[-1]

    def _prefixes(self, parts: Numbers, level: int) -> list[Numbers]:
        """Opt over the first i children for i = 0, 1, ...; ``parts``: (parents, children, a, b)."""
        longest = min(self.size, self.site.tree.slots * self.site.tree.below[level - 1])
        table = np.broadcast_to(np.where(self.length == 0, 0.0, np.inf), parts[:, 0].shape)
        tables = [table]
        for child in range(parts.shape[1]):
            next_table = np.full(table.shape, np.inf)
            for length in range(longest + 1):
                # [a, b) is [a, b - length) of the children before, and [b - length, b) of this one.
                own = np.diagonal(parts[:, child], length, axis1=1, axis2=2)[:, None, :]
                worst = np.maximum(table[:, :, : self.size + 1 - length], own)
                np.minimum(next_table[:, :, length:], worst, out=next_table[:, :, length:])
            tables.append(next_table)
            table = next_table
        return tables

    def _embedding(self, level: int, vertex: int) -> Embedding:
        embedding: dict[int, tuple[int, ...]] = {}
        pending = [(level, vertex, 0, self.size)]
        while pending:
            level, vertex, a, b = pending.pop()
            if level == 0:
                embedding[vertex] = tuple(sorted(self.order[a:b]))
                continue
            children = self.site.tree.children[level - 1]
            first = vertex * children
            parts = self.entering[level - 1][first : first + children]
            tables = self._prefixes(parts[None], level)
            for child in range(children - 1, -1, -1):
                cut = a + int(
                    np.argmin(
                        np.maximum(tables[child][0, a, a : b + 1], parts[child, a : b + 1, b])
                    )
                )
                if cut < b:
                    pending.append((level - 1, first + child, cut, b))
                b = cut
        return dict(sorted(embedding.items()))


# -- first fit ----------------------------------------------------------------


def first_fit(site: Site, cluster: Cluster) -> Embedding | None:
    """Place machines in the order ``by_size``; fill each subtree as far as its links allow.

    None if no subtree holds the cluster.
    """
    order = by_size(site, cluster)
    fit = _FirstFit(site, cluster, order)
    for level in range(site.tree.top + 1):
        for vertex in range(site.tree.vertices(level)):
            embedding: dict[int, tuple[int, ...]] = {}
            if order and fit.fill(level, vertex, 0, len(order), embedding) == len(order):
                return embedding
    return None


class _FirstFit:
    def __init__(self, site: Site, cluster: Cluster, order: Sequence[int]) -> None:
        self.site = site
        self.order = order
        amounts = np.array([cluster.demands[vm] for vm in order], dtype=np.float64).reshape(-1, 2)
        self.sums = np.vstack([np.zeros((1, 2)), amounts.cumsum(axis=0)])
        self.demands = cluster.demands

    def fill(
        self, level: int, vertex: int, start: int, stop: int, embedding: dict[int, tuple[int, ...]]
    ) -> int:
        """Place order[start:stop] below a vertex, in turn; return the end of the part placed."""
        if level == 0:
            end = min(stop, start + int(self.site.free[vertex]))
            if end > start:
                embedding[vertex] = tuple(sorted(self.order[start:end]))
            return end
        children = self.site.tree.children[level - 1]
        position = start
        for child in range(vertex * children, (vertex + 1) * children):
            limit = stop
            while limit > position:
                inner: dict[int, tuple[int, ...]] = {}
                end = self.fill(level - 1, child, position, limit, inner)
                if end == position or self._allowed(level - 1, child, position, end):
                    embedding.update(inner)
                    position = end
                    break
                limit = end - 1
        return position

    def _allowed(self, level: int, vertex: int, start: int, end: int) -> bool:
        if end - start == len(self.order):
            return True
        demands = _link_demands(self.demands, (self.sums[end] - self.sums[start])[None])
        return bool(np.isfinite(self.site.links.allowed(level, demands)[vertex, 0]))
