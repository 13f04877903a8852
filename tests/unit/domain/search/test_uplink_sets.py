# SPDX-License-Identifier: Apache-2.0

"""Sets of uplinks that leaves may share: no placement is hidden, whatever is remembered."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies.lc import Lc
from laas_service.domain.search.budget import WORK, SearchBudget
from laas_service.domain.search.pod_fields import PodFields
from laas_service.domain.search.pod_leaves import LeavesOfPods
from laas_service.domain.search.uplink_sets import UplinkSets
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, Xgft, bits

TREES = {
    "full": Topology(Xgft((4, 4, 5), (1, 4, 4))),
    "tapered": Topology(Xgft((4, 3, 4), (1, 2, 2))),
    "parallel cables": Topology(Xgft((3, 3, 4), (1, 6, 4), (2, 2))),
}


@given(
    sets=st.lists(st.integers(0, (1 << 18) - 1), min_size=1, max_size=7), least=st.integers(0, 40)
)
def test_fields_count_as_pods_one_by_one_do(sets, least):
    fields = PodFields(len(sets), 18)
    counts = fields.counts(fields.joined(sets))
    assert counts == fields.joined(mask.bit_count() for mask in sets)
    enough = fields.joined(int(mask.bit_count() >= least) for mask in sets)
    assert fields.at_least(counts, least) == enough


def history(rng: Random, ledger: Ledger, steps: int):
    """Tenants that come and go and links that fail; yields before each request."""
    policy, tree = Lc(), ledger.topology.tree
    for number in range(steps):
        chance = rng.random()
        if chance < 0.25 and ledger.allocations:
            ledger.release(rng.choice(list(ledger.allocations)))
        elif chance < 0.3:
            pod, spine = rng.randrange(tree.m[2]), rng.randrange(tree.w[2])
            links: list[Link] = [LeafLink(pod, rng.randrange(tree.m[1]), 0)]
            links.append(SpineLink(pod, 0, spine))
            link = rng.choice(links)
            if link in ledger.failed_links:
                ledger.repair_link(link)
            else:
                ledger.fail_link(link)
        request = Request(f"t{number}", rng.randint(1, 14))
        yield request
        admit(policy, ledger, request)


@pytest.mark.parametrize("name", TREES)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)
def test_what_is_remembered_changes_no_answer(name, seed):
    """The same answer with the caches of all earlier searches and without any."""
    ledger = Ledger(TREES[name])
    for request in history(Random(seed), ledger, 40):
        fresh = ledger.copy()
        fresh.reader_caches.clear()
        assert Lc().propose(ledger, request) == Lc().propose(fresh, request)


@pytest.mark.parametrize("name", TREES)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None)
def test_every_placement_shares_a_set_that_passes(name, seed):
    ledger = Ledger(TREES[name])
    for request in history(Random(seed), ledger, 40):
        answer = Lc().propose(ledger, request)
        if isinstance(answer, Allocation) and answer.columns and answer.shape is not None:
            pods = LeavesOfPods().now(ledger)
            shape, width = answer.shape, -(-answer.shape.hosts // ledger.topology.taper[0])
            leaves = shape.pods * shape.leaves + shape.remainder_leaves
            sets = UplinkSets(ledger, pods, SearchBudget(WORK)).passing(
                shape.hosts, width, leaves, [shape]
            )
            full = next(g.uplinks for g in answer.groups if g.hosts.bit_count() == shape.hosts)
            assert sets is None or full in [uplinks for uplinks, _ in sets]


@pytest.mark.parametrize("name", TREES)
def test_leaves_by_uplink_follow_the_ledger(name):
    ledger, remembered = Ledger(TREES[name]), LeavesOfPods()
    width = ledger.topology.groups_per_pod
    for _ in history(Random(name), ledger, 60):
        for pod, leaves in enumerate(remembered.now(ledger)):
            locals_by_rank = [local for _, local in leaves.capacities]
            for uplink, groups in enumerate(leaves.by_uplink):
                assert {locals_by_rank[rank] for rank in bits(groups)} == {
                    local
                    for local in locals_by_rank
                    if ledger.free_uplinks[pod * width + local] >> uplink & 1
                }
            for hosts in range(ledger.topology.hosts_per_group + 1):
                ranks = [rank for rank, (room, _) in enumerate(leaves.capacities) if room >= hosts]
                assert list(bits(leaves.with_room[hosts])) == ranks
                assert leaves.counts[hosts] == len(ranks)


def test_an_attempt_takes_nothing_from_the_search_and_cuts_off_nothing():
    budget = SearchBudget(800)
    with budget.attempt(60):
        assert not budget.spend(70)
        assert budget.exceeded
    assert (budget.left, budget.exceeded, budget.left_to_try) == (800, False, 40)
    with budget.attempt(60):
        assert budget.spend(30)
    assert (budget.left, budget.left_to_try) == (800, 10)
