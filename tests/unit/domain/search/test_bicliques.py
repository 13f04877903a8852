# SPDX-License-Identifier: Apache-2.0

"""Search for bicliques of a bit matrix, compared with all combinations of rows."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import and_, or_
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.search.bicliques import (
    BicliqueSpec,
    bicliques,
    bits_of_at_least,
    lowest_bits,
)
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.column_split import most_remainder_uplinks
from laas_service.domain.search.matching import konig_bounds, matching_size, sure_bounds

MASKS = st.lists(st.integers(0, 255), min_size=1, max_size=7)


@given(masks=MASKS, count=st.integers(1, 8))
def test_bits_that_enough_masks_have(masks, count):
    bits = {bit for bit in range(8) if sum(mask >> bit & 1 for mask in masks) >= count}
    assert bits_of_at_least(count, masks) == sum(1 << bit for bit in bits)


@given(mask=st.integers(0, 1 << 40), count=st.integers(0, 41))
def test_lowest_bits(mask, count):
    ones = [bit for bit in range(41) if mask >> bit & 1]
    assert lowest_bits(mask, count) == sum(1 << bit for bit in ones[:count])


@pytest.mark.parametrize("seed", range(12))
def test_bicliques_cover_every_combination_of_rows_and_nothing_else(seed):
    """Random matrices, dense enough for bicliques and sparse enough to hide them."""
    rng = Random(seed)
    for _ in range(80):
        rows = [sum(1 << b for b in range(10) if rng.random() < 0.75) for _ in range(8)]
        count, low, high = rng.randint(1, 5), rng.randint(0, 4), rng.randint(0, 4)
        needs = [(0b11111, low), (0b1111100000, high)]

        def enough(common, needs=needs):
            return all((common & field).bit_count() >= n for field, n in needs)

        budget = SearchBudget(10**6)
        found = list(bicliques(rows, BicliqueSpec(count, needs, enough), budget))
        for members, common in found:
            assert len(members) >= count
            assert enough(common)
            assert all(common & ~rows[row] == 0 for row in members)
        for chosen in itertools.combinations(range(8), count):
            common = reduce(and_, (rows[row] for row in chosen))
            if enough(common):
                assert any(
                    set(chosen) <= set(members) and common == bits for members, bits in found
                ), f"{rows} {count} {needs}: {chosen} was not found"
        assert not budget.exceeded


def test_konigs_bound_refutes_crowns_without_a_search():
    """Each group of ``twins`` rows misses one bit that all other rows have."""
    for twins in (1, 2, 3):
        rows = [0xFFFFFF & ~(1 << row // twins) for row in range(24)]
        for count in range(2, 25):
            most = 24 - -(-count // twins)
            for need, fits in ((most, True), (most + 1, False)):

                def enough(common, need=need):
                    return common.bit_count() >= need

                budget = SearchBudget(400)
                spec = BicliqueSpec(count, [(0xFFFFFF, need)], enough)
                assert any(bicliques(rows, spec, budget)) == fits
                assert not budget.exceeded
                assert not budget.nodes


@given(masks=MASKS, rows=st.integers(1, 3), bits=st.integers(1, 3))
def test_a_matching_is_as_large_as_the_largest_flow(masks, rows, bits):
    """Compared with the deficiency version of Hall's theorem, over all sets of rows."""
    total = rows * len(masks)
    defect = max(
        rows * len(subset) - bits * reduce(or_, subset, 0).bit_count()
        for size in range(len(masks) + 1)
        for subset in itertools.combinations(masks, size)
    )
    assert matching_size(masks, total, rows, bits)[0] == total - defect
    assert matching_size(masks, 2, rows, bits)[0] >= min(3, total - defect)


@pytest.mark.parametrize("seed", range(5))
def test_the_most_uplinks_for_a_remainder_leaf(seed):
    rng = Random(seed)
    for _ in range(60):
        options = [
            [(full, rng.randint(0, full)) for full in range(rng.randint(0, 2), -1, -1)]
            for _ in range(4)
        ]
        width = rng.randint(0, 6)
        sums = [
            sum(extra for _, extra in choice)
            for choice in itertools.product(*options)
            if sum(full for full, _ in choice) == width
        ]
        best = most_remainder_uplinks(options, width)
        if best is None:
            assert not sums
        else:
            assert all(choice in column for choice, column in zip(best, options, strict=True))
            assert sum(full for full, _ in best) == width
            assert sum(extra for _, extra in best) == max(sums)


@given(masks=MASKS, count=st.integers(1, 8), bits=st.integers(0, 8))
def test_sure_bounds_allow_nothing_that_konigs_bounds_do_not(masks, count, bits):
    rows = tuple(masks)
    if all(bound.allows(count, bits) for bound in sure_bounds(rows)):
        assert all(bound.allows(count, bits) for bound in konig_bounds(rows, SearchBudget(10**6)))
