# SPDX-License-Identifier: Apache-2.0

"""What applications send: phases of flows between ranks, each phase ended by all its flows."""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple


class Phase(NamedTuple):
    """Flows that start together; the next phase starts when the last of them has ended."""

    flows: Sequence[tuple[int, int]]
    """Pairs of a sending and a receiving rank."""
    share: float = 1.0
    """The part of the message that each flow carries."""
    rounds: int = 1
    """How often it is repeated, each time after the latency of a message."""


def stencil(dimensions: int) -> Callable[[int, Random], list[Phase]]:
    """Exchange with both neighbours in each dimension of a torus, all at the same time.

    The torus is twisted, so that every number of ranks has one: the neighbours of rank i are
    i +- width^d modulo the number of ranks.
    """

    def phases(ranks: int, random: Random) -> list[Phase]:
        width = max(2, round(ranks ** (1 / dimensions)))
        steps = {sign * width**d % ranks for d in range(dimensions) for sign in (1, -1)} - {0}
        return [Phase([(i, (i + step) % ranks) for step in sorted(steps) for i in range(ranks)])]

    return phases


def ring_all_reduce(ranks: int, random: Random) -> list[Phase]:
    """Reduce-scatter and all-gather on a ring: 2 (n - 1) rounds of 1/n of the message."""
    return [Phase(_shifted(ranks, 1), 1 / ranks, 2 * (ranks - 1))]


def tree_all_reduce(ranks: int, random: Random) -> list[Phase]:
    """Recursive doubling: in round k rank i exchanges the message with rank i xor 2^k."""
    return [
        Phase([(i, i ^ 1 << bit) for i in range(ranks) if i ^ 1 << bit < ranks])
        for bit in range(max(1, math.ceil(math.log2(ranks))))
    ]


def all_to_all(ranks: int, random: Random) -> list[Phase]:
    """All shifts in turn; at most 32 of them, evenly chosen, which stand for the others."""
    steps = sorted({1 + k * (ranks - 1) // 32 for k in range(32)})
    rounds = max(1, (ranks - 1) // len(steps))
    return [Phase(_shifted(ranks, step), 1.0, rounds) for step in steps]


def shift(ranks: int, random: Random) -> list[Phase]:
    """One random shift."""
    return [Phase(_shifted(ranks, random.randrange(1, ranks)))]


def permutation(ranks: int, random: Random) -> list[Phase]:
    """One random permutation."""
    targets = list(range(ranks))
    random.shuffle(targets)
    return [Phase([(i, target) for i, target in enumerate(targets) if i != target])]


def storage(ranks: int, servers: int, random: Random) -> list[Phase]:
    """Every rank writes the message to one storage server, then reads it back.

    The servers are the ranks from ``ranks`` on. The ranks of a tenant take them in turn, beginning
    with a random one.
    """
    first = random.randrange(servers)
    written = [(rank, ranks + (first + rank) % servers) for rank in range(ranks)]
    return [Phase(written), Phase([(server, rank) for rank, server in written])]


def _shifted(ranks: int, step: int) -> list[tuple[int, int]]:
    return [(i, (i + step) % ranks) for i in range(ranks) if step % ranks]


PATTERNS: Mapping[str, Callable[[int, Random], list[Phase]]] = {
    "stencil-2d": stencil(2),
    "stencil-3d": stencil(3),
    "ring-all-reduce": ring_all_reduce,
    "tree-all-reduce": tree_all_reduce,
    "all-to-all": all_to_all,
    "shift": shift,
    "permutation": permutation,
}
"""By name: the phases of one iteration for a number of ranks, 2 or more."""

STORAGE = "storage"
"""The name of ``storage``, which needs servers besides the ranks."""
