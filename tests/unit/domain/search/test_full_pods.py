# SPDX-License-Identifier: Apache-2.0

"""Sets of full pods: searched without bounds first, and with them where that drags on."""

from __future__ import annotations

import itertools
import pickle
from functools import reduce
from operator import and_
from random import Random

import pytest

from laas_service.domain.allocation import Allocation, ColumnShare, NoFit, Refusal, Request, Shape
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.search import full_pods
from laas_service.domain.search.budget import PART_TO_TRY, SearchBudget
from laas_service.domain.search.full_pods import full_pod_sets
from laas_service.domain.search.pod_view import PodView
from laas_service.domain.search.spine_bounds import SpineBounds
from laas_service.domain.topology import Topology, Xgft
from tests.bench.policies import HARD

PODS, LEAVES = 7, 4
TREE = Topology(Xgft((4, LEAVES, PODS), (1, 4, 5)))
ALL_UPLINKS = 0b1111


def random_spines(rng: Random, alike: bool) -> Ledger:
    """All hosts are free; of each pod's spine uplinks some are owned, in every column the same."""
    fabric = Ledger(TREE)
    taken = rng.choice((0.2, 0.35, 0.5))
    shares = []
    for pod in range(PODS):
        mask = sum(1 << spine for spine in range(5) if rng.random() < taken)
        for column in range(4):
            extra = 0 if alike else sum(1 << spine for spine in range(5) if rng.random() < 0.1)
            if mask | extra:
                shares.append(ColumnShare(pod, column, mask | extra))
    fabric.claim(Allocation("noise", 1, "baseline", (), tuple(shares)))
    return fabric


def enough_in_common(fabric: Ledger, pods: tuple[int, ...], leaves: int) -> bool:
    masks = [fabric.free_spines[pod * 4 : pod * 4 + 4] for pod in pods]
    return all(reduce(and_, column).bit_count() >= leaves for column in zip(*masks, strict=True))


@pytest.mark.parametrize("bounds_first", [False, True])
@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_set_is_found_if_and_only_if_there_is_one(seed, alike, bounds_first):
    rng = Random(f"{seed} {alike}")
    for _ in range(15):
        fabric, budget = random_spines(rng, alike), SearchBudget(10**6)
        bounds = SpineBounds(fabric, budget)
        bounds.needed = bounds_first
        view = PodView(fabric, budget, bounds, ALL_UPLINKS, 4)
        for pods, leaves in itertools.product(range(1, PODS + 1), range(1, LEAVES + 1)):
            shape = Shape(pods, leaves, 4)
            sets = [set(chosen) for chosen in full_pod_sets(view, view.pods_with(leaves), shape)]
            for chosen in sets:
                assert len(chosen) >= pods
                assert enough_in_common(fabric, tuple(chosen), leaves)
            for members in itertools.combinations(range(PODS), pods):
                if enough_in_common(fabric, members, leaves):
                    assert any(chosen >= set(members) for chosen in sets)
        assert not budget.exceeded


def test_bounds_are_computed_only_for_a_search_that_drags_on(monkeypatch):
    computed = []
    candidates = SpineBounds.candidates

    def counted(bounds, *args):
        computed.append(args)
        return candidates(bounds, *args)

    monkeypatch.setattr(SpineBounds, "candidates", counted)
    jigsaw = POLICIES["jigsaw"]()
    assert isinstance(jigsaw.propose(Ledger(TREE), Request("t", 40)), Allocation)
    fabric = random_spines(Random(5), alike=False)
    answer = jigsaw.propose(fabric, Request("t", 65))
    assert not computed
    fabric.reader_caches.clear()
    monkeypatch.setattr(full_pods, "COST_OF_BOUNDS", 0)
    assert jigsaw.propose(fabric, Request("t", 65)) == answer
    assert computed


def test_what_searches_keep_with_a_ledger_can_be_pickled():
    fabric = random_spines(Random(5), alike=False)
    jigsaw = POLICIES["jigsaw"]()
    answers = [jigsaw.propose(fabric, Request("t", size)) for size in (64, 100, 41)]
    copy = pickle.loads(pickle.dumps(fabric))
    assert copy.reader_caches == fabric.reader_caches
    assert [jigsaw.propose(copy, Request("t", size)) for size in (64, 100, 41)] == answers


def test_a_first_try_is_paid_beside_the_budget_and_cuts_nothing_off():
    budget = SearchBudget(100 * PART_TO_TRY)
    first_try = budget.first_try(30)
    assert first_try.spend(25)
    assert not first_try.spend(10)
    assert first_try.exceeded
    assert (budget.to_try, budget.left, budget.exceeded) == (70, 100 * PART_TO_TRY, False)
    assert not budget.first_try(90).spend(80)
    assert (budget.to_try, budget.left, budget.exceeded) == (0, 100 * PART_TO_TRY, False)


@pytest.mark.parametrize(
    ("policy", "state", "most"), [("laas", "s-random", 6), ("jigsaw", "board", 0)]
)
def test_no_more_searches_are_cut_off_than_are_known(policy, state, most):
    """``most`` of these requests were cut off when all bounds came before the search."""
    fabric = HARD[state](36)
    cut_off = 0
    for size in range(1, fabric.topology.hosts, 76):
        fabric.reader_caches.clear()
        answer = POLICIES[policy]().propose(fabric, Request("t", size))
        cut_off += isinstance(answer, NoFit) and answer.reason is Refusal.BUDGET
    assert cut_off <= most
