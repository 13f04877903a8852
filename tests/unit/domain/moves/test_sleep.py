# SPDX-License-Identifier: Apache-2.0

"""Moves that let switches sleep: small cases by hand, and what every plan promises."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Request
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.sleep import plan_sleep, unused_switches
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, SpineLink, Topology, Xgft
from laas_service.domain.verification import isolation_violations, shape_violations
from tests.unit.domain.moves.test_plan_moves import TREES, busy_fabric


def on_leaves(**leaves: int) -> Ledger:
    """Four leaves of four hosts; each tenant has one host of the leaf that is given.

    The tenant "box" is a container.
    """
    fabric = Ledger(Topology(Xgft((4, 4, 1), (1, 4, 0))))
    for host in range(16):
        fabric.drain_host(host)
    for id, leaf in leaves.items():
        fabric.repair_host(4 * leaf)
        admit(POLICIES["jigsaw"](), fabric, Request(id, 1, container=id == "box"))
    for host in range(16):
        fabric.repair_host(host)
    return fabric


def test_tenants_leave_leaves_for_others_in_use():
    fabric = on_leaves(a=0, b=1, c=2)
    for most_moves, asleep in ((0, 1), (1, 2), (2, 3)):
        plan = plan_sleep(fabric, most_moves)
        assert (len(plan.moves), len(plan.after.leaves)) == (most_moves, asleep)
        assert (plan.new_hosts, plan.cut_off) == (most_moves, False)
        assert plan.now.leaves == ((0, 3),)


def test_a_container_keeps_its_leaf_awake():
    (move,) = plan_sleep(on_leaves(box=0, a=1), 5).moves
    assert move.allocation.id == "a"


def test_switches_are_unused_if_no_tenant_owns_a_link_of_them():
    fabric = Ledger(Topology(Xgft((2, 2, 2), (1, 2, 2))))
    assert _counts(fabric) == [4, 4, 4]
    admit(POLICIES["jigsaw"](), fabric, Request("a", 6))
    (held,) = fabric.allocations.values()
    links = set(held.links(fabric.topology))
    unused = unused_switches(fabric)
    assert unused.l2 == tuple(
        (pod, l2)
        for pod in range(2)
        for l2 in range(2)
        if not any(isinstance(one, LeafLink) and (one.pod, one.up) == (pod, l2) for one in links)
    )
    assert unused.spines == tuple(
        (l2, spine)
        for l2 in range(2)
        for spine in range(2)
        if not any(isinstance(one, SpineLink) and (one.l2, one.up) == (l2, spine) for one in links)
    )


def test_a_tenant_without_links_may_use_every_switch_above_the_leaves():
    fabric = Ledger(Topology(Xgft((2, 2, 2), (1, 2, 2))))
    admit(POLICIES["baseline"](), fabric, Request("a", 3))
    assert _counts(fabric) == [2, 0, 0]


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("policy", ["jigsaw", "laas", "baseline"])
def test_plans_hold_what_they_promise(tree, policy):
    """The moves can be made in order, leave every tenant legal, and wake no leaf."""
    topology, rng = TREES[tree], Random(f"{tree} {policy}")
    for _ in range(4):
        fabric = busy_fabric(topology, policy, rng)
        for id in sorted(fabric.allocations)[::2]:
            fabric.release(id)
        before = fabric.owners_of_hosts(), fabric.owners_of_links(), set(fabric.drained_hosts)
        plan = plan_sleep(fabric, 3)
        assert before == (
            fabric.owners_of_hosts(),
            fabric.owners_of_links(),
            set(fabric.drained_hosts),
        )
        assert plan.now == unused_switches(fabric)
        assert len({move.allocation.id for move in plan.moves}) == len(plan.moves) <= 3
        for move in plan.moves:
            fabric.change(move.allocation)
        assert plan.after == unused_switches(fabric)
        assert set(plan.now.leaves) <= set(plan.after.leaves)
        assert bool(plan.moves) == (plan.now.leaves != plan.after.leaves)
        assert not isolation_violations(topology, fabric.everybody())
        for allocation in fabric.everybody():
            assert not shape_violations(topology, allocation)


def _counts(fabric: Ledger) -> list[int]:
    unused = unused_switches(fabric)
    return [len(unused.leaves), len(unused.l2), len(unused.spines)]
