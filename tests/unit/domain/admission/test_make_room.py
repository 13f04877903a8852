# SPDX-License-Identifier: Apache-2.0

"""Making room: each suggestion works, and no single release is cheaper."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.domain.admission.admit import admit
from laas_service.domain.admission.make_room import fits_when_empty, make_room
from laas_service.domain.allocation import Allocation, Request, Room
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.topology import Topology, Xgft

TREE = Topology(Xgft((4, 4, 3), (1, 4, 4)))
JIGSAW = POLICIES["jigsaw"]()


class Counted(Jigsaw):
    """Jigsaw that counts its calls."""

    calls = 0

    def propose(self, fabric, request):
        self.calls += 1
        return super().propose(fabric, request)


def filled(sizes, policy=JIGSAW):
    fabric = Ledger(TREE)
    for number, size in enumerate(sizes):
        admit(policy, fabric, Request(f"t{number}", size))
    return fabric


def fits(policy, fabric, hosts):
    return isinstance(policy.propose(fabric, Request("", hosts)), Allocation)


def after(fabric, room):
    twin = fabric.copy()
    for id in room.releases:
        twin.release(id)
    for host in room.undrain:
        assert host in twin.drained_hosts - twin.failed_hosts
        twin.repair_host(host)
    return twin


def test_the_smallest_tenant_that_is_enough_is_released():
    fabric = filled((16, 16, 8, 4, 4))
    assert make_room(JIGSAW, fabric, Request("", 3)) == Room(("t3",), hosts=4)
    assert make_room(JIGSAW, fabric, Request("", 6)) == Room(("t2",), hosts=8)


def test_a_pair_in_a_pod_is_released_if_it_has_fewer_hosts():
    fabric = filled((16, 16, 11, 2, 3))
    room = make_room(JIGSAW, fabric, Request("", 5))
    assert room == Room(("t3", "t4"), hosts=5)


def test_undoing_a_drain_comes_before_any_release():
    fabric = Ledger(TREE)
    fabric.drain_host(7)
    fabric.drain_host(20)
    admit(JIGSAW, fabric, Request("small", 1))
    for number in range(45):
        admit(JIGSAW, fabric, Request(f"one{number}", 1))
    assert make_room(JIGSAW, fabric, Request("", 1)) == Room(undrain=(7,))


def test_a_drain_of_a_failed_host_is_not_undone():
    fabric = filled((16, 16))
    fabric.fail_host(47)
    fabric.drain_host(47)
    assert make_room(JIGSAW, fabric, Request("", 48)) is None
    assert not fits_when_empty(JIGSAW, fabric, Request("", 48))
    assert fits_when_empty(JIGSAW, fabric, Request("", 40))


def test_a_request_larger_than_the_fabric_gets_no_suggestion():
    assert make_room(JIGSAW, filled((5, 9)), Request("", 49)) is None


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(12))
def test_a_suggestion_works_and_no_single_release_is_cheaper(policy, seed):
    rng, policy = Random(seed), POLICIES[policy]()
    fabric = filled((rng.choice((1, 2, 3, 5, 8, 13)) for _ in range(30)), policy)
    for id in sorted(fabric.allocations)[::4]:
        fabric.release(id)
    for host in rng.sample(range(48), 3):
        fabric.drain_host(host)
    before = fabric.state()
    for hosts in (4, 9, 17, 30):
        if fits(policy, fabric, hosts):
            continue
        room = make_room(policy, fabric, Request("", hosts))
        assert fabric.state() == before
        assert room == make_room(policy, fabric, Request("", hosts))
        singles = [
            allocation.size
            for allocation in fabric.allocations.values()
            if fits(policy, after(fabric, Room((allocation.id,))), hosts)
        ]
        if room is None:
            assert not singles
            continue
        assert fits(policy, after(fabric, room), hosts)
        assert not singles or room.hosts <= min(singles)
        assert room.hosts == sum(fabric.allocations[id].size for id in room.releases)


def test_the_number_of_tries_is_bounded():
    fabric = filled((1,) * 48)
    counted = Counted()
    room = make_room(counted, fabric, Request("", 20), tries=25)
    assert 0 < counted.calls <= 25
    assert room is not None
    assert fits(JIGSAW, after(fabric, room), 20)


def test_a_small_budget_finds_one_release_and_says_that_there_may_be_a_better_answer():
    fabric = filled((16, 16, 11, 2, 3))
    budget = RequestBudget(80)
    assert make_room(JIGSAW, fabric, Request("", 5), budget=budget) == Room(("t2",), hosts=11)
    assert budget.cut
    enough = RequestBudget(100_000)
    room = make_room(JIGSAW, fabric, Request("", 5), budget=enough)
    assert (room, enough.cut) == (Room(("t3", "t4"), hosts=5), False)
    assert enough.left < 100_000
