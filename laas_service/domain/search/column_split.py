# SPDX-License-Identifier: Apache-2.0

"""How the uplinks of a placement on several pods are divided among the columns."""

from collections.abc import Sequence
from typing import NamedTuple

from laas_service.domain.allocation import Shape
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.pod_view import PodView
from laas_service.domain.topology import Column

Options = Sequence[tuple[int, int]]
"""Pairs of the uplinks of a full leaf and the uplinks of the remainder leaf in one column."""


class Split(NamedTuple):
    """The uplinks that leaves take, as masks with one field a plane."""

    uplinks: int
    """Those of each full leaf."""
    leaf_uplinks: int
    """Those of the remainder leaf, which are among them."""


def column_split(
    view: PodView, shape: Shape, full_spines: int, remainder_spines: int, remainder_uplinks: int
) -> Split | None:
    """The uplinks that each leaf takes; None if there is no way.

    In each plane they are as many as the leaves need. No L2 switch gets more uplinks from
    below than its spine uplinks carry: in the full pods ``full_spines``, in the remainder pod
    ``remainder_spines``, both as ``PodSpines.lanes``. The remainder leaf may use the uplinks
    ``remainder_uplinks``.

    Every lane has the spine uplinks that the shape's full leaves need at least
    (``LeafNeeds.min_spines``).
    """
    if view.all_used and not shape.remainder_hosts:
        return Split(view.uplinks, 0)
    rest_width = view.uplinks_for(shape.remainder_hosts)
    if view.needs.single_cables:
        return Split(view.uplinks, _lowest(view, remainder_uplinks, rest_width))
    spines = view.masks(full_spines), view.masks(remainder_spines)
    if view.all_used:
        numbers = _full_split(view, shape, spines[1], remainder_uplinks, rest_width)
    else:
        numbers = _free_split(view, shape, *spines, remainder_uplinks, rest_width)
    return None if numbers is None else _chosen(view, numbers, remainder_uplinks)


def _lowest(view: PodView, uplinks: int, count: int) -> int:
    """The ``count`` lowest of these uplinks in each plane."""
    chosen = 0
    for plane in view.planes:
        chosen |= lowest_bits(uplinks & plane, count)
    return chosen


def _chosen(view: PodView, numbers: Options, remainder_uplinks: int) -> Split:
    """The uplinks of so many in each column: the lowest, first those of the remainder leaf."""
    uplinks = leaf_uplinks = 0
    for column, (full, rest) in zip(view.columns, numbers, strict=True):
        below = lowest_bits(column.bundle & remainder_uplinks, rest) if rest else 0
        leaf_uplinks |= below
        uplinks |= below | lowest_bits(column.bundle & ~below, full - rest)
    return Split(uplinks, leaf_uplinks)


def _free_split(
    view: PodView,
    shape: Shape,
    full_spines: Sequence[int],
    remainder_spines: Sequence[int],
    remainder_uplinks: int,
    rest_width: int,
) -> Options | None:
    """The numbers of uplinks by column where a full leaf does not need all uplinks."""
    width = view.uplinks_for(shape.hosts)
    split: list[tuple[int, int]] = []
    for plane in range(len(view.spare)):
        options = [
            _options(view, column, shape, full_spines, remainder_spines, remainder_uplinks)
            for column in view.columns
            if column.plane == plane
        ]
        chosen = most_remainder_uplinks(options, width)
        if chosen is None:
            return None
        needed = rest_width
        for full, rest in chosen:
            split.append((full, min(rest, needed)))
            needed -= min(rest, needed)
        if needed:
            return None
    return split


def _full_split(
    view: PodView,
    shape: Shape,
    remainder_spines: Sequence[int],
    remainder_uplinks: int,
    rest_width: int,
) -> Options | None:
    """The same where a full leaf takes all uplinks of every column.

    ``remainder_uplinks`` are in columns that carry one uplink more than the full leaves need,
    and enough of them for the remainder leaf (``LeafNeeds.remainder_uplinks``).
    """
    split: list[tuple[int, int]] = []
    needed = [rest_width] * len(view.spare)
    for column, size, spines in zip(view.columns, view.bundle_sizes, remainder_spines, strict=True):
        rest = (column.bundle & remainder_uplinks).bit_count()
        if rest:
            room = view.capacity(spines, column) - size * shape.remainder_leaves
            rest = min(rest, room, needed[column.plane])
            needed[column.plane] -= rest
        split.append((size, rest))
    return None if any(needed) else split


def _options(
    view: PodView,
    column: Column,
    shape: Shape,
    full_spines: Sequence[int],
    remainder_spines: Sequence[int],
    remainder_uplinks: int,
) -> Options:
    """What a column allows: uplinks of a full leaf, with the most of the remainder leaf."""
    size = view.bundle_sizes[column.number]
    most = min(size, view.capacity(full_spines[column.number], column) // shape.leaves)
    limit = view.capacity(remainder_spines[column.number], column)
    usable = (column.bundle & remainder_uplinks).bit_count()
    return [
        (full, min(room, full, usable))
        for full in range(most, max(0, size - view.spare[column.plane]) - 1, -1)
        if (room := limit - full * shape.remainder_leaves) >= 0
    ]


def most_remainder_uplinks(options: Sequence[Options], width: int) -> Options | None:
    """One option of each column: ``width`` full uplinks in all, and the most remainder uplinks.

    ``options[c]`` are pairs (full, rest) for column c. None if no choice adds up to ``width``.
    Dynamic programming over the columns.
    """
    if all(len(choices) == 1 for choices in options):
        only = [choices[0] for choices in options]
        return only if sum(full for full, _ in only) == width else None
    # Full uplinks so far -> the most remainder uplinks with them, and the choices.
    best: dict[int, tuple[int, list[tuple[int, int]]]] = {0: (0, [])}
    for choices in options:
        extended: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        for taken, (rest, chosen) in best.items():
            for full, extra in choices:
                total = taken + full
                if total <= width and rest + extra > extended.get(total, (-1,))[0]:
                    extended[total] = rest + extra, [*chosen, (full, extra)]
        best = extended
    return best[width][1] if width in best else None
