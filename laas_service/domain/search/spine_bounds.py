# SPDX-License-Identifier: Apache-2.0

"""Bounds on the sets of pods that share spine uplinks, computed before a search.

Above each L2 index that a tenant uses, its pods share at least as many spines as each of them
has leaves. Three bounds follow; each is sharper and costs more work than the one before:

* by column: enough pods have enough free spine uplinks, and enough spines are free in enough
  pods;
* by column: König's bound (see ``matching``);
* by pair: two pods are neighbours if they share enough spine uplinks in enough columns. The
  pods of a tenant are a clique of this graph. Each of them has enough neighbours (the core of
  the graph), and a clique is no larger than the number of colours of any colouring (Brelaz
  1979).
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import compress
from operator import and_

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.matching import KonigBound, konig_bounds, sure_bounds
from laas_service.domain.topology import bits

MAX_COLUMN_BYTES = 16
"""Most bytes of one column in a mask of spine uplinks: more uplinks than any switch has."""


class SpineBounds:
    """Bounds on the free spine uplinks that pods share; see ``Ledger.free_spines``."""

    def __init__(self, fabric: LedgerView, budget: SearchBudget) -> None:
        self._topology = fabric.topology
        self._fabric = fabric
        self._budget = budget
        self._columns: list[tuple[_Column, int]] | None = None
        self._shared: list[bytes] | None = None
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._cut_off = False
        self.needed = False
        """Whether a search without these bounds dragged on."""

    def candidates(self, among: int, pods: int, need: int, columns: int) -> int:
        """The pods that may belong to a set of ``pods`` pods, as a bit set.

        ``among`` is the bit set of the pods to choose from. The pods of a set share ``need``
        spine uplinks in each of ``columns`` columns. The answer contains every pod that
        belongs to such a set. 0 means that no set exists. Without budget it is ``among``.
        """
        key = among, pods, need, columns
        known = self._known.get(key)
        if known is None:
            self._cut_off = False
            known = self._candidates(*key)
            if not self._cut_off:
                self._known[key] = known
        return known

    def _candidates(self, among: int, pods: int, need: int, columns: int) -> int:
        if among.bit_count() < pods:
            return 0
        if pods < 2 or not need:
            return among
        if not self._budget.spend(2 * self._topology.columns_per_pod):
            self._cut_off = True
            return among
        distinct = self._distinct_columns()
        if sum(times for column, times in distinct if column.common >= need) >= columns:
            return among
        if sum(times for column, times in distinct if column.allows(pods, need)) < columns:
            return 0
        if not self._count_pairs(distinct):
            return among
        return self._core(among, pods, need, columns)

    def _distinct_columns(self) -> list[tuple[_Column, int]]:
        """The columns that differ from each other, and how often each occurs."""
        if self._columns is None:
            width, free = self._topology.columns_per_pod, self._fabric.free_spines
            contents = Counter(tuple(free[c::width]) for c in range(width))
            self._columns = [(_Column(c, self._budget), times) for c, times in contents.items()]
        return self._columns

    def _count_pairs(self, columns: list[tuple[_Column, int]]) -> bool:
        """Count once what each two pods share by column; False without budget for it.

        ``self._shared[pod]`` has, for each ``other < pod`` in turn, one byte for each column.
        """
        if self._shared is not None:
            return True
        pods, width = self._topology.pods, len(columns)
        size = max(1, -(-self._topology.tree.w[2] // 8))
        cost = pods * (pods + width) + pods * pods * width // 32
        self._cut_off = cost > self._budget.left
        if size > MAX_COLUMN_BYTES or self._cut_off:
            return False
        self._budget.spend(cost)
        size = 1 << (size - 1).bit_length()
        masks = [column.masks for column, _ in columns]
        steps = _popcount_steps(size, pods * width)
        self._shared, below = [], 0
        for pod in range(pods):
            side = b"".join([column[pod].to_bytes(size, "little") for column in masks])
            both = below & int.from_bytes(side * pod, "little")
            self._shared.append(_popcounts(both, size, pod * width, steps))
            below |= int.from_bytes(side, "little") << 8 * pod * len(side)
        return True

    def _core(self, among: int, pods: int, need: int, columns: int) -> int:
        """The pods with ``pods - 1`` neighbours each; 0 if too few colours colour them."""
        listed = list(bits(among))
        if self._shared is None or not self._budget.spend(len(listed) * (len(listed) // 2 + 8)):
            self._cut_off = True
            return among
        at_least = bytes(need) + b"\1" * (256 - need)
        counts = [times for _, times in self._distinct_columns()]
        all_distinct = all(times == 1 for times in counts)
        neighbours, width = dict.fromkeys(listed, 0), len(counts)
        for place, pod in enumerate(listed):
            enough = self._shared[pod].translate(at_least)
            for other in listed[:place]:
                first, end = other * width, (other + 1) * width
                if all_distinct:
                    agreeing = enough.count(1, first, end)
                else:
                    agreeing = sum(compress(counts, enough[first:end]))
                if agreeing >= columns:
                    neighbours[pod] |= 1 << other
                    neighbours[other] |= 1 << pod
        previous = 0
        while previous != among:
            previous = among
            for pod in bits(previous):
                if (neighbours[pod] & among).bit_count() < pods - 1:
                    among ^= 1 << pod
        return among if _greedy_colours(neighbours, among) >= pods else 0


class _Column:
    """The free spine uplinks above one L2 index, one mask for each pod."""

    def __init__(self, masks: tuple[int, ...], budget: SearchBudget) -> None:
        self.masks = masks
        self.common = reduce(and_, masks).bit_count()
        self._budget = budget
        self._by_pod = sorted((mask.bit_count() for mask in masks), reverse=True)
        self._pod_counts: list[int] = []
        self._sure_bounds: list[KonigBound] = []
        self._bounds: list[KonigBound] = []

    def allows(self, pods: int, need: int) -> bool:
        """Whether the bounds allow ``pods`` pods to share ``need`` spine uplinks."""
        if self._by_pod[pods - 1] < need:
            return False
        if not self._pod_counts:
            if not self._budget.spend(len(self.masks)):
                return True
            self._pod_counts = bit_counts(self.masks)
            self._sure_bounds = sure_bounds(self.masks)
        if counted_at_least(pods, self._pod_counts).bit_count() < need:
            return False
        if not self._bounds:
            if all(bound.allows(pods, need) for bound in self._sure_bounds):
                return True
            self._bounds = konig_bounds(self.masks, self._budget)
        return all(bound.allows(pods, need) for bound in self._bounds)


def _greedy_colours(neighbours: dict[int, int], among: int) -> int:
    """The number of colours of a greedy colouring; no two neighbours have one colour."""
    count = 0
    while among:
        count += 1
        left = among
        while left:
            low = left & -left
            among ^= low
            left &= ~neighbours[low.bit_length() - 1] & ~low
    return count


def _popcount_steps(size: int, fields: int) -> list[tuple[int, int]]:
    """Shifts and masks to count the bits of so many fields of ``size`` bytes in parallel."""
    steps, shift = [], 1
    while shift < 8 * size:
        half = sum(((1 << shift) - 1) << at for at in range(0, 8 * size, 2 * shift))
        steps.append((shift, int.from_bytes(half.to_bytes(size, "little") * fields, "little")))
        shift *= 2
    return steps


def _popcounts(mask: int, size: int, fields: int, steps: list[tuple[int, int]]) -> bytes:
    """The number of bits in each field of a mask, one byte a field."""
    for shift, half in steps:
        mask = (mask & half) + (mask >> shift & half)
    return mask.to_bytes(size * fields, "little")[::size]
