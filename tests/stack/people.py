# SPDX-License-Identifier: Apache-2.0

"""Users of the stack: tenants with tokens, a stranger, an administrator; their site."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from keystoneauth1.session import Session
from novaclient import client as nova_client

from tests.stack.everything import Everything
from tests.stack.stubs import IMAGE
from tests.story.judge import Subnet
from tests.story.scenario import STRANGER
from tests.story.site import OpenStackSite, Rest

NOVA_VERSION = "2.87"
FLAVOR = {"name": "story", "ram": 1024, "vcpus": 1, "disk": 1}
"""Flavor of the story's servers; seven servers fill the memory of a host."""


class People:
    """An administrator, and ``tenants`` projects and a stranger's project with a member each."""

    def __init__(self, stack: Everything, tenants: int) -> None:
        self._keystone = stack.keystone
        self._stack = stack
        self._names: dict[str, str] = {}
        for number in range(tenants + 1):
            name = f"tenant-{number:02}" if number < tenants else "stranger"
            project = self._keystone.project(name)
            self._keystone.user(name, {project: ["member", "reader"]})
            self._names[project] = name
        *self.projects, self.stranger = self._names
        self._sessions = {id: self._session(name) for id, name in self._names.items()}

    def _session(self, name: str) -> Session:
        return self._keystone.session(name, project=name)

    @cached_property
    def admin(self) -> Any:
        return self._nova(self._keystone.session())

    def nova(self, project: str) -> Any:
        return self._nova(self._sessions[project])

    def rest(self) -> Rest:
        return Rest(self._stack.service.url, self._headers)

    def _headers(self, project: str) -> Mapping[str, str]:
        return {"X-Auth-Token": str(self._sessions[project].get_token())}

    def _nova(self, session: Session) -> Any:
        return nova_client.Client(NOVA_VERSION, session=session)

    def site(self) -> StackSite:
        flavor = self.admin.flavors.create(**FLAVOR)
        options = {"image": IMAGE, "flavor": flavor.id, "nics": "none"}
        simulator = self._stack.service.simulator
        subnet = Subnet(simulator.read)
        return StackSite(self, options, subnet)


class StackSite(OpenStackSite):
    """Translates the story's constant ``STRANGER`` to the stranger's project in Keystone."""

    def __init__(self, people: People, boot_options: Mapping[str, Any], subnet: Subnet) -> None:
        super().__init__(people.rest(), people.nova, people.admin, boot_options, subnet)
        self._people = people

    def boot(self, project: str, count: int) -> int:
        return super().boot(self._people.stranger if project == STRANGER else project, count)

    def let_in(self) -> dict[str, set[str]]:
        names = {self._people.stranger: STRANGER}
        found = super().let_in()
        return {host: {names.get(value, value) for value in found[host]} for host in found}
