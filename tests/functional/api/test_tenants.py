# SPDX-License-Identifier: Apache-2.0

"""Tenants do not see each other; roles decide which requests are allowed."""

from __future__ import annotations

import pytest

from tests.waiting import eventually

pytestmark = pytest.mark.road

TOKENS = {
    "admin": ("ops", "admin,member,reader"),
    "blue": ("blue", "member,reader"),
    "red": ("red", "member,reader"),
    "watch": ("blue", "reader"),
    "stranger": ("blue", "swift_operator"),
    "unscoped": (None, "member,reader"),
    "unscoped-admin": (None, "admin,member,reader"),
}


class TokensAsHeaders:
    """Sets the WSGI environment as keystonemiddleware does for a valid token."""

    def __init__(self, app):
        self._app = app

    def __call__(self, environ, start_response):
        for name in ("PROJECT_ID", "ROLES", "USER_ID", "IDENTITY_STATUS"):
            environ.pop(f"HTTP_X_{name}", None)
        known = TOKENS.get(environ.get("HTTP_X_AUTH_TOKEN"))
        environ["HTTP_X_IDENTITY_STATUS"] = "Confirmed" if known else "Invalid"
        if known:
            project, roles = known
            environ["HTTP_X_ROLES"] = roles
            environ["HTTP_X_USER_ID"] = "somebody"
            if project:
                environ["HTTP_X_PROJECT_ID"] = project
        return self._app(environ, start_response)


@pytest.fixture
def ask(deployment):
    client = deployment.client(authenticate=TokensAsHeaders)

    def call(token, method, path, **given):
        headers = {**given.pop("headers", {}), **({"X-Auth-Token": token} if token else {})}
        return client.open(path, method=method, headers=headers, **given)

    return call


@pytest.fixture
def theirs(ask):
    """An allocation of project blue."""
    made = ask("blue", "POST", "/v1/allocations?wait=5", json={"name": "mine", "hosts": 4})
    assert made.status_code == 202
    assert made.json["project_id"] == "blue"
    return made.json["id"]


def test_another_tenants_allocation_does_not_exist(ask, theirs):
    url = f"/v1/allocations/{theirs}"
    absent = ask("red", "GET", "/v1/allocations/absent").json
    for method, body in (("GET", None), ("PATCH", {"name": "x"}), ("DELETE", None)):
        answer = ask("red", method, url, json=body)
        assert answer.status_code == 404
        assert answer.json["detail"].replace(theirs, "absent") == absent["detail"]
    assert ask("red", "GET", "/v1/allocations").json["allocations"] == []
    assert ask("red", "GET", "/v1/allocations?project_id=blue").json["allocations"] == []
    assert ask("red", "GET", f"/v1/allocations?marker={theirs}").status_code == 404
    assert ask("blue", "GET", url).json["name"] == "mine"


def test_an_administrator_sees_all(ask, theirs):
    red = ask("red", "POST", "/v1/allocations", json={"name": "r", "hosts": 2}).json["id"]
    listed = ask("admin", "GET", "/v1/allocations").json["allocations"]
    assert [a["id"] for a in listed] == [theirs, red]
    only = ask("admin", "GET", "/v1/allocations?project_id=red").json["allocations"]
    assert [a["id"] for a in only] == [red]
    assert ask("admin", "DELETE", f"/v1/allocations/{theirs}").status_code == 202


def test_only_an_administrator_allocates_for_others(ask):
    body = {"name": "gift", "hosts": 2, "project_id": "red"}
    for dry_run in (False, True):
        assert (
            ask("blue", "POST", "/v1/allocations", json={**body, "dry_run": dry_run}).status_code
            == 403
        )
    assert ask("red", "POST", "/v1/allocations", json=body).json["project_id"] == "red"
    assert ask("admin", "POST", "/v1/allocations", json=body).json["project_id"] == "red"


def test_idempotency_keys_of_two_projects_do_not_meet(ask):
    key, body = {"Idempotency-Key": "k"}, {"name": "a", "hosts": 2}
    blue = ask("blue", "POST", "/v1/allocations", json=body, headers=key).json
    red = ask("red", "POST", "/v1/allocations", json=body, headers=key).json
    assert blue["id"] != red["id"]


@pytest.mark.parametrize(
    ("token", "status"),
    [("admin", 202), ("blue", 202), ("watch", 403), ("stranger", 403), ("unscoped", 403)],
)
def test_who_may_allocate(ask, token, status):
    answer = ask(token, "POST", "/v1/allocations", json={"name": "a", "hosts": 1})
    assert answer.status_code == status


@pytest.mark.parametrize("token", ["blue", "watch"])
def test_no_tenant_sets_a_priority(ask, token):
    """It counts before requests of other projects; an administrator and services may."""
    body = {"name": "a", "hosts": 32}
    url = f"/v1/allocations/{ask('blue', 'POST', '/v1/allocations', json=body).json['id']}"
    body |= {"wait": True, "priority": 0}
    assert ask(token, "POST", "/v1/allocations", json=body).status_code == 403
    assert ask(token, "PATCH", url, json={"priority": 5}).status_code == 403
    queued = ask("admin", "POST", "/v1/allocations", json={**body, "project_id": "blue"}).json
    assert (queued["state"], queued["priority"]) == ("queued", 0)
    url = f"/v1/allocations/{queued['id']}"
    assert ask(token, "PATCH", url, json={"priority": 5}).status_code == 403
    assert ask("admin", "PATCH", url, json={"priority": 5}).json["priority"] == 5


def test_an_administrator_without_a_project_names_one(ask):
    body = {"name": "a", "hosts": 1}
    answer = ask("unscoped-admin", "POST", "/v1/allocations", json=body)
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "project_id"
    named = ask("unscoped-admin", "POST", "/v1/allocations", json={**body, "project_id": "red"})
    assert named.status_code == 202


def test_a_reader_looks_and_does_not_touch(ask, theirs):
    url = f"/v1/allocations/{theirs}"
    assert ask("watch", "GET", url).status_code == 200
    assert ask("watch", "PATCH", url, json={"name": "x"}).status_code == 403
    assert ask("watch", "DELETE", url).status_code == 403


OPERATORS = [
    ("GET", "/v1/fabrics/main/hosts", None),
    ("GET", "/v1/fabrics/main/links", None),
    ("GET", "/v1/fabrics/main/switches", None),
    ("GET", "/v1/fabrics/main/routing", None),
    ("GET", "/v1/fabrics/main/switches/leaf-0-0", None),
    ("PATCH", "/v1/fabrics/main/switches/leaf-0-0", {"state": "drained"}),
    ("PATCH", "/v1/fabrics/main/hosts/node00", {"state": "failed"}),
    ("PATCH", "/v1/fabrics/main/links/leaf-0-0-0", {"state": "failed"}),
]


@pytest.mark.parametrize(("method", "path", "body"), OPERATORS)
def test_the_inventory_is_the_operators(ask, method, path, body):
    assert ask("blue", method, path, json=body).status_code == 403
    assert ask("admin", method, path, json=body).status_code == 200


@pytest.mark.parametrize("path", ["", "/main", "/main/utilization", "/main/fit?hosts=1"])
def test_tenants_see_fabrics_in_numbers(ask, path):
    assert ask("watch", "GET", f"/v1/fabrics{path}").status_code == 200
    assert ask("stranger", "GET", f"/v1/fabrics{path}").status_code == 403


def test_forcing_is_the_administrators(ask, theirs):
    url = f"/v1/allocations/{theirs}?force=true"
    assert ask("blue", "DELETE", url).status_code == 403
    assert ask("blue", "GET", f"/v1/allocations/{theirs}").json["state"] == "active"
    assert ask("admin", "DELETE", url).status_code == 202


@pytest.mark.parametrize("token", [None, "forged"])
def test_without_a_token_only_the_doorbell_works(ask, token):
    for path in ("/v1/fabrics", "/v1/allocations", "/v1/fabrics/main/hosts"):
        answer = ask(token, "GET", path)
        assert answer.status_code == 401
        assert answer.json["code"] == "unauthenticated"
    assert ask(token, "POST", "/v1/allocations", json={"name": "a", "hosts": 1}).status_code == 401
    for path in ("/", "/healthcheck", "/v1/", "/v1/openapi.json"):
        assert ask(token, "GET", path).status_code == 200


def test_a_policy_file_overrides(deployment, tmp_path, theirs):
    """The operator may allow readers to see the routing."""
    overrides = tmp_path / "policy.yaml"
    overrides.write_text('"laas:fabric:inventory": "role:reader"\n')
    client = deployment.client(authenticate=TokensAsHeaders)
    deployment.conf.set_override("policy_file", str(overrides), group="oslo_policy")
    opened = deployment.client(authenticate=TokensAsHeaders)
    headers = {"X-Auth-Token": "watch"}
    assert client is not opened
    assert opened.get("/v1/fabrics/main/routing", headers=headers).status_code == 200
    overrides.write_text('"laas:fabric:inventory": "role:admin"\n')

    def refused():
        return opened.get("/v1/fabrics/main/routing", headers=headers).status_code == 403

    eventually(refused, "the changed file is read")


# -- without authentication ------------------------------------------------------------


def test_a_local_caller_may_name_a_project(client):
    body = {"name": "a", "hosts": 1}
    assert client.post("/v1/allocations", json=body).json["project_id"] == "local"
    named = client.post("/v1/allocations", json=body, headers={"X-Project-Id": "blue"})
    assert named.json["project_id"] == "blue"
    given = client.post("/v1/allocations", json={**body, "project_id": "red"})
    assert given.json["project_id"] == "red"


def test_a_local_caller_cannot_be_less_or_somebody_else(client, deployment):
    forged = {
        "X-Roles": "reader",
        "X-User-Id": "root",
        "X-Identity-Status": "Invalid",
        "OpenStack-System-Scope": "all",
    }
    made = client.post("/v1/allocations?wait=5", json={"name": "a", "hosts": 1}, headers=forged)
    gone = client.delete(f"/v1/allocations/{made.json['id']}", headers=forged)
    assert "local" in gone.json["history"][-1]["reason"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8780", "192.0.2.1", "127.0.0.1.x"])
def test_a_page_that_pretends_to_be_local_gets_nothing(client, host):
    answer = client.get("/v1/fabrics", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.json["code"] == "forbidden"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Forwarded", "for=192.0.2.7;host=localhost"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-For", ""),
        ("X-Forwarded-Host", "localhost"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Port", "443"),
        ("X-Forwarded-Prefix", "/fabric"),
        ("X-Forwarded-Server", "proxy"),
        ("X-Real-IP", "127.0.0.1"),
        ("Via", "1.1 proxy"),
        ("x-client-ip", "192.0.2.7"),
        ("True-Client-IP", "192.0.2.7"),
    ],
)
@pytest.mark.parametrize("believed", [False, True])
def test_behind_a_proxy_nobody_is_an_administrator(deployment, name, value, believed):
    client = deployment.client()
    deployment.conf.set_override("enable_proxy_headers_parsing", believed, group="oslo_middleware")
    for path in ("/v1/fabrics", "/healthcheck", "/", "/metrics"):
        answer = client.get(path, headers={name: value})
        assert answer.status_code == 403
        assert answer.content_type == "application/problem+json"
        assert answer.json["code"] == "forbidden"
        assert "[api] auth_strategy = keystone" in answer.json["detail"]
        assert "no proxy" in answer.json["detail"]
    assert client.get("/v1/fabrics").status_code == 200


def test_with_tokens_a_proxy_is_welcome(guarded):
    headers = {"X-Auth-Token": "root-token", "X-Forwarded-For": "192.0.2.7", "Via": "1.1 proxy"}
    assert guarded.get("/v1/fabrics", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["localhost:8780", "127.0.0.1", "127.0.0.1:8780", "[::1]:8780"])
def test_this_machine_has_several_names(client, host):
    assert client.get("/v1/fabrics", headers={"Host": host}).status_code == 200


def test_a_tenant_learns_that_others_are_in_the_way_but_not_who(ask):
    made = ask("blue", "POST", "/v1/allocations?wait=5", json={"name": "mine", "hosts": 32})
    wish = {"name": "late", "hosts": 2}
    for refused in (
        ask("red", "POST", "/v1/allocations", json=wish),
        ask("red", "GET", "/v1/fabrics/main/fit?hosts=2"),
    ):
        assert refused.json["fits_when_empty"]
        assert refused.json.get("room") is None
        assert made.json["id"] not in refused.text
    seen = ask("admin", "GET", "/v1/fabrics/main/fit?hosts=2").json["room"]
    assert seen["releases"] == [made.json["id"]]
