# SPDX-License-Identifier: Apache-2.0

"""Every wrong request is answered with a problem document that names the error."""

from __future__ import annotations

import logging

import pytest

from laas_service.domain.errors import Unavailable

GOOD = {"name": "blue", "hosts": 2}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hosts": 0}, "hosts"),
        ({"hosts": -3}, "hosts"),
        ({"hosts": "2"}, "hosts"),
        ({"hosts": 2.0}, "hosts"),
        ({"hosts": 2.5}, "hosts"),
        ({"hosts": True}, "hosts"),
        ({"hosts": None}, "hosts"),
        ({"hosts": [2]}, "hosts"),
        ({"hosts": 10**30}, "hosts"),
        ({"hosts": 2**31}, "hosts"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"name": "nul\x00"}, "name"),
        ({"policy": "best"}, "policy"),
        ({"policy": "baseline"}, "policy"),
        ({"policy": 1}, "policy"),
        ({"fabric": 1}, "fabric"),
        ({"project_id": ""}, "project_id"),
        ({"project_id": "a b"}, "project_id"),
        ({"project_id": "x" * 65}, "project_id"),
        ({"constraints": []}, "constraints"),
        ({"constraints": "near"}, "constraints"),
        ({"wait": "yes"}, "wait"),
        ({"dry_run": 1}, "dry_run"),
        ({"host": 2}, "host"),
    ],
)
def test_a_bad_field_is_named(client, change, field):
    answer = client.post("/v1/allocations", json={**GOOD, **change})
    assert answer.status_code == 400
    assert answer.json["code"] == "invalid_input"
    assert [error["field"] for error in answer.json["errors"]] == [field]
    assert answer.json["errors"][0]["detail"]
    assert client.get("/v1/allocations").json["allocations"] == []


def test_every_bad_field_is_named(client):
    answer = client.post("/v1/allocations", json={"hosts": "two", "colour": "blue"})
    fields = {error["field"]: error for error in answer.json["errors"]}
    assert set(fields) == {"name", "hosts", "colour"}
    assert fields["hosts"]["value"] == "two"


def test_of_very_many_bad_fields_some_are_named(client):
    body = {**GOOD, **{f"f{number}": 0 for number in range(5000)}}
    answer = client.post("/v1/allocations", json=body)
    assert answer.status_code == 400
    assert len(answer.json["errors"]) == 100


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b"null",
        b'"text"',
        b'{"name": "blue", "hosts": 2',
        b'{"name": "\xff", "hosts": 2}',
        b'{"name": "\\ud800", "hosts": 2}',
        b"[" * 50_000,
        b'{"a":' * 10_000,
        b'{"name": "blue", "hosts": NaN}',
    ],
    ids=range(12),
)
def test_a_body_that_is_no_json_object(client, body):
    answer = client.post("/v1/allocations", data=body, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json["code"] == "invalid_input"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_of_another_type(client, kind):
    answer = client.post("/v1/allocations", data=b"{}", content_type=kind)
    assert answer.status_code == 415


def test_a_type_with_parameters_is_fine(client):
    answer = client.post(
        "/v1/allocations",
        data=b'{"name": "blue", "hosts": 2}',
        content_type="application/json; charset=utf-8",
    )
    assert answer.status_code == 202


def test_a_body_that_is_too_long(client):
    long = b'{"name": "' + b"x" * 70_000 + b'"}'
    answer = client.post("/v1/allocations", data=long, content_type="application/json")
    assert answer.status_code == 413
    assert answer.json["code"] == "too_large"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2", 404),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/fabrics/other", 404),
        ("GET", "/v1/fabrics/other/hosts", 404),
        ("GET", "/v1/fabrics/other/links", 404),
        ("GET", "/v1/fabrics/other/switches", 404),
        ("GET", "/v1/fabrics/other/utilization", 404),
        ("GET", "/v1/fabrics/other/fit?hosts=1", 404),
        ("GET", "/v1/fabrics/other/routing", 404),
        ("GET", "/v1/allocations/nobody", 404),
        ("DELETE", "/v1/allocations/nobody", 404),
        ("GET", "/v1/allocations/%00", 400),
        ("GET", "/v1/allocations?marker=%00", 400),
        ("GET", "/v1/allocations/..%2f..%2fetc", 404),
        ("PUT", "/v1/allocations", 405),
        ("DELETE", "/v1/allocations", 405),
        ("POST", "/v1/fabrics", 405),
        ("POST", "/", 405),
    ],
)
def test_what_is_not_there(client, method, path, status):
    answer = client.open(path, method=method)
    assert answer.status_code == status
    assert (
        answer.json["code"]
        == {
            400: "bad_request",
            404: "not_found",
            405: "method_not_allowed",
        }[status]
    )
    if status == 405:
        assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/fabrics/main/fit", "hosts"),
        ("/v1/fabrics/main/fit?hosts=", "hosts"),
        ("/v1/fabrics/main/fit?hosts=many", "hosts"),
        ("/v1/fabrics/main/fit?hosts=0", "hosts"),
        ("/v1/fabrics/main/fit?hosts=1&hosts=2", "hosts"),
        ("/v1/fabrics/main/fit?hosts=1&policy=best", "policy"),
        ("/v1/fabrics/main/hosts?limit=0", "limit"),
        ("/v1/fabrics/main/hosts?limit=x", "limit"),
        ("/v1/fabrics/main/hosts?state=broken", "state"),
        ("/v1/fabrics/main/hosts?colour=blue", "colour"),
        ("/v1/fabrics/main/links?free=perhaps", "free"),
        ("/v1/allocations?state=gone", "state"),
    ],
)
def test_a_bad_parameter_is_named(client, path, field):
    answer = client.get(path)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json["errors"]] == [field]


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "soon", ""])
def test_a_bad_wait_allocates_nothing(client, wait):
    answer = client.post(f"/v1/allocations?wait={wait}", json=GOOD)
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "wait"
    assert client.get("/v1/allocations").json["allocations"] == []


@pytest.mark.parametrize("key", ["", "x" * 256, "two words", "t\u00e4st"])
def test_a_bad_key_allocates_nothing(client, key):
    answer = client.post("/v1/allocations", json=GOOD, headers={"Idempotency-Key": key})
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "Idempotency-Key"
    assert client.get("/v1/allocations").json["allocations"] == []


def test_what_is_empty_asks_for_nothing(client):
    body = {**GOOD, "wait": False, "constraints": {}, "dry_run": False, "policy": None}
    assert client.post("/v1/allocations", json=body).status_code == 202


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": None},
        {"name": ""},
        {"state": "active"},
        {"hosts": 0},
        {"hosts": "3"},
        {"hosts": 3, "name": "x"},
        {"name": "x", "give_back": ["node00"]},
        {"name": "x", "dry_run": True},
        {"hosts": 1, "give_back": []},
    ],
)
def test_a_change_that_is_none(client, allocate, body):
    answer = client.patch(f"/v1/allocations/{allocate(2)['id']}", json=body)
    assert answer.status_code == 400


def test_a_bug_is_logged_and_not_told(deployment, caplog):
    client = deployment.client()

    def explode():
        raise RuntimeError("password=hunter2")

    deployment.store.fabrics.all = explode
    with caplog.at_level(logging.ERROR):
        answer = client.get("/v1/fabrics")
    assert answer.status_code == 500
    assert answer.json["code"] == "internal_error"
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text


def test_a_database_that_is_away(deployment, client):
    def away():
        raise Unavailable("the database does not answer")

    deployment.store.fabrics.all = away
    answer = client.get("/v1/fabrics")
    assert answer.status_code == 503
    assert answer.json["code"] == "unavailable"
    assert answer.headers["Retry-After"] == "5"


def test_tokens_do_not_reach_the_log(client, caplog):
    with caplog.at_level(logging.DEBUG):
        client.get("/v1/fabrics", headers={"X-Auth-Token": "very-secret"})
    assert "/v1/fabrics answered 200" in caplog.text
    assert "very-secret" not in caplog.text
