# SPDX-License-Identifier: Apache-2.0

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

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from operator import and_, or_
from typing import NamedTuple

from laas_service.domain.budget import RequestBudget


class Budget:
    """How much work a search may still do; ``exceeded`` if it wanted more.

    ``work`` is in units of about half a microsecond. Whatever may be done more than a
    few times is paid for beforehand, or where nobody knows how much it will be,
    as soon as it is done. ``nodes`` counts the nodes of search trees. What is paid is paid
    from the ``meter``, too, and no more than that has left.
    """

    def __init__(self, work: int, meter: RequestBudget | None = None) -> None:
        self.work = work
        self.meter = meter
        self.nodes = 0
        self.exceeded = False

    def spend(self, cost: int) -> bool:
        """Pay; False, and nothing left, if that is more than there is."""
        self.work -= cost
        if self.meter is not None and not self.meter.spend(min(cost, cost + self.work)):
            self.work = -1
        if self.work < 0:
            self.work = 0
            self.exceeded = True
            return False
        return True

    @contextmanager
    def keeping(self, part: int) -> Iterator[None]:
        """Inside, only one ``part``-th of what is left may be spent."""
        kept = self.work - self.work // part
        self.work -= kept
        try:
            yield
        finally:
            self.work += kept


def lowest(mask: int, count: int) -> int:
    """The ``count`` lowest bits of ``mask``; all of it if it has no more."""
    spare = mask.bit_count() - count
    if spare <= 0:
        return mask
    if spare < count:
        for _ in range(spare):
            mask ^= 1 << mask.bit_length() - 1
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


def matching(
    graph: Sequence[int], limit: int, row_units: int = 1, bit_units: int = 1
) -> tuple[int, int]:
    """Size of a maximum matching of rows and bits, or more than ``limit``; and the work it was.

    ``graph[row]`` is the mask of the bits a row is joined to. A row may be matched
    ``row_units`` times, a bit ``bit_units`` times. Equal rows are matched together.
    """
    flow = _Flow(Counter(mask for mask in graph if mask), row_units, bit_units)
    for row in range(len(flow.masks)):
        while flow.open and flow.left[row] and flow.augment(row):
            if flow.size > limit:
                return flow.size, flow.work
    return flow.size, flow.work


class _Flow:
    """A matching that grows along augmenting paths, found breadth first.

    What a search has reached in vain no later one need look at.
    """

    def __init__(self, rows: Counter[int], row_units: int, bit_units: int) -> None:
        self.masks = list(rows)
        self.left = [count * row_units for count in rows.values()]
        self.open = reduce(or_, self.masks, 0)
        self.units = bit_units
        self.taken: dict[int, dict[int, int]] = {}
        self.size = self.work = self.dead = 0

    def augment(self, start: int) -> bool:
        """Match ``start`` more often; False if it cannot be."""
        before: dict[int, tuple[int, int]] = {start: (0, start)}
        reached, seen = [start], self.dead
        for row in reached:
            new = self.masks[row] & ~seen
            if found := new & self.open:
                self.work += len(reached)
                self._push(start, row, found & -found, before)
                return True
            seen |= new
            while new:
                bit = new & -new
                new ^= bit
                for other in self.taken[bit]:
                    if other not in before:
                        before[other] = bit, row
                        reached.append(other)
        self.work += len(reached) + (seen ^ self.dead).bit_count()
        self.dead = seen
        return False

    def _push(self, start: int, row: int, bit: int, before: dict[int, tuple[int, int]]) -> None:
        """As many units as the path from ``start`` to a bit with room carries."""
        rows = self.taken.setdefault(bit, {})
        room = self.units - sum(rows.values())
        amount, at = min(self.left[start], room), row
        while at != start:
            given, earlier = before[at]
            amount, at = min(amount, self.taken[given][at]), earlier
        if amount == room:
            self.open ^= bit
        rows[row] = rows.get(row, 0) + amount
        while row != start:
            given, earlier = before[row]
            rows = self.taken[given]
            rows[row] -= amount
            if not rows[row]:
                del rows[row]
            rows[earlier] = rows.get(earlier, 0) + amount
            row = earlier
            self.work += 1
        self.left[start] -= amount
        self.size += amount


@lru_cache(maxsize=1024)
def heaviest(rows: tuple[int, ...], row_weight: int, bit_weight: int) -> tuple[int, int]:
    """The most that rows and bits of any block weigh together; and the work to find it.

    A block is an independent set of the graph that joins each row to the bits it
    misses, so König's theorem applies: all rows and bits less a maximum matching,
    each counted as often as it weighs.
    """
    union = reduce(or_, rows, 0)
    whole = row_weight * len(rows) + bit_weight * union.bit_count()
    size, work = matching([union & ~row for row in rows], whole, row_weight, bit_weight)
    return whole - size, work


def konig(rows: tuple[int, ...], budget: Budget) -> list[tuple[int, int, int]]:
    """Bounds (x, y, most): any r rows have b bits in common only if x * r + y * b <= most.

    Rows and bits weigh the same at first. That is blind to shapes far from
    square, so then the rarer of incomplete rows and incomplete bits weighs more,
    by as much as it is rarer. What was found before is paid for all the same, so that
    an answer does not depend on what was asked earlier.
    """
    most, work = heaviest(rows, 1, 1)
    budget.spend(len(rows) + work)
    bounds = [(1, 1, most)]
    union, common = reduce(or_, rows), reduce(and_, rows)
    if union != common:
        incomplete_rows = sum(row != union for row in rows)
        incomplete_bits = (union ^ common).bit_count()
        bit_weight = max(1, round(incomplete_rows / incomplete_bits))
        row_weight = max(1, round(incomplete_bits / incomplete_rows))
        if bit_weight != row_weight:
            most, work = heaviest(rows, row_weight, bit_weight)
            budget.spend(work)
            bounds.append((row_weight, bit_weight, most))
    return bounds


def impossible(rows: Sequence[int], count: int, field: int, need: int, budget: Budget) -> bool:
    """Whether a bound tells that no ``count`` rows have ``need`` bits of a field in common."""
    if not budget.spend(len(rows)):
        return False
    shift = (field & -field).bit_length() - 1  # equal columns are looked up as equal
    bounds = konig(tuple((row & field) >> shift for row in rows), budget)
    return any(x * count + y * need > most for x, y, most in bounds)


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


class Wanted(NamedTuple):
    """What a block must be.

    At least ``least`` rows. ``met`` says whether common bits are enough; if it is true of
    some bits, it must be true of more. ``needs`` are pairs (field, n): ``met`` is never
    true of fewer than n bits in that field. ``trim`` may drop bits that are of no use
    to any block, and ``plausible`` refuse rows that hold none; both are told what is
    left of the matrix.
    """

    least: int
    needs: Sequence[tuple[int, int]]
    met: Callable[[int], bool]
    trim: Callable[[int], int] | None = None
    plausible: Callable[[list[int]], bool] | None = None

    @property
    def cost(self) -> int:
        """Work that a row is at a node."""
        return 3 + len(self.needs)


def blocks(rows: Sequence[int], wanted: Wanted, budget: Budget) -> Iterator[tuple[list[int], int]]:
    """Blocks as wanted, of all rows that have some bits in common, and these bits.

    Complete while the budget lasts: whatever ``wanted.least`` rows have common bits that
    are enough, some block yielded contains them and has the same common bits. The first
    block, if taking rows in order finds one, is free, so that easy requests are served
    without a budget.
    """
    block = first_block(rows, wanted.least, wanted.met)
    if block:
        yield block
    if not budget.spend(len(rows) * 2):
        return
    if not block and any(impossible(rows, wanted.least, *need, budget) for need in wanted.needs):
        return
    yield from _branch(rows, list(range(len(rows))), -1, wanted, budget)


def _branch(
    rows: Sequence[int], left: list[int], live: int, wanted: Wanted, budget: Budget
) -> Iterator[tuple[list[int], int]]:
    """Blocks among the rows ``left``, of bits in ``live``: the kernel, the bound, two branches."""
    count, _, met, trim, plausible = wanted
    if budget.exceeded:
        return
    budget.nodes += 1
    before: tuple[int, int] | None = None
    while before != (len(left), live):
        before = len(left), live
        if len(left) < count or not budget.spend(len(left) * wanted.cost):
            return
        live &= held_by([rows[row] for row in left], count)
        if trim is not None:
            live = trim(live)
        left = [row for row in left if met(rows[row] & live)]
        if plausible is not None and not plausible(left):
            return
    missing = [(live & ~rows[row]).bit_count() for row in left]
    most = max(missing, default=0)
    if not most:
        if left:
            yield left, live
        return
    worst = missing.index(most)
    if wanted.needs and _bounded(rows, left, live, wanted, live & ~rows[left[worst]], budget):
        return
    without = left[:worst] + left[worst + 1 :]
    yield from _branch(rows, without, live, wanted, budget)
    yield from _branch(rows, left, live & rows[left[worst]], wanted, budget)


def _bounded(
    rows: Sequence[int], left: list[int], live: int, wanted: Wanted, lacks: int, budget: Budget
) -> bool:
    """König's bound once more, for the field of which the worst row lacks most."""
    field, need = max(wanted.needs, key=lambda part: (lacks & part[0]).bit_count())
    within = live & field
    spare = len(left) + within.bit_count() - wanted.least - need
    size, work = matching([within & ~rows[row] for row in left], spare)
    budget.spend(len(left) + work)
    return size > spare
