# SPDX-License-Identifier: Apache-2.0

"""Sets of nodes that share columns: compared with all combinations of pods and of columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations, product
from operator import and_, or_
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.column_by_column import ColumnByColumn, Node

LANE, SPINES, COLUMNS = 8, 4, 4
FIELD = (1 << SPINES) - 1
PLENTY = 1_000_000


def some_nodes(rng: Random) -> list[Node]:
    """Nodes of up to six pods, one to three of each, which lack some spine uplinks."""
    dense = rng.uniform(0.4, 0.9)
    return [
        (
            pod,
            0,
            sum(
                1 << column * LANE + spine
                for column, spine in product(range(COLUMNS), range(SPINES))
                if rng.random() < dense
            ),
        )
        for pod in rng.sample(range(20), rng.randint(1, 6))
        for _ in range(rng.choice((1, 1, 1, 2, 3)))
    ]


def columns_of(nodes: Sequence[Node], need: int) -> list[tuple[int, int, int]]:
    """The columns with spine uplinks that a node has."""
    union = reduce(or_, [lanes for _, _, lanes in nodes])
    places = [column * LANE for column in range(COLUMNS)]
    return [(at, spines, need) for at in places if (spines := union >> at & FIELD)]


def agree(nodes: Sequence[Node], need: int, used: int) -> bool:
    """Whether all these nodes have ``need`` spine uplinks in common in ``used`` columns."""
    common = reduce(and_, [lanes for _, _, lanes in nodes])
    counts = [(common >> column * LANE & FIELD).bit_count() for column in range(COLUMNS)]
    return sum(count >= need for count in counts) >= used


def that_agree(nodes: Sequence[Node], pods: int, need: int, used: int) -> list[tuple[Node, ...]]:
    """All sets of one node each of so many pods that agree."""
    return [
        chosen
        for chosen in combinations(nodes, pods)
        if len({pod for pod, _, _ in chosen}) == pods and agree(chosen, need, used)
    ]


@given(
    seed=st.integers(0, 1 << 32),
    pods=st.integers(1, 4),
    need=st.integers(1, 3),
    used=st.integers(1, COLUMNS),
)
@settings(max_examples=300, deadline=None)
def test_all_that_agree_lie_in_a_set_and_the_nodes_of_each_set_agree(seed, pods, need, used):
    nodes = some_nodes(Random(seed))
    columns = columns_of(nodes, need)
    search = ColumnByColumn(nodes, pods, frozenset(), 0)
    sets = search.sets(columns, used, SearchBudget(PLENTY))
    assert sets is not None
    for some in sets:
        assert len({pod for pod, _, _ in some}) >= pods
        assert agree(some, need, used)
    for chosen in that_agree(nodes, pods, need, used):
        assert any(set(chosen) <= set(some) for some in sets)


@given(seed=st.integers(0, 1 << 32), pods=st.integers(2, 4), least_new=st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_sets_without_enough_new_pods_are_left_out_and_no_others(seed, pods, least_new):
    rng = Random(seed)
    nodes = some_nodes(rng)
    numbers = sorted({pod for pod, _, _ in nodes})
    new = frozenset(rng.sample(numbers, rng.randint(0, len(numbers))))
    columns = columns_of(nodes, 1)
    search = ColumnByColumn(nodes, pods, new, least_new)
    sets = search.sets(columns, 3, SearchBudget(PLENTY))
    assert sets is not None
    for some in sets:
        assert len({pod for pod, _, _ in some} & new) >= least_new
    for chosen in that_agree(nodes, pods, 1, 3):
        if len({pod for pod, _, _ in chosen} & new) >= least_new:
            assert any(set(chosen) <= set(some) for some in sets)


@pytest.mark.parametrize("work", [0, 3])
def test_nothing_is_said_if_the_budget_is_used_up(work):
    nodes = [(pod, 0, sum(7 << column * LANE for column in range(COLUMNS))) for pod in range(4)]
    search = ColumnByColumn(nodes, 2, frozenset(), 0)
    assert search.sets(columns_of(nodes, 1), 1, SearchBudget(PLENTY))
    assert search.sets(columns_of(nodes, 1), 1, SearchBudget(work)) is None
