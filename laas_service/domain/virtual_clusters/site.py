# SPDX-License-Identifier: Apache-2.0

"""Ledger of virtual clusters on a tree: the slots and the bandwidth that each cluster holds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.virtual_clusters.links import (
    GRAIN,
    Demand,
    Demands,
    Links,
    Promise,
    Whole,
    smaller,
)
from laas_service.domain.virtual_clusters.tree import Tree


@dataclass(frozen=True, slots=True)
class Cluster:
    """Virtual machines that share a virtual switch.

    Demands of different machines are independent. A deterministic virtual cluster <N, B>
    (Oktopus) has N demands of mean B and variance 0.
    """

    id: str
    demands: tuple[Demand, ...]
    """``demands[i]``: the bandwidth that machine i needs, in the unit of the capacities."""

    @classmethod
    def alike(cls, id: str, size: int, mean: float, deviation: float = 0.0) -> Cluster:
        """SVC's <N, mu, sigma>: ``size`` machines with the same normal demand."""
        return cls(id, (Demand(mean, deviation**2),) * size)

    @property
    def homogeneous(self) -> bool:
        """Whether all machines have the same demand."""
        return len(set(self.demands)) <= 1


Embedding = Mapping[int, tuple[int, ...]]
"""Machine of the tree -> numbers of the cluster's virtual machines on it."""


def crossing(demands: Sequence[Demand], inside: Sequence[float]) -> Demands:
    """The demands of a homogeneous cluster on a link with ``inside[k]`` of its machines below.

    The result has the shape of ``inside``. Source: SVC, section IV-A: the minimum of the sums
    of both sides.
    """
    size, (mean, variance) = len(demands), demands[0]
    m = np.asarray(inside, dtype=np.float64)
    both = smaller(
        Demands(m * mean, m * variance), Demands((size - m) * mean, (size - m) * variance)
    )
    crosses = (m > 0) & (m < size)
    return Demands(np.where(crosses, both.mean, 0.0), np.where(crosses, both.variance, 0.0))


def promise_of(tree: Tree, cluster: Cluster, embedding: Embedding) -> Promise:
    """The demand of a cluster on every link with machines of it on both sides."""
    inside: dict[tuple[int, int], list[int]] = defaultdict(list)
    for machine, vms in embedding.items():
        for level in range(tree.top):
            inside[level, tree.above(machine, level)] += vms
    whole = len(cluster.demands)
    links = [link for link, vms in inside.items() if len(vms) < whole]
    means, variances = (np.array([d[field] for d in cluster.demands]) for field in (0, 1))
    mean, variance = (
        np.array([amounts[inside[link]].sum() for link in links]) for amounts in (means, variances)
    )
    link_demands = smaller(
        Demands(mean, variance), Demands(means.sum() - mean, variances.sum() - variance)
    )
    pairs = zip(link_demands.mean.tolist(), link_demands.variance.tolist(), strict=True)
    return {link: Demand(*pair) for link, pair in zip(links, pairs, strict=True)}


class Site:
    """The slots and links of one tree, and the clusters on them; ``risk`` as for ``Links``."""

    def __init__(self, tree: Tree, risk: float = 0.05) -> None:
        self.tree = tree
        self.links = Links(tree, risk)
        self.free = np.full(tree.machines, tree.slots, dtype=np.int64)
        """Free slots, shape (machines,)."""
        self.clusters: dict[str, tuple[Cluster, Embedding, Promise]] = {}
        """By cluster id."""

    def offered(self, cluster: Cluster) -> tuple[Whole, list[Whole]]:
        """Free slots of the machines, and how many of the cluster's machines may cross each link.

        The links are a list of arrays of shape (vertices,), one for each level. Slots and links
        of a cluster that the site holds by this id count as free. All demands of ``cluster``
        must be the same and have variance 0; they are rounded up to steps of 1 / GRAIN.

        Raises:
            InvalidInput: the demands differ or have a variance, or there are none.
        """
        size = len(cluster.demands)
        if not cluster.homogeneous or not size or cluster.demands[0].variance:
            raise InvalidInput(
                "cluster",
                cluster.id,
                "give at least one machine, and the same demand of variance 0 to all",
            )
        _, embedding, promise = self.clusters.get(cluster.id, (cluster, {}, {}))
        slots = self.free.copy()
        for machine, vms in embedding.items():
            slots[machine] += len(vms)
        unit = max(1, math.ceil(GRAIN * cluster.demands[0].mean))
        return slots, [np.clip(spare // unit, 0, size) for spare in self.links.spare(promise)]

    def claim(self, cluster: Cluster, embedding: Embedding) -> None:
        """Claim slots and reserve bandwidth; the caller has checked that the bandwidth fits.

        Raises:
            DoubleClaim: the id is taken, a slot is not free, or a machine of the cluster does
                not have exactly one slot.
        """
        placed = sorted(vm for vms in embedding.values() for vm in vms)
        if cluster.id in self.clusters or placed != list(range(len(cluster.demands))):
            raise DoubleClaim(f"cluster {cluster.id!r}: exists already, or machines without a slot")
        if any(len(vms) > self.free[machine] for machine, vms in embedding.items()):
            raise DoubleClaim(f"cluster {cluster.id!r}: a slot is not free")
        promise = promise_of(self.tree, cluster, embedding)
        for machine, vms in embedding.items():
            self.free[machine] -= len(vms)
        self.links.reserve(promise)
        self.clusters[cluster.id] = (cluster, embedding, promise)

    def release(self, id: str) -> None:
        """Release the slots and the bandwidth of a cluster.

        Raises:
            NotFound: the site holds no cluster of this id.
        """
        if id not in self.clusters:
            raise NotFound("cluster", id)
        _, embedding, promise = self.clusters.pop(id)
        for machine, vms in embedding.items():
            self.free[machine] += len(vms)
        self.links.release(promise)

    def replace(self, cluster: Cluster, embedding: Embedding) -> None:
        """Give a cluster another embedding, and possibly another size or other demands.

        Raises:
            NotFound: the site holds no cluster of this id.
            DoubleClaim: as ``claim``; nothing has changed then.
        """
        if cluster.id not in self.clusters:
            raise NotFound("cluster", cluster.id)
        previous, previous_embedding, _ = self.clusters[cluster.id]
        self.release(cluster.id)
        try:
            self.claim(cluster, embedding)
        except DoubleClaim:
            self.claim(previous, previous_embedding)
            raise
