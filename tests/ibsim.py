# SPDX-License-Identifier: Apache-2.0

"""The InfiniBand simulator, with the real tools as its clients.

    with Simulator(netlist) as sim:
        sim.run("opensm", "-o", "-R", "ftree", "-f", "osm.log", stdin="")
        print(sim.read("ibnetdiscover"))

Files are in a temporary directory. When the block ends, by an exception too, all
processes are killed and the directory is removed. At most 10 clients run at a time.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType

from tests.scripts import executable
from tests.servers.leash import spawn
from tests.waiting import eventually

PRELOADS = sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))
TOOLS = ("ibsim", "ibnetdiscover", "opensm", "dump_lfts", "ibdmchk")

CLIENTS = ("dump_lfts", "iblinkinfo", "perfquery", "smpquery")
"""Tools that read the fabric, and that the service finds."""

ROOT = Path(__file__).parents[1]

AVAILABLE = bool(PRELOADS) and all(map(shutil.which, TOOLS))
"""Whether the packages ibsim-utils, infiniband-diags, opensm and ibutils are installed."""

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt of a client that reads the fabric."""

_NODE = re.compile(r'^(Switch|Ca|Hca|Rt)\s+(\d+)\s+"([^"]+)"', re.MULTILINE)


class Simulator:
    """ibsim on one netlist, ready when the block is entered.

    Clients run in ``directory`` and write their files there. ``host`` is the node id (or
    description) whose port clients use by default; if omitted, the first CA of the netlist.
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
        """The environment of a client; OpenSM keeps its files in ``directory``."""
        return os.environ | {
            "IBSIM_SOCKNAME": self._name,
            "LD_PRELOAD": str(PRELOADS[0]),
            "SIM_HOST": host or self.host,
            "OSM_CACHE_DIR": str(self.directory),
            "OSM_TMP_DIR": str(self.directory),
        }

    def tools(self, directory: Path, host: str | None = None) -> Path:
        """A directory with scripts of the names of ``CLIENTS`` and of the project's own readers.

        They read the simulated fabric, as the tools of a machine with a port of it would.
        """
        directory.mkdir(parents=True, exist_ok=True)
        environment = self.environment(host)
        names = ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST")
        client = shlex.join(
            ["env", "-C", str(self.directory), *(f"{n}={environment[n]}" for n in names)]
        )
        python = ("PYTHONPATH=" + str(ROOT), "PYTHONDONTWRITEBYTECODE=1", sys.executable, "-m")
        readers = {"laas-opensm-keys": "key_reader", "laas-opensm-tables": "table_reader"}
        commands = {name: [f"{shutil.which(name)}"] for name in CLIENTS} | {
            name: [*python, f"opensm_writer.{module}"] for name, module in readers.items()
        }
        for name, command in commands.items():
            executable(directory / name, f'#!/bin/sh\nexec {client} {shlex.join(command)} "$@"\n')
        return directory

    def run(
        self, *command: str, host: str | None = None, timeout: float = 300, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a client and wait for its end."""
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
        """The output of a client that only reads the fabric, such as ``dump_lfts``.

        If an answer is late, the client counts it as lost: it fails, or leaves something out
        and prints a warning. In both cases the client is run again.

        Raises:
            CalledProcessError: the client failed at every attempt.
        """
        for pause in PAUSES:
            done = self.run(*command, host=host, check=False)
            if done.returncode == 0 and not done.stderr:
                return done.stdout
            time.sleep(pause)
        return self.run(*command, host=host).stdout

    def start(self, *command: str, host: str | None = None) -> subprocess.Popen[bytes]:
        """Start a client that keeps running, such as OpenSM; it is killed when the block ends.

        Waits until OpenSM handles SIGHUP. An earlier SIGHUP would end it, and on a busy machine
        a test could send one that early.
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
        """Send the simulator a command, such as ``Unlink "S-…"[3]``."""
        assert self._server.stdin is not None
        self._server.stdin.write(f"{line}\n".encode())
        self._server.stdin.flush()

    def _ready(self) -> bool:
        """Raises: RuntimeError: ibsim has ended."""
        if self._server.poll() is not None:
            raise RuntimeError(f"ibsim did not start:\n{self._said()}")
        return f"@{self._name}:ctl" in Path("/proc/net/unix").read_text()

    def _said(self) -> str:
        return (self.directory / "ibsim.log").read_text(errors="replace")[-2000:]


def _takes_signals(process: subprocess.Popen[bytes]) -> bool:
    """Whether OpenSM blocks or catches SIGHUP, or has ended."""
    if process.poll() is not None:
        return True
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    taken = int(status["SigBlk"], 16) | int(status["SigCgt"], 16)
    return status["Name"] == "opensm" and bool(taken >> (signal.SIGHUP - 1) & 1)
