# SPDX-License-Identifier: Apache-2.0

"""kill -9 at every step of a publication in UFM: what it left under way undoes nothing later.

The killed processes are real, and so is their database. Steps are the calls to UFM and to the
memory of it; a process is killed before each step, which is also after the previous one. UFM
carries out jobs only when a test says so.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.ufm_memory import SqlUfmMemory
from laas_service.domain.errors import Conflict, LaasError
from tests.ufm.manager import Record, manager, remembering, settings
from tests.ufm.server import standing_in
from tests.ufm.state import Ufm
from tests.unit.opensm_writer.states import ONE, POD, state

START = datetime(2026, 1, 1, tzinfo=UTC)
LATER = START + timedelta(seconds=61)


class Mortal:
    """An object whose process is killed before a call, counted over all such objects."""

    def __init__(self, inner, calls):
        self._inner, self._calls = inner, calls

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args, **options):
            self._calls[0] -= 1
            if self._calls[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return value(*args, **options)

        return call


class Scene:
    """A UFM and the database of a worker."""

    def __init__(self, standin, directory):
        self.standin, self.ufm, self.directory = standin, standin.ufm, directory
        self.database = f"sqlite:///{directory}/laas.db"
        self.now = START
        settings(standin, directory)  # makes the token, before processes are forked
        remembering("tiny", self.database)

    def memory(self):
        return SqlUfmMemory(connect(self.database), clock=lambda session: self.now)

    def port(self, record, **options):
        return manager(self.standin, self.directory, record, memory=self.memory(), **options)

    def killed(self, record, number):
        """Whether a process that publishes was killed at its step of this number."""
        context = multiprocessing.get_context("fork")
        process = context.Process(target=self._publish, args=(record, number))
        process.start()
        process.join(600)
        if process.exitcode != -signal.SIGKILL:
            assert process.exitcode == 0
        return process.exitcode != 0

    def _publish(self, record, number):
        calls = [number]
        port = self.port(record, job_timeout=1e-9)
        port._ufm, port._memory = Mortal(port._ufm, calls), Mortal(port._memory, calls)
        with contextlib.suppress(LaasError):  # a job does not end
            port.publish(record.state)


@pytest.fixture(params=[False, True], ids=["at once", "by jobs"])
def scene(request, tmp_path):
    with standing_in(Ufm(asynchronous=request.param, slowness=10**9)) as standin:
        yield Scene(standin, tmp_path)


def test_an_addition_of_a_killed_process_does_not_outlive_its_withdrawal(scene):
    steps = held_up = 0
    while True:
        record = Record(state([ONE, POD], generation=2 * steps + 1))
        scene.now = START
        if not scene.killed(record, steps):
            break
        running = any(job.status == "Running" for job in scene.ufm.jobs.values())
        scene.ufm.asynchronous, asynchronous = False, scene.ufm.asynchronous
        record.state = state([], generation=2 * steps + 2)
        port = scene.port(record)
        port.publish(record.state)
        seen = port.applied("tiny").generation
        assert not (running and seen), f"step {steps}: confirmed while a job could add ports"
        held_up += seen is None
        scene.ufm.finish_jobs()  # within the time that UFM has
        if seen is not None:
            assert scene.ufm.members() == {}, f"step {steps}"
        scene.now = LATER
        port.publish(record.state)
        assert port.applied("tiny").generation == record.state.generation, f"step {steps}"
        assert scene.ufm.members() == {}
        assert scene.memory().under_way("tiny") == []
        scene.ufm.asynchronous = asynchronous
        steps += 1
    assert steps >= 4
    assert held_up


def test_what_a_killed_process_withdrew_is_not_added_by_a_late_round(scene):
    """The late round does not even see the newer record, as on a copy of the database."""
    asynchronous, generation, steps, refused = scene.ufm.asynchronous, 1, 0, 0
    killed = True
    while killed:
        early, newer = state([ONE, POD], generation), state([], generation + 1)
        scene.ufm.asynchronous = False
        scene.port(Record(early)).publish(early)
        scene.ufm.asynchronous = asynchronous
        killed = scene.killed(Record(newer), steps)
        scene.ufm.finish_jobs()
        scene.ufm.asynchronous = False
        before = present(scene)
        try:
            scene.port(Record(early)).publish(early)
        except Conflict:
            refused += 1
        assert present(scene) == before, f"step {steps}"
        generation, steps = generation + 2, steps + 1
    assert refused
    assert steps >= 5


def present(scene):
    return {(key, guid) for key, guids in scene.ufm.members().items() for guid in guids}
