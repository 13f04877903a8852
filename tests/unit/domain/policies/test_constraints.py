# SPDX-License-Identifier: Apache-2.0

"""Every policy under constraints: answers meet them, and no possible answer is missed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit, explain, largest_fit
from laas_service.domain.admission.constrained import propose
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.policies.laas import Laas
from laas_service.domain.policies.lc import Lc
from laas_service.domain.policies.simple import Simple
from laas_service.domain.verification import (
    isolation_violations,
    permutation_violations,
    random_permutation,
    shape_violations,
)
from tests.unit.domain.policies.constrained import (
    TRAITS,
    Priced,
    acceptable,
    broken,
    price,
    some_features,
)
from tests.unit.domain.policies.states import noisy_fabric
from tests.unit.domain.policies.test_brute_force import TREES

SEARCHING = ("simple", "laas", "jigsaw", "lc")
HOSTS_ONLY = ("baseline", "ta")
SMALL = TREES["three levels"]  # 18 hosts: 3 pods of 3 leaves of 2

every_policy = pytest.mark.parametrize("name", POLICIES)
every_tree = pytest.mark.parametrize("tree", TREES)


def wishes(cheapest: bool = True) -> st.SearchStrategy[Constraints]:
    """Constraints of all kinds, most of them few at a time."""
    place = st.sampled_from(
        [{}, {}, {"within": Within.LEAF}, {"within": Within.POD}, {"spread": 2}, {"spread": 3}]
    )
    sets = st.frozensets
    return st.builds(
        lambda where, **others: Constraints(**where, **others),
        place,
        traits=sets(st.sampled_from(TRAITS), max_size=1) | st.just(frozenset(TRAITS)),
        avoid_hosts=st.just(frozenset()) | sets(st.integers(0, 7), max_size=4),
        avoid_pods=st.just(frozenset()) | sets(st.integers(0, 2), max_size=1),
        max_host_cost=st.none() | st.integers(0, 8),
        cheapest=st.booleans() if cheapest else st.just(False),
    )


def noisy(tree: str, seed: int) -> Ledger:
    rng = Random(f"{tree} {seed}")
    fabric = noisy_fabric(TREES[tree], rng)
    fabric.describe_hosts(some_features(fabric, rng))
    return fabric


def meets_everything(fabric: Ledger, wish: Constraints, answer: Allocation) -> None:
    topology = fabric.topology
    assert not broken(fabric, wish, answer)
    assert not shape_violations(topology, answer)
    assert not isolation_violations(topology, [answer, *fabric.allocations.values()])
    hosts = set(answer.hosts(topology))
    assert not hosts & (fabric.failed_hosts | fabric.drained_hosts)
    assert not set(answer.links(topology)) & fabric.failed_links
    if answer.columns:
        tried = {"random": random_permutation(answer.hosts(topology), Random(1))}
        assert not permutation_violations(topology, answer, tried)


@every_policy
@every_tree
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), wish=wishes())
def test_an_answer_meets_every_constraint_and_is_legal(name, tree, seed, wish):
    fabric, policy = noisy(tree, seed), POLICIES[name]()
    before = fabric.state()
    for hosts in range(1, fabric.topology.hosts + 1):
        asked = Request("t", hosts, constraints=wish)
        answer = propose(policy, fabric, asked)
        assert propose(policy, fabric.copy(), asked) == answer
        assert fabric.state() == before
        if isinstance(answer, Allocation):
            meets_everything(fabric, wish, answer)
            assert answer.size >= hosts
            fabric.claim(answer)
            fabric.release("t")


@pytest.mark.parametrize("name", SEARCHING)
@every_tree
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), wish=wishes())
def test_something_is_found_whenever_there_is_something(name, tree, seed, wish):
    fabric = noisy(tree, seed)
    brute = Priced(fabric, wish)
    for hosts in range(1, fabric.free_host_count + 2, 2):
        answer = propose(POLICIES[name](), fabric, Request("t", hosts, constraints=wish.musts))
        assert isinstance(answer, Allocation) == any(True for _ in brute.prices(name, hosts))


@pytest.mark.parametrize("name", SEARCHING)
@every_tree
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    where=st.sampled_from([{}, {}, {"within": Within.LEAF}, {"within": Within.POD}, {"spread": 2}]),
    size=st.sampled_from([2, 3, 4, 5, 7, 9]),
)
def test_the_cheapest_costs_least_of_all_legal_placements(name, tree, seed, where, size):
    rng = Random(seed)
    fabric = noisy_fabric(TREES[tree], rng)
    hosts = set(range(fabric.topology.hosts)) - fabric.topology.absent_hosts
    costs = rng.choice(((0, 1), (1, 2, 4, 8), (3, 5, 7, 11, 13, 17)))
    fabric.describe_hosts({host: HostFeatures(cost=rng.choice(costs)) for host in hosts})
    wish = Constraints(**where, cheapest=True)
    answer = propose(POLICIES[name](), fabric, Request("t", size, constraints=wish))
    prices = set(Priced(fabric, wish).prices(name, size))
    assert isinstance(answer, Allocation) == bool(prices), answer
    if isinstance(answer, Allocation):
        assert price(fabric, answer) == min(prices)


@every_tree
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), wish=wishes(), share=st.floats(0, 1))
def test_baseline_finds_any_hosts_that_meet_the_constraints(tree, seed, wish, share):
    fabric = noisy(tree, seed)
    topology = fabric.topology
    hosts = 1 + int(share * fabric.free_host_count)
    groups: dict[object, list[int]] = {}
    for host in range(topology.hosts):
        group, position = topology.place_of(host)
        if fabric.free_hosts[group] >> position & 1 and acceptable(fabric, wish, host):
            key = {Within.LEAF: group, Within.POD: group // topology.groups_per_pod, None: 0}
            groups.setdefault(key[wish.within], []).append(host)
    pods = {
        key: len({topology.place_of(host)[0] // topology.groups_per_pod for host in some})
        for key, some in groups.items()
    }
    possible = any(
        len(some) >= hosts >= wish.spread and pods[key] >= wish.spread
        for key, some in groups.items()
    )
    answer = propose(POLICIES["baseline"](), fabric, Request("t", hosts, constraints=wish))
    assert isinstance(answer, Allocation) == possible
    if isinstance(answer, Allocation) and wish.cheapest and wish.spread == 1:
        costs = [
            sum(sorted(fabric.features.of(host).cost for host in some)[:hosts])
            for some in groups.values()
            if len(some) >= hosts
        ]
        assert price(fabric, answer) == min(costs)


@every_policy
@every_tree
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), wish=wishes(cheapest=False))
def test_the_largest_fit_is_the_largest_size_that_meets_the_constraints(name, tree, seed, wish):
    fabric, policy = noisy(tree, seed), POLICIES[name]()
    sizes = [
        hosts
        for hosts in range(1, fabric.topology.hosts + 1)
        if isinstance(propose(policy, fabric, Request("t", hosts, constraints=wish)), Allocation)
    ]
    assert largest_fit(policy, fabric, fabric.topology.hosts + 1, wish) == max(sizes, default=0)


@every_policy
@every_tree
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), wish=wishes(), share=st.floats(0, 1))
def test_a_refusal_names_the_constraint_without_which_it_would_fit(name, tree, seed, wish, share):
    fabric, policy = noisy(tree, seed), POLICIES[name]()
    request = Request("t", 1 + int(share * fabric.free_host_count), constraints=wish)
    refusal = admit(policy, fabric, request)
    if isinstance(refusal, Allocation):
        return
    told = explain(policy, fabric, request, refusal)
    plain = propose(policy, fabric, replace(request, constraints=None))
    assert (told.reason is Refusal.CONSTRAINT) == isinstance(plain, Allocation)
    if told.reason is not Refusal.CONSTRAINT:
        assert isinstance(plain, NoFit)
        assert told.reason is plain.reason
        return
    alone = [
        constraint
        for constraint in wish.musts.names
        if isinstance(
            propose(policy, fabric, replace(request, constraints=wish.without(constraint))),
            Allocation,
        )
    ]
    head = told.detail.partition(";")[0]
    for constraint in alone or wish.musts.names:
        assert constraint in head
    for constraint in set(wish.musts.names) - set(alone) if alone else ():
        assert f" {constraint} (" not in head


# -- small examples ---------------------------------------------------------------


def small(**features: HostFeatures) -> Ledger:
    fabric = Ledger(SMALL)
    fabric.describe_hosts({int(name.removeprefix("h")): known for name, known in features.items()})
    return fabric


def asked(name: str, fabric: Ledger, hosts: int, **wish) -> Allocation | NoFit:
    return propose(POLICIES[name](), fabric, Request("t", hosts, constraints=Constraints(**wish)))


def refusal_of(name: str, fabric: Ledger, hosts: int, **wish) -> NoFit:
    request = Request("t", hosts, constraints=Constraints(**wish))
    answer = admit(POLICIES[name](), fabric, request)
    assert isinstance(answer, NoFit)
    return explain(POLICIES[name](), fabric, request, answer)


def hosts_of(answer: Allocation | NoFit) -> tuple[int, ...]:
    assert isinstance(answer, Allocation), answer
    return answer.hosts(SMALL)


GPU = HostFeatures(frozenset({"gpu"}), 5)


@every_policy
def test_only_hosts_with_the_trait(name):
    fabric = small(h8=GPU, h9=GPU)
    assert hosts_of(asked(name, fabric, 2, traits=frozenset({"gpu"}))) == (8, 9)
    told = refusal_of(name, fabric, 3, traits=frozenset({"gpu"}))
    assert (told.reason, told.largest_fit) == (Refusal.CONSTRAINT, 2)
    assert told.detail.startswith("3 hosts would fit without constraint traits (gpu);")


@every_policy
def test_a_trait_that_nobody_has_is_a_constraint_that_nobody_meets(name):
    told = refusal_of(name, Ledger(SMALL), 1, traits=frozenset({"gpu"}))
    assert (told.reason, told.largest_fit) == (Refusal.CONSTRAINT, 0)


@every_policy
def test_the_cheapest_leaf_is_taken_where_all_would_do(name):
    fabric = small(**{f"h{host}": HostFeatures(cost=9) for host in range(18) if host not in (6, 7)})
    assert hosts_of(asked(name, fabric, 2, cheapest=True)) == (6, 7)


@pytest.mark.parametrize(
    ("dear", "hosts", "wish", "cheapest"),
    [
        ((0, 1), 4, {"within": Within.POD, "avoid_pods": frozenset({1, 2})}, (2, 3, 4, 5)),
        ((0, 1, 5), 3, {"avoid_pods": frozenset({1, 2})}, (2, 3, 4)),
        ((0, 2, 3), 3, {"avoid_pods": frozenset({1, 2})}, (1, 4, 5)),
        (range(6), 12, {}, range(6, 18)),
        ((*range(4), *range(6, 11)), 8, {"spread": 2}, (4, 5, *range(12, 18))),
    ],
    ids=["leaves", "a leaf and a host", "a host and a leaf", "pods", "a leaf and a pod"],
)
def test_what_is_dear_is_left_out_though_it_comes_first(dear, hosts, wish, cheapest):
    fabric = small(**{f"h{host}": HostFeatures(cost=9) for host in dear})
    assert hosts_of(asked("jigsaw", fabric, hosts, cheapest=True, **wish)) == tuple(cheapest)


def test_the_cheapest_may_lie_on_more_leaves_than_the_fewest():
    fabric = small(
        **{f"h{host}": HostFeatures(cost=host % 2) for host in range(18)}
    )  # alternating costs 0 and 1
    assert hosts_of(asked("jigsaw", fabric, 2)) == (0, 1)
    assert hosts_of(asked("jigsaw", fabric, 3, cheapest=True)) == (0, 2, 4)


@every_policy
def test_dearer_hosts_are_left_alone(name):
    fabric = small(h0=GPU, h1=GPU)
    assert 0 not in hosts_of(asked(name, fabric, 2, max_host_cost=4))
    assert hosts_of(asked(name, fabric, 18, max_host_cost=5)) == tuple(range(18))
    assert "max_host_cost (4)" in refusal_of(name, fabric, 18, max_host_cost=4).detail


@every_policy
def test_pods_to_avoid(name):
    avoid = frozenset({0, 2})
    assert set(hosts_of(asked(name, Ledger(SMALL), 6, avoid_pods=avoid))) == set(range(6, 12))
    told = refusal_of(name, Ledger(SMALL), 7, avoid_pods=avoid)
    assert "avoid_pods (2)" in told.detail


def test_spreading_takes_shapes_that_the_policy_allows():
    for name, most in (("jigsaw", 3), ("lc", 3), ("laas", 3)):
        answer = asked(name, Ledger(SMALL), 5, spread=3)
        assert {host // 6 for host in hosts_of(answer)} == {0, 1, 2}, (name, most)
    assert {host // 6 for host in hosts_of(asked("lc", Ledger(SMALL), 3, spread=3))} == {0, 1, 2}


@pytest.mark.parametrize("name", ["simple", "laas", "jigsaw", "ta"])
def test_who_cannot_spread_so_few_hosts_says_so(name):
    told = refusal_of(name, Ledger(SMALL), 3, spread=3)
    assert told.reason is Refusal.CONSTRAINT
    assert "without constraint spread (3)" in told.detail
    if name == "jigsaw":
        assert "lc spreads them over up to 3" in told.detail
        assert told.largest_fit == 0


def test_the_largest_that_spreads():
    assert refusal_of("lc", small(h0=GPU), 18, spread=3, max_host_cost=1).largest_fit == 17
    assert refusal_of("jigsaw", Ledger(SMALL), 4, spread=4).largest_fit == 0


def test_the_two_pod_shape_spreads_over_two():
    fabric = Ledger(SMALL)
    answer = propose(
        Jigsaw(two_pods=True), fabric, Request("t", 5, constraints=Constraints(spread=2))
    )
    assert {host // 6 for host in hosts_of(answer)} == {0, 1}


@every_policy
def test_constraints_that_refuse_only_together_are_all_named(name):
    fabric = small(h0=GPU, h1=GPU)
    told = refusal_of(name, fabric, 1, traits=frozenset({"gpu"}), avoid_hosts=frozenset({0, 1}))
    assert "without constraint traits (gpu) or without avoid_hosts (2)" in told.detail
    for host in range(2, 18):
        fabric.drain_host(host)
    told = refusal_of(name, fabric, 2, avoid_hosts=frozenset({0}), max_host_cost=4)
    assert "without constraints avoid_hosts (1) and max_host_cost (4) together" in told.detail


@every_policy
def test_what_would_not_fit_anyway_is_not_blamed_on_constraints(name):
    told = refusal_of(name, Ledger(SMALL), 19, within=Within.POD)
    assert told.reason is Refusal.TOO_FEW_HOSTS
    assert told.largest_fit == 6


def test_contradictions_and_numbers_out_of_range():
    for wish, field in (
        ({"within": Within.POD, "spread": 2}, "constraints.spread"),
        ({"spread": 0}, "constraints.spread"),
        ({"max_host_cost": -1}, "constraints.max_host_cost"),
    ):
        with pytest.raises(InvalidInput, match=field):
            Constraints(**wish)


def test_a_search_for_the_cheapest_that_runs_dry_still_places():
    fabric = small(**{f"h{host}": HostFeatures(cost=host) for host in range(18)})
    for policy in (Simple(work=0), Laas(work=0), Jigsaw(work=0), Lc(work=0)):
        request = Request("t", 4, constraints=Constraints(cheapest=True))
        assert isinstance(propose(policy, fabric, request), Allocation)


def test_four_hosts_lie_in_no_three_pods_whatever_the_policy():
    """In 2 + 1 + 1 two pods are smaller than the third; shapes of 3 and of 5 hosts exist."""
    for name in SEARCHING:
        told = refusal_of(name, Ledger(SMALL), 4, spread=3)
        assert told.reason is Refusal.CONSTRAINT
        assert ("over 2 of 3 pods at most" in told.detail) == (name != "simple")
        assert "lc spreads them" not in told.detail
        assert told.largest_fit == (3 if name == "lc" else 0)
