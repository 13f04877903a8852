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
from functools import lru_cache, reduce
from itertools import compress
from operator import and_, or_

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.matching import KonigBound, konig_bounds
from laas_service.domain.topology import bits

MAX_COLUMN_BYTES = 16
"""Most bytes of one column in a mask of spine uplinks: more uplinks than any switch has."""


class SpineBounds:
    """Bounds on the free spine uplinks that pods share; see ``Ledger.free_spines``."""

    def __init__(self, fabric: LedgerView, budget: SearchBudget) -> None:
        self._topology = fabric.topology
        self._free = fabric.free_spines
        self._budget = budget
        self._columns: list[tuple[_Column, int]] | None = None
        self._shared: list[list[bytes]] | None = None
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
            width = self._topology.columns_per_pod
            contents = Counter(tuple(self._free[c::width]) for c in range(width))
            self._columns = [(_Column(c, self._budget), times) for c, times in contents.items()]
        return self._columns

    def _count_pairs(self, columns: list[tuple[_Column, int]]) -> bool:
        """Count once what each two pods share by column; False without budget for it.

        ``self._shared[pod][other]``, for ``other < pod``, has one byte for each column.
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
        sides = [
            sum(column[pod] << 8 * size * place for place, column in enumerate(masks))
            for pod in range(pods)
        ]
        steps = _popcount_steps(size, width)
        self._shared = [
            [_popcounts(side & other, size, width, steps) for other in sides[:pod]]
            for pod, side in enumerate(sides)
        ]
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
        neighbours = dict.fromkeys(listed, 0)
        for place, pod in enumerate(listed):
            shared = self._shared[pod]
            for other in listed[:place]:
                enough = shared[other].translate(at_least)
                agreeing = enough.count(1) if all_distinct else sum(compress(counts, enough))
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
        self._by_spine: list[int] = []
        self._bounds: list[KonigBound] = []

    def allows(self, pods: int, need: int) -> bool:
        """Whether the bounds allow ``pods`` pods to share ``need`` spine uplinks."""
        if self._by_pod[pods - 1] < need:
            return False
        if not self._by_spine:
            if not self._budget.spend(len(self.masks)):
                return True
            self._by_spine = _pods_by_spine(self.masks)
            self._bounds = konig_bounds(self.masks, self._budget)
        if need > len(self._by_spine) or self._by_spine[need - 1] < pods:
            return False
        return all(bound.allows(pods, need) for bound in self._bounds)


@lru_cache(maxsize=1024)
def _pods_by_spine(masks: tuple[int, ...]) -> list[int]:
    """The number of pods in which a spine uplink is free, for each of them, descending."""
    union = reduce(or_, masks)
    counts = dict.fromkeys(bits(union), len(masks))
    for mask, times in Counter(masks).items():
        for bit in bits(union & ~mask):
            counts[bit] -= times
    return sorted(counts.values(), reverse=True)


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


@lru_cache(maxsize=16)
def _popcount_steps(size: int, width: int) -> tuple[tuple[int, int], ...]:
    """Shifts and masks to count the bits of ``width`` fields of ``size`` bytes in parallel."""
    field = 8 * size
    lowest = sum(1 << field * c for c in range(width))
    steps, shift = [], 1
    while shift < field:
        half = sum(((1 << shift) - 1) << at for at in range(0, field, 2 * shift))
        steps.append((shift, half * lowest))
        shift *= 2
    return tuple(steps)


def _popcounts(mask: int, size: int, width: int, steps: tuple[tuple[int, int], ...]) -> bytes:
    """The number of bits in each field of a mask, one byte a field."""
    for shift, half in steps:
        mask = (mask & half) + (mask >> shift & half)
    return mask.to_bytes(size * width, "little")[::size]
