# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts in placement, by the Nova adapter against a cloud that can fail."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from laas_service.adapters.nova import NovaCompute
from laas_service.adapters.nova.checks import Checks
from laas_service.adapters.nova.keys import class_of
from laas_service.app.ports.compute import (
    Handover,
    HostPart,
    MoveProgress,
    Occupant,
    ServerMoves,
    SlotMoves,
)
from laas_service.domain.errors import Conflict, HostsBusy, Unavailable
from tests.functional.test_nova_adapter import ALL, BLUE, GREEN, RED, connect
from tests.functional.test_nova_adapter import cloud as cloud
from tests.functional.test_nova_adapter import server as server
from tests.nova_standin import Fault, Handler

A1 = Handover("a1", RED, ("n1", "n2"), {"n1": 2, "n2": 1})
B1 = Handover("b1", BLUE, ("n1", "n3"), {"n1": 1, "n3": 3})
OWNED = Handover("c1", GREEN, ("n4",))
RED_SLOT, BLUE_SLOT = class_of("a1"), class_of("b1")


@pytest.fixture
def compute(server, cloud, tmp_path):
    found = connect(server, tmp_path, timeout=5)
    found.pool(ALL)
    return found


def free(cloud, slot):
    """Free slots of a class, by host."""
    return {host: n for host in ALL if (n := cloud.free_slots(host, slot))}


def test_hosts_are_in_the_aggregates_of_all_who_share_them(compute, cloud):
    for handover in (A1, B1, OWNED):
        compute.hand_over(handover)
    assert cloud.accepts("n1") == {RED, BLUE, "laas-nobody"}
    assert (free(cloud, RED_SLOT), free(cloud, BLUE_SLOT)) == (A1.share, B1.share)
    assert compute.handed_over() == {"a1": A1, "b1": B1, "c1": OWNED}
    unread = {id: replace(one, share=HostPart.UNREAD) for id, one in (("a1", A1), ("b1", B1))}
    assert compute.observed().handed_over == {**unread, "c1": OWNED}
    assert cloud.named("laas-a1").metadata["laas:slots"] == RED_SLOT
    before = cloud.snapshot(), {id: below.generation for id, below in cloud.below.items()}
    compute.hand_over(A1)
    with compute.comparison():
        compute.handed_over()
        compute.hand_over(A1)
    assert before == (
        cloud.snapshot(),
        {id: below.generation for id, below in cloud.below.items()},
    )


def test_a_host_has_one_owner_or_sharers(compute):
    compute.hand_over(A1)
    with pytest.raises(Conflict, match="laas-a1 has n1"):
        compute.hand_over(Handover("c1", GREEN, ("n1",)))
    compute.hand_over(OWNED)
    with pytest.raises(Conflict, match="laas-c1 has n4"):
        compute.hand_over(replace(B1, hosts=("n4",), share={"n4": 1}))


def test_a_server_without_a_slot_is_a_stranger(compute, cloud):
    compute.hand_over(A1)
    cloud.boot("n1", RED, RED_SLOT)
    compute.hand_over(B1)
    cloud.boot("n1", RED)
    with pytest.raises(HostsBusy, match="holds no slot"):
        compute.hand_over(A1)


def test_fewer_slots_close_and_servers_beyond_them_stay(compute, cloud):
    compute.hand_over(A1)
    for _ in range(2):
        cloud.boot("n1", RED, RED_SLOT)
    smaller = Handover("a1", RED, ("n1",), {"n1": 1})
    compute.hand_over(smaller)
    assert free(cloud, RED_SLOT) == {}
    assert [child.inventories[RED_SLOT]["total"] for child in cloud.below.values()] == [1]
    moves = SlotMoves(smaller, {"n1": 1, "n2": 0})
    (text,) = compute.settle_slots(moves).stuck
    assert "n1 has 2 servers" in text
    assert "delete or move 1" in text
    del cloud.servers[next(iter(cloud.servers))]
    assert compute.settle_slots(moves) == MoveProgress()


def test_a_host_that_leaves_is_closed_while_a_server_is_there(compute, cloud):
    compute.hand_over(A1)
    cloud.boot("n2", RED, RED_SLOT)
    moved = Handover("a1", RED, ("n1", "n3"), {"n1": 2, "n3": 1})
    compute.hand_over(moved)
    assert free(cloud, RED_SLOT) == moved.share
    moves = SlotMoves(moved, {"n1": 2, "n2": 0, "n3": 1}, (("n2", "n3"),), consents=True)
    told = [compute.settle_slots(moves) for _ in range(3)]
    assert [bool(one.under_way) for one in told] == [True, False, False]
    assert len(told[1].arrived) == 1
    assert told[2] == MoveProgress()
    assert [host for host, _ in cloud.servers.values()] == ["n3"]
    assert all(child.inventories for child in cloud.below.values())


def test_others_on_the_host_are_left_alone(compute, cloud):
    """One server goes, and it is one of the allocation."""
    compute.hand_over(A1)
    compute.hand_over(B1)
    cloud.boot("n1", BLUE, BLUE_SLOT)
    for _ in range(2):
        cloud.boot("n1", RED, RED_SLOT)
    moved = Handover("a1", RED, ("n1", "n2"), {"n1": 1, "n2": 2})
    compute.hand_over(moved)
    moves = SlotMoves(moved, {"n1": 1, "n2": 2}, (("n1", "n2"),), consents=True)
    while compute.settle_slots(moves) != MoveProgress():
        pass
    assert sorted(cloud.servers.values()) == [("n1", BLUE), ("n1", RED), ("n2", RED)]


def test_slots_are_taken_back_when_nobody_holds_one(compute, cloud):
    for handover in (A1, B1):
        compute.hand_over(handover)
    stays = cloud.boot("n1", BLUE, BLUE_SLOT)
    held = cloud.boot("n1", RED, RED_SLOT)
    assert compute.slot_holders(A1) == [Occupant("n1", held, RED)]
    compute.fence("a1")
    assert RED not in cloud.accepts("n1")
    with pytest.raises(HostsBusy, match=held):
        compute.take_back(A1)
    assert free(cloud, RED_SLOT) == {}
    del cloud.servers[held]
    compute.take_back(A1)
    assert cloud.classes == {BLUE_SLOT}
    assert [a.name for a in cloud.aggregates.values()] == ["laas-pool", "laas-b1"]
    assert stays in cloud.servers
    compute.take_back(A1)
    cloud.servers.clear()
    compute.take_back(B1)
    assert (cloud.classes, cloud.below) == (set(), {})


WRITES = ("ensure_class", "add_provider", "set_slots", "create", "set_metadata", "add_host")
UNDONE = ("set_slots", "drop_provider", "drop_class", "remove_host", "delete", "set_metadata")


@pytest.mark.parametrize("kind", [409, 500, "lost", "refused"])
@pytest.mark.parametrize("call", sorted({*WRITES, *UNDONE}))
def test_a_failure_between_any_two_calls_is_made_good(compute, cloud, call, kind):
    """Both ways, whichever call fails: nothing too much is open, and the next try succeeds."""
    cloud.faults.append(Fault(kind, call))
    settled(lambda: compute.hand_over(A1))
    cloud.faults.clear()
    compute.hand_over(A1)
    assert free(cloud, RED_SLOT) == A1.share
    cloud.faults.append(Fault(kind, call))
    settled(lambda: compute.take_back(A1))
    cloud.faults.clear()
    compute.take_back(A1)
    assert (cloud.classes, cloud.below) == (set(), {})
    assert [a.name for a in cloud.aggregates.values()] == ["laas-pool"]


def settled(act):
    with suppress(Conflict, Unavailable):
        act()


def test_slots_edited_by_hand_are_seen_and_set_again(compute, cloud):
    compute.hand_over(A1)
    (first,) = [c for c in cloud.below.values() if c.parent == cloud.providers["n1"]]
    first.inventories[RED_SLOT]["total"] = 5
    assert compute.handed_over()["a1"].share == {"n1": 5, "n2": 1}
    with compute.comparison():
        compute.hand_over(A1)
    assert free(cloud, RED_SLOT) == A1.share
    first.inventories.clear()
    assert compute.handed_over()["a1"].share == {"n2": 1}
    compute.hand_over(A1)
    assert free(cloud, RED_SLOT) == A1.share


CHANGES = {
    *("close", "fence", "hand_over", "move_servers", "pool", "settle_slots", "stop", "take_back"),
}
QUESTIONS = {
    "handed_over": lambda compute: compute.handed_over(),
    "load": lambda compute: compute.load(ALL),
    "look": lambda compute: compute.look(ALL),
    "nearest": lambda compute: compute.nearest(["N1.example.org"]),
    "observed": lambda compute: compute.observed(),
    "occupants": lambda compute: compute.occupants(ALL),
    "running": lambda compute: compute.running(ServerMoves("a1", RED, {"n1": "n2"})),
    "server_limit": lambda compute: compute.server_limit(RED),
    "slot_holders": lambda compute: compute.slot_holders(A1),
    "candidates": lambda compute: compute.checks.candidates(),
    "forged_rebuilds": lambda compute: compute.checks.forged_rebuilds(),
    "unmoved_servers": lambda compute: compute.checks.unmoved_servers(),
    "unread_memberships": lambda compute: compute.checks.unread_memberships(),
}


def test_questions_change_nothing(compute, cloud, monkeypatch):
    """Whatever is not a change in the list above is asked, where much is to be mended."""
    methods = {name for name in [*vars(NovaCompute), *vars(Checks)] if not name.startswith("_")}
    assert QUESTIONS.keys() == methods - CHANGES - {"claims_slots", "comparison", "scripted"}
    for handover in (A1, B1, OWNED):
        compute.hand_over(handover)
    cloud.boot("n1", RED, RED_SLOT)
    cloud.boot("n4", BLUE)
    cloud.set_metadata(cloud.named("laas-pool").id, {"filter_tenant_id": BLUE})
    cloud.set_metadata(cloud.named("laas-c1").id, {"filter_tenant_id_2": BLUE})
    cloud.remove_host(cloud.named("laas-a1").id, "n2")
    cloud.mirror[cloud.providers["n3"]].clear()
    written = []
    for method in ("DELETE", "PATCH", "POST", "PUT"):
        told = lambda handler, method=method: written.append((method, handler.path))  # noqa: E731
        monkeypatch.setattr(Handler, f"do_{method}", told, raising=False)
    for ask in QUESTIONS.values():
        ask(compute)
    with compute.comparison():
        for ask in QUESTIONS.values():
            ask(compute)
    assert written == []
