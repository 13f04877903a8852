# SPDX-License-Identifier: Apache-2.0

"""The third step of a search: full leaves of several pods; Jigsaw's FIND_L3."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import NamedTuple

from laas_service.domain.allocation import GroupShare, PackedColumns, PodLanes, Shape
from laas_service.domain.search.column_split import Split, column_split
from laas_service.domain.search.pod_view import PodView
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import Placement, multi_pod_shapes, two_pod_shapes
from laas_service.domain.topology import bits


def in_several_pods(search: Search, leaves: int, rest: int) -> Iterator[Placement]:
    """Placements on ``leaves`` full leaf groups and one of ``rest`` hosts, in several pods.

    Jigsaw, section 3.2, conditions (1) to (6), and its restriction to full leaves (section 4).
    """
    topology = search.topology
    if search.spread == 1:
        if leaves > _full_leaf_groups(search):
            return
        if not search.may_fit_several_pods(
            leaves * topology.hosts_per_group + rest, rest or topology.hosts_per_group
        ):
            return
    known = None if rest else search.known_in_several_pods()
    if known and leaves in known:
        yield known[leaves]
    groups, pods = topology.groups_per_pod, topology.pods
    shapes = multi_pod_shapes(
        leaves, rest, topology.hosts_per_group, groups, pods, topology.taper[1]
    )
    for placement in _on_full_leaves(search, shapes):
        if known is not None:
            known.setdefault(leaves, placement)
        yield placement


def in_two_pods(search: Search, leaves: int, rest: int) -> Iterator[Placement]:
    """The same in two pods, the remainder pod larger than the full pod (``Jigsaw``)."""
    topology = search.topology
    per_leaf, groups = topology.hosts_per_group, topology.groups_per_pod
    shapes = search.allowed(two_pod_shapes(leaves, rest, per_leaf, groups))
    if not shapes or leaves > _full_leaf_groups(search):
        return
    for uplinks in _common_uplinks(search):
        several_pods = MultiPod(search, uplinks, per_leaf)
        for shape in shapes:
            yield from several_pods.two_pod_placements(shape)


def on_whole_pods(search: Search, pods: int) -> Iterator[Placement]:
    """Placements on ``pods`` pods, all of whose hosts are free."""
    topology = search.topology
    yield from _on_full_leaves(
        search, (Shape(pods, topology.groups_per_pod, topology.hosts_per_group),)
    )


def _on_full_leaves(search: Search, shapes: Sequence[Shape]) -> Iterator[Placement]:
    if shapes := search.allowed(shapes):
        for uplinks in _common_uplinks(search):
            several_pods = MultiPod(search, uplinks, search.topology.hosts_per_group)
            for shape in several_pods.with_pods(shapes):
                yield from several_pods.placements(shape)


def _full_leaf_groups(search: Search) -> int:
    """The number of leaf groups all of whose hosts are free."""
    return search.fabric.groups_by_free[search.topology.hosts_per_group].bit_count()


def _common_uplinks(search: Search) -> Sequence[int]:
    """The sets of uplinks that full leaves can have in common, the widest first.

    There is one set unless leaves have more uplinks than they need and some uplinks are
    missing. Then the sets are all intersections of what such leaves have left.
    """
    fabric, topology = search.fabric, search.topology
    all_uplinks, width = (
        sum(topology.plane_fields),
        search.topology.uplinks_for(topology.hosts_per_group),
    )
    if width * topology.planes == all_uplinks.bit_count() or not any(fabric.odd_groups):
        return [all_uplinks]
    masks = {all_uplinks}
    for pod, odd in enumerate(fabric.odd_groups):
        for local in bits(odd & fabric.pod_groups_by_free[pod][topology.hosts_per_group]):
            masks.add(fabric.free_uplinks[pod * topology.groups_per_pod + local])
    wide, closed, to_visit = search.topology.has_uplinks(width), set[int](), sorted(masks)
    while to_visit:
        uplinks = to_visit.pop()
        if uplinks in closed or not wide(uplinks):
            continue
        if not search.budget.spend(2 * len(masks)):
            break
        closed.add(uplinks)
        to_visit.extend(sorted(uplinks & mask for mask in masks))
    return sorted(closed, key=lambda mask: (-mask.bit_count(), mask))


class _PodSet(NamedTuple):
    """The pods of a placement and the spine uplinks that they may use, as ``PodSpines.lanes``."""

    full: Sequence[int]
    remainder: int | None
    full_spines: int
    """Those of the full pods."""
    remainder_spines: int
    """Those of the remainder pod."""


class MultiPod:
    """Placements on several pods whose full leaves have equal size and use equal uplinks.

    ``uplinks`` is the mask of the uplinks that the full leaves may use, ``leaf_hosts`` the
    number of hosts on each.
    """

    def __init__(self, search: Search, uplinks: int, leaf_hosts: int) -> None:
        self._fabric = search.fabric
        self._budget = search.budget
        self._shares = search.preference.shares
        self._view = PodView(search.fabric, search.budget, search.spine_bounds, uplinks, leaf_hosts)
        self._preference = search.preference.pod_preference(self._view)

    def with_pods(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes for whose full pods enough pods have enough fitting leaf groups."""
        leaves = self._view.leaves
        return [
            shape
            for shape in shapes
            if len(leaves) - bisect_left(leaves, shape.leaves) >= shape.pods
        ]

    def placements(self, shape: Shape) -> Iterator[Placement]:
        """Placements on ``shape.pods`` full pods and a smaller remainder pod, if there is one."""
        view = self._view
        enough = view.needs.enough_spines(shape.remainder_leaves)
        full_pods: Sequence[int] = ()
        for choice, remainder_pod in self._preference.pod_choices(shape):
            if choice != full_pods:
                full_pods = choice
                common = below = view.common_lanes(full_pods)
            if remainder_pod is not None:
                below = common & view.pod_spines(remainder_pod).lanes
                if not enough(below):
                    continue
            placement = self._on_pods(shape, full_pods, remainder_pod, common, below)
            if placement is not None:
                yield placement

    def two_pod_placements(self, shape: Shape) -> Iterator[Placement]:
        """Placements on a full pod and a larger remainder pod; see ``two_pod_shapes``.

        Both pods take the same spine uplinks: those that the full pod needs.
        """
        view = self._view
        enough = view.needs.enough_spines(shape.leaves)
        for remainder_pod in self._preference.remainder_pods(shape):
            spines = view.pod_spines(remainder_pod).lanes
            if not enough(spines):
                continue
            for pod in view.pods_with(shape.leaves):
                if pod == remainder_pod:
                    continue
                if not self._budget.spend(2 * len(view.columns)):
                    return
                common = spines & view.pod_spines(pod).lanes
                if enough(common):
                    placement = self._on_pods(shape, [pod], remainder_pod, common, common)
                    if placement is not None:
                        yield placement

    def _on_pods(
        self, shape: Shape, full: Sequence[int], remainder: int | None, common: int, below: int
    ) -> Placement | None:
        """The placement on these pods with the first remainder leaf that fits; None without one.

        The full pods may use the spine uplinks ``common``, the remainder pod ``below``, both
        as ``PodSpines.lanes``.
        """
        view = self._view
        # The flows of the full leaves of a larger remainder pod do not all leave it.
        crossing = replace(shape, remainder_leaves=0) if shape.extended else shape
        leaves: Iterable[tuple[int | None, int]] = ((None, 0),)
        if remainder is not None and shape.remainder_hosts:
            usable = view.needs.remainder_uplinks(crossing.remainder_leaves, below)
            width = view.uplinks_for(shape.remainder_hosts)
            if any((usable & plane).bit_count() < width for plane in view.planes):
                return None
            leaves = self._remainder_leaves(shape, remainder, usable, width)
        for leaf, uplinks in leaves:
            if not self._budget.spend(4 * len(view.columns)):
                return None
            split = column_split(view, crossing, common, below, uplinks)
            if split:
                return self._placement(shape, _PodSet(full, remainder, common, below), leaf, split)
        return None

    def _remainder_leaves(
        self, shape: Shape, pod: int, usable: int, width: int
    ) -> Iterator[tuple[int, int]]:
        """The possible remainder leaves of a pod, the preferred one first, with their uplinks.

        Each has ``width`` of the uplinks ``usable`` free in each plane. Of leaves with equal
        uplinks only the first is given.
        """
        tried = set()
        for leaf in self._preference.remainder_leaves(shape, pod):
            uplinks = usable & self._fabric.free_uplinks[leaf]
            if uplinks not in tried:
                tried.add(uplinks)
                if all((uplinks & plane).bit_count() >= width for plane in self._view.planes):
                    yield leaf, uplinks

    def _placement(
        self, shape: Shape, pods: _PodSet, remainder_leaf: int | None, split: Split
    ) -> Placement:
        """Choose the links and hosts of a placement whose pods and remainder leaf are known."""
        groups = self._group_shares(shape, pods, remainder_leaf, split)
        return Placement(tuple(groups), self._columns(shape, pods, split), shape)

    def _group_shares(
        self, shape: Shape, pods: _PodSet, remainder_leaf: int | None, split: Split
    ) -> list[GroupShare]:
        """The preferred leaf groups of each pod, with their preferred hosts; ascending."""
        view, full_leaves, shares = self._view, self._preference.full_leaves, self._shares
        groups = []
        for pod in pods.full:
            groups += full_leaves(pod, view.fitting[pod], shape.leaves)
        if pods.remainder is not None:
            fitting = view.fitting[pods.remainder]
            if remainder_leaf is not None:
                fitting &= ~(1 << remainder_leaf - pods.remainder * view.groups_per_pod)
            groups += full_leaves(pods.remainder, fitting, shape.remainder_leaves)
        groups.sort()
        chosen = shares(groups, view.leaf_hosts, split.uplinks)
        if remainder_leaf is not None:
            rest = shares((remainder_leaf,), shape.remainder_hosts, split.leaf_uplinks)
            insort(chosen, rest[0])
        return chosen

    def _columns(self, shape: Shape, pods: _PodSet, split: Split) -> PackedColumns:
        """The spine uplinks of each pod.

        Above each L2 index the smaller remainder pod's spine uplinks are chosen first, and the
        full pods' contain them; a larger remainder pod has those of the full pod. Spines that the
        full pods have in common above all L2 indices come first, so that the columns stay alike
        for later tenants.
        """
        full, remainder = self._spines(shape, pods, split)
        chosen = [PodLanes(pod, full) for pod in pods.full]
        if remainder:
            assert pods.remainder is not None
            chosen.append(PodLanes(pods.remainder, remainder))
        return PackedColumns(tuple(sorted(chosen)), self._view.needs.lane)

    def _spines(self, shape: Shape, pods: _PodSet, split: Split) -> tuple[int, int]:
        """The spine uplinks of each full pod and those of the remainder pod, as lanes."""
        view, common, below = self._view, pods.full_spines, pods.remainder_spines
        choose, alike = view.needs.preferring, reduce(and_, view.masks(common))
        count, rest_count = view.needs.spine_counts(shape, *split)
        if not rest_count:
            return choose(common, alike, count), 0
        if shape.extended:
            full = choose(common, alike, count)
            return full, full
        rest = choose(below, alike, rest_count)
        return rest | choose(common ^ rest, alike, count - rest_count), rest
