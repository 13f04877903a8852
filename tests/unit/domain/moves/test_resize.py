# SPDX-License-Identifier: Apache-2.0

"""Resize in place: against all combinations on small trees, and what it keeps."""

from __future__ import annotations

import os
from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import Conflict, InvalidInput
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.resize import resize
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import LeafLink, Topology, Xgft
from laas_service.domain.verification import isolation_violations, shape_violations, violations
from tests.unit.domain.moves.naive import Naive
from tests.unit.domain.policies.states import noisy_fabric
from tests.unit.domain.policies.test_brute_force import TREES

STATES = int(os.environ.get("LAAS_MOVES_STATES", "5"))


def can_be(naive, fabric, allocation, size):
    """Whether all combinations have a placement of ``size`` around the allocation."""
    policy = allocation.policy
    held, _ = naive.held(allocation)
    without = fabric.copy()
    without.release(allocation.id)
    free = naive.free(without)
    if size >= allocation.requested:
        most = {leaf: count + held.get(leaf, 0) for leaf, count in naive.free(fabric).hosts.items()}
        candidates = naive.counts(policy, size, held, most)
    else:
        most = {leaf: held.get(leaf, 0) for leaf in free.hosts}
        candidates = naive.counts(policy, size, {}, most)
    return any(next(naive.links(free, counts), None) is not None for counts in candidates)


@pytest.mark.parametrize("name", TREES)
def test_every_size_against_all_combinations(name):
    topology = TREES[name]
    naive, rng = Naive(topology), Random(name)
    fitted = refused = 0
    for number in range(STATES):
        fabric = noisy_fabric(topology, rng)
        for policy in ("simple", "laas", "jigsaw", "lc"):
            size = rng.randint(1, max(1, fabric.free_host_count // 2))
            tenant = admit(POLICIES[policy](), fabric, Request("t", size))
            if isinstance(tenant, NoFit):
                continue
            fits = [can_be(naive, fabric, tenant, n) for n in range(topology.hosts + 2)[1:]]
            for hosts, expected in enumerate(fits, 1):
                where = f"state {number}, {policy}, {tenant} to {hosts} hosts"
                answer = resize(fabric, tenant, hosts)
                assert isinstance(answer, Allocation) == expected, f"{where}: {answer}"
                if isinstance(answer, NoFit):
                    assert not answer.cut_off
                    assert answer.largest_fit == max(n for n in range(1, hosts) if fits[n - 1])
                    refused += 1
                    continue
                fitted += 1
                assert answer.requested == hosts
                old, new = set(tenant.hosts(topology)), set(answer.hosts(topology))
                assert old <= new if hosts >= size else new <= old, where
                assert not shape_violations(topology, answer), where
                after = fabric.copy()
                after.change(answer)
                assert not isolation_violations(topology, after.everybody()), where
            fabric.release("t")
    assert min(fitted, refused) > STATES


TREE = Topology(Xgft((4, 4, 3), (1, 4, 4)))


def tenants(sizes, policy="jigsaw", tree=TREE):
    fabric = Ledger(tree)
    for number, size in enumerate(sizes):
        assert isinstance(
            admit(POLICIES[policy](), fabric, Request(f"t{number}", size)), Allocation
        )
    return fabric


def resized(*arguments, **options) -> Allocation:
    answer = resize(*arguments, **options)
    assert isinstance(answer, Allocation), answer
    return answer


def refused(*arguments, **options) -> NoFit:
    answer = resize(*arguments, **options)
    assert isinstance(answer, NoFit)
    return answer


@pytest.mark.parametrize("policy", ["simple", "laas", "jigsaw", "lc"])
def test_a_tenant_without_failed_links_can_always_shrink(policy):
    rng = Random(policy)
    for _ in range(20):
        fabric = tenants([rng.randint(1, 20), rng.randint(1, 20)], policy)
        for host in rng.sample(range(48), 5):
            fabric.fail_host(host)
        tenant = fabric.allocations["t1"]
        for hosts in range(1, tenant.requested):
            answer = resized(fabric, tenant, hosts)
            assert set(answer.hosts(TREE)) <= set(tenant.hosts(TREE))
            assert set(answer.links(TREE)) <= set(tenant.links(TREE))
            assert not violations(TREE, [answer], Random(0))


def test_a_shape_of_two_pods_shrinks_host_by_host():
    fabric = Ledger(TREE)
    for pod, busy in ((0, 12), (1, 5), (2, 16)):
        for leaf_host in range(busy):
            fabric.fail_host(pod * 16 + leaf_host)
    tenant = admit(Jigsaw(two_pods=True), fabric, Request("t", 15))
    assert isinstance(tenant, Allocation)
    assert str(tenant.shape) == "1x(1x4)+(2x4+3)"
    for hosts in range(14, 0, -1):
        tenant = resized(fabric, tenant, hosts)
        fabric.change(tenant)
        assert not violations(TREE, [tenant], Random(0))


def test_the_present_size_is_the_present_allocation():
    fabric = tenants([5, 9])
    assert resize(fabric, fabric.allocations["t1"], 9) is fabric.allocations["t1"]


def test_growth_exchanges_failed_links_and_keeps_the_others():
    fabric = tenants([8])
    tenant = fabric.allocations["t0"]
    failed = LeafLink(0, 0, 3)
    fabric.fail_link(failed)
    refusal = refused(fabric, tenant, 9)
    assert refusal.largest_fit == 7
    shrunk = resized(fabric, tenant, 7)
    assert failed in tenant.links(TREE)
    assert failed not in set(shrunk.links(TREE))
    assert set(shrunk.links(TREE)) <= set(tenant.links(TREE))


def test_a_shrink_that_failed_links_prevent_is_a_fault():
    fabric = tenants([16])
    for leaf in range(4):
        for up in range(4):
            fabric.fail_link(LeafLink(0, leaf, up))
    refusal = refused(fabric, fabric.allocations["t0"], 9)
    assert (refusal.reason, refusal.largest_fit) == (Refusal.FAULT, 4)
    assert "16 links of the allocation have failed" in refusal.detail


def test_only_hosts_that_are_named_are_given_back():
    fabric = tenants([9])
    tenant = fabric.allocations["t0"]
    smaller = resized(fabric, tenant, 8, give_back=[8])
    assert set(tenant.hosts(TREE)) - set(smaller.hosts(TREE)) == {8}
    refusal = refused(fabric, tenant, 7, give_back=[0, 1])
    assert (refusal.reason, refusal.largest_fit) == (Refusal.NO_LEGAL_SHAPE, 0)


def test_drained_links_and_failed_hosts_stay():
    fabric = tenants([6])
    tenant = fabric.allocations["t0"]
    fabric.drain_link(next(tenant.leaf_links(TREE)))
    fabric.fail_host(tenant.hosts(TREE)[0])
    grown = resized(fabric, tenant, 7)
    assert set(tenant.hosts(TREE)) < set(grown.hosts(TREE))
    assert set(tenant.links(TREE)) < set(grown.links(TREE))


def test_hosts_alone_grow_and_shrink():
    fabric = tenants([5, 3], "baseline")
    tenant = fabric.allocations["t0"]
    grown = resized(fabric, tenant, 7)
    assert set(tenant.hosts(TREE)) < set(grown.hosts(TREE))
    assert refused(fabric, tenant, 46).largest_fit == 45
    assert len(resized(fabric, tenant, 2).hosts(TREE)) == 2


def test_a_search_that_was_cut_off_says_so():
    fabric = tenants([5, 9])
    refusal = refused(fabric, fabric.allocations["t1"], 25, budget=RequestBudget(0))
    assert (refusal.reason, refusal.cut_off) == (Refusal.BUDGET, True)
    assert refusal.largest_fit == 9


def test_what_no_search_can_answer_is_named():
    fabric = tenants([5, 3], "ta")
    with pytest.raises(Conflict, match="keeps its size"):
        resize(fabric, fabric.allocations["t0"], 6)
    fabric = tenants([5, 3])
    with pytest.raises(InvalidInput, match="hosts"):
        resize(fabric, fabric.allocations["t0"], 0)
    with pytest.raises(InvalidInput, match="give_back"):
        resize(fabric, fabric.allocations["t0"], 2, give_back=[40])


def test_a_remainder_leaf_in_a_pod_of_its_own_grows():
    fabric = Ledger(TREE)
    for host in (*range(4, 16), *range(19, 48)):
        fabric.fail_host(host)
    request = Request("t", 5)
    tenant = admit(POLICIES["jigsaw"](), fabric, request)
    assert isinstance(tenant, Allocation)
    assert tenant.columns
    for hosts in (6, 7):
        grown = resized(fabric, tenant, hosts)
        assert set(tenant.hosts(TREE)) < set(grown.hosts(TREE))
        assert not violations(TREE, [grown], Random(0))
    assert refused(fabric, tenant, 8).largest_fit == 7
