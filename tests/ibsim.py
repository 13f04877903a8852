# SPDX-License-Identifier: Apache-2.0

"""The InfiniBand simulator, with the real tools as its clients.

    with Simulator(netlist) as sim:
        sim.run("opensm", "-o", "-R", "ftree", "-f", "osm.log", stdin="")
        print(sim.run("ibnetdiscover").stdout)

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

PRELOADS = sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))
TOOLS = ("ibsim", "ibnetdiscover", "opensm", "dump_lfts", "ibdmchk")

AVAILABLE = bool(PRELOADS) and all(map(shutil.which, TOOLS))
"""Whether the packages ibsim-utils, infiniband-diags, opensm and ibutils are installed."""

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
            self._wait_until_ready()
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

    def start(self, *command: str, host: str | None = None) -> subprocess.Popen[bytes]:
        """Start a client that stays, such as OpenSM as a daemon; it ends with the block."""
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
        return process

    def console(self, line: str) -> None:
        """Give the simulator a command, such as ``Unlink "S-…"[3]``."""
        assert self._server.stdin is not None
        self._server.stdin.write(f"{line}\n".encode())
        self._server.stdin.flush()

    def _wait_until_ready(self, timeout: float = 120) -> None:
        end = time.monotonic() + timeout
        while f"@{self._name}:ctl" not in Path("/proc/net/unix").read_text():
            if self._server.poll() is not None or time.monotonic() > end:
                log = (self.directory / "ibsim.log").read_text(errors="replace")
                raise RuntimeError(f"ibsim did not start:\n{log[-2000:]}")
            time.sleep(0.02)
