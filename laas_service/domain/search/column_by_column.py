# SPDX-License-Identifier: Apache-2.0

"""Nodes that agree, found one column after the other.

In each column that they use, the nodes sought have some spine uplinks in common. Of all sets of
nodes that have as many in common, only the largest matter: the column's *family*, often a few sets.
The search keeps the sets of nodes that are left after the columns so far, each with the most
columns that it can use, and cuts them down by the family of the next column.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import reduce
from math import comb
from operator import or_

from laas_service.domain.search.bicliques import bit_counts, bits_of_at_least, counted_at_least
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.pod_leaves import largest

MOST_CHOICES = 2000
"""The most choices of spine uplinks in all columns together."""

FEW_SETS = 8
"""Up to so many sets are cut down by the next column without regard to those after it."""

SETS_PER_UNIT = 4
"""Sets of nodes that are made or cut down for a unit of work."""

Node = tuple[int, int, int]
"""A pod, uplinks that enough of its leaves share, and the spine uplinks above them."""


class ColumnByColumn:
    """The search for nodes of ``pods`` or more pods, ``least_new`` of them among ``new``.

    A set of nodes is a bit set with a field of bits for each pod, as long as a pod has nodes.
    """

    def __init__(
        self, nodes: Sequence[Node], pods: int, new: Container[int], least_new: int
    ) -> None:
        self._pods = pods
        self._least_new = least_new
        of_pods: dict[int, list[Node | None]] = {}
        for node in nodes:
            of_pods.setdefault(node[0], []).append(node)
        self._most = most = max(map(len, of_pods.values()))
        self._nodes: list[Node | None] = []
        for of_pod in of_pods.values():
            self._nodes += of_pod
            self._nodes += [None] * (most - len(of_pod))
        self._width = width = max([lanes for _, _, lanes in nodes]).bit_length()
        none = "0" * width
        self._digits = "".join(
            [f"{node[2]:0{width}b}" if node else none for node in reversed(self._nodes)]
        )
        self._all = (1 << len(self._nodes)) - 1
        self._firsts = sum([1 << at for at in range(0, len(self._nodes), most)])
        self._new = sum([1 << at * most for at, pod in enumerate(of_pods) if pod in new])

    def _enough(self, nodes: int) -> bool:
        """Whether these nodes, ``pods`` or more, belong to enough pods, and to new ones."""
        of_pods = nodes
        for _ in range(self._most - 1):
            nodes >>= 1
            of_pods |= nodes
        of_pods &= self._firsts
        return (
            of_pods.bit_count() >= self._pods
            and (of_pods & self._new).bit_count() >= self._least_new
        )

    def sets(
        self, columns: Sequence[tuple[int, int, int]], used: int, budget: SearchBudget
    ) -> list[list[Node]] | None:
        """Sets of nodes that have enough spine uplinks in common in ``used`` columns.

        Any nodes sought lie in one of them; the largest come first. A column is the place of its
        lane, the spine uplinks there that a node has, one or more, and how many are needed. None
        if the budget is used up.
        """
        if not budget.spend(
            len(self._nodes) + sum([spines.bit_count() for _, spines, _ in columns])
        ):
            return None
        pods, enough = self._pods, self._enough
        plain = self._most == 1 and not self._least_new
        rows = sorted(
            [(self._rows(at, spines), need) for at, spines, need in columns], key=_loosest
        )
        having: list[int] = []
        sets = {self._all: 0}
        for number, of_column in enumerate(rows, 1):
            left = len(rows) - number
            # By k, the nodes that may use k of the columns that are left.
            reach = [-1] * (left + 1) + [0] * (used - left)
            if len(sets) > FEW_SETS:
                having = having or [_having(*of_column) for of_column in rows]
                digits = bit_counts(having[number:])
                reach[1 : left + 1] = [counted_at_least(k, digits) for k in range(1, left + 1)]
            family = self._family(*of_column)
            looked_at = comb(len(of_column[0]), of_column[1]) + len(sets) * len(family)
            if not budget.spend(1 + looked_at // SETS_PER_UNIT):
                return None
            cut: dict[int, int] = {}
            for nodes, most in sets.items():
                if most == used:
                    cut[nodes] = most
                    continue
                more, some = most + 1, nodes & reach[used - most - 1]
                if some.bit_count() < pods:
                    continue
                parts = []
                for of_family in family:
                    part = some & of_family
                    if part == nodes:
                        parts = [nodes]
                        break
                    if part.bit_count() >= pods and (plain or enough(part)):
                        parts.append(part)
                else:
                    part = nodes & reach[used - most]
                    if part.bit_count() >= pods and cut.get(part, -1) < most and enough(part):
                        cut[part] = most
                for part in parts:
                    if cut.get(part, -1) < more:
                        cut[part] = more
            sets = cut
            if not sets:
                return []
        if not budget.spend(len(sets) ** 2 // (2 * SETS_PER_UNIT)):
            return None
        return [
            [node for at, node in enumerate(self._nodes) if node and nodes >> at & 1]
            for nodes in largest(sets)
        ]

    def _rows(self, at: int, spines: int) -> list[int]:
        """The nodes that have each of the spine uplinks of the lane there."""
        digits, width = self._digits, self._width
        rows, last = [], width - at
        while spines:
            low = spines & -spines
            spines ^= low
            rows.append(int(digits[last - low.bit_length() :: width], 2))
        return rows

    def _family(self, rows: Sequence[int], need: int) -> list[int]:
        """The largest sets of nodes that have ``need`` of the rows in common."""
        family = [nodes for nodes in _in_common(rows, need, self._pods) if self._enough(nodes)]
        return largest(family)


def _loosest(column: tuple[Sequence[int], int]) -> tuple[int, int]:
    """The most nodes that have one of the spine uplinks, and how many of these there are."""
    rows, _ = column
    return max(map(int.bit_count, rows)), len(rows)


def _having(rows: Sequence[int], need: int) -> int:
    """The nodes that are in ``need`` of the rows."""
    return bits_of_at_least(need, rows) if need > 1 else reduce(or_, rows)


def _in_common(rows: Sequence[int], count: int, pods: int) -> set[int]:
    """The sets of ``pods`` or more nodes that ``count`` of the rows have in common."""
    if count == 1:
        return set(rows)
    found: set[int] = set()
    for at, row in enumerate(rows[: 1 - count]):
        rest = [both for other in rows[at + 1 :] if (both := other & row).bit_count() >= pods]
        if len(rest) >= count - 1:
            found |= _in_common(rest, count - 1, pods)
    return found
