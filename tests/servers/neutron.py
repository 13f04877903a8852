# SPDX-License-Identifier: Apache-2.0

"""A real Neutron on a free port of loopback, with QoS policies and without agents.

``python`` is an interpreter with ``neutron`` and ``waitress``; ``connection`` names an empty
database of MariaDB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers.keystone import Keystone
from tests.servers.process import Port, Process

_CONFIGURATION = """
[DEFAULT]
auth_strategy = keystone
core_plugin = ml2
service_plugins = qos
transport_url = fake://
api_paste_config = {paste}
state_path = {directory}
log_file = {directory}/neutron.log
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = {connection}
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers = openvswitch
extension_drivers = qos
[oslo_concurrency]
lock_path = {directory}/locks
[keystone_authtoken]
{authtoken}
"""

_WSGI = Path(__file__).with_name("wsgi.py")


class Neutron:
    """Neutron, which asks a Keystone whose user ``neutron`` it makes."""

    def __init__(
        self, directory: Path, keystone: Keystone, connection: str, *, python: str = sys.executable
    ) -> None:
        self._directory = directory
        self._python = python
        self._process: Process | None = None
        self._port = Port()
        self.url = self._port.url
        directory.mkdir(parents=True, exist_ok=True)
        keystone.user("neutron", {keystone.project("service"): ["service", "admin"]})
        authtoken = keystone.options("neutron", "service")
        self._file = directory / "neutron.conf"
        self._file.write_text(
            _CONFIGURATION.format(
                directory=directory,
                connection=connection,
                paste=Path(python).parent.with_name("etc") / "neutron" / "api-paste.ini",
                authtoken="\n".join(f"{name} = {value}" for name, value in authtoken.items()),
            )
        )

    def __enter__(self) -> Neutron:
        tool = str(Path(self._python).with_name("neutron-db-manage"))
        command = [self._python, tool, "--config-file", str(self._file), "upgrade", "heads"]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self._environment(), check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        self._process = Process(
            [self._python, "-P", str(_WSGI), "neutron.wsgi.api", str(self._port.number)],
            self._directory / "stderr.log",
            self._environment(),
        )
        self._process.wait_for(self.url)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process:
            self._process.stop()
        self._port.close()

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "PYTHONPATH"))}
        return {**kept, "OS_NEUTRON_CONFIG_FILES": str(self._file)}
