# SPDX-License-Identifier: Apache-2.0

"""What tries and attempts of a search take from its budget, and from the request's."""

from __future__ import annotations

from laas_service.domain.budget import RequestBudget
from laas_service.domain.search.budget import PART_TO_TRY, SearchBudget

WORK = 800


def test_all_tries_together_take_a_part_of_the_work_at_most():
    budget = SearchBudget(WORK)
    tried = sum(budget.first_try(40).spend(40) for _ in range(10))
    assert tried * 40 <= WORK // PART_TO_TRY < (tried + 1) * 40
    assert budget.left == WORK


def test_a_try_within_an_attempt_takes_from_the_attempt():
    budget = SearchBudget(WORK)
    with budget.attempt(60):
        assert budget.first_try(50).spend(50)
        assert budget.to_try == budget.left == 10
        assert not budget.first_try(50).spend(20)
        assert not budget.exceeded
    assert budget.left == WORK


def test_the_request_pays_for_tries_too():
    request_budget = RequestBudget(70)
    budget = SearchBudget(WORK, request_budget)
    assert budget.first_try(50).spend(50)
    assert request_budget.left == 20
    assert not budget.first_try(50).spend(30)
    assert budget.exceeded
