# SPDX-License-Identifier: Apache-2.0

"""Topology-aware placement against all sets of leaves, and against the links tenants could use."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.ta import Ta
from laas_service.domain.topology import Topology, Xgft
from tests.unit.domain.policies.states import break_things
from tests.unit.domain.policies.test_brute_force import TREES

WIDE = Topology(Xgft((4, 3, 3), (1, 4, 3)))  # 36 hosts: 3 pods of 3 leaves of 4


def within_reach(topology, groups):
    """The links that a tenant on these leaf groups may use under some up-down routing."""
    pods = {group // topology.groups_per_pod for group in groups}
    links = {("uplinks of leaf", group) for group in groups if len(groups) > 1}
    return links | {("spine links of pod", pod) for pod in pods if len(pods) > 1}


def footprint(allocation):
    return {share.group for share in allocation.groups}


def random_tenants(topology, rng):
    """A fabric after a history of tenants, with some hosts down."""
    fabric = Ledger(topology)
    for number in range(40):
        if rng.random() < 0.3 and fabric.allocations:
            fabric.release(rng.choice(sorted(fabric.allocations)))
        else:
            admit(Ta(), fabric, Request(f"t{number}", rng.choice((1, 1, 2, 3, 4, 5, 7, 9))))
    break_things(fabric, rng, rng.choice((0, 0, 2)))
    return fabric


def naive_fit(fabric, hosts):
    """Whether leaves at the level of the size have room and no usable link of a tenant."""
    topology = fabric.topology
    width = topology.groups_per_pod
    leaf = topology.hosts_per_group
    used = [within_reach(topology, footprint(a)) for a in fabric.allocations.values()]
    for count in range(1, topology.groups + 1):
        if (count > 1) == (hosts <= leaf):
            continue
        for groups in itertools.combinations(range(topology.groups), count):
            if hosts <= leaf * width and len({group // width for group in groups}) > 1:
                continue
            if sum(fabric.free_hosts[group].bit_count() for group in groups) < hosts:
                continue
            mine = within_reach(topology, groups)
            if all(mine.isdisjoint(others) for others in used):
                return True
    return False


@pytest.mark.parametrize(
    "name",
    [
        "three levels",
        "six leaves",
        "wide leaves",
        "tapered leaves",
        "tapered spines",
        "rails in one pod",
        "rails in planes",
        "tapered rails",
    ],
)
def test_every_size_against_all_sets_of_leaves(name):
    topology = TREES[name]
    rng = Random(name)
    outcomes = []
    for _ in range(25):
        fabric = random_tenants(topology, rng)
        for hosts in range(1, topology.hosts + 1):
            fits = isinstance(Ta().propose(fabric, Request("x", hosts)), Allocation)
            assert fits == naive_fit(fabric, hosts), f"{hosts} hosts"
            outcomes.append(fits)
    assert min(outcomes.count(True), outcomes.count(False)) > 25


@pytest.mark.parametrize("seed", range(6))
def test_no_two_tenants_can_meet_on_a_link(seed):
    fabric = random_tenants(WIDE, Random(seed))
    for a, b in itertools.combinations(fabric.allocations.values(), 2):
        assert within_reach(WIDE, footprint(a)).isdisjoint(within_reach(WIDE, footprint(b)))
        assert not set(a.hosts(WIDE)) & set(b.hosts(WIDE))
    for allocation in fabric.allocations.values():
        assert allocation.size == allocation.requested
        assert not [*allocation.links(WIDE)]
        assert (len(footprint(allocation)) == 1) == (allocation.size <= 4)


def placed(fabric, hosts):
    """The leaf groups of the placement for this size."""
    answer = Ta().propose(fabric, Request("x", hosts))
    assert isinstance(answer, Allocation)
    return footprint(answer)


def refused(fabric, hosts):
    """The refusal reason of this size, and the largest fit."""
    answer = Ta().propose(fabric, Request("x", hosts))
    assert isinstance(answer, NoFit)
    return answer.reason, answer.largest_fit


def occupied(*tenants):
    """A fabric with these tenants; a tenant is a list of (leaf group, number of hosts)."""
    fabric = Ledger(WIDE)
    for number, parts in enumerate(tenants):
        shares = [
            GroupShare(group, fabric.free_hosts[group] & ((1 << 4) - (1 << 4 - count)), 0)
            for group, count in parts
        ]
        fabric.claim(Allocation(f"t{number}", 1, "ta", tuple(shares)))
    return fabric


def test_a_size_that_a_leaf_could_hold_waits_for_a_leaf_and_a_larger_one_does_not():
    fabric = occupied(*(((group, 2),) for group in range(9)))
    assert refused(fabric, 3) == (Refusal.NO_LEGAL_SHAPE, 2)
    assert placed(fabric, 5) == {0, 1, 2}


def test_small_tenants_fill_the_leaf_of_a_large_one():
    fabric = occupied([(0, 4), (1, 1)])
    assert placed(fabric, 3) == {1}
    assert placed(fabric, 5) == {3, 4}  # leaf 1 is taken


def test_a_pod_is_crossed_by_one_tenant_and_still_serves_those_inside_it():
    fabric = occupied([(0, 4), (1, 4), (2, 4), (3, 1)])  # a tenant over pods 0 and 1
    assert placed(fabric, 5) == {4, 5}
    assert refused(fabric, 13) == (Refusal.NO_LEGAL_SHAPE, 12)


def test_sizes_go_by_the_hosts_that_are_there():
    # Slot 0 of every leaf is absent: three hosts are a whole leaf, nine a whole pod.
    topology = Topology(Xgft((4, 3, 3), (1, 4, 3)), absent_hosts=frozenset(range(0, 36, 4)))
    fabric = Ledger(topology)
    assert len(placed(fabric, 3)) == 1
    assert len(placed(fabric, 4)) == 2
    assert placed(fabric, 10) == {0, 1, 2, 3}
