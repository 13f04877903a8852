# SPDX-License-Identifier: Apache-2.0

"""Fixtures: one real Nova for all tests here, with nodes of a real Ironic; patches Nova first."""

from __future__ import annotations

import pytest

import tests.nova.conftest as patched
from tests.nodes import cloud
from tests.servers.ironic import Ironic
from tests.servers.keystone import Keystone

_place_for_files = patched._place_for_files
pytest_runtest_makereport = patched.pytest_runtest_makereport

NODES = ["n1", "n2", "n3", "n4"]
HYPERVISORS = ["h1", "h2"]
GUIDS = {name: 0x7CFE900300292650 + number for number, name in enumerate(NODES)}


@pytest.fixture(scope="session")
def keystone(tmp_path_factory):
    with Keystone(tmp_path_factory.mktemp("keystone")) as running:
        yield running


@pytest.fixture(scope="session")
def ironic(keystone, tmp_path_factory):
    with Ironic(tmp_path_factory.mktemp("ironic"), keystone) as running:
        keystone.endpoint("baremetal", running.url)
        keystone.user(cloud.USER, {keystone.project("service"): ["service"]})
        keystone.user("laas", {keystone.project("service"): ["service"]})
        yield running


@pytest.fixture(scope="session")
def clean_nova(keystone, ironic):
    for name in NODES:
        ironic.enroll(name, guids=[GUIDS[name]])
    with cloud.started(HYPERVISORS, ironic, keystone) as running:
        yield running


@pytest.fixture
def nova(clean_nova):
    yield clean_nova
    clean_nova.forget_nodes()


@pytest.fixture
def compute(nova):
    return nova.node_compute()
