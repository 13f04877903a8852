# SPDX-License-Identifier: Apache-2.0

"""Our service, deployed: API behind a WSGI server, worker, and an agent beside OpenSM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from laas_service.adapters.fabric_import.fabric_file import FabricFile
from laas_service.adapters.fabric_import.netlist import netlist, node_id
from laas_service.domain.inventory import Endpoint
from tests.ibsim import Simulator
from tests.servers.keystone import Keystone
from tests.servers.process import Port, Process
from tests.stack.cloud import SERVICE_PROJECT, WSGI, surroundings
from tests.waiting import PATIENCE

FABRIC = "stack"

CONFIGURATION = """
[DEFAULT]
state_dir = {directory}/state
transport_url = {broker}
[database]
connection = {database}
[api]
auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = {keystone}
service_token_roles_required = true
{login}
[compute]
kind = nova
[nova]
{login}
[placement]
{login}
[opensm]
reached_by = agent
directory = {directory}/opensm
patience = 30
[worker]
poll_interval = 0.5
retry_last = 5
reconcile_interval = 60
"""

AGENT = """
[DEFAULT]
state_dir = {directory}/agent
transport_url = {broker}
[laas]
{login}
[opensm]
directory = {directory}/opensm
agent_fabric = {fabric}
pid_file = {directory}/opensm.pid
log_file = {subnet}/osm.log
cache_directory = {subnet}
dump_command = {dump}
tools = none
"""
"""Configuration of the agent: no database, and a user with the role ``service`` alone."""

AGENT_USER = "laas-opensm-agent"


class LinksService:
    """Our API, worker and agent. ``simulator`` is the subnet that they manage."""

    def __init__(self, directory: Path, logs: Path, fabric: FabricFile) -> None:
        self.directory = directory
        self._logs = logs
        self.fabric = fabric
        self.manager = _management_port(fabric)
        inventory = fabric.inventory
        self.simulator = Simulator(netlist(inventory), host=node_id(inventory, self.manager))
        self._port = Port()
        self._processes: list[Process] = []
        self.url = self._port.url
        directory.mkdir(parents=True)

    @property
    def hosts(self) -> list[str]:
        """Names of the hosts that tenants may get."""
        return [name for name in self.fabric.inventory.host_names if name]

    def configure(self, keystone: Keystone, database: str, broker: str) -> None:
        (self.directory / "laas.conf").write_text(
            CONFIGURATION.format(
                directory=self.directory,
                broker=broker,
                database=database,
                keystone=keystone.url,
                login=_login(keystone, "laas"),
            )
        )
        (self.directory / "agent.conf").write_text(
            AGENT.format(
                directory=self.directory,
                broker=broker,
                login=_login(keystone, AGENT_USER),
                fabric=FABRIC,
                subnet=self.simulator.directory,
                dump=",".join(self._dump()),
            )
        )

    def prepare(self, description: Path) -> None:
        """Make the tables and import the fabric."""
        self.manage("db", "upgrade")
        manager = self.manager.name.split()[0]
        self.manage(
            "fabric", "import", str(description), "--id", FABRIC, "--subnet-manager", manager
        )

    def start(self) -> None:
        """Start all; return when OpenSM has been started on the files that the agent published."""
        config = str(self.directory / "laas.conf")
        api = [sys.executable, "-P", str(WSGI), "laas_service.cmd.wsgi", str(self._port.number)]
        self._run("laas-api", *api).wait_for(f"{self.url}/healthcheck")
        worker = [sys.executable, "-m", "laas_service.cmd.worker", "--config-file", config]
        self._run("laas-worker", *worker)
        config = str(self.directory / "agent.conf")
        agent = [sys.executable, "-m", "laas_service.cmd.opensm_agent", "--config-file", config]
        running = self._run(AGENT_USER, *agent)
        manifest = self.directory / "opensm" / FABRIC / "current" / "opensm.conf"
        patience = PATIENCE + 10 * len(self.hosts)  # every host joins the pool first
        running.wait_until(manifest.exists, "the agent publishes nothing", patience)
        options = ("-F", str(manifest), "-f", str(self.simulator.directory / "osm.log"), "-s", "0")
        daemon = self.simulator.start("opensm", *options)
        (self.directory / "opensm.pid").write_text(f"{daemon.pid}\n")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()
        self._port.close()

    def tables(self) -> str:
        """Output of ``dump_lfts``: the present tables of the simulated switches."""
        return self.simulator.read(*self._dump())

    def manage(self, *words: str, text: str | None = None) -> str:
        """Run laas-manage; returns its output. Raises: RuntimeError: its status is not 0."""
        config = str(self.directory / "laas.conf")
        done = subprocess.run(
            [sys.executable, "-m", "laas_service.cmd.manage", "--config-file", config, *words],
            input=text or "",
            capture_output=True,
            text=True,
            env=surroundings(),
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"laas-manage {' '.join(words)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _dump(self) -> list[str]:
        environment = self.simulator.environment()
        names = ("IBSIM_SOCKNAME", "LD_PRELOAD", "SIM_HOST")
        client = [f"{name}={environment[name]}" for name in names]
        return ["env", f"--chdir={self.simulator.directory}", *client, "dump_lfts", "-n"]

    def _run(self, name: str, *command: str) -> Process:
        variables = surroundings() | {"LAAS_CONFIG_DIR": str(self.directory)}
        process = Process(command, self._logs / f"{name}.log", variables)
        self._processes.append(process)
        return process


def _login(keystone: Keystone, user: str) -> str:
    options = keystone.options(user, SERVICE_PROJECT)
    return "\n".join(f"{name} = {value}" for name, value in options.items())


def _management_port(fabric: FabricFile) -> Endpoint:
    """The adapter of the host that runs the subnet manager."""
    return next(end for end in fabric.inventory.endpoints if end.name.startswith("sm"))
