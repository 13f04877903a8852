# SPDX-License-Identifier: Apache-2.0

"""A real Ironic on a free port of loopback: API and conductor in one process, fake hardware.

::

    with Ironic(directory, keystone) as ironic:
        node = ironic.enroll("n1")
        ironic.deploy(ironic.admin, "n1")

``python`` is an interpreter with ``ironic``. The database is SQLite. Nodes are cleaned
automatically, which takes ``cleaning`` seconds.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Collection
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from tests.servers.keystone import Keystone
from tests.servers.process import Port, Process
from tests.waiting import eventually

VERSION = "1.115"
"""The newest version of Ironic 39."""

BAD = "CUSTOM_BAD"
"""A runbook with a step that no node has."""

CLIENT_ID = "ff:00:00:00:00:00:02:00:00:02:c9:00"
"""The vendor's part of the DHCP client id of an InfiniBand port."""

_CONFIGURATION = """
[DEFAULT]
auth_strategy = keystone
rpc_transport = none
host = conductor
my_ip = 127.0.0.1
log_file = {directory}/ironic.log
enabled_hardware_types = fake-hardware
enabled_bios_interfaces = fake
enabled_boot_interfaces = fake
enabled_console_interfaces = fake
enabled_deploy_interfaces = fake
enabled_firmware_interfaces = fake
enabled_inspect_interfaces = fake
enabled_management_interfaces = fake
enabled_network_interfaces = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = fake
enabled_rescue_interfaces = fake
enabled_storage_interfaces = noop
enabled_vendor_interfaces = fake
rbac_service_role_elevated_access = true
[api]
host_ip = 127.0.0.1
port = {port}
[database]
connection = sqlite:///{directory}/ironic.sqlite
sqlite_synchronous = false
[conductor]
automated_clean = true
sync_power_state_interval = 0
automated_cleaning_step_source = hybrid
automated_cleaning_runbook_from_node = true
automated_cleaning_runbook_validate_traits = false
[dhcp]
dhcp_provider = none
[oslo_concurrency]
lock_path = {directory}/locks
[fake]
vendor_delay = {cleaning}
[keystone_authtoken]
{authtoken}
"""


class Ironic:
    """Ironic, which asks a Keystone whose user ``ironic`` it makes. ``url`` has no version."""

    def __init__(
        self,
        directory: Path,
        keystone: Keystone,
        *,
        cleaning: int = 1,
        python: str = sys.executable,
    ) -> None:
        self._directory = directory
        self._keystone = keystone
        self._python = python
        self._process: Process | None = None
        self._port = Port()
        self.url = self._port.url
        directory.mkdir(parents=True, exist_ok=True)
        service = keystone.project("service")
        keystone.user("ironic", {service: ["service"]})
        authtoken = keystone.options("ironic", "service")
        (directory / "ironic.conf").write_text(
            _CONFIGURATION.format(
                directory=directory,
                port=self._port.number,
                cleaning=cleaning,
                authtoken="\n".join(f"{name} = {value}" for name, value in authtoken.items()),
            )
        )

    def __enter__(self) -> Ironic:
        self._run("ironic-dbsync", "create_schema")
        self.start()
        step = {"interface": "deploy", "step": "no_such_step", "args": {}, "order": 1}
        self.admin.post(
            "/v1/runbooks",
            json={"name": BAD, "steps": [step], "public": True, "disable_ramdisk": True},
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._port.close()

    # -- the server -------------------------------------------------------------

    def start(self) -> None:
        """Start Ironic and return when it answers."""
        self._process = Process(
            self._command("ironic"), self._directory / "stderr.log", self._environment()
        )
        self._process.wait_for(self.url)

    def stop(self) -> None:
        """End Ironic. Its port refuses connections until ``start``, which uses it again."""
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)  # its workers outlive a stop for long
            self._process.stop()
            self._process = None

    def _command(self, name: str, *words: str) -> list[str]:
        program = str(Path(self._python).with_name(name))
        return [self._python, program, "--config-file", f"{self._directory}/ironic.conf", *words]

    def _environment(self) -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "PYTHONPATH"))}

    def _run(self, name: str, *words: str) -> None:
        done = subprocess.run(
            self._command(name, *words),
            capture_output=True,
            text=True,
            env=self._environment(),
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{name}:\n{done.stdout}{done.stderr}"[-4000:])

    # -- users ------------------------------------------------------------------------

    @cached_property
    def admin(self) -> Adapter:
        """A client of the system's administrator."""
        return self.client(self._keystone.session(project=None, system_scope="all"))

    def client(self, session: Session) -> Adapter:
        """A client for a login."""
        return Adapter(
            session,
            service_type="baremetal",
            endpoint_override=self.url,
            default_microversion=VERSION,
        )

    # -- nodes ------------------------------------------------------------------------

    def enroll(self, *names: str, guids: Collection[int] = (), owner: str | None = None) -> None:
        """Enroll nodes, each with a port for every GUID; they are powered off and available."""
        for name in names:
            body = {
                "name": name,
                "driver": "fake-hardware",
                "resource_class": "baremetal",
                "owner": owner,
            }
            node = self.admin.post("/v1/nodes", json=body).json()["uuid"]
            for guid in guids:
                octets = f"{guid:016x}"
                end = ":".join(octets[i : i + 2] for i in range(0, 16, 2))
                port = {
                    "node_uuid": node,
                    "address": f"52:54:00:{end[15:]}",
                    "extra": {"client-id": f"{CLIENT_ID}:{end}"},
                }
                self.admin.post("/v1/ports", json=port)
            self.provision(self.admin, name, "manage")
        for name in names:
            self.wait(name, "manageable")
            self.admin.put(f"/v1/nodes/{name}/states/power", json={"target": "power off"})
        for name in names:
            eventually(partial(self._power, name), f"{name} has power")
            self.provision(self.admin, name, "provide")
        for name in names:
            self.wait(name, "available")

    def forget(self) -> None:
        """Delete all nodes."""
        for node in self.admin.get("/v1/nodes").json()["nodes"]:
            self.delete(node["uuid"])

    def delete(self, name: str) -> None:
        """Delete a node, whatever its state."""
        self.admin.put(f"/v1/nodes/{name}/maintenance", json={})
        self.patch(name, instance_uuid=None)
        eventually(partial(self._delete, name), f"node {name} is deleted")

    def _delete(self, uuid: str) -> bool:
        return bool(self.admin.delete(f"/v1/nodes/{uuid}", raise_exc=False).ok)

    def _power(self, name: str) -> bool:
        return self.node(name)["power_state"] is not None

    def node(self, name: str) -> dict[str, Any]:
        return dict(self.admin.get(f"/v1/nodes/{name}").json())

    def uuids(self) -> dict[str, str]:
        """The UUIDs of all nodes by name."""
        found: dict[str, str] = {}
        marker = ""
        while True:
            path = f"/v1/nodes?fields=name,uuid&limit=1000{marker}"
            answer = self.admin.get(path).json()
            found |= {node["name"]: node["uuid"] for node in answer["nodes"]}
            if not answer.get("next"):
                return found
            marker = f"&marker={answer['nodes'][-1]['uuid']}"

    def copy(self, name: str, copies: Collection[str]) -> None:
        """Write copies of an available node into Ironic's database; thousands take a second."""
        with sqlite3.connect(self._directory / "ironic.sqlite", timeout=60) as rows:
            rows.row_factory = sqlite3.Row
            found = rows.execute("SELECT * FROM nodes WHERE name = ?", (name,)).fetchone()
            columns = sorted({*dict(found)} - {"id", "name", "uuid"})
            listed = ", ".join(("name", "uuid", *columns))
            marks = ", ".join("?" * (len(columns) + 2))
            values = [found[column] for column in columns]
            rows.executemany(
                f"INSERT INTO nodes ({listed}) VALUES ({marks})",
                [(copy, str(uuid.uuid4()), *values) for copy in copies],
            )

    def drop(self, names: Collection[str]) -> None:
        """Delete copies from Ironic's database."""
        with sqlite3.connect(self._directory / "ironic.sqlite", timeout=60) as rows:
            rows.executemany("DELETE FROM nodes WHERE name = ?", [(name,) for name in names])

    def set_firmware(self, name: str, component: str, first: str, now: str) -> None:
        """Write into Ironic's database what a BMC would tell; fake hardware has no firmware."""
        columns = "node_id, component, initial_version, current_version, version, created_at"
        with sqlite3.connect(self._directory / "ironic.sqlite", timeout=60) as rows:
            (id,) = rows.execute("SELECT id FROM nodes WHERE name = ?", (name,)).fetchone()
            rows.execute(
                f"INSERT OR REPLACE INTO firmware_information ({columns}) "
                "VALUES (?, ?, ?, ?, '1.0', CURRENT_TIMESTAMP)",
                (id, component, first, now),
            )

    def set_bios(self, name: str, setting: str, value: str) -> None:
        """Write a setting of a node's BIOS, as its tenant may from the operating system."""
        with sqlite3.connect(self._directory / "ironic.sqlite", timeout=60) as rows:
            (id,) = rows.execute("SELECT id FROM nodes WHERE name = ?", (name,)).fetchone()
            rows.execute(
                "UPDATE bios_settings SET value = ? WHERE node_id = ? AND name = ?",
                (value, id, setting),
            )

    def patch(self, name: str, client: Adapter | None = None, **fields: Any) -> int:
        """Change fields of a node; the status of the answer."""
        changes = [
            {"op": "replace", "path": f"/{field}", "value": value}
            for field, value in fields.items()
        ]
        answer = (client or self.admin).patch(f"/v1/nodes/{name}", json=changes, raise_exc=False)
        return int(answer.status_code)

    def provision(self, client: Adapter, name: str, target: str) -> int:
        """Ask for a change of a node's state; the status of the answer."""
        path = f"/v1/nodes/{name}/states/provision"
        return int(client.put(path, json={"target": target}, raise_exc=False).status_code)

    def wait(self, name: str, state: str) -> None:
        """Return when a node is in a state. Raises: AssertionError, at once if it failed."""

        def look() -> bool:
            node = self.node(name)
            found = node["provision_state"]
            assert found == state or "fail" not in found, f"{name} is {found}: {node['last_error']}"
            return bool(found == state)

        eventually(look, f"{name} is {state}")

    def deploy(self, client: Adapter, name: str) -> None:
        assert self.provision(client, name, "active") == 202
        self.wait(name, "active")

    def undeploy(self, client: Adapter, name: str, end: str = "available") -> None:
        assert self.provision(client, name, "deleted") == 202
        self.wait(name, end)
