# SPDX-License-Identifier: Apache-2.0

"""Failed links of an active allocation: its degraded state, and repair on demand."""

from __future__ import annotations

import pytest

from laas_service.app.wording.reasons import step_reason
from laas_service.messages import ConfirmedBy
from tests.functional.api.test_tenants import ask as ask

LINKS = "/v1/fabrics/main/links"
HOSTS = "/v1/fabrics/main/hosts"


def say(client, state, *links):
    for link in links:
        assert client.patch(f"{LINKS}/{link}", json={"state": state}).status_code == 200


def proceed(deployment):
    """Complete one phase of each change of placement, as the worker does once it is confirmed."""
    topology = deployment.store.fabrics.get("main").topology
    for record in deployment.store.allocations.page():
        if record.change is not None:
            deployment.store.placement_changes.proceed(
                record, step_reason(record.change, topology, ConfirmedBy.SWITCHES)
            )


@pytest.fixture
def spread(client, deployment, allocate):
    """The path of an allocation: two hosts on each of two leaves, with uplinks 0 and 1 of four."""
    drained = [2, 3, 6, 7, *range(8, 32)]
    for state in ("drained", "up"):
        if state == "up":
            made = allocate(4)
        for host in drained:
            client.patch(f"{HOSTS}/node{host:02}", json={"state": state})
    assert made["links"] == ["leaf-0-0-0", "leaf-0-0-1", "leaf-0-1-0", "leaf-0-1-1"]
    return f"/v1/allocations/{made['id']}"


def test_what_has_failed_is_shown_with_what_follows(client, spread):
    before = client.get(spread)
    assert (before.json["degraded"], before.json["changing"]) == (None, None)
    say(client, "failed", "leaf-0-0-1", "leaf-1-3-3")
    shown = client.get(spread)
    assert shown.headers["ETag"] != before.headers["ETag"]
    assert shown.json["history"][-1]["reason"] == "failed: link leaf-0-0-1"
    assert shown.json["degraded"] == {
        "links": ["leaf-0-0-1"],
        "hosts": [],
        "thin": [{"kind": "leaf", "pod": 0, "switch": 0, "up": 1, "given": 2, "flows": 2}],
        "apart": [],
        "over": [],
        "detail": "link leaf-0-0-1 has failed; leaf 0/0 has 1 of 2 uplinks: up to 2 flows may "
        "meet on one of them",
    }
    (listed,) = client.get("/v1/allocations").json["allocations"]
    assert listed["degraded"] == shown.json["degraded"]
    assert 'laas_allocations_degraded{fabric="main"} 1.0' in client.get("/metrics").text
    client.patch(f"{HOSTS}/node01", json={"state": "failed"})
    assert client.get(spread).json["degraded"]["hosts"] == [{"index": 1, "name": "node01"}]
    client.patch(f"{HOSTS}/node01", json={"state": "up"})
    say(client, "up", "leaf-0-0-1")
    after = client.get(spread).json
    assert after["degraded"] is None
    assert after["history"][-1]["reason"] == "up again: link leaf-0-0-1"
    assert 'laas_allocations_degraded{fabric="main"} 0.0' in client.get("/metrics").text


def test_repair_gives_a_new_version_and_frees_the_old_links_last(client, deployment, spread):
    say(client, "failed", "leaf-0-0-1")
    old = client.get(spread).json
    woken = deployment.woken
    begun = client.post(f"{spread}/repair")
    assert begun.status_code == 202
    assert deployment.woken > woken
    assert begun.json["version"] == old["version"] + 1
    assert begun.headers["ETag"] == f'"{begun.json["version"]}"'
    assert (begun.json["state"], begun.json["changing"]) == ("active", "prepare")
    asked = deployment.store.allocations.get(old["id"]).history[-1].by
    assert asked is not None
    assert asked.request_id == begun.headers["x-openstack-request-id"]
    assert begun.json["hosts"] == old["hosts"]
    assert begun.json["links"] == ["leaf-0-0-0", "leaf-0-0-2", "leaf-0-1-0", "leaf-0-1-2"]
    assert begun.json["degraded"]["links"] == ["leaf-0-0-1"]  # routes have not changed yet
    again = client.post(f"{spread}/repair")
    assert (again.status_code, again.json["version"]) == (202, begun.json["version"])
    assert 'laas_allocations_changing{fabric="main"} 1.0' in client.get("/metrics").text

    def owned():
        return len(client.get(f"{LINKS}?owner={old['id']}").json["links"])

    seen = []
    while (shown := client.get(spread).json)["changing"]:
        assert owned() == 6
        seen.append((shown["changing"], shown["degraded"] is None))
        proceed(deployment)
    assert seen == [("prepare", False), ("switch", True), ("withdraw", True)]
    assert owned() == 4
    assert shown["degraded"] is None
    assert [event["reason"] for event in shown["history"]][-4:] == [
        "repair: links leaf-0-0-1, leaf-0-1-1 replaced by links leaf-0-0-2, leaf-0-1-2",
        "routes over the new links confirmed in the switches; traffic goes over to them",
        "routes that move the traffic to the new links confirmed in the switches; "
        "the old routes have to go",
        "withdrawal of the old routes confirmed in the switches; "
        "freed links leaf-0-0-1, leaf-0-1-1",
    ]
    done = client.post(f"{spread}/repair")
    assert (done.status_code, done.json["version"]) == (200, shown["version"])


def test_waiting_for_a_repair(client, deployment, spread):
    say(client, "failed", "leaf-0-0-1")
    deployment.while_waiting = lambda: proceed(deployment)
    done = client.post(f"{spread}/repair?wait=5")
    assert (done.status_code, done.json["changing"]) == (202, None)


def test_a_repair_that_is_not_possible_says_what_is_degraded(client, spread):
    say(client, "failed", "leaf-0-0-1", "leaf-0-0-2", "leaf-0-0-3")
    before = client.get(spread).json
    refused = client.post(f"{spread}/repair")
    assert (refused.status_code, refused.json["code"]) == (409, "not_repairable")
    assert refused.json["degraded"]["links"] == ["leaf-0-0-1"]
    assert refused.json["detail"].endswith(
        "there is no other set of links for these hosts: its 2 leaves need 2 free "
        "uplinks in common and have 1"
    )
    assert client.get(spread).json == before


def test_a_failed_host_stays_and_is_no_reason_to_change(client, spread):
    client.patch(f"{HOSTS}/node01", json={"state": "failed"})
    answer = client.post(f"{spread}/repair")
    assert (answer.status_code, answer.json["changing"]) == (200, None)
    assert [host["name"] for host in answer.json["degraded"]["hosts"]] == ["node01"]
    assert answer.json["degraded"]["detail"] == "host 1 has failed"


def test_wrong_times_to_repair(client, deployment):
    made = client.post("/v1/allocations", json={"name": "a", "hosts": 4}).json
    url = f"/v1/allocations/{made['id']}"
    answer = client.post(f"{url}/repair")
    assert (answer.status_code, answer.json["code"]) == (409, "conflict")
    assert "is allocating; wait until it is active" in answer.json["detail"]
    deployment.converge()
    assert client.post(f"{url}/repair").status_code == 200
    assert client.post(f"{url}/repair", headers={"If-Match": '"99"'}).status_code == 412
    assert client.post("/v1/allocations/absent/repair").status_code == 404


@pytest.mark.parametrize(
    ("token", "status"), [("admin", 202), ("blue", 202), ("watch", 403), ("red", 404)]
)
def test_who_may_repair(ask, client, deployment, spread, token, status):
    say(client, "failed", "leaf-0-0-1")
    (record,) = deployment.store.allocations.page()
    with deployment.engine.begin() as connection:
        connection.exec_driver_sql("update allocation set project_id = 'blue'")
    assert ask(token, "POST", f"/v1/allocations/{record.id}/repair").status_code == status


def test_a_repair_is_announced_only_where_workers_repair(client, deployment, spread):
    say(client, "failed", "leaf-0-0-1")
    assert client.get(spread).json["progress"]["next_step"] == "repair"
    switched_off = deployment.client(repair_links=False)
    assert switched_off.get(spread).json["progress"]["next_step"] is None
    assert switched_off.post(f"{spread}/repair").json["changing"] == "prepare"  # on demand
    assert switched_off.get(spread).json["progress"]["next_step"] == "publish routes"
