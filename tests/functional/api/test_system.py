# SPDX-License-Identifier: Apache-2.0

"""Health check, metrics and the documents that clients read first."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import time

import pytest
import sqlalchemy as sa
from openapi_spec_validator import OpenAPIV31SpecValidator
from prometheus_client.parser import text_string_to_metric_families

from laas_service.api import openapi
from laas_service.api.auth import middleware
from laas_service.domain.errors import Unavailable
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.jigsaw import Jigsaw
from tests.functional.api.conftest import Deployment
from tests.waiting import eventually

FEW = 3 * 4096
"""Bytes that stay free on a full disk: one or two pages of the database with their log."""


def figures(client):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_versions(client):
    (version,) = client.get("/").json["versions"]
    assert version["id"] == "v1"
    described = {link["rel"]: link["href"] for link in version["links"]}
    assert client.get(described["describedby"]).status_code == 200


def test_the_served_document_is_valid(client):
    document = client.get("/v1/openapi.json").json
    OpenAPIV31SpecValidator(document).validate()
    assert document["servers"] == [{"url": "http://localhost"}]


def test_health_looks_at_the_database(deployment, client):
    assert client.get("/healthcheck").json == {"status": "ready"}

    def away():
        raise Unavailable("the database does not answer")

    deployment.store.check = away
    answer = client.get("/healthcheck")
    assert answer.status_code == 503
    assert "database" in answer.json["detail"]


def test_a_service_that_cannot_write_is_not_ready(deployment, client):
    """SQLite refuses writes as a replica for reading does; reads go on."""
    sa.event.listen(deployment.engine, "connect", read_only)
    deployment.engine.dispose()
    answer = client.get("/healthcheck")
    assert answer.status_code == 503
    assert "the database failed" in answer.json["detail"]
    assert client.get("/v1/fabrics").status_code == 200
    sa.event.remove(deployment.engine, "connect", read_only)
    deployment.engine.dispose()
    eventually(lambda: client.get("/healthcheck").json == {"status": "ready"}, "it is ready")


def full(file):
    """Fill the disk, but for a few kilobytes, which a row needs and a request exceeds."""
    file.seek(0, os.SEEK_END)
    while True:
        try:
            file.write(bytes(4096))
        except OSError:
            break
    file.truncate(file.tell() - FEW)


@pytest.fixture
def disk(tmp_path):
    """A file system of its own, of 4 MiB."""
    made = tmp_path / "disk"
    made.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(made)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only an administrator can mount a file system")
    yield made
    subprocess.run(["umount", "-l", str(made)], check=True)


def test_a_service_on_a_full_disk_is_not_ready_until_requests_succeed(disk, empty_database):
    """The row of the check still fits."""
    deployment = Deployment(shutil.copy(empty_database, disk / "laas.db")).add_fabric()
    client = deployment.client()
    numbers = itertools.count()

    def post():
        body = {"name": f"blue{next(numbers)}", "hosts": 1}
        return client.post("/v1/allocations", json=body).status_code

    def fits():
        """Whether a row does."""
        with sqlite3.connect(disk / "laas.db") as other:
            other.execute("INSERT INTO worker VALUES ('other', '2000-01-01')")
            other.execute("DELETE FROM worker WHERE id = 'other'")
        other.close()
        return True

    assert client.get("/healthcheck").status_code == 200
    with (disk / "filler").open("wb", buffering=0) as file:
        full(file)
        eventually(lambda: post() == 503, "the disk is full")
        for _ in range(3):
            full(file)
            assert fits()
            answer = client.get("/healthcheck")
            assert (answer.status_code, post()) == (503, 503)
            assert "the database failed" in answer.json["detail"]
            time.sleep(1.1)  # the next look writes
        file.truncate(0)
    eventually(lambda: client.get("/healthcheck").status_code == 200, "it is ready")
    assert post() == 202
    deployment.engine.dispose()


def read_only(connection, record):
    connection.execute("PRAGMA query_only = ON")


def test_anybody_may_ask_for_the_health_without_many_writes(deployment, client):
    written: list[str] = []
    sa.event.listen(
        deployment.engine, "before_cursor_execute", lambda *args: written.append(args[2])
    )
    for _ in range(50):
        assert client.get("/healthcheck").status_code == 200
    assert sum("INSERT" in statement for statement in written) <= 2


def test_metrics_count_what_happened(client, allocate):
    allocate(5)
    client.post("/v1/allocations", json={"name": "red", "hosts": 99})
    client.patch("/v1/fabrics/main/hosts/node31", json={"state": "drained"})
    found = figures(client)
    assert found["laas_hosts", "allocated", "main"] == 5
    assert found["laas_hosts", "drained", "main"] == 1
    assert found["laas_hosts", "free", "main"] == 26
    assert found["laas_allocations", "active", "main"] == 1
    assert found["laas_refusals_total", "too_few_hosts"] == 1
    assert found["laas_http_requests_total", "/v1/allocations", "202", "POST"] == 1
    assert found["laas_http_requests_total", "/v1/allocations", "409", "POST"] == 1
    assert found["laas_http_request_seconds_count", "/v1/allocations", "POST"] == 2
    assert found["laas_store_up",] == 1


def test_metrics_count_searches_that_stop_at_their_budget(deployment):
    jigsaw = Jigsaw(work=0)
    client = deployment.client(policies={"jigsaw": jigsaw, "laas": POLICIES["laas"]()})
    for leaf in range(4):  # no uplink is common to two leaves, which takes a search to see
        for pod, up in itertools.product(range(2), range(4)):
            if up != leaf:
                client.patch(
                    f"/v1/fabrics/main/links/leaf-{pod}-{leaf}-{up}", json={"state": "failed"}
                )
    for hosts, policy in ((3, "jigsaw"), (5, "jigsaw"), (5, "laas")):
        client.post("/v1/allocations", json={"name": "red", "hosts": hosts, "policy": policy})
    found = figures(client)
    assert found["laas_refusals_total", "search_budget"] == 1
    assert found["laas_search_budget_exhausted_total", "jigsaw"] >= 1
    assert found["laas_search_budget_exhausted_total", "laas"] == 0


def test_metrics_name_routes_not_addresses(client):
    client.get("/v1/allocations/some-id")
    client.get("/no/such/thing")
    text = client.get("/metrics").text
    assert "some-id" not in text
    assert "no/such" not in text


def test_metrics_survive_the_database(deployment, client):
    def away():
        raise Unavailable("the database does not answer")

    deployment.store.fabrics.all = away
    assert figures(client)["laas_store_up",] == 0


def test_every_answer_has_a_request_id(client):
    first, second = client.get("/"), client.get("/")
    ids = [answer.headers["x-openstack-request-id"] for answer in (first, second)]
    assert len(set(ids)) == 2


PROXY = {
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "links.example.com",
    "X-Forwarded-Prefix": "/fabric",
}


def test_addresses_are_the_proxys_where_it_is_to_be_believed(deployment, guarded):
    path = "/v1/fabrics/main/hosts?limit=1"
    headers = {**PROXY, "X-Auth-Token": "root-token"}
    assert guarded.get(path, headers=headers).json["next"].startswith("http://localhost/v1/")
    deployment.conf.set_override("enable_proxy_headers_parsing", True, group="oslo_middleware")
    believing = deployment.client(middleware("keystone", "0.0.0.0", deployment.conf))
    following = believing.get(path, headers=headers).json["next"]
    assert following == f"https://links.example.com/fabric{path}&marker=node00"
    assert believing.get("/", headers=PROXY).json["versions"][0]["links"][0]["href"] == (
        "https://links.example.com/fabric/v1"
    )


def test_the_description_is_made_once_for_all_hosts(client, monkeypatch):
    first = client.get("/v1/openapi.json").json
    monkeypatch.setattr(openapi, "document", pytest.fail)
    other = client.get("/v1/openapi.json", headers={"Host": "127.0.0.1:99"}).json
    assert other.pop("servers") == [{"url": "http://127.0.0.1:99"}]
    assert other == {name: value for name, value in first.items() if name != "servers"}


def test_the_version_document_names_the_release(client):
    assert client.get("/").json["release"] == "1.0.0"
