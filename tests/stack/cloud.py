# SPDX-License-Identifier: Apache-2.0

"""A cloud like a real one: Nova's services and placement, each in a process of its own.

The caller provides Keystone, the broker and the database. Glance and Neutron are stubs; the
hypervisors are Nova's fake ones, all in one process. The users have only the rights that
they need: our service's user gets those of the sample policies in ``etc``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers.keystone import Keystone
from tests.servers.mariadb import MariaDb
from tests.servers.process import Port, Process
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WSGI = ROOT / "tests" / "servers" / "wsgi.py"

SERVICE_PROJECT = "service"
SERVICE_ROLE = "links"
"""Role of our service's user; the sample policies give rights to this role."""

SAMPLES = {
    "links.conf": "nova/links.conf",
    "nova-policy.yaml": "nova/links-policy.yaml",
    "placement-policy.yaml": "placement/links-policy.yaml",
}
"""Sample files in ``etc`` that operators install in their cloud, used here unchanged."""

NOVA_CONF = """
[DEFAULT]
transport_url = {broker}
state_path = {directory}
my_ip = 127.0.0.1
compute_driver = fake.PredictableNodeUUIDDriver
rpc_response_timeout = 180
report_interval = 60
service_down_time = 600
update_resources_interval = 600
sync_power_state_interval = -1
periodic_enable = false
[oslo_concurrency]
lock_path = {directory}/locks
[oslo_policy]
policy_file = {directory}/nova-policy.yaml
[scheduler]
workers = 1
[conductor]
workers = 2
[api]
response_validation = ignore
[quota]
instances = -1
cores = -1
ram = -1
[vnc]
enabled = false
[cache]
enabled = false
[glance]
api_servers = {stubs}/image
[neutron]
endpoint_override = {stubs}/network
{login}
[placement]
{login}
[keystone_authtoken]
www_authenticate_uri = {keystone}
memcache_security_strategy = None
{login}
"""

NOVA_DATABASES = """
[api_database]
connection = {nova_api}
[database]
connection = {nova_cell1}
"""
"""Databases of Nova; nova-compute gets none of them."""

PLACEMENT_CONF = """
[placement_database]
connection = {placement}
[api]
auth_strategy = keystone
[oslo_policy]
policy_file = {directory}/placement-policy.yaml
[keystone_authtoken]
www_authenticate_uri = {keystone}
{login}
"""


class Cloud:
    """Nova and placement; call ``configure``, ``make_tables``, ``register``, ``start`` in order."""

    def __init__(self, directory: Path, logs: Path, hosts: Sequence[str]) -> None:
        self.directory = directory
        self._logs = logs
        self._hosts = hosts
        self._ports = {name: Port() for name in ("nova", "placement", "stubs")}
        self._processes: list[Process] = []
        (directory / "locks").mkdir(parents=True)
        self.nova_url = f"{self._ports['nova'].url}/v2.1"

    def configure(self, keystone: Keystone, databases: MariaDb, broker: str) -> None:
        """Write the configuration and create empty databases."""
        self._databases = {
            name: databases.database(name)
            for name in ("nova_api", "nova_cell0", "nova_cell1", "placement")
        }
        values = {
            "broker": broker,
            "directory": self.directory,
            "stubs": self._ports["stubs"].url,
            "keystone": keystone.url,
            "login": _lines(keystone.options("nova", SERVICE_PROJECT)),
            **self._databases,
        }
        self._broker = broker
        for name, text in (
            ("nova", NOVA_CONF + NOVA_DATABASES),
            ("compute", NOVA_CONF),
            ("placement", PLACEMENT_CONF),
        ):
            (self.directory / f"{name}.conf").write_text(text.format(**values))
        paste = BIN.parent / "etc" / "nova" / "api-paste.ini"
        (self.directory / "api-paste.ini").write_text(paste.read_text())
        for name, sample in SAMPLES.items():
            (self.directory / name).write_text((ROOT / "etc" / sample).read_text())

    def make_tables(self) -> None:
        """Make the tables of Nova and of placement in parallel."""
        with ThreadPoolExecutor(2) as pool:
            made = [
                pool.submit(self._manage, "placement", "db", "sync"),
                pool.submit(self._make_nova_tables),
            ]
        for result in made:
            result.result()

    def _make_nova_tables(self) -> None:
        self._manage("nova", "api_db", "sync")
        cell0, cell1 = self._databases["nova_cell0"], self._databases["nova_cell1"]
        self._manage("nova", "cell_v2", "map_cell0", "--database_connection", cell0)
        urls = ("--database_connection", cell1, "--transport-url", self._broker)
        self._manage("nova", "cell_v2", "create_cell", "--name", "cell1", *urls)
        self._manage("nova", "db", "sync")

    def register(self, keystone: Keystone, links: str) -> None:
        """Register the users of Nova and of our service, and the catalog; ``links`` is our URL."""
        project = keystone.project(SERVICE_PROJECT)
        keystone.user("nova", {project: ["admin", "service"]})
        keystone.role(SERVICE_ROLE)
        keystone.user("laas", {project: [SERVICE_ROLE, "service"]})
        keystone.user("laas-opensm-agent", {project: ["service"]})
        stubs = self._ports["stubs"].url
        for service_type, url in (
            ("isolated-network", links),
            ("compute", self.nova_url),
            ("placement", self._ports["placement"].url),
            ("image", f"{stubs}/image"),
            ("network", f"{stubs}/network"),
        ):
            for interface in ("public", "internal"):
                keystone.endpoint(service_type, url, interface=interface)

    def start(self, say: Callable[[str], object]) -> None:
        """Start all services, in the order of their needs; return when hosts are schedulable."""
        stubs = self._serve("stubs", "tests.stack.stubs")
        placement = self._serve("placement", "placement.wsgi.api")
        stubs.wait_for(self._ports["stubs"].url)
        placement.wait_for(self._ports["placement"].url)
        self._run("nova-conductor", str(BIN / "nova-conductor"), *self._config("nova"))
        scheduler = (*self._config("nova"), *self._config("links"))
        self._run("nova-scheduler", str(BIN / "nova-scheduler"), *scheduler)
        self._serve("nova", "nova.wsgi.osapi_compute").wait_for(self._ports["nova"].url)
        say(f"Nova's API, scheduler and conductor run; {len(self._hosts)} computes start")
        computes = self._run(
            "nova-computes",
            sys.executable,
            "-m",
            "tests.stack.computes",
            *self._config("compute"),
            *self._hosts,
        )
        patience = PATIENCE + 10 * len(self._hosts)
        computes.wait_until(
            lambda: "all computes run" in computes.said(), "computes do not start", patience
        )
        self._manage("nova", "cell_v2", "discover_hosts")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()
        for port in self._ports.values():
            port.close()

    # -- processes ----------------------------------------------------------------

    def _config(self, name: str) -> tuple[str, str]:
        return "--config-file", str(self.directory / f"{name}.conf")

    def _run(self, name: str, *command: str, **environment: str) -> Process:
        variables = surroundings() | environment
        process = Process(command, self._logs / f"{name}.log", variables)
        self._processes.append(process)
        return process

    def _serve(self, name: str, module: str) -> Process:
        directory = str(self.directory)
        return self._run(
            f"{name}-api",
            *(sys.executable, "-P", str(WSGI), module, str(self._ports[name].number)),
            OS_NOVA_CONFIG_DIR=directory,
            OS_PLACEMENT_CONFIG_DIR=directory,
        )

    def _manage(self, service: str, *words: str) -> None:
        command = [str(BIN / f"{service}-manage")]
        command += ["--config-file", str(self.directory / f"{service}.conf"), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=surroundings(), check=False
        )
        with (self._logs / f"{service}-manage.log").open("a") as log:
            log.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            said = (done.stdout + done.stderr)[-4000:]
            raise RuntimeError(f"{service}-manage {' '.join(words[:2])}:\n{said}")


def surroundings() -> dict[str, str]:
    """Environment of every process: with this source tree, without the caller's ``OS_*`` login."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OS_")}
    return {**inherited, "PYTHONPATH": str(ROOT), "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"}


def _lines(options: Mapping[str, str]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in options.items())
