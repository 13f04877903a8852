# SPDX-License-Identifier: Apache-2.0

"""Repair: the same hosts over links that are up, with as few cables changed as can be.

Once the hosts are given, so are the roles of a shape: which leaves are full, which is
the remainder leaf, which pod is the remainder pod. What is left to choose is a set of
uplinks that the full leaves have in common, a subset of it for the remainder leaf, and
for each L2 index a set of spine uplinks for the full pods and a nested one for the
remainder pod: Jigsaw (HPDC'21) section 3.2, conditions (4) to (6), with taper and
rails as in ``search.search``. The columns only meet in how many uplinks they add up
to, so an exact choice takes no search: the best sets of each column for each number of
uplinks, and a table over the columns of a plane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import NamedTuple

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.faults.degradation import Degraded, degradation
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Column


def repair(fabric: LedgerView, allocation: Allocation) -> Allocation | Degraded:
    """The allocation on links of which none has failed, or what it lacks as it is.

    ``fabric`` knows it as an owner: what that owner holds and what is free may be used,
    if it is up. The hosts stay, also failed ones. Promised:

    * if any set of links on these hosts meets the formal conditions, one is found;
    * of all those, it is one with the most of the present cables (the fewest changed);
    * an allocation none of whose links has failed comes back as it is.

    Raises:
        NotFound: the fabric does not know the allocation.
    """
    failed = [x for x in allocation.links(fabric.topology) if x in fabric.failed_links]
    if not failed:
        return allocation
    view = fabric.copy()
    view.release(allocation.id)
    found = _Links(view, allocation).best()
    if isinstance(found, Allocation):
        return found
    hosts = [h for h in allocation.hosts(fabric.topology) if h in fabric.failed_hosts]
    return replace(degradation(fabric.topology, allocation, failed, hosts), why=found)


class _Nested(NamedTuple):
    """Two sets of bits, the inner one within the outer one."""

    outer: int
    inner: int

    def kept(self, old: _Nested) -> tuple[int, int]:
        """How many bits of each are old ones."""
        return (self.outer & old.outer).bit_count(), (self.inner & old.inner).bit_count()


def nested(free: _Nested, old: _Nested, outer: int, inner: int) -> _Nested | None:
    """Sets of the sizes given out of the free bits, with the most old ones in both.

    The inner one takes what it had, then what the outer one had, then others; so the
    outer one is never made to take a new bit for want of an old one.
    """
    both = free.inner & free.outer
    small = _first(inner, both & old.inner, both & old.outer, both)
    more = free.outer & ~small
    large = small | _first(outer - inner, more & old.outer, more)
    whole = small.bit_count() == inner and large.bit_count() == outer
    return _Nested(large, small) if whole else None


def _first(count: int, *liked: int) -> int:
    """``count`` bits, or as many as there are: of the first mask, then of the second..."""
    taken = 0
    for mask in liked:
        left = mask & ~taken
        while left and taken.bit_count() < count:
            taken |= left & -left
            left &= left - 1
    return taken


@dataclass(frozen=True, slots=True)
class _Choice:
    """What one column gives: uplinks of leaves, spine uplinks of pods, cables kept."""

    uplinks: _Nested
    spines: _Nested
    kept: int


class _Links:
    """The links that an allocation may have on its hosts; ``fabric`` has released it."""

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
        self._rest_pod = self._smallest(leaves)
        self._full_pods = [pod for pod in leaves if pod != self._rest_pod]
        self._leaves = leaves[self._full_pods[0]]
        self._rest_leaves = leaves[self._rest_pod] if self._rest_pod is not None else 0
        self._one_pod = len(leaves) == 1
        self._columns = {(pod, column): mask for pod, column, mask in allocation.columns}

    def _smallest(self, leaves: dict[int, int]) -> int | None:
        """The remainder pod, if there is one."""
        if len(leaves) == 1:
            return None
        if self._rest_leaf is not None:
            return self._rest_leaf.group // self._topology.groups_per_pod
        pod = min(leaves, key=lambda pod: leaves[pod])
        return pod if leaves[pod] < max(leaves.values()) else None

    # -- the whole ------------------------------------------------------------

    def best(self) -> Allocation | str:
        """The link set with the most present cables, or why there is none."""
        chosen: list[_Choice] = []
        for plane in range(self._topology.planes):
            width, rest_width = self._width(plane, self._full_leaves[0]), 0
            if self._rest_leaf is not None:
                rest_width = self._width(plane, self._rest_leaf)
            columns = [c for c in self._topology.columns if c.plane == plane]
            part = _most_kept([dict(self._choices(c)) for c in columns], width, rest_width)
            if part is None:
                return self._why(plane, width, rest_width)
            chosen += part
        return self._placed(chosen)

    def _width(self, plane: int, leaf: GroupShare) -> int:
        """Uplinks in a plane for the hosts of a leaf; inside one leaf group those that join."""
        hosts = leaf.hosts.bit_count()
        if len(self._allocation.groups) == 1:
            return int(hosts > 1 and self._topology.rails_in_plane(plane) > 1)
        return -(-hosts // self._taper)

    def _placed(self, chosen: Sequence[_Choice]) -> Allocation:
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
        taken = tuple(sorted(share for share in columns if share.uplinks))
        return replace(self._allocation, groups=groups, columns=taken)

    def _spines_of(self, choice: _Choice, pod: int) -> int:
        inner = (pod == self._rest_pod) == self._rest_is_smaller
        return choice.spines.inner if inner else choice.spines.outer

    @property
    def _rest_is_smaller(self) -> bool:
        """Whether the remainder pod is the one with fewer spines; see ``MultiPod``."""
        return self._rest_leaves < self._leaves

    # -- a column -------------------------------------------------------------

    def _choices(self, column: Column) -> Iterator[tuple[tuple[int, int], _Choice]]:
        """The best sets for each number of uplinks of full leaves and of the remainder leaf."""
        for some in range(column.bundle.bit_count() + 1):
            for extra in range(some + 1 if self._rest_leaf is not None else 1):
                uplinks = nested(self._free_uplinks(column), self._old_uplinks(column), some, extra)
                spines = self._spines(column, some, extra)
                if uplinks is not None and spines is not None:
                    yield (some, extra), self._choice(column, uplinks, spines)

    def _choice(self, column: Column, uplinks: _Nested, spines: _Nested) -> _Choice:
        full, rest = uplinks.kept(self._old_uplinks(column))
        outer, inner = spines.kept(self._old_spines(column))
        pods = (outer, inner) if self._rest_is_smaller else (inner, outer)
        kept = column.rails * (full * len(self._full_leaves) + rest)
        return _Choice(uplinks, spines, kept + pods[0] * len(self._full_pods) + pods[1])

    def _free_uplinks(self, column: Column) -> _Nested:
        free, rest = self._fabric.free_uplinks, self._rest_leaf
        common = reduce(and_, (free[share.group] for share in self._full_leaves), column.bundle)
        return _Nested(common, free[rest.group] if rest is not None else 0)

    def _old_uplinks(self, column: Column) -> _Nested:
        rest = self._rest_leaf.uplinks if self._rest_leaf is not None else 0
        return _Nested(self._full_leaves[0].uplinks & column.bundle, rest & column.bundle)

    def _spines(self, column: Column, some: int, extra: int) -> _Nested | None:
        """Spine uplinks that carry so many uplinks of leaves."""
        if self._one_pod:
            return _Nested(0, 0)
        full = -(-some * self._leaves * column.rails // self._spine_taper)
        if self._rest_pod is None:
            return nested(self._free_spines(column), self._old_spines(column), full, 0)
        flows = (some * self._rest_leaves + extra) * column.rails
        sizes = sorted((full, -(-flows // self._spine_taper)), reverse=True)
        return nested(self._free_spines(column), self._old_spines(column), *sizes)

    def _free_spines(self, column: Column) -> _Nested:
        free, width = self._fabric.free_spines, self._topology.columns_per_pod
        full = reduce(and_, (free[pod * width + column.number] for pod in self._full_pods))
        rest = 0 if self._rest_pod is None else free[self._rest_pod * width + column.number]
        return _Nested(full, rest) if self._rest_is_smaller else _Nested(rest, full)

    def _old_spines(self, column: Column) -> _Nested:
        full = self._columns.get((self._full_pods[0], column.number), 0)
        rest = 0
        if self._rest_pod is not None:
            rest = self._columns.get((self._rest_pod, column.number), 0)
        return _Nested(full, rest) if self._rest_is_smaller else _Nested(rest, full)

    # -- none -----------------------------------------------------------------

    def _why(self, plane: int, width: int, rest_width: int) -> str:
        """Which links there are too few of."""
        field, free = self._topology.plane_fields[plane], self._fabric.free_uplinks
        common = reduce(and_, (free[share.group] for share in self._full_leaves), field)
        leaves = len(self._full_leaves)
        if common.bit_count() < width:
            return (
                f"its leaves need {width} uplinks that are free on all {leaves} of them, "
                f"{common.bit_count()} are"
                if leaves > 1
                else f"its leaf needs {width} free uplinks and has {common.bit_count()}"
            )
        if self._rest_leaf is not None:
            rest = common & free[self._rest_leaf.group]
            if rest.bit_count() < rest_width:
                return (
                    f"its smaller leaf needs {rest_width} uplinks of those that the others "
                    f"have in common, {rest.bit_count()} are free"
                )
        return "its pods have too few free spine uplinks in common"


def _most_kept(
    columns: Sequence[dict[tuple[int, int], _Choice]], width: int, rest_width: int
) -> list[_Choice] | None:
    """One choice of each column: the numbers add up to the widths, the cables kept to the most.

    Of equal ones that which takes more from earlier columns.
    """
    best: dict[tuple[int, int], tuple[int, list[_Choice]]] = {(0, 0): (0, [])}
    for choices in columns:
        following: dict[tuple[int, int], tuple[int, list[_Choice]]] = {}
        for (some, extra), (kept, chosen) in sorted(best.items(), key=_place, reverse=True):
            for (more, more_extra), choice in choices.items():
                at, value = (some + more, extra + more_extra), kept + choice.kept
                fits = at[0] <= width and at[1] <= rest_width
                if fits and value > following.get(at, (-1,))[0]:
                    following[at] = value, [*chosen, choice]
        best = following
    return best[width, rest_width][1] if (width, rest_width) in best else None


def _place(item: tuple[tuple[int, int], object]) -> tuple[int, int]:
    return item[0]
