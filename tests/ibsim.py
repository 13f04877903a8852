# SPDX-License-Identifier: Apache-2.0

"""The InfiniBand simulator, with the real tools as its clients.

    with Simulator(netlist) as sim:
        sim.run("opensm", "-o", "-R", "ftree", "-f", "osm.log", stdin="")
        print(sim.read("ibnetdiscover"))

Everything lives in a directory of its own, has a time limit, and is gone when the
block ends, whether it ends well or not. At most 10 clients at a time.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType

from tests.servers.leash import spawn
from tests.waiting import eventually

PRELOADS = sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))
TOOLS = ("ibsim", "ibnetdiscover", "opensm", "dump_lfts", "ibdmchk")

AVAILABLE = bool(PRELOADS) and all(map(shutil.which, TOOLS))
"""Whether the packages ibsim-utils, infiniband-diags, opensm and ibutils are installed."""

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds until a client that reads the fabric is run again."""

_NODE = re.compile(r'^(Switch|Ca|Hca|Rt)\s+(\d+)\s+"([^"]+)"', re.MULTILINE)


class Simulator:
    """ibsim on one netlist, ready when the block is entered.

    ``directory`` is where clients run and leave their files. ``host`` is the node id
    (or description) whose port clients use unless they name another; the first CA of
    the netlist by default.
    """

    def __init__(self, netlist: str, host: str | None = None) -> None:
        nodes = _NODE.findall(netlist)
        self.directory = Path(tempfile.mkdtemp(prefix="laas-ibsim-"))
        self.netlist = self.directory / "fabric.net"
        self.netlist.write_text(netlist)
        self.host = host or next((id for kind, _, id in nodes if kind != "Switch"), nodes[0][2])
        self._name = f"laas-{uuid.uuid4().hex[:12]}"
        switches = sum(kind == "Switch" for kind, _, _ in nodes)
        ports = sum(int(count) + 1 for _, count, _ in nodes)
        self._limits = ("-N", len(nodes) + 8, "-S", switches + 8, "-P", ports + 64)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Simulator:
        try:
            log = (self.directory / "ibsim.log").open("wb")
            with log:
                self._server = spawn(
                    ["ibsim", "-s", *map(str, self._limits), str(self.netlist)],
                    cwd=self.directory,
                    env=os.environ | {"IBSIM_SOCKNAME": self._name},
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._processes.append(self._server)
            eventually(self._ready, lambda: f"ibsim starts:\n{self._said()}", pause=0.02)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin:
                process.stdin.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, host: str | None = None) -> dict[str, str]:
        """What a client needs in its environment; OpenSM keeps its files in ``directory``."""
        return os.environ | {
            "IBSIM_SOCKNAME": self._name,
            "LD_PRELOAD": str(PRELOADS[0]),
            "SIM_HOST": host or self.host,
            "OSM_CACHE_DIR": str(self.directory),
            "OSM_TMP_DIR": str(self.directory),
        }

    def run(
        self, *command: str, host: str | None = None, timeout: float = 300, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run one client to its end."""
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment(host),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=check,
        )

    def read(self, *command: str, host: str | None = None) -> str:
        """What a client prints that only reads the fabric, such as ``dump_lfts``.

        A packet whose answer does not come in time counts as lost: the client then fails, or
        leaves something out and complains. As a person would, this runs it again.

        Raises:
            CalledProcessError: it fails every time.
        """
        for pause in PAUSES:
            done = self.run(*command, host=host, check=False)
            if done.returncode == 0 and not done.stderr:
                return done.stdout
            time.sleep(pause)
        return self.run(*command, host=host).stdout

    def start(self, *command: str, host: str | None = None) -> subprocess.Popen[bytes]:
        """Start a client that stays, such as OpenSM as a daemon; it ends with the block.

        OpenSM is returned once a SIGHUP starts a sweep: until then the signal ends it, and on a
        busy machine that takes long enough for whoever reads its process id to send one.
        """
        with (self.directory / f"{Path(command[0]).name}.out").open("ab") as out:
            process = spawn(
                command,
                cwd=self.directory,
                env=self.environment(host),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        if "opensm" in command:
            eventually(lambda: _takes_signals(process), "OpenSM takes signals", pause=0.02)
        return process

    def console(self, line: str) -> None:
        """Give the simulator a command, such as ``Unlink "S-…"[3]``."""
        assert self._server.stdin is not None
        self._server.stdin.write(f"{line}\n".encode())
        self._server.stdin.flush()

    def _ready(self) -> bool:
        """Raises: RuntimeError: it has ended."""
        if self._server.poll() is not None:
            raise RuntimeError(f"ibsim did not start:\n{self._said()}")
        return f"@{self._name}:ctl" in Path("/proc/net/unix").read_text()

    def _said(self) -> str:
        return (self.directory / "ibsim.log").read_text(errors="replace")[-2000:]


def _takes_signals(process: subprocess.Popen[bytes]) -> bool:
    """Whether an OpenSM blocks or catches SIGHUP, or has ended."""
    if process.poll() is not None:
        return True
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    taken = int(status["SigBlk"], 16) | int(status["SigCgt"], 16)
    return status["Name"] == "opensm" and bool(taken >> (signal.SIGHUP - 1) & 1)
