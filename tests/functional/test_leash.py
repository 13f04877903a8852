# SPDX-License-Identifier: Apache-2.0

"""Processes that tests start end with the tests, even after SIGKILL or repeated signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import eventually

ROOT = Path(__file__).parents[2]

SERVER = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
def end(*_):
    time.sleep(2)  # a server that takes its time, so that the second signal meets the first
    child.kill()
    sys.exit()
signal.signal(signal.SIGTERM, end)
print(os.getpid(), child.pid, flush=True)
time.sleep(3600)  # until it is killed
"""
"""A server that has a child and takes two seconds to end."""

STARTER = f"""
import sys, threading, time
from pathlib import Path
from tests.servers.process import Process
log = Path(sys.argv[1])
def start():
    server = Process([sys.executable, "-c", {SERVER!r}], log, {{}})
    server.wait_until(lambda: server.said().endswith("\\n"), "it says nothing")
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(1)  # a leash that hangs on the thread would end the server meanwhile
print("ready", flush=True)
time.sleep(3600)  # until it is killed
"""
"""Starts the server in a thread that ends; the server must keep running."""

STACK = f"""
import sys
from tests.servers.process import Process
from tests.stack import __main__, everything
def start(self, stack):
    for name in "abc":
        server = Process([sys.executable, "-c", {SERVER!r}], self.logs / name, {{}})
        stack.callback(server.stop)
        server.wait_until(lambda: server.said().endswith("\\n"), "it says nothing")
        print(server.said(), flush=True)
    print("ready", flush=True)
everything.Everything._start = start
def told(stack, options):
    __main__.signal.pause()
__main__.told = told
sys.exit(__main__.main([]))
"""
"""The start, interruption and stop of the test stack, with these servers in place of its own."""


@pytest.fixture
def python(tmp_path):
    """Run a program until it prints ``ready``; return the process and the lines before that."""
    running = []

    def run(program, *words):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        said: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            if line == "ready\n":
                return process, said
            said.append(line)
        pytest.fail(f"ended: {said}")

    yield run
    for process in running:
        process.kill()
        process.communicate()


def runs(pid):
    """Whether the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def all_end(pids):
    eventually(lambda: not any(map(runs, pids)), f"all of {pids} end")


def test_servers_end_with_a_process_that_is_killed(python, tmp_path):
    process, _ = python(STARTER, str(tmp_path / "log"))
    pids = (tmp_path / "log").read_text().split()
    assert len(pids) == 2
    assert all(map(runs, pids)), "the thread that started them is gone, and they stay"
    process.kill()
    all_end(pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stack_that_is_interrupted_again_and_again_is_stopped_to_the_end(python, number):
    process, said = python(STACK)
    pids = " ".join(said).split()
    assert len(pids) == 6
    while process.poll() is None:
        process.send_signal(number)
        time.sleep(0.2)  # between two signals of somebody who is impatient
    assert process.returncode == 130
    assert "interrupted" in process.stdout.read()
    all_end(pids)  # the last killed processes may still be ending
