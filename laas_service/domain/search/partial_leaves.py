# SPDX-License-Identifier: Apache-2.0

"""The last step of a search: several pods, on leaves that are not full (least constrained).

For each number of hosts on a leaf, the largest first, there are many shapes. Most are ruled
out because no pods agree on uplinks and spines (``agreeing_pods``). Where pods agree, the uplinks
on which they agree are tried. Only where these do not suffice, or where it takes too long to find
out whether pods agree, a search among the leaves follows. Then most shapes are ruled out by the
sets of uplinks that the leaves would share (``uplink_sets``): none passes. If some pass, a short
search among the leaves tries only bicliques with one of these sets; where it drags on, the sets
are tried one by one. Where there are too many sets to test, bounds come first: the number of
leaves of a pod that may share enough uplinks is bounded by König's bound (``matching``), and pods
with that many leaves need spines in common (``spine_bounds``). For the shapes that remain, the
search tries every set of uplinks that enough leaves share.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from math import comb, prod

from laas_service.domain.allocation import Shape
from laas_service.domain.search.agreeing_pods import AgreeingPods
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.leaf_bicliques import LeafBicliques
from laas_service.domain.search.misfits import LeafMisfits, SeenLeaves
from laas_service.domain.search.multi_pod import MultiPod
from laas_service.domain.search.pod_leaves import LeavesOfPods, PodLeaves
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import Placement, multi_pod_shapes
from laas_service.domain.search.uplink_sets import PassingSet, UplinkSets

WORK_TO_AGREE = 12_000
"""Units of work to look for pods that agree, for one shape. Few shapes need a tenth of them."""

PARTS_TO_AGREE = 4
"""Never more than 1 / ``PARTS_TO_AGREE`` of the work that is left."""

FEW_SETS = 4096
"""Up to so many sets of uplinks are all tested."""

WORK_FOR_FEW_SETS = 3_000
"""Units of work to test them, for one number of hosts on a leaf."""

WORK_FOR_MANY_SETS = 600
"""The same where there are more sets; halved each time that it was not enough."""

WORK_WITHOUT_BOUNDS = 1_000
"""Units of work of the search among leaves that comes before the bounds on spines."""

WORK_ON_SETS = 6_000
"""Units of work to look for a placement on each set of uplinks that passed."""


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
    for leaf_hosts in range(min(topology.hosts_per_group, hosts) - 1, 0, -1):
        leaves, rest = divmod(hosts, leaf_hosts)
        shapes = search.allowed(
            multi_pod_shapes(leaves, rest, leaf_hosts, groups, pods, spine_taper)
        )
        counts = leaves_seen.counts(leaf_hosts)
        if not shapes or sum(counts) < leaves or not budget.spend(pods):
            continue
        descending = sorted(counts, reverse=True)
        if shapes := [shape for shape in shapes if _has_room(descending, shape)]:
            yield from leaves_seen.placements_unless_refused(leaf_hosts, leaves, rest, shapes)


class PartialLeaves:
    """The leaf groups of a fabric by the number of one tenant's hosts that each can have."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._fabric = search.fabric
        self._topology = search.topology
        self._pods = search.fabric.reader_cache(LeavesOfPods).now(search.fabric)
        self._misfits = search.fabric.reader_cache(LeafMisfits)
        self._proved = self._tried = False
        """Whether the last ``placements`` are all there are, and full leaves were found."""
        self._bounds_paid: set[tuple[int, int]] = set()
        self._work_for_many_sets = WORK_FOR_MANY_SETS

    @cached_property
    def _uplink_sets(self) -> UplinkSets:
        return UplinkSets(self._fabric, self._pods, self._search.budget)

    @cached_property
    def _agreeing(self) -> AgreeingPods:
        return AgreeingPods(self._fabric, self._pods, self._search.budget)

    def counts(self, leaf_hosts: int) -> list[int]:
        """By pod, the number of leaf groups that can have so many hosts."""
        return [pod.counts[leaf_hosts] for pod in self._pods]

    @cached_property
    def _seen(self) -> SeenLeaves:
        rooms = tuple([pod.room for pod in self._pods])
        return SeenLeaves(rooms, tuple(self._fabric.free_lanes))

    def placements_unless_refused(
        self, leaf_hosts: int, leaves: int, rest: int, shapes: Sequence[Shape]
    ) -> Iterator[Placement]:
        """``placements``, but none if an earlier search proved that there are none.

        Of a request without constraints ``shapes`` are all that have room. Only of these
        requests refusals are remembered, and only if the budget was enough for a proof.
        """
        misfits, seen = self._misfits, self._seen
        if misfits.refuse(leaf_hosts, leaves, rest, seen):
            if not self._few_sets(self._topology.uplinks_for(leaf_hosts)):
                self._work_for_many_sets //= 2
            return
        found, self._proved, self._tried = False, False, False
        for placement in self.placements(leaf_hosts, leaves, shapes):
            found = True
            yield placement
        asked = self._search.request
        plain = asked.constraints is None and asked.grain is None
        if self._proved and not found and leaves > 1 and plain:
            misfits.remember(leaf_hosts, leaves, rest, seen, before_rest=not self._tried)

    def placements(
        self, leaf_hosts: int, leaves: int, shapes: Sequence[Shape]
    ) -> Iterator[Placement]:
        """Placements of these shapes, which all have ``leaves`` leaves of ``leaf_hosts`` hosts.

        The leaves of a placement have uplinks in common, so they lie in one biclique of all
        leaf groups with room. All common uplinks of each biclique are tried.
        """
        budget, width = self._search.budget, self._topology.uplinks_for(leaf_hosts)
        shapes, agreeing = self._with_agreeing_pods(width, shapes)
        if not shapes:
            self._proved = True
            return
        if agreeing:
            with budget.attempt(WORK_ON_SETS, of_search=True):
                yield from self._on_sets(leaf_hosts, agreeing)
        sets = None if agreeing else self._passing_sets(leaf_hosts, width, leaves, shapes)
        if sets is not None and not sets:
            self._proved = True
            return
        fewest = min(min(shape.leaves, shape.remainder_leaves or shape.leaves) for shape in shapes)
        bounds = [self._at_most(pod, leaf_hosts, width, fewest) for pod in self._pods]
        shapes = self._with_room(bounds, shapes, leaf_hosts, width)
        if not shapes:
            self._proved = True
            return
        groups = self._uplink_sets.fields.joined(
            pod.with_room[leaf_hosts] if bound >= fewest else 0
            for pod, bound in zip(self._pods, bounds, strict=True)
        )
        search = partial(self._on_bicliques, leaf_hosts, width, leaves, groups=groups)
        with budget.attempt(WORK_WITHOUT_BOUNDS):
            yield from search(shapes, sets=sets)
            if not budget.exceeded:
                self._proved = True
                return
        if agreeing:
            sets = self._passing_sets(leaf_hosts, width, leaves, shapes)
            if sets is not None and not sets:
                self._proved = True
                return
        if len(agreeing) < len(shapes):
            shapes, _ = self._with_agreeing_pods(width, shapes, budget.left // (4 * len(shapes)))
            if not shapes:
                self._proved = True
                return
        placement = None
        if sets is not None:
            with budget.attempt(WORK_ON_SETS):
                placement = next(self._on_sets(leaf_hosts, sets), None)
                if placement is None and not budget.exceeded:
                    self._proved = True
                    return
        if placement is None:
            with budget.portion(2):
                self._sharpen(bounds, leaf_hosts, width)
                shapes = [shape for shape in shapes if self._may_fit(bounds, shape, width)]
        with budget.portion(4):
            if shapes:
                yield from search(shapes, sets=sets)
            cut_off = not budget.left
        if placement is not None:
            yield placement
        elif sets is not None and cut_off:
            with budget.portion(4):
                yield from self._on_sets(leaf_hosts, sets)
        self._proved = not budget.exceeded

    def _with_agreeing_pods(
        self, width: int, shapes: Sequence[Shape], most: int = WORK_TO_AGREE
    ) -> tuple[Sequence[Shape], Sequence[PassingSet]]:
        """The shapes that ``AgreeingPods`` does not rule out, and uplinks for those it allows."""
        left, agreeing = [], []
        for shape in shapes:
            work = min(most, self._search.budget.left // PARTS_TO_AGREE)
            uplinks = self._agreeing.uplinks(shape, work)
            if uplinks and shape.remainder_hosts:
                self._tried = True
                rest = self._agreeing.uplinks(shape, work, shape.remainder_hosts)
                uplinks = uplinks if rest is None else rest
            if uplinks != 0:
                left.append(shape)
            if uplinks:
                agreeing.append((self._lowest(uplinks, width), [shape]))
        return left, agreeing

    def _lowest(self, uplinks: int, width: int) -> int:
        """``width`` of the uplinks in each plane."""
        return sum(lowest_bits(uplinks & plane, width) for plane in self._topology.plane_fields)

    def _on_sets(self, leaf_hosts: int, sets: Sequence[PassingSet]) -> Iterator[Placement]:
        """Placements whose leaves share exactly one of these sets of uplinks."""
        self._tried = True
        for uplinks, shapes in sets:
            several_pods = MultiPod(self._search, uplinks, leaf_hosts)
            for shape in shapes:
                yield from several_pods.placements(shape)

    def _passing_sets(
        self, leaf_hosts: int, width: int, leaves: int, shapes: Sequence[Shape]
    ) -> list[PassingSet] | None:
        """The sets of uplinks that pass one of the shapes; None if they are too many to test.

        Where there are many, less work is tried each time that it was not enough.
        """
        few = self._few_sets(width)
        work = WORK_FOR_FEW_SETS if few else self._work_for_many_sets
        with self._search.budget.attempt(work):
            sets = self._uplink_sets.passing(leaf_hosts, width, leaves, shapes)
        if sets is None and not few:
            self._work_for_many_sets //= 2
        return sets

    def _few_sets(self, width: int) -> bool:
        """Whether the sets of ``width`` uplinks in each plane are few enough to test them all."""
        planes = self._topology.plane_fields
        return prod(comb(plane.bit_count(), width) for plane in planes) <= FEW_SETS

    def _on_bicliques(
        self,
        leaf_hosts: int,
        width: int,
        leaves: int,
        shapes: Sequence[Shape],
        groups: int,
        sets: Sequence[PassingSet] | None = None,
    ) -> Iterator[Placement]:
        """Placements on the bicliques of these leaf groups, each set of common uplinks once.

        With ``sets``, only bicliques that have one of these sets of uplinks in common.
        """
        search, matrix = self._search, self._uplink_sets.matrix
        allowed = None if sets is None else [chosen for chosen, _ in sets]
        found = LeafBicliques(matrix, groups, leaves, width, shapes, allowed, search.budget)
        tried = set()
        first = found.first()
        for common in chain(() if first is None else (first,), found.all()):
            if common in tried or (allowed is not None and not _any_within(allowed, common)):
                continue
            if not search.budget.spend(leaves):
                continue
            tried.add(common)
            self._tried = True
            several_pods = MultiPod(search, common, leaf_hosts)
            for shape in shapes:
                yield from several_pods.placements(shape)

    def _with_room(
        self, bounds: list[int], shapes: Sequence[Shape], leaf_hosts: int, width: int
    ) -> Sequence[Shape]:
        """The shapes that fit pods with at most ``most_sharing`` leaves each.

        ``bounds`` are sharpened (``_sharpen``) only if a shape does not fit what they are now.
        """
        descending = sorted(bounds, reverse=True)
        if all(_has_room(descending, shape) for shape in shapes):
            return shapes
        self._sharpen(bounds, leaf_hosts, width)
        descending = sorted(bounds, reverse=True)
        return [shape for shape in shapes if _has_room(descending, shape)]

    def _sharpen(self, bounds: list[int], leaf_hosts: int, width: int) -> None:
        """Make all bounds but zeros ``PodLeaves.most_sharing``."""
        for number, pod in enumerate(self._pods):
            if bounds[number]:
                bounds[number] = self._most_leaves(pod, leaf_hosts, width)

    def _at_most(self, pod: PodLeaves, leaf_hosts: int, width: int, fewest: int) -> int:
        """The leaves of one pod that may share ``width`` uplinks in each plane, 0 or more.

        0 if the pod has less than ``fewest`` leaf groups with room; at least ``fewest`` exactly
        if ``most_sharing`` is; and never more than that.
        """
        if pod.counts[leaf_hosts] < fewest:
            return 0
        sure = pod.surely_sharing(leaf_hosts, width)
        return sure if sure >= fewest else self._most_leaves(pod, leaf_hosts, width)

    def _most_leaves(self, pod: PodLeaves, leaf_hosts: int, width: int) -> int:
        """``PodLeaves.most_sharing``, paid once in a search."""
        most, work = pod.most_sharing(leaf_hosts, width)
        key = id(pod), pod.counts[leaf_hosts]
        if key not in self._bounds_paid:
            self._bounds_paid.add(key)
            self._search.budget.spend(work)
        return most

    def _may_fit(self, bounds: list[int], shape: Shape, width: int) -> bool:
        """Whether the spine bounds allow the shape on pods with at most so many leaves each."""
        search = self._search
        columns = self._fabric.topology.columns
        need = -(-shape.leaves * min(column.rails for column in columns) // self._topology.taper[1])
        widest = max(column.bundle.bit_count() for column in columns)
        among = sum(1 << pod for pod, bound in enumerate(bounds) if bound >= shape.leaves)
        columns_used = len(self._topology.plane_fields) * -(-width // widest)
        return bool(search.spine_bounds.candidates(among, shape.pods, need, columns_used))


def _any_within(sets: Sequence[int], uplinks: int) -> bool:
    """Whether one of the sets of uplinks lies within ``uplinks``."""
    return any(not chosen & ~uplinks for chosen in sets)


def _has_room(counts: Sequence[int], shape: Shape) -> bool:
    """Whether the shape fits pods with so many leaves each; ``counts`` descend."""
    if counts[shape.pods - 1] < shape.leaves:
        return False
    more = shape.remainder_leaves
    return not more or (len(counts) > shape.pods and counts[shape.pods] >= more)
