# SPDX-License-Identifier: Apache-2.0

"""The bounds on sets of pods that share spines, against all sets of pods."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import and_, or_
from random import Random

import pytest

from laas_service.domain.allocation import Allocation, ColumnShare
from laas_service.domain.ledger import Ledger
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.spine_bounds import SpineBounds
from laas_service.domain.topology import Topology, Xgft

PODS, COLUMNS, WIDTH = 6, 4, 5
TREE = Topology(Xgft((4, 5, PODS), (1, COLUMNS, WIDTH)))


def random_spines(rng: Random) -> Ledger:
    """Masks of two kinds with noise: some columns are equal, some pods share many spines."""
    fabric = Ledger(TREE)
    kinds = [rng.getrandbits(WIDTH) | rng.getrandbits(WIDTH) for _ in range(2)]
    noise = rng.choice((0, 0.1, 0.3))
    shares = []
    for pod in range(PODS):
        for column in range(COLUMNS):
            mask = kinds[(pod + (column == pod)) % 2]
            mask ^= sum(1 << j for j in range(WIDTH) if rng.random() < noise)
            if taken := (1 << WIDTH) - 1 & ~mask:
                shares.append(ColumnShare(pod, column, taken))
    fabric.claim(Allocation("noise", 1, "baseline", (), tuple(shares)))
    return fabric


def sharing(fabric: Ledger, chosen: tuple[int, ...], need: int) -> int:
    """In how many columns these pods have so many spine uplinks in common."""
    masks = [fabric.free_spines[pod * COLUMNS : (pod + 1) * COLUMNS] for pod in chosen]
    return sum(reduce(and_, column).bit_count() >= need for column in zip(*masks, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_the_candidates_contain_every_pod_of_a_possible_set(seed):
    rng = Random(seed)
    sharp = loose = 0
    for _ in range(25):
        fabric = random_spines(rng)
        bounds = SpineBounds(fabric, SearchBudget(10**6))
        for pods, need, columns in itertools.product(
            range(1, PODS + 1), range(1, WIDTH + 1), range(1, COLUMNS + 1)
        ):
            among = rng.getrandbits(PODS) | rng.getrandbits(PODS)
            members = [pod for pod in range(PODS) if among >> pod & 1]
            taking_part = reduce(
                or_,
                (
                    sum(1 << pod for pod in chosen)
                    for chosen in itertools.combinations(members, pods)
                    if pods == 1 or sharing(fabric, chosen, need) >= columns
                ),
                0,
            )
            candidates = bounds.candidates(among, pods, need, columns)
            assert taking_part & ~candidates == 0
            assert candidates & ~among == 0
            sharp += candidates == taking_part
            loose += candidates != taking_part
    assert sharp > 4 * loose  # the bounds are sharp in most cases


def test_without_budget_nothing_is_ruled_out():
    fabric = random_spines(Random(3))
    among = (1 << PODS) - 1
    assert SpineBounds(fabric, SearchBudget(0)).candidates(among, 3, 4, COLUMNS) == among


def test_an_answer_for_want_of_budget_is_not_remembered():
    fabric = random_spines(Random(3))
    among = (1 << PODS) - 1
    asked = among, 3, 4, COLUMNS
    expected = SpineBounds(fabric, SearchBudget(10**6)).candidates(*asked)
    assert expected != among
    for work in range(0, 200, 5):
        budget = SearchBudget(10**6)
        bounds = SpineBounds(fabric, budget)
        with budget.portion(10**6 // max(work, 1)):
            bounds.candidates(*asked)
        assert bounds.candidates(*asked) == expected
