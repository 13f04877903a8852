# SPDX-License-Identifier: Apache-2.0

"""Bicliques of a bit matrix: complete bipartite blocks, rows that share enough bits.

Both levels of a fat-tree ask for bicliques. Inside a pod the rows are leaves and the bits are
their free uplinks. Across pods the rows are pods and the bits are the free spine uplinks of
all their L2 switches. The published searches (LaaS, Algorithm 1; Jigsaw, FIND_L2 and FIND_L3)
try all combinations of rows. This module finds the same bicliques by a depth-first search that
is cut in three ways:

* the kernel: bits and rows that belong to no biclique of the wanted size are dropped until
  nothing changes;
* König's bound: a matching bounds the size of every biclique (``matching``);
* branching on one row, taken or left out, so that no set of rows is visited twice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.matching import konig_bounds, matching_size, sure_bounds

Biclique = tuple[list[int], int]
"""Row numbers, ascending, and the mask of the bits that all these rows have."""


class BicliqueSpec(NamedTuple):
    """Which bicliques are wanted."""

    min_rows: int
    """The least number of rows, at least 1."""
    needs: Sequence[tuple[int, int]]
    """Pairs (field, n). ``enough`` is false for every mask with fewer than n bits in field."""
    enough: Callable[[int], bool]
    """Whether these common bits suffice. If some bits do, any superset of them does."""
    trim: Callable[[int], int] | None = None
    """Drops bits of a mask that are of no use to any biclique."""

    @property
    def cost_per_row(self) -> int:
        """Units of work for each row at a node of the search tree."""
        return 2 + len(self.needs)


def bicliques(rows: Sequence[int], spec: BicliqueSpec, budget: SearchBudget) -> Iterator[Biclique]:
    """Bicliques as wanted; each has all rows that share its bits.

    Complete while the budget lasts: for every ``min_rows`` rows whose common bits suffice,
    some biclique yielded contains these rows and has the same common bits. The greedy
    biclique comes first and costs no budget, so that easy requests are served without one.
    """
    greedy = greedy_biclique(rows, spec.min_rows, spec.enough)
    searched = _searched(rows, spec, budget, ruled_out_first=greedy is None)
    return chain((greedy,), searched) if greedy else searched


def _searched(
    rows: Sequence[int], spec: BicliqueSpec, budget: SearchBudget, ruled_out_first: bool
) -> Iterator[Biclique]:
    """All bicliques as wanted; with König's bound of the whole matrix first, if asked for."""
    if not budget.spend(len(rows) * 2):
        return
    count, needs = spec.min_rows, spec.needs
    if ruled_out_first and any(ruled_out(rows, count, *need, budget) for need in needs):
        return
    yield from _depth_first(rows, list(range(len(rows))), -1, -1, spec, budget)


def greedy_biclique(
    rows: Sequence[int], count: int, enough: Callable[[int], bool]
) -> Biclique | None:
    """The first ``count`` rows, each taken if the common bits still suffice; None if fewer."""
    common, chosen = -1, []
    for row, mask in enumerate(rows):
        shared = common & mask
        if shared == common or enough(shared):
            common = shared
            chosen.append(row)
            if len(chosen) == count:
                return chosen, common
    return None


def ruled_out(rows: Sequence[int], count: int, field: int, need: int, budget: SearchBudget) -> bool:
    """Whether König's bound shows that no ``count`` rows share ``need`` bits of a field."""
    if not budget.spend(len(rows)):
        return False
    shift = (field & -field).bit_length() - 1  # equal columns share one entry of the cache
    within = tuple([(row & field) >> shift for row in rows])
    if all(bound.allows(count, need) for bound in sure_bounds(within)):
        return False
    return not all(bound.allows(count, need) for bound in konig_bounds(within, budget))


def _depth_first(
    rows: Sequence[int],
    left: list[int],
    live: int,
    lost: int,
    spec: BicliqueSpec,
    budget: SearchBudget,
) -> Iterator[Biclique]:
    """Bicliques of the rows ``left`` and the bits ``live``: kernel, bound, two branches.

    Branches on the row that lacks most of the live bits: first without that row, then with
    it and only its bits. All rows had enough bits before the bits ``lost`` were dropped.
    """
    if budget.exceeded:
        return
    budget.nodes += 1
    kernel = _kernel(rows, left, live, lost, spec, budget)
    if kernel is None:
        return
    left, live = kernel
    missing = [(live & ~rows[row]).bit_count() for row in left]
    most = max(missing, default=0)
    if not most:
        if left:
            yield left, live
        return
    worst = missing.index(most)
    lacking = live & ~rows[left[worst]]
    if spec.needs and _refuted(rows, left, live, lacking, spec, budget):
        return
    without = left[:worst] + left[worst + 1 :]
    yield from _depth_first(rows, without, live, 0, spec, budget)
    yield from _depth_first(rows, left, live & ~lacking, lacking, spec, budget)


def _kernel(
    rows: Sequence[int],
    left: list[int],
    live: int,
    lost: int,
    spec: BicliqueSpec,
    budget: SearchBudget,
) -> Biclique | None:
    """The rows and bits that may belong to a wanted biclique; None if there can be none.

    Drops bits that too few rows have, then rows with too few bits, until nothing changes.
    """
    count, _, enough, trim = spec
    size: tuple[int, int] | None = None
    while size != (len(left), live):
        size = len(left), live
        if len(left) < count or not budget.spend(len(left) * spec.cost_per_row):
            return None
        kept = live & bits_of_at_least(count, [rows[row] for row in left])
        if trim is not None:
            kept = trim(kept)
        if not enough(kept):
            return None
        lost |= live & ~kept
        live = kept
        left = [row for row in left if not rows[row] & lost or enough(rows[row] & live)]
        lost = 0
    return left, live


def _refuted(
    rows: Sequence[int],
    left: list[int],
    live: int,
    lacking: int,
    spec: BicliqueSpec,
    budget: SearchBudget,
) -> bool:
    """Whether König's bound rules out the field of which ``lacking`` has most bits."""
    field, need = max(spec.needs, key=lambda pair: (lacking & pair[0]).bit_count())
    within = live & field
    spare = len(left) + within.bit_count() - spec.min_rows - need
    if spare >= min(len(left), within.bit_count()):
        return False  # no matching is larger
    size, work = matching_size([within & ~rows[row] for row in left], spare)
    budget.spend(len(left) + work)
    return size > spare


def lowest_bits(mask: int, count: int) -> int:
    """The ``count`` lowest bits of ``mask``; all of it if it has fewer."""
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


def bits_of_at_least(count: int, masks: Sequence[int]) -> int:
    """The bits that ``count`` or more of the masks have; ``count`` is at least 1."""
    return counted_at_least(count, bit_counts(masks))


def bit_counts(masks: Iterable[int]) -> list[int]:
    """How many of the masks have each bit, for all bit positions at once.

    Digit i of the count at position b is bit b of item i. Two masks at a time are added to a
    digit; what they carry is added up for the next digit.
    """
    digits, masks = [], list(masks)
    while masks:
        digit = masks.pop() if len(masks) & 1 else 0
        carries, pairs = [], iter(masks)
        for mask in pairs:
            other = next(pairs)
            one = digit ^ mask
            carry = digit & mask | one & other
            if carry:
                carries.append(carry)
            digit = one ^ other
        digits.append(digit)
        masks = carries
    return digits


def counted_at_least(count: int, digits: Sequence[int]) -> int:
    """The bits whose number in ``bit_counts`` is ``count`` or more; ``count`` is at least 1."""
    if count >> len(digits):
        return 0
    enough = reduce(or_, digits)
    for i, digit in enumerate(digits):
        enough = enough & digit if count >> i & 1 else enough | digit
    return enough
