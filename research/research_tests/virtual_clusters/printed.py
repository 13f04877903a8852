# SPDX-License-Identifier: Apache-2.0

"""Kraken's Algorithms 2, 3 and 4 exactly as printed, to show the errors of the paper."""

from __future__ import annotations

INFINITE = float("inf")


class Printed:
    """A tree of one or more levels with ``free`` slots on machines and ``spare`` units on links.

    ``spare[level][vertex]``: how many units' bandwidth is left. Nothing is embedded yet.
    """

    def __init__(self, tree, free, spare):
        self.tree, self.free, self.spare = tree, free, spare

    def children(self, level, vertex):
        width = self.tree.children[level - 1] if level else 0
        return [(level - 1, vertex * width + i) for i in range(width)]

    def parent(self, level, vertex) -> tuple[int, int]:
        return level + 1, vertex // self.tree.children[level]

    def slot_count(self, level, vertex):
        """Section IV-B."""
        if level == 0:
            return min(self.free[vertex], self.spare[0][vertex])
        below = sum(self.slot_count(*child) for child in self.children(level, vertex))
        return min(below, self.spare[level][vertex])

    def footprint(self, level, vertex, size):
        """Algorithm 3, with all units flexible: ST(v) is 0."""
        done = 0
        for child in self.children(level, vertex):
            done += self.slot_count(*child)
        return level * size + self.costs_above(level, vertex, size - done)

    def costs_above(self, level, vertex, flexible):
        """Algorithm 4."""
        if flexible == 0:
            return 0
        if level == self.tree.top or self.spare[level][vertex] < flexible:
            return INFINITE
        parent = self.parent(level, vertex)
        done = 0
        for sibling in self.children(*parent):
            if sibling != (level, vertex):
                done += self.slot_count(*sibling)
        return 2 * flexible + self.costs_above(*parent, flexible - done)

    def embed(self, size):
        """Algorithm 1 for a new cluster: its footprint, infinite for a refusal."""
        levels = range(self.tree.top + 1)
        return min(
            self.footprint(level, vertex, size)
            for level in levels
            for vertex in range(self.tree.vertices(level))
        )


def extra_units(below, size):
    """Algorithm 2, line 10: |M| so that units below v and |M| reach n / 2."""
    return max(0, -(-size // 2) - below)
