# SPDX-License-Identifier: Apache-2.0

"""A service over HTTP on SQLite with fake ports; the OpenAPI document describes every answer."""

from __future__ import annotations

import itertools
import re
import shutil
import threading
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from zlib import crc32

import jsonschema
import pytest
from flask.testing import FlaskClient
from oslo_config import cfg

from laas_service.adapters.certificate_keys import CertificateKeys
from laas_service.adapters.db.agents import SqlAgents
from laas_service.adapters.db.clock import database_clock
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.transactions import utc_now
from laas_service.adapters.fabric_import.generator import inventory
from laas_service.api.app import ROUTES, create_app
from laas_service.api.auth import middleware
from laas_service.api.openapi import document
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.agent_registry import AgentRegistry
from laas_service.app.lifecycle import State
from laas_service.app.ports.projects import Projects
from laas_service.app.records import Confirmed
from laas_service.app.requests import Runtime, ServicePolicy
from laas_service.app.use_cases import UseCases, every_policy
from laas_service.conf import register_opts
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.policies import POLICIES
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.topology import Topology, Xgft
from laas_service.messages import Applied, ConfirmedBy
from opensm_writer import render
from opensm_writer.serve import ServedSets
from tests.fakes import FakeCompute, FakeSubnetManager
from tests.functional.api.keystone import Keystone
from tests.recabling import apart

SPEC = document(ROUTES, "http://localhost")
TOPOLOGY = Topology(Xgft((4, 4, 2), (1, 4, 4)))
"""A full tree: 32 hosts on 8 leaves in 2 pods."""


class Deployment:
    """A service with its own database; tests control clocks, the worker and the ports."""

    def __init__(self, path):
        self.engine = connect(f"sqlite:///{path}")
        self.slept = 0.0
        self.store = SqlStore(self.engine, now=self.clock)
        self.reached_by_agents = True
        self.later = 0.0  # seconds by which the database's clock is ahead, for agents
        self.agents = SqlAgents(self.engine, clock=self.database_clock)
        self.served = ServedSets(
            Path(path).parent / "file-sets", self.store.fabrics.routed, settings_of
        )
        self.certificate_keys = CertificateKeys(Path(path).parent / "certificate-keys")
        self.compute = FakeCompute()
        self.subnet_manager = FakeSubnetManager()
        self.projects = Projects()
        self.numbers = itertools.count(1)
        self.woken = 0
        self.while_waiting = self.converge
        self.conf = cfg.ConfigOpts()
        register_opts(self.conf)
        self.conf([], project="laas", default_config_files=[], default_config_dirs=[])

    def add_fabric(self, id="main", topology=TOPOLOGY):
        number = 0 if id == "main" else crc32(id.encode()) % 255 + 1
        self.store.fabrics.add(id, topology, apart(inventory(topology), number))
        return self

    def use_cases(self, **rules):
        offered = {"jigsaw": POLICIES["jigsaw"]()}
        rules = {"policies": offered, "default_policy": "jigsaw", **rules}
        return UseCases(
            self.store,
            self.compute,
            {"local": lambda fabric: self.subnet_manager.applied(fabric)},
            ServicePolicy(**rules),
            Runtime(
                clock=self.clock,
                sleep=self.sleep,
                wake=self.wake,
                new_id=lambda: f"allocation-{next(self.numbers)}",
                sign=self.certificate_keys.sign,
            ),
            registry=self.registry(),
            projects=self.projects,
        )

    def registry(self):
        if not self.reached_by_agents:
            return None
        return AgentRegistry(
            self.store, self.agents, self.served, seconds=15, wake=self.wake, now=utc_now
        )

    def client(self, authenticate=None, **rules):
        authenticate = authenticate or middleware("none", "127.0.0.1", self.conf)
        app = create_app(self.use_cases(**rules), self.conf, authenticate)
        app.test_client_class = CheckedClient
        return app.test_client()

    def serve_queues(self):
        """Serve all queues as the worker does; return how many requests were admitted."""
        policies = every_policy(SharedSlots())
        return AdmissionQueue(self.store, policies, Discipline(), clock=self.clock).serve_all()

    def clock(self):
        return datetime.fromtimestamp(1_700_000_000 + self.slept, UTC)

    def database_clock(self, session):
        return database_clock(session) + timedelta(seconds=self.later)

    def sleep(self, seconds):
        self.slept += seconds
        self.while_waiting()

    def wake(self):
        self.woken += 1

    def return_switches(self):
        """What the worker does once the tables of repaired switches are confirmed."""
        self.store.components.return_switches(
            "main", self.store.faults.observation("main").repaired
        )

    def converge(self):
        """Complete every change at once; the worker takes several steps."""
        for record in self.store.allocations.page(states=(State.ALLOCATING, State.RELEASING)):
            if record.state is State.ALLOCATING:
                applied = Applied(record.generation, by=ConfirmedBy.SWITCHES)
                confirmed = Confirmed.of(applied, record.updated_at)
                self.store.allocations.transition(
                    record, State.ACTIVE, "confirmed", confirmed=confirmed
                )
            else:
                self.store.allocations.free(
                    self.store.allocations.hand_back(record), "hosts and routes are gone"
                )


def settings_of(fabric):
    return render.Settings(f"/var/lib/laas/opensm/{fabric}/current")


class CheckedClient(FlaskClient):
    """Checks route, status, type and body of every answer against the OpenAPI document."""

    def open(self, *args, **kwargs):
        response = super().open(*args, **kwargs)
        if response.request.method not in ("HEAD", "OPTIONS"):
            check(response.request.method, response.request.path, response)
        return response


def check(method, path, response):
    """Fail unless the document describes the answer; unknown routes must answer with a problem."""
    media = response.mimetype
    if response.status_code >= 400:
        assert media == "application/problem+json", response.text
        assert response.json["status"] == response.status_code
        assert response.json["request_id"] == response.headers["x-openstack-request-id"]
    operation = _operation(method, path)
    if operation is None:
        assert response.status_code in (404, 405)
        return
    answers = operation["responses"]
    if response.status_code < 400:
        assert str(response.status_code) in answers, f"{method} {path}: {response.status_code}"
    if response.status_code == 304:
        assert response.data == b""
        return
    answer = answers.get(str(response.status_code), answers["default"])
    shape = answer["content"][media]["schema"]
    value = response.json if media.endswith("json") else response.text
    jsonschema.validate(
        value,
        {**shape, "components": SPEC["components"]},
        format_checker=jsonschema.FormatChecker(),
    )


def _operation(method, path):
    for template, operations in SPEC["paths"].items():
        pattern = re.sub(
            r"\\\{(\w+)\\\}",
            lambda found: ".+" if found[1] in ("name", "file", "link_id") else "[^/]+",
            re.escape(template),
        )
        if re.fullmatch(f"{pattern}/?", path) and method.lower() in operations:
            return operations[method.lower()]
    return None


@pytest.fixture
def bare(empty_database, tmp_path):
    """A deployment without fabrics."""
    made = Deployment(shutil.copy(empty_database, tmp_path / "laas.db"))
    yield made
    made.engine.dispose()


@pytest.fixture
def deployment(bare):
    return bare.add_fabric()


@pytest.fixture
def client(deployment):
    """A local administrator on a fabric of 32 hosts."""
    return deployment.client()


@pytest.fixture
def allocate(client):
    """Allocate and converge; return the document of the allocation."""

    def ask(hosts, name="blue", **more):
        answer = client.post("/v1/allocations?wait=5", json={"name": name, "hosts": hosts, **more})
        assert answer.status_code == 202, answer.text
        return answer.json

    return ask


@pytest.fixture
def keystone():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Keystone)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def guarded(deployment, keystone, tmp_path):
    url = f"http://127.0.0.1:{keystone.server_port}"
    file = tmp_path / "laas.conf"
    file.write_text(
        f"""
[keystone_authtoken]
auth_type = password
auth_url = {url}
www_authenticate_uri = {url}
username = laas
password = secret
project_name = service
user_domain_id = default
project_domain_id = default
http_request_max_retries = 0
"""
    )
    deployment.conf(["--config-file", str(file)], project="laas")
    return deployment.client(middleware("keystone", "0.0.0.0", deployment.conf))
