# SPDX-License-Identifier: Apache-2.0

"""Maximum matchings of a bit matrix, and König's bound on its bicliques."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import and_, or_
from typing import NamedTuple

from laas_service.domain.search.budget import SearchBudget


class KonigBound(NamedTuple):
    """``row_weight * rows + bit_weight * bits <= most`` holds for every biclique."""

    row_weight: int
    bit_weight: int
    most: int

    def allows(self, rows: int, bits: int) -> bool:
        """Whether a biclique of so many rows and bits meets the bound."""
        return self.row_weight * rows + self.bit_weight * bits <= self.most

    def most_rows(self, bits: int) -> int:
        """The most rows of a biclique of so many bits, 0 or more."""
        return max(0, (self.most - self.bit_weight * bits) // self.row_weight)


def konig_bounds(rows: tuple[int, ...], budget: SearchBudget) -> list[KonigBound]:
    """One or two bounds on the bicliques of a matrix; ``rows`` are masks, at least one.

    In the first bound a row weighs as much as a bit. That bound is weak for bicliques far
    from square. The second bound therefore gives more weight to whichever is rarer, rows
    that lack a bit or bits that a row lacks, in proportion. Cached results cost as much
    budget as new ones, so that an answer does not depend on earlier searches.
    """
    budget.spend(len(rows))
    bounds = []
    for row_weight, bit_weight in _weights(rows):
        most, work = heaviest_biclique(rows, row_weight, bit_weight)
        budget.spend(work)
        bounds.append(KonigBound(row_weight, bit_weight, most))
    return bounds


def sure_bounds(rows: tuple[int, ...]) -> list[KonigBound]:
    """Bounds that allow nothing that ``konig_bounds`` does not; they need no matching.

    A biclique of all rows or of all bits weighs as much.
    """
    union, common = reduce(or_, rows), reduce(and_, rows)
    incomplete = sum(row != union for row in rows)
    all_rows = len(rows), common.bit_count()
    all_bits = len(rows) - incomplete, union.bit_count()
    return [
        KonigBound(
            row_weight,
            bit_weight,
            max(row_weight * n + bit_weight * m for n, m in (all_rows, all_bits)),
        )
        for row_weight, bit_weight in _weights(rows)
    ]


def _weights(rows: tuple[int, ...]) -> list[tuple[int, int]]:
    """The weights of a row and of a bit in each of ``konig_bounds``."""
    union, common = reduce(or_, rows), reduce(and_, rows)
    if union == common:
        return [(1, 1)]
    incomplete_rows = sum(row != union for row in rows)
    incomplete_bits = (union ^ common).bit_count()
    bit_weight = max(1, round(incomplete_rows / incomplete_bits))
    row_weight = max(1, round(incomplete_bits / incomplete_rows))
    return [(1, 1)] if bit_weight == row_weight else [(1, 1), (row_weight, bit_weight)]


@lru_cache(maxsize=1024)
def heaviest_biclique(rows: tuple[int, ...], row_weight: int, bit_weight: int) -> tuple[int, int]:
    """The largest total weight of the rows and bits of a biclique, and the work to find it.

    A biclique is an independent set of the bipartite graph that joins each row to the bits
    it lacks. By König's theorem the heaviest one weighs as much as all rows and bits less a
    maximum matching, in which each takes part as often as it weighs.
    """
    union = reduce(or_, rows, 0)
    total = row_weight * len(rows) + bit_weight * union.bit_count()
    size, work = matching_size([union & ~row for row in rows], total, row_weight, bit_weight)
    return total - size, work


def matching_size(
    graph: Sequence[int], limit: int, row_units: int = 1, bit_units: int = 1
) -> tuple[int, int]:
    """The size of a maximum matching, or some size above ``limit``; and the work it took.

    ``graph[row]`` is the mask of the bits that the row is joined to. A row takes part in up
    to ``row_units`` pairs, a bit in up to ``bit_units``. Equal rows are matched together.
    """
    matching = _Matching(Counter(mask for mask in graph if mask), row_units, bit_units)
    for row in range(len(matching.masks)):
        while matching.open and matching.unmatched[row] and matching.augment(row):
            if matching.size > limit:
                return matching.size, matching.work
    return matching.size, matching.work


class _Matching:
    """A matching that grows along augmenting paths, found by breadth-first search.

    ``open`` are the bits with room for another pair. ``dead`` are the bits reached by a
    search that failed: no later augmenting path leads through them, so later searches
    skip them.
    """

    def __init__(self, rows: Counter[int], row_units: int, bit_units: int) -> None:
        self.masks = list(rows)
        self.unmatched = [count * row_units for count in rows.values()]
        self.open = reduce(or_, self.masks, 0)
        self.bit_units = bit_units
        self.pairs: dict[int, dict[int, int]] = {}  # bit -> row -> how often they are paired
        self.size = self.work = self.dead = 0

    def augment(self, start: int) -> bool:
        """Match row ``start`` at least once more; False if no augmenting path exists."""
        reached_from: dict[int, tuple[int, int]] = {start: (0, start)}
        reached, seen = [start], self.dead
        for row in reached:
            new = self.masks[row] & ~seen
            if ends := new & self.open:
                self.work += len(reached)
                self._push(start, row, ends & -ends, reached_from)
                return True
            seen |= new
            while new:
                bit = new & -new
                new ^= bit
                for partner in self.pairs[bit]:
                    if partner not in reached_from:
                        reached_from[partner] = bit, row
                        reached.append(partner)
        self.work += len(reached) + (seen ^ self.dead).bit_count()
        self.dead = seen
        return False

    def _push(
        self, start: int, row: int, bit: int, reached_from: dict[int, tuple[int, int]]
    ) -> None:
        """Push as many units as the path carries from ``start`` through ``row`` to ``bit``."""
        partners = self.pairs.setdefault(bit, {})
        room = self.bit_units - sum(partners.values())
        amount, at = min(self.unmatched[start], room), row
        while at != start:
            given_up, earlier = reached_from[at]
            amount, at = min(amount, self.pairs[given_up][at]), earlier
        if amount == room:
            self.open ^= bit
        partners[row] = partners.get(row, 0) + amount
        while row != start:
            given_up, earlier = reached_from[row]
            partners = self.pairs[given_up]
            partners[row] -= amount
            if not partners[row]:
                del partners[row]
            partners[earlier] = partners.get(earlier, 0) + amount
            row = earlier
            self.work += 1
        self.unmatched[start] -= amount
        self.size += amount
