# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Complete blocks of a bit matrix: rows that share enough bits. Pure combinatorics.

Both levels of a fat-tree ask the same question. Inside a pod the rows are leaves
and the bits their free uplinks; across pods the rows are pods and the bits the
free spine uplinks of all their L2 switches. The published searches (LaaS,
Algorithm 1; Jigsaw, FIND_L2 and FIND_L3) try all combinations of rows; this one
gives the same answers and cuts three ways: bits and rows that cannot belong to
any block are dropped until nothing changes (the kernel), a matching bounds the
size of any block (König), and each branch either takes or leaves out one row, so
no set of rows is met twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import and_, or_


class Budget:
    """How much work search trees may still take; ``exceeded`` if they wanted more.

    ``nodes`` counts nodes visited. ``work`` is in units of about half a
    microsecond: a node costs its rows times its fields, and something for itself.
    """

    def __init__(self, work: int) -> None:
        self.work = work
        self.nodes = 0
        self.exceeded = False

    def spend(self, rows: int, fields: int) -> bool:
        """Pay for a node; False if too little is left."""
        cost = rows * (fields + 4)
        if cost > self.work:
            self.exceeded = True
            return False
        self.work -= cost
        self.nodes += 1
        return True


def lowest(mask: int, count: int) -> int:
    """The ``count`` lowest bits of ``mask``; all of it if it has no more."""
    if mask.bit_count() <= count:
        return mask
    taken = 0
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken


def held_by(masks: Sequence[int], count: int) -> int:
    """The bits that at least ``count`` (1 or more) of the masks have.

    Counts all bit positions at once: digit i of position b's counter is bit b of
    ``digits[i]``.
    """
    digits: list[int] = []
    union = 0
    for mask in masks:
        union |= mask
        carry = mask
        for i, digit in enumerate(digits):
            digits[i], carry = digit ^ carry, digit & carry
            if not carry:
                break
        else:
            if carry:
                digits.append(carry)
    if count >> len(digits):
        return 0
    enough = union
    for i, digit in enumerate(digits):
        enough = enough & digit if count >> i & 1 else enough | digit
    return enough


def matching(graph: Sequence[int], limit: int, row_units: int = 1, bit_units: int = 1) -> int:
    """Size of a maximum matching of rows and bits, or ``limit`` + 1 if it is larger.

    ``graph[row]`` is the mask of the bits a row is joined to. A row may be matched
    ``row_units`` times, a bit ``bit_units`` times. Augmenting paths (Kuhn).
    """
    partners: dict[int, list[int]] = {}
    used_up = seen = 0

    def augment(row: int) -> bool:
        nonlocal used_up, seen
        free = graph[row] & ~used_up
        if free:
            bit = free & -free
            rows = partners.setdefault(bit, [])
            rows.append(row)
            if len(rows) == bit_units:
                used_up |= bit
            return True
        while todo := graph[row] & ~seen:
            bit = todo & -todo
            seen |= bit
            rows = partners[bit]
            for place, other in enumerate(rows):
                if augment(other):
                    rows[place] = row
                    return True
        return False

    size = 0
    for row in range(len(graph)):
        for _ in range(row_units if graph[row] else 0):
            seen = 0
            if not augment(row):
                break
            size += 1
            if size > limit:
                return size
    return size


@lru_cache(maxsize=1024)
def heaviest(rows: tuple[int, ...], row_weight: int, bit_weight: int) -> int:
    """The most that rows and bits of any block weigh together.

    A block is an independent set of the graph that joins each row to the bits it
    misses, so König's theorem applies: all rows and bits less a maximum matching,
    each counted as often as it weighs.
    """
    union = reduce(or_, rows, 0)
    whole = row_weight * len(rows) + bit_weight * union.bit_count()
    return whole - matching([union & ~row for row in rows], whole, row_weight, bit_weight)


def impossible(rows: Sequence[int], count: int, field: int, need: int) -> bool:
    """Whether a bound tells that no ``count`` rows have ``need`` bits of a field in common.

    Rows and bits weigh the same at first. That is blind to shapes far from
    square, so then the rarer of incomplete rows and incomplete bits weighs more,
    by as much as it is rarer.
    """
    shift = (field & -field).bit_length() - 1  # equal columns are looked up as equal
    within = tuple((row & field) >> shift for row in rows)
    if heaviest(within, 1, 1) < count + need:
        return True
    union, common = reduce(or_, within), reduce(and_, within)
    if union == common:
        return False
    incomplete_rows = sum(row != union for row in within)
    incomplete_bits = (union ^ common).bit_count()
    bit_weight = max(1, round(incomplete_rows / incomplete_bits))
    row_weight = max(1, round(incomplete_bits / incomplete_rows))
    weighed = heaviest(within, row_weight, bit_weight)
    return weighed < row_weight * count + bit_weight * need


def first_block(
    rows: Sequence[int], count: int, met: Callable[[int], bool]
) -> tuple[list[int], int] | None:
    """The first ``count`` rows, each taken if the bits in common stay enough; None if fewer."""
    common, chosen = -1, []
    for row, mask in enumerate(rows):
        if met(common & mask):
            common &= mask
            chosen.append(row)
            if len(chosen) == count:
                return chosen, common
    return None


def blocks(
    rows: Sequence[int],
    count: int,
    needs: Sequence[tuple[int, int]],
    met: Callable[[int], bool],
    budget: Budget,
) -> Iterator[tuple[list[int], int]]:
    """Blocks of at least ``count`` rows and the bits that all of these rows have.

    ``met`` says whether common bits are enough; if it is true of some bits, it
    must be true of more. ``needs`` are pairs (field, n): ``met`` is never true
    of fewer than n bits in that field.

    Complete while the budget lasts: whatever ``count`` rows have common bits that
    are enough, some block yielded contains them and has the same common bits.
    The first block, if ``first_block`` finds one, costs no budget.
    """
    if block := first_block(rows, count, met):
        yield block
    elif any(impossible(rows, count, field, need) for field, need in needs):
        return
    yield from _branch(rows, list(range(len(rows))), -1, count, needs, met, budget)


def _branch(
    rows: Sequence[int],
    left: list[int],
    live: int,
    count: int,
    needs: Sequence[tuple[int, int]],
    met: Callable[[int], bool],
    budget: Budget,
) -> Iterator[tuple[list[int], int]]:
    """Blocks among the rows ``left``, of bits in ``live``: the kernel, the bound, two branches."""
    if not budget.spend(len(left), len(needs)):
        return
    before: tuple[int, int] | None = None
    while before != (len(left), live):
        before = len(left), live
        if len(left) < count:
            return
        live &= held_by([rows[row] for row in left], count)
        left = [row for row in left if met(rows[row] & live)]
    missing = [(live & ~rows[row]).bit_count() for row in left]
    most = max(missing)
    if not most:
        yield left, live
        return
    worst = missing.index(most)
    if needs and _bounded(rows, left, live, count, needs, live & ~rows[left[worst]]):
        return
    without = left[:worst] + left[worst + 1 :]
    yield from _branch(rows, without, live, count, needs, met, budget)
    yield from _branch(rows, left, live & rows[left[worst]], count, needs, met, budget)


def _bounded(
    rows: Sequence[int],
    left: list[int],
    live: int,
    count: int,
    needs: Sequence[tuple[int, int]],
    lacks: int,
) -> bool:
    """König's bound once more, for the field of which the worst row lacks most."""
    field, need = max(needs, key=lambda part: (lacks & part[0]).bit_count())
    within = live & field
    spare = len(left) + within.bit_count() - count - need
    return matching([within & ~rows[row] for row in left], spare) > spare
