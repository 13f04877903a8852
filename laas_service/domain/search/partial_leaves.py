# SPDX-License-Identifier: Apache-2.0

"""The last step of a search: several pods, on leaves that are not full (least constrained).

For each number of hosts on a leaf, the largest first, there are many shapes. Most are ruled
out by bounds. The number of leaves of a pod that may share enough uplinks is bounded by
König's bound (``matching``). A shape needs enough pods with that many leaves, and these need
spines in common (``spine_bounds``). For the shapes that remain, the search tries every set of
uplinks that enough leaves share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add, or_

from laas_service.domain.allocation import Shape
from laas_service.domain.search.bicliques import BicliqueSpec, bicliques
from laas_service.domain.search.matching import KonigBound, konig_bounds
from laas_service.domain.search.multi_pod import MultiPod
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import Placement, multi_pod_shapes
from laas_service.domain.topology import bits


def on_partial_leaves(search: Search, hosts: int) -> Iterator[Placement]:
    """Placements of ``hosts`` hosts in several pods, with equally many hosts on each leaf.

    Fewer hosts than a leaf has, more on a leaf first, and one remainder leaf. Jigsaw, section
    3.2, conditions (1) to (6).
    """
    topology, budget = search.topology, search.budget
    if not budget.spend(topology.pods + topology.groups // 4):
        return
    leaves_seen = PartialLeaves(search)
    groups, pods, spine_taper = topology.groups_per_pod, topology.pods, topology.taper[1]
    for leaf_hosts in range(min(topology.slots, hosts) - 1, 0, -1):
        leaves, rest = divmod(hosts, leaf_hosts)
        shapes = search.allowed(
            multi_pod_shapes(leaves, rest, leaf_hosts, groups, pods, spine_taper)
        )
        counts = leaves_seen.counts[leaf_hosts]
        if not shapes or sum(counts) < leaves or not budget.spend(pods):
            continue
        descending = sorted(counts, reverse=True)
        if shapes := [shape for shape in shapes if _has_room(descending, shape)]:
            with budget.portion(4):
                yield from leaves_seen.placements(leaf_hosts, leaves, shapes)


class PartialLeaves:
    """The leaf groups of a fabric by the number of one tenant's hosts that each can have.

    A leaf group can have as many hosts as are free on it and as its free uplinks carry.
    """

    counts: list[list[int]]
    """``counts[n][pod]``: the number of leaf groups of a pod that can have n hosts."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._fabric = search.fabric
        self._topology = search.topology
        self._capacities = self._leaf_capacities()
        self.counts = self._count_leaves()
        self._bounds: dict[tuple[int, ...], list[KonigBound]] = {}

    def _leaf_capacities(self) -> list[list[tuple[int, int]]]:
        """By pod, (hosts that it can have, number in the pod) of each leaf group, best fit first.

        Groups without a free host are left out. Pods that look alike have the same list
        object.
        """
        fabric, width = self._fabric, self._topology.groups_per_pod
        taper, _ = self._topology.taper
        known: dict[tuple[tuple[int, ...], ...], list[tuple[int, int]]] = {}
        capacities = []
        for pod, by_free in enumerate(fabric.pod_groups_by_free):
            uplinks = tuple(fabric.free_uplinks[pod * width : (pod + 1) * width])
            key = tuple(by_free), uplinks
            if key not in known:
                known[key] = [
                    (min(free, taper * self._fewest_in_a_plane(uplinks[local])), local)
                    for free, groups in enumerate(by_free[1:], 1)
                    for local in bits(groups)
                ]
            capacities.append(known[key])
        return capacities

    def _fewest_in_a_plane(self, uplinks: int) -> int:
        planes = self._topology.plane_fields
        if len(planes) == 1:
            return uplinks.bit_count()
        return min((uplinks & plane).bit_count() for plane in planes)

    def _count_leaves(self) -> list[list[int]]:
        counts = [[0] * self._topology.pods for _ in range(self._topology.slots + 1)]
        for pod, groups in enumerate(self._capacities):
            for capacity, _ in groups:
                counts[capacity][pod] += 1
        for hosts in range(len(counts) - 2, -1, -1):
            counts[hosts] = list(map(add, counts[hosts], counts[hosts + 1]))
        return counts

    def placements(
        self, leaf_hosts: int, leaves: int, shapes: Sequence[Shape]
    ) -> Iterator[Placement]:
        """Placements of these shapes, which all have ``leaves`` leaves of ``leaf_hosts`` hosts.

        The leaves of a placement have uplinks in common, so they lie in one biclique of all
        leaf groups with room. All common uplinks of each biclique are tried.
        """
        width = self._search.uplinks_for(leaf_hosts)
        fewest = min(min(shape.leaves, shape.remainder_leaves or shape.leaves) for shape in shapes)
        bound_of: dict[int, int] = {}
        bounds = []
        for pod, count in enumerate(self.counts[leaf_hosts]):
            looks = id(self._capacities[pod])
            if count >= fewest and looks not in bound_of:
                bound_of[looks] = self._most_leaves(pod, leaf_hosts, width)
            bounds.append(bound_of[looks] if count >= fewest else 0)
        shapes = [shape for shape in shapes if self._may_fit(bounds, shape, width)]
        if not shapes:
            return
        groups = [
            pod * self._topology.groups_per_pod + local
            for pod, bound in enumerate(bounds)
            for capacity, local in (self._capacities[pod] if bound >= fewest else ())
            if capacity >= leaf_hosts
        ]
        yield from self._on_bicliques(leaf_hosts, width, leaves, shapes, groups)

    def _on_bicliques(
        self, leaf_hosts: int, width: int, leaves: int, shapes: Sequence[Shape], groups: list[int]
    ) -> Iterator[Placement]:
        """Placements on the bicliques of these leaf groups, each set of common uplinks once."""
        search, uplinks = self._search, self._fabric.free_uplinks
        pod_of = [group // self._topology.groups_per_pod for group in groups]

        def feasible(left: list[int]) -> bool:
            counts = [0] * self._topology.pods
            for row in left:
                counts[pod_of[row]] += 1
            counts.sort(reverse=True)
            return any(_has_room(counts, shape) for shape in shapes)

        needs = [(plane, width) for plane in self._topology.plane_fields]
        spec = BicliqueSpec(leaves, needs, search.has_uplinks(width), feasible=feasible)
        tried = set()
        for biclique, common in bicliques([uplinks[g] for g in groups], spec, search.budget):
            if common in tried or not search.budget.spend(len(biclique)):
                continue
            tried.add(common)
            several_pods = MultiPod(search, common, leaf_hosts)
            for shape in shapes:
                yield from several_pods.placements(shape)

    def _most_leaves(self, pod: int, leaf_hosts: int, width: int) -> int:
        """A bound on the leaves of one pod that share ``width`` uplinks in each plane."""
        uplinks, first = self._fabric.free_uplinks, pod * self._topology.groups_per_pod
        groups = [first + local for room, local in self._capacities[pod] if room >= leaf_hosts]
        most = len(groups)
        for plane in self._topology.plane_fields:
            rows = tuple(uplinks[group] & plane for group in groups)
            if rows not in self._bounds:
                self._bounds[rows] = konig_bounds(rows, self._search.budget)
            if reduce(or_, rows).bit_count() < width:
                return 0
            most = min(most, *(bound.most_rows(width) for bound in self._bounds[rows]))
        return most

    def _may_fit(self, bounds: list[int], shape: Shape, width: int) -> bool:
        """Whether the bounds allow the shape on pods with at most so many leaves each."""
        search = self._search
        if not _has_room(sorted(bounds, reverse=True), shape):
            return False
        columns = self._fabric.topology.columns
        need = -(-shape.leaves * min(column.rails for column in columns) // self._topology.taper[1])
        widest = max(column.bundle.bit_count() for column in columns)
        among = sum(1 << pod for pod, bound in enumerate(bounds) if bound >= shape.leaves)
        columns_used = len(self._topology.plane_fields) * -(-width // widest)
        return bool(search.spine_bounds.candidates(among, shape.pods, need, columns_used))


def _has_room(counts: Sequence[int], shape: Shape) -> bool:
    """Whether the shape fits pods with so many leaves each; ``counts`` descend."""
    if counts[shape.pods - 1] < shape.leaves:
        return False
    more = shape.remainder_leaves
    return not more or (len(counts) > shape.pods and counts[shape.pods] >= more)
