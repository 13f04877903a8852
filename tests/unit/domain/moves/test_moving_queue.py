# SPDX-License-Identifier: Apache-2.0

"""The queue that moves tenants: requests start by moves, and none delays the head."""

from __future__ import annotations

import heapq
from random import Random

import pytest

from laas_service.domain.admission.queue import Discipline, Waiting
from laas_service.domain.allocation import Allocation, GroupShare, Request, Shape
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.moving_queue import MovingQueue
from laas_service.domain.moves.plan_moves import MovesToFit, plan_moves
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import LeafLink, Topology, Xgft
from laas_service.domain.verification import isolation_violations, shape_violations

JIGSAW = POLICIES["jigsaw"]()
TREE = Topology(Xgft((4, 3, 3), (1, 4, 3)))


def planner(fabric, waiting):
    return plan_moves(JIGSAW, fabric, waiting.request, 1, thorough=False)


def two_leaves() -> Ledger:
    """Two leaves without uplinks; two hosts of a tenant on each, and two free."""
    fabric = Ledger(Topology(Xgft((4, 2, 1), (1, 1, 0))))
    for leaf in range(2):
        fabric.fail_link(LeafLink(0, leaf, 0))
        share = (GroupShare(leaf, 0b11, 0),)
        fabric.claim(Allocation(f"t{leaf}", 2, "jigsaw", share, (), Shape(1, 1, 2)))
    return fabric


@pytest.mark.parametrize("kind", ["fifo", "easy"])
def test_a_request_starts_after_a_move(kind):
    fabric = two_leaves()
    queue = MovingQueue(fabric, JIGSAW, Discipline(kind), planner, ends={"t0": 50.0, "t1": 60.0})
    queue.submit(Request("new", 4), 100)
    (started,) = queue.step(0)
    assert (started.id, started.size) == ("new", 4)
    (move,) = queue.moved()
    assert (move.allocation.id, move.new_hosts) == ("t0", 2)
    assert queue.moved() == []
    assert fabric.allocations["t0"] == move.allocation
    assert not isolation_violations(fabric.topology, fabric.everybody())


def test_the_end_of_a_moved_tenant_is_later_by_what_it_loses():
    queue = MovingQueue(
        two_leaves(), JIGSAW, Discipline(), planner, 30, ends={"t0": 50.0, "t1": 60.0}
    )
    queue.submit(Request("new", 4), 100)
    queue.step(0)
    queue.submit(Request("later", 2), 10)
    queue.submit(Request("last", 2), 10)
    assert queue.step(0) == []
    assert queue.reserve(0).time == 60
    queue.finish("t1", 60)
    queue.step(60)
    assert queue.reserve(60).time == 70


def test_a_request_may_overtake_if_the_head_fits_after_a_move():
    """At 50 a leaf would be free for the head, but for "late": then a tenant moves."""
    fabric = Ledger(Topology(Xgft((4, 2, 1), (1, 1, 0))))
    for leaf, hosts in ((0, 3), (1, 2)):
        fabric.fail_link(LeafLink(0, leaf, 0))
        share = (GroupShare(leaf, (1 << hosts) - 1, 0),)
        fabric.claim(Allocation(f"t{leaf}", hosts, "jigsaw", share, (), Shape(1, 1, hosts)))
    ends = {"t0": 50.0, "t1": 1000.0}
    queue = MovingQueue(fabric, JIGSAW, Discipline(), planner, ends=ends)
    queue.submit(Request("head", 4), 100)
    queue.submit(Request("late", 1), 500)
    assert [allocation.id for allocation in queue.step(0)] == ["late"]
    assert fabric.allocations["late"].groups[0].group == 0
    assert queue.reserve(0).time == 50
    assert queue.moved() == []
    queue.finish("t0", 50)
    assert [allocation.id for allocation in queue.step(50)] == ["head"]
    assert len(queue.moved()) == 1


def test_moves_are_planned_for_each_size_of_the_window():
    """That a size is refused as it is, says nothing of larger ones after a move."""
    fabric = Ledger(Topology(Xgft((4, 3, 1), (1, 1, 0))))
    for leaf in range(3):
        fabric.fail_link(LeafLink(0, leaf, 0))
        share = (GroupShare(leaf, 0b111, 0),)
        fabric.claim(Allocation(f"t{leaf}", 3, "jigsaw", share, (), Shape(1, 1, 3)))
    asked = list[str]()

    def of_no_use(ledger: Ledger, waiting: Waiting) -> MovesToFit:
        asked.append(waiting.request.id)
        return MovesToFit((), ledger.allocations["t0"])

    ends = {f"t{leaf}": 50.0 for leaf in range(3)}
    queue = MovingQueue(fabric, JIGSAW, Discipline(), of_no_use, ends=ends)
    for id, hosts in (("head", 4), ("two", 2), ("three", 3)):
        queue.submit(Request(id, hosts), 10)
    assert queue.step(0) == []
    assert asked == ["two", "three"]


@pytest.mark.parametrize("seed", range(6))
def test_no_head_waits_past_its_reservation(seed):
    """Random jobs: the ledger stays sound, and moves keep the promise of the head."""
    rng, fabric = Random(seed), Ledger(TREE)
    queue = MovingQueue(fabric, JIGSAW, Discipline(window=10), planner)
    runs = {f"j{n}": rng.randint(1, 60) for n in range(70)}
    for id, run in runs.items():
        queue.submit(Request(id, rng.choice((1, 2, 3, 4, 5, 7, 9, 14, 20))), run)
    now, ends, promised, moves = 0.0, list[tuple[float, str]](), dict[str, float](), 0
    while len(queue) or ends:
        for allocation in queue.step(now):
            assert now <= promised.get(allocation.id, now)
            heapq.heappush(ends, (now + runs[allocation.id], allocation.id))
        moves += len(queue.moved())
        assert not isolation_violations(TREE, fabric.everybody())
        for allocation in fabric.everybody():
            assert not shape_violations(TREE, allocation)
        if queue.reservation is not None:
            head = next(iter(queue)).request.id
            time = queue.reservation.time
            assert time <= promised.get(head, time)
            promised[head] = time
        now = ends[0][0]
        while ends and ends[0][0] == now:
            queue.finish(heapq.heappop(ends)[1], now)
    assert moves
