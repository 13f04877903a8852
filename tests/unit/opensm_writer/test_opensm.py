# SPDX-License-Identifier: Apache-2.0

"""One OpenSM as a process: when it may be signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from laas_service.domain.errors import Unavailable
from opensm_writer.opensm import OpenSm
from tests.servers.leash import spawn

STARTS_SLOWLY = """\
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
open("/proc/self/comm", "w").write("opensm")
print("started", flush=True)
sys.stdin.readline()
{protect}
print("protected", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def start():
    processes = []

    def start(protect: str) -> subprocess.Popen[str]:
        program = STARTS_SLOWLY.format(protect=protect)
        process = spawn(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "protect",
    [
        "signal.signal(signal.SIGHUP, lambda *_: print('swept', flush=True))",
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])",
    ],
    ids=["handled", "ignored", "blocked"],
)
def test_an_opensm_that_sighup_would_end_is_not_signalled(tmp_path, start, protect):
    process = start(protect)
    opensm = OpenSm(pid_file=tmp_path / "opensm.pid")
    (tmp_path / "opensm.pid").write_text(str(process.pid))
    assert process.stdout.readline() == "started\n"
    with pytest.raises(Unavailable, match="OpenSM is starting"):
        opensm.reload()
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "protected\n"
    opensm.reload()
    if "swept" in protect:
        assert process.stdout.readline() == "swept\n"
    assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM, "the signal before did not end it"
