# SPDX-License-Identifier: Apache-2.0

"""Judge of Kraken by enumeration of all embeddings, with plain counts and fractions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations


def embeddings(slots, size) -> Iterator[tuple[int, ...]]:
    """All ways to put ``size`` equal units on machines, as numbers of units by machine."""
    if not slots:
        if size == 0:
            yield ()
        return
    for here in range(min(slots[0], size) + 1):
        for rest in embeddings(slots[1:], size - here):
            yield (here, *rest)


def crossing(tree, counts) -> dict[tuple[int, int], int]:
    """Units whose bandwidth is reserved on each link: the smaller side."""
    found = {}
    for level in range(tree.top):
        width = tree.below[level]
        for vertex in range(tree.machines // width):
            inside = sum(counts[vertex * width : (vertex + 1) * width])
            found[level, vertex] = min(inside, sum(counts) - inside)
    return found


def reserved(tree, clusters) -> dict[tuple[int, int], Fraction]:
    """Bandwidth that the (counts, bandwidth) pairs reserve on each link."""
    total = dict.fromkeys(crossing(tree, [0] * tree.machines), Fraction(0))
    for counts, bandwidth in clusters:
        for link, units in crossing(tree, counts).items():
            total[link] += units * Fraction(bandwidth)
    return total


def violations(tree, clusters) -> list[str]:
    """All links over their capacity, and all machines with more units than slots."""
    over = [
        f"link {link}: {used} of {tree.capacity[link[0]]}"
        for link, used in reserved(tree, clusters).items()
        if used > Fraction(tree.capacity[link[0]])
    ]
    for machine in range(tree.machines):
        units = sum(counts[machine] for counts, _ in clusters)
        if units > tree.slots:
            over.append(f"machine {machine}: {units} units in {tree.slots} slots")
    return over


def migrations(before, after) -> int:
    """Number of remaining units that are on another machine than before."""
    stay = sum(min(pair) for pair in zip(before, after, strict=True))
    return int(min(sum(before), sum(after)) - stay)


def levels_moved(tree, before, after) -> int:
    """The least sum, over all pairings of old and new places, of the levels that units climb."""
    sources = [machine for machine, units in enumerate(before) for _ in range(units)]
    targets = [machine for machine, units in enumerate(after) for _ in range(units)]
    if len(sources) > len(targets):
        sources, targets = targets, sources

    def climb(a: int, b: int) -> int:
        return next(x for x in range(9) if a // tree.below[x] == b // tree.below[x])

    return min(
        sum(climb(a, b) for a, b in zip(sources, some, strict=True))
        for some in set(permutations(targets, len(sources)))
    )


def footprint(tree, counts) -> int:
    """Sum over links, in units of one unit's bandwidth."""
    return sum(crossing(tree, counts).values())


def valid(tree, others, size, bandwidth) -> list[tuple[int, ...]]:
    """All embeddings that fit beside the other clusters."""
    slots = [tree.slots - sum(counts[m] for counts, _ in others) for m in range(tree.machines)]
    most = {
        link: (Fraction(tree.capacity[link[0]]) - used) // Fraction(bandwidth)
        for link, used in reserved(tree, others).items()
    }
    return [
        counts
        for counts in embeddings(slots, size)
        if all(units <= most[link] for link, units in crossing(tree, counts).items())
    ]
