# SPDX-License-Identifier: Apache-2.0

"""The contract of all policies, tested on small fabrics."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit, explain, largest_fit
from laas_service.domain.allocation import Allocation, NoFit, Refusal, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.search.misfits import Misfits
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from laas_service.domain.verification import isolation_violations, shape_violations
from tests.unit.domain.policies.states import noisy_fabric
from tests.unit.domain.policies.test_brute_force import TREES

SMALL = TREES["three levels"]  # 18 hosts: 3 pods of 3 leaves of 2
RAILS = TREES["rails in one pod"]
ISOLATING = [name for name, policy in POLICIES.items() if policy.isolating]

every_policy = pytest.mark.parametrize("name", POLICIES)
every_tree = pytest.mark.parametrize("tree", TREES)


def propose(name: str, fabric: Ledger, hosts: int, **options) -> Allocation | NoFit:
    return POLICIES[name](**options).propose(fabric, Request("t", hosts))


def placed(name: str, fabric: Ledger, hosts: int) -> Allocation:
    answer = propose(name, fabric, hosts)
    assert isinstance(answer, Allocation)
    return answer


def refused(name: str, fabric: Ledger, hosts: int, **options) -> NoFit:
    answer = propose(name, fabric, hosts, **options)
    assert isinstance(answer, NoFit)
    return answer


@every_policy
@every_tree
def test_looking_changes_nothing_and_says_the_same_again(name, tree):
    fabric = Ledger(TREES[tree])
    before = fabric.state()
    for hosts in range(1, fabric.topology.hosts + 2):
        assert propose(name, fabric, hosts) == propose(name, fabric.copy(), hosts)
        assert fabric.state() == before


@every_policy
@every_tree
def test_an_empty_fabric_holds_any_size_exactly_or_rounded_to_subtrees(name, tree):
    fabric = Ledger(TREES[tree])
    topology = fabric.topology
    leaf, pod = topology.hosts_per_group, topology.hosts_per_group * topology.groups_per_pod
    for hosts in range(1, topology.hosts + 1):
        held = placed(name, fabric, hosts).size
        if name == "simple":
            unit = 1 if hosts <= leaf else leaf if hosts <= pod else pod
        else:
            unit = leaf if name == "laas" and hosts > pod else 1
        assert held == -(-hosts // unit) * unit


@every_policy
@every_tree
def test_more_than_is_free_is_refused(name, tree):
    fabric = Ledger(TREES[tree])
    admit(POLICIES[name](), fabric, Request("first", 2))
    free = fabric.free_host_count
    answer = refused(name, fabric, free + 1)
    assert answer.reason is Refusal.TOO_FEW_HOSTS
    assert f"{free} hosts free, {free + 1} asked" in answer.detail


@pytest.mark.parametrize("name", ISOLATING)
def test_a_refusal_for_want_of_failed_hosts_says_so(name):
    fabric = Ledger(SMALL)
    fabric.fail_host(0)
    fabric.drain_host(5)
    answer = refused(name, fabric, 18)
    assert answer.reason is Refusal.FAULT
    assert "2 more are failed or drained" in answer.detail
    fabric.repair_host(0)
    fabric.repair_host(5)
    assert placed(name, fabric, 18).size == 18


@pytest.mark.parametrize("name", ISOLATING)
def test_a_failed_host_still_owned_is_not_lost_twice(name):
    fabric = Ledger(SMALL)
    fabric.claim(placed(name, fabric, 18))
    fabric.fail_host(7)
    assert refused(name, fabric, 1).reason is Refusal.TOO_FEW_HOSTS
    fabric.release("t")
    assert refused(name, fabric, 18).reason is Refusal.FAULT


@pytest.mark.parametrize("name", ISOLATING)
def test_hosts_without_links_in_common_are_no_legal_shape(name):
    fabric = Ledger(TREES["two levels"])  # 4 leaves of 3 hosts
    for leaf in range(4):
        for up in range(3):
            fabric.fail_link(LeafLink(0, leaf, up))
    assert placed(name, fabric, 3).size == 3  # inside a leaf no link is needed
    answer = explain(POLICIES[name](), fabric, Request("t", 4), refused(name, fabric, 4))
    assert answer.reason is Refusal.NO_LEGAL_SHAPE
    assert answer.largest_fit == 3
    for link in list(fabric.failed_links):
        fabric.repair_link(link)
    assert placed(name, fabric, 4).size >= 4  # the repairs made the cached misfit invalid


@pytest.mark.parametrize("name", ISOLATING)
def test_pods_without_spines_in_common_are_no_legal_shape(name):
    fabric = Ledger(SMALL)  # pods of 6 hosts
    links = [SpineLink(pod, l2, up) for pod in range(3) for l2 in range(2) for up in range(3)]
    for link in links:
        fabric.fail_link(link)
    assert refused(name, fabric, 7).reason is Refusal.NO_LEGAL_SHAPE
    assert largest_fit(POLICIES[name](), fabric, 18) == 6
    for link in links:
        fabric.repair_link(link)
    assert placed(name, fabric, 7).size >= 7


def test_a_search_that_ran_out_of_budget_says_so_and_is_not_taken_for_proof():
    # Hosts 0 and 3 of every leaf are free and the leaves' uplinks overlap pairwise in one place
    # only, so that taking leaves in order fails and a search is needed.
    topology = Topology(Xgft((2, 6, 1), (1, 6, 0)))
    fabric = Ledger(topology)
    for leaf, kept in enumerate(((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0))):
        for up in set(range(6)) - set(kept):
            fabric.fail_link(LeafLink(0, leaf, up))
    answer = refused("jigsaw", fabric, 8, work=0)
    assert answer.reason is Refusal.BUDGET
    assert "stopped after 0 nodes" in answer.detail
    assert fabric.reader_cache(Misfits) == Misfits()
    assert refused("jigsaw", fabric, 8).reason is Refusal.NO_LEGAL_SHAPE


@pytest.mark.parametrize("name", ISOLATING)
def test_inside_one_leaf_or_one_pod_nothing_above_is_taken(name):
    fabric = Ledger(SMALL)
    one_leaf = placed(name, fabric, 2)
    assert [*one_leaf.links(SMALL)] == []
    one_pod = placed(name, fabric, 6)
    assert one_pod.columns == ()
    assert len([*one_pod.leaf_links(SMALL)]) == 6


@pytest.mark.parametrize("name", ISOLATING)
def test_rails_of_two_hosts_in_one_leaf_group_are_joined_by_one_uplink(name):
    fabric = Ledger(RAILS)
    assert [*placed(name, fabric, 1).links(RAILS)] == []
    first, second = placed(name, fabric, 2).leaf_links(RAILS)
    assert (first.pod, first.up) == (second.pod, second.up)
    assert first.leaf != second.leaf
    for leaf in range(4):  # no uplinks in pod 0: the pair is placed in pod 1
        for up in range(2):
            fabric.fail_link(LeafLink(0, leaf, up))
    assert {link.pod for link in placed(name, fabric, 2).leaf_links(RAILS)} == {1}


@pytest.mark.parametrize("name", ["laas", "jigsaw", "lc"])
def test_shapes_that_divide_evenly_come_first_where_leaves_are_tapered(name):
    fabric = Ledger(TREES["tapered leaves"])  # leaves of 4 hosts, 2 uplinks
    assert str(placed(name, fabric, 6).shape) == "1x(1x4)+(0x4+2)"
    assert str(placed(name, fabric, 5).shape) == "1x(1x4)+(0x4+1)"
    fabric.claim(placed("baseline", fabric, 1))
    fabric.release("t")
    for pod in range(3):
        for leaf in range(2):
            fabric.fail_host((pod * 2 + leaf) * 4)  # 3 hosts on each leaf
    assert str(placed(name, fabric, 4).shape) == "1x(2x2)"


@every_policy
def test_an_allocation_knows_whether_its_policy_isolates(name):
    assert Allocation("t", 1, name, ()).isolated is POLICIES[name].isolating


@every_policy
def test_the_fullest_leaf_and_pod_that_fit_are_taken(name):
    fabric = Ledger(TREES["wide leaves"])  # pods of two leaves of 3 hosts
    fabric.fail_host(6)  # pod 1, first leaf: 2 hosts left
    if POLICIES[name].isolating:
        assert placed(name, fabric, 2).hosts(fabric.topology) == (7, 8)
    if name in ("laas", "jigsaw", "lc"):
        assert {host // 6 for host in placed(name, fabric, 5).hosts(fabric.topology)} == {1}


@every_policy
@every_tree
def test_the_largest_fit_is_the_largest_size_that_fits(name, tree):
    """For monotone policies all smaller sizes fit too."""
    rng = Random(f"{name} {tree}")
    for _ in range(12):
        fabric = noisy_fabric(TREES[tree], rng)
        fits = [
            isinstance(propose(name, fabric.copy(), hosts), Allocation)
            for hosts in range(1, fabric.topology.hosts + 2)
        ]
        sizes = [hosts for hosts, fit in enumerate(fits, 1) if fit]
        if POLICIES[name].monotone:
            assert fits == sorted(fits, reverse=True)
        for below in (fabric.topology.hosts + 1, fabric.topology.hosts // 2, 3):
            expected = max((hosts for hosts in sizes if hosts < below), default=0)
            assert largest_fit(POLICIES[name](), fabric, below) == expected


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(0, 11), st.sampled_from(list(POLICIES))),
        st.tuples(st.sampled_from(["release", "fail", "drain", "repair"]), st.integers(0, 999)),
        st.tuples(st.sampled_from(["cut", "mend"]), st.integers(0, 999)),
    ),
    max_size=40,
)
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 9, 12)


@settings(max_examples=150, deadline=None)
@given(tree=st.sampled_from(sorted(TREES)), steps=STEPS)
def test_any_history_is_sound_and_releasing_everything_restores_the_ledger(tree, steps):
    topology = TREES[tree]
    fabric = Ledger(topology)
    initial = fabric.state()
    links = topology.tree.leaf_links + topology.tree.spine_links
    granted: dict[str, Allocation] = {}
    for number, (verb, choice, *rest) in enumerate(steps):
        host, link = choice % topology.hosts, topology.tree.link_at(choice % links)
        if verb == "allocate":
            before = fabric.copy()
            request = Request(f"t{number}", SIZES[choice])
            answer = admit(POLICIES[rest[0]](), fabric, request)
            if isinstance(answer, Allocation):
                granted[answer.id] = answer
                handed_out_is_sound(before, answer)
        elif verb == "release" and granted:
            fabric.release(granted.pop(sorted(granted)[choice % len(granted)]).id)
        elif verb == "fail":
            fabric.fail_host(host)
        elif verb == "drain":
            fabric.drain_host(host)
        elif verb == "repair":
            fabric.repair_host(host)
        elif verb == "cut":
            fabric.fail_link(link)
        elif verb == "mend":
            fabric.repair_link(link)
        assert not isolation_violations(topology, granted.values())
        counts_are_true(fabric)
        forgetting_changes_no_answer(fabric)
        for name in ISOLATING:
            largest_fit(POLICIES[name](), fabric, topology.hosts)  # fills the cache of misfits
    for id in granted:
        fabric.release(id)
    for host in range(topology.hosts):
        fabric.repair_host(host)
    for number in range(links):
        fabric.repair_link(topology.tree.link_at(number))
    assert fabric.state() == initial


def handed_out_is_sound(before: Ledger, answer: Allocation) -> None:
    """All hosts and links were up and free, and the shape meets the policy's conditions."""
    topology = before.topology
    assert not shape_violations(topology, answer)
    hosts, links = set(answer.hosts(topology)), set(answer.links(topology))
    assert not hosts & (before.failed_hosts | before.drained_hosts)
    assert not hosts & before.owners_of_hosts().keys()
    assert not links & before.failed_links
    assert not links & before.owners_of_links().keys()


def counts_are_true(fabric: Ledger) -> None:
    """The free counts and indices agree with the masks."""
    topology = fabric.topology
    counts = [mask.bit_count() for mask in fabric.free_hosts]
    width = topology.groups_per_pod
    pods = [counts[pod * width : (pod + 1) * width] for pod in range(topology.pods)]
    assert fabric.free_host_count == sum(counts)
    assert fabric.pod_free_hosts == [sum(pod) for pod in pods]
    for free in range(topology.hosts_per_group + 1):
        assert fabric.groups_by_free[free] == members(counts, free)
        for pod, within in enumerate(pods):
            assert fabric.pod_groups_by_free[pod][free] == members(within, free)
    down = (fabric.failed_hosts | fabric.drained_hosts) - fabric.owners_of_hosts().keys()
    assert fabric.lost_host_count == len(down)
    odd = {(x.pod, x.leaf) for x in fabric.failed_links if isinstance(x, LeafLink)}
    marked = sum(groups.bit_count() for groups in fabric.odd_groups)
    assert bool(marked) == bool(odd)
    assert topology.rails > 1 or marked == len(odd)


def members(counts: list[int], free: int) -> int:
    return sum(1 << place for place, count in enumerate(counts) if count == free)


def forgetting_changes_no_answer(fabric: Ledger) -> None:
    """Cached misfits are refused by a search without the cache, too."""
    misfits, fresh = fabric.reader_cache(Misfits), fabric.copy()
    for name in POLICIES:
        fresh.reader_caches.clear()
        hosts = misfits.smallest(name, fabric.freed)
        if hosts <= fabric.free_host_count:
            assert refused(name, fresh, hosts).reason is Refusal.NO_LEGAL_SHAPE
    for pod in range(fabric.topology.pods):
        hosts = misfits.smallest(pod, fabric.pod_freed[pod])
        if hosts <= fabric.pod_free_hosts[pod]:
            answer = propose("jigsaw", fresh, hosts)
            if isinstance(answer, Allocation) and len(answer.groups) > 1:
                pods = {share.group // fabric.topology.groups_per_pod for share in answer.groups}
                assert pods != {pod}
