# SPDX-License-Identifier: Apache-2.0

"""Requests that require or prefer tables without contention."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.domain.admission.admit import admit, explain, largest_fit
from laas_service.domain.admission.constrained import propose
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, ContentionFree, Within
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import PLANNING
from laas_service.domain.routing.contention import contention, contention_of, rank_order
from laas_service.domain.routing.tenant_tables import tenant_tables
from laas_service.domain.search.shapes import pod_shapes
from laas_service.domain.topology import Topology, Xgft
from tests.shift_loads import shift_loads

REQUIRE = Constraints(contention_free=ContentionFree.REQUIRE)
PREFER = Constraints(contention_free=ContentionFree.PREFER)
OWNING = ("laas", "jigsaw", "lc", "simple")


def pod(width: int) -> Topology:
    return Topology(Xgft((width, width, 1), (1, width, 0)))


def ask(fabric: Ledger, policy: str, hosts: int, constraints=None) -> Allocation | NoFit:
    return propose(PLANNING[policy](), fabric, Request("t", hosts, constraints=constraints))


def used(seed: int) -> Ledger:
    """A fabric that tenants came to and left."""
    random, ledger, live = Random(seed), Ledger(Topology(Xgft((4, 4, 4), (1, 4, 4)))), []
    for number in range(30):
        answer = admit(PLANNING["jigsaw"](), ledger, Request(f"u{number}", random.randint(1, 12)))
        if isinstance(answer, Allocation):
            live.append(answer.id)
        elif live:
            ledger.release(live.pop(random.randrange(len(live))))
    for id in live[::3]:
        ledger.release(id)
    return ledger


@pytest.mark.parametrize(("width", "sizes", "usual", "free"), [(8, 56, 14, 46), (18, 306, 34, 241)])
def test_how_many_sizes_of_a_pod_have_a_free_shape(width, sizes, usual, free):
    """Of the sizes above one leaf; ``usual`` are free under D-mod-k in the shape tried first."""
    topology = pod(width)
    shapes = [pod_shapes(n, width, width, 1) for n in range(width + 1, width * width + 1)]
    assert len(shapes) == sizes
    first = [of_size[0] for of_size in shapes]
    assert len([s for s in first if not s.remainder_hosts or s.leaves == 1]) == usual
    assert len([x for x in shapes if any(contention_of(topology, s).free for s in x)]) == free


@pytest.mark.parametrize("policy", OWNING)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_required_is_given_and_prefer_refuses_nothing(policy, seed):
    ledger = used(seed)
    for hosts in range(2, ledger.free_host_count + 2):
        usual, required, preferred = (
            ask(ledger, policy, hosts, wish) for wish in (None, REQUIRE, PREFER)
        )
        if isinstance(required, Allocation):
            tables = tenant_tables(ledger.topology, required)
            order = rank_order(ledger.topology, required)
            assert shift_loads(ledger.topology, tables, order).max() <= 1
            assert isinstance(usual, Allocation)
        elif isinstance(usual, Allocation):
            assert not contention(ledger.topology, usual).free
        assert type(preferred) is type(usual)
        if isinstance(usual, Allocation) and contention(ledger.topology, usual).free:
            assert preferred == usual


def test_a_shape_with_contention_is_refused_with_the_constraint_named():
    ledger = Ledger(pod(8))
    refusal = ask(ledger, "jigsaw", 61, REQUIRE)
    assert isinstance(refusal, NoFit)
    request = Request("t", 61, constraints=REQUIRE)
    explained = explain(PLANNING["jigsaw"](), ledger, request, refusal)
    assert explained.reason is Refusal.CONSTRAINT
    assert "without constraint contention_free (require)" in explained.detail
    assert explained.largest_fit == 60


@pytest.mark.parametrize("policy", OWNING)
def test_the_largest_size_is_the_largest_that_is_given(policy):
    ledger = used(7)
    fits = [
        n
        for n in range(1, ledger.free_host_count + 1)
        if isinstance(ask(ledger, policy, n, REQUIRE), Allocation)
    ]
    assert largest_fit(PLANNING[policy](), ledger, 1000, REQUIRE) == max(fits)


def test_asking_changes_nothing_for_those_who_ask_after():
    ledger = used(1)
    before = [ask(ledger, "jigsaw", n) for n in range(1, 30)]
    for n in range(29, 0, -1):
        ask(ledger, "jigsaw", n, REQUIRE)
    assert [ask(ledger, "jigsaw", n) for n in range(1, 30)] == before


def test_prefer_takes_no_more_pods_and_costs_no_more():
    ledger = Ledger(Topology(Xgft((3, 3, 2), (1, 3, 3))))
    assert not isinstance(ask(ledger, "lc", 11, PREFER), NoFit)
    ledger.describe_hosts({host: HostFeatures(cost=host) for host in range(18)})
    cheapest = Constraints(cheapest=True)
    both = Constraints(cheapest=True, contention_free=ContentionFree.PREFER)
    for hosts in range(2, 18):
        costs = [
            ledger.features.cost(answer.hosts(ledger.topology))
            for wish in (cheapest, both)
            if isinstance(answer := ask(ledger, "lc", hosts, wish), Allocation)
        ]
        assert len(set(costs)) <= 1


@pytest.mark.parametrize("policy", ["baseline", "ta"])
def test_hosts_without_links_of_their_own_are_free_of_contention_within_a_leaf_only(policy):
    ledger = Ledger(Topology(Xgft((4, 4, 2), (1, 4, 4))))
    inside = ask(ledger, policy, 4, REQUIRE)
    assert isinstance(inside, Allocation)
    assert len(inside.groups) == 1
    assert isinstance(ask(ledger, policy, 5, REQUIRE), NoFit)
    assert isinstance(ask(ledger, policy, 5, PREFER), Allocation)
    spread = Constraints(spread=2, contention_free=ContentionFree.REQUIRE)
    with pytest.raises(InvalidInput, match="owns no links across leaves"):
        ask(ledger, policy, 5, spread)


def test_musts_keep_what_is_required_and_drop_what_is_preferred():
    assert REQUIRE.musts == REQUIRE
    assert not PREFER.musts.names
    assert REQUIRE.of_shape
    assert not PREFER.of_shape
    both = Constraints(within=Within.POD, contention_free=ContentionFree.PREFER)
    assert both.musts == Constraints(within=Within.POD)
