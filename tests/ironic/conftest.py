# SPDX-License-Identifier: Apache-2.0

"""Fixtures: one real Ironic and its Keystone for all tests here, users, and our adapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from keystoneauth1.adapter import Adapter

from laas_service.adapters.ironic import IronicCompute
from laas_service.wiring.composition import Composition
from tests.marks import pytest_runtest_makereport as pytest_runtest_makereport
from tests.options import options_from
from tests.servers.ironic import Ironic
from tests.servers.keystone import Keystone

HOSTS = ["n1", "n2", "n3", "n4"]


@pytest.fixture(scope="session")
def keystone(tmp_path_factory):
    with Keystone(tmp_path_factory.mktemp("keystone")) as running:
        yield running


@pytest.fixture(scope="session")
def clean_ironic(keystone, tmp_path_factory):
    with Ironic(tmp_path_factory.mktemp("ironic"), keystone) as running:
        keystone.endpoint("baremetal", running.url)
        keystone.user("laas", {keystone.project("service"): ["service"]})
        yield running


@pytest.fixture
def ironic(clean_ironic):
    yield clean_ironic
    clean_ironic.forget()


@dataclass(frozen=True)
class Tenant:
    """A project with a user of role manager, and one of role member."""

    id: str
    manager: Adapter
    member: Adapter


@pytest.fixture(scope="session")
def tenants(keystone, clean_ironic):
    """Projects by name."""
    made = {}
    for name in ("red", "blue"):
        project = keystone.project(name)
        clients = []
        for role in ("manager", "member"):
            user = f"{name}-{role}"
            roles = {"manager": ["manager", "member", "reader"], "member": ["member", "reader"]}
            keystone.user(user, {project: roles[role]})
            clients.append(clean_ironic.client(keystone.session(user, project=name)))
        made[name] = Tenant(project, *clients)
    return made


@pytest.fixture(scope="session")
def red(tenants):
    return tenants["red"]


@pytest.fixture(scope="session")
def blue(tenants):
    return tenants["blue"]


@dataclass(frozen=True)
class Configured:
    """Makes our parts on a directory, with the login of a user of the project ``service``."""

    keystone: Keystone
    directory: Path
    compute: tuple[str, ...] = ()
    """Further lines of [compute]."""

    def parts(self, user: str = "laas") -> Composition:
        return parts_of(self.file(user))

    def file(self, user: str = "laas") -> Path:
        """Write the configuration."""
        login = self.keystone.options(user, "service")
        file = self.directory / f"{user}.conf"
        file.write_text(
            "\n".join(
                [
                    "[DEFAULT]",
                    f"state_dir = {self.directory}",
                    *("[api]", "enabled_policies = jigsaw"),
                    *("[worker]", "retry_first = 0.01", "retry_last = 0.1"),
                    *("[compute]", "kind = ironic", "hold_down = 0", *self.compute),
                    "[ironic]",
                    *(f"{name} = {value}" for name, value in login.items()),
                ]
            )
        )
        return file


def parts_of(file: Path) -> Composition:
    """Make our parts as a configuration says."""
    return Composition(options_from(file))


@pytest.fixture
def configured(keystone, clean_ironic, tmp_path):
    made = Configured(keystone, tmp_path)
    made.parts().database.upgrade()
    return made


@pytest.fixture
def compute(configured) -> IronicCompute:
    made = configured.parts().compute
    assert isinstance(made, IronicCompute)
    return made
