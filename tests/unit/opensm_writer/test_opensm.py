# SPDX-License-Identifier: Apache-2.0

"""One OpenSM: when it may be signalled, what its log says, how tables differ."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from laas_service.domain.errors import Unavailable
from opensm_writer.opensm import OpenSm, Role, difference, engine_problem
from tests.servers.leash import spawn

STARTS_SLOWLY = """\
import os, signal, sys
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
        "signal.signal(signal.SIGHUP, lambda *_: os.write(1, b'swept\\n'))",
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
def test_the_routing_engine_in_the_log(lines, problem):
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
def test_the_last_state_in_the_log(tmp_path, states, found):
    log = tmp_path / "osm.log"
    opensm = OpenSm(log_file=log, dump_file=tmp_path / "dump")
    assert opensm.role() == Role()
    log.write_text(
        "".join(
            f"Nov 22 06:53:54 160759 [DEE186C0] 0x80 -> Entering {state} state\n\n"
            "Nov 22 06:53:55 160759 [DEE186C0] 0x02 -> node 'is Entering STANDBY state\n"
            for state in states
        )
    )
    assert opensm.role() == Role(found)


@pytest.mark.parametrize(
    ("lines", "engine"),
    [
        ((), None),
        (("file",), "file"),
        (("file", "minhop"), "minhop"),
        (("minhop", "file"), "file"),
        (("x" * 70,), "x" * 64),
    ],
)
def test_the_last_engine_in_the_log(tmp_path, lines, engine):
    log = tmp_path / "osm.log"
    head = "Nov 22 06:53:54 160759 [DEE186C0] 0x02 -> ucast_mgr_route: "
    log.write_text("".join(f"{head}{name} tables configured on all switches\n" for name in lines))
    assert OpenSm(log_file=log).role() == Role(engine=engine)
