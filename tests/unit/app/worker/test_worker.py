# SPDX-License-Identifier: Apache-2.0

"""The worker's loop survives errors, wakes early, and stops on request."""

import os
import signal
import threading

import pytest

from laas_service.app.worker.watchdog import Watchdog
from laas_service.app.worker.worker import Worker
from laas_service.domain.errors import Unavailable


class Rounds:
    """Leases that count their rounds; ``answers`` are the results of the rounds."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.rounds = 0
        self.watchdog = Watchdog(lambda: 0.0, 1.0)  # never finds its thread stuck
        self.looks = 0
        self.reconciled = 0
        self.offered = 0
        self.left = False
        self.idle = threading.Event()

    def run_once(self):
        self.rounds += 1
        if not self.answers:
            return 0
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def reconcile(self, *, busy=False):
        self.offered += busy
        self.reconciled += not busy
        return []

    def check_drift(self):
        self.looks += 1
        if self.reconciled:
            self.idle.set()
        return []

    def leave(self):
        self.left = True


def nobody() -> int:
    return 0


def running(rounds: Rounds, admit=nobody, **options) -> Worker:
    worker = Worker(rounds, admit, **options)  # type: ignore[arg-type]
    worker.start()
    return worker


def test_works_off_all_that_is_due_then_reconciles_once():
    rounds = Rounds(100, 100, 3)
    worker = running(rounds, interval=600)
    assert rounds.idle.wait(60)
    worker.stop(10)
    assert (rounds.rounds, rounds.reconciled) == (4, 1)
    assert rounds.looks == 4  # drift is checked in every round, also in busy ones
    assert rounds.offered == 3  # and steady work does not put a comparison off for ever


def test_errors_do_not_end_it_and_waking_does_not_wait():
    rounds = Rounds(Unavailable("database away"), ZeroDivisionError("bug"))
    worker = running(rounds, interval=600)
    for _ in range(1000):
        worker.wake()
        if rounds.idle.wait(0.01):
            break
    assert rounds.rounds >= 3
    worker.stop(10)


def test_looks_again_after_the_interval():
    rounds = Rounds(Unavailable("database away"), Unavailable("still"))
    worker = running(rounds, interval=0.01)
    assert rounds.idle.wait(60)
    worker.stop(10)


def test_ends_when_told_also_while_waiting():
    rounds = Rounds()
    worker = running(rounds, interval=600)
    assert rounds.idle.wait(60)
    worker.stop(10)
    worker.wait()
    assert rounds.left
    assert not any(thread.name == "laas-worker" for thread in threading.enumerate())


def test_goes_on_at_once_while_somebody_is_admitted():
    rounds, admitted = Rounds(), [2, 0, 1, 0]

    def admit():
        return admitted.pop(0) if admitted else 0

    worker = running(rounds, admit, interval=600)
    for _ in range(1000):
        if admitted == [1, 0]:
            break
        rounds.idle.wait(0.01)
        threading.Event().wait(0.01)
    worker.stop(10)
    assert rounds.rounds == 2


def test_a_signal_while_it_is_waited_for_does_not_cut_the_step_short():
    """As in laas-worker, the main thread waits and stops the worker on a signal."""
    at_it, go_on, steps = threading.Event(), threading.Event(), []

    class Slow(Rounds):
        def run_once(self):
            at_it.set()
            assert go_on.wait(60)
            steps.append("done")
            return 0

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        worker = running(Slow(), interval=600)
        assert at_it.wait(60)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            worker.wait()
        threading.Timer(0.2, go_on.set).start()
        worker.stop()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert steps == ["done"]
