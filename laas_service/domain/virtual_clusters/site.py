# SPDX-License-Identifier: Apache-2.0

"""Who holds which slots and which promises: the ledger of virtual clusters on a tree."""

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
    """Virtual machines that share a virtual switch; ``demands[i]`` is what machine i sends.

    Demands of different machines are independent. A deterministic virtual cluster
    <N, B> (Oktopus) has N demands of mean B and variance 0.
    """

    id: str
    demands: tuple[Demand, ...]

    @classmethod
    def alike(cls, id: str, size: int, mean: float, deviation: float = 0.0) -> Cluster:
        """SVC's <N, mu, sigma>: ``size`` machines of one normal demand."""
        return cls(id, (Demand(mean, deviation**2),) * size)

    @property
    def homogeneous(self) -> bool:
        return len(set(self.demands)) <= 1


Embedding = Mapping[int, tuple[int, ...]]
"""Machine of the tree -> numbers of the cluster's virtual machines on it."""


def crossing(demands: Sequence[Demand], inside: Sequence[float]) -> Demands:
    """What a cluster asks of a link below which ``inside[k]`` of its machines are, for each k.

    All demands are alike here. SVC, section IV-A: the smaller of the sums of both sides.
    """
    size, (mean, variance) = len(demands), demands[0]
    m = np.asarray(inside, dtype=np.float64)
    both = smaller(
        Demands(m * mean, m * variance), Demands((size - m) * mean, (size - m) * variance)
    )
    crosses = (m > 0) & (m < size)
    return Demands(np.where(crosses, both.mean, 0.0), np.where(crosses, both.variance, 0.0))


def promise_of(tree: Tree, cluster: Cluster, embedding: Embedding) -> Promise:
    """What the cluster asks of every link that separates some of its machines from others."""
    inside: dict[tuple[int, int], list[int]] = defaultdict(list)
    for machine, vms in embedding.items():
        for level in range(tree.top):
            inside[level, tree.above(machine, level)] += vms
    whole = len(cluster.demands)
    links = [link for link, vms in inside.items() if len(vms) < whole]
    means, variances = (np.array([d[part] for d in cluster.demands]) for part in (0, 1))
    mean, variance = (
        np.array([amounts[inside[link]].sum() for link in links]) for amounts in (means, variances)
    )
    found = smaller(
        Demands(mean, variance), Demands(means.sum() - mean, variances.sum() - variance)
    )
    pairs = zip(found.mean.tolist(), found.variance.tolist(), strict=True)
    return {link: Demand(*pair) for link, pair in zip(links, pairs, strict=True)}


class Site:
    """Slots and links of one tree, and the clusters on them."""

    def __init__(self, tree: Tree, risk: float = 0.05) -> None:
        self.tree = tree
        self.links = Links(tree, risk)
        self.free = np.full(tree.machines, tree.slots, dtype=np.int64)
        self.clusters: dict[str, tuple[Cluster, Embedding, Promise]] = {}

    def offered(self, cluster: Cluster) -> tuple[Whole, list[Whole]]:
        """Slots of machines, and how many of the cluster's machines may cross each link, by
        level, once it has given back what the site holds by its id.

        For clusters of one demand of variance 0. Bandwidths count in steps of 1 / GRAIN,
        rounded up.

        Raises:
            InvalidInput: ``cluster`` is none of these.
        """
        size = len(cluster.demands)
        if not cluster.homogeneous or not size or cluster.demands[0].variance:
            raise InvalidInput(
                "cluster", cluster.id, "give at least one machine, and all the same certain demand"
            )
        _, embedding, promise = self.clusters.get(cluster.id, (cluster, {}, {}))
        slots = self.free.copy()
        for machine, vms in embedding.items():
            slots[machine] += len(vms)
        unit = max(1, math.ceil(GRAIN * cluster.demands[0].mean))
        return slots, [np.clip(spare // unit, 0, size) for spare in self.links.spare(promise)]

    def claim(self, cluster: Cluster, embedding: Embedding) -> None:
        """Give the slots, and promise the bandwidth.

        Raises:
            DoubleClaim: the id is taken, a slot is not free, or not every machine of the
                cluster has exactly one.
        """
        placed = sorted(vm for vms in embedding.values() for vm in vms)
        if cluster.id in self.clusters or placed != list(range(len(cluster.demands))):
            raise DoubleClaim(f"cluster {cluster.id!r}: held already, or machines without a slot")
        if any(len(vms) > self.free[machine] for machine, vms in embedding.items()):
            raise DoubleClaim(f"cluster {cluster.id!r}: a slot is not free")
        promise = promise_of(self.tree, cluster, embedding)
        for machine, vms in embedding.items():
            self.free[machine] -= len(vms)
        self.links.reserve(promise)
        self.clusters[cluster.id] = (cluster, embedding, promise)

    def release(self, id: str) -> None:
        """Take everything back. Raises: NotFound."""
        if id not in self.clusters:
            raise NotFound("cluster", id)
        _, embedding, promise = self.clusters.pop(id)
        for machine, vms in embedding.items():
            self.free[machine] += len(vms)
        self.links.release(promise)

    def replace(self, cluster: Cluster, embedding: Embedding) -> None:
        """Put a cluster that is held elsewhere, or change its size or demands.

        Raises:
            NotFound: no cluster of this id is held.
            DoubleClaim: as ``claim``; then nothing has changed.
        """
        if cluster.id not in self.clusters:
            raise NotFound("cluster", cluster.id)
        before, at, _ = self.clusters[cluster.id]
        self.release(cluster.id)
        try:
            self.claim(cluster, embedding)
        except DoubleClaim:
            self.claim(before, at)
            raise
