# SPDX-License-Identifier: Apache-2.0

"""Servers go to other hosts of their allocation by Nova, over real HTTP; the cloud can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.app.ports.compute import (
    Handover,
    MoveProgress,
    MoveStage,
    ServerLoad,
    ServerMoves,
)
from laas_service.domain.errors import Forbidden, HostsBusy, LaasError, Unavailable
from tests.functional.test_nova_adapter import ALL, BLUE, HANG, RED, connect
from tests.functional.test_nova_adapter import cloud as cloud
from tests.functional.test_nova_adapter import compute as compute
from tests.functional.test_nova_adapter import server as server
from tests.functional.test_nova_adapter import sessions as sessions
from tests.nova_standin import Fault, Migration

MOVES = ServerMoves("a1", RED, {"n1": "n3", "n2": "n4"})
BACK = ServerMoves("a1", RED, {"n3": "n1", "n4": "n2"})
WRITES = {"evacuate", "migrate", "os-migrateLive", "confirmResize", "revertResize"}


@pytest.fixture
def handed(cloud, compute):
    """The new hosts are handed over, as they are when servers leave the old ones."""
    compute.pool(ALL)
    compute.hand_over(Handover("a1", RED, ("n3", "n4")))
    cloud.calls.clear()
    return compute


def writes(cloud):
    return [call for call in cloud.calls if call[0] in WRITES]


def ended(compute, moves=MOVES, calls=20):
    """Call until nothing is left to do; returns the servers that arrived."""
    arrived = []
    for _ in range(calls):
        progress = compute.move_servers(moves)
        arrived += progress.arrived
        if progress == MoveProgress():
            return arrived
    raise AssertionError(progress)


def places(cloud):
    return {server: host for server, (host, _) in cloud.servers.items()}


STOP, START, UNLOCK = (
    replace(MOVES, stage=MoveStage[name]) for name in ("STOP", "START", "UNLOCK")
)
HALT = replace(STOP, locks=False)
OURS = "stopped for the move of allocation a1"


def test_servers_stop_move_and_start_again(cloud, handed):
    """Only those that ran; each call is safe to repeat."""
    runs, rests = cloud.boot("n1", RED), cloud.boot("n2", RED)
    cloud.states[rests] = "SHUTOFF", None
    assert handed.running(MOVES).stuck == (f"server {runs} on n1 runs; stop it",)
    assert cloud.states.get(runs) is None
    assert handed.move_servers(STOP).under_way == (f"server {runs} on n1",)
    assert (cloud.locks, cloud.states[runs]) == ({runs: OURS}, ("SHUTOFF", None))
    assert handed.move_servers(STOP) == handed.running(MOVES) == MoveProgress()
    assert len(ended(handed)) == 2
    assert places(cloud) == {runs: "n3", rests: "n4"}
    assert cloud.states[runs] == cloud.states[rests] == ("SHUTOFF", None)
    ended(handed, START)
    assert cloud.states[runs] == ("ACTIVE", None)
    assert (cloud.locks, cloud.states[rests]) == ({}, ("SHUTOFF", None))


def test_servers_are_halted_without_a_lock_and_unlocked_without_a_start(cloud, handed):
    """Only locks of this allocation's move are taken away; each call is safe to repeat."""
    first, moved, locked = (cloud.boot(host, RED) for host in ("n1", "n4", "n2"))
    cloud.locks[locked] = "keep off"
    halted = handed.move_servers(HALT)
    assert halted.under_way == (f"server {first} on n1", f"server {locked} on n2")
    assert cloud.states == {first: ("SHUTOFF", None), locked: ("SHUTOFF", None)}
    assert cloud.locks == {locked: "keep off"}
    assert handed.move_servers(HALT) == MoveProgress()
    cloud.locks |= {first: OURS, moved: OURS}
    cloud.states[moved] = "SHUTOFF", None
    done = handed.move_servers(UNLOCK)
    assert done.under_way == (f"server {first} on n1", f"server {moved} on n4")
    assert handed.move_servers(UNLOCK) == MoveProgress()
    assert cloud.locks == {locked: "keep off"}
    assert {status for status, _ in cloud.states.values()} == {"SHUTOFF"}
    cloud.locks[first] = OURS
    cloud.faults.append(Fault(409, "unlock"))
    assert handed.move_servers(UNLOCK).stuck


def test_a_server_that_was_locked_and_not_stopped_is_stopped(cloud, handed):
    id = cloud.boot("n1", RED)
    cloud.locks[id] = OURS
    assert handed.move_servers(STOP).under_way == (f"server {id} on n1",)
    assert cloud.states[id] == ("SHUTOFF", None)


def test_what_cannot_be_stopped_is_told(cloud, handed):
    locked, paused, strange = (cloud.boot(host, RED) for host in ("n1", "n1", "n2"))
    cloud.locks[locked] = "keep off"
    cloud.states[paused] = "PAUSED", None
    cloud.servers[strange] = "n2", BLUE
    told = set(handed.move_servers(STOP).stuck)
    assert told == {
        f"server {locked} on n1 is locked; stop it, or unlock it",
        f"server {paused} on n1 is PAUSED; stop or delete it",
        f"server {strange} on n2 belongs to another project",
    }
    assert cloud.locks == {locked: "keep off"}
    assert handed.move_servers(START) == MoveProgress()


def test_servers_of_a_host_that_is_off_count_as_stopped(cloud, handed):
    cloud.boot("n1", RED)
    cloud.dead.add("n1")
    assert handed.move_servers(STOP).under_way
    cloud.locks.clear()
    cloud.states.clear()
    cloud.forced_down.add("n1")
    assert handed.move_servers(STOP) == MoveProgress()
    assert cloud.locks == {}


def test_servers_migrate_are_confirmed_and_the_source_is_empty(cloud, handed):
    first, second = cloud.boot("n1", RED), cloud.boot("n2", RED)
    started = handed.move_servers(MOVES)
    assert started.under_way == (f"server {first} on n1", f"server {second} on n2")
    assert {o.host for o in handed.occupants(["n1", "n2"])} == {"n1", "n2"}, "until confirmed"
    done = handed.move_servers(MOVES)
    assert done.arrived == (f"server {first} from n1 to n3", f"server {second} from n2 to n4")
    assert handed.move_servers(MOVES) == MoveProgress()
    assert handed.occupants(["n1", "n2"]) == []
    assert places(cloud) == {first: "n3", second: "n4"}
    assert [m.status for m in cloud.migrations] == ["confirmed", "confirmed"]


def test_of_each_host_one_server_moves_at_a_time(cloud, handed):
    cloud.slow = True
    servers = sorted(cloud.boot("n1", RED) for _ in range(3))
    for next_one in servers:
        for _ in range(2):
            progress = handed.move_servers(MOVES)
            assert progress.under_way[0].startswith(f"server {next_one} on n1")
            assert [m.server for m in cloud.migrations if m.status == "migrating"] == [next_one]
        cloud.migrated(next_one)
        assert handed.move_servers(MOVES).arrived == (f"server {next_one} from n1 to n3",)
    assert handed.move_servers(MOVES) == MoveProgress()
    assert set(places(cloud).values()) == {"n3"}


@pytest.mark.parametrize("kind", ["refused", "lost", "late", 500, 503])
@pytest.mark.parametrize("call", ["migrate", "confirmResize", "servers", "migrations"])
def test_a_fault_at_any_call_delays_and_repeats_nothing(cloud, handed, sessions, call, kind):
    """Each call of the adapter may be the first of a new process: it remembers nothing."""
    for session in sessions:
        session.timeout = HANG
    server = cloud.boot("n1", RED)
    cloud.faults.append(Fault(kind, call, times=3))
    failures = 0
    for _ in range(20):
        try:
            if handed.move_servers(MOVES) == MoveProgress():
                break
        except Unavailable:
            failures += 1
    assert failures
    assert places(cloud) == {server: "n3"}
    done = [m.status for m in cloud.migrations]
    assert done == ["confirmed"], "migrated once"


def test_a_server_that_breaks_is_told_and_not_touched_again(cloud, handed):
    broken, well = cloud.boot("n1", RED), cloud.boot("n2", RED)
    cloud.broken.add(broken)
    handed.move_servers(MOVES)
    moved_on = False
    for _ in range(2):
        cloud.calls.clear()
        progress = handed.move_servers(MOVES)
        assert progress.stuck == (f"server {broken} from n1 to n3 is in error: it broke",)
        assert writes(cloud) == ([] if moved_on else [("confirmResize", well)])
        moved_on = True
    assert places(cloud)[well] == "n4"
    assert handed.occupants(["n1", "n2"]) == [], "the error alone holds the step"
    assert handed.move_servers(BACK).stuck == (f"server {broken} on n3 is in error: it broke",)


def test_a_disabled_target_is_tried_again(cloud, handed):
    server = cloud.boot("n1", RED)
    cloud.disabled.add("n3")
    handed.move_servers(MOVES)
    (told,) = handed.move_servers(MOVES).under_way
    assert told.startswith(f"server {server} on n1, whose last migration to n3 failed")
    assert places(cloud) == {server: "n1"}
    cloud.disabled.clear()
    assert ended(handed) == [f"server {server} from n1 to n3"]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (("ERROR", None), "is in error: it broke"),
        (("PAUSED", None), "is PAUSED; start or stop it"),
        (("VERIFY_RESIZE", None), "its migration or resize has to be confirmed or reverted"),
    ],
)
def test_what_cannot_be_migrated_is_told(cloud, handed, state, told):
    stuck, free = sorted(cloud.boot("n1", RED) for _ in range(2))
    cloud.states[stuck] = state
    handed.move_servers(MOVES)
    for _ in range(3):
        progress = handed.move_servers(MOVES)
        assert any(text.startswith(f"server {stuck} on n1") for text in progress.stuck)
        assert any(told in text for text in progress.stuck)
    assert places(cloud) == {stuck: "n1", free: "n3"}


def test_servers_of_others_and_resizes_of_the_owner_are_left_alone(cloud, handed):
    stranger, resized = cloud.boot("n1", BLUE), cloud.boot("n3", RED)
    cloud.migrations.append(Migration(resized, "n1", "n3", "resize", "finished"))
    cloud.states[resized] = ("VERIFY_RESIZE", None)
    progress = handed.move_servers(MOVES)
    assert progress.stuck == (
        f"server {resized} from n1 to n3: its owner has to confirm or revert its resize",
        f"server {stranger} on n1 belongs to another project",
    )
    inside = cloud.boot("n4", RED)  # resized between other hosts: not of this move
    cloud.migrations.append(Migration(inside, "n9", "n4", "resize", "finished"))
    cloud.states[inside] = ("VERIFY_RESIZE", None)
    assert handed.move_servers(MOVES) == progress
    assert writes(cloud) == []


@pytest.mark.parametrize("confirmed", [False, True])
def test_when_the_change_turns_back_servers_go_back(cloud, handed, confirmed):
    server = cloud.boot("n1", RED)
    handed.move_servers(MOVES)
    if confirmed:
        handed.move_servers(MOVES)
    handed.hand_over(Handover("a1", RED, ("n1", "n2")))
    ended(handed, BACK)
    assert places(cloud) == {server: "n1"}
    assert [m.status for m in cloud.migrations] == (
        ["confirmed", "confirmed"] if confirmed else ["reverted"]
    )


def test_running_servers_go_live_where_their_ports_can(cloud, handed):
    running, paused, off = (cloud.boot(host, RED) for host in ("n1", "n2", "n2"))
    cloud.states[paused], cloud.states[off] = ("PAUSED", None), ("SHUTOFF", None)
    live = ServerMoves("a1", RED, MOVES.targets, live=True)
    ended(handed, live)
    assert places(cloud) == {running: "n3", paused: "n4", off: "n4"}
    kinds = {m.server: m.kind for m in cloud.migrations}
    assert kinds == {
        running: "live-migration",
        paused: "live-migration",
        off: "migration",
    }


@pytest.fixture
def dead(cloud, handed):
    """Three servers of the allocation on n1, whose host dies; an administrator forces it down."""
    servers = [cloud.boot("n1", RED) for _ in range(3)]
    cloud.on_volumes.update(servers)
    cloud.local = {"ephemeral": 0, "swap": 0}
    cloud.dead.add("n1")
    cloud.forced_down.add("n1")
    return servers


def test_servers_of_a_dead_host_are_evacuated_all_at_once(cloud, handed, dead):
    assert len(handed.move_servers(MOVES).under_way) == 3
    assert handed.move_servers(MOVES) == MoveProgress()
    assert set(places(cloud).values()) == {"n3"}
    assert {m.status for m in cloud.migrations} == {"done"}
    assert {call for call, _ in writes(cloud)} == {"evacuate"}


def test_room_that_a_dead_host_keeps_holds_its_owner_but_lets_nobody_in(cloud, handed, dead):
    ended(handed)
    assert handed.occupants(["n1"]) == []
    cloud.boot("n2", RED)
    assert {o.host for o in handed.occupants(["n1", "n2"])} == {"n2"}
    with pytest.raises(HostsBusy, match="n1 runs"):
        handed.hand_over(Handover("a2", BLUE, ("n1",)))
    cloud.up_again("n1")
    handed.hand_over(Handover("a2", BLUE, ("n1",)))


def test_a_host_that_is_up_again_counts_with_the_room_that_it_has_not_given_back(
    cloud, handed, dead
):
    ended(handed)
    cloud.dead.clear()
    cloud.forced_down.clear()
    assert len(handed.occupants(["n1"])) == 3


def test_a_host_that_only_seems_dead_is_not_evacuated(cloud, handed, dead):
    cloud.forced_down.clear()
    for _ in range(2):
        told = handed.move_servers(MOVES).stuck
        assert all("compute service set --down n1 nova-compute" in text for text in told)
    assert len(told) == 3
    assert writes(cloud) == []
    assert len(handed.occupants(["n1"])) == 3


@pytest.mark.parametrize("shared", [False, True])
def test_local_disks_are_not_lost(cloud, handed, dead, server, tmp_path, shared):
    cloud.local = {"ephemeral": 7, "swap": 0}
    compute = connect(server, tmp_path, compute_options=[f"shared_disks = {shared}"])
    progress = compute.move_servers(MOVES)
    assert [len(progress.under_way), len(progress.stuck)] == ([3, 0] if shared else [0, 3])
    assert all("would lose its 7 GB of local disks" in text for text in progress.stuck)
    assert len(writes(cloud)) == (3 if shared else 0)


def test_an_evacuation_that_fails_is_told_and_tried_again(cloud, handed, dead):
    cloud.disabled.add("n3")
    handed.move_servers(MOVES)
    told = handed.move_servers(MOVES).under_way
    assert all("whose last migration to n3 failed" in text for text in told)
    assert set(places(cloud).values()) == {"n1"}
    cloud.disabled.clear()
    ended(handed)
    assert set(places(cloud).values()) == {"n3"}


@pytest.mark.parametrize("kind", ["refused", "lost", "late", 500, 503])
@pytest.mark.parametrize("call", ["evacuate", "services", "migrations"])
def test_a_fault_during_an_evacuation_repeats_nothing(cloud, handed, dead, sessions, call, kind):
    for session in sessions:
        session.timeout = HANG
    cloud.faults.append(Fault(kind, call, times=3))
    for _ in range(20):
        try:
            if handed.move_servers(MOVES) == MoveProgress() and not handed.occupants(["n1"]):
                break
        except Unavailable:
            continue
    assert set(places(cloud).values()) == {"n3"}
    assert sorted(m.server for m in cloud.migrations) == sorted(dead), "each once"


def test_without_the_right_the_error_names_it(cloud, handed):
    cloud.boot("n1", RED)
    cloud.faults.append(Fault(403, "migrate"))
    with pytest.raises(Forbidden, match="os_compute_api:os-migrate-server:migrate:host"):
        handed.move_servers(MOVES)


@pytest.mark.parametrize("kind", ["garbage", "odd"])
def test_an_answer_without_sense_moves_nothing(cloud, handed, kind):
    cloud.boot("n1", RED)
    cloud.faults.append(Fault(kind, "servers", times=3))
    with pytest.raises(LaasError):
        handed.move_servers(MOVES)
    assert writes(cloud) == []


def test_migrations_without_hosts_are_not_understood(cloud, handed, server, tmp_path):
    """Nova hides hosts from a user without os-migrations:index:host."""
    moved = cloud.boot("n1", RED)
    handed.move_servers(MOVES)
    cloud.migrations[0].source = None
    with pytest.raises(Unavailable, match="index:host is needed"):
        connect(server, tmp_path).move_servers(MOVES)
    assert places(cloud) == {moved: "n3"}


def test_the_load_of_hosts_is_their_servers_and_local_disks(cloud, handed):
    """By the flavor of the stand-in 20 GB, 5 GB ephemeral and 512 MB of swap."""
    first = cloud.boot("n1", BLUE)
    cloud.boot("n3", BLUE)
    assert handed.load(["n1", "n2"]) == ServerLoad(1, 26)
    cloud.on_volumes.add(first)
    assert handed.load(["n1", "n3"]) == ServerLoad(2, 6 + 26)
