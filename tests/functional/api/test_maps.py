# SPDX-License-Identifier: Apache-2.0

"""The map of a fabric over REST: what it shows to whom, and how it explains a refusal."""

from __future__ import annotations

import gzip
import json
import re
import struct
from base64 import b64decode
from datetime import datetime

import pytest
from flask.testing import FlaskClient

from tests.functional.api.test_resize import work as work
from tests.functional.api.test_tenants import TokensAsHeaders

F = "/v1/fabrics/main"
MAP = f"{F}/map"


def owners(shown, name):
    raw = b64decode(shown["matrices"][name]["owner"])
    return struct.unpack(f"<{len(raw) // 2}H", raw)


def test_who_owns_each_cable(client, allocate):
    blue, red = allocate(9), allocate(4, "red")
    client.patch(f"{F}/links/spine-1-2-0", json={"state": "failed"})
    shown = client.get(MAP).json
    assert [tenant["name"] for tenant in shown["tenants"]] == ["blue", "red"]
    for kind, width, low in (("leaf", 4, 4), ("spine", 4, 4)):
        found = owners(shown, kind)
        for number, allocation in ((4, blue), (5, red)):
            cells = {cell for cell, owner in enumerate(found) if owner == number}
            expected = {(p * low + i) * width + up for p, i, up in allocation[f"{kind}_links"]}
            assert cells == expected
    assert shown["counts"]["hosts"]["allocated"] == 13
    (fault,) = shown["faults"]
    assert (fault["kind"], fault["name"], fault["state"]) == ("link", "spine-1-2-0", "failed")
    assert fault["source"] == "operator"
    assert shown["question"] is None


def test_where_a_size_would_lie(client):
    asked = client.get(f"{MAP}?hosts=6").json["question"]
    assert asked["fits"] is True
    placed = client.post("/v1/allocations", json={"name": "x", "hosts": 6, "dry_run": True}).json
    assert len(asked["cells"]["hosts"]) == 6
    tree = [(p * 4 + leaf) * 4 + up for p, leaf, up in placed["leaf_links"]]
    assert sorted(asked["cells"]["leaf"]) == tree


def test_why_a_size_is_refused_and_what_is_in_the_way(client, allocate):
    taken = [allocate(8, f"t{n}") for n in range(4)]
    client.delete(f"/v1/allocations/{taken[1]['id']}?wait=5")
    asked = client.get(f"{MAP}?hosts=12").json["question"]
    assert (asked["fits"], asked["largest_fit"]) == (False, 8)
    assert asked["detail"]
    assert len(asked["releases"]) == 1
    assert asked["releases"][0] in {tenant["id"] for tenant in taken}
    assert len(asked["cells"]["hosts"]) == 12
    for id in asked["releases"]:
        client.delete(f"/v1/allocations/{id}?wait=5")
    assert client.get(f"{MAP}?hosts=12").json["question"]["fits"] is True


def test_moves_instead_of_releases(client, allocate):
    for number in range(8):
        allocate(3, f"t{number}")
    asked = client.get(f"{MAP}?hosts=6").json["question"]
    assert asked["fits"] is False
    assert asked["moves"]
    assert asked["moved_hosts"] >= len(asked["moves"])


def test_the_queue(client, allocate):
    allocate(30, duration=600)
    waiting = {"name": "later", "hosts": 8, "wait": True, "duration": 60}
    client.post("/v1/allocations", json=waiting)
    (entry,) = client.get(MAP).json["queue"]
    assert (entry["name"], entry["position"], entry["requested"]) == ("later", 1, 8)
    assert entry["detail"]
    assert entry["expected_start"] is not None


def test_a_tenant_sees_its_own_part(deployment, client, allocate):
    allocate(9, "blue", project_id="blue")
    allocate(5, "red-secret", project_id="red")
    client.post(
        "/v1/allocations",
        json={"name": "red-waits", "hosts": 30, "wait": True, "project_id": "red"},
    )
    client.patch(f"{F}/links/spine-1-2-0", json={"state": "failed"})
    tenant = deployment.client(TokensAsHeaders)
    reader = {"X-Auth-Token": "watch"}
    shown = tenant.get(f"{MAP}?hosts=20", headers=reader).json
    assert shown["everything"] is False
    assert [one["name"] for one in shown["tenants"]] == ["blue"]
    assert set(owners(shown, "leaf")) | set(owners(shown, "hosts")) == {2, 4}
    assert len(shown["hosts"]) == 9
    assert shown["queue"] == shown["faults"] == []
    assert shown["question"]["fits"] is False
    assert "cells" not in shown["question"] or shown["question"]["cells"] is None
    assert shown["question"]["releases"] == []
    assert not {"red-secret", "red-waits", "allocation-2"} & set(json.dumps(shown).split('"'))
    everything = tenant.get(MAP, headers={"X-Auth-Token": "admin"}).json
    assert everything["everything"] is True


def sizes(shown):
    moments = [datetime.fromisoformat(at) for at, _ in shown["series"]]
    assert moments == sorted(moments)
    return [hosts for _, hosts in shown["series"]]


def test_the_hosts_of_all_allocations_over_time(client, allocate, work):
    """Claims, a resize, a cancelled request, allocations in a container, and releases."""
    assert client.get(MAP).json["series"] == []
    first, dept = allocate(5, "first"), allocate(8, "dept", container=True)
    allocate(3, "inside", parent=dept["id"])
    waits = client.post(
        "/v1/allocations", json={"name": "later", "hosts": 30, "wait": True, "duration": 60}
    ).json
    client.delete(f"/v1/allocations/{waits['id']}")
    address = f"/v1/allocations/{first['id']}"
    assert client.patch(address, json={"hosts": 7}).status_code == 202
    work()
    client.delete(f"{address}?wait=5")
    assert [n for n, before in pairs(sizes(client.get(MAP).json)) if n != before] == [5, 13, 15, 8]
    assert sizes(client.get(MAP).json)[-1] == 8


def pairs(values):
    return zip(values, [None, *values], strict=False)


def test_a_tenant_sees_its_own_hosts_over_time(deployment, client, allocate):
    blue = allocate(9, "blue", project_id="blue")
    allocate(5, "red", project_id="red")
    client.delete(f"/v1/allocations/{blue['id']}?wait=5")
    deployment.slept += 60
    allocate(4, "blue2", project_id="blue")
    tenant = deployment.client(TokensAsHeaders)
    shown = sizes(tenant.get(MAP, headers={"X-Auth-Token": "watch"}).json)
    assert [n for n, before in pairs(shown) if n != before] == [9, 0, 4]
    everybody = sizes(tenant.get(MAP, headers={"X-Auth-Token": "admin"}).json)
    assert [n for n, before in pairs(everybody) if n != before] == [9, 14, 5, 9]


def test_bad_questions(client):
    for query in ("hosts=0", "hosts=x", "policy=none&hosts=3", "hosts=3&colour=red"):
        answer = client.get(f"{MAP}?{query}")
        assert answer.status_code == 400, query
    assert client.get("/v1/fabrics/none/map").status_code == 404


def test_the_page_at_its_own_address(deployment, client):
    answer = client.get("/view")
    assert answer.mimetype == "text/html"
    assert '"source":"/v1/fabrics/main/map"' in answer.text
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert client.get("/view?fabric=none").status_code == 404
    assert client.get("/view", headers={"Host": "evil.example"}).status_code == 403
    deployment.add_fabric("second")
    several = client.get("/view")
    assert several.status_code == 400
    assert "main, second" in several.json["detail"]
    assert '"source":"/v1/fabrics/second/map"' in client.get("/view?fabric=second").text
    configured = deployment.client(default_fabric="second")
    assert '"source":"/v1/fabrics/second/map"' in configured.get("/view").text


@pytest.mark.parametrize("query", ["", "?fabric=main", "?fabric=none"])
def test_with_logins_the_page_holds_no_data(deployment, query):
    tenant = deployment.client(TokensAsHeaders)
    for headers in ({}, {"X-Auth-Token": "admin"}):
        answer = tenant.get(f"/view{query}", headers=headers)
        assert answer.status_code == 200
        assert '{"source":"","acts":true}' in answer.text
        assert "/v1/fabrics/" not in answer.text


def test_modules_of_the_page_are_sent_once(deployment):
    """They are served as they are, without a login, and not again while they are the same."""
    tenant = deployment.client(TokensAsHeaders)
    text = tenant.get("/view").text
    (main,) = re.findall(r'<script type="module" src="([^"]+)"', text)
    for module in (main, *re.findall(r'rel="modulepreload" href="([^"]+)"', text)):
        answer = tenant.get(f"/{module}")
        assert answer.status_code == 200
        assert answer.mimetype == "text/javascript"
        known = {"If-None-Match": answer.headers["ETag"]}
        assert tenant.get(f"/{module}", headers=known).status_code == 304
    for foreign in ("page.css", "none.js", "__init__.py"):
        assert tenant.get(f"/view/{foreign}").status_code == 404


def changed_by(client, act, headers=None):
    """Whether the map says 304 before something happens, and something new after it."""
    before = client.get(MAP, headers=headers)
    known = {"If-None-Match": before.headers["ETag"], **(headers or {})}
    assert client.get(MAP, headers=known).status_code == 304
    act()
    after = client.get(MAP, headers=headers)
    return after.headers["ETag"] != before.headers["ETag"]


def test_a_map_that_has_not_changed_is_not_sent_again(client, deployment, allocate):
    """Everything that the map shows changes its ETag, also what the generation does not count."""
    made = allocate(9)
    path = f"/v1/allocations/{made['id']}"
    store, host = deployment.store, f"{F}/hosts/node31"

    def say(text):
        later = deployment.clock()
        return lambda: store.allocations.postpone(made["id"], later, text)

    for what, act in {
        "a new tenant": lambda: allocate(2, "red"),
        "a new name": lambda: client.patch(path, json={"name": "blau"}),
        "a step that has to wait": say("Nova does not answer"),
        "the reason of it": say("Nova answers 503"),
        "a drained host": lambda: client.patch(host, json={"state": "drained"}),
        "its failure": lambda: client.patch(host, json={"state": "failed"}),
        "its repair": lambda: client.patch(host, json={"state": "up"}),
        "a request that waits": lambda: client.post(
            "/v1/allocations", json={"name": "w", "hosts": 30, "wait": True}
        ),
        "the time, while one waits": lambda: deployment.sleep(61),
        "an end": lambda: client.delete(f"{path}?wait=5"),
    }.items():
        assert changed_by(client, act), what
    assert not changed_by(client, lambda: client.get(f"{MAP}?hosts=3"))


def test_why_a_step_waits_is_for_who_may_see_the_allocation(deployment, allocate):
    made = allocate(9, "blue", project_id="blue")
    deployment.store.allocations.postpone(made["id"], deployment.clock(), "Nova does not answer")
    tenant = deployment.client(TokensAsHeaders)

    def why(token):
        shown = tenant.get(MAP, headers={"X-Auth-Token": token}).json
        return [one["error"] for one in shown["tenants"]]

    assert why("admin") == why("watch") == ["Nova does not answer"]
    assert why("red") == []


def test_each_viewer_has_its_own_etag(deployment, allocate):
    """Nobody gets 304, or a kept answer, for a map that another one saw."""
    allocate(9, "blue", project_id="blue")
    allocate(5, "red", project_id="red")
    tenant = deployment.client(TokensAsHeaders)
    seen = {}
    for token in ("admin", "watch", "red", "service"):
        answer = tenant.get(MAP, headers={"X-Auth-Token": token})
        if answer.status_code == 200:
            seen[token] = (answer.headers["ETag"], answer.json["tenants"])
            known = {"X-Auth-Token": token, "If-None-Match": answer.headers["ETag"]}
            assert tenant.get(MAP, headers=known).status_code == 304
    assert len({etag for etag, _ in seen.values()}) == len(seen) >= 3
    for token in seen:
        known = {
            "X-Auth-Token": token,
            "If-None-Match": ", ".join(e for t, (e, _) in seen.items() if t != token),
        }
        assert tenant.get(MAP, headers=known).status_code == 200
    forged = {"X-Auth-Token": "forged", "If-None-Match": seen["admin"][0]}
    assert tenant.get(MAP, headers=forged).status_code == 401


def test_a_long_map_is_compressed(client, allocate):
    allocate(20)
    plain = client.get(MAP)
    browser = FlaskClient(client.application, client.application.response_class)
    packed = browser.get(MAP, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert len(packed.data) < len(plain.data) / 3
    assert json.loads(gzip.decompress(packed.data)) == plain.json
