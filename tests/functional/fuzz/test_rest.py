# SPDX-License-Identifier: Apache-2.0

"""Valid and invalid requests, generated from the OpenAPI document, in process.

Schemathesis generates the requests and checks the answers against the document. The caller
is an administrator, so that no access rule stops a request before it reaches its handler.
"""

from __future__ import annotations

import shutil
from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from sqlalchemy import func, select

from laas_service.adapters.db import models
from laas_service.api.app import ROUTES, create_app
from laas_service.api.auth import middleware
from laas_service.app.lifecycle import State
from laas_service.app.records import Caller
from laas_service.app.requests import AllocationRequest
from tests.functional.api.conftest import Deployment
from tests.functional.fuzz.long import EXAMPLES, LONG, Tally

SOMEBODY = Caller("blue", "fuzz", admin=True, request_id="fuzz")

KNOWN = {
    "fabric_id": ("main",),
    "name": ("node00", "node31", "a/b"),
    "agent": ("sm1", "sm2", "a b"),
    "generation": ("1", "2"),
    "file": ("lfts", "guid2lid", "engines/a"),
    "link_id": ("leaf-0-0-0", "spine-1-3-2", "leaf-9-0-0"),
    "switch_id": ("leaf-0-0", "leaf-1-1", "spine-0-0", "a/b"),
}
"""Existing names, and some that do not exist; random names would never match."""

LEFT_OUT = (
    "positive_data_acceptance",  # a valid request may name a resource that does not exist
    "negative_data_rejection",  # the local administrator needs no token
    "unsupported_method",
    "ignored_auth",
    "not_a_server_error",  # this test checks it and allows 501
)
"""Checks of Schemathesis that do not fit."""

TALLY = (
    *(select(func.count()).select_from(table) for table in models.Base.metadata.sorted_tables),
    select(func.sum(models.AllocationRow.version)),
    select(func.sum(models.FabricRow.generation)),
)
"""Queries whose results grow with every recorded change."""


@pytest.fixture(scope="module")
def fuzzed(empty_database, tmp_path_factory):
    """A deployment that all examples of all routes share."""
    path = tmp_path_factory.mktemp("fuzz") / "laas.db"
    deployment = Deployment(shutil.copy(empty_database, path)).add_fabric()
    deployment.conf.set_override("max_wait", 0, "api")
    app = create_app(
        deployment.use_cases(),
        deployment.conf,
        middleware("none", "127.0.0.1", deployment.conf),
    )
    yield deployment, schemathesis.openapi.from_wsgi("/v1/openapi.json", app)
    deployment.engine.dispose()


UNPACKED = {"Accept-Encoding": "identity"}
"""The transport inside one process does not unpack what is compressed."""


def tally(deployment):
    with deployment.engine.connect() as connection:
        return [connection.scalar(one) for one in TALLY]


def make_room(deployment):
    """Keep some allocations, and enough free hosts for new ones; return the ids."""
    live = deployment.store.allocations.page(states=(State.QUEUED, State.ALLOCATING, State.ACTIVE))
    if not live:
        live = [
            deployment.use_cases()
            .allocations.allocate(SOMEBODY, AllocationRequest(name=n, hosts=2))
            .record
            for n in "ab"
        ]
        deployment.converge()
    if len(live) < 8:
        return [record.id for record in live]
    for record in reversed(live):
        if record.state is State.QUEUED:
            deployment.store.allocations.cancel(record, "room for others")
        elif not [one for one in live if one.parent == record.id]:
            deployment.store.allocations.transition(
                record, State.RELEASING, "room for others", force=True
            )
    deployment.converge()
    return [record.id for record in live]


@pytest.mark.parametrize(
    "route", ROUTES, ids=lambda route: f"{route.method} {route.path}".replace("/", "|")
)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_requests_of_the_document(fuzzed, route, mode):
    deployment, api = fuzzed
    operation = api[route.template][route.method]
    tried = Tally(f"{route.method} {route.path} {mode.value}")
    left_out = [schemathesis.checks.CHECKS.get_one(name) for name in LEFT_OUT]

    @settings(
        max_examples=max(1, EXAMPLES // len(ROUTES) // 2),
        derandomize=not LONG,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),
    )
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def ask(case, data):
        ids = make_room(deployment)
        places = {**KNOWN, "allocation_id": (*ids, "nobody")}
        for name in case.path_parameters or ():
            if data.draw(st.integers(0, 3)):
                number = data.draw(st.integers(0, 99))  # an index: the choices vary
                case.path_parameters[name] = places[name][number % len(places[name])]
        if isinstance(case.body, dict) and isinstance(case.body.get("hosts"), int):
            # Without this, most requests would be larger than the fabric.
            case.body["hosts"] = case.body["hosts"] % 40
        before = tally(deployment)
        answer = case.call(headers=UNPACKED)
        tried.count(str(answer.status_code))
        case.validate_response(answer, excluded_checks=left_out)
        assert answer.status_code < 500 or answer.status_code == 501
        if answer.status_code >= 400:
            assert tally(deployment) == before, "a refused request changed something"
        deployment.converge()

    with suppress(Unsatisfiable):  # some operations have no invalid request
        ask()
    tried.say()
