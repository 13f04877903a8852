# SPDX-License-Identifier: Apache-2.0

"""The local subnet-manager port: when a generation counts as applied, else the reason."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from laas_service.domain.errors import InvalidInput, Unavailable
from laas_service.messages import Applied, ConfirmedBy, Running
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm, Process
from opensm_writer.render import Settings
from tests.unit.opensm_writer.states import ONE, POD, TINY, WIDE, state


def test_without_opensm_an_undamaged_set_is_applied(tmp_path):
    manager = LocalSubnetManager(tmp_path)
    assert manager.applied("tiny") == Applied(None, "no set has been published yet")
    manager.publish(state(generation=3))
    assert manager.applied("tiny") == Applied(3, by=ConfirmedBy.NOBODY)
    assert LocalSubnetManager(tmp_path, attended=True).applied("tiny").by is ConfirmedBy.FILES
    (tmp_path / "tiny" / "current" / "guid2lid").write_text("")
    assert manager.applied("tiny").problem == "files differ from the manifest: guid2lid"
    manager.publish(state(generation=3))
    assert manager.applied("tiny") == Applied(3, by=ConfirmedBy.NOBODY)
    assert LocalSubnetManager(tmp_path, attended=True).applied("tiny").by is ConfirmedBy.FILES
    (tmp_path / "tiny" / "current" / "manifest.json").write_text("nonsense")
    assert "not a manifest" in str(manager.applied("tiny").problem)


def test_a_changed_file_of_the_same_size_and_time_is_noticed(tmp_path):
    manager = LocalSubnetManager(tmp_path)
    manager.publish(state())
    assert manager.applied("tiny").problem is None
    file = tmp_path / "tiny" / "current" / "guid2lid"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_text(file.read_text().swapcase())
    os.utime(file, ns=times)
    assert manager.applied("tiny").problem == "files differ from the manifest: guid2lid"


def test_with_opensm_only_tables_that_are_read_back_are_applied(tmp_path):
    dump, reloaded = tmp_path / "dump", tmp_path / "reloaded"
    opensm = OpenSm(
        reload_command=("touch", str(reloaded)), dump_file=dump, cache_directory=tmp_path
    )
    manager = LocalSubnetManager(tmp_path / "files", opensm, patience=0)
    manager.publish(state([POD], generation=1))
    assert reloaded.exists()
    assert (tmp_path / "guid2lid").read_text().count("\n\n") == len(TINY.inventory.lids)
    lfts = tmp_path / "files" / "tiny" / "current" / "lfts"
    assert "No such file" in str(manager.applied("tiny").problem)
    dump.write_text(lfts.read_text())
    assert manager.applied("tiny") == Applied(1, by=ConfirmedBy.FILES)
    manager.publish(state([WIDE], generation=2))
    assert "switches differ" in str(manager.applied("tiny").problem)
    dump.write_text(lfts.read_text())
    assert manager.applied("tiny") == Applied(2, by=ConfirmedBy.FILES)
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
    applied = Applied(1, by=ConfirmedBy.SWITCHES, running=Running("file"))
    assert manager.applied("tiny") == applied
    manager.publish(state([], generation=2))
    assert manager.applied("tiny").problem == "OpenSM has not swept since the files changed"
    log.write_text("SUBNET UP\n")  # the log was truncated
    applied = Applied(2, by=ConfirmedBy.SWITCHES)
    assert manager.applied("tiny") == applied


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
    assert manager.applied("tiny") == Applied(7, by=ConfirmedBy.FILES)
    assert len(waited) == 3
    dump.unlink()
    assert manager.applied("tiny").generation is None
    assert len(waited) == 3


def test_tables_are_not_read_while_opensm_sweeps(tmp_path):
    log, reads = tmp_path / "osm.log", tmp_path / "reads"
    lfts = tmp_path / "files" / "tiny" / "current" / "lfts"
    log.write_text("")
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 9:
            assert not reads.exists()
            log.write_text("SUBNET UP\n")

    opensm = OpenSm(dump_command=("sh", "-c", f"echo >>{reads}; cat {lfts}"), log_file=log)
    manager = LocalSubnetManager(
        tmp_path / "files", opensm, sleep=sleep, clock=lambda: sum(waited), patience=60
    )
    manager.publish(state())
    assert manager.applied("tiny") == Applied(7, by=ConfirmedBy.SWITCHES)
    assert reads.read_text() == "\n"
    assert max(waited) <= 0.5  # only the log is read meanwhile


def test_a_dump_from_a_command(tmp_path):
    manager = LocalSubnetManager(
        tmp_path, OpenSm(dump_command=("cat", str(tmp_path / "tiny" / "current" / "lfts")))
    )
    manager.publish(state())
    assert manager.applied("tiny") == Applied(7, by=ConfirmedBy.SWITCHES)


@pytest.mark.parametrize("once", ["exit 255", "awk '/Unicast/ {n++} n > 1' $0; exit"])
def test_one_lost_packet_does_not_fail_the_comparison(tmp_path, once):
    """The first dump fails, or leaves out a switch; the second one counts."""
    lfts, first = tmp_path / "tiny" / "current" / "lfts", tmp_path / "first"
    script = f"if mkdir $1; then {once}; fi; cat $0"
    opensm = OpenSm(dump_command=("sh", "-c", script, str(lfts), str(first)))
    manager = LocalSubnetManager(tmp_path, opensm, patience=0)
    manager.publish(state())
    assert manager.applied("tiny") == Applied(7, by=ConfirmedBy.SWITCHES)
    assert first.exists()


HALF_READ = """\
awk '/Unicast/ {n++} n == 1 && /portguid/ {$2 = "000"} 1' $0
guid=$(awk '/Unicast/ && !n++ {for (i = 1; i <= NF; i++) if ($i == "guid") print $(i + 1)}' $0)
echo "ibwarn: [7] mad_rpc: _do_madrpc failed; dport (DR path slid 0; dlid 0; 0,1,33)" >&2
echo "SubnGet(LFT) failed on switch 'a Node GUID 0x7 b' DR path slid 0; dlid 0; 0,1,33 \
Node GUID $guid SMA LID 648; MAD status 0x0 AM 0x9" >&2
"""
"""What ``dump_lfts`` does when a switch falls silent while its table is read."""


def test_a_table_that_was_read_in_part_is_read_again(tmp_path):
    lfts, first = tmp_path / "tiny" / "current" / "lfts", tmp_path / "first"
    script = f"if mkdir $1; then {HALF_READ} exit; fi; cat $0"
    opensm = OpenSm(dump_command=("sh", "-c", script, str(lfts), str(first)))
    manager = LocalSubnetManager(tmp_path, opensm, patience=0)
    manager.publish(state())
    assert manager.applied("tiny") == Applied(7, by=ConfirmedBy.SWITCHES)
    assert first.exists()


def test_a_table_that_cannot_be_read_entirely_is_not_compared(tmp_path):
    lfts = tmp_path / "tiny" / "current" / "lfts"
    opensm = OpenSm(dump_command=("sh", "-c", HALF_READ, str(lfts)))
    manager = LocalSubnetManager(tmp_path, opensm, patience=0)
    manager.publish(state())
    assert "was not seen" in str(manager.applied("tiny").problem)


def test_a_missing_switch_is_a_difference(tmp_path):
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


def test_another_process_is_not_signalled(tmp_path):
    pid_file = tmp_path / "opensm.pid"
    pid_file.write_text(str(os.getpid()))  # a SIGHUP would end the test process
    manager = LocalSubnetManager(tmp_path / "files", OpenSm(pid_file=pid_file))
    with pytest.raises(Unavailable, match="not an OpenSM, or has ended"):
        manager.publish(state())
    assert "OpenSM does not run" in str(manager.applied("tiny").problem)


def test_a_directory_that_cannot_be_written_is_unavailable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable):
        LocalSubnetManager(tmp_path / "file").publish(state())


def test_chains_cannot_be_compared_with_a_file(tmp_path):
    with pytest.raises(InvalidInput, match="reading back needs 'file'"):
        LocalSubnetManager(Settings(str(tmp_path), enforcement="chains"), OpenSm())


def test_a_stopped_opensm_has_applied_nothing(tmp_path):
    lfts = tmp_path / "files" / "tiny" / "current" / "lfts"

    class Stopped(OpenSm):
        def process(self):
            return Process(1, "1-1", stopped=True)

    opensm = Stopped(dump_command=("cat", str(lfts)), reload_command=("true",))
    manager = LocalSubnetManager(tmp_path / "files", opensm, patience=0)
    manager.publish(state())
    assert manager.applied("tiny") == Applied(None, "the process of OpenSM is stopped")


def test_a_standby_has_applied_nothing(tmp_path):
    lfts, log = tmp_path / "files" / "tiny" / "current" / "lfts", tmp_path / "osm.log"
    opensm = OpenSm(dump_command=("cat", str(lfts)), log_file=log)
    manager = LocalSubnetManager(tmp_path / "files", opensm, patience=0)
    manager.publish(state())
    log.write_text("SUBNET UP\n")
    assert manager.applied("tiny") == Applied(7, by=ConfirmedBy.SWITCHES)
    with log.open("a") as more:
        more.write("Nov 22 06:53:54 160759 [DEE186C0] 0x80 -> Entering STANDBY state\n")
    assert manager.applied("tiny").problem == "another subnet manager is the master"


def test_the_generation_in_the_switches_is_named(tmp_path):
    dump, lfts = tmp_path / "dump", tmp_path / "files" / "tiny" / "current" / "lfts"
    manager = LocalSubnetManager(tmp_path / "files", OpenSm(dump_file=dump), patience=0)
    manager.publish(state([POD], generation=1))
    dump.write_text(lfts.read_text())
    manager.publish(state([POD, WIDE], generation=2))
    problem = str(manager.applied("tiny").problem)
    assert problem.startswith("the switches have generation 1, not 2: ")
