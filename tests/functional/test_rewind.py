# SPDX-License-Identifier: Apache-2.0

"""An older copy of the database is put back while the API and a worker run, on each database."""

from __future__ import annotations

import signal

import pytest

from tests import rewind
from tests.servers import mariadb, postgresql
from tests.storm import judge
from tests.storm.evidence import routes
from tests.storm.site import Site
from tests.storm.wire import ask
from tests.waiting import eventually

AVAILABLE = {
    "sqlite": True,
    "postgresql": postgresql.AVAILABLE,
    "mariadb": mariadb.AVAILABLE,
}


@pytest.fixture(params=AVAILABLE)
def site(request, tmp_path):
    if not AVAILABLE[request.param]:
        pytest.skip(f"needs the Debian package {request.param}")
    with Site(request.param, tmp_path, apis=1, workers=1) as site:
        yield site


def becomes(site: Site, id: str, state: str) -> None:
    def look() -> bool:
        return bool(site.tables().allocations[id]["state"] == state)

    eventually(look, lambda: f"{id} is {state}: {site.tables().allocations.get(id)}")


def test_a_tenant_is_never_active_without_its_routes(site):
    (port,) = site.ports
    worker = next(server for server in site.servers if server.name.startswith("worker"))

    def post(name: str, hosts: int) -> str:
        answer = ask(port, "POST", "/v1/allocations", {"name": name, "hosts": hosts})
        assert answer.status == 202, answer
        return str(answer.document["id"])

    kept = post("kept", 4)
    becomes(site, kept, "active")
    worker.send(signal.SIGSTOP)
    waits = post("waits", 6)
    copy = rewind.copy(site.engine)
    worker.send(signal.SIGCONT)
    becomes(site, waits, "active")
    lost = [post(f"lost-{number}", 2) for number in range(3)]
    for id in (*lost, waits):
        becomes(site, id, "active")
        assert ask(port, "DELETE", f"/v1/allocations/{id}").status == 202
        becomes(site, id, "released")
    published = routes(site.directory, "f")
    assert published is not None
    assert published.tenants == {kept}

    rewind.put_back(site.engine, copy)
    becomes(site, waits, "active")
    seen = site.tables()
    assert judge.route_problems(seen, "f", routes(site.directory, "f"), site.fabrics) == []
    again = routes(site.directory, "f")
    assert again is not None
    assert again.generation > published.generation
    assert judge.claim_problems(seen, site.fabrics) == []
    after = post("after", 30)
    becomes(site, after, "active")
    seen = site.tables()
    assert judge.route_problems(seen, "f", routes(site.directory, "f"), site.fabrics) == []
    assert "the database went back" in site.said()["worker-0"] + site.said()["api-0"]
    assert not [said for said in site.said().values() if "Traceback" in said]
