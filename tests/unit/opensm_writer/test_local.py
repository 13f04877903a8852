# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port: what counts as applied, and what the answer says when it does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from laas_service.domain.errors import InvalidInput, Unavailable
from laas_service.messages import Applied
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm, difference, engine_problem
from tests.unit.opensm_writer.states import ONE, POD, TINY, WIDE, state


def test_without_opensm_a_whole_set_is_applied(tmp_path):
    manager = LocalSubnetManager(tmp_path)
    assert manager.applied("tiny") == Applied(None, "nothing has been published yet")
    manager.publish(state(generation=3))
    assert manager.applied("tiny") == Applied(3)
    (tmp_path / "tiny" / "current" / "guid2lid").write_text("")
    assert manager.applied("tiny").problem == "files differ from the manifest: guid2lid"
    manager.publish(state(generation=3))
    assert manager.applied("tiny") == Applied(3)
    (tmp_path / "tiny" / "current" / "manifest.json").write_text("nonsense")
    assert "not a manifest" in str(manager.applied("tiny").problem)


def test_a_changed_file_of_the_same_size_and_time_is_seen(tmp_path):
    manager = LocalSubnetManager(tmp_path)
    manager.publish(state())
    assert manager.applied("tiny").problem is None
    file = tmp_path / "tiny" / "current" / "guid2lid"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_text(file.read_text().swapcase())
    os.utime(file, ns=times)
    assert manager.applied("tiny").problem == "files differ from the manifest: guid2lid"


def test_with_opensm_only_what_reads_back_is_applied(tmp_path):
    dump, told = tmp_path / "dump", tmp_path / "told"
    opensm = OpenSm(reload_command=("touch", str(told)), dump_file=dump, cache_directory=tmp_path)
    manager = LocalSubnetManager(tmp_path / "files", opensm, patience=0)
    manager.publish(state([POD], generation=1))
    assert told.exists()
    assert (tmp_path / "guid2lid").read_text().count("\n\n") == len(TINY.inventory.lids)
    lfts = tmp_path / "files" / "tiny" / "current" / "lfts"
    assert "No such file" in str(manager.applied("tiny").problem)
    dump.write_text(lfts.read_text())
    assert manager.applied("tiny") == Applied(1)
    manager.publish(state([WIDE], generation=2))
    assert "switches differ" in str(manager.applied("tiny").problem)
    dump.write_text(lfts.read_text())
    assert manager.applied("tiny") == Applied(2)
    dump.write_text(dump.read_text().partition("Unicast lids [0-80] of switch Lid 77")[0])
    assert "was not seen" in str(manager.applied("tiny").problem)


def test_a_change_of_partitions_alone_is_applied_when_opensm_has_swept(tmp_path):
    log, lfts = tmp_path / "osm.log", tmp_path / "files" / "tiny" / "current" / "lfts"
    log.write_text("file tables configured on all switches\nSUBNET UP\n")
    opensm = OpenSm(dump_command=("cat", str(lfts)), log_file=log)
    manager = LocalSubnetManager(tmp_path / "files", opensm, patience=0)
    manager.publish(state([ONE], generation=1))
    assert manager.applied("tiny").problem == "OpenSM has not swept since the files changed"
    with log.open("a") as more:
        more.write("file tables configured on all switches\n")
    assert manager.applied("tiny").generation is None
    with log.open("a") as more:
        more.write("SUBNET UP\n")
    assert manager.applied("tiny") == Applied(1)
    manager.publish(state([], generation=2))
    assert manager.applied("tiny").problem == "OpenSM has not swept since the files changed"
    log.write_text("SUBNET UP\n")  # the log was cut
    assert manager.applied("tiny") == Applied(2)


def test_it_waits_for_the_sweep_right_after_publishing(tmp_path):
    dump, lfts = tmp_path / "dump", tmp_path / "files" / "tiny" / "current" / "lfts"
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            dump.write_text(lfts.read_text())

    opensm = OpenSm(dump_file=dump)
    manager = LocalSubnetManager(
        tmp_path / "files", opensm, sleep=sleep, clock=lambda: sum(waited), patience=5
    )
    manager.publish(state())
    assert manager.applied("tiny") == Applied(7)
    assert len(waited) == 3
    dump.unlink()
    assert manager.applied("tiny").generation is None
    assert len(waited) == 3


def test_a_dump_from_a_command(tmp_path):
    manager = LocalSubnetManager(
        tmp_path, OpenSm(dump_command=("cat", str(tmp_path / "tiny" / "current" / "lfts")))
    )
    manager.publish(state())
    assert manager.applied("tiny") == Applied(7)


@pytest.mark.parametrize("once", ["exit 255", "awk '/Unicast/ {n++} n > 1' $0; exit"])
def test_a_lost_packet_is_no_verdict(tmp_path, once):
    """The first dump fails, or leaves out a switch; the second one tells."""
    lfts, first = tmp_path / "tiny" / "current" / "lfts", tmp_path / "first"
    script = f"if mkdir $1; then {once}; fi; cat $0"
    opensm = OpenSm(dump_command=("sh", "-c", script, str(lfts), str(first)))
    manager = LocalSubnetManager(tmp_path, opensm, patience=0)
    manager.publish(state())
    assert manager.applied("tiny") == Applied(7)
    assert first.exists()


def test_a_switch_that_stays_away_is_a_difference(tmp_path):
    lfts = tmp_path / "tiny" / "current" / "lfts"
    opensm = OpenSm(dump_command=("awk", "/Unicast/ {n++} n > 1", str(lfts)))
    manager = LocalSubnetManager(tmp_path, opensm, patience=0)
    manager.publish(state())
    assert "was not seen" in str(manager.applied("tiny").problem)


@pytest.mark.parametrize(
    ("opensm", "problem"),
    [
        (OpenSm(dump_command=(sys.executable, "-c", "exit('no device')")), "failed with 1: no dev"),
        (OpenSm(dump_command=("/no/such/tool",)), "/no/such/tool"),
        (OpenSm(dump_command=("sleep", "9"), timeout=0.01), "timed out"),
        (OpenSm(dump_command=("sh", "-c", "sleep 60; true"), timeout=0.01), "timed out"),
        (OpenSm(), "no way to read tables back"),
        (OpenSm(dump_command=("true",), pid_file=Path("/no/such/file")), "OpenSM does not run"),
    ],
)
def test_why_nothing_is_applied(tmp_path, opensm, problem):
    LocalSubnetManager(tmp_path).publish(state())
    applied = LocalSubnetManager(tmp_path, opensm, patience=0).applied("tiny")
    assert applied.generation is None
    assert problem in str(applied.problem)


def test_only_an_opensm_is_ever_signalled(tmp_path):
    pid_file = tmp_path / "opensm.pid"
    pid_file.write_text(str(os.getpid()))  # a SIGHUP would end this very test
    manager = LocalSubnetManager(tmp_path / "files", OpenSm(pid_file=pid_file))
    with pytest.raises(Unavailable, match="another one, or has ended"):
        manager.publish(state())
    assert "OpenSM does not run" in str(manager.applied("tiny").problem)


def test_a_directory_that_cannot_be_written_is_unavailable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable):
        LocalSubnetManager(tmp_path / "file").publish(state())


def test_chains_cannot_be_compared_with_a_file(tmp_path):
    with pytest.raises(InvalidInput, match="reading back needs 'file'"):
        LocalSubnetManager(tmp_path, OpenSm(), enforcement="chains")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], None),
        (["file tables configured on all switches", "SUBNET UP"], None),
        (["file tables configured on all switches"], "not finished"),
        (["minhop tables configured on all switches", "SUBNET UP"], "routed with minhop"),
        (["No routing engine able to successfully configure routing", "SUBNET UP"], "old ones"),
        (
            [
                "minhop tables configured on all switches",
                "SUBNET UP",
                "file tables configured on all switches",
                "SUBNET UP",
            ],
            None,
        ),
    ],
)
def test_what_the_log_says(lines, problem):
    found = engine_problem(f"Nov 21 08:39:56 418978 [27148740] 0x02 -> {line}" for line in lines)
    assert found is None if problem is None else problem in str(found)


def test_differences_name_a_switch_a_lid_and_the_ports():
    meant = {1: bytes([255, 1, 2]), 2: bytes([255, 1])}
    assert difference(meant, dict(meant)) is None
    assert "0x0000000000000001 sends LID 0x0002 to port 3, not to port 2" in str(
        difference(meant, meant | {1: bytes([255, 1, 3])})
    )
    assert "LID 0x0001 to no port, not to port 1" in str(difference(meant, meant | {2: b""}))
    assert "1 of 2 switches differ: 0x0000000000000002 was not seen" in str(
        difference(meant, {1: meant[1]})
    )
    assert "not in the fabric's description" in str(difference(meant, meant | {3: b"\0"}))


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ((), False),
        (("DISCOVERING", "MASTER"), False),
        (("DISCOVERING", "STANDBY"), True),
        (("MASTER", "NOT-ACTIVE"), True),
        (("STANDBY", "DISCOVERING", "MASTER"), False),
        (("STANDBY", "DISCOVERING"), False),
    ],
)
def test_who_is_not_the_master_says_so_itself(tmp_path, states, found):
    log = tmp_path / "osm.log"
    opensm = OpenSm(log_file=log, dump_file=tmp_path / "dump")
    assert not opensm.stands_by()
    log.write_text(
        "".join(
            f"Nov 22 06:53:54 160759 [DEE186C0] 0x80 -> Entering {state} state\n\n"
            "Nov 22 06:53:55 160759 [DEE186C0] 0x02 -> node 'is Entering STANDBY state\n"
            for state in states
        )
    )
    assert opensm.stands_by() is found
    assert (opensm.problem({}) == "another subnet manager is the master") is found
