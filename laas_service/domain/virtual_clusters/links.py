# SPDX-License-Identifier: Apache-2.0

"""Bandwidth ledger: the certain and the stochastic demands reserved on each link of a tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.errors import InvalidInput
from laas_service.domain.virtual_clusters.tree import Tree

Numbers = NDArray[np.float64]
"""An array of floats."""
Whole = NDArray[np.int64]
"""An array of whole numbers."""

_STANDARD = NormalDist()


class Demand(NamedTuple):
    """A normally distributed demand for bandwidth, in the unit of the tree's capacities."""

    mean: float
    variance: float = 0.0
    """0 is a certain (deterministic) demand."""


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
    below = _cumulative(alpha)
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


def _cumulative(x: Numbers) -> Numbers:
    return np.array([_STANDARD.cdf(value) for value in x.ravel()]).reshape(x.shape)


Promise = Mapping[tuple[int, int], Demand]
"""The demand of one cluster on the link above each vertex: (level, number) -> demand."""

GRAIN = 1 << 20
"""Sums are whole multiples of 1 / GRAIN, so that a release restores them exactly."""


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

    def __init__(self, tree: Tree, risk: float = 0.05) -> None:
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
