# SPDX-License-Identifier: Apache-2.0

"""Bicliques of leaf groups and uplinks in several pods, searched on bit sets by uplink.

This is the search of ``bicliques`` for a matrix with many rows, the leaf groups, and few bits,
the uplinks. One bit set by uplink (``pod_fields``) says which leaf groups have it free. So a
step of the search takes some operations for each uplink, however many leaf groups there are.
Rows are in the order of the bit sets, and bicliques are found in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import and_
from typing import NamedTuple

from laas_service.domain.allocation import Shape
from laas_service.domain.search.bicliques import bit_counts, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.matching import matching_size
from laas_service.domain.search.pod_fields import PodFields
from laas_service.domain.topology import bits

GROUPS_IN_A_UNIT = 2048
"""A step costs a unit of work for each uplink, and one for so many places of its bit set."""


class LeafMatrix(NamedTuple):
    """The leaf groups that a tenant's leaves may be, by uplink."""

    fields: PodFields
    columns: Sequence[int]
    """By uplink, the bit set of the groups that have it free."""
    planes: Sequence[Sequence[int]]
    """The uplinks of each plane."""
    uplinks_of: Callable[[int], int]
    """The free uplinks of the group at a place of the bit sets."""


class LeafBicliques:
    """A search for ``leaves`` groups that share ``width`` uplinks in each plane.

    The groups are among ``groups`` and, but for ``first``, such that their pods have room for
    one of the ``shapes``; what they share contains one of the ``sets`` of uplinks, if given.
    """

    def __init__(
        self,
        matrix: LeafMatrix,
        groups: int,
        leaves: int,
        width: int,
        shapes: Sequence[Shape],
        sets: Sequence[int] | None,
        budget: SearchBudget,
    ) -> None:
        self._matrix = matrix
        self._columns = [column & groups for column in matrix.columns]
        self._groups = groups
        self._leaves = leaves
        self._width = width
        self._shapes = shapes
        self._sets = sets
        self._budget = budget
        self._fields = [sum(1 << uplink for uplink in plane) for plane in matrix.planes]
        self._all = sum(self._fields)
        self._with_set = [
            (chosen, reduce(and_, [self._columns[uplink] for uplink in bits(chosen)], groups))
            for chosen in sets or ()
        ]
        places = len(self._columns) * groups.bit_length()
        self._cost = len(self._columns) + places // GROUPS_IN_A_UNIT

    def first(self) -> int | None:
        """What the first groups share, each taken if the shared uplinks still suffice."""
        common = self._all
        left, missing = self._with_enough(self._groups, common), self._leaves
        while left:
            lowest = left & -left
            uplinks = self._matrix.uplinks_of(lowest.bit_length() - 1)
            left ^= lowest
            missing -= 1
            if common & ~uplinks:
                common &= uplinks
                if missing:
                    left = self._with_enough(left, common)
            if not missing:
                return common
        return None

    def all(self) -> Iterator[int]:
        """What the groups of each biclique share; one set of uplinks may come again."""
        return self._searched(self._groups, self._all, self._all)

    def _searched(self, left: int, live: int, lost: int) -> Iterator[int]:
        """Depth-first, as ``bicliques``: on the group that lacks most, without it and with it.

        All groups had enough uplinks before the uplinks ``lost`` were dropped. One call goes
        down without groups, one after the other, and then back up with them.
        """
        budget = self._budget
        with_group: list[tuple[int, int, int]] = []
        seen, digits = 0, list[int]()
        while not budget.exceeded:
            budget.nodes += 1
            kernel = self._kernel(left, live, lost)
            if kernel is None:
                break
            left, live = kernel
            if live != seen:
                seen, digits = live, self._lacking_counts(left, live)
            worst, incomplete = left, 0
            for digit in reversed(digits):
                worst = worst & digit or worst
                incomplete |= digit
            if not incomplete & left:
                yield live
                break
            worst &= -worst
            lacking = live & ~self._matrix.uplinks_of(worst.bit_length() - 1)
            if self._refuted(left, live, lacking, incomplete & left):
                break
            with_group.append((left, live & ~lacking, lacking))
            left, lost = left ^ worst, 0
        while with_group:
            yield from self._searched(*with_group.pop())

    def _lacking_counts(self, left: int, live: int) -> list[int]:
        """How many uplinks of ``live`` each group lacks, as ``bit_counts``."""
        self._budget.spend(self._cost)
        columns = self._columns
        return bit_counts([left & ~columns[uplink] for uplink in _listed(live)])

    def _kernel(self, left: int, live: int, lost: int) -> tuple[int, int] | None:
        """The groups and uplinks that may belong to a biclique; None if there can be none."""
        columns, leaves = self._columns, self._leaves
        size: tuple[int, int] | None = None
        while size != (left, live):
            size = left, live
            if left.bit_count() < leaves or not self._budget.spend(self._cost):
                return None
            for uplink in _listed(live):
                if (columns[uplink] & left).bit_count() < leaves:
                    live ^= 1 << uplink
            lost |= size[1] ^ live
            if lost:
                self._budget.spend(self._cost)
                left = self._with_enough(left, live)
            lost = 0
            if not self._may_have_placement(left, live):
                return None
        return left, live

    def _with_enough(self, left: int, live: int) -> int:
        """The groups that have ``width`` of the uplinks ``live`` in each plane."""
        for plane in self._matrix.planes:
            masks = [left & self._columns[uplink] for uplink in plane if live >> uplink & 1]
            left = counted_at_least(self._width, bit_counts(masks))
        return left

    def _may_have_placement(self, left: int, live: int) -> bool:
        """Whether pods have room for a shape, on groups that share one of the sets if given."""
        if self._sets is None:
            return self._has_room(left)
        return any(
            not chosen & ~live
            and (with_set & left).bit_count() >= self._leaves
            and self._has_room(with_set & left)
            for chosen, with_set in self._with_set
        )

    def _has_room(self, left: int) -> bool:
        """Whether the pods of these groups have room for one of the shapes."""
        fields = self._matrix.fields
        counts = fields.counts(left)
        for shape in self._shapes:
            if fields.at_least(counts, shape.leaves).bit_count() >= shape.pods:
                more = shape.remainder_leaves
                if not more or fields.at_least(counts, more).bit_count() > shape.pods:
                    return True
        return False

    def _refuted(self, left: int, live: int, lacking: int, incomplete: int) -> bool:
        """Whether König's bound rules out the plane of which ``lacking`` has most uplinks.

        ``incomplete`` are the groups that lack one of the uplinks ``live``.
        """
        within = live
        if len(self._fields) > 1:
            within &= max(self._fields, key=lambda field: (lacking & field).bit_count())
        spare = left.bit_count() + within.bit_count() - self._leaves - self._width
        if spare >= min(incomplete.bit_count(), within.bit_count()):
            return False  # no matching is larger
        graph = [within & ~self._matrix.uplinks_of(place) for place in bits(incomplete)]
        size, work = matching_size(graph, spare)
        self._budget.spend(len(graph) + work)
        return size > spare


@lru_cache(maxsize=4096)
def _listed(uplinks: int) -> tuple[int, ...]:
    """The uplinks of a mask."""
    return tuple(bits(uplinks))
