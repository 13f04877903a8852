# SPDX-License-Identifier: Apache-2.0

"""Oktopus: greedy embedding of virtual clusters, which embeds a changed cluster from scratch.

Source: Ballani et al., "Towards Predictable Datacenter Networks", in the form of Kraken's
baseline (Kraken, section V-C). It takes the first of the lowest subtrees that hold the whole
cluster, and fills its children in turn with as many units as they take.
"""

import numpy as np

from laas_research.virtual_clusters.site import Site
from laas_service.domain.sharing.cluster import Cluster, Whole
from laas_service.domain.sharing.migration import UnitMigration, planned


def oktopus(site: Site, cluster: Cluster) -> UnitMigration | None:
    """A plan for a cluster that is embedded as if it were new; None if it does not fit.

    The slots and links of a cluster that the site holds by this id count as free. A unit
    stays if the new embedding has a place on its machine. ``cluster`` is VC(n, b), as for
    Kraken.

    Raises:
        InvalidInput: the demands differ or have a variance, or there are none.
    """
    return _Search(site, cluster).answer()


class _Search:
    """The sets M_v of every vertex: numbers m of the cluster's n units that may be below it.

    A number is allowed if min(m, n - m) units may cross the link above the vertex: m up to
    ``links``, and m from n - ``links`` up to ``fits``.
    """

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.tree, self.cluster, self.size = site.tree, cluster, len(cluster.demands)
        _, self.previous, _ = site.clusters.get(cluster.id, (cluster, {}, {}))
        slots, self.links = site.offered(cluster)
        self.fits = [np.minimum(slots, self.size)]
        for level, children in enumerate(self.tree.children):
            most = self._most(self.fits[level], self.links[level])
            below = most.reshape(-1, children).sum(axis=1)
            self.fits.append(np.minimum(below, self.size))

    def _most(self, limit: Whole, link: Whole) -> Whole:
        """The largest m of M_v up to ``limit``."""
        return np.where(self.size - limit <= link, limit, np.minimum(limit, link))

    def answer(self) -> UnitMigration | None:
        """A plan in the lowest subtree that holds the cluster; None if no subtree does."""
        for level in range(self.tree.top + 1):
            for vertex in np.nonzero(self.fits[level] >= self.size)[0].tolist():
                counts: dict[int, int] = {}
                if self._allocate(level, vertex, self.size, counts) == self.size:
                    return planned(self.tree, self.cluster, self.previous, counts)
        return None

    def _allocate(self, level: int, vertex: int, amount: int, counts: dict[int, int]) -> int:
        """Alloc: place up to ``amount`` units below a vertex; return the number placed."""
        if level == 0:
            counts[vertex] = amount
            return amount
        children, placed = self.tree.children[level - 1], 0
        below = slice(vertex * children, (vertex + 1) * children)
        fits, links = self.fits[level - 1][below], self.links[level - 1][below]
        for child in range(children):
            limit = np.minimum(fits[child : child + 1], amount - placed)
            share = int(self._most(limit, links[child : child + 1])[0])
            if share:
                placed_below = self._allocate(level - 1, below.start + child, share, counts)
                if placed_below < share:  # M_v has a gap at a lower level
                    return placed
                placed += share
            if placed == amount:
                break
        return placed
