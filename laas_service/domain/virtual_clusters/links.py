# SPDX-License-Identifier: Apache-2.0

"""The bandwidth ledger: what is promised on each link, for certain and with a probability."""

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
Whole = NDArray[np.int64]

_STANDARD = NormalDist()


class Demand(NamedTuple):
    """A normal demand for bandwidth: its mean and variance. Variance 0 is a certain demand."""

    mean: float
    variance: float = 0.0


class Demands(NamedTuple):
    """Demands side by side: arrays of the same shape."""

    mean: Numbers
    variance: Numbers


def smaller(a: Demands, b: Demands) -> Demands:
    """Mean and variance of the smaller of two independent normal variables, element by element.

    SVC, Lemma 1 (after Nadarajah and Kotz). Where both variances are 0 it is the
    smaller mean.
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
"""What one cluster may ask of the links above vertices: (level, number) -> demand."""

GRAIN = 1 << 20
"""Sums are kept in whole multiples of 1 / GRAIN, so that what is released leaves no trace."""


class Links:
    """What is promised on every link of a tree; an outage is a link asked for more than it has.

    ``risk`` is the probability of an outage that every link stays below (epsilon of SVC,
    condition (1)). Certain demands (variance 0) are set aside, the others share what is
    left: with sums over all promises on a link,

        occupancy = (certain + means + c * sqrt(variances)) / capacity < 1,

    where c is the (1 - risk) quantile of the standard normal distribution. This is SVC's
    condition (4), which lacks brackets in print: (S - means) / sqrt(variances) > c.
    Where all demands are certain, a full link (occupancy 1) is allowed.

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
        """Add a promise; whether it fits is for the caller to have looked."""
        self._add(promise, 1)

    def release(self, promise: Promise) -> None:
        """Take back what was reserved."""
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
        """What certain demands may still ask of each link, in 1 / GRAIN, level by level.

        ``without`` is left out of account, as if it had been released.
        """
        found = []
        for level in range(self.tree.top):
            mean, variance = self._mean[level], self._variance[level]
            used = self._certain[level] + mean
            if variance.any():
                chance = np.ceil(self.quantile * np.sqrt(variance / GRAIN) * GRAIN)
                used += chance.astype(np.int64) + (variance > 0)
            found.append(math.floor(GRAIN * self.tree.capacity[level]) - used)
        for (level, vertex), (amount, _) in without.items():
            found[level][vertex] += round(GRAIN * amount)
        return found

    def occupancy(self, level: int, more: Demands | None = None) -> Numbers:
        """Occupancy of each link above the level's vertices, with ``more`` added on each.

        ``more`` is of shape (k,): k demands to try on every link. The answer is of shape
        (vertices, k); k is 1 without ``more``.
        """
        certain, mean, variance = (
            known[level][:, None] / GRAIN for known in (self._certain, self._mean, self._variance)
        )
        if more is not None:
            sure = more.variance == 0
            certain = certain + np.where(sure, more.mean, 0.0)
            mean = mean + np.where(sure, 0.0, more.mean)
            variance = variance + more.variance
        used: Numbers = certain + mean + self.quantile * np.sqrt(variance)
        return used / self.tree.capacity[level]

    def allowed(self, level: int, more: Demands | None = None) -> Numbers:
        """``occupancy`` where the promises would hold, infinity where they would not."""
        occupancy = self.occupancy(level, more)
        certain = self._variance[level][:, None] == 0
        if more is not None:
            certain = certain & (more.variance == 0)
        return np.where((occupancy < 1) | (certain & (occupancy <= 1)), occupancy, np.inf)
