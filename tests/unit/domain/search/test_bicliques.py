# SPDX-License-Identifier: Apache-2.0

"""Blocks of a bit matrix against all combinations of rows, and what the search is made of."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import and_, or_
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.search.bicliques import Budget, Wanted, blocks, held_by, lowest, matching
from laas_service.domain.search.multi_pod import _most_rest

MASKS = st.lists(st.integers(0, 255), min_size=1, max_size=7)


@given(masks=MASKS, count=st.integers(1, 8))
def test_bits_held_by_so_many(masks, count):
    held = {bit for bit in range(8) if sum(mask >> bit & 1 for mask in masks) >= count}
    assert held_by(masks, count) == sum(1 << bit for bit in held)


@given(mask=st.integers(0, 1 << 40), count=st.integers(0, 41))
def test_lowest_bits(mask, count):
    ones = [bit for bit in range(41) if mask >> bit & 1]
    assert lowest(mask, count) == sum(1 << bit for bit in ones[:count])


@pytest.mark.parametrize("seed", range(12))
def test_every_combination_of_rows_is_covered_and_nothing_else_is_found(seed):
    """Random matrices, dense enough for blocks and sparse enough to hide them."""
    rng = Random(seed)
    for _ in range(80):
        rows = [sum(1 << b for b in range(10) if rng.random() < 0.75) for _ in range(8)]
        count, need, other = rng.randint(1, 5), rng.randint(0, 4), rng.randint(0, 4)
        needs = [(0b11111, need), (0b1111100000, other)]

        def met(common, needs=needs):
            return all((common & field).bit_count() >= n for field, n in needs)

        budget = Budget(10**6)
        found = list(blocks(rows, Wanted(count, needs, met), budget))
        for block, common in found:
            assert len(block) >= count
            assert met(common)
            assert all(common & ~rows[row] == 0 for row in block)
        for chosen in itertools.combinations(range(8), count):
            common = reduce(and_, (rows[row] for row in chosen))
            if met(common):
                assert any(set(chosen) <= set(block) and common == bits for block, bits in found), (
                    f"{rows} {count} {needs}: {chosen} was not found"
                )
        assert not budget.exceeded


def test_crowns_are_refuted_without_a_search():
    """Each row (each two, each three rows) misses a bit of its own."""
    for twins in (1, 2, 3):
        rows = [0xFFFFFF & ~(1 << row // twins) for row in range(24)]
        for count in range(2, 25):
            most = 24 - -(-count // twins)
            for need, fits in ((most, True), (most + 1, False)):

                def met(common, need=need):
                    return common.bit_count() >= need

                budget = Budget(400)
                wanted = Wanted(count, [(0xFFFFFF, need)], met)
                assert any(blocks(rows, wanted, budget)) == fits
                assert not budget.exceeded
                assert not budget.nodes


@given(masks=MASKS, rows=st.integers(1, 3), bits=st.integers(1, 3))
def test_a_matching_is_as_large_as_the_largest_flow(masks, rows, bits):
    """Hall's defect version, by all sets of rows; every row and bit as often as it may be."""
    total = rows * len(masks)
    defect = max(
        rows * len(some) - bits * reduce(or_, some, 0).bit_count()
        for size in range(len(masks) + 1)
        for some in itertools.combinations(masks, size)
    )
    assert matching(masks, total, rows, bits)[0] == total - defect
    assert matching(masks, 2, rows, bits)[0] >= min(3, total - defect)


@pytest.mark.parametrize("seed", range(5))
def test_the_most_uplinks_for_a_remainder_leaf(seed):
    rng = Random(seed)
    for _ in range(60):
        options = [
            [(some, rng.randint(0, some)) for some in range(rng.randint(0, 2), -1, -1)]
            for _ in range(4)
        ]
        width = rng.randint(0, 6)
        sums = [
            sum(extra for _, extra in choice)
            for choice in itertools.product(*options)
            if sum(some for some, _ in choice) == width
        ]
        best = _most_rest(options, width)
        if best is None:
            assert not sums
        else:
            assert all(choice in column for choice, column in zip(best, options, strict=True))
            assert sum(some for some, _ in best) == width
            assert sum(extra for _, extra in best) == max(sums)
