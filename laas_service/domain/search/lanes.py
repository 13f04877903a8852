# SPDX-License-Identifier: Apache-2.0

"""Masks side by side in one integer, and a test that counts the bits of all at once.

Each mask has a *lane* of its own: a field of 8, 16, 32, ... bits. One pod is then one integer,
whose lanes are the free spine uplinks above its L2 indices. What several pods share is one
``&``, and whether that suffices takes some twenty operations, however many lanes there are.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

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
def with_at_least(needs: tuple[int, ...], width: int) -> Callable[[int], int]:
    """A function that marks the highest bit of every lane that has as many bits as it needs.

    Each lane needs 0 .. 2 ** (width - 1) - 1 bits.
    """
    lowest = side_by_side([1] * len(needs), width)
    highest = lowest << width - 1
    missing = side_by_side([(1 << width - 1) - need for need in needs], width)
    steps, shift = [], 1
    while shift < width:
        half = sum(((1 << shift) - 1) << at for at in range(0, width, 2 * shift))
        steps.append((shift, half * lowest))
        shift *= 2

    def marked(lanes: int) -> int:
        for shift, half in steps:
            lanes = (lanes & half) + (lanes >> shift & half)
        return (lanes + missing) & highest

    return marked


def at_least(needs: tuple[int, ...], width: int) -> Callable[[int], bool]:
    """A test whether every lane has as many bits as it needs."""
    marked = with_at_least(needs, width)
    highest = marked(-1 & (1 << len(needs) * width) - 1)
    return lambda lanes: marked(lanes) == highest
