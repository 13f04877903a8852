# SPDX-License-Identifier: Apache-2.0

"""Masks side by side in one integer, compared with the masks one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.search.lanes import (
    apart,
    at_least,
    lane_width,
    side_by_side,
    with_at_least,
)


@st.composite
def masks_and_needs(draw):
    bits = draw(st.sampled_from((1, 2, 7, 8, 9, 16, 18, 32, 33, 64, 70)))
    count = draw(st.integers(1, 6))
    masks = draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=count, max_size=count))
    needs = draw(st.lists(st.integers(0, bits), min_size=count, max_size=count))
    return lane_width(bits), masks, tuple(needs)


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
