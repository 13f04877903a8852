# SPDX-License-Identifier: Apache-2.0

"""Attacks are answered as the documented table says, and change nothing."""

from __future__ import annotations

import logging
import re
import string
from collections import Counter

import pytest
from oslo_config import cfg
from sqlalchemy import select

from laas_service.adapters.db.models import Base
from laas_service.api.app import ROUTES
from laas_service.conf import register_opts
from laas_service.domain.errors import InvalidInput
from laas_service.wiring.composition import Composition
from tests.access import rows
from tests.functional.api.attacks import ADMIN, ATTEMPTS, CONTROLS, NASTY, NEW, RED, Endless
from tests.functional.api.attacks import SERVICE as ROLE_SERVICE
from tests.shared import REPO

PAGE = REPO / "doc" / "source" / "reference" / "attacks.rst"
BLUE = {"X-Auth-Token": "blue-token"}


def documented():
    """The least number of requests and the statuses, by attempt, read from the page."""
    return {
        row["Attempt"]: (int(row["Requests"]), {int(s) for s in row["Answers"].split()})
        for row in rows(PAGE)
    }


TABLE = documented()


def contents(deployment):
    """Every row of every table."""
    with deployment.engine.connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table))))
            for table in Base.metadata.sorted_tables
        }


@pytest.fixture
def victim(guarded, deployment):
    """A container of project blue, the only allocation of the fabric."""
    body = {"name": "blue", "hosts": 6, "container": True}
    made = guarded.post("/v1/allocations?wait=5", json=body, headers=BLUE)
    assert made.status_code == 202, made.text
    return made.json


def test_the_page_has_every_attempt():
    assert list(TABLE) == list(ATTEMPTS)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_documented_table_is_true(guarded, deployment, victim, caplog, attempt):
    """Each answer is a problem document (checked by ``CheckedClient``) without a traceback."""
    before, woken = contents(deployment), deployment.woken
    requests = list(ATTEMPTS[attempt](victim))
    seen: Counter[int] = Counter()
    with caplog.at_level(logging.INFO):
        for request in requests:
            answer = guarded.open(**{"headers": RED, **request})
            seen[answer.status_code] += 1
            assert "Traceback" not in answer.text, request
            assert 'File "' not in answer.text, request
            assert "node0" not in answer.text or request["headers"] == ADMIN, request
            assert answer.status_code < 500, (request, answer.text)
            if answer.status_code < 400:
                assert answer.json == {"allocations": [], "next": None}, request
    assert contents(deployment) == before
    assert deployment.woken == woken
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert not [r for r in caplog.records if "\n" in r.getMessage()], "a line of log was forged"
    least, answers = TABLE[attempt]
    assert set(seen) == answers
    assert len(requests) >= least


def test_every_test_that_the_page_names_is_there():
    named = set(re.findall(r"``(test_\w+)``", PAGE.read_text()))
    code = "".join(path.read_text() for path in (REPO / "tests").rglob("test_*.py"))
    assert named
    assert [name for name in sorted(named) if f"def {name}(" not in code] == []


def test_what_is_anothers_looks_like_nothing(guarded, victim):
    """Answers do not reveal whether another project's allocation exists."""

    def told(id):
        answers = [
            guarded.get(f"/v1/allocations/{id}", headers=RED),
            guarded.get(f"/v1/allocations/{id}/history", headers=RED),
            guarded.delete(f"/v1/allocations/{id}", headers=RED),
            guarded.patch(f"/v1/allocations/{id}", json={"name": "x"}, headers=RED),
            guarded.post(f"/v1/allocations/{id}/repair", headers=RED),
            guarded.post(f"/v1/allocations/{id}/retry", headers=RED),
            guarded.post("/v1/allocations", json={**NEW, "parent": id}, headers=RED),
            guarded.get(f"/v1/fabrics/main/fit?hosts=1&parent={id}", headers=RED),
            guarded.get(f"/v1/allocations?marker={id}", headers=RED),
        ]
        return [
            {**answer.json, "request_id": "", "detail": answer.json["detail"].replace(id, "ID")}
            for answer in answers
        ]

    assert told(victim["id"]) == told("nobody-at-all")


def test_role_service_sees_no_tenants_name_anywhere(guarded, deployment):
    """On every route that it may read: the name of no allocation, and in the map no project."""
    names = {f"secret-{kind}" for kind in ("owned", "outer", "inner", "queued", "gone", "renamed")}

    def make(name, hosts, **more):
        body = {"name": f"secret-{name}", "hosts": hosts, "project_id": "blue", **more}
        made = guarded.post("/v1/allocations?wait=5", json=body, headers=ADMIN)
        assert made.status_code == 202, made.text
        return made.json["id"]

    owned, outer, gone = make("owned", 6), make("outer", 8, container=True), make("gone", 2)
    inner = make("inner", 3, parent=outer)
    guarded.patch(f"/v1/allocations/{gone}", json={"name": "secret-renamed"}, headers=ADMIN)
    guarded.delete(f"/v1/allocations/{gone}?wait=5", headers=ADMIN)
    make("queued", 30, wait=True, duration=60)
    leaf = guarded.get("/v1/fabrics/main/links", headers=ADMIN).json["links"][0]["id"]
    failed = guarded.patch(
        f"/v1/fabrics/main/links/{leaf}", json={"state": "failed"}, headers=ADMIN
    )
    assert failed.status_code == 200
    places = {"fabric_id": "main", "name": "node00", "link_id": leaf, "switch_id": "leaf-0-0"}
    read = []
    for route in ROUTES:
        if route.method != "GET" or "allocation" in route.path or "file-set/" in route.path:
            continue
        named = route.path.replace("/view/<name>", "/view/page.js")
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: places[found[1]], named)
        questions = ["?hosts=3", "?hosts=12", "?hosts=30", "?hosts=99"]
        asking = questions if path.endswith(("/fit", "/map")) else [""]
        for query in asking:
            answer = guarded.get(path + query, headers=ROLE_SERVICE)
            assert answer.status_code < 500, answer.text
            assert not [name for name in names if name in answer.text], path
            assert "node0" not in answer.text or answer.status_code < 400, path
            read += [path] if answer.status_code == 200 else []
    assert {"/metrics", "/v1/fabrics/main/map", "/v1/fabrics/main/hosts"} <= {*read}
    shown = guarded.get("/v1/fabrics/main/map", headers=ROLE_SERVICE).json
    tenants = {tenant["id"]: (tenant["name"], tenant["project"]) for tenant in shown["tenants"]}
    assert tenants == dict.fromkeys([owned, outer, inner], ("", ""))
    assert [waiting["name"] for waiting in shown["queue"]] == [""]
    shown = guarded.get("/v1/fabrics/main/map", headers=ADMIN).json
    assert {one["name"] for one in shown["tenants"]} == {
        "secret-owned",
        "secret-outer",
        "secret-inner",
    }
    shown = guarded.get("/v1/fabrics/main/map", headers=BLUE).json
    assert {one["name"] for one in shown["tenants"]} >= {"secret-owned"}


def test_a_key_of_another_project_is_another_key(guarded):
    headers = {"Idempotency-Key": "one"}
    first = guarded.post("/v1/allocations", json=NEW, headers={**headers, **BLUE}).json
    second = guarded.post("/v1/allocations", json=NEW, headers={**headers, **RED}).json
    assert (first["project_id"], second["project_id"]) == ("blue", "red")
    assert first["id"] != second["id"]


@pytest.mark.parametrize("said", [{"CONTENT_LENGTH": str(10**12)}, {}])
def test_a_body_without_end_is_read_no_further_than_the_limit(deployment, said):
    """The service reads at most 65,536 bytes, whatever length a request declares."""
    body = Endless()
    answer = deployment.client().post(
        "/v1/allocations",
        content_type="application/json",
        environ_overrides={"wsgi.input": body, "wsgi.input_terminated": True, **said},
    )
    assert answer.status_code == 413
    assert "65536" in answer.json["detail"]
    assert body.given <= 65537


def test_methods_that_are_made_up_are_counted_as_one(client):
    for number in range(50):
        client.open("/v1/allocations", method=f"MADE{number}")
    figures = client.get("/metrics").text
    assert "MADE" not in figures
    assert 'laas_http_requests_total{method="other",route="unknown",status="405"} 50.0' in figures


@pytest.mark.parametrize("id", NASTY)
def test_a_fabric_whose_id_is_no_name_of_a_directory_is_refused(deployment, id):
    with pytest.raises(InvalidInput, match="fabric"):
        deployment.add_fabric(id)


def test_no_file_is_named_after_what_a_tenant_says(deployment, tmp_path):
    """Files are named after ids and hosts; names of allocations appear in no path."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    text = f"""
[DEFAULT]
state_dir = {tmp_path}
[database]
connection = {deployment.engine.url}
"""
    (tmp_path / "laas.conf").write_text(text)
    conf(["--config-file", str(tmp_path / "laas.conf")], project="laas")
    converger = Composition(conf).fabric_leases
    client = deployment.client()
    ids = []
    for name in NASTY:
        made = client.post("/v1/allocations", json={"name": name, "hosts": 1})
        if set(name) & set(CONTROLS):
            assert made.status_code == 400
            continue
        assert made.status_code == 202, made.text
        assert made.json["name"] == name
        ids.append(made.json["id"])
    until_idle(converger)
    assert {client.get(f"/v1/allocations/{id}").json["state"] for id in ids} == {"active"}
    for id in ids[::2]:
        client.delete(f"/v1/allocations/{id}")
    until_idle(converger)
    files = [path for place in ("compute", "opensm") for path in (tmp_path / place).rglob("*")]
    text = "".join(path.read_text() for path in files if path.is_file())
    assert any(ids[1] in path.name for path in files)
    assert not [path for path in files if not set(path.name) <= SAFE]
    assert not [name for name in NASTY if len(name) > 5 and name in text]


def until_idle(converger):
    while converger.run_once():
        pass


SAFE = set(string.ascii_letters + string.digits + "._-")
