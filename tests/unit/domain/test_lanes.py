# SPDX-License-Identifier: Apache-2.0

"""Masks side by side in one integer, compared with the masks one by one."""

from __future__ import annotations

from functools import reduce
from operator import and_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.lanes import (
    apart,
    at_least,
    in_every_lane,
    lane_width,
    preferring,
    side_by_side,
    spread,
    with_at_least,
)
from laas_service.domain.topology import bits


@st.composite
def masks_and_needs(draw):
    bits = draw(st.sampled_from((1, 2, 7, 8, 9, 16, 18, 32, 33, 64, 70)))
    count = draw(st.integers(1, 6))
    masks = draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=count, max_size=count))
    needs = draw(st.lists(st.integers(0, bits), min_size=count, max_size=count))
    return lane_width(bits), masks, tuple(needs)


@given(masks_and_needs())
def test_bits_of_every_lane_are_those_of_all_masks(drawn):
    width, masks, _ = drawn
    common = in_every_lane(side_by_side(masks, width), len(masks), width)
    assert common == reduce(and_, masks)


@given(masks_and_needs())
def test_every_lane_is_counted_by_itself(drawn):
    width, masks, needs = drawn
    lanes = side_by_side(masks, width)
    enough = [mask.bit_count() >= need for mask, need in zip(masks, needs, strict=True)]
    highest = [1 << width - 1 if fits else 0 for fits in enough]
    assert list(apart(with_at_least(needs, width)(lanes), len(masks), width)) == highest
    assert at_least(needs, width)(lanes) == all(enough)


@given(masks_and_needs())
def test_masks_come_apart_as_they_were_put_together(drawn):
    width, masks, _ = drawn
    assert list(apart(side_by_side(masks, width), len(masks), width)) == masks


@pytest.mark.parametrize("bits", [1, 8, 18, 32, 64, 100])
def test_full_lanes_do_not_run_into_each_other(bits):
    width, full = lane_width(bits), (1 << bits) - 1
    assert at_least((bits, 0, bits), width)(side_by_side([full, 0, full], width))
    assert not at_least((bits, 1, bits), width)(side_by_side([full, 0, full], width))


@given(masks_and_needs(), st.data())
def test_the_lowest_preferred_bits_are_chosen_and_then_the_lowest_others(drawn, data):
    width, masks, _ = drawn
    liked = data.draw(st.integers(0, max(masks)))
    numbers = [data.draw(st.integers(0, mask.bit_count())) for mask in masks]
    in_order = [sorted(bits(mask), key=lambda bit: (not liked >> bit & 1, bit)) for mask in masks]
    expected = [
        sum(1 << bit for bit in order[:number])
        for order, number in zip(in_order, numbers, strict=True)
    ]
    lanes, wanted = side_by_side(masks, width), side_by_side(numbers, width)
    chosen = preferring(len(masks), width)(lanes, liked, wanted)
    assert list(apart(chosen, len(masks), width)) == expected


@given(st.integers(0, 1 << 20), st.sampled_from((8, 32, 64)))
def test_a_mask_is_spread_over_the_lowest_bits_of_lanes(mask, width):
    lanes = [mask >> number & 1 for number in range(21)]
    assert spread(mask, width) == side_by_side(lanes, width)
