# SPDX-License-Identifier: Apache-2.0

"""kill -9 at every step of fetching a file set and signalling OpenSM: one set stays complete.

The killed processes are real. Steps are calls that rename, link or remove a file, create or
remove a directory, open a file for writing, or send a signal. A process is killed before each
step, which is also after the previous one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest

from laas_service.messages import Condition
from opensm_writer import fileset
from opensm_writer.opensm import OpenSm
from opensm_writer.supervisor import Supervisor
from tests.offers import Offer
from tests.unit.opensm_writer.states import ONE, POD, WIDE, state

EVENTS = {"os.rename", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "open", "os.kill"}


class Machine:
    """The files that survive a crash, in one directory; a dump file stands for OpenSM."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "here" / "tiny"
        self.dump = directory / "dump"
        self.told = directory / "told"

    def supervisor(self) -> Supervisor:
        opensm = OpenSm(
            reload_command=("touch", str(self.told)),
            dump_file=self.dump,
            cache_directory=self.directory,
        )
        return Supervisor(self.home.parent, "tiny", opensm, keep=1)

    def offer(self, tenants, generation: int) -> Offer:
        """Without port GUIDs, which the agent adds because it reads no LIDs."""
        return Offer(state(tenants, generation), self.directory / "there", self.home, bare=True)

    def attend(self, offer: Offer) -> None:
        """Act as an active agent."""
        supervisor = self.supervisor()
        supervisor.fetch_set(offer)
        assert not supervisor.refused
        if supervisor.needs_reload():
            supervisor.reload()

    def sweep(self) -> None:
        """Act as OpenSM: read the current set."""
        self.dump.write_text((self.home / "current" / "lfts").read_text())


def killed_at(machine: Machine, offer: Offer, number: int) -> str | None:
    """The step at which a process was killed; None if it ended before that step."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_attend, args=(machine, offer, number))
    process.start()
    process.join(600)
    note = machine.directory / "died"
    if process.exitcode == -signal.SIGKILL and note.exists():
        step = note.read_text()
        note.unlink()
        return step
    assert process.exitcode == 0
    return None


def _attend(machine: Machine, offer: Offer, number: int) -> None:
    count = 0

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event not in EVENTS or str(machine.home) not in str(arguments[:2]):
            return
        if event == "open" and not int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR):
            return
        count += 1
        if count == number:
            file = os.open(machine.directory / "died", os.O_WRONLY | os.O_CREAT)
            os.write(file, f"{event} {Path(str(arguments[0])).name}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    machine.attend(offer)


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
def test_a_set_is_published_completely_or_not_at_all(tmp_path, monkeypatch, damaged):
    """Also when the earlier set is damaged: a crash damages no further file."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a killed process loses no write
    first = Machine(tmp_path / "0")
    first.directory.mkdir()
    before, after = first.offer([POD, ONE], 7), first.offer([POD, ONE, WIDE], 8)
    steps = []
    for number in range(1, 1000):
        machine = Machine(first.directory)
        machine.attend(before)
        machine.sweep()
        if damaged:
            with (machine.home / "current" / "guid2lid").open("a") as file:
                file.write("torn")
        step = killed_at(machine, after, number)
        manifest = fileset.current(machine.home.parent, "tiny")
        assert manifest is not None
        assert manifest.generation in (7, 8)
        wrong = fileset.damaged(machine.home / "current", manifest)
        assert wrong == (["guid2lid"] if damaged and manifest.generation == 7 else []), step
        machine.attend(after)
        machine.sweep()
        supervisor = machine.supervisor()
        assert not supervisor.needs_reload(), step
        seen = supervisor.observe(active=True)
        assert (seen.condition, seen.generation) == (Condition.APPLIED, 8), step
        assert not (machine.home / ".draft").exists(), step
        for path in machine.home.glob("gen-*"):
            assert fileset.read_manifest(path), step
        if step is None:
            break
        steps.append(step)
        _remove(machine)
    assert {"open lfts", "open manifest.json", "os.rename .draft", "os.symlink gen-8"} <= set(steps)
    assert {"os.rename .current.new", "os.rename ..told.new"} <= set(steps)
    assert "os.rename .lfts.named" in steps
    assert len(steps) > 30


def _remove(machine: Machine) -> None:
    """Remove everything that the offers left."""
    for path in sorted(machine.home.parent.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    machine.dump.unlink()
