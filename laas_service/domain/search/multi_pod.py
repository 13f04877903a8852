# SPDX-License-Identifier: Apache-2.0

"""The third step of a search: full leaves of several pods; Jigsaw's FIND_L3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

from laas_service.domain.allocation import ColumnShare, GroupShare, Shape
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.column_split import Split, column_split
from laas_service.domain.search.pod_view import PodView
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import Placement, multi_pod_shapes, two_pod_shapes
from laas_service.domain.topology import bits


def in_several_pods(search: Search, leaves: int, rest: int) -> Iterator[Placement]:
    """Placements on ``leaves`` full leaf groups and one of ``rest`` hosts, in several pods.

    Jigsaw, section 3.2, conditions (1) to (6), and its restriction to full leaves (section 4).
    """
    if leaves > _full_leaf_groups(search) and search.spread == 1:
        return
    topology = search.topology
    groups, pods = topology.groups_per_pod, topology.pods
    shapes = multi_pod_shapes(leaves, rest, topology.slots, groups, pods, topology.taper[1])
    yield from _on_full_leaves(search, shapes)


def in_two_pods(search: Search, leaves: int, rest: int) -> Iterator[Placement]:
    """The same in two pods, the remainder pod no smaller than the full pod (``Jigsaw``)."""
    topology = search.topology
    slots, groups = topology.slots, topology.groups_per_pod
    shapes = search.allowed(two_pod_shapes(leaves, rest, slots, groups))
    if not shapes or leaves > _full_leaf_groups(search):
        return
    for uplinks in _common_uplinks(search):
        several_pods = MultiPod(search, uplinks, slots)
        for shape in shapes:
            yield from several_pods.two_pod_placements(shape)


def on_whole_pods(search: Search, pods: int) -> Iterator[Placement]:
    """Placements on ``pods`` pods, all of whose hosts are free."""
    topology = search.topology
    yield from _on_full_leaves(search, (Shape(pods, topology.groups_per_pod, topology.slots),))


def _on_full_leaves(search: Search, shapes: Sequence[Shape]) -> Iterator[Placement]:
    if shapes := search.allowed(shapes):
        for uplinks in _common_uplinks(search):
            several_pods = MultiPod(search, uplinks, search.topology.slots)
            for shape in shapes:
                yield from several_pods.placements(shape)


def _full_leaf_groups(search: Search) -> int:
    """The number of leaf groups all of whose hosts are free."""
    return search.fabric.groups_by_free[search.topology.slots].bit_count()


def _common_uplinks(search: Search) -> Sequence[int]:
    """The sets of uplinks that full leaves can have in common, the widest first.

    There is one set unless leaves have more uplinks than they need and some uplinks are
    missing. Then the sets are all intersections of what such leaves have left.
    """
    fabric, topology = search.fabric, search.topology
    all_uplinks, width = sum(topology.plane_fields), search.uplinks_for(topology.slots)
    if width * topology.planes == all_uplinks.bit_count() or not any(fabric.odd_groups):
        return [all_uplinks]
    masks = {all_uplinks}
    for pod, odd in enumerate(fabric.odd_groups):
        for local in bits(odd & fabric.pod_groups_by_free[pod][topology.slots]):
            masks.add(fabric.free_uplinks[pod * topology.groups_per_pod + local])
    wide, closed, to_visit = search.has_uplinks(width), set[int](), sorted(masks)
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
    """The pods of a placement, and by column the spine uplinks that they may use."""

    full: list[int]
    remainder: int | None
    full_spines: Sequence[int]
    """The masks for the full pods."""
    remainder_spines: Sequence[int]
    """The masks for the remainder pod."""


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

    def placements(self, shape: Shape) -> Iterator[Placement]:
        """Placements on ``shape.pods`` full pods and a smaller remainder pod, if there is one."""
        view = self._view
        full_pods: list[int] = []
        for choice, remainder_pod in self._preference.pod_choices(shape):
            if choice != full_pods:
                full_pods = choice
                common = view.common_spines(full_pods)
            below = common
            if remainder_pod is not None:
                spines = view.spines(remainder_pod)
                below = [mask & own for mask, own in zip(common, spines, strict=True)]
                least = view.min_spines(shape.remainder_leaves)
                if any(mask.bit_count() < need for mask, need in zip(below, least, strict=True)):
                    continue
            yield from self._on_pods(shape, _PodSet(full_pods, remainder_pod, common, below))

    def two_pod_placements(self, shape: Shape) -> Iterator[Placement]:
        """Placements on a full pod and a remainder pod no smaller; see ``two_pod_shapes``.

        The spine uplinks of the full pod are among those of the remainder pod, not the other
        way round.
        """
        view = self._view
        for remainder_pod in self._preference.remainder_pods(shape):
            below = view.spines(remainder_pod)
            for pod in view.pods_with(shape.leaves):
                if pod == remainder_pod:
                    continue
                if not self._budget.spend(2 * len(view.columns)):
                    return
                common = [mask & own for mask, own in zip(below, view.spines(pod), strict=True)]
                yield from self._on_pods(shape, _PodSet([pod], remainder_pod, common, below))

    def _on_pods(self, shape: Shape, pods: _PodSet) -> Iterator[Placement]:
        """At most one placement on these pods, with the first remainder leaf that fits."""
        view = self._view
        leaves: Sequence[int | None] = [None]
        usable = 0
        if pods.remainder is not None and shape.remainder_hosts:
            leaves = self._preference.remainder_leaves(shape, pods.remainder)
            usable = self._remainder_leaf_uplinks(shape, pods.remainder_spines)
        width = view.uplinks_for(shape.remainder_hosts)
        tried = set()
        for leaf in leaves:
            uplinks = usable & self._fabric.free_uplinks[leaf] if leaf is not None else 0
            if uplinks in tried:
                continue
            tried.add(uplinks)
            if any((uplinks & plane).bit_count() < width for plane in view.planes):
                continue
            if not self._budget.spend(4 * len(view.columns)):
                return
            split = column_split(view, shape, pods.full_spines, pods.remainder_spines, uplinks)
            if split:
                yield self._placement(shape, pods, leaf, split)
                return

    def _remainder_leaf_uplinks(self, shape: Shape, spines: Sequence[int]) -> int:
        """The uplinks of columns that carry the remainder pod's full leaves and one uplink more."""
        view, usable = self._view, 0
        for column, size in zip(view.columns, view.bundle_sizes, strict=True):
            least = max(0, size - view.spare[column.plane]) * shape.remainder_leaves
            if view.capacity(spines[column.number], column) > least:
                usable |= column.bundle
        return usable

    def _placement(
        self, shape: Shape, pods: _PodSet, remainder_leaf: int | None, split: Split
    ) -> Placement:
        """Choose the links and hosts of a placement whose pods and remainder leaf are known."""
        uplinks, leaf_uplinks = self._uplinks(remainder_leaf, split)
        groups = self._group_shares(shape, pods, remainder_leaf, uplinks, leaf_uplinks)
        columns = self._column_shares(shape, pods, split)
        return Placement(tuple(sorted(groups)), tuple(sorted(columns)), shape)

    def _uplinks(self, remainder_leaf: int | None, split: Split) -> tuple[int, int]:
        """The uplinks of the full leaves, and those among them of the remainder leaf."""
        free = self._fabric.free_uplinks[remainder_leaf] if remainder_leaf is not None else 0
        uplinks = leaf_uplinks = 0
        for column, (full, rest) in zip(self._view.columns, split, strict=True):
            shared = lowest_bits(column.bundle & free, rest)
            leaf_uplinks |= shared
            uplinks |= shared | lowest_bits(column.bundle ^ shared, full - rest)
        return uplinks, leaf_uplinks

    def _group_shares(
        self,
        shape: Shape,
        pods: _PodSet,
        remainder_leaf: int | None,
        uplinks: int,
        leaf_uplinks: int,
    ) -> list[GroupShare]:
        """The preferred leaf groups of each pod, with their preferred hosts."""
        view, full_leaves, shares = self._view, self._preference.full_leaves, self._shares
        groups = []
        for pod in pods.full:
            groups += full_leaves(pod, view.fitting[pod], shape.leaves)
        if pods.remainder is not None:
            fitting = view.fitting[pods.remainder]
            if remainder_leaf is not None:
                fitting &= ~(1 << remainder_leaf - pods.remainder * view.groups_per_pod)
            groups += full_leaves(pods.remainder, fitting, shape.remainder_leaves)
        full = shares(groups, view.leaf_hosts, uplinks)
        if remainder_leaf is None:
            return full
        return full + shares((remainder_leaf,), shape.remainder_hosts, leaf_uplinks)

    def _column_shares(self, shape: Shape, pods: _PodSet, split: Split) -> list[ColumnShare]:
        """The spine uplinks of each pod.

        Above each L2 index the smaller pod's spine uplinks are chosen first, and the larger
        pods' contain them. Spines that the full pods have in common above all L2 indices come
        first, so that the columns stay alike for later tenants.
        """
        view, shares = self._view, []
        alike = reduce(and_, pods.full_spines)
        remainder_is_smaller = shape.remainder_leaves < shape.leaves
        for column, (full, rest) in zip(view.columns, split, strict=True):
            if not full:
                continue
            number = column.number
            common, below = pods.full_spines[number], pods.remainder_spines[number]
            count = view.spines_for(full * shape.leaves, column)
            if pods.remainder is None:
                spines = _preferring(alike, common, count)
            else:
                rest_count = view.spines_for(full * shape.remainder_leaves + rest, column)
                if remainder_is_smaller:
                    rest_spines = _preferring(alike, below, rest_count)
                    spines = _extended(rest_spines, common, alike, count)
                else:
                    spines = _preferring(alike, common, count)
                    rest_spines = _extended(spines, below, alike, rest_count)
                if rest_spines:
                    shares.append(ColumnShare(pods.remainder, number, rest_spines))
            shares += [ColumnShare(pod, number, spines) for pod in pods.full]
        return shares


def _extended(chosen: int, mask: int, liked: int, count: int) -> int:
    """``chosen``, which lies in ``mask``, with more bits of ``mask`` to make ``count``."""
    return chosen | _preferring(liked, mask ^ chosen, count - chosen.bit_count())


def _preferring(liked: int, mask: int, count: int) -> int:
    """``count`` bits of ``mask``: the lowest that are in ``liked``, then the lowest others."""
    chosen = lowest_bits(mask & liked, count)
    return chosen | lowest_bits(mask & ~liked, count - chosen.bit_count())
