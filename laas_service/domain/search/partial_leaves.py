# SPDX-License-Identifier: Apache-2.0

"""Placements over several pods on leaves that are not full: least constrained.

For each number of hosts on a leaf, the thickest first, there are many shapes; most
are refused by counting. A pod is as good as the leaves in it that may share enough
uplinks (König's bound, see ``blocks``); a shape needs enough pods as good as that,
and these need spines in common (see ``spines``). For the shapes that are left
all sets of uplinks that enough leaves share are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, or_

from laas_service.domain.allocation import Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import Budget, Wanted, blocks, konig
from laas_service.domain.search.multi_pod import AcrossPods
from laas_service.domain.search.shapes import Placement, tree_shapes
from laas_service.domain.search.spine_bounds import Spines
from laas_service.domain.topology import bits


class ThinLeaves:
    """Leaf groups by how many hosts of one tenant each can have, hosts and uplinks counted."""

    def __init__(
        self,
        fabric: LedgerView,
        budget: Budget,
        sharing: Spines,
        seen_across: Callable[[int, int], AcrossPods],
    ) -> None:
        self.fabric = fabric
        self.budget = budget
        self.sharing = sharing
        self.seen_across = seen_across
        topology = fabric.topology
        self.planes = topology.plane_fields
        self.taper, self.spine_taper = topology.tree.taper
        self.pods = topology.pods
        self._reach: list[list[tuple[int, int]]] = []
        self._counts: list[list[int]] = []
        self._bounds: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}

    def place(
        self, hosts: int, allowed: Callable[[Sequence[Shape]], Sequence[Shape]]
    ) -> Placement | None:
        """Any shape of ``hosts`` hosts over several pods whose leaves are not full.

        Jigsaw, conditions (1) to (6). Of the shapes for leaves of equal size only those
        are looked for that ``allowed`` returns.
        """
        topology = self.fabric.topology
        if not self.budget.spend(self.pods + topology.groups // 4):
            return None
        self._reach = self._reaches()
        self._counts = self._count()
        width = topology.groups_per_pod
        for thin in range(min(topology.slots, hosts) - 1, 0, -1):
            leaves, rest = divmod(hosts, thin)
            every = allowed(tree_shapes(leaves, rest, thin, width, self.pods, self.spine_taper))
            counts = self._counts[thin]
            if not every or sum(counts) < leaves or not self.budget.spend(self.pods):
                continue
            counts = sorted(counts, reverse=True)
            shapes = [shape for shape in every if _room(counts, shape)]
            if shapes:
                with self.budget.keeping(4):
                    if placement := self._on_leaves(thin, leaves, shapes):
                        return placement
        return None

    def _reaches(self) -> list[list[tuple[int, int]]]:
        """By pod: how many hosts of a tenant each group with free hosts can have, by best fit.

        Groups are numbers in the pod; pods that are alike have one list.
        """
        fabric, width = self.fabric, self.fabric.topology.groups_per_pod
        known: dict[tuple[tuple[int, ...], ...], list[tuple[int, int]]] = {}
        reaches = []
        for pod, by_free in enumerate(fabric.pod_groups_by_free):
            uplinks = tuple(fabric.free_uplinks[pod * width : (pod + 1) * width])
            key = tuple(by_free), uplinks
            if key not in known:
                known[key] = [
                    (min(free, self.taper * self._narrowest(uplinks[local])), local)
                    for free, groups in enumerate(by_free[1:], 1)
                    for local in bits(groups)
                ]
            reaches.append(known[key])
        return reaches

    def _narrowest(self, uplinks: int) -> int:
        if len(self.planes) == 1:
            return uplinks.bit_count()
        return min((uplinks & field).bit_count() for field in self.planes)

    def _count(self) -> list[list[int]]:
        """For each number of hosts, how many leaf groups of each pod can have as many."""
        counts = [[0] * self.pods for _ in range(self.fabric.topology.slots + 1)]
        for pod, groups in enumerate(self._reach):
            for reach, _ in groups:
                counts[reach][pod] += 1
        for thin in range(len(counts) - 2, -1, -1):
            counts[thin] = list(map(add, counts[thin], counts[thin + 1]))
        return counts

    def _on_leaves(self, thin: int, leaves: int, shapes: Sequence[Shape]) -> Placement | None:
        """One of these shapes, all of ``leaves`` leaves of ``thin`` hosts and a remainder.

        The leaves have uplinks in common, so those of a placement lie in a block of
        all leaves with room; the widest uplinks of each block are tried.
        """
        width = -(-thin // self.taper)
        least = min(min(shape.leaves, shape.remainder_leaves or shape.leaves) for shape in shapes)
        most: dict[int, int] = {}
        counts = []
        for pod, count in enumerate(self._counts[thin]):
            like = id(self._reach[pod])
            if count >= least and like not in most:
                most[like] = self._most_leaves(pod, thin, width)
            counts.append(most[like] if count >= least else 0)
        shapes = [shape for shape in shapes if self._may_fit(counts, shape, width)]
        if not shapes:
            return None
        groups = [
            pod * self.fabric.topology.groups_per_pod + local
            for pod, count in enumerate(counts)
            for reach, local in (self._reach[pod] if count >= least else ())
            if reach >= thin
        ]
        return self._on_blocks(thin, width, leaves, shapes, groups)

    def _on_blocks(
        self, thin: int, width: int, leaves: int, shapes: Sequence[Shape], groups: list[int]
    ) -> Placement | None:
        fabric = self.fabric
        per_pod = fabric.topology.groups_per_pod
        pod_of = [group // per_pod for group in groups]

        def enough(uplinks: int) -> bool:
            return all((uplinks & field).bit_count() >= width for field in self.planes)

        def plausible(left: list[int]) -> bool:
            counts = [0] * self.pods
            for row in left:
                counts[pod_of[row]] += 1
            counts.sort(reverse=True)
            return any(_room(counts, shape) for shape in shapes)

        needs = [(field, width) for field in self.planes]
        wanted = Wanted(leaves, needs, enough, plausible=plausible)
        tried = set()
        for block, common in blocks([fabric.free_uplinks[g] for g in groups], wanted, self.budget):
            if common in tried or not self.budget.spend(len(block)):
                continue
            tried.add(common)
            view = self.seen_across(common, thin)
            for shape in shapes:
                if placement := view.place(shape):
                    return placement
        return None

    def _most_leaves(self, pod: int, thin: int, width: int) -> int:
        """A bound on the leaves of one pod that share ``width`` uplinks in each plane."""
        uplinks = self.fabric.free_uplinks
        first = pod * self.fabric.topology.groups_per_pod
        groups = [first + local for reach, local in self._reach[pod] if reach >= thin]
        most = len(groups)
        for field in self.planes:
            rows = tuple(uplinks[group] & field for group in groups)
            if rows not in self._bounds:
                self._bounds[rows] = konig(rows, self.budget)
            if reduce(or_, rows).bit_count() < width:
                return 0
            for x, y, total in self._bounds[rows]:
                most = min(most, max(0, (total - y * width) // x))
        return most

    def _may_fit(self, counts: list[int], shape: Shape, width: int) -> bool:
        """Whether the bounds allow the shape on pods with so many leaves each at most."""
        if not _room(sorted(counts)[::-1], shape):
            return False
        columns = self.fabric.topology.columns
        need = -(-shape.leaves * min(c.rails for c in columns) // self.spine_taper)
        wide = max(column.bundle.bit_count() for column in columns)
        among = sum(1 << pod for pod, count in enumerate(counts) if count >= shape.leaves)
        wanted = len(self.planes) * -(-width // wide)
        return bool(self.sharing.candidates(among, shape.pods, need, wanted))


def _room(counts: Sequence[int], shape: Shape) -> bool:
    """Whether pods with so many leaves each, the most first, have room for the shape."""
    if counts[shape.pods - 1] < shape.leaves:
        return False
    more = shape.remainder_leaves
    return not more or (len(counts) > shape.pods and counts[shape.pods] >= more)
