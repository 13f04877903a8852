# SPDX-License-Identifier: Apache-2.0

"""The pods as a tenant sees them whose full leaves all use the same set of uplinks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress

from laas_service.domain.allocation import Shape
from laas_service.domain.lanes import (
    apart,
    at_least,
    preferring,
    side_by_side,
    spread,
    with_at_least,
)
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.pod_spines import PodSpines, SpinesOfPods
from laas_service.domain.search.spine_bounds import SpineBounds
from laas_service.domain.topology import Column, Topology

COST_OF_A_POD = 6
"""Units of work to count the full leaves of a pod that has no unusual leaf."""


class LeafNeeds:
    """What leaves of ``leaf_hosts`` hosts need that all use the mask ``uplinks`` of uplinks."""

    columns: Sequence[Column]
    """The columns of a pod; their bundles are reduced to ``uplinks``."""
    bundle_sizes: list[int]
    """By column, the number of uplinks in its bundle."""
    spare: list[int]
    """By plane, the number of ``uplinks`` that a full leaf can do without."""
    all_used: bool
    """Whether a full leaf needs all of ``uplinks``."""
    single_cables: bool
    """Whether a full leaf needs all uplinks, and uplink n leads to column n alone."""

    def __init__(self, topology: Topology, uplinks: int, leaf_hosts: int) -> None:
        self.topology = topology
        self.leaf_hosts = leaf_hosts
        self.taper, self.spine_taper = topology.taper
        planes = topology.plane_fields
        self.columns = topology.columns
        if uplinks != sum(planes):
            self.columns = [Column(n, p, b & uplinks, r) for n, p, b, r in topology.columns]
        self.bundle_sizes = [column.bundle.bit_count() for column in self.columns]
        width = self.uplinks_for(leaf_hosts)
        self.spare = [(uplinks & plane).bit_count() - width for plane in planes]
        self.all_used = not any(self.spare)
        self.single_cables = self.all_used and all(
            column.bundle == 1 << column.number for column in self.columns
        )
        self.lane = topology.lane
        self.ones = side_by_side([1] * len(self.columns), self.lane)
        """The lowest bit of each lane of ``PodSpines.lanes``."""
        self.preferring = preferring(len(self.columns), self.lane)
        self._spine_lanes: dict[int, int] = {}
        self._min_spines: dict[int, list[int]] = {}
        self._enough_spines: dict[int, Callable[[int], bool]] = {}
        self._one_more: dict[int, Callable[[int], int]] = {}
        self._marked: dict[int, int] = {}

    def uplinks_for(self, hosts: int) -> int:
        """The uplinks that ``hosts`` hosts on a leaf need in each plane."""
        return -(-hosts // self.taper)

    def spines_for(self, uplinks: int, column: Column) -> int:
        """The spine uplinks an L2 switch needs for ``uplinks`` uplinks of leaf groups."""
        return -(-uplinks * column.rails // self.spine_taper)

    def capacity(self, spines: int, column: Column) -> int:
        """The uplinks of leaf groups that a mask of spine uplinks can carry."""
        return spines.bit_count() * self.spine_taper // column.rails

    def min_spines(self, leaves: int) -> list[int]:
        """By column, the spine uplinks that ``leaves`` full leaves of a pod need at least."""
        if leaves not in self._min_spines:
            self._min_spines[leaves] = [
                self.spines_for(leaves * max(0, size - self.spare[column.plane]), column)
                for size, column in zip(self.bundle_sizes, self.columns, strict=True)
            ]
        return self._min_spines[leaves]

    def spine_counts(self, shape: Shape, uplinks: int, leaf_uplinks: int) -> tuple[int, int]:
        """The numbers of spine uplinks that a full pod and the remainder pod take, as lanes.

        The full leaves have ``uplinks``, the remainder leaf ``leaf_uplinks``.
        """
        if self.single_cables and self.topology.rails == 1:
            full, rest = self._lanes_for(shape.leaves), self._lanes_for(shape.remainder_leaves)
            if leaf_uplinks and self._lanes_for(shape.remainder_leaves + 1) != rest:
                rest += spread(leaf_uplinks, self.lane)
            return full, rest
        full_counts, rest_counts = [], []
        for column in self.columns:
            taken = (column.bundle & uplinks).bit_count()
            rest = taken * shape.remainder_leaves + (column.bundle & leaf_uplinks).bit_count()
            full_counts.append(self.spines_for(taken * shape.leaves, column))
            rest_counts.append(self.spines_for(rest, column))
        return side_by_side(full_counts, self.lane), side_by_side(rest_counts, self.lane)

    def _lanes_for(self, leaves: int) -> int:
        """``spines_for`` one uplink of so many leaves, the same in each lane."""
        lanes = self._spine_lanes.get(leaves)
        if lanes is None:
            lanes = self.spines_for(leaves, self.columns[0]) * self.ones
            self._spine_lanes[leaves] = lanes
        return lanes

    def enough_spines(self, leaves: int) -> Callable[[int], bool]:
        """A test whether spine uplinks, as ``PodSpines.lanes``, are ``min_spines(leaves)``."""
        if leaves not in self._enough_spines:
            self._enough_spines[leaves] = at_least(tuple(self.min_spines(leaves)), self.lane)
        return self._enough_spines[leaves]

    def remainder_uplinks(self, leaves: int, lanes: int) -> int:
        """The uplinks of columns that carry ``leaves`` full leaves and one uplink more.

        ``lanes`` are the spine uplinks of the pod, as ``PodSpines.lanes``.
        """
        if leaves not in self._one_more:
            needs = tuple(
                self.spines_for(leaves * max(0, size - self.spare[column.plane]) + 1, column)
                for size, column in zip(self.bundle_sizes, self.columns, strict=True)
            )
            self._one_more[leaves] = with_at_least(needs, self.lane)
        marked = self._one_more[leaves](lanes)
        if marked not in self._marked:
            self._marked[marked] = sum(
                column.bundle
                for column in self.columns
                if marked >> column.number * self.lane + self.lane - 1 & 1
            )
        return self._marked[marked]


@dataclass(slots=True)
class NeedsOfLeaves:
    """``LeafNeeds`` of leaves that may use all uplinks, kept with a ledger (``reader_cache``)."""

    _by_hosts: dict[int, LeafNeeds] = field(default_factory=dict, compare=False)

    def of(self, topology: Topology, leaf_hosts: int) -> LeafNeeds:
        """The needs of leaves of ``leaf_hosts`` hosts."""
        needs = self._by_hosts.get(leaf_hosts)
        if needs is None:
            needs = LeafNeeds(topology, sum(topology.plane_fields), leaf_hosts)
            self._by_hosts[leaf_hosts] = needs
        return needs

    def copy(self) -> NeedsOfLeaves:
        return self  # it depends on the topology alone

    def __reduce__(self) -> tuple[type[NeedsOfLeaves], tuple[()]]:
        return NeedsOfLeaves, ()  # functions cannot be pickled, and are made again


class PodView:
    """The pods for a tenant with ``leaf_hosts`` hosts on each full leaf.

    All full leaves use the same uplinks, taken from the mask ``uplinks`` (one field of w2
    bits a plane). A leaf group *fits* if it has ``leaf_hosts`` free hosts and all of
    ``uplinks`` free. Fitting groups are interchangeable, so a pod is described by the number
    of its fitting groups and by the free spine uplinks of its L2 switches. "Full leaves" are
    all leaves of the tenant but the remainder leaf.
    """

    fitting: list[int]
    """By pod, the bit set of its fitting leaf groups, by number in the pod."""
    counts: list[int]
    """By pod, the number of its fitting leaf groups."""
    with_leaves: list[int]
    """The pods with a fitting group; first those with few of them, then with few free hosts."""
    leaves: list[int]
    """``counts`` of the pods in ``with_leaves``: they ascend."""

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
        self.planes = topology.plane_fields
        if uplinks == sum(self.planes):
            self.needs = fabric.reader_cache(NeedsOfLeaves).of(topology, leaf_hosts)
        else:
            self.needs = LeafNeeds(topology, uplinks, leaf_hosts)
        self.columns = self.needs.columns
        self.bundle_sizes = self.needs.bundle_sizes
        self.spare = self.needs.spare
        self.all_used = self.needs.all_used
        self.uplinks_for = self.needs.uplinks_for
        self.spines_for = self.needs.spines_for
        self.capacity = self.needs.capacity
        self.min_spines = self.needs.min_spines
        self.fitting = self._fitting_groups()
        self.counts = counts = list(map(int.bit_count, self.fitting))
        self.with_leaves = list(compress(range(topology.pods), counts))
        self.with_leaves.sort(key=fabric.pod_free_hosts.__getitem__)
        self.with_leaves.sort(key=counts.__getitem__)  # keeps the order of equal counts
        self.leaves = list(map(counts.__getitem__, self.with_leaves))
        budget.spend(COST_OF_A_POD * topology.pods)
        self._spines_of_pods = fabric.reader_cache(SpinesOfPods)
        self._spines: dict[int, PodSpines] = {}
        self._all_pods: list[int] | None = None

    def _fitting_groups(self) -> list[int]:
        """``fitting``, with the uplinks checked only where one may be missing.

        Owners of uplinks own hosts below them. So a group whose hosts are all free misses an
        uplink only if it is odd (``Ledger.odd_groups``).
        """
        fabric, uplinks, leaf_hosts = self.fabric, self.uplinks, self.leaf_hosts
        groups_by_free = fabric.pod_groups_by_free
        if leaf_hosts == fabric.topology.hosts_per_group and not any(fabric.odd_groups):
            return [by_free[-1] for by_free in groups_by_free]
        fitting_groups, first = [], 0
        for by_free, odd in zip(groups_by_free, fabric.odd_groups, strict=True):
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

    def pod_spines(self, pod: int) -> PodSpines:
        """The free spine uplinks of a pod."""
        spines = self._spines.get(pod)
        if spines is None:
            spines = self._spines[pod] = self._spines_of_pods.of(self.fabric, pod)
        return spines

    def spines(self, pod: int) -> Sequence[int]:
        """The masks of the free spine uplinks of a pod, by column."""
        return self.masks(self.pod_spines(pod).lanes)

    def alike_spines(self, pod: int) -> int:
        """The mask of the spine uplinks that are free above all L2 indices of a pod."""
        return self.pod_spines(pod).alike

    def common_lanes(self, pods: Sequence[int]) -> int:
        """The spine uplinks that are free in all of ``pods``, as ``PodSpines.lanes``."""
        common = -1
        for pod in pods:
            common &= self.pod_spines(pod).lanes
        return common

    def masks(self, lanes: int) -> Sequence[int]:
        """The masks of spine uplinks in such lanes, by column."""
        return apart(lanes, len(self.columns), self.fabric.topology.lane)

    def pods_with(self, leaves: int) -> list[int]:
        """The pods with at least ``leaves`` fitting groups, those with few of them first."""
        if leaves:
            return self.with_leaves[bisect_left(self.leaves, leaves) :]
        if self._all_pods is None:
            others = [pod for pod, count in enumerate(self.counts) if not count]
            others.sort(key=self.fabric.pod_free_hosts.__getitem__)
            self._all_pods = others + self.with_leaves
        return self._all_pods

    def remainder_pods(self, shape: Shape) -> list[int]:
        """The pods with the leaves of the shape's remainder, in the same order.

        Spines are not checked.
        """
        leaves, hosts = shape.remainder_leaves, shape.remainder_hosts
        if not hosts:
            return self.pods_with(leaves)
        counts, free = self.counts, self.fabric.pod_free_hosts
        by_free = self.fabric.pod_groups_by_free
        return [
            pod
            for pod in self.pods_with(leaves)
            if counts[pod] > leaves
            or (free[pod] >= hosts and sum(by_free[pod][hosts:]).bit_count() > leaves)
        ]

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
