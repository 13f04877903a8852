# SPDX-License-Identifier: Apache-2.0

"""The documented table of routes and roles, checked cell by cell with real tokens."""

from __future__ import annotations

import pytest

from tests.access import table

pytestmark = pytest.mark.road

TABLE = table()
FABRIC = {
    "{fabric_id}": "main",
    "{name}": "node00",
    "{link_id}": "leaf-0-0-0",
    "{switch_id}": "leaf-0-0",
    "{agent}": "sm1",
    "{generation}": "1",
    "{file}": "guid2lid",
}
NEW = {"name": "new", "hosts": 1}
BODIES = {
    "PATCH /v1/fabrics/{fabric_id}/hosts/{name}": {"state": "up"},
    "PATCH /v1/fabrics/{fabric_id}/switches/{switch_id}": {"state": "up"},
    "PATCH /v1/fabrics/{fabric_id}/links/{link_id}": {"state": "up"},
    "PATCH /v1/fabrics/{fabric_id}/observation": {"mode": "act"},
    "PUT /v1/fabrics/{fabric_id}/plane": {"l2": []},
    "PUT /v1/fabrics/{fabric_id}/agents/{agent}": {"condition": "starting"},
    "POST /v1/fabrics/{fabric_id}/make-room": {"hosts": 1},
    "POST /v1/fabrics/{fabric_id}/sleep": {"moves": 1, "dry_run": True},
    "POST /v1/fabrics/{fabric_id}/consolidate": {"dry_run": True},
    "POST /v1/fabrics/{fabric_id}/evacuate": {"hosts": ["node00"], "dry_run": True},
    "POST /v1/session": {"token": "forged"},
    "POST /v1/allocations": NEW,
    "PATCH /v1/allocations/{allocation_id}": {"name": "renamed"},
    "POST /v1/allocations/{allocation_id}/replace-hosts": {},
}
QUERIES = {"GET /v1/fabrics/{fabric_id}/fit": "?hosts=1"}


@pytest.fixture
def request_of(client, deployment, people):
    """Make the request of a row of the table; a row about an allocation gets a new one of blue."""

    def silent():
        """The agent of the table is not the active one, and it reported long ago."""
        for agent in ("other", FABRIC["{agent}"]):
            path = f"/v1/fabrics/main/agents/{agent}"
            report = {"condition": "starting" if agent == "other" else "not_master"}
            assert client.put(path, json=report, headers=people["admin"]).status_code == 200
        deployment.later += 3600

    def made():
        answer = client.post("/v1/allocations?wait=5", json=NEW, headers=people["member"])
        assert answer.status_code == 202, answer.text
        return answer.json["id"]

    def wanted(row):
        method, path, kind = row.partition(" ")[0], row.split()[1], row.split()[2:]
        route = f"{method} {path}"
        body = BODIES.get(route)
        if kind == ["for", "another", "project"]:
            body = {**NEW, "project_id": "b1ac4"}
        if kind == ["away", "from", "a", "host"] and body is not None:
            body = {**NEW, "constraints": {"avoid_hosts": ["node00"]}}
        query = "?force=true" if kind == ["by", "force"] else QUERIES.get(route, "")
        if kind == ["of", "another", "project"]:
            query = "?project_id=b1ac4"
        if kind == ["away", "from", "a", "host"] and body is None:
            query += "&avoid_hosts=node00"
        if path.startswith("/view/"):
            path = "/view/page.js"
        for name, value in FABRIC.items():
            path = path.replace(name, value)
        if route == "DELETE /v1/fabrics/{fabric_id}":
            made()  # so that it is refused, and there for the next caller
        if route == "DELETE /v1/fabrics/{fabric_id}/agents/{agent}":
            silent()
        if "{allocation_id}" in path:
            path = path.replace("{allocation_id}", made())
        return {"method": method, "path": path + query, "json": body}

    return wanted


@pytest.mark.parametrize("row", TABLE)
def test_the_documented_table_is_true(client, people, request_of, row):
    seen = {
        who: {
            client.open(
                **request_of(row), headers={"X-Auth-Token": token} if token else {}
            ).status_code
            for token in tokens
        }
        for who, tokens in people.tokens.items()
    }
    assert seen == {who: {status} for who, status in TABLE[row].items()}


FORGED = {
    "X-Identity-Status": "Confirmed",
    "X-Service-Identity-Status": "Confirmed",
    "X-Roles": "admin,service",
    "X-Role": "admin",
    "X-Service-Roles": "service",
    "X-User-Id": "root",
    "X-Project-Id": "ops",
    "X-Tenant-Id": "ops",
    "X-Domain-Id": "default",
    "X-Is-Admin-Project": "True",
    "OpenStack-System-Scope": "all",
}


@pytest.mark.parametrize("row", TABLE)
def test_headers_that_pretend_have_no_effect(client, people, request_of, row):
    """Forged identity headers neither grant access nor change the caller."""
    for who in ("none", "reader", "stranger"):
        answer = client.open(**request_of(row), headers={**FORGED, **people[who]})
        assert answer.status_code == TABLE[row][who], who


def test_the_project_is_the_tokens(client, people):
    made = client.post("/v1/allocations", json=NEW, headers={**FORGED, **people["member"]})
    assert made.json["project_id"] == people.blue


def test_tenants_see_their_own_and_administrators_all(client, people):
    for who in ("member", "stranger"):
        for name in (who, f"{who} again"):
            body = {"name": name, "hosts": 1}
            assert client.post("/v1/allocations", json=body, headers=people[who]).status_code == 202

    def listed(who, query=""):
        answer = client.get(f"/v1/allocations{query}", headers=people[who])
        return {one["name"] for one in answer.json["allocations"]}

    blue, red = {"member", "member again"}, {"stranger", "stranger again"}
    assert listed("reader") == listed("manager") == blue
    assert listed("stranger") == red
    assert listed("stranger", f"?project_id={people.blue}") == set()
    assert listed("admin") == blue | red
    assert listed("admin", f"?project_id={people.red}") == red


def test_an_administrator_names_another_project(client, people):
    body = {**NEW, "project_id": people.red}
    made = client.post("/v1/allocations", json=body, headers=people["admin"])
    assert made.json["project_id"] == people.red
    seen = client.get(f"/v1/allocations/{made.json['id']}", headers=people["stranger"])
    assert seen.status_code == 200


def test_looking_at_the_head_only_is_looking(client, people):
    assert client.head("/v1/fabrics").status_code == 401
    assert client.head("/v1/fabrics/main/hosts", headers=people["member"]).status_code == 403


@pytest.mark.parametrize(("rule", "status"), [("laas:metrics:get", 200), ("laas:fabric:get", 401)])
def test_only_metrics_can_be_opened_to_everybody(deployment, shared, tmp_path, rule, status):
    """An empty rule means everybody with a token; for metrics also those without one."""
    overrides = tmp_path / "policy.yaml"
    overrides.write_text(f'"{rule}": ""\n')
    deployment.client(shared)  # registers the option policy_file
    deployment.conf.set_override("policy_file", str(overrides), group="oslo_policy")
    client = deployment.client(shared)
    path = {"laas:metrics:get": "/metrics", "laas:fabric:get": "/v1/fabrics"}[rule]
    assert client.get(path).status_code == status
