# SPDX-License-Identifier: Apache-2.0

"""Ledger of virtual clusters on a tree: the slots and the bandwidth that each cluster holds.

``Links`` has the certain and the stochastic demands reserved on each link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.grouping import grouped
from laas_service.domain.sharing.cluster import (
    Cluster,
    Demand,
    Embedding,
    Numbers,
    Whole,
)
from laas_service.domain.sharing.tree import SlotTree
from laas_service.domain.tenancy.slots import GRAIN

_STANDARD = NormalDist()


class Demands(NamedTuple):
    """Several demands, as arrays of the same shape."""

    mean: Numbers
    variance: Numbers


def smaller(a: Demands, b: Demands) -> Demands:
    """Mean and variance of the minimum of two independent normal variables, element by element.

    Source: SVC, Lemma 1 (after Nadarajah and Kotz). If both variances are 0, the result is
    the smaller mean.
    """
    theta = np.sqrt(a.variance + b.variance)
    certain = theta == 0
    alpha = (b.mean - a.mean) / np.where(certain, 1.0, theta)
    below = np.array([_STANDARD.cdf(x) for x in alpha.ravel()]).reshape(alpha.shape)
    tail = theta * np.exp(-(alpha**2) / 2) / np.sqrt(2 * np.pi)
    mean = a.mean * below + b.mean * (1 - below) - tail
    square = (
        (a.variance + a.mean**2) * below
        + (b.variance + b.mean**2) * (1 - below)
        - (a.mean + b.mean) * tail
    )
    return Demands(
        np.where(certain, np.minimum(a.mean, b.mean), mean),
        np.where(certain, 0.0, np.maximum(square - mean**2, 0.0)),
    )


Promise = Mapping[tuple[int, int], Demand]
"""The demand of one cluster on the link above each vertex: (level, number) -> demand."""


class Links:
    """The demands reserved on every link of a tree.

    ``risk`` is the highest probability of an outage of a link, that is, of demands above its
    capacity (epsilon of SVC, condition (1)). A link holds its reservations if, with sums over
    all demands on it,

        occupancy = (certain + means + c * sqrt(variances)) / capacity < 1,

    where c is the (1 - risk) quantile of the standard normal distribution. This is SVC's
    condition (4), which lacks brackets in print: (S - means) / sqrt(variances) > c. If all
    demands on a link are certain (variance 0), occupancy 1 is allowed.

    Raises:
        InvalidInput: ``risk`` is not above 0 and at most 0.5.
    """

    def __init__(self, tree: SlotTree, risk: float = 0.05) -> None:
        if not 0 < risk <= 0.5:
            raise InvalidInput("risk", risk, "give a probability above 0 and at most 0.5")
        self.tree = tree
        self.quantile = _STANDARD.inv_cdf(1 - risk)
        sizes = [tree.vertices(level) for level in range(tree.top)]
        self._certain, self._mean, self._variance = (
            [np.zeros(size, dtype=np.int64) for size in sizes] for _ in range(3)
        )

    def reserve(self, promise: Promise) -> None:
        """Reserve the demands of a cluster; the caller has checked that they fit."""
        self._add(promise, 1)

    def release(self, promise: Promise) -> None:
        """Release demands that were reserved."""
        self._add(promise, -1)

    def _add(self, promise: Promise, sign: int) -> None:
        for (level, vertex), (mean, variance) in promise.items():
            amount = sign * round(GRAIN * mean)
            if variance:
                self._mean[level][vertex] += amount
                self._variance[level][vertex] += sign * round(GRAIN * variance)
            else:
                self._certain[level][vertex] += amount

    def spare(self, without: Promise) -> list[Whole]:
        """Bandwidth left for certain demands on each link, in units of 1 / GRAIN.

        The result has an array of shape (vertices,) for each level. The reservation ``without``
        is counted as released; its demands are certain.
        """
        spare = []
        for level in range(self.tree.top):
            mean, variance = self._mean[level], self._variance[level]
            used = self._certain[level] + mean
            if variance.any():
                chance = np.ceil(self.quantile * np.sqrt(variance / GRAIN) * GRAIN)
                used += chance.astype(np.int64) + (variance > 0)
            spare.append(math.floor(GRAIN * self.tree.capacity[level]) - used)
        for (level, vertex), (amount, _) in without.items():
            spare[level][vertex] += round(GRAIN * amount)
        return spare

    def occupancy(self, level: int, more: Demands | None = None) -> Numbers:
        """Occupancy of the links above the vertices of a level, with ``more`` demands on each.

        ``more`` has shape (k,): k demands to try on every link. The result has shape
        (vertices, k); k is 1 without ``more``.
        """
        certain, mean, variance = (
            sums[level][:, None] / GRAIN for sums in (self._certain, self._mean, self._variance)
        )
        if more is not None:
            certain_more = more.variance == 0
            certain = certain + np.where(certain_more, more.mean, 0.0)
            mean = mean + np.where(certain_more, 0.0, more.mean)
            variance = variance + more.variance
        used: Numbers = certain + mean + self.quantile * np.sqrt(variance)
        return used / self.tree.capacity[level]

    def allowed(self, level: int, more: Demands | None = None) -> Numbers:
        """``occupancy`` of the links that hold their reservations, infinity for the others."""
        occupancy = self.occupancy(level, more)
        certain = self._variance[level][:, None] == 0
        if more is not None:
            certain = certain & (more.variance == 0)
        return np.where((occupancy < 1) | (certain & (occupancy <= 1)), occupancy, np.inf)


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


def promise_of(tree: SlotTree, cluster: Cluster, embedding: Embedding) -> Promise:
    """The demand of a cluster on every link with machines of it on both sides."""
    inside = grouped(
        ((level, tree.above(machine, level)), vm)
        for machine, vms in embedding.items()
        for level in range(tree.top)
        for vm in vms
    )
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

    def __init__(self, tree: SlotTree, risk: float = 0.05) -> None:
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

    def held(self, id: str) -> tuple[Cluster, Embedding, Promise]:
        """What the site holds by an id.

        Raises:
            NotFound: the site holds no cluster of this id.
        """
        if id not in self.clusters:
            raise NotFound("cluster", id)
        return self.clusters[id]

    def release(self, id: str) -> None:
        """Release the slots and the bandwidth of a cluster. Raises: NotFound."""
        _, embedding, promise = self.held(id)
        del self.clusters[id]
        for machine, vms in embedding.items():
            self.free[machine] += len(vms)
        self.links.release(promise)

    def replace(self, cluster: Cluster, embedding: Embedding) -> None:
        """Give a cluster another embedding, and possibly another size or other demands.

        Raises:
            NotFound: the site holds no cluster of this id.
            DoubleClaim: as ``claim``; nothing has changed then.
        """
        previous, previous_embedding, _ = self.held(cluster.id)
        self.release(cluster.id)
        try:
            self.claim(cluster, embedding)
        except DoubleClaim:
            self.claim(previous, previous_embedding)
            raise
