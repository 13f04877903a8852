# SPDX-License-Identifier: Apache-2.0

"""Constraints in the queue and in suggestions to make room, and their check on a fabric."""

from __future__ import annotations

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.constrained import check_constraints
from laas_service.domain.admission.make_room import fits_when_empty, make_room
from laas_service.domain.admission.queue import Discipline, EasyQueue, Queue, make_queue
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, Xgft

TREE = Topology(Xgft((2, 3, 3), (1, 2, 3)))  # 18 hosts: 3 pods of 3 leaves of 2
JIGSAW = POLICIES["jigsaw"]()
GPU = Constraints(traits=frozenset({"gpu"}))


def fabric() -> Ledger:
    """Hosts 0 to 5, all of pod 0, have a GPU and cost 3 each."""
    made = Ledger(TREE)
    with_gpu = HostFeatures(frozenset({"gpu"}), 3)
    made.describe_hosts(dict.fromkeys(range(6), with_gpu))
    return made


def given(made: Ledger, id: str, hosts: int, wish: Constraints | None = None) -> Allocation:
    answer = admit(JIGSAW, made, Request(id, hosts, constraints=wish))
    assert isinstance(answer, Allocation), answer
    return answer


def started(queue: Queue, now: float) -> list[str]:
    return [allocation.id for allocation in queue.step(now)]


def test_the_queue_gives_hosts_that_meet_the_constraints_and_lets_other_requests_pass():
    made = fabric()
    queue = make_queue(made, JIGSAW, Discipline())
    for id, hosts, wish, seconds in (
        ("all of them", 6, GPU, 100),
        ("more", 2, GPU, 100),
        ("as many", 2, None, 50),
        ("others", 2, Constraints(avoid_pods=frozenset({0, 1})), 50),
    ):
        queue.submit(Request(id, hosts, constraints=wish), seconds)
    started = {allocation.id: allocation.hosts(TREE) for allocation in queue.step(0)}
    assert started["all of them"] == tuple(range(6))
    assert "more" not in started
    assert set(started["as many"]) <= set(range(6, 18))
    assert set(started["others"]) <= set(range(12, 18))
    queue.finish("all of them", 100)
    (more,) = queue.step(100)
    assert (more.id, set(more.hosts(TREE)) <= set(range(6))) == ("more", True)


def test_a_refusal_under_constraints_does_not_apply_to_other_requests():
    made = fabric()
    queue = make_queue(made, JIGSAW, Discipline(window=9))
    given(made, "first", 5, GPU)
    queue.submit(Request("gpus", 2, constraints=GPU), 10)
    queue.submit(Request("any", 2), 1)
    queue.submit(Request("one", 1, constraints=GPU), 1)
    assert started(queue, 0) == []  # nothing overtakes: the end of "first" is unknown
    fifo_head = make_queue(made, JIGSAW, Discipline())
    fifo_head.submit(Request("any", 2))
    fifo_head.submit(Request("gpus", 2, constraints=GPU))
    assert started(fifo_head, 0) == ["any"]


def test_the_reservation_of_a_head_under_constraints_is_kept():
    """The newcomer fits now, the head later, but not both: they need the same hosts."""
    made = fabric()
    queue = make_queue(made, JIGSAW, Discipline())
    queue.submit(Request("holds", 4, constraints=GPU), 10)
    queue.step(0)
    queue.submit(Request("head", 6, constraints=GPU), 10)
    queue.submit(Request("long", 2, constraints=GPU), 100)
    queue.submit(Request("elsewhere", 2, constraints=Constraints(max_host_cost=0)), 100)
    assert started(queue, 0) == ["elsewhere"]
    queue.finish("holds", 10)
    assert started(queue, 10) == ["head"]


def test_the_head_is_promised_the_time_at_which_its_constraints_are_met():
    """Hosts without GPUs become free first; a request that ends in between may overtake."""
    queue = make_queue(fabric(), JIGSAW, Discipline())
    queue.submit(Request("plain", 12, constraints=Constraints(max_host_cost=0)), 10)
    queue.submit(Request("gpus", 5, constraints=GPU), 100)
    assert len(queue.step(0)) == 2
    queue.submit(Request("head", 6, constraints=GPU), 10)
    queue.submit(Request("brief", 1, constraints=GPU), 50)
    assert started(queue, 0) == ["brief"]
    assert isinstance(queue, EasyQueue)
    assert queue.reserve(0).time == 100


def test_room_is_made_on_hosts_that_meet_the_constraints():
    made = fabric()
    given(made, "dear", 3, GPU)
    given(made, "cheap", 2, Constraints(max_host_cost=0))
    request = Request("t", 4, constraints=GPU)
    room = make_room(JIGSAW, made, request)
    assert room is not None
    assert room.releases == ("dear",)
    assert fits_when_empty(JIGSAW, made, request)
    assert not fits_when_empty(JIGSAW, made, Request("t", 7, constraints=GPU))
    assert make_room(JIGSAW, made, Request("t", 7, constraints=GPU)) is None


def test_undoing_a_drain_makes_room_only_on_hosts_that_meet_the_constraints():
    made = fabric()
    made.drain_host(4)
    made.drain_host(9)
    room = make_room(JIGSAW, made, Request("t", 6, constraints=GPU))
    assert room is not None
    assert room.undrain == (4,)


def test_a_constraint_on_something_that_the_fabric_lacks_is_refused():
    made = fabric()
    for wish, message in (
        (Constraints(avoid_hosts=frozenset({18})), "hosts are 0..17"),
        (Constraints(avoid_pods=frozenset({3})), "pods are 0..2"),
        (Constraints(spread=4), "the fabric has 3 pods"),
        (Constraints(traits=frozenset({"gpuu"})), "did you mean gpu"),
    ):
        with pytest.raises(InvalidInput, match=message):
            check_constraints(made, wish)
    check_constraints(
        made, Constraints(frozenset({"gpu"}), frozenset({17}), frozenset({2}), Within.POD)
    )
    check_constraints(made, Constraints(spread=3))


def test_a_ledger_knows_its_hosts_features_and_a_copy_keeps_its_own():
    made = fabric()
    twin = made.copy()
    made.describe_hosts({7: HostFeatures(frozenset({"fpga"})), 0: HostFeatures()})
    assert made.features.traits == {"gpu", "fpga"}
    assert twin.features.traits == {"gpu"}
    assert made.state() != twin.state()
    assert made.features.of(0) == HostFeatures()
    assert made.features.cost((0, 1, 2)) == 6
    with pytest.raises(NotFound):
        made.describe_hosts({18: HostFeatures()})
