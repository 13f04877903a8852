# SPDX-License-Identifier: Apache-2.0

"""The search on bit sets by uplink: what it finds, compared with all combinations of leaves."""

from __future__ import annotations

import itertools
from functools import partial, reduce
from operator import and_
from random import Random

import pytest

from laas_service.domain.allocation import Shape
from laas_service.domain.search.bicliques import greedy_biclique
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.leaf_bicliques import LeafBicliques, LeafMatrix
from laas_service.domain.search.pod_fields import PodFields
from laas_service.domain.topology import bits

PODS, PER_POD = 3, 3
ANY_POD = Shape(1, 1, 1)
"""A shape for which the pods of any leaf have room."""
PLANES = {"one plane": [[0, 1, 2, 3, 4, 5]], "two planes": [[0, 1, 2], [3, 4, 5]]}


def matrix_of(rows: list[int], planes: list[list[int]]) -> tuple[LeafMatrix, int]:
    """The rows as leaves, so many in each pod, and the bit set of all of them."""
    fields = PodFields(PODS, PER_POD)
    places = [row // PER_POD * fields.width + row % PER_POD for row in range(len(rows))]
    columns = [
        sum(1 << place for place, row in zip(places, rows, strict=True) if row >> uplink & 1)
        for uplink in range(6)
    ]
    by_place = dict(zip(places, rows, strict=True))
    return LeafMatrix(fields, columns, planes, by_place.__getitem__), sum(1 << p for p in places)


def random_rows(rng: Random) -> list[int]:
    return [sum(1 << b for b in range(6) if rng.random() < 0.7) for _ in range(PODS * PER_POD)]


def is_wide(common: int, planes: list[list[int]], width: int) -> bool:
    return all(sum(common >> uplink & 1 for uplink in plane) >= width for plane in planes)


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_enough_leaves_share_and_nothing_else(name, seed):
    rng, planes = Random(seed), PLANES[name]
    for _ in range(40):
        rows, leaves, width = random_rows(rng), rng.randint(1, 5), rng.randint(1, 3)
        matrix, groups = matrix_of(rows, planes)
        budget = SearchBudget(10**6)
        search = LeafBicliques(matrix, groups, leaves, width, [ANY_POD], None, budget)
        shared = {
            common
            for chosen in itertools.combinations(rows, leaves)
            if is_wide(common := reduce(and_, chosen), planes, width)
        }
        found = list(search.all())
        assert not budget.exceeded
        for common in found:
            assert is_wide(common, planes, width)
            assert sum(not common & ~row for row in rows) >= leaves
        assert all(any(common == other for other in found) for common in shared)


@pytest.mark.parametrize("name", PLANES)
def test_the_first_are_the_greedy_ones(name):
    rng, planes = Random(name), PLANES[name]
    for _ in range(300):
        rows, leaves, width = random_rows(rng), rng.randint(1, 6), rng.randint(1, 3)
        matrix, groups = matrix_of(rows, planes)
        search = LeafBicliques(matrix, groups, leaves, width, [ANY_POD], None, SearchBudget(0))
        greedy = greedy_biclique(rows, leaves, partial(is_wide, planes=planes, width=width))
        assert search.first() == (greedy and greedy[1])


def test_only_what_contains_a_set_and_has_pods_is_searched():
    """With sets and shapes nothing is lost that contains a set and lies in enough pods."""
    rng, planes = Random(1), PLANES["one plane"]
    fits = 0
    for _ in range(300):
        rows, leaves = random_rows(rng), rng.randint(2, 4)
        pods = rng.randint(1, 2)
        shape = Shape(pods, -(-leaves // pods), 1)
        leaves = shape.pods * shape.leaves
        sets = [sum(1 << u for u in rng.sample(range(6), 2)) for _ in range(2)]
        matrix, groups = matrix_of(rows, planes)
        search = LeafBicliques(matrix, groups, leaves, 2, [shape], sets, SearchBudget(10**6))
        found = list(search.all())
        for chosen in sets:
            counts = [0] * PODS
            for row, mask in enumerate(rows):
                counts[row // PER_POD] += not chosen & ~mask
            if sum(count >= shape.leaves for count in counts) >= shape.pods:
                fits += 1
                assert any(not chosen & ~common for common in found)
        assert all(any(not chosen & ~common for chosen in sets) for common in found)
    assert fits > 50


def test_a_search_without_budget_stops_and_says_so():
    rows = [0b111111 ^ 1 << row % 6 for row in range(9)]
    matrix, groups = matrix_of(rows, PLANES["one plane"])
    budget = SearchBudget(10)
    assert not list(LeafBicliques(matrix, groups, 3, 2, [ANY_POD], None, budget).all())
    assert budget.exceeded
    assert list(bits(groups)) == [0, 1, 2, 4, 5, 6, 8, 9, 10]
