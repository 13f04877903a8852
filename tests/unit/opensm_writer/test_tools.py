# SPDX-License-Identifier: Apache-2.0

"""Which tools and which OpenSM of a machine are found, and which count as absent."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from opensm_writer import tools
from opensm_writer.opensm import OpenSm
from opensm_writer.tools import OpenSmFinder, Tools, Whereabouts, find
from tests.scripts import executable

TOOLS = ("dump_lfts", "iblinkinfo", "perfquery", "smpquery", "laas-opensm-keys")


def put(directory: Path, *names: str, does: str = "exit 0") -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        executable(directory / name, f"#!/bin/sh\n{does}\n")
    return directory


def test_tools_are_found_in_the_path(tmp_path, monkeypatch):
    there = put(tmp_path / "bin", *TOOLS)
    monkeypatch.setenv("PATH", str(there))  # an activated environment has commands of ours, too
    found = find()
    assert found.dump == (f"{there}/dump_lfts", "-n")
    assert found.links == (f"{there}/iblinkinfo", "-l", "-o", "16", "-t", "200")
    assert found.counters == (f"{there}/perfquery", "-t", "200")
    assert found.keys == (f"{there}/laas-opensm-keys",)
    assert found.blocks == (str(Path(sys.executable).parent / "laas-opensm-tables"),)
    assert not found.problem


def test_a_directory_stands_for_the_usual_places(tmp_path):
    there = put(tmp_path / "bin", "smpquery", "dump_lfts")
    found = find(str(there))
    assert found.dump
    assert not found.links
    assert not found.counters


def test_none_is_looked_for_if_none_is_wanted(tmp_path, monkeypatch):
    there = put(tmp_path / "bin", *TOOLS, does=f"touch {tmp_path}/asked")
    monkeypatch.setenv("PATH", str(there), prepend=os.pathsep)
    assert find("none") == Tools()
    assert not (tmp_path / "asked").exists()


def test_a_missing_tool_is_named(tmp_path, caplog):
    assert "smpquery" in find(str(put(tmp_path / "empty"))).problem
    caplog.set_level(logging.WARNING)
    assert find(str(put(tmp_path / "bin", "smpquery", "dump_lfts", "perfquery"))).counters
    assert "iblinkinfo not found" in caplog.text


def test_tools_without_a_port_count_as_absent(tmp_path):
    there = put(tmp_path / "bin", *TOOLS, does="echo 'no UMAD port' >&2; exit 1")
    found = find(str(there))
    assert found == Tools(problem=found.problem)
    assert f"{there}/smpquery cannot ask: no UMAD port; run where" in found.problem


def test_nothing_waits_for_a_tool_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "ASK_LIMIT", 0.2)
    there = put(tmp_path / "bin", *TOOLS, does="exec sleep 60")
    assert "no answer after 0.2 seconds" in find(str(there)).problem


def test_one_lost_answer_does_not_make_a_tool_absent(tmp_path):
    there = put(tmp_path / "bin", "dump_lfts")
    once = f"test -e {tmp_path}/asked || {{ touch {tmp_path}/asked; exit 255; }}"
    assert find(str(put(there, "smpquery", does=once))).dump


class Machine:
    """The processes of a machine, as Linux shows them."""

    def __init__(self, home: Path) -> None:
        self.home, self.now = home, 0.0
        self.directory = home / "opensm"
        self.finder = OpenSmFinder(self.directory, home / "proc", lambda: self.now)
        (home / "proc").mkdir()

    def runs(self, pid: int, *words: str, name: str = "opensm", **variables: str) -> None:
        there = self.home / "proc" / str(pid)
        there.mkdir()
        (there / "comm").write_text(f"{name}\n")
        (there / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (there / "environ").write_text("".join(f"{n}={v}\0" for n, v in variables.items()))
        (there / "cwd").symlink_to(self.home)

    def ends(self, pid: int) -> None:
        for file in (there := self.home / "proc" / str(pid)).iterdir():
            file.unlink()
        there.rmdir()


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    for name in ("osm.log", "cache"):
        (tmp_path / name).mkdir() if name == "cache" else (tmp_path / name).touch()
    return made


@pytest.mark.parametrize("log", [("-f", "osm.log"), ("--log_file=osm.log",), ("-fosm.log",)])
def test_opensm_is_found_by_the_files_that_it_reads(machine, log):
    machine.runs(7, "opensm", "-F", "/etc/other.conf")
    machine.runs(8, "cat", f"{machine.directory}/f/current/opensm.conf", name="cat")
    configuration = f"{machine.directory}/f/current/opensm.conf"
    own = os.getpid()
    machine.runs(own, "opensm", "-F", configuration, *log, OSM_CACHE_DIR=f"{machine.home}/cache")
    assert machine.finder.found() == Whereabouts(
        own, machine.home / "osm.log", machine.home / "cache", takes_signals=True
    )


def test_opensm_is_found_by_its_configuration(machine):
    file = machine.home / "site.conf"
    file.write_text(
        f"log_file {machine.home}/osm.log\nlfts_file {machine.directory}/f/current/lfts\n"
    )
    machine.runs(os.getpid(), "opensm", "--config", "site.conf")
    found = machine.finder.found()
    assert found is not None
    assert found.log == machine.home / "osm.log"


def test_of_several_none_is_taken(machine, caplog):
    for pid in (8, 9):
        machine.runs(pid, "opensm", "-F", f"{machine.directory}/f{pid}/current/opensm.conf")
    for machine.now in range(60):
        assert machine.finder.found() is None
    assert caplog.text.count("several OpenSMs read") == 1


def test_opensm_that_starts_later_is_found_and_one_that_ended_is_dead(machine):
    opensm = OpenSm(finder=machine.finder)
    assert opensm.log is None
    assert opensm.process() is None
    machine.runs(1 << 30, "opensm", "-F", f"{machine.directory}/f/opensm.conf", "-f", "osm.log")
    assert opensm.log is None  # looked a moment ago
    machine.now += tools.AGAIN
    assert opensm.log == machine.home / "osm.log"
    machine.ends(1 << 30)
    machine.now += tools.AGAIN
    assert opensm.log == machine.home / "osm.log"
    machine.runs(1 << 29, "opensm", "-F", f"{machine.directory}/f/opensm.conf", "-f", "cache")
    machine.now += tools.AGAIN
    assert opensm.log == machine.home / "cache"


def test_a_process_of_another_user_is_told_once(machine, caplog):
    caplog.set_level(logging.WARNING)
    machine.runs(1 << 30, "opensm", "-F", f"{machine.directory}/f/opensm.conf")  # no such process
    for machine.now in range(60):
        found = machine.finder.found()
        assert found is not None
        assert not found.takes_signals
    assert caplog.text.count("takes no signals") == 1
