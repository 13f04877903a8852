# SPDX-License-Identifier: Apache-2.0

"""A cluster on one machine: slurmctld, a slurmd for each host, the service and the daemon."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import slurm_plugin
from laas_service.client.rest import Rest
from tests.scripts import executable
from tests.servers.daemon import Daemon
from tests.servers.leash import spawn
from tests.servers.process import Port, Process
from tests.waiting import eventually

TOOLS = ("slurmctld", "slurmd", "squeue", "scontrol", "sbatch")
AVAILABLE = all(map(shutil.which, TOOLS)) and os.geteuid() == 0
"""Whether the packages are installed; slurmd starts jobs of users as root alone."""

PLUGIN = Path(slurm_plugin.__file__).parent
WITNESS = Path(__file__).parent / "witness.py"
FABRIC = {"xgft": "3;4,4,2;1,4,4"}
"""32 hosts, node00 to node31."""

CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmdSpoolDir={directory}/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/multifactor
PriorityWeightAge=1000
SchedulerParameters=sched_min_interval=100000,bf_interval=1,batch_sched_delay=0
KillWait=1
MinJobAge=300
Licenses=laas_gate:1,other:4
JobSubmitPlugins=lua
PrologSlurmctld={directory}/prolog
{nodes}
PartitionName=links Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=plain Nodes=ALL MaxTime=60 State=UP
"""


class Controller(Daemon):
    """slurmctld, with the plug-in's ``job_submit.lua`` and prolog."""

    def __init__(self, hosts: Sequence[str]) -> None:
        super().__init__("slurmctld")
        self.hosts = hosts
        self.directory.chmod(0o755)  # users read slurm.conf
        self._ports = [Port() for _ in range(len(hosts) + 1)]
        self.options = self.directory / "laas-slurm.conf"

    def configure(self, endpoint: str, **options: object) -> None:
        """Write all files of the cluster; ``options`` are those of the plug-in."""
        lines = [
            f"NodeName={host} NodeAddr=127.0.0.1 Port={port.number} CPUs=4 Feature={feature(n)}"
            for n, (host, port) in enumerate(zip(self.hosts, self._ports[1:], strict=True))
        ]
        for name in ("state", "spool"):
            (self.directory / name).mkdir(exist_ok=True)
        (self.directory / "slurm.conf").write_text(
            CONFIGURATION.format(
                port=self._ports[0].number, directory=self.directory, nodes="\n".join(lines)
            )
        )
        lua = f'LAAS_CONF = "{self.options}"\ndofile("{PLUGIN}/job_submit.lua")\n'
        (self.directory / "job_submit.lua").write_text(lua + "return slurm.SUCCESS\n")
        executable(
            self.directory / "prolog",
            f"#!/bin/sh\nexport SLURM_CONF={self.directory}/slurm.conf\n"
            f"export PATH='{os.environ['PATH']}'\n"
            f"cd {PLUGIN.parent}\n"
            f"exec {sys.executable} -m slurm_plugin.command prolog --config-file {self.options} "
            f">>{self.directory}/prolog.log 2>&1\n",
        )
        given = {
            "partition": "links",
            "cluster": "test",
            "poll_interval": 0.2,
            "confirmed_by": "switches,agent,files,nobody",
            **options,
        }
        written = "".join(f"{name} = {value}\n" for name, value in given.items())
        self.options.write_text(f"[DEFAULT]\n{written}[laas]\nendpoint_override = {endpoint}\n")

    def command(self) -> Sequence[str]:
        return "slurmctld", "-D", "-f", f"{self.directory}/slurm.conf"

    def environment(self) -> dict[str, str]:
        return super().environment() | {"SLURM_CONF": f"{self.directory}/slurm.conf"}

    def ready(self) -> bool:
        try:
            return "is UP" in self.run("scontrol", "ping")
        except RuntimeError:
            return False

    def close(self) -> None:
        super().close()
        for port in self._ports:
            port.close()


def feature(number: int) -> str:
    return "even" if number % 2 == 0 else "odd"


class Cluster:
    """All processes of a site; the block ends them."""

    def __init__(self, directory: Path, **options: object) -> None:
        self.directory = directory
        self.options = options
        self.seen = directory / "seen"
        self.hosts = [f"node{n:02}" for n in range(32)]
        self.controller = Controller(self.hosts)
        self._port = Port()
        self.url = self._port.url
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Cluster:
        try:
            self._serve()
            self.controller.configure(self.url, **self.options)
            self.controller.__enter__()
            for host in self.hosts:
                self.start_node(host)
            eventually(lambda: self.idle() == 32, lambda: self.run("sinfo", "-N"))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        config = self.directory / "laas.conf"
        config.write_text(
            f"[DEFAULT]\nstate_dir = {self.directory}/laas\n"
            f"[api]\nbind_port = {self._port.number}\n"
            "[worker]\npoll_interval = 0.1\n"
        )
        fabric = self.directory / "fabric.json"
        fabric.write_text(json.dumps(FABRIC))
        for words in (("db", "upgrade"), ("fabric", "import", str(fabric))):
            command = [sys.executable, "-m", "laas_service.cmd.manage"]
            subprocess.run(
                [*command, "--config-file", str(config), *words], check=True, timeout=600
            )
        command = [sys.executable, "-m", "laas_service.cmd.api", "--all-in-one"]
        log = self.directory / "laas-api.log"
        self.api = Process([*command, "--config-file", str(config)], log, os.environ)
        self.api.wait_for(f"{self.url}/healthcheck")

    def start_node(self, host: str) -> None:
        (self.controller.directory / "spool" / host).mkdir(exist_ok=True)
        with (self.controller.directory / f"{host}.log").open("ab") as log:
            words = ("slurmd", "-D", "-N", host, "-f", f"{self.controller.directory}/slurm.conf")
            self._nodes[host] = spawn(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @contextlib.contextmanager
    def silent_nodes(self) -> Iterator[None]:
        """No slurmd answers within the block; what runs on the nodes runs on."""
        for node in self._nodes.values():
            node.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for node in self._nodes.values():
                node.send_signal(signal.SIGCONT)

    def stop_node(self, host: str) -> None:
        os.killpg(self._nodes[host].pid, signal.SIGKILL)
        self._nodes.pop(host).wait()

    def start_daemon(self) -> None:
        """Start ``laas-slurm``."""
        with (self.directory / "laas-slurm.log").open("ab") as log:
            self._daemon = spawn(
                [sys.executable, "-m", "slurm_plugin.command", *self.words()],
                env=self.controller.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(lambda: "laas_gate" in self.run("scontrol", "show", "reservation"), self.told)

    def words(self) -> list[str]:
        return ["--config-file", str(self.controller.options)]

    def kill_daemon(self) -> None:
        assert self._daemon is not None
        os.killpg(self._daemon.pid, signal.SIGKILL)
        self._daemon.wait()

    def kill_controller(self, saved: Path | None = None) -> None:
        """Kill slurmctld at once, and start it again with its state, or as ``saved`` before."""
        assert self.controller.process is not None
        os.killpg(self.controller.process.pid, signal.SIGKILL)
        self.controller.process.wait()
        if saved is not None:
            shutil.rmtree(self.controller.directory / "state")
            shutil.copytree(saved, self.controller.directory / "state")
        self.controller.start()

    def saved_state(self) -> Path:
        """A copy of what slurmctld has saved, for ``kill_controller``."""
        unfinished = shutil.ignore_patterns("*.new")
        copy = self.directory / "saved"
        shutil.copytree(self.controller.directory / "state", copy, ignore=unfinished)
        return copy

    def laas_slurm(self, *words: str) -> str:
        command = [sys.executable, "-m", "slurm_plugin.command", *words, *self.words()]
        return self.run(*command)

    def run(self, *command: str) -> str:
        return self.controller.run(*command)

    def submit(self, *words: str, seconds: float = 1.0) -> int:
        """Submit a batch job that tells what it sees; returns its id. Raises: RuntimeError."""
        witness = f"{sys.executable} {WITNESS} {self.url} {self.seen} {seconds}"
        words = (f"--output={self.directory}/job-%j.out", "--time=10", *words, f"--wrap={witness}")
        return int(self.run("sbatch", "--parsable", *words))

    def witnessed(self) -> list[Any]:
        """What the jobs saw at their starts and ends, in order of time."""
        lines = self.seen.read_text().splitlines() if self.seen.exists() else []
        return sorted((json.loads(line) for line in lines), key=lambda seen: seen["at"])

    def violations(self, jobs: Sequence[int]) -> list[str]:
        """Every broken promise to these jobs: each ran, and on its own active allocation alone."""
        found, ended = [], set()
        runs = dict[tuple[int, float], list[Any]]()
        for seen in self.witnessed():
            if seen["job"] in jobs:
                runs.setdefault((seen["job"], seen["run"]), []).append(seen)
                own = [hosts for _, state, hosts in seen["owned"] if state == "active"]
                if own != [seen["nodes"]]:
                    found.append(f"{seen['moment']} of {seen['job']}: {seen['nodes']}, owns {own}")
                if seen["moment"] == "end":
                    ended.add(seen["job"])
        last = dict[str, tuple[float, int]]()  # by node: until when a job was seen there
        for (job, start), seen_there in sorted(runs.items(), key=lambda run: run[0][1]):
            for node in seen_there[0]["nodes"]:
                until, other = last.get(node, (0.0, job))
                if start < until and other != job:
                    found.append(f"{node}: jobs {other} and {job}")
                last[node] = max(last.get(node, (0.0, job)), (seen_there[-1]["at"], job))
        return found + [f"{job} never ended well" for job in jobs if job not in ended]

    def jobs(self) -> dict[int, Any]:
        """All jobs by id, as ``squeue --json`` shows them."""
        shown = json.loads(self.run("squeue", "--json", "--all"))["jobs"]
        return {job["job_id"]: job for job in shown}

    def state(self, job: int) -> str:
        return str(self.jobs()[job]["job_state"])

    def idle(self) -> int:
        return self.run("sinfo", "-h", "-N", "-p", "plain", "-o", "%T").split().count("idle")

    def allocations(self, **query: Any) -> list[Any]:
        from keystoneauth1.adapter import Adapter
        from keystoneauth1.noauth import NoAuth
        from keystoneauth1.session import Session

        session = Session(auth=NoAuth())
        rest = Rest(Adapter(session, endpoint_override=self.url))
        return list(rest.listed("/v1/allocations", "allocations", **query))

    def wait(self, jobs: Sequence[int], state: str = "COMPLETED") -> None:
        """Return when all these jobs have this state."""

        def reached() -> bool:
            shown = self.jobs()
            return all(shown[job]["job_state"] == state for job in jobs)

        eventually(reached, self.told)

    def wait_for_start(self, job: int) -> None:
        """Return when a job has begun to run."""
        eventually(lambda: any(seen["job"] == job for seen in self.witnessed()), self.told)

    def wait_until_saved(self) -> None:
        """Return when slurmctld has saved the present jobs; a crash loses those that it has not."""
        now, saved = time.time(), self.controller.directory / "state" / "job_state"
        eventually(lambda: saved.exists() and saved.stat().st_mtime > now, self.told)

    def wait_until_free(self) -> None:
        """Return when no allocation is left."""
        eventually(lambda: not self.allocations(), self.told)

    def said(self) -> str:
        """The log of ``laas-slurm``."""
        return (self.directory / "laas-slurm.log").read_text()

    def told(self) -> str:
        """What there is to see, for a test that fails."""
        files = [
            self.directory / "laas-slurm.log",
            self.controller.directory / "prolog.log",
            self.controller.log,
        ]
        logs = [f.read_text(errors="replace")[-3000:] for f in files if f.exists()]
        queue = self.run("squeue", "--states=all", "-o", "%i %T %r %N %W %D")
        owned = [(a["name"], a["state"], a.get("error")) for a in self.allocations()]
        return "\n".join([queue, str(owned), *logs])

    def close(self) -> None:
        if self._daemon is not None and self._daemon.poll() is None:
            self.kill_daemon()
        for process in self._nodes.values():
            process.kill()
        self.controller.close()
        if hasattr(self, "api"):
            self.api.stop()
        self._port.close()
