# SPDX-License-Identifier: Apache-2.0

"""Repair: other links for the same hosts, with as few cables changed as possible.

The hosts of an allocation fix the roles of its shape: the full leaves, the remainder leaf
and the remainder pod. A repair chooses a set of uplinks that the full leaves have in common,
a subset of it for the remainder leaf, and for each L2 index a set of spine uplinks for the
full pods and a nested one for the remainder pod, of equal size if that pod is the larger one:
Jigsaw (HPDC'21) section 3.2, conditions (4) to (6), with taper and rails as in
``search.search``. Columns depend on each other only through the total number of uplinks. So the
exact choice needs no search: it takes the best sets of each column for each number of uplinks,
and one table over the columns of a plane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from operator import and_, itemgetter
from typing import NamedTuple

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.faults.degradation import Degraded, degradation
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Column, Link, bits


def repair(
    fabric: LedgerView, allocation: Allocation, leave: Collection[Link] = ()
) -> Allocation | Degraded:
    """The allocation on working links, or what it lacks if there are no such links.

    ``fabric`` holds the allocation. A repair uses links that are up and free, or held by the
    allocation and not failed. It leaves the drained links of ``leave``, if other links can be
    found; other drained links that the allocation holds may stay. All hosts stay, also failed
    ones. Promised:

    * if any set of links on these hosts meets the formal conditions, one is found;
    * of all these sets it is one that keeps the most present cables;
    * an allocation without a failed link, and without one to leave, is returned as it is.

    Raises:
        NotFound: the fabric does not hold the allocation.
    """
    links = tuple(allocation.links(fabric.topology))
    failed = [x for x in links if x in fabric.failed_links]
    drained = [x for x in links if x in fabric.drained_links and x not in fabric.failed_links]
    left = [x for x in drained if x in leave]
    if not failed and not left:
        return allocation
    view = fabric.copy()
    view.release(allocation.id)
    for link in drained:
        if link not in left:
            view.repair_link(link)
    answer = _LinkChoice(view, allocation).best()
    if failed and left and not isinstance(answer, Allocation):
        for link in left:
            view.repair_link(link)
        answer = _LinkChoice(view, allocation).best()
    if isinstance(answer, Allocation):
        return answer
    hosts = [h for h in allocation.hosts(fabric.topology) if h in fabric.failed_hosts]
    return replace(degradation(fabric.topology, allocation, failed, hosts), obstacle=answer)


def best_links(fabric: LedgerView, wanted: Allocation) -> Allocation | None:
    """The hosts of ``wanted`` with free links that keep the most of its links.

    Its hosts must have a legal shape, its full leaves and full pods equal links; the links need
    not be free, nor as many as the shape takes. None if no free links meet the conditions.
    """
    answer = _LinkChoice(fabric, wanted).best()
    return answer if isinstance(answer, Allocation) else None


def all_links(fabric: LedgerView, wanted: Allocation) -> Iterator[Allocation]:
    """The hosts of ``wanted`` with every set of free links that meets the conditions.

    ``wanted`` is as in ``best_links``. The number of sets grows exponentially with the links.
    """
    return _LinkChoice(fabric, wanted).every()


class NestedSets(NamedTuple):
    """Two sets of bits, the inner one within the outer one."""

    outer: int
    inner: int

    def kept(self, old: NestedSets) -> tuple[int, int]:
        """How many bits of each set are in the old one."""
        return (self.outer & old.outer).bit_count(), (self.inner & old.inner).bit_count()


def nested(free: NestedSets, old: NestedSets, outer: int, inner: int) -> NestedSets | None:
    """Free bits as sets of these sizes that keep the most old bits; None if too few are free.

    The inner set takes its old bits, those of both sets first, then old bits of the outer set,
    then others. So it never costs the outer set an old bit.
    """
    both = free.inner & free.outer
    small = _first(inner, both & old.inner & old.outer, both & old.inner, both & old.outer, both)
    more = free.outer & ~small
    large = small | _first(outer - inner, more & old.outer, more)
    whole = small.bit_count() == inner and large.bit_count() == outer
    return NestedSets(large, small) if whole else None


def all_nested(free: NestedSets, outer: int, inner: int) -> Iterator[NestedSets]:
    """Free bits as nested sets of these sizes, in every way."""
    for large in _subsets(free.outer, outer):
        for small in _subsets(free.inner & large, inner):
            yield NestedSets(large, small)


def _subsets(mask: int, count: int) -> Iterator[int]:
    return (sum(1 << bit for bit in chosen) for chosen in combinations(bits(mask), count))


def _first(count: int, *masks: int) -> int:
    """``count`` bits, or as many as there are: from the first mask, then from the next."""
    taken = 0
    for mask in masks:
        left = mask & ~taken
        while left and taken.bit_count() < count:
            taken |= left & -left
            left &= left - 1
    return taken


@dataclass(frozen=True, slots=True)
class _ColumnChoice:
    """The links of one column: uplinks of leaves, spine uplinks of pods, cables kept."""

    uplinks: NestedSets
    spines: NestedSets
    kept: int


class _LinkChoice:
    """The links that an allocation may have for its hosts; ``fabric`` has released it."""

    def __init__(self, fabric: LedgerView, allocation: Allocation) -> None:
        self._fabric = fabric
        self._allocation = allocation
        self._topology = fabric.topology
        self._taper, self._spine_taper = fabric.topology.tree.taper
        width = fabric.topology.groups_per_pod
        most = max(share.hosts.bit_count() for share in allocation.groups)
        small = [share for share in allocation.groups if share.hosts.bit_count() < most]
        self._rest_leaf = small[0] if small else None
        self._full_leaves = [s for s in allocation.groups if s is not self._rest_leaf]
        leaves: dict[int, int] = {share.group // width: 0 for share in allocation.groups}
        for share in self._full_leaves:
            leaves[share.group // width] += 1
        self._extended = allocation.shape is not None and allocation.shape.extended
        self._rest_pod = self._remainder_pod(leaves)
        self._full_pods = [pod for pod in leaves if pod != self._rest_pod]
        self._leaves = leaves[self._full_pods[0]]
        self._rest_leaves = leaves[self._rest_pod] if self._rest_pod is not None else 0
        self._one_pod = len(leaves) == 1
        self._columns = {(pod, column): mask for pod, column, mask in allocation.columns}
        self._spine_masks = () if self._one_pod else fabric.free_spines

    def _remainder_pod(self, leaves: dict[int, int]) -> int | None:
        """The remainder pod; None if there is none."""
        if len(leaves) == 1:
            return None
        if self._rest_leaf is not None:
            return self._rest_leaf.group // self._topology.groups_per_pod
        if self._extended:
            return max(leaves, key=lambda pod: leaves[pod])
        pod = min(leaves, key=lambda pod: leaves[pod])
        return pod if leaves[pod] < max(leaves.values()) else None

    # -- the whole ------------------------------------------------------------

    def best(self) -> Allocation | str:
        """The allocation with the most present cables, or why there are no links for it."""
        chosen: list[_ColumnChoice] = []
        for plane in range(self._topology.planes):
            width, rest_width = self._widths(plane)
            columns = [c for c in self._topology.columns if c.plane == plane]
            of_plane = _most_kept([dict(self._choices(c)) for c in columns], width, rest_width)
            if of_plane is None:
                return self._obstacle(plane, width, rest_width)
            chosen += of_plane
        return self._with_links(chosen)

    def every(self) -> Iterator[Allocation]:
        """The allocation with every choice of links."""
        for chosen in self._from_plane(0):
            yield self._with_links(chosen)

    def _from_plane(self, plane: int) -> Iterator[tuple[_ColumnChoice, ...]]:
        """Every choice for the columns of this plane and of those that follow."""
        if plane == self._topology.planes:
            yield ()
            return
        columns = [c for c in self._topology.columns if c.plane == plane]
        for chosen in self._from_column(columns, *self._widths(plane)):
            for others in self._from_plane(plane + 1):
                yield (*chosen, *others)

    def _from_column(
        self, columns: Sequence[Column], width: int, rest_width: int
    ) -> Iterator[tuple[_ColumnChoice, ...]]:
        """Every choice for these columns with so many uplinks in all."""
        if sum(self._free_uplinks(column).outer.bit_count() for column in columns) < width:
            return
        if not columns:
            if not rest_width:
                yield ()
            return
        most = columns[0].bundle.bit_count()
        for full in range(min(most, width), -1, -1):
            for rest in range(min(full, rest_width), -1, -1):
                for choice in self._of_column(columns[0], full, rest):
                    for others in self._from_column(columns[1:], width - full, rest_width - rest):
                        yield (choice, *others)

    def _of_column(self, column: Column, full: int, rest: int) -> Iterator[_ColumnChoice]:
        sizes = self._spine_counts(column, full, rest)
        for uplinks in all_nested(self._free_uplinks(column), full, rest):
            if self._one_pod:
                yield self._choice(column, uplinks, NestedSets(0, 0))
                continue
            for spines in all_nested(self._free_spines(column), *sizes):
                yield self._choice(column, uplinks, spines)

    def _widths(self, plane: int) -> tuple[int, int]:
        """Uplinks of a full leaf and of the remainder leaf in a plane."""
        rest = 0 if self._rest_leaf is None else self._width(plane, self._rest_leaf)
        return self._width(plane, self._full_leaves[0]), rest

    def _width(self, plane: int, leaf: GroupShare) -> int:
        """Uplinks that a leaf needs in a plane; in one leaf group, those that join its rails."""
        hosts = leaf.hosts.bit_count()
        if len(self._allocation.groups) == 1:
            return int(hosts > 1 and self._topology.rails_in_plane(plane) > 1)
        return -(-hosts // self._taper)

    def _with_links(self, chosen: Sequence[_ColumnChoice]) -> Allocation:
        uplinks = sum(choice.uplinks.outer for choice in chosen)
        rest_uplinks = sum(choice.uplinks.inner for choice in chosen)
        groups = tuple(
            share._replace(uplinks=rest_uplinks if share is self._rest_leaf else uplinks)
            for share in self._allocation.groups
        )
        columns = [
            ColumnShare(pod, number, self._spines_of(choice, pod))
            for number, choice in enumerate(chosen)
            for pod in (*self._full_pods, self._rest_pod)
            if pod is not None
        ]
        not_empty = tuple(sorted(share for share in columns if share.uplinks))
        return replace(self._allocation, groups=groups, columns=not_empty)

    def _spines_of(self, choice: _ColumnChoice, pod: int) -> int:
        return choice.spines.inner if pod == self._rest_pod else choice.spines.outer

    # -- a column -------------------------------------------------------------

    def _choices(self, column: Column) -> Iterator[tuple[tuple[int, int], _ColumnChoice]]:
        """The best sets for each number of uplinks of full leaves and of the remainder leaf."""
        free, old = self._free_uplinks(column), self._old_uplinks(column)
        for full in range(column.bundle.bit_count() + 1):
            for rest in range(full + 1 if self._rest_leaf is not None else 1):
                uplinks = nested(free, old, full, rest)
                spines = self._spines(column, full, rest)
                if uplinks is not None and spines is not None:
                    yield (full, rest), self._choice(column, uplinks, spines)

    def _choice(self, column: Column, uplinks: NestedSets, spines: NestedSets) -> _ColumnChoice:
        full, rest = uplinks.kept(self._old_uplinks(column))
        of_full_pod, of_rest_pod = spines.kept(self._old_spines(column))
        kept = column.rails * (full * len(self._full_leaves) + rest)
        kept += of_full_pod * len(self._full_pods) + of_rest_pod
        return _ColumnChoice(uplinks, spines, kept)

    def _free_uplinks(self, column: Column) -> NestedSets:
        free, rest = self._fabric.free_uplinks, self._rest_leaf
        common = reduce(and_, (free[share.group] for share in self._full_leaves), column.bundle)
        return NestedSets(common, free[rest.group] if rest is not None else 0)

    def _old_uplinks(self, column: Column) -> NestedSets:
        rest = self._rest_leaf.uplinks if self._rest_leaf is not None else 0
        return NestedSets(self._full_leaves[0].uplinks & column.bundle, rest & column.bundle)

    def _spines(self, column: Column, uplinks: int, rest_uplinks: int) -> NestedSets | None:
        """Spine uplinks for so many uplinks of each full leaf and of the remainder leaf."""
        if self._one_pod:
            return NestedSets(0, 0)
        outer, inner = self._spine_counts(column, uplinks, rest_uplinks)
        return nested(self._free_spines(column), self._old_spines(column), outer, inner)

    def _spine_counts(self, column: Column, uplinks: int, rest_uplinks: int) -> tuple[int, int]:
        """The sizes of the outer and of the inner set of spine uplinks."""
        full = -(-uplinks * self._leaves * column.rails // self._spine_taper)
        if self._rest_pod is None:
            return full, 0
        if self._extended:
            return full, full
        flows = (uplinks * self._rest_leaves + rest_uplinks) * column.rails
        return full, -(-flows // self._spine_taper)

    def _free_spines(self, column: Column) -> NestedSets:
        free, width = self._spine_masks, self._topology.columns_per_pod
        full = reduce(and_, (free[pod * width + column.number] for pod in self._full_pods))
        rest = 0 if self._rest_pod is None else free[self._rest_pod * width + column.number]
        return NestedSets(full, rest)

    def _old_spines(self, column: Column) -> NestedSets:
        full = self._columns.get((self._full_pods[0], column.number), 0)
        rest = 0
        if self._rest_pod is not None:
            rest = self._columns.get((self._rest_pod, column.number), 0)
        return NestedSets(full, rest)

    # -- none -----------------------------------------------------------------

    def _obstacle(self, plane: int, width: int, rest_width: int) -> str:
        """Which links are too few, as the end of a sentence."""
        field, free = self._topology.plane_fields[plane], self._fabric.free_uplinks
        common = reduce(and_, (free[share.group] for share in self._full_leaves), field)
        leaves = len(self._full_leaves)
        if common.bit_count() < width:
            return (
                f"its {leaves} leaves need {width} free uplinks in common and have "
                f"{common.bit_count()}"
                if leaves > 1
                else f"its leaf needs {width} free uplinks and has {common.bit_count()}"
            )
        if self._rest_leaf is not None:
            rest = common & free[self._rest_leaf.group]
            if rest.bit_count() < rest_width:
                return (
                    f"its smallest leaf needs {rest_width} free uplinks in common with the "
                    f"others and has {rest.bit_count()}"
                )
        return "its pods have too few free spine uplinks in common"


def _most_kept(
    columns: Sequence[dict[tuple[int, int], _ColumnChoice]], width: int, rest_width: int
) -> list[_ColumnChoice] | None:
    """A choice for each column, so that the uplinks add up to the widths and most cables stay.

    Of equal results, the one that takes more uplinks from earlier columns. None if no choices
    add up. ``columns`` have their choices by numbers of uplinks (full leaf, remainder leaf).
    """
    best: dict[tuple[int, int], tuple[int, list[_ColumnChoice]]] = {(0, 0): (0, [])}
    for choices in columns:
        following: dict[tuple[int, int], tuple[int, list[_ColumnChoice]]] = {}
        for (full, rest), (kept, chosen) in sorted(best.items(), key=itemgetter(0), reverse=True):
            for (more, more_rest), choice in choices.items():
                widths, value = (full + more, rest + more_rest), kept + choice.kept
                fits = widths[0] <= width and widths[1] <= rest_width
                if fits and value > following.get(widths, (-1,))[0]:
                    following[widths] = value, [*chosen, choice]
        best = following
    return best[width, rest_width][1] if (width, rest_width) in best else None
