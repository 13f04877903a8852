# SPDX-License-Identifier: Apache-2.0

"""Which pods may share spine uplinks: what bounds tell before a search.

Pods of a tenant share, above each L2 index they use, as many spines as each has
leaves. Three bounds, each dearer and sharper than the one before:

* by column: enough pods have enough free, and enough spines are free in enough pods;
* by column: König's bound (see ``blocks``);
* by pair: two pods go together if they share enough in enough columns. All pods of a
  tenant go together pairwise, so each has as many neighbours as it needs (the core),
  and pods that go together need colours of their own (Brelaz and others: a graph's
  largest clique is no larger than any colouring).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, reduce
from itertools import compress
from operator import and_, or_

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import Budget, konig
from laas_service.domain.topology import bits


class Spines:
    """The free spine uplinks of all pods, by column; see ``Fabric.free_spines``."""

    def __init__(self, fabric: LedgerView, budget: Budget) -> None:
        self._topology = fabric.topology
        self._free = fabric.free_spines
        self._budget = budget
        self._columns: list[tuple[_Column, int]] | None = None
        self._numbers: list[int] = []
        self._shared: list[list[bytes]] | None = None
        self._known: dict[tuple[int, int, int, int], int] = {}

    def candidates(self, among: int, pods: int, need: int, columns: int) -> int:
        """Of the pods ``among`` (a bit set) those that may belong to a set of ``pods``.

        Such a set has ``need`` spine uplinks in common in each of ``columns`` columns. 0 if
        there is none; never less than all that do belong to one.
        """
        key = among, pods, need, columns
        if key not in self._known:
            self._known[key] = self._candidates(*key)
        return self._known[key]

    def _candidates(self, among: int, pods: int, need: int, columns: int) -> int:
        if among.bit_count() < pods:
            return 0
        if pods < 2 or not need:
            return among
        if not self._budget.spend(2 * self._topology.columns_per_pod):
            return among
        every = self._by_column()
        if sum(times for column, times in every if column.shared >= need) >= columns:
            return among
        if sum(times for column, times in every if column.allows(pods, need)) < columns:
            return 0
        if not self._by_pair(every):
            return among
        return self._going_together(among, pods, need, columns)

    # -- by column ------------------------------------------------------------

    def _by_column(self) -> list[tuple[_Column, int]]:
        """The columns that are not equal, and how many there are of each."""
        if self._columns is None:
            width = self._topology.columns_per_pod
            contents = Counter(tuple(self._free[c::width]) for c in range(width))
            self._columns = [(_Column(c, self._budget), times) for c, times in contents.items()]
        return self._columns

    # -- by pair --------------------------------------------------------------

    def _by_pair(self, columns: list[tuple[_Column, int]]) -> bool:
        """Count once what any two pods share; False if there is no budget for it."""
        if self._shared is not None:
            return True
        pods, width = self._topology.pods, len(columns)
        size = max(1, -(-self._topology.tree.w[2] // 8))
        cost = pods * (pods + width) + pods * pods * width // 32
        if size > BYTES or cost > self._budget.work:
            return False
        self._budget.spend(cost)
        size = 1 << (size - 1).bit_length()
        masks = [column.masks for column, _ in columns]
        sides = [
            sum(column[pod] << 8 * size * place for place, column in enumerate(masks))
            for pod in range(pods)
        ]
        steps = _steps(size, width)
        self._shared = [
            [_counts(side & other, size, width, steps) for other in sides[:pod]]
            for pod, side in enumerate(sides)
        ]
        return True

    def _going_together(self, among: int, pods: int, need: int, columns: int) -> int:
        """The core, or nothing if too few colours are enough for it."""
        listed = list(bits(among))
        if self._shared is None or not self._budget.spend(len(listed) * (len(listed) // 2 + 8)):
            return among
        at_least = bytes(need) + b"\1" * (256 - need)
        alike = all(times == 1 for _, times in self._by_column())
        every = [times for _, times in self._by_column()]
        near = dict.fromkeys(listed, 0)
        for place, pod in enumerate(listed):
            shared = self._shared[pod]
            for other in listed[:place]:
                good = shared[other].translate(at_least)
                if (good.count(1) if alike else sum(compress(every, good))) >= columns:
                    near[pod] |= 1 << other
                    near[other] |= 1 << pod
        before = 0
        while before != among:
            before = among
            for pod in bits(before):
                if (near[pod] & among).bit_count() < pods - 1:
                    among ^= 1 << pod
        return among if _colours(near, among) >= pods else 0


BYTES = 16
"""Most bytes of a column in a mask of spine uplinks: more than any switch has."""


class _Column:
    """The free spine uplinks above one L2 index, by pod."""

    def __init__(self, masks: tuple[int, ...], budget: Budget) -> None:
        self.masks = masks
        self.shared = reduce(and_, masks).bit_count()
        self._budget = budget
        self._by_pod = sorted((mask.bit_count() for mask in masks), reverse=True)
        self._by_spine: list[int] = []
        self._bounds: list[tuple[int, int, int]] = []

    def allows(self, pods: int, need: int) -> bool:
        """Whether so many pods may have so many spine uplinks in common."""
        if self._by_pod[pods - 1] < need:
            return False
        if not self._by_spine:
            if not self._budget.spend(len(self.masks)):
                return True
            self._by_spine = _held(self.masks)
            self._bounds = konig(self.masks, self._budget)
        if need > len(self._by_spine) or self._by_spine[need - 1] < pods:
            return False
        return all(x * pods + y * need <= most for x, y, most in self._bounds)


@lru_cache(maxsize=1024)
def _held(masks: tuple[int, ...]) -> list[int]:
    """How many masks have each bit that some mask has, the most first."""
    union = reduce(or_, masks)
    counts = dict.fromkeys(bits(union), len(masks))
    for mask, times in Counter(masks).items():
        for bit in bits(union & ~mask):
            counts[bit] -= times
    return sorted(counts.values(), reverse=True)


def _colours(near: dict[int, int], among: int) -> int:
    """Colours of a greedy colouring: pods of one colour do not go together."""
    count = 0
    while among:
        count += 1
        left = among
        while left:
            low = left & -left
            among ^= low
            left &= ~near[low.bit_length() - 1] & ~low
    return count


@lru_cache(maxsize=16)
def _steps(size: int, width: int) -> tuple[tuple[int, int], ...]:
    """For counting bits in fields of ``size`` bytes: shifts, and masks of the lower halves."""
    field = 8 * size
    every = sum(1 << field * c for c in range(width))
    steps, shift = [], 1
    while shift < field:
        half = sum(((1 << shift) - 1) << at for at in range(0, field, 2 * shift))
        steps.append((shift, half * every))
        shift *= 2
    return tuple(steps)


def _counts(mask: int, size: int, width: int, steps: tuple[tuple[int, int], ...]) -> bytes:
    """How many bits each field of a mask has, all fields at once."""
    for shift, half in steps:
        mask = (mask & half) + (mask >> shift & half)
    return mask.to_bytes(size * width, "little")[::size]
