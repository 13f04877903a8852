# SPDX-License-Identifier: Apache-2.0

"""The real Watcher and our service in one process, each behind its REST interface.

Watcher's API, decision engine and applier run with SQLite and oslo.messaging's fake driver, from
the fixtures that its package has. Our service runs on SQLite with a fake Nova; its worker takes
one step before each answer that shows an allocation.
"""

from __future__ import annotations

import os

os.environ.setdefault("OS_WATCHER_DISABLE_EVENTLET_PATCHING", "true")

import threading
from random import Random

import pytest
from oslo_config import cfg
from watcher.tests.functional.api.client import WatcherTestClient
from watcher.tests.functional.base import WatcherEnvironment
from watcher.tests.local_fixtures.api import APIFixture
from wsgi_intercept import interceptor

from laas_service.domain.topology import Topology, Xgft
from tests.convergers import Convergers
from tests.databases import empty_database as empty_database
from tests.functional.api.conftest import bare as bare
from tests.functional.api.conftest import client as client
from tests.marks import pytest_runtest_makereport as pytest_runtest_makereport
from tests.waiting import eventually
from watcher_plugin.service import GROUP, options

SERVICE = "http://127.0.0.1:8799"
"""Answered by the interceptor; nothing listens there."""


TOPOLOGY = Topology(Xgft((4, 4, 1), (1, 4, 0)))
"""A full tree of two levels: 16 hosts on 4 leaves."""


@pytest.fixture
def deployment(bare):
    return bare.add_fabric(topology=TOPOLOGY)


class Worker:
    """Stands before the service and converges; ``pace`` are the seconds that each step takes."""

    def __init__(self, deployment, application):
        self.application = application
        self.deployment = deployment
        self.converger = Convergers(
            deployment.store,
            deployment.compute,
            deployment.subnet_manager,
            now=deployment.clock,
            chance=Random(1),
        )
        self.pace = 60.0
        self.lock = threading.Lock()
        self.asked: list[str] = []

    def __call__(self, environ, start_response):
        with self.lock:
            asked = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
            self.asked.append(asked)
            if asked.startswith("GET /v1/allocations/"):
                self.step()
            return self.application(environ, start_response)

    def step(self):
        self.deployment.slept += self.pace
        self.converger.run_once()


@pytest.fixture
def worker(deployment, client):
    worker = Worker(deployment, client.application)
    intercept = interceptor.RequestsInterceptor(lambda: worker, url=SERVICE)
    intercept.install_intercept()
    yield worker
    intercept.uninstall_intercept()


class NewestApi(WatcherTestClient):
    """Asks for the newest microversion, which shows why an action failed."""

    def _headers(self):
        return {**super()._headers(), "OpenStack-API-Version": "infra-optim latest"}


class Watcher:
    """What an operator of Watcher does, by its REST interface."""

    def __init__(self, api):
        self.api = api

    def get(self, path):
        answer = self.api.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def audited(self, goal="laas_room", strategy="laas_make_room", **parameters):
        """Have room audited, or another goal; return the audit when it has ended."""
        asked = {
            "audit_type": "ONESHOT",
            "goal": goal,
            "strategy": strategy,
            "parameters": parameters,
        }
        made = self.api.post("/audits", asked)
        assert made.status_code == 201, made.text
        path = f"/audits/{made.json()['uuid']}"
        return eventually(lambda: _ended(self.get(path)), "the audit ends")

    def plan(self, audit):
        """The action plan that an audit proposes."""
        (plan,) = self.get(f"/action_plans?audit_uuid={audit['uuid']}")["action_plans"]
        return self.get(f"/action_plans/{plan['uuid']}")

    def actions(self, plan):
        """The actions of a plan, in the order in which they run."""
        listed = self.get(f"/actions?action_plan_uuid={plan['uuid']}")["actions"]
        shown = [self.get(f"/actions/{action['uuid']}") for action in listed]
        following = {tuple(action["parents"]): action for action in shown}
        chain = [following[()]]
        while next_one := following.get((chain[-1]["uuid"],)):
            chain.append(next_one)
        assert len(chain) == len(shown)
        return chain

    def told(self, plan, state):
        """Ask for a state of a plan: PENDING approves it, CANCELLING stops it."""
        change = [{"op": "replace", "path": "/state", "value": state}]
        answer = self.api.patch(f"/action_plans/{plan['uuid']}", change)
        assert answer.status_code == 200, answer.text

    def ended(self, plan):
        """The plan, when it has ended."""
        path = f"/action_plans/{plan['uuid']}"
        return eventually(lambda: _ended(self.get(path)), "the action plan ends")

    def outcomes(self, plan):
        """Type and state of each action, in order."""
        return [(action["action_type"], action["state"]) for action in self.actions(plan)]


def _ended(shown):
    return shown if shown["state"] in ("SUCCEEDED", "FAILED", "CANCELLED") else None


@pytest.fixture
def watcher(worker):
    environment, api = WatcherEnvironment(), APIFixture()
    conf = cfg.CONF
    options()
    with environment, api:
        conf.set_override("auth_type", "none", group="watcher_clients_auth")
        conf.set_override("endpoint_override", SERVICE, group=GROUP)
        conf.set_override("poll_interval", 0.01, group=GROUP)
        yield Watcher(NewestApi(api.base_url))
        for option, group in (
            ("auth_type", "watcher_clients_auth"),
            ("endpoint_override", GROUP),
            ("poll_interval", GROUP),
            ("step_timeout", GROUP),
        ):
            conf.clear_override(option, group=group)
