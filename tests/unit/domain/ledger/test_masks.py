# SPDX-License-Identifier: Apache-2.0

"""A view of part of a fabric equals a fabric in which the rest is down."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.domain.allocation import Allocation, GroupShare, PackedColumns, PodLanes, Request
from laas_service.domain.ledger import Ledger, Masks
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, bits
from tests.unit.domain.policies.states import noisy_fabric, some_bits
from tests.unit.domain.policies.test_brute_force import TREES

every_tree = pytest.mark.parametrize("tree", TREES)


def some_part(topology: Topology, rng: Random) -> Masks:
    whole, share = Masks.whole(topology), rng.choice((0.5, 0.8, 1))
    return Masks(
        *(tuple(some_bits(rng, m, share) for m in getattr(whole, f.name)) for f in fields(Masks))
    )


def without(fabric: Ledger, part: Masks) -> Ledger:
    """The same ledger after everything outside ``part`` failed."""
    copy, topology = fabric.copy(), fabric.topology
    whole = Masks.whole(topology)
    outside = Masks(
        *(
            tuple(
                a & ~b for a, b in zip(getattr(whole, f.name), getattr(part, f.name), strict=True)
            )
            for f in fields(Masks)
        )
    )
    groups = [GroupShare(g, 0, mask) for g, mask in enumerate(outside.uplinks)]
    pods = tuple(PodLanes(pod, lanes) for pod, lanes in enumerate(outside.lanes))
    columns = PackedColumns(pods, topology.lane)
    for link in Allocation("", 0, "", tuple(groups), columns).links(topology):
        if link not in topology.absent_links:
            copy.fail_link(link)
    for group, mask in enumerate(outside.hosts):
        for position in bits(mask & topology.present_positions(group)):
            host = topology.host_at(group, position)
            assert host is not None
            copy.fail_host(host)
    return copy


@every_tree
@given(seed=st.integers(0, 10**6))
def test_hosts_and_links_outside_of_a_part_are_not_in_its_view(tree, seed):
    rng = Random(seed)
    fabric = noisy_fabric(TREES[tree], rng)
    initial_state, part = fabric.state(), some_part(fabric.topology, rng)
    view, down = fabric.within(part), without(fabric, part)
    for name in ("free_hosts", "free_uplinks", "free_spines", "free_host_count"):
        assert getattr(view, name) == getattr(down, name)
    assert view.groups_by_free == down.groups_by_free
    assert view.pod_groups_by_free == down.pod_groups_by_free
    for policy in POLICIES.values():
        for hosts in range(1, view.free_host_count + 1):
            asked = Request("t", hosts)
            answer, expected = policy().propose(view, asked), policy().propose(down, asked)
            assert answer == expected or type(answer) is type(expected) is not Allocation
    assert fabric.state() == initial_state


@every_tree
def test_the_whole_is_the_fabric_itself(tree):
    fabric = noisy_fabric(TREES[tree], Random(7))
    view = fabric.within(Masks.whole(fabric.topology))
    assert view.state() == fabric.state()
    assert view.lost_host_count == fabric.lost_host_count


@every_tree
def test_an_owner_released_in_a_view_of_its_own_part_can_have_it_all_again(tree):
    fabric = Ledger(TREES[tree])
    for policy in POLICIES.values():
        placement = policy().propose(fabric, Request("t", fabric.topology.hosts // 2))
        assert isinstance(placement, Allocation)
        fabric.claim(placement)
        view = fabric.within(Masks.of(fabric.topology, placement))
        assert view.free_host_count == 0
        view.release("t")
        assert view.free_host_count == placement.size
        again = policy().propose(view, Request("t", placement.size))
        assert isinstance(again, Allocation)
        assert again.hosts(fabric.topology) == placement.hosts(fabric.topology)
        fabric.release("t")


@every_tree
def test_part_of_some_hosts_has_every_link(tree):
    topology = TREES[tree]
    whole = Masks.whole(topology)
    two_hosts = replace(whole, hosts=topology.positions_of([0, topology.hosts - 1]))
    assert sum(mask.bit_count() for mask in two_hosts.hosts) == 2
    assert (two_hosts & whole).uplinks == whole.uplinks
