# SPDX-License-Identifier: Apache-2.0

"""The two preferences of a search: the first placement that fits, and the cheapest one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request, Shape
from laas_service.domain.constraints import Constraints
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.search.best_fit import BestFit
from laas_service.domain.search.budget import WORK, SearchBudget
from laas_service.domain.search.min_cost import MinCost
from laas_service.domain.search.misfits import Misfits
from laas_service.domain.search.one_leaf import fullest_leaf_group, in_one_leaf_group
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import Placement
from laas_service.domain.topology import LeafLink, Topology, Xgft
from tests.unit.domain.policies.states import noisy_fabric
from tests.unit.domain.policies.test_brute_force import TREES

TREE = Topology(Xgft((2, 3, 3), (1, 2, 3)))  # 18 hosts: 3 pods of 3 leaves of 2
PAIR = Shape(1, 1, 2)


def priced(*costs: int) -> Ledger:
    """A fabric in which every host of leaf group g costs ``costs[g]``, of later ones 100."""
    fabric = Ledger(TREE)
    by_group = [*costs, *[100] * (TREE.groups - len(costs))]
    fabric.describe_hosts(
        {host: HostFeatures(cost=by_group[host // 2]) for host in range(TREE.hosts)}
    )
    return fabric


def on_leaf(group: int) -> Placement:
    return Placement((GroupShare(group, 0b11, 0),), (), PAIR)


def best_fit(fabric: Ledger) -> BestFit:
    return BestFit(fabric, SearchBudget(WORK), fabric.reader_cache(Misfits))


def test_the_first_placement_is_chosen_and_no_other_is_looked_for():
    def placements() -> Iterator[Placement]:
        yield on_leaf(4)
        pytest.fail("the search went on")

    assert best_fit(Ledger(TREE)).choose(placements()) == on_leaf(4)


def test_no_placement_is_none_for_both():
    fabric = Ledger(TREE)
    assert best_fit(fabric).choose(iter(())) is None
    assert MinCost(fabric).choose(iter(())) is None


def test_the_cheapest_placement_is_chosen_and_of_equals_the_first():
    preference = MinCost(priced(7, 5, 5, 9))
    assert preference.choose(map(on_leaf, (0, 1, 2, 3))) == on_leaf(1)
    assert preference.least == 10


def test_what_cannot_be_cheaper_is_not_looked_for():
    preference = MinCost(priced(7, 5, 5, 9))
    assert preference.may_improve(PAIR)
    assert list(preference.pods(2)) == [0, 1, 2]
    preference.choose(iter([on_leaf(1)]))
    assert not preference.may_improve(PAIR)
    assert preference.improving([PAIR, Shape(1, 1, 1)]) == [Shape(1, 1, 1)]
    assert list(preference.pods(2)) == []
    assert list(preference.pods(1)) == [0, 1]  # a host of group 3 costs 9


def test_a_pod_that_looks_like_one_that_did_not_fit_is_skipped():
    fabric = Ledger(TREE)
    assert list(best_fit(fabric).pods(4)) == [0]
    assert list(best_fit(fabric).pods(4)) == []  # cached: 4 hosts fit no pod
    fabric = Ledger(TREE)
    fabric.fail_link(LeafLink(1, 0, 0))
    assert list(best_fit(fabric).pods(4)) == [0, 1, 2]


def test_without_budget_the_next_pod_is_not_searched():
    fabric, budget = Ledger(TREE), SearchBudget(0)
    fabric.fail_host(0)  # pod 0 is the fullest, and no other pod is like it
    pods = BestFit(fabric, budget, fabric.reader_cache(Misfits)).pods(4)
    assert next(pods) == 0
    budget.spend(1)
    assert list(pods) == []
    assert list(best_fit(fabric).pods(4)) == [0, 1]  # the cut search cached nothing


def test_a_refusal_known_beforehand_takes_no_step():
    fabric = Ledger(TREE)

    def step() -> Iterator[Placement]:
        pytest.fail("the search began")
        yield on_leaf(0)

    answer = Search(fabric, "jigsaw", Request("t", 19), WORK).answer(step())
    assert isinstance(answer, NoFit)
    assert answer.reason is Refusal.TOO_FEW_HOSTS


def test_a_request_for_the_cheapest_hosts_is_answered_by_cost():
    fabric = priced(7, 5, 3, 9)
    for constraints, group in ((None, 0), (Constraints(cheapest=True), 2)):
        search = Search(fabric, "jigsaw", Request("t", 2, constraints=constraints), WORK)
        answer = search.answer(in_one_leaf_group(search, 2))
        assert isinstance(answer, Allocation)
        assert [share.group for share in answer.groups] == [group]


def test_a_portion_of_the_budget_comes_back():
    budget = SearchBudget(100)
    with budget.portion(4):
        assert budget.left == 25
        assert not budget.spend(30)
    assert budget.exceeded
    assert budget.spend(75)
    assert not budget.spend(1)


@pytest.mark.parametrize("tree", TREES)
def test_a_small_request_is_answered_as_by_a_search(tree):
    rng = Random(f"small {tree}")
    answers = []
    for _ in range(40):
        fabric = noisy_fabric(TREES[tree], rng)
        for hosts in range(1, fabric.topology.hosts_per_group + 2):
            request = Request("t", hosts)
            search = Search(fabric, "jigsaw", request, WORK)
            expected = search.answer(in_one_leaf_group(search, hosts))
            answer = fullest_leaf_group(fabric, "jigsaw", request)
            answers.append(answer)
            assert answer == (expected if isinstance(expected, Allocation) else None) or (
                answer is None and fabric.topology.rails > 1
            )
    assert None in answers
    assert any(answers) == (fabric.topology.rails == 1)
