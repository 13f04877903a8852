# SPDX-License-Identifier: Apache-2.0

"""The supervisor, with files and an idle process in place of OpenSM."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace

import pytest

from laas_service.domain.errors import Unavailable
from laas_service.messages import Condition
from opensm_writer import reload
from opensm_writer.opensm import OpenSm
from opensm_writer.supervisor import Supervisor
from tests.offers import Offer
from tests.scripts import executable
from tests.servers.leash import spawn
from tests.unit.opensm_writer.states import ONE, POD, WIDE, state
from tests.waiting import eventually

SWEPT = "file tables configured on all switches\nSUBNET UP\n"


class Site:
    """A process named opensm that does nothing; the test acts as OpenSM would."""

    def __init__(self, directory):
        self.directory, self.time = directory, 0.0
        self.log, self.dump = directory / "osm.log", directory / "dump"
        self.pid_file, self.reloaded = directory / "pid", directory / "reloaded"
        self.log.write_text("")
        self.home = directory / "here" / "tiny"
        self.opensm = OpenSm(
            pid_file=self.pid_file,
            reload_command=("touch", str(self.reloaded)),
            dump_file=self.dump,
            log_file=self.log,
            cache_directory=directory,
        )
        self.generation = 0
        self.supervisor = self.restart_agent()

    def restart_agent(self):
        """A new supervisor, as after a restart of the agent."""
        self.supervisor = Supervisor(
            self.home.parent, "tiny", self.opensm, timeout=60, clock=lambda: self.time
        )
        return self.supervisor

    def start(self):
        program = self.directory / "opensm"
        if not program.exists():
            program.symlink_to(shutil.which("sleep") or "/bin/sleep")
        self.process = spawn([str(program), "3000"])
        end = time.monotonic() + 60
        while f"{program.name}\n" not in self.status():
            assert time.monotonic() < end
        self.pid_file.write_text(str(self.process.pid))

    def status(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return file.read()

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def offer(self, tenants=(POD, ONE, WIDE)):
        self.generation += 1
        return Offer(state(tenants, self.generation), self.directory / "there", self.home)

    def publish(self, tenants=(POD, ONE, WIDE)):
        self.supervisor.fetch_set(self.offer(tenants))
        assert not self.supervisor.refused

    def sweep(self):
        """Act as a sweep: the dump gets the tables of the current set, the log an entry."""
        self.dump.write_text((self.home / "current" / "lfts").read_text())
        with self.log.open("a") as log:
            log.write(SWEPT)

    def observe(self, active=True):
        return self.supervisor.observe(active)

    def confirmed(self):
        """Reload, sweep, and check that the set is applied."""
        self.supervisor.reload()
        self.sweep()
        self.time += 1
        seen = self.observe()
        assert (seen.condition, seen.generation) == (Condition.APPLIED, self.generation)


@pytest.fixture
def site(tmp_path):
    here = Site(tmp_path)
    here.start()
    yield here
    if here.process.poll() is None:
        here.stop()


def test_from_nothing_to_applied(site):
    assert site.observe().condition is Condition.STARTING
    assert site.supervisor.published is None
    assert not site.supervisor.needs_reload()
    site.publish()
    assert site.supervisor.published == 1
    assert site.supervisor.needs_reload()
    site.supervisor.reload()
    assert site.reloaded.exists()
    assert not site.supervisor.needs_reload()
    assert (site.directory / "guid2lid").read_text()
    assert site.observe().condition is Condition.SWEEPING
    site.sweep()
    seen = site.observe()
    assert (seen.condition, seen.generation, seen.published) == (Condition.APPLIED, 1, 1)


def test_dead_then_restarted(site):
    site.publish()
    site.confirmed()
    site.stop()
    seen = site.observe()
    assert seen.condition is Condition.DEAD
    assert "does not run" in seen.detail
    assert not site.supervisor.needs_reload()
    site.start()
    seen = site.observe()
    assert (seen.condition, seen.generation) == (Condition.RESTARTED, None)
    assert site.observe(active=False).condition is Condition.APPLIED  # a standby agent ignores it
    assert site.observe().condition is Condition.RESTARTED
    assert site.supervisor.needs_reload()
    site.supervisor.reload()
    assert site.observe().condition is Condition.RESTARTED  # until the set is confirmed
    site.sweep()
    assert site.observe().condition is Condition.APPLIED
    assert not site.supervisor.needs_reload()


def test_a_restart_noticed_during_a_reload_is_reported(site):
    site.publish([POD])
    site.confirmed()
    site.stop()
    site.start()
    site.publish([POD, WIDE])
    site.supervisor.reload()
    site.sweep()
    assert site.observe().condition is Condition.RESTARTED, "however quick it was"
    assert site.observe().condition is Condition.APPLIED


def test_a_second_reload_of_a_confirmed_set_keeps_it_applied(site):
    """This happens when an agent becomes active, or has not reached the service for a while."""
    site.publish()
    site.confirmed()
    site.supervisor.reload()
    assert site.observe().condition is Condition.APPLIED
    site.time += 61
    assert site.observe().condition is Condition.WEDGED
    site.sweep()
    assert site.observe().condition is Condition.APPLIED


def test_a_set_fetched_without_opensm_is_reloaded_after_its_start(site):
    site.publish([POD])
    site.confirmed()
    site.stop()
    (site.directory / "guid2lid").unlink()
    site.publish([POD, WIDE])
    assert site.supervisor.needs_reload()
    site.supervisor.reload()
    assert (site.directory / "guid2lid").exists()
    assert not site.supervisor.needs_reload()
    site.start()
    assert site.supervisor.needs_reload()
    site.confirmed()


def test_wedged_is_not_dead(site):
    site.publish()
    site.confirmed()
    os.kill(site.process.pid, signal.SIGSTOP)
    end = time.monotonic() + 60
    while "T (stopped)" not in site.status():
        assert time.monotonic() < end
    assert site.observe().condition is Condition.WEDGED
    assert not site.supervisor.needs_reload()
    os.kill(site.process.pid, signal.SIGCONT)
    while "T (stopped)" in site.status():
        assert time.monotonic() < end
    assert site.observe().condition is Condition.APPLIED


def test_wedged_when_it_does_not_sweep_in_time_and_until_it_does(site):
    site.publish()
    site.supervisor.reload()
    site.time += 59
    assert site.observe().condition is Condition.SWEEPING
    site.time += 2
    assert site.observe().condition is Condition.WEDGED
    assert site.supervisor.needs_reload()  # OpenSM may have lost the signal
    site.supervisor.reload()  # another reload changes nothing
    assert site.observe().condition is Condition.WEDGED
    assert not site.supervisor.needs_reload()
    site.time += 61
    assert site.supervisor.needs_reload()
    site.sweep()
    assert site.observe().condition is Condition.APPLIED


def test_an_earlier_set_loaded_by_hand_is_named(site):
    site.publish([POD])
    site.confirmed()
    first = site.dump.read_text()
    site.publish([POD, WIDE])
    site.confirmed()
    site.dump.write_text(first)
    seen = site.observe()
    assert (seen.condition, seen.generation, seen.published) == (Condition.OTHER_GENERATION, 1, 2)
    assert site.supervisor.needs_reload()
    site.supervisor.reload()
    site.sweep()  # with the tables that the switches have
    assert site.observe().condition is Condition.SWEEPING
    assert site.supervisor.needs_reload()
    site.confirmed()


def test_another_engine_differs_and_is_not_reloaded_repeatedly(site):
    site.publish()
    site.confirmed()
    site.dump.write_text(site.dump.read_text().replace(" 001 #", " 002 #", 1))
    seen = site.observe()
    assert seen.condition is Condition.DIFFERS
    assert "to port 2, not to port 1" in seen.detail
    for _ in range(2):  # with the tables that the switches have, then with those of the set
        assert site.supervisor.needs_reload()
        site.supervisor.reload()
        with site.log.open("a") as log:
            log.write("minhop tables configured on all switches\nSUBNET UP\n")
        seen = site.observe()
    assert (seen.condition, seen.detail) == (
        Condition.OTHER_ENGINE,
        "OpenSM routed with minhop, not file",
    )
    assert not site.supervisor.needs_reload()
    site.time += 61
    assert site.supervisor.needs_reload()


def test_blind(site):
    site.publish()
    site.confirmed()
    site.dump.unlink()
    seen = site.observe()
    assert seen.condition is Condition.BLIND
    assert "No such file" in seen.detail


def test_a_refused_set_is_reported_and_the_current_one_stays(site):
    site.publish([POD])
    site.confirmed()
    offer = site.offer([POD, WIDE])
    offer.drop("lfts")
    offer.files["lfts"] = b""
    site.supervisor.fetch_set(offer)
    assert site.supervisor.refused
    assert not site.supervisor.needs_reload()
    seen = site.observe()
    assert (seen.condition, seen.published) == (Condition.REFUSED, 1)
    assert "manifest.json, line 1" in seen.detail
    site.publish([POD, WIDE])
    site.confirmed()


def test_a_source_that_does_not_answer_is_not_a_refusal(site):
    class Away:
        def described(self):
            raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        site.supervisor.fetch_set(Away())
    assert not site.supervisor.refused


def test_another_fabrics_set_is_refused_if_switches_can_be_read(site):
    site.dump.write_text("Unicast lids [0-2] of switch Lid 2 guid 0x0000000000000001 ('x'):\n")
    site.supervisor.fetch_set(site.offer())
    assert site.observe().condition is Condition.REFUSED
    assert site.supervisor.published is None


def test_a_damaged_set_counts_as_none(site):
    site.publish()
    site.confirmed()
    with (site.home / "current" / "partitions.conf").open("a") as file:
        file.write("#")
    assert site.supervisor.published is None
    assert site.observe().condition is Condition.STARTING
    assert not site.supervisor.needs_reload()
    site.supervisor.fetch_set(Offer(state(generation=1), site.directory / "there", site.home))
    assert site.supervisor.published == 1
    site.confirmed()


@pytest.mark.parametrize("done", [False, True])
def test_a_reload_that_was_interrupted_is_repeated(site, monkeypatch, done):
    site.publish()
    if done:
        site.supervisor.reload()
    else:
        reload.prepare(site.home, site.opensm)
    site.restart_agent()
    assert site.supervisor.needs_reload() is not done
    assert site.observe().condition is (Condition.SWEEPING if done else Condition.BLIND)


def test_confirmed_tables_are_read_back_only_after_a_rest(site):
    """A slow read is followed by a rest of ten times its duration; a reload ends the rest."""
    asked = []

    class Slow(OpenSm):
        def tables(self, expected=()):
            asked.append(site.time)
            site.time += 2
            return OpenSm.tables(self, expected)

    site.opensm = Slow(dump_file=site.dump, reload_command=("true",), log_file=site.log)
    site.restart_agent()
    site.publish()
    site.confirmed()
    begin = len(asked)
    for _ in range(19):
        site.time += 1
        assert site.observe().condition is Condition.APPLIED
    assert len(asked) == begin
    site.time += 2
    site.observe()
    assert len(asked) == begin + 1
    site.publish([POD])
    site.confirmed()
    assert len(asked) == begin + 2


def test_polls_go_on_while_confirmed_tables_are_read(site, monkeypatch):
    """A reading that does not end delays no report; its result is in the report after its end."""
    monkeypatch.setattr("opensm_writer.driver.SLOW", 0)
    go, reads = site.directory / "go", site.directory / "reads"
    wait = f"echo >>{reads}; while [ ! -e {go} ]; do sleep 0.01; done; cat {site.dump}"
    site.opensm = OpenSm(
        dump_command=("sh", "-c", wait), reload_command=("true",), log_file=site.log
    )
    site.restart_agent()
    go.touch()
    site.publish()
    site.confirmed()
    go.unlink()
    begun = len(reads.read_text())
    for _ in range(20):
        site.time += 1
        assert site.observe().condition is Condition.APPLIED
    site.dump.write_text(site.dump.read_text().replace(" 001 #", " 002 #"))
    go.touch()

    def differs():
        site.time += 1
        return site.observe().condition is Condition.DIFFERS

    eventually(differs, "the report tells what was read")
    assert len(reads.read_text()) == begun + 1


def test_the_process_of_another_program_is_not_opensm(site):
    site.publish()
    site.confirmed()
    other = subprocess.Popen(["sleep", "3000"])
    try:
        site.pid_file.write_text(str(other.pid))
        assert site.observe().condition is Condition.DEAD
    finally:
        other.kill()
        other.wait()


MASTERS = {
    "another": ("master 0x0000000000000009 lid 0x0009 priority 3 state 3\n", True),
    "itself": ("master 0x0000000000000001 lid 0x0001 priority 3 state 3\n", False),
    "a standby": ("master 0x0000000000000009 lid 0x0009 priority 3 state 2\n", False),
    "nobody": ("", False),
}


@pytest.mark.parametrize(("master", "stops"), MASTERS.values(), ids=MASTERS)
def test_only_a_standby_beside_a_master_that_answers_is_stopped(site, tmp_path, master, stops):
    said, command = tmp_path / "said", tmp_path / "keys"
    said.write_text(f"self 0x0000000000000001\n{master}ports 0\n")
    executable(command, f"#!/bin/sh\ncat {said}\n")
    site.opensm = replace(site.opensm, keys_command=(str(command),))
    site.restart_agent().fence()
    if stops:
        site.process.wait(timeout=60)
    else:
        assert "State:\tS" in site.status()


def test_an_opensm_of_which_nobody_can_tell_is_not_stopped(site, caplog):
    site.supervisor.fence()
    assert "State:\tS" in site.status()
    assert "OpenSM is not stopped" in caplog.text
