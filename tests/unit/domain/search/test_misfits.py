# SPDX-License-Identifier: Apache-2.0

"""The cache of sizes that do not fit, and its invalidation."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, NoFit, Request
from laas_service.domain.ledger import Ledger, LedgerView, Masks
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.lc import Lc
from laas_service.domain.search.budget import WORK
from laas_service.domain.search.misfits import NEVER, LeafMisfits, Misfits, SeenLeaves
from laas_service.domain.search.multi_pod import MultiPod
from laas_service.domain.search.pod_leaves import LeavesOfPods
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import multi_pod_shapes
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from tests.unit.domain.policies.test_brute_force import TREES

TREE = Topology(Xgft((2, 3, 3), (1, 3, 3)))  # 3 pods of 3 leaves of 2 hosts
JIGSAW = POLICIES["jigsaw"]()


def anywhere(view: LedgerView) -> int:
    return view.reader_cache(Misfits).smallest("jigsaw", view.freed)


def in_pods(view: LedgerView) -> list[int]:
    misfits = view.reader_cache(Misfits)
    return [misfits.smallest(pod, freed) for pod, freed in enumerate(view.pod_freed)]


@pytest.fixture
def fabric() -> Ledger:
    """A tenant on one host of every leaf; all leaf links of pod 0 and all spine links are down.

    So 3 hosts do not fit into pod 0, and 4 do not fit anywhere.
    """
    ledger = Ledger(TREE)
    shares = tuple(GroupShare(group, 1, 0) for group in range(9))
    ledger.claim(Allocation("everywhere", 9, "baseline", shares))
    ledger.claim(Allocation("alone", 1, "baseline", (GroupShare(8, 2, 0),)))
    for leaf in range(3):
        for up in range(3):
            ledger.fail_link(LeafLink(0, leaf, up))
    for pod in range(3):
        for l2 in range(3):
            for up in range(3):
                ledger.fail_link(SpineLink(pod, l2, up))
    for size in (4, 3):
        JIGSAW.propose(ledger, Request("x", size))
    assert anywhere(ledger) == 4
    assert in_pods(ledger) == [3, NEVER, NEVER]
    return ledger


def test_claims_and_faults_make_no_room(fabric):
    freed = fabric.freed, list(fabric.pod_freed)
    fabric.fail_host(17)
    fabric.drain_host(3)
    fabric.fail_link(LeafLink(1, 0, 0))
    assert isinstance(admit(JIGSAW, fabric, Request("small", 1)), Allocation)
    assert (fabric.freed, fabric.pod_freed) == freed
    assert anywhere(fabric) == 4


@pytest.mark.parametrize(
    ("free", "pod"),
    [
        (lambda fabric: fabric.release("alone"), 2),
        (lambda fabric: fabric.repair_link(LeafLink(0, 1, 1)), 0),
        (lambda fabric: fabric.repair_link(SpineLink(1, 1, 1)), None),
    ],
)
def test_what_becomes_free_is_looked_at_again(fabric, free, pod):
    before = in_pods(fabric)
    free(fabric)
    assert anywhere(fabric) == NEVER
    assert in_pods(fabric) == [NEVER if n == pod else size for n, size in enumerate(before)]


def test_a_repaired_host_is_looked_at_again(fabric):
    fabric.fail_host(1)
    JIGSAW.propose(fabric, Request("x", 4))
    known = in_pods(fabric)
    fabric.repair_host(1)
    assert anywhere(fabric) == NEVER
    assert in_pods(fabric) == [NEVER, *known[1:]]


def test_a_copy_knows_the_same_and_learns_for_itself(fabric):
    copy = fabric.copy()
    assert (anywhere(copy), in_pods(copy)) == (4, in_pods(fabric))
    known = in_pods(fabric)
    copy.release("everywhere")
    assert (anywhere(fabric), in_pods(fabric)) == (4, known)
    fabric.release("everywhere")
    assert isinstance(JIGSAW.propose(copy, Request("x", 7)), NoFit)
    assert anywhere(copy) == 7
    assert anywhere(fabric) == NEVER  # another ledger of the same generation


def test_a_view_of_a_part_begins_with_nothing(fabric):
    view = fabric.within(Masks.whole(TREE))
    assert anywhere(view) == NEVER
    assert in_pods(view) == [NEVER] * 3


def test_a_trial_puts_back_what_was_known(fabric):
    known = in_pods(fabric)
    with fabric.trial():
        assert anywhere(fabric) == 4
        fabric.release("everywhere")
        assert anywhere(fabric) == NEVER
        assert isinstance(JIGSAW.propose(fabric, Request("x", 7)), NoFit)
        fabric.claim(Allocation("all", 2, "baseline", (GroupShare(3, 3, 0),)))
        assert isinstance(JIGSAW.propose(fabric, Request("x", 6)), NoFit)
        assert anywhere(fabric) == 6
    assert (anywhere(fabric), in_pods(fabric)) == (4, known)
    fabric.release("everywhere")  # the generation at which the trial cached a misfit
    assert anywhere(fabric) == NEVER
    assert in_pods(fabric) == [NEVER] * 3


def across(view: LedgerView) -> int:
    return view.reader_cache(Misfits).in_several_pods(view)


@pytest.fixture
def scattered() -> Ledger:
    """Each pod has one free leaf, and one with two tenants. Pod 0 has no spine at column 0.

    So the three free leaves do not fit together.
    """
    ledger = Ledger(Topology(Xgft((2, 2, 3), (1, 2, 2))))  # 3 pods of 2 leaves of 2 hosts
    for group in (0, 2, 4):
        ledger.claim(Allocation(f"left {group}", 1, "baseline", (GroupShare(group, 1, 0),)))
        ledger.claim(Allocation(f"right {group}", 1, "baseline", (GroupShare(group, 2, 0),)))
    ledger.claim(Allocation("spines", 1, "baseline", (), (ColumnShare(0, 0, 3),)))
    assert isinstance(JIGSAW.propose(ledger, Request("x", 6)), NoFit)
    assert across(ledger) == 6
    return ledger


def test_a_refusal_in_several_pods_outlives_what_does_not_matter_to_it(scattered):
    scattered.release("left 0")  # one host of its leaf is free now, not both
    scattered.release("right 2")
    scattered.fail_host(11)
    scattered.repair_link(LeafLink(1, 0, 0))  # of a leaf with one free host
    assert anywhere(scattered) == NEVER
    assert across(scattered) == 6
    for policy in ("laas", "jigsaw"):
        assert isinstance(POLICIES[policy]().propose(scattered, Request("x", 6)), NoFit)


@pytest.mark.parametrize(
    "free",
    [
        lambda fabric: fabric.release("right 0"),
        lambda fabric: fabric.release("spines"),
        lambda fabric: fabric.repair_link(SpineLink(2, 1, 1)),
        lambda fabric: fabric.repair_link(LeafLink(1, 1, 1)),
        lambda fabric: fabric.repair_host(10),
    ],
)
def test_a_refusal_in_several_pods_ends_with_a_leaf_or_spine_that_matters(scattered, free):
    scattered.release("left 0")
    scattered.fail_link(SpineLink(2, 1, 1))
    scattered.fail_link(LeafLink(1, 1, 1))
    scattered.fail_host(10)
    assert across(scattered) == 6
    free(scattered)
    assert across(scattered) == NEVER


def test_a_freed_leaf_matters_once_it_is_as_large_as_the_remainder_leaf(scattered):
    """Five hosts are two full leaves and a remainder leaf of one host."""
    scattered.claim(
        Allocation("more", 1, "baseline", (GroupShare(1, 1, 0),), (ColumnShare(0, 1, 3),))
    )
    assert isinstance(JIGSAW.propose(scattered, Request("x", 5)), NoFit)
    assert across(scattered) == 5
    scattered.fail_host(0)
    scattered.release("left 0")  # its host is down
    assert across(scattered) == 5
    scattered.release("right 0")
    assert across(scattered) == NEVER


@settings(max_examples=60, deadline=None)
@given(tree=st.sampled_from(sorted(TREES)), seed=st.integers(0, 10**6))
def test_a_head_of_a_queue_is_answered_as_if_nothing_were_remembered(tree, seed):
    """Each request is asked again after every release, fault and repair, until it fits."""
    rng, topology = Random(seed), TREES[tree]
    ledger, live = Ledger(topology), []
    links = topology.tree.leaf_links + topology.tree.spine_links
    for number in range(12):
        hosts, fits = rng.choice((1, 2, 3, 4, 5, 7, 9, 12)), False
        for _ in range(20):
            for name in ("laas", "jigsaw", "lc"):
                fresh = ledger.copy()
                fresh.reader_caches.clear()
                request = Request(f"t{number}", hosts)
                answer = POLICIES[name]().propose(ledger, request)
                assert answer == POLICIES[name]().propose(fresh, request)
                if isinstance(answer, Allocation) and not fits:
                    ledger.claim(answer)
                    live.append(answer.id)
                    fits = True
            if fits:
                break
            verb = rng.choice(
                ("release",) * 3 + ("fail_host", "repair_host", "fail_link", "repair_link")
            )
            if verb.endswith("host"):
                getattr(ledger, verb)(rng.randrange(topology.hosts))
            elif verb.endswith("link"):
                getattr(ledger, verb)(topology.tree.link_at(rng.randrange(links)))
            elif live:
                ledger.release(live.pop(rng.randrange(len(live))))


LEAVES = Topology(Xgft((4, 3, 4), (1, 4, 3)))  # 4 pods of 3 leaves of 4 hosts
SIZES = [
    (hosts, leaves, rest) for hosts in (1, 2, 3) for leaves in range(2, 9) for rest in range(hosts)
]


def seen_now(view: LedgerView) -> SeenLeaves:
    rooms = tuple(pod.room for pod in view.reader_cache(LeavesOfPods).now(view))
    return SeenLeaves(rooms, tuple(view.free_lanes))


def refused_leaves(view: LedgerView) -> list[tuple[int, int, int]]:
    """The hosts on a leaf, leaves and hosts on the remainder leaf that are known not to fit."""
    misfits, seen = view.reader_cache(LeafMisfits), seen_now(view)
    return [size for size in SIZES if misfits.refuse(*size, seen)]


def fit_now(ledger: Ledger, leaf_hosts: int, leaves: int, rest: int) -> bool:
    """Whether a search that remembers nothing, and is not cut off, places such leaves."""
    fresh, topology = ledger.copy(), ledger.topology
    fresh.reader_caches.clear()
    shapes = multi_pod_shapes(
        leaves, rest, leaf_hosts, topology.groups_per_pod, topology.pods, topology.taper[1]
    )
    search = Search(fresh, "lc", Request("x", leaves * leaf_hosts + rest), 10**9)
    views = [MultiPod(search, common, leaf_hosts) for common in range(1, 16)]
    placements = (found for view in views for shape in shapes for found in view.placements(shape))
    return next(placements, None) is not None


@pytest.mark.parametrize("work", [300, WORK])
def test_leaves_that_are_known_not_to_fit_do_not_fit(work):
    """After each change, in random histories on a fabric with faults, cut-off searches or not."""
    known = confirmed_again = 0
    for seed in range(25):
        rng, ledger, live = Random(seed), Ledger(LEAVES), []
        links = LEAVES.tree.leaf_links + LEAVES.tree.spine_links
        for _ in range(rng.randrange(25)):
            ledger.fail_link(LEAVES.tree.link_at(rng.randrange(links)))
        for number in range(40):
            before = refused_leaves(ledger)
            verb = rng.choice(("ask",) * 3 + ("release", "fail_link", "repair_link"))
            if verb == "ask":
                answer = Lc(work).propose(ledger, Request(f"t{number}", rng.randint(1, 16)))
                if isinstance(answer, Allocation):
                    ledger.claim(answer)
                    live.append(answer.id)
            elif verb.endswith("link"):
                getattr(ledger, verb)(LEAVES.tree.link_at(rng.randrange(links)))
            elif live:
                ledger.release(live.pop(rng.randrange(len(live))))
            refused = refused_leaves(ledger)
            known += len(refused)
            confirmed_again += verb in ("release", "repair_link") and bool(set(before) & {*refused})
            for size in refused:
                assert not fit_now(ledger, *size), (seed, number, size)
    assert known > 100
    assert confirmed_again > 5


def test_refused_leaves_rule_out_more_leaves_and_larger_ones(scattered):
    misfits, seen = LeafMisfits(), seen_now(scattered)
    misfits.remember(2, 3, 0, seen, before_rest=True)
    misfits.remember(2, 3, 1, seen, before_rest=True)
    for size in ((2, 4, 0), (2, 4, 1), (3, 3, 0), (3, 3, 2)):
        assert misfits.refuse(*size, seen)
    for size in ((2, 2, 1), (1, 3, 0)):
        assert not misfits.refuse(*size, seen)


@pytest.mark.parametrize(
    ("leaf_hosts", "free"),
    [
        (2, lambda fabric: fabric.release("right 0")),  # with "left 0", a leaf of two free hosts
        (2, lambda fabric: fabric.repair_link(SpineLink(1, 0, 0))),
        (1, lambda fabric: fabric.repair_link(LeafLink(2, 1, 0))),
    ],
)
def test_leaves_are_refused_until_a_leaf_or_spine_matters_to_them(scattered, leaf_hosts, free):
    scattered.fail_link(SpineLink(1, 0, 0))
    scattered.fail_link(LeafLink(2, 1, 0))  # its leaf can still have one host
    scattered.release("left 2")
    misfits = LeafMisfits()
    misfits.remember(leaf_hosts, 3, 0, seen_now(scattered), before_rest=True)
    if leaf_hosts == 2:
        scattered.release("left 0")  # one host of its leaf is free now, not both
    scattered.fail_host(11)
    assert misfits.refuse(leaf_hosts, 3, 0, seen_now(scattered))
    free(scattered)
    assert not misfits.refuse(leaf_hosts, 3, 0, seen_now(scattered))


def test_leaves_before_a_remainder_leaf_may_lie_in_one_pod_and_leave_a_pod_for_it(scattered):
    """Two cases that a refusal does not carry over to."""
    misfits, seen = LeafMisfits(), seen_now(scattered)
    misfits.remember(2, 2, 0, seen, before_rest=True)
    assert not misfits.refuse(2, 2, 1, seen)  # two leaves of one pod, the remainder elsewhere
    misfits = LeafMisfits()
    misfits.remember(2, 3, 1, seen, before_rest=True)
    assert not misfits.refuse(2, 3, 0, seen)  # one leaf in each pod: no pod for a remainder
    assert misfits.refuse(2, 4, 0, seen)


def test_a_refusal_for_want_of_a_remainder_leaf_is_of_that_size_and_larger(scattered):
    misfits, seen = LeafMisfits(), seen_now(scattered)
    misfits.remember(3, 3, 2, seen, before_rest=False)
    assert misfits.refuse(3, 3, 2, seen)
    assert not misfits.refuse(3, 3, 1, seen)
    assert not misfits.refuse(3, 4, 2, seen)
    copy = misfits.copy()
    copy.remember(3, 3, 1, seen, before_rest=False)
    assert not misfits.refuse(3, 3, 1, seen)
    scattered.release("right 0")  # a leaf with two free hosts less one
    scattered.release("left 0")
    assert not copy.refuse(3, 3, 2, seen_now(scattered))
