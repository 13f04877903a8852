# SPDX-License-Identifier: Apache-2.0

"""Stochastic virtual clusters whose machines have different demands.

Yu and Shen, section V: an exact search over sets of machines for small clusters, a
dynamic program over substrings of the machines in order of size, and first fit. As in
``svc``, the lowest subtree counts, the first of its level; nothing changes the site.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from laas_service.domain.errors import LimitExceeded
from laas_service.domain.topology import bits
from laas_service.domain.virtual_clusters.links import Demand, Demands, Numbers, smaller
from laas_service.domain.virtual_clusters.site import Cluster, Embedding, Site

LARGEST = 10
"""Machines of a cluster that ``exact`` takes: its tables have up to 2^N entries a vertex."""


def by_size(site: Site, cluster: Cluster) -> list[int]:
    """Numbers of the machines, smallest first, by the quantile of the site's risk.

    The paper orders by the 95th percentile, which is that quantile at a risk of 0.05.
    """

    def size(vm: int) -> float:
        mean, variance = cluster.demands[vm]
        return mean + site.links.quantile * float(np.sqrt(variance))

    return sorted(range(len(cluster.demands)), key=size)


def _asked(demands: Sequence[Demand], inside: Numbers) -> Demands:
    """What is asked of a link, by the sums of mean and variance below it: (..., 2) -> (...)."""
    whole = np.array(demands).sum(axis=0)
    outside = whole - inside
    found = smaller(
        Demands(inside[..., 0], inside[..., 1]), Demands(outside[..., 0], outside[..., 1])
    )
    return found


# -- all sets -----------------------------------------------------------------


def exact(site: Site, cluster: Cluster) -> Embedding | None:
    """The embedding whose worst link is least occupied, over all sets of machines.

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
    """Opt for every set of machines, a bit mask, below every vertex of one level."""

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.site = site
        self.size = len(cluster.demands)
        masks = range(1 << self.size)
        amounts = np.array(cluster.demands, dtype=np.float64)
        inside = np.array([amounts[list(bits(mask))].sum(axis=0) for mask in masks])
        asked = _asked(cluster.demands, inside)
        within = np.array([0 < mask < masks[-1] for mask in masks])
        self.asked = Demands(
            np.where(within, asked.mean, 0.0), np.where(within, asked.variance, 0.0)
        )
        self.levels: list[list[dict[int, tuple[float, tuple[int, ...]]]]] = []

    def answer(self) -> Embedding | None:
        """``levels[l][v][mask]``: Opt below vertex v without its link, and the children's masks."""
        tree, everything = self.site.tree, (1 << self.size) - 1
        self.levels.append(
            [
                {
                    sum(1 << vm for vm in some): (0.0, ())
                    for count in range(min(int(free), self.size) + 1)
                    for some in combinations(range(self.size), count)
                }
                for free in self.site.free
            ]
        )
        for level in range(tree.top + 1):
            if level:
                self.levels.append(self._joined(level))
            for vertex, sets in enumerate(self.levels[level]):
                if everything in sets:
                    found: dict[int, tuple[int, ...]] = {}
                    self._collect(level, vertex, everything, found)
                    return found
        return None

    def _joined(self, level: int) -> list[dict[int, tuple[float, tuple[int, ...]]]]:
        tree, below = self.site.tree, self.levels[level - 1]
        allowed = self.site.links.allowed(level - 1, self.asked)
        made = []
        for vertex in range(tree.vertices(level)):
            first = vertex * tree.children[level - 1]
            so_far: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
            for child in range(first, first + tree.children[level - 1]):
                after: dict[int, tuple[float, tuple[int, ...]]] = {}
                for mask, (opt, _) in below[child].items():
                    worst = max(opt, allowed[child, mask])
                    for other, (before, masks) in so_far.items() if worst < np.inf else ():
                        value = (max(worst, before), (*masks, mask))
                        if not mask & other and value < after.get(mask | other, (np.inf, ())):
                            after[mask | other] = value
                so_far = after
            made.append(so_far)
        return made

    def _collect(
        self, level: int, vertex: int, mask: int, found: dict[int, tuple[int, ...]]
    ) -> None:
        if level == 0:
            found[vertex] = tuple(bits(mask))
            return
        first = vertex * self.site.tree.children[level - 1]
        for child, part in enumerate(self.levels[level][vertex][mask][1], first):
            if part:
                self._collect(level - 1, child, part, found)


# -- substrings ---------------------------------------------------------------


def substrings(site: Site, cluster: Cluster) -> Embedding | None:
    """The best embedding that gives each subtree neighbours in the order ``by_size``."""
    if not 0 < len(cluster.demands) <= site.free.sum():
        return None
    return _Substrings(site, cluster).answer()


class _Substrings:
    """Opt for every substring [a, b) of the machines in order, below every vertex of a level.

    Tables are of shape (vertices, N + 1, N + 1), infinite where b < a or not allowed.
    """

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.site = site
        self.order = by_size(site, cluster)
        self.size = len(self.order)
        amounts = np.array([cluster.demands[vm] for vm in self.order], dtype=np.float64)
        sums = np.vstack([np.zeros((1, 2)), amounts.cumsum(axis=0)])
        inside = np.maximum(sums[None, :, :] - sums[:, None, :], 0.0)
        asked = _asked(cluster.demands, inside)
        ends = np.arange(self.size + 1)
        self.length = ends[None, :] - ends[:, None]
        crosses = (self.length > 0) & (self.length < self.size)
        self.asked = Demands(
            np.where(crosses, asked.mean, 0.0).ravel(),
            np.where(crosses, asked.variance, 0.0).ravel(),
        )
        self.entering: list[Numbers] = []

    def answer(self) -> Embedding | None:
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
                allowed = self.site.links.allowed(level, self.asked).reshape(-1, *shape)
                self.entering.append(np.maximum(within, allowed))
        return None

    def _joined(self, entering: Numbers, level: int) -> Numbers:
        children = self.site.tree.children[level - 1]
        return self._prefixes(entering.reshape(-1, children, *entering.shape[1:]), level)[-1]

    def _prefixes(self, parts: Numbers, level: int) -> list[Numbers]:
        """Opt over the first i children, i = 0, 1, ...; ``parts`` is (parents, children, a, b)."""
        longest = min(self.size, self.site.tree.slots * self.site.tree.below[level - 1])
        before = np.broadcast_to(np.where(self.length == 0, 0.0, np.inf), parts[:, 0].shape)
        tables = [before]
        for child in range(parts.shape[1]):
            after = np.full(before.shape, np.inf)
            for length in range(longest + 1):
                # [a, b) is [a, b - length) of those before and [b - length, b) of this child.
                own = np.diagonal(parts[:, child], length, axis1=1, axis2=2)[:, None, :]
                some = np.maximum(before[:, :, : self.size + 1 - length], own)
                np.minimum(after[:, :, length:], some, out=after[:, :, length:])
            tables.append(after)
            before = after
        return tables

    def _embedding(self, level: int, vertex: int) -> Embedding:
        found: dict[int, tuple[int, ...]] = {}
        todo = [(level, vertex, 0, self.size)]
        while todo:
            level, vertex, a, b = todo.pop()
            if level == 0:
                found[vertex] = tuple(sorted(self.order[a:b]))
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
                    todo.append((level - 1, first + child, cut, b))
                b = cut
        return dict(sorted(found.items()))


# -- first fit ----------------------------------------------------------------


def first_fit(site: Site, cluster: Cluster) -> Embedding | None:
    """Machines in the order ``by_size``, each subtree filled as far as its links allow."""
    order = by_size(site, cluster)
    fit = _FirstFit(site, cluster, order)
    for level in range(site.tree.top + 1):
        for vertex in range(site.tree.vertices(level)):
            found: dict[int, tuple[int, ...]] = {}
            if order and fit.fill(level, vertex, 0, len(order), found) == len(order):
                return found
    return None


class _FirstFit:
    def __init__(self, site: Site, cluster: Cluster, order: Sequence[int]) -> None:
        self.site = site
        self.order = order
        amounts = np.array([cluster.demands[vm] for vm in order], dtype=np.float64).reshape(-1, 2)
        self.sums = np.vstack([np.zeros((1, 2)), amounts.cumsum(axis=0)])
        self.demands = cluster.demands

    def fill(
        self, level: int, vertex: int, start: int, stop: int, found: dict[int, tuple[int, ...]]
    ) -> int:
        """Place order[start:stop] below a vertex, in turn; answers where it had to stop."""
        if level == 0:
            end = min(stop, start + int(self.site.free[vertex]))
            if end > start:
                found[vertex] = tuple(sorted(self.order[start:end]))
            return end
        children = self.site.tree.children[level - 1]
        position = start
        for child in range(vertex * children, (vertex + 1) * children):
            limit = stop
            while limit > position:
                inner: dict[int, tuple[int, ...]] = {}
                end = self.fill(level - 1, child, position, limit, inner)
                if end == position or self._allowed(level - 1, child, position, end):
                    found.update(inner)
                    position = end
                    break
                limit = end - 1
        return position

    def _allowed(self, level: int, vertex: int, start: int, end: int) -> bool:
        if end - start == len(self.order):
            return True
        asked = _asked(self.demands, (self.sums[end] - self.sums[start])[None])
        return bool(np.isfinite(self.site.links.allowed(level, asked)[vertex, 0]))
