# SPDX-License-Identifier: Apache-2.0

"""Plans that make room keep consent, cost, exemptions and quotas of moves."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import Limits
from laas_service.app.room_planner import Permission, RoomPlanner
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.consent import Consent, Movable
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, Xgft
from laas_service.domain.verification import isolation_violations
from tests.fakes import FakeCompute
from tests.unit.app.memory import EPOCH, Memory
from tests.unit.domain.moves.test_plan_moves import AllPlans

SMALL = Topology(Xgft((3, 4, 1), (1, 3, 0)))
"""12 hosts on 4 leaves."""


class Crowd(Memory):
    """A fabric whose tenants are given, and the moves that are left to projects."""

    def __init__(self, held: Ledger, left):
        super().__init__("f")
        self.fabrics.held, self.quotas.left = held, left


def planner_of(store: Any, unmoved=()):
    quotas = ProjectLimits(store, FakeCompute(), limits=Limits(), unmoved=unmoved)
    return RoomPlanner(store, quotas, clock=lambda: EPOCH)


def busy(seed):
    """A fabric after tenants have come and gone."""
    rng, held = Random(seed), Ledger(SMALL)
    for number in range(10):
        admit(POLICIES["jigsaw"](), held, Request(f"t{number}", rng.randint(1, 4)))
        if rng.random() < 0.4 and held.allocations:
            held.release(rng.choice(list(held.allocations)))
    return held


def crowd(held, consents, left):
    """The tenants of a ledger; the number says to which of two projects each belongs."""
    made = Crowd(held, left)
    for number, (id, placed) in enumerate(held.allocations.items()):
        consent = consents[number % len(consents)]
        project = "even" if number % 2 == 0 else "odd"
        made.add(id, project, hosts=placed.size, placed=placed, consent=consent)
    return made


consents = st.builds(
    Consent, st.sampled_from(Movable), st.just(0.0), st.sampled_from([1.0, 2.0, 5.0])
)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    hosts=st.integers(2, 6),
    consents=st.lists(consents, min_size=1, max_size=5),
    left=st.dictionaries(st.sampled_from(["even", "odd"]), st.integers(0, 2)),
    unmoved=st.sets(st.sampled_from(["even", "odd"]), max_size=1),
    most=st.integers(1, 3),
)
def test_a_plan_keeps_what_tenants_and_operators_said(seed, hosts, consents, left, unmoved, most):
    held = busy(seed)
    tenants = crowd(held, consents, left)
    permission = Permission(most, max_cost=2.0)
    request = Request("new", hosts)
    plan = planner_of(tenants, unmoved).plan("f", POLICIES["jigsaw"](), request, permission)
    if isinstance(plan, NoFit):
        return
    assert len(plan.moves) <= most
    moved = Counter[str]()
    after = held.copy()
    for move in plan.moves:
        record = tenants.allocations.get(move.new.id)
        assert record.consent.movable is not Movable.NEVER
        assert record.consent.move_cost <= 2
        assert record.project_id not in unmoved
        before = after.release(record.id)
        after.claim(move.new)
        if set(move.new.hosts(SMALL)) != set(before.hosts(SMALL)):
            assert record.consent.movable is Movable.RESTART
            moved[record.project_id] += 1
    assert all(moved[project] <= number for project, number in left.items())
    after.claim(plan.placement)
    assert not isolation_violations(SMALL, list(after.everybody()))
    assert plan.placement.size >= hosts


@pytest.fixture
def full():
    """Leaves of three hosts with one tenant of two each: three hosts of a leaf fit after a move."""
    held = Ledger(SMALL)
    for number in range(4):
        answer = admit(POLICIES["jigsaw"](), held, Request(f"t{number}", 2))
        assert isinstance(answer, Allocation)
    assert held.free_host_count == 4
    return held


YES = Consent(Movable.RESTART)
WIDE = Request("new", 3, constraints=Constraints(within=Within.LEAF))
NO_LIMIT = Permission()


def planned(held, left, unmoved=(), consents=(YES,), permission=NO_LIMIT):
    planner = planner_of(crowd(held, consents, left), unmoved)
    plan = planner.plan("f", POLICIES["jigsaw"](), WIDE, permission)
    return None if isinstance(plan, NoFit) else [move.record.project_id for move in plan.moves]


def test_each_rule_by_itself_keeps_a_project_in_place(full):
    assert planned(full, {}) in (["even"], ["odd"])
    assert planned(full, {"even": 0}) == ["odd"]
    assert planned(full, {"odd": 0}) == ["even"]
    assert planned(full, {"even": 0, "odd": 0}) is None
    assert planned(full, {}, unmoved={"even"}) == ["odd"]
    assert planned(full, {}, unmoved={"even", "odd"}) is None
    assert planned(full, {}, consents=(Consent(), YES)) == ["odd"]
    assert planned(full, {}, consents=(Consent(Movable.LIVE),)) is None
    assert planned(full, {}, permission=Permission(max_cost=0.5)) is None


def test_an_override_goes_beyond_consent_exemption_and_quota(full):
    both, none = {"even", "odd"}, {"even": 0, "odd": 0}
    assert planned(full, none, both, (Consent(),), Permission(override=True)) is not None
    assert planned(full, {}, (), (YES,), Permission(max_cost=0.5, override=True)) is None


# -- plans for queues: notice counts first ---------------------------------------------------


def steps_to(notice):
    """How often one second is doubled until it is longer than a notice."""
    steps = 0
    while 2**steps <= notice:
        steps += 1
    return steps if notice else 0


def earliest(held, hosts, most, notices):
    """By trying every sequence of moves: (steps to the longest notice, new hosts, moves)."""
    for limit in sorted(set(map(steps_to, notices.values()))):
        plans = AllPlans(SMALL, held, "jigsaw", hosts)
        plans.held = {
            id: tenant for id, tenant in plans.held.items() if steps_to(notices[id]) <= limit
        }
        least = plans.least(most)
        if least is not None:
            return (limit, *least)
    return None


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    hosts=st.integers(2, 6),
    notices=st.lists(st.sampled_from([0, 1, 600, 1000, 86_400, 30 * 86_400]), min_size=1),
    most=st.integers(1, 2),
)
def test_no_tenant_with_a_longer_notice_moves_where_a_shorter_one_does(seed, hosts, notices, most):
    held = busy(seed)
    if isinstance(POLICIES["jigsaw"]().propose(held, Request("", hosts)), Allocation):
        return
    given = [Consent(Movable.RESTART, float(notice)) for notice in notices]
    tenants = crowd(held, given, {})
    movable = {record.id: record for record in map(tenants.allocations.get, held.allocations)}
    planner = planner_of(tenants)
    request = Request("new", hosts)
    plan = planner.plan_early("f", POLICIES["jigsaw"](), request, Permission(most), movable)
    by_id = {id: record.consent.notice for id, record in movable.items()}
    best = earliest(held, hosts, most, by_id) if by_id else None
    if best is None:
        assert isinstance(plan, NoFit)
        return
    assert not isinstance(plan, NoFit)
    longest = max(steps_to(move.record.consent.notice) for move in plan.moves)
    assert (longest, plan.new_hosts, len(plan.moves)) == best
    after = held.copy()
    for move in plan.moves:
        after.release(move.new.id)
        after.claim(move.new)
    after.claim(plan.placement)
    assert not isolation_violations(SMALL, list(after.everybody()))


def test_a_plan_that_somebody_asks_for_heeds_cost_alone(full):
    """``make-room`` keeps its order: the fewest new hosts, then the fewest tenants."""
    slow, soon = Consent(Movable.RESTART, 30 * 86_400.0), Consent(Movable.RESTART)
    large, policy = Ledger(SMALL), POLICIES["jigsaw"]()
    sizes = {"t1": 2, "t2": 2, "t3": 2, "gone1": 1, "gone2": 1, "gone3": 1, "t0": 1}
    for id, size in sizes.items():  # t0 is alone on its leaf, so that it could go for one new host
        admit(policy, large, Request(id, size))
    for number in (1, 2, 3):
        large.release(f"gone{number}")
    tenants = crowd(large, [soon, soon, soon, slow], {})
    movable = {record.id: record for record in map(tenants.allocations.get, large.allocations)}
    planner = planner_of(tenants)
    asked = planner.plan("f", policy, WIDE, NO_LIMIT)
    early = planner.plan_early("f", policy, WIDE, NO_LIMIT, movable)
    assert not isinstance(asked, NoFit)
    assert not isinstance(early, NoFit)
    assert ([move.record.id for move in asked.moves], asked.new_hosts) == (["t0"], 1)
    assert (early.moves[0].record.id != "t0", early.new_hosts) == (True, 2)
