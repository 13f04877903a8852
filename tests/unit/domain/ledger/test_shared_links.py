# SPDX-License-Identifier: Apache-2.0

"""Shared links: the shares of each link, and lc-s, the policy that assigns them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import WHOLE, Allocation, ColumnShare, GroupShare, Request
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.ledger import Ledger
from laas_service.domain.ledger.shared_links import CAP, Claim, SharedLedger, Shares
from laas_service.domain.policies import PLANNING, POLICIES
from laas_service.domain.policies.lc_s import LcS
from laas_service.domain.topology import bits
from laas_service.domain.verification import isolation_violations, shape_violations
from tests.unit.domain.ledger.test_trial import everything
from tests.unit.domain.policies.states import break_things
from tests.unit.domain.policies.test_brute_force import TREES, Naive

CLASSES = (100_000, 200_000, 300_000, 400_000)
SOME_TREES = ["three levels", "six leaves", "tapered leaves", "rails in planes"]
CLAIMS = st.lists(
    st.builds(Claim, st.integers(0, 2), st.integers(0, 15), st.sampled_from((1, *CLASSES, CAP))),
    max_size=3,
    unique_by=lambda claim: claim.row,
)


@given(
    steps=st.lists(st.tuples(st.integers(0, 5), CLAIMS), max_size=30),
    level=st.sampled_from(CLASSES),
)
def test_what_is_left_of_links_is_the_cap_less_all_shares(steps, level):
    shares = Shares()
    owners: dict[int, tuple[Claim, ...]] = {}
    shares.crowded(level)  # from here on the count is updated with each change
    for owner, claims in steps:
        used: Counter[tuple[int, int]] = Counter()
        for held in owners.values():
            for row, links, ppm in held:
                used.update({(row, link): ppm for link in bits(links)})
        fits = all(used[r, link] + ppm <= CAP for r, links, ppm in claims for link in bits(links))
        if owner in owners:
            assert shares.release(str(owner)) == owners.pop(owner)
        elif fits:
            shares.reserve(str(owner), claims)
            owners[owner] = tuple(claims)
        else:
            with pytest.raises(DoubleClaim, match="ppm left"):
                shares.reserve(str(owner), claims)
        used = Counter()
        for held in owners.values():
            for row, links, ppm in held:
                used.update({(row, link): ppm for link in bits(links)})
        for row in range(3):
            for link in range(4):
                assert shares.residual(row, link) == CAP - used[row, link]
                assert shares.shared(row) >> link & 1 == (used[row, link] > 0)
                full = shares.crowded(level).get(row, 0) >> link & 1
                assert full == (used[row, link] + level > CAP)


def test_shares_out_of_range_and_owners_unknown():
    for ppm in (0, -1, CAP + 1):
        with pytest.raises(InvalidInput, match="bandwidth"):
            Shares().reserve("a", [Claim(0, 1, ppm)])
    with pytest.raises(InvalidInput, match="cap"):
        Shares(WHOLE + 1)
    with pytest.raises(NotFound):
        Shares().release("a")
    shares = Shares()
    shares.reserve("a", [])
    with pytest.raises(DoubleClaim):
        shares.reserve("a", [])


def play(fabric: SharedLedger, rng: Random, prefix: str, steps: int = 30) -> int:
    """Admit and release tenants with shares or whole links; fail and repair hosts and links.

    Returns the number of times that a link had several tenants.
    """
    several = 0
    for number in range(steps):
        policy = rng.choice((LcS(), LcS(), LcS(), POLICIES["jigsaw"]()))
        bandwidth = rng.choice((*CLASSES, None))
        request = Request(f"{prefix}{number}", rng.choice((1, 2, 3, 5, 7, 9)), bandwidth=bandwidth)
        answer = admit(policy, fabric, request)
        if not isinstance(answer, Allocation) and fabric.allocations:
            fabric.release(rng.choice(sorted(fabric.allocations)))
        if rng.random() < 0.1:
            break_things(fabric, rng, 1)
        if rng.random() < 0.1 and fabric.failed_links:
            fabric.repair_link(sorted(fabric.failed_links)[0])
        live = fabric.allocations.values()
        held = Counter(link for owner in live for link in owner.links(fabric.topology))
        several += sum(count > 1 for count in held.values())
    return several


@pytest.mark.parametrize("tree", TREES)
def test_no_link_is_given_out_beyond_the_cap_and_all_comes_back(tree):
    rng = Random(tree)
    fabric = SharedLedger(TREES[tree])
    initial = fabric.state()
    several = 0
    for round_ in range(6):
        several += play(fabric, rng, f"{round_}.")
        live = list(fabric.allocations.values())
        assert not isolation_violations(fabric.topology, live)
        for allocation in live:
            assert not shape_violations(fabric.topology, allocation)
        known = everything(fabric) | {"shares": vars(fabric.shares.copy())}
        with fabric.trial():
            play(fabric, rng, "trial")
        assert everything(fabric) | {"shares": vars(fabric.shares.copy())} == known
    assert several or fabric.topology.hosts_per_group < 4
    for id in list(fabric.allocations):
        fabric.release(id)
    for host in sorted(fabric.failed_hosts):
        fabric.repair_host(host)
    for link in sorted(fabric.failed_links):
        fabric.repair_link(link)
    assert fabric.state() == initial
    assert fabric.shares.copy()._used in ({}, {row: {} for row in fabric.shares._used})


@pytest.mark.parametrize(
    "tree", ["three levels", "six leaves", "tapered leaves", "rails in planes"]
)
def test_every_size_of_every_share_against_all_combinations(tree):
    """The test derives the free share of each link from the allocations."""
    rng = Random(tree)
    outcomes = []
    for _ in range(12):
        fabric = SharedLedger(TREES[tree])
        play(fabric, rng, "t", 14)
        topology = fabric.topology
        used: Counter[tuple[str, int, int]] = Counter()
        for owner in fabric.allocations.values():
            for group, _, uplinks in owner.groups:
                used.update({("up", group, bit): owner.bandwidth for bit in bits(uplinks)})
            for pod, column, uplinks in owner.columns:
                lane = uplinks << column * topology.lane
                used.update({("spine", pod, bit): owner.bandwidth for bit in bits(lane)})
        for bandwidth in CLASSES:
            seen = Ledger(topology)
            seen.free_hosts = list(fabric.free_hosts)
            for kind, masks in (("up", seen.free_uplinks), ("spine", seen.free_lanes)):
                usable = fabric.usable_uplinks if kind == "up" else fabric.usable_lanes
                for index, mask in enumerate(usable):
                    room = (b for b in bits(mask) if used[kind, index, b] + bandwidth <= CAP)
                    masks[index] = sum(1 << bit for bit in room)
            naive = Naive(seen)
            for size in range(1, topology.hosts + 1):
                answer = LcS().propose(fabric, Request("x", size, bandwidth=bandwidth))
                assert isinstance(answer, Allocation) == naive.fits("lc", size), (size, bandwidth)
                outcomes.append(isinstance(answer, Allocation))
    assert min(outcomes.count(True), outcomes.count(False)) > 50


def sharing(*bandwidths: int) -> list[Allocation]:
    """Tenants of one pod that use the same links."""
    return [
        Allocation(
            f"t{number}",
            2,
            "lc-s" if bandwidth < WHOLE else "jigsaw",
            (GroupShare(0, 1 << number, 1), GroupShare(1, 1 << number, 1)),
            bandwidth=bandwidth,
        )
        for number, bandwidth in enumerate(bandwidths)
    ]


def test_the_judge_adds_up_the_shares():
    topology = TREES["wide leaves"]
    assert not isolation_violations(topology, sharing(400_000, 400_000))
    lines = isolation_violations(topology, sharing(400_000, 300_000, 200_000))
    assert len(lines) == 2
    assert "900000 ppm of link leaf-0-0-0 are given to t0 and t1 and t2" in lines[0]
    assert isolation_violations(topology, sharing(400_000, 400_000), cap=700_000)
    assert isolation_violations(topology, sharing(100_000, WHOLE))  # a whole link has one owner
    columns = (ColumnShare(0, 0, 1),)
    (lone,) = sharing(100_000)
    stray = [Allocation("x", 2, "lc-s", lone.groups, columns, lone.shape, bandwidth=100_000)]
    assert shape_violations(topology, stray[0])


def test_undeclared_bandwidth_is_all_that_may_be_shared_and_the_service_offers_none():
    fabric = SharedLedger(TREES["two levels"])
    answer = admit(LcS(), fabric, Request("t", 6))
    assert isinstance(answer, Allocation)
    assert answer.bandwidth == CAP
    assert "lc-s" in PLANNING
    assert "lc-s" not in POLICIES
    with pytest.raises(InvalidInput, match="bandwidth"):
        LcS().propose(fabric, Request("t", 6, bandwidth=CAP + 1))
    with pytest.raises(InvalidInput, match="shared"):
        LcS().propose(Ledger(TREES["two levels"]), Request("t", 6))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), tree=st.sampled_from(sorted(TREES)))
def test_whole_links_and_shares_never_meet(seed, tree):
    fabric = SharedLedger(TREES[tree])
    play(fabric, Random(seed), "t", 25)
    assert not isolation_violations(fabric.topology, fabric.allocations.values())
