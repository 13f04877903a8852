# SPDX-License-Identifier: Apache-2.0

"""Oktopus' greedy embedding of virtual clusters, which re-embeds what changes.

Ballani et al., "Towards Predictable Datacenter Networks", as Kraken's baseline (Kraken,
section V-C): the first of the lowest subtrees that take the whole cluster, every child as
many as it may.
"""

from __future__ import annotations

import numpy as np

from laas_service.domain.virtual_clusters.links import Whole
from laas_service.domain.virtual_clusters.plan import Plan, planned
from laas_service.domain.virtual_clusters.site import Cluster, Site


def oktopus(site: Site, cluster: Cluster) -> Plan | None:
    """Where a cluster goes, as if it were new; None where no subtree takes it.

    A cluster that the site holds by this id gives back everything first; units stay where
    the new embedding has them on the same machine. ``cluster`` is VC(n, b), as for Kraken.
    """
    return _Search(site, cluster).answer()


class _Search:
    """M_v of every vertex: m units below it are allowed if min(m, n - m) may cross its link:
    m up to ``links`` and m from n - ``links`` up to what fits.
    """

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.tree, self.cluster, self.size = site.tree, cluster, len(cluster.demands)
        _, self.before, _ = site.clusters.get(cluster.id, (cluster, {}, {}))
        slots, self.links = site.offered(cluster)
        self.fits = [np.minimum(slots, self.size)]
        for level, children in enumerate(self.tree.children):
            most = self._most(self.fits[level], self.links[level])
            below = most.reshape(-1, children).sum(axis=1)
            self.fits.append(np.minimum(below, self.size))

    def _most(self, limit: Whole, link: Whole) -> Whole:
        """The largest m of M_v up to ``limit``."""
        return np.where(self.size - limit <= link, limit, np.minimum(limit, link))

    def answer(self) -> Plan | None:
        for level in range(self.tree.top + 1):
            for vertex in np.nonzero(self.fits[level] >= self.size)[0].tolist():
                counts: dict[int, int] = {}
                if self._allocate(level, vertex, self.size, counts) == self.size:
                    return planned(self.tree, self.cluster, self.before, counts)
        return None

    def _allocate(self, level: int, vertex: int, amount: int, counts: dict[int, int]) -> int:
        """Alloc: how many of ``amount`` units found a place below a vertex."""
        if level == 0:
            counts[vertex] = amount
            return amount
        children, done = self.tree.children[level - 1], 0
        below = slice(vertex * children, (vertex + 1) * children)
        fits, links = self.fits[level - 1][below], self.links[level - 1][below]
        for child in range(children):
            limit = np.minimum(fits[child : child + 1], amount - done)
            some = int(self._most(limit, links[child : child + 1])[0])
            if some:
                found = self._allocate(level - 1, below.start + child, some, counts)
                if found < some:  # M_v has a gap further down
                    return done
                done += some
            if done == amount:
                break
        return done
