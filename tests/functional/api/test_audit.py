# SPDX-License-Identifier: Apache-2.0

"""The audit log: initiator, action, target and outcome of each change."""

from __future__ import annotations

import json
import logging

import pytest
from pycadf.event import Event
from pycadf.host import Host
from pycadf.reason import Reason
from pycadf.resource import Resource

from laas_service.api.auth import middleware
from laas_service.domain.errors import InvalidInput

BLUE = {"X-Auth-Token": "blue-token"}
RED = {"X-Auth-Token": "red-token"}
ROOT = {"X-Auth-Token": "root-token"}


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, logger="laas_service.audit")

    def events():
        found = [r.getMessage() for r in caplog.records if r.name == "laas_service.audit"]
        caplog.clear()
        return [json.loads(line) for line in found]

    return events


def violations(event):
    """What pycadf, the library of the format, finds wrong with an event; "" if nothing."""
    known = {key: event[key] for key in ("eventType", "id", "eventTime", "action", "outcome")}
    parties = {
        name: Resource(id=event[name]["id"], typeURI=event[name]["typeURI"])
        for name in ("initiator", "target", "observer")
    }
    parties["initiator"].host = Host(address=event["initiator"]["host"]["address"])
    try:
        rebuilt = Event(**known, **parties, reason=Reason(**event["reason"]))
        assert rebuilt.is_valid()
        assert (
            rebuilt.as_dict().items()
            <= (event | {name: rebuilt.as_dict()[name] for name in parties}).items()
        )
    except ValueError as error:
        return str(error)
    return ""


def test_every_event_is_valid_by_the_library_of_the_format(guarded, told):
    made = guarded.post("/v1/allocations", json={"name": "a", "hosts": 1}, headers=BLUE)
    path = f"/v1/allocations/{made.json['id']}"
    guarded.patch(path, json={"name": "b"}, headers=BLUE)
    guarded.post(f"{path}/repair", headers=BLUE)
    guarded.delete(path, headers=ROOT)
    guarded.patch("/v1/fabrics/main/hosts/node09", json={"state": "drained"}, headers=ROOT)
    guarded.get("/v1/fabrics", headers={"X-Auth-Token": "forged"})
    events = told()
    assert len(events) == 6
    assert [violations(event) for event in events] == [""] * 6
    assert violations(events[0] | {"outcome": "perhaps"})
    assert violations(events[0] | {"action": "wish"})


def short(event):
    who = (event["initiator"]["id"], event["initiator"]["project_id"])
    what = (event["action"], event["target"]["typeURI"].rsplit("/", 1)[-1], event["target"]["id"])
    return (*who, *what, event["outcome"], event["reason"]["reasonCode"])


def test_who_changed_what(guarded, told):
    made = guarded.post("/v1/allocations", json={"name": "a", "hosts": 1}, headers=BLUE)
    id = made.json["id"]
    (created,) = told()
    assert short(created) == ("u1", "blue", "create", "allocation", id, "pending", "202")
    assert created["requestId"] == made.headers["x-openstack-request-id"]
    assert created["initiator"]["host"]["address"] == "127.0.0.1"
    assert created["eventTime"].endswith("+00:00")
    path = f"/v1/allocations/{id}"
    guarded.patch(path, json={"name": "b"}, headers=BLUE)
    guarded.post(f"{path}/repair", headers=BLUE)
    guarded.delete(path, headers=ROOT)
    guarded.patch("/v1/fabrics/main/hosts/node09", json={"state": "drained"}, headers=ROOT)
    guarded.patch("/v1/fabrics/main/links/leaf-0-0-0", json={"state": "failed"}, headers=ROOT)
    guarded.put("/v1/fabrics/main/plane", json={"l2": []}, headers=ROOT)
    assert [short(event) for event in told()] == [
        ("u1", "blue", "update", "allocation", id, "success", "200"),
        ("u1", "blue", "update/repair", "allocation", id, "failure", "409"),
        ("u1", "ops", "delete", "allocation", id, "pending", "202"),
        ("u1", "ops", "update", "host", "node09", "success", "200"),
        ("u1", "ops", "update", "link", "leaf-0-0-0", "success", "200"),
        ("u1", "ops", "update", "fabric", "main", "success", "200"),
    ]


def test_what_was_denied_is_told_and_what_was_looked_at_is_not(guarded, told):
    guarded.get("/v1/allocations", headers=BLUE)
    guarded.get("/healthcheck")
    assert told() == []
    forged = {"X-Identity-Status": "Confirmed", "X-User-Id": "root", "X-Project-Id": "blue"}
    guarded.get("/v1/fabrics", headers=forged)
    guarded.get("/v1/fabrics/main/hosts", headers=RED)
    guarded.delete("/v1/allocations/nobody", headers=RED)
    guarded.post("/v1/allocations", json={"name": "a", "hosts": 0}, headers=RED)
    guarded.post("/v1/allocations", json={"name": "a", "hosts": 1, "dry_run": True}, headers=RED)
    assert [short(event) for event in told()] == [
        ("unknown", "unknown", "read", "unknown", "unknown", "failure", "401"),
        ("u1", "red", "read", "fabric", "main", "failure", "403"),
        ("u1", "red", "delete", "allocation", "nobody", "failure", "404"),
        ("u1", "red", "create", "allocation", "unknown", "failure", "400"),
        ("u1", "red", "evaluate", "allocation", "unknown", "success", "200"),
    ]


def test_no_token_and_no_body_is_told(guarded, told):
    secret = {**BLUE, "Cookie": "very-secret"}
    guarded.post("/v1/allocations", json={"name": "confidential", "hosts": 1}, headers=secret)
    text = json.dumps(told())
    for word in ("blue-token", "very-secret", "confidential"):
        assert word not in text


def test_a_target_cannot_forge_a_line(guarded, told):
    guarded.delete("/v1/allocations/x%0a%7b%22action%22:1%7d", headers=RED)
    (event,) = told()
    assert event["target"]["id"] == 'x\n{"action":1}'
    assert "\n" not in event["requestPath"]


def test_it_can_be_switched_off(deployment, told):
    deployment.conf.set_override("audit", False, "api")
    client = deployment.client()
    assert client.post("/v1/allocations", json={"name": "a", "hosts": 1}).status_code == 202
    assert told() == []


@pytest.mark.parametrize(
    ("peer", "headers", "address"),
    [
        ("192.0.2.7", {"X-Forwarded-For": "198.51.100.1"}, "192.0.2.7"),
        ("192.0.2.7", {"Forwarded": "for=198.51.100.1"}, "192.0.2.7"),
        ("192.0.2.7", {"X-Real-IP": "198.51.100.1"}, "192.0.2.7"),
        ("10.0.0.1", {}, "10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "198.51.100.1, 192.0.2.7"}, "192.0.2.7"),
        ("10.0.0.1", {"X-Forwarded-For": "198.51.100.1, 192.0.2.7, 2001:db8::9"}, "192.0.2.7"),
        (
            "10.0.0.1",
            {"Forwarded": 'for=198.51.100.1, for="[2001:db9::1]";proto=https'},
            "2001:db9::1",
        ),
        ("10.0.0.1", {"X-Forwarded-For": '198.51.100.1, evil"'}, "10.0.0.1"),
    ],
)
def test_the_address_is_the_connections_unless_a_known_proxy_gives_another(
    deployment, guarded, told, peer, headers, address
):
    deployment.conf.set_override("enable_proxy_headers_parsing", True, group="oslo_middleware")
    deployment.conf.set_override("trusted_proxies", ["10.0.0.1", "2001:db8::/64"], group="api")
    client = deployment.client(middleware("keystone", "0.0.0.0", deployment.conf))
    client.post(
        "/v1/allocations",
        json={"name": "a", "hosts": 1},
        headers={**headers, **BLUE},
        environ_overrides={"REMOTE_ADDR": peer},
    )
    (event,) = told()
    assert event["initiator"]["host"]["address"] == address


def test_a_trusted_proxy_that_is_no_address_is_refused_at_start(deployment):
    deployment.conf.set_override("trusted_proxies", ["proxy.example"], group="api")
    with pytest.raises(InvalidInput, match=r"\[api\] trusted_proxies: 'proxy.example'"):
        deployment.client()
