# SPDX-License-Identifier: Apache-2.0

"""All searches for one request together stay within its budget."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit, explain, largest_fit, propose_in_scope
from laas_service.domain.admission.make_room import make_room
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.budget import UNBOUNDED, RequestBudget
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.common_plane_cost import costs
from laas_service.domain.constraints import Constraints
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import CUT_OFF, SEARCH, BudgetedPolicy, Policy
from laas_service.domain.search import search
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.topology import Topology, Xgft

TREE = Topology(Xgft((4, 4, 3), (1, 4, 4)))


class Tally:
    """Counts searches and their work, independently of the budget."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.work = self.searches = 0
        tally = self

        class Tallied(SearchBudget):
            def spend(self, cost: int) -> bool:
                done = super().spend(cost)
                tally.work += cost if done else 0
                return done

        patch.setattr(search, "SearchBudget", Tallied)

    def of(self, name: str) -> Policy:
        """A policy whose searches are counted."""
        tally, kind = self, POLICIES[name]

        class Counted(kind):  # type: ignore[misc, valid-type]
            def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
                tally.searches += 1
                answer: Allocation | NoFit = super().propose(fabric, request)
                return answer

        return Counted()

    @property
    def steps(self) -> int:
        return self.work + SEARCH * self.searches


def filled(sizes, drained=()):
    fabric = Ledger(TREE)
    for number, size in enumerate(sizes):
        admit(POLICIES["jigsaw"](), fabric, Request(f"t{number}", size))
    for host in drained:
        fabric.drain_host(host)
    return fabric


def ask_everything(policy: Policy, fabric: Ledger, request: Request) -> None:
    """Run all searches that a request for hosts may start."""
    answer = propose_in_scope(policy, fabric, request)
    if isinstance(answer, NoFit):
        explain(policy, fabric, request, answer)
        make_room(policy, fabric, request)
    largest_fit(policy, fabric, fabric.free_host_count + 1, request.constraints)


wishes = st.sampled_from([None, Constraints(spread=2), Constraints(cheapest=True)])
policies = st.sampled_from(sorted(POLICIES))


@settings(deadline=None, max_examples=60)
@given(
    policies,
    st.integers(1, 48),
    st.lists(st.integers(1, 12), max_size=12),
    st.sets(st.integers(0, 47), max_size=4),
    wishes,
    st.integers(0, 60_000),
)
def test_no_request_makes_more_steps_than_its_budget(name, hosts, sizes, drained, wish, work):
    fabric, request = filled(sizes, drained), Request("x", hosts, constraints=wish)
    with pytest.MonkeyPatch.context() as patch:
        tally, budget = Tally(patch), RequestBudget(work)
        ask_everything(BudgetedPolicy(tally.of(name), budget), fabric, request)
        assert tally.steps <= work
        assert budget.cut or budget.left == work - tally.steps


@settings(deadline=None, max_examples=60)
@given(policies, st.integers(1, 48), st.lists(st.integers(1, 12), max_size=12), wishes)
def test_a_budget_that_lasts_changes_no_answer(name, hosts, sizes, wish):
    policy, budget = POLICIES[name](), RequestBudget(UNBOUNDED)
    request = Request("x", hosts, constraints=wish)
    assert propose_in_scope(
        BudgetedPolicy(policy, budget), filled(sizes), request
    ) == propose_in_scope(policy, filled(sizes), request)
    assert not budget.cut


@pytest.mark.parametrize("work", [0, 10_000, 100_000])
def test_what_a_plane_costs_takes_no_more_than_its_budget(monkeypatch, work):
    fabric, tally = filled([5]), Tally(monkeypatch)
    names = ["jigsaw", "laas", "lc"]
    found = costs(fabric, CommonPlane(l2=(0,)), [tally.of(name) for name in names], work)
    assert tally.steps <= work
    assert [after.policy for _, after in found] == names
    assert any(before.cut_off or after.cut_off for before, after in found) is (work < 100_000)


def test_at_the_end_it_refuses_and_says_so_and_learns_nothing():
    fabric, budget = filled([]), RequestBudget(SEARCH)
    policy = BudgetedPolicy(POLICIES["jigsaw"](), budget)
    answer = propose_in_scope(policy, fabric, Request("x", 41))
    assert isinstance(answer, NoFit)
    assert answer.reason is Refusal.BUDGET
    assert budget.cut
    assert propose_in_scope(policy, fabric, Request("x", 1)) == CUT_OFF
    assert isinstance(propose_in_scope(POLICIES["jigsaw"](), fabric, Request("x", 41)), Allocation)


def test_the_same_budget_gives_the_same_answer():
    """The budget counts search steps, not seconds."""
    answers = set()
    for _ in range(3):
        policy = BudgetedPolicy(POLICIES["lc"](), RequestBudget(3_000))
        answers.add(largest_fit(policy, filled([3, 5, 7, 2]), 48))
    assert len(answers) == 1


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_traits_are_those_of_the_policy_and_no_class_is_made(name):
    policy = POLICIES[name]()
    for budget in (None, RequestBudget(0)):
        budgeted = BudgetedPolicy(BudgetedPolicy(policy), budget)
        traits = (budgeted.name, budgeted.isolating, budgeted.monotone)
        assert traits == (name, policy.isolating, policy.monotone)
        assert type(budgeted) is BudgetedPolicy
    assert BudgetedPolicy.__subclasses__() == []


def test_searches_that_stop_at_a_budget_are_counted():
    """The process-wide policy counts the exhausted searches of each request, too."""
    counting = BudgetedPolicy(POLICIES["jigsaw"]())
    fabric, budget = filled([]), RequestBudget(SEARCH)
    assert isinstance(counting.propose(fabric, Request("a", 48)), Allocation)
    assert isinstance(counting.propose(fabric, Request("b", 49)), NoFit)
    assert counting.exhausted == 0
    ours = BudgetedPolicy(counting, budget)
    assert isinstance(ours.propose(fabric, Request("c", 41)), NoFit)
    assert (ours.exhausted, counting.exhausted) == (1, 1)
    assert ours.propose(fabric, Request("d", 1)) is CUT_OFF
    assert (ours.exhausted, counting.exhausted) == (2, 1)  # no search was made
