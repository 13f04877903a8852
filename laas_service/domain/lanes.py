# SPDX-License-Identifier: Apache-2.0

"""Masks side by side in one integer, and a test that counts the bits of all at once.

Each mask has a *lane* of its own: a field of 8, 16, 32, ... bits. One pod is then one integer,
whose lanes are the free spine uplinks above its L2 indices. What several pods share is one
``&``, and whether that suffices takes some twenty operations, however many lanes there are. Lanes
can hold numbers as well.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

FEW = 4
"""So many bits of a lane are found faster by dropping one after the other than by counting."""

FORMATS = {8: "B", 16: "H", 32: "I", 64: "Q"}
"""By width, the format of a lane for ``struct``; wider lanes have none."""


def lane_width(bits: int) -> int:
    """The width of a lane for masks of ``bits`` bits; its highest bit can stay unused."""
    return max(8, 1 << (bits - 1).bit_length())


def side_by_side(masks: Sequence[int], width: int) -> int:
    """One integer with a lane for each mask, the first mask lowest."""
    if width in FORMATS:
        return int.from_bytes(struct.pack(f"<{len(masks)}{FORMATS[width]}", *masks), "little")
    return sum(mask << place * width for place, mask in enumerate(masks))


def apart(lanes: int, count: int, width: int) -> Sequence[int]:
    """The masks in ``count`` lanes; the inverse of ``side_by_side``."""
    if width in FORMATS:
        packed = lanes.to_bytes(count * width // 8, "little")
        return struct.unpack(f"<{count}{FORMATS[width]}", packed)
    lane = (1 << width) - 1
    return [lanes >> at & lane for at in range(0, count * width, width)]


@lru_cache(maxsize=4096)
def in_every_lane(lanes: int, count: int, width: int) -> int:
    """The mask of the bits that are set in each of ``count`` lanes."""
    while count > 1:
        half = count + 1 >> 1
        lanes &= lanes >> (count - half) * width
        count = half
    return lanes & (1 << width) - 1


def spread(mask: int, width: int) -> int:
    """One integer with the bits of ``mask`` as the lowest bits of its lanes."""
    zeros = "0" * (width // 4 - 1)  # with them each bit is a lane of hexadecimal digits
    return int(zeros.join(f"{mask:b}"), 16)


@lru_cache(maxsize=64)
def _halves(count: int, width: int) -> tuple[tuple[int, int], ...]:
    """To count bits in ``count`` lanes: the shifts 1, 2, 4, ... and the fields to add up."""
    lowest = side_by_side([1] * count, width)
    shifts = [1 << step for step in range((width - 1).bit_length())]
    return tuple(
        (shift, lowest * sum(((1 << shift) - 1) << at for at in range(0, width, 2 * shift)))
        for shift in shifts
    )


@lru_cache(maxsize=4096)
def with_at_least(needs: tuple[int, ...], width: int) -> Callable[[int], int]:
    """A function that marks the highest bit of every lane that has as many bits as it needs.

    Each lane needs 0 .. 2 ** (width - 1) - 1 bits.
    """
    highest = side_by_side([1 << width - 1] * len(needs), width)
    if len(set(needs)) == 1 and 0 < needs[0] <= FEW:
        return _with_few(needs[0], highest, width)
    missing = side_by_side([(1 << width - 1) - need for need in needs], width)
    halves = _halves(len(needs), width)

    def marked(lanes: int) -> int:
        for shift, half in halves:
            lanes = (lanes & half) + (lanes >> shift & half)
        return (lanes + missing) & highest

    return marked


def _with_few(need: int, highest: int, width: int) -> Callable[[int], int]:
    """``with_at_least`` where each lane needs ``need`` bits, 1 or more; drops all but one."""
    ones = highest >> width - 1
    others = highest - ones

    def marked(lanes: int) -> int:
        for _ in range(need - 1):
            lanes &= (lanes | highest) - ones
        return ((lanes & others) + others | lanes) & highest

    return marked


def at_least(needs: tuple[int, ...], width: int) -> Callable[[int], bool]:
    """A test whether every lane has as many bits as it needs.

    Most lanes that have too few have fewer in all than they need in all, which is a quick test.
    """
    marked, in_all = with_at_least(needs, width), sum(needs)
    highest = marked(-1 & (1 << len(needs) * width) - 1)
    return lambda lanes: lanes.bit_count() >= in_all and marked(lanes) == highest


@lru_cache(maxsize=64)
def preferring(count: int, width: int) -> Callable[[int, int, int], int]:
    """A function that chooses bits of every one of ``count`` lanes.

    Its arguments are the lanes to choose from, the mask of the bits that it prefers in every
    lane, and lanes with the numbers of bits to choose: no more than there are, and less than
    2 ** (width - 1). Of the preferred bits and of the others it chooses the lowest.
    """
    ones = side_by_side([1] * count, width)
    highest, field = ones << width - 1, (1 << width) - 1
    halves, almost = _halves(count, width), highest - ones

    def lowest(lanes: int, numbers: int) -> int:
        left, first = lanes, numbers & field
        for least in (first, first - 1):
            more = numbers - least * ones
            if least >= 0 and not more & ~ones:  # each lane's number is ``least`` or one more
                for _ in range(least):
                    left &= left - ones
                return lanes ^ left & left - more
        while numbers:
            some = numbers + almost >> width - 1 & ones  # the lanes with a number above 0
            least = min(filter(None, apart(numbers, count, width)))
            for _ in range(least):
                left &= left - some
            numbers -= some * least
        return lanes ^ left

    def choose(lanes: int, mask: int, numbers: int) -> int:
        liked = mask * ones
        counted = preferred = lanes & liked
        if preferred == liked:
            counted = mask.bit_count() * ones
        else:
            for shift, half in halves:
                counted = (counted & half) + (counted >> shift & half)
        missing = (numbers | highest) - counted
        few = (missing >> width - 1 & ones) * field  # the lanes with no more than it needs
        if not few:
            return lowest(preferred, numbers)
        chosen = preferred & few | lowest(preferred & ~few, numbers & ~few)
        return chosen | lowest(lanes ^ preferred, missing & few & ~highest)

    return choose
