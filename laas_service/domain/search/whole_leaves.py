# SPDX-License-Identifier: Apache-2.0

"""Full leaf groups of several pods, placed or refused without a search.

Nearly always the first shape for which enough pods have enough leaves is placed on the pods that a
greedy choice finds, or no set of pods has the spines of any shape. Then the objects of a search
cost more than its steps.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from laas_service.domain.allocation import PackedColumns, PodLanes, Shape, group_shares
from laas_service.domain.lanes import in_every_lane
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import bits_of_at_least, greedy_biclique
from laas_service.domain.search.pod_view import LeafNeeds, NeedsOfLeaves
from laas_service.domain.search.shapes import Placement, multi_pod_shapes
from laas_service.domain.topology import Topology


class Unplaced(enum.Enum):
    """Why there is no placement."""

    NONE = "none"
    """No set of pods has a shape."""
    UNKNOWN = "unknown"
    """Only a search can tell."""


class WholeLeaves(NamedTuple):
    """The pods by their leaf groups all of whose hosts are free; none misses an uplink."""

    topology: Topology
    needs: LeafNeeds
    full: list[int]
    """By pod, the bit set of these groups, by number in the pod."""
    lanes: list[int]
    """By pod, its free spine uplinks, as ``LedgerView.free_lanes``."""
    pods: list[int]
    """The pods with such groups: first those with few of them, then with few free hosts."""
    counts: list[int]
    """How many groups each of ``pods`` has, ascending."""

    @classmethod
    def of(cls, fabric: LedgerView) -> WholeLeaves:
        """Those of a fabric now."""
        topology = fabric.topology
        full = list(map(itemgetter(-1), fabric.pod_groups_by_free))
        by_count = sorted(
            [
                (groups.bit_count(), free, pod)
                for pod, (groups, free) in enumerate(zip(full, fabric.pod_free_hosts, strict=True))
                if groups
            ]
        )
        needs = fabric.reader_cache(NeedsOfLeaves).of(topology, topology.hosts_per_group)
        pods, counts = [pod for _, _, pod in by_count], [count for count, _, _ in by_count]
        return cls(topology, needs, full, list(fabric.free_lanes), pods, counts)

    def ordered_by(self, free: Sequence[int]) -> bool:
        """Whether by these numbers of free hosts the pods have the same order."""
        keys = [(count, free[pod], pod) for count, pod in zip(self.counts, self.pods, strict=True)]
        return keys == sorted(keys)

    def place(self, leaves: int) -> Placement | Unplaced:
        """The placement of so many leaves that a search finds first, if a greedy choice has it."""
        if not self.needs.all_used:
            return Unplaced.UNKNOWN
        topology = self.topology
        groups, pods, taper = topology.groups_per_pod, topology.pods, topology.taper[1]
        counts, most = self.counts, len(self.counts)
        for shape in multi_pod_shapes(leaves, 0, topology.hosts_per_group, groups, pods, taper):
            at = bisect_left(counts, shape.leaves)
            if most - at >= shape.pods:
                answer = self._of_shape(shape, self.pods[at:])
                if answer is not Unplaced.NONE:
                    return answer
        return Unplaced.NONE

    def _of_shape(self, shape: Shape, pods: list[int]) -> Placement | Unplaced:
        """The same of one shape, whose full pods are among ``pods``."""
        chosen = self._full_pods(shape, pods)
        if isinstance(chosen, Unplaced):
            return chosen
        placement = self._beside(shape, chosen)
        if placement is not None:
            return placement
        if shape.pods > 1:
            return Unplaced.UNKNOWN
        enough = self.needs.enough_spines(shape.leaves)
        for pod in pods:
            if enough(self.lanes[pod]) and (placement := self._beside(shape, [pod])):
                return placement
        return Unplaced.NONE

    def _full_pods(self, shape: Shape, pods: list[int]) -> list[int] | Unplaced:
        """The first set of full pods of a shape in ``full_pod_sets``, if it is a greedy one.

        That is one with the same spines in common above all L2 switches, else one with enough
        spines above each.
        """
        needs, topology, count = self.needs, self.topology, shape.pods
        columns, lane = topology.columns_per_pod, topology.lane
        free, most = self.lanes, max(needs.min_spines(shape.leaves))
        common, chosen = -1, list[int]()
        for pod in pods:
            shared = common & in_every_lane(free[pod], columns, lane)
            if shared.bit_count() >= most:
                common = shared
                chosen.append(pod)
                if len(chosen) == count:
                    return chosen
        enough, rows = needs.enough_spines(shape.leaves), [free[pod] for pod in pods]
        if greedy := greedy_biclique(rows, count, enough):
            return [pods[row] for row in greedy[0]]
        if count == 1 or not enough(bits_of_at_least(count, rows)):
            return Unplaced.NONE
        return Unplaced.UNKNOWN

    def _beside(self, shape: Shape, full: list[int]) -> Placement | None:
        """The placement on these full pods and the first remainder pod that fits, if any."""
        needs, common = self.needs, -1
        for pod in full:
            common &= self.lanes[pod]
        alike = in_every_lane(common, self.topology.columns_per_pod, self.topology.lane)
        count, rest_count = needs.spine_counts(shape, sum(self.topology.plane_fields), 0)
        if not shape.remainder_leaves:
            return self._on(shape, full, needs.preferring(common, alike, count), ())
        enough = needs.enough_spines(shape.remainder_leaves)
        for pod in self.pods[bisect_left(self.counts, shape.remainder_leaves) :]:
            below = common & self.lanes[pod]
            if pod not in full and enough(below):
                rest = needs.preferring(below, alike, rest_count)
                more = needs.preferring(common ^ rest, alike, count - rest_count)
                return self._on(shape, full, rest | more, (PodLanes(pod, rest),))
        return None

    def _on(
        self, shape: Shape, full: list[int], spines: int, remainder: Sequence[PodLanes]
    ) -> Placement:
        """The placement on the lowest groups of each pod, with these spine uplinks."""
        topology, groups = self.topology, list[int]()
        width, hosts = topology.groups_per_pod, (1 << topology.hosts_per_group) - 1
        uplinks = sum(topology.plane_fields)
        for pod in full:
            groups += _lowest(self.full[pod], shape.leaves, pod * width)
        for pod, _ in remainder:
            groups += _lowest(self.full[pod], shape.remainder_leaves, pod * width)
        groups.sort()
        lanes = [*[PodLanes(pod, spines) for pod in full], *remainder]
        lanes.sort()
        shares = tuple(group_shares([(group, hosts, uplinks) for group in groups]))
        return Placement(shares, PackedColumns(tuple(lanes), topology.lane), shape)


def _lowest(groups: int, count: int, first: int) -> list[int]:
    """The lowest of a bit set of groups of a pod whose first group is ``first``."""
    lowest = []
    for _ in range(count):
        low = groups & -groups
        lowest.append(first + low.bit_length() - 1)
        groups ^= low
    return lowest
