# SPDX-License-Identifier: Apache-2.0

"""The pods as a tenant sees them whose full leaves all use the same set of uplinks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from laas_service.domain.allocation import Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.spine_bounds import SpineBounds
from laas_service.domain.topology import Column

COST_OF_A_POD = 6
"""Units of work to count the full leaves of a pod that has no unusual leaf."""


class PodView:
    """The pods for a tenant with ``leaf_hosts`` hosts on each full leaf.

    All full leaves use the same uplinks, taken from the mask ``uplinks`` (one field of w2
    bits a plane). A leaf group *fits* if it has ``leaf_hosts`` free hosts and all of
    ``uplinks`` free. Fitting groups are interchangeable, so a pod is described by the number
    of its fitting groups and by the free spine uplinks of its L2 switches. "Full leaves" are
    all leaves of the tenant but the remainder leaf.
    """

    columns: Sequence[Column]
    """The columns of a pod; their bundles are reduced to ``uplinks``."""
    bundle_sizes: list[int]
    """By column, the number of uplinks in its bundle."""
    spare: list[int]
    """By plane, the number of ``uplinks`` that a full leaf can do without."""
    all_used: bool
    """Whether a full leaf needs all of ``uplinks``."""
    fitting: list[int]
    """By pod, the bit set of its fitting leaf groups, by number in the pod."""
    counts: list[int]
    """By pod, the number of its fitting leaf groups."""
    order: list[int]
    """All pods; first those with few fitting groups, then those with few free hosts."""

    def __init__(
        self,
        fabric: LedgerView,
        budget: SearchBudget,
        spine_bounds: SpineBounds,
        uplinks: int,
        leaf_hosts: int,
    ) -> None:
        topology = fabric.topology
        self.fabric = fabric
        self.budget = budget
        self.spine_bounds = spine_bounds
        self.uplinks = uplinks
        self.leaf_hosts = leaf_hosts
        self.groups_per_pod = topology.groups_per_pod
        self.taper, self.spine_taper = topology.taper
        self.planes = topology.plane_fields
        self.columns = topology.columns
        if uplinks != sum(self.planes):
            self.columns = [Column(n, p, b & uplinks, r) for n, p, b, r in topology.columns]
        self.bundle_sizes = [column.bundle.bit_count() for column in self.columns]
        width = self.uplinks_for(leaf_hosts)
        self.spare = [(uplinks & plane).bit_count() - width for plane in self.planes]
        self.all_used = not any(self.spare)
        self.fitting = self._fitting_groups()
        self.counts = [groups.bit_count() for groups in self.fitting]
        free = fabric.pod_free_hosts
        self.order = sorted(range(topology.pods), key=lambda pod: (self.counts[pod], free[pod]))
        budget.spend(COST_OF_A_POD * topology.pods)
        self._spines: dict[int, Sequence[int]] = {}
        self._alike_spines: dict[int, int] = {}
        self._min_spines: dict[int, list[int]] = {}

    def _fitting_groups(self) -> list[int]:
        """``fitting``, with the uplinks checked only where one may be missing.

        Owners of uplinks own hosts below them. So a group whose hosts are all free misses an
        uplink only if it is odd (``Ledger.odd_groups``).
        """
        fabric, uplinks, leaf_hosts = self.fabric, self.uplinks, self.leaf_hosts
        fitting_groups, first = [], 0
        for by_free, odd in zip(fabric.pod_groups_by_free, fabric.odd_groups, strict=True):
            to_check = sum(by_free[leaf_hosts:-1])
            fitting = to_check | by_free[-1]
            to_check |= by_free[-1] & odd
            while to_check:
                low = to_check & -to_check
                to_check ^= low
                if uplinks & ~fabric.free_uplinks[first + low.bit_length() - 1]:
                    fitting ^= low
            fitting_groups.append(fitting)
            first += self.groups_per_pod
        return fitting_groups

    def uplinks_for(self, hosts: int) -> int:
        """The uplinks that ``hosts`` hosts on a leaf need in each plane."""
        return -(-hosts // self.taper)

    def spines_for(self, uplinks: int, column: Column) -> int:
        """The spine uplinks an L2 switch needs for ``uplinks`` uplinks of leaf groups."""
        return -(-uplinks * column.rails // self.spine_taper)

    def capacity(self, spines: int, column: Column) -> int:
        """The uplinks of leaf groups that a mask of spine uplinks can carry."""
        return spines.bit_count() * self.spine_taper // column.rails

    def spines(self, pod: int) -> Sequence[int]:
        """The masks of the free spine uplinks of a pod, by column."""
        if pod not in self._spines:
            width = len(self.columns)
            self._spines[pod] = self.fabric.free_spines[pod * width : (pod + 1) * width]
        return self._spines[pod]

    def alike_spines(self, pod: int) -> int:
        """The mask of the spine uplinks that are free above all L2 indices of a pod."""
        if pod not in self._alike_spines:
            self._alike_spines[pod] = reduce(and_, self.spines(pod))
        return self._alike_spines[pod]

    def common_spines(self, pods: list[int]) -> list[int]:
        """The masks of the spine uplinks that are free in all of ``pods``, by column."""
        return [reduce(and_, masks) for masks in zip(*map(self.spines, pods), strict=True)]

    def min_spines(self, leaves: int) -> list[int]:
        """By column, the spine uplinks that ``leaves`` full leaves of a pod need at least."""
        if leaves not in self._min_spines:
            self._min_spines[leaves] = [
                self.spines_for(leaves * max(0, size - self.spare[column.plane]), column)
                for size, column in zip(self.bundle_sizes, self.columns, strict=True)
            ]
        return self._min_spines[leaves]

    def pods_with(self, leaves: int) -> list[int]:
        """The pods with at least ``leaves`` fitting groups, in ``order``."""
        return [pod for pod in self.order if self.counts[pod] >= leaves]

    def has_remainder(self, pod: int, shape: Shape) -> bool:
        """Whether a pod has the leaves of the shape's remainder; spines are not checked."""
        if self.counts[pod] < shape.remainder_leaves:
            return False
        if not shape.remainder_hosts:
            return True
        roomy = 0
        for groups in self.fabric.pod_groups_by_free[pod][shape.remainder_hosts :]:
            roomy |= groups
        return roomy.bit_count() > shape.remainder_leaves

    def remainder_leaves(self, shape: Shape, pod: int) -> list[int]:
        """The groups of a pod that can be the remainder leaf, best fit first.

        Each has enough free hosts and leaves enough fitting groups for the full leaves of
        the remainder pod. Uplinks are not checked.
        """
        first, fitting = pod * self.groups_per_pod, self.fitting[pod]
        others = self.counts[pod] - shape.remainder_leaves
        return [
            group
            for group in self.fabric.groups_with_room(pod, shape.remainder_hosts)
            if others >= (fitting >> group - first & 1)
        ]
