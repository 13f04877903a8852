# SPDX-License-Identifier: Apache-2.0

"""Requests for whole domains in the queue, in containers, beside faults, and after moves."""

from __future__ import annotations

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.queue import Discipline, make_queue
from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.constraints import Constraints, Spread
from laas_service.domain.features import HostFeatures
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.plan_moves import plan_moves
from laas_service.domain.policies import POLICIES
from laas_service.domain.topology import Topology, Xgft

JIGSAW = POLICIES["jigsaw"]()
WHOLE = Constraints(domains=1, kind="rack")


@pytest.fixture
def fabric() -> Ledger:
    """Four leaves of four hosts; a rack is half a leaf, a feed the same half of every leaf."""
    ledger = Ledger(Topology(Xgft((4, 4, 1), (1, 4, 0))))
    domains = {
        host: (("feed", f"f{host // 2 % 2}"), ("rack", f"r{host // 2}")) for host in range(16)
    }
    ledger.describe_hosts({host: HostFeatures(domains=of) for host, of in domains.items()})
    return ledger


def racks(fabric: Ledger, allocation: Allocation) -> set[str]:
    hosts = allocation.hosts(fabric.topology)
    return {dict(fabric.features.of(host).domains)["rack"] for host in hosts}


def placed(fabric: Ledger, id: str, hosts: int, constraints: Constraints | None) -> Allocation:
    answer = admit(JIGSAW, fabric, Request(id, hosts, constraints=constraints))
    assert isinstance(answer, Allocation), answer
    return answer


def test_a_waiting_request_starts_when_a_rack_is_whole_again(fabric):
    queue = make_queue(fabric, JIGSAW, Discipline())
    for number in range(8):
        queue.submit(Request(f"t{number}", 2, constraints=WHOLE), 10 + number)
    assert len(queue.step(0)) == 8
    queue.submit(Request("late", 4, constraints=Constraints(domains=2, kind="rack")), 5)
    queue.finish("t0", 10)
    assert queue.step(10) == []
    queue.finish("t1", 11)
    (late,) = queue.step(11)
    assert (late.id, racks(fabric, late)) == ("late", {"r0", "r1"})


def test_a_rack_with_a_failed_host_is_not_whole_until_the_repair(fabric):
    for rack in range(7):
        fabric.fail_host(2 * rack)
    assert racks(fabric, placed(fabric, "a", 2, WHOLE)) == {"r7"}
    assert isinstance(admit(JIGSAW, fabric, Request("b", 2, constraints=WHOLE)), NoFit)
    fabric.repair_host(0)
    assert racks(fabric, placed(fabric, "b", 2, WHOLE)) == {"r0"}


def test_whole_racks_inside_a_container(fabric):
    made = admit(JIGSAW, fabric, Request("box", 6, container=True))
    assert isinstance(made, Allocation)
    request = Request("in", 4, constraints=Constraints(domains=2, kind="rack"), parent="box")
    inside = admit(JIGSAW, fabric, request)
    assert isinstance(inside, Allocation), inside
    hosts = set(inside.hosts(fabric.topology))
    assert (len(racks(fabric, inside)), len(hosts)) == (2, 4)
    assert hosts <= set(made.hosts(fabric.topology))


def test_moves_make_a_rack_whole(fabric):
    for number in range(16):
        placed(fabric, f"t{number}", 1, None)
    for number in (0, 5):
        fabric.release(f"t{number}")
    request = Request("w", 2, constraints=WHOLE)
    assert isinstance(admit(JIGSAW, fabric, request), NoFit)
    plan = plan_moves(JIGSAW, fabric, request, 2)
    assert not isinstance(plan, NoFit), plan
    for move in plan.moves:
        fabric.change(move.allocation)
    assert len(plan.moves) == 1
    assert len(racks(fabric, placed(fabric, "w", 2, WHOLE))) == 1


def test_spread_over_feeds_survives_the_loss_of_one(fabric):
    spread = placed(fabric, "s", 2, Constraints(spread=Spread("feed", 2)))
    feeds = {fabric.features.of(host).domains[0] for host in spread.hosts(fabric.topology)}
    assert len(feeds) == 2
