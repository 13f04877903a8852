# SPDX-License-Identifier: Apache-2.0

"""Virtual clusters: virtual machines with demands for bandwidth, and where they are embedded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
"""An array of floats."""
Whole = NDArray[np.int64]
"""An array of whole numbers."""


class Demand(NamedTuple):
    """A normally distributed demand for bandwidth, in the unit of the tree's capacities."""

    mean: float
    variance: float = 0.0
    """0 is a certain (deterministic) demand."""


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
