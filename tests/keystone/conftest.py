# SPDX-License-Identifier: Apache-2.0

"""Fixtures: one real Keystone for all tests here, its users, and services that ask it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import Any

import pytest
from oslo_config import cfg

from laas_service.api.auth import middleware
from tests.functional.api.conftest import Deployment
from tests.servers.keystone import Keystone

LONG = 3600


@pytest.fixture(scope="session")
def keystone(tmp_path_factory):
    with Keystone(tmp_path_factory.mktemp("keystone"), expiration=LONG) as running:
        yield running


@dataclass(frozen=True)
class People:
    """Tokens by column of the documented table, and the ids of projects."""

    tokens: dict[str, list[str | None]]
    blue: str
    red: str

    def __getitem__(self, who):
        token = self.tokens[who][0]
        return {"X-Auth-Token": token} if token else {}


@pytest.fixture(scope="session")
def people(keystone):
    blue, red, ops, service = map(keystone.project, ("blue", "red", "ops", "service"))
    for role in ("reader", "member", "manager"):
        keystone.user(role, {blue: [role]})
    keystone.user("boss", {ops: ["admin"], blue: ["admin"]}, domain=["admin"], system=["admin"])
    keystone.user("stranger", {red: ["member"]})
    keystone.user("laas", {service: ["service"]})
    revoked = keystone.token("boss", project="blue")
    keystone.revoke(revoked)
    tokens = {
        "none": [None, "forged", expired(keystone, "boss", "blue"), revoked],
        **{
            role: [keystone.token(role, project="blue")] for role in ("reader", "member", "manager")
        },
        "admin": [keystone.token("boss", project="ops"), keystone.token("boss", project="blue")],
        "stranger": [keystone.token("stranger", project="red")],
        "service": [keystone.token("laas", project="service")],
        "scope": [
            keystone.token("boss", project=None, domain_id="default"),
            keystone.token("boss", project=None, system_scope="all"),
            keystone.token("boss", project=None, unscoped=True),
        ],
    }
    return People(tokens, blue, red)


def expired(keystone, name, project):
    """A token that has just expired."""
    keystone.restart(expiration=1)
    token = keystone.token(name, project=project)
    time.sleep(2)  # twice the life of a token; Keystone counts whole seconds
    keystone.restart(expiration=LONG)
    return token


class Shared:
    """One middleware for many applications, so that its cache of tokens is shared."""

    def __init__(self, conf):
        self._app: Any = None
        self._guard = middleware("keystone", "0.0.0.0", conf)(self._inner)

    def __call__(self, app):
        self._app = app
        return self._guard

    def _inner(self, environ, start_response):
        return self._app(environ, start_response)


@pytest.fixture(scope="session")
def authtoken(keystone, people, tmp_path_factory):
    """Make a configuration whose [keystone_authtoken] names the real Keystone."""

    def configured(**options):
        given = {
            **keystone.options("laas", "service"),
            "www_authenticate_uri": keystone.url,
            "http_request_max_retries": 0,
            **options,
        }
        file = tmp_path_factory.mktemp("etc") / "laas.conf"
        lines = [f"{name} = {value}" for name, value in given.items()]
        file.write_text("\n".join(["[keystone_authtoken]", *lines]))
        conf = cfg.ConfigOpts()
        conf(["--config-file", str(file)], project="laas")
        return conf

    return configured


@pytest.fixture(scope="session")
def shared(authtoken):
    return Shared(authtoken())


@pytest.fixture
def deployment(empty_database, tmp_path):
    made = Deployment(shutil.copy(empty_database, tmp_path / "laas.db"))
    yield made.add_fabric()
    made.engine.dispose()


@pytest.fixture
def guarded(deployment, authtoken):
    """Make a service with its own middleware; takes further options of [keystone_authtoken]."""

    def make(**options):
        return deployment.client(middleware("keystone", "0.0.0.0", authtoken(**options)))

    return make


@pytest.fixture
def client(deployment, shared):
    return deployment.client(shared)
