# SPDX-License-Identifier: Apache-2.0

"""Limits of what servers send, as shell scripts of ``openstack`` commands for a person to run.

``limit-ID.sh`` has the commands of an allocation, to be run again when it has new servers;
``forget-ID.sh`` replaces it when the allocation is released.
"""

import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from laas_service.adapters.neutron import kilobits, policy_name
from laas_service.app.ports.rate_limits import Limited
from laas_service.domain.errors import Unavailable


class DirectoryRateLimits:
    """The ``RateLimits`` port on a directory; nobody checks that the scripts are run.

    Errors of all methods: ``Unavailable`` when the directory cannot be written.
    """

    name: ClassVar[str] = "directory"

    def __init__(self, path: Path) -> None:
        self._path = path

    def limit(
        self, id: str, project_id: str, bandwidth: float, servers: Collection[str]
    ) -> Limited:
        """Write the commands, if they are others than before."""
        name = policy_name(id, 1)
        options = ["--type", "bandwidth-limit", "--max-kbps", str(kilobits(bandwidth, 1))]
        rule = [*options, "--max-burst-kbits", "0", "--egress", name]
        exists = f"{_command('network', 'qos', 'policy', 'show', name)} > /dev/null 2>&1"
        lines = [
            "# Each server has one port. With more ports, divide the limit by their number.",
            f"{exists} || {{",
            f"  {_command('network', 'qos', 'policy', 'create', '--no-share', name)}",
            f"  {_command('network', 'qos', 'rule', 'create', *rule)}",
            "}",
            *(line for server in sorted(servers) for line in _of_server(server, name)),
        ]
        self._write(f"limit-{id}.sh", lines)
        return Limited()

    def forget_limits(self, id: str) -> None:
        """Write the command that deletes the policy, if there was one."""
        if not (self._path / f"limit-{id}.sh").exists():
            return
        self._write(
            f"forget-{id}.sh", [_command("network", "qos", "policy", "delete", policy_name(id, 1))]
        )
        (self._path / f"limit-{id}.sh").unlink(missing_ok=True)

    def _write(self, name: str, lines: Sequence[str]) -> None:
        text, path = "\n".join(["#!/bin/sh", "set -e", *lines, ""]), self._path / name
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.read_text() == text:
                return
            draft = path.with_suffix(".new")
            draft.write_text(text)
            os.replace(draft, path)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error}") from error


def _of_server(server: str, policy: str) -> list[str]:
    ports = _command("port", "list", "--server", server, "-f", "value", "-c", "ID")
    return [
        f"for port in $({ports}); do",
        f'  {_command("port", "set", "--qos-policy", policy)} "$port"',
        "done",
    ]


def _command(*words: str) -> str:
    return shlex.join(["openstack", *words])
