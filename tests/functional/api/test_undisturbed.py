# SPDX-License-Identifier: Apache-2.0

"""Allocations whose links nobody else's packets have to cross, as callers see them."""

from __future__ import annotations

import pytest

F = "/v1/fabrics/main"
REQUIRE = {"undisturbed": "require"}


@pytest.fixture
def narrow(client, allocate):
    """One uplink is left to the three free hosts beside the last one of "blue".

    "blue" has node00 to node04, and one uplink of the leaf of node04.
    """
    blue = allocate(5, constraints=REQUIRE)
    assert [host["name"] for host in blue["hosts"]] == [f"node0{n}" for n in range(5)]
    assert (blue["crossed_by"], blue["degraded"]) == (0, None)
    for link in _free_uplinks(client, blue)[:2]:
        _fail(client, link)
    return blue


def _free_uplinks(client, allocation):
    links = client.get(f"{F}/links?kind=leaf").json["links"]
    return [
        link["id"]
        for link in links
        if link["index"][:2] == [0, 1] and link["id"] not in allocation["links"]
    ]


def _fail(client, link):
    assert client.patch(f"{F}/links/{link}", json={"state": "failed"}).status_code == 200


def _drain(client, hosts):
    for host in hosts:
        body = {"state": "drained"}
        assert client.patch(f"{F}/hosts/node{host:02}", json=body).status_code == 200


def _shown(client, allocation):
    return client.get(f"/v1/allocations/{allocation['id']}").json


def _asked(client, hosts, **more):
    return client.post("/v1/allocations", json={"name": "red", "hosts": hosts, **more})


def test_who_would_make_packets_cross_is_refused_until_the_owner_is_gone(client, narrow):
    """Five hosts fit only with the last uplink; two free hosts would be left behind it."""
    _drain(client, range(12, 32))
    fit = client.get(f"{F}/fit?hosts=5").json
    assert (fit["fits"], fit["reason"], fit["largest_fit"]) == (False, "disturbs", 4)
    refused = _asked(client, 5)
    assert (refused.status_code, refused.json["code"]) == (409, "disturbs")
    assert "requires to be undisturbed" in refused.json["detail"]
    assert _asked(client, 5, dry_run=True).json["code"] == "disturbs"
    client.delete(f"/v1/allocations/{narrow['id']}?wait=5")
    assert _asked(client, 5).status_code == 202


def test_another_placement_is_taken_where_there_is_one(client, narrow):
    assert _asked(client, 17).status_code == 202
    assert _shown(client, narrow)["crossed_by"] == 0


@pytest.mark.usefixtures("narrow")
def test_the_promise_outlives_a_restart(deployment, client):
    """The ledger is read from the database again."""
    _drain(client, range(12, 32))
    deployment.store._ledgers.forget("main")
    assert _asked(client, 5).json["code"] == "disturbs"


def test_a_fault_that_makes_packets_cross_degrades_it(client, narrow):
    assert "laas_allocations_disturbed" in client.get("/metrics").text
    assert 'laas_allocations_disturbed{fabric="main"} 0.0' in client.get("/metrics").text
    _fail(client, _free_uplinks(client, narrow)[2])
    shown = _shown(client, narrow)
    assert shown["crossed_by"] > 0
    assert (
        f"packets of {shown['crossed_by']} pairs of ports of others" in shown["degraded"]["detail"]
    )
    found = client.get(f"{F}/crossed").json
    assert {link["owner"] for link in found["links"]} == {narrow["id"]}
    assert found["crossing"] == shown["crossed_by"]
    assert 'laas_allocations_disturbed{fabric="main"} 1.0' in client.get("/metrics").text


def test_a_request_that_would_be_crossed_is_refused_and_a_preference_is_told(client):
    """Each leaf has one uplink and one usable host left, so two hosts need two uplinks."""
    for leaf in range(8):
        for uplink in range(1, 4):
            _fail(client, f"leaf-{leaf // 4}-{leaf % 4}-{uplink}")
    _drain(client, [host for host in range(32) if host % 4])
    refused = _asked(client, 2, constraints=REQUIRE)
    assert (refused.status_code, refused.json["code"]) == (409, "constraint")
    assert "without constraint undisturbed (require)" in refused.json["detail"]
    liked = {"undisturbed": "prefer"}
    tried = _asked(client, 2, constraints=liked, dry_run=True).json
    fit = client.get(f"{F}/fit?hosts=2&undisturbed=prefer").json
    assert tried["crossed_by"] == fit["crossed_by"] > 0
    assert fit["crossed_more"] > 0
    made = _asked(client, 2, constraints=liked).json
    assert made["constraints"]["undisturbed"] == "prefer"
    assert made["crossed_by"] == tried["crossed_by"]
    assert client.get(f"{F}/crossed").json["crossing"] == tried["crossed_by"]


def test_queued_requests_wait_while_they_would_make_packets_cross(client, deployment, narrow):
    _drain(client, range(12, 32))
    waiting = _asked(client, 5, wait=True).json
    assert waiting["state"] == "queued"
    assert deployment.serve_queues() == 0
    assert _shown(client, waiting)["waits_for"]["code"] == "disturbs"
    client.delete(f"/v1/allocations/{narrow['id']}?wait=5")
    assert deployment.serve_queues() == 1


def test_queued_requests_keep_what_they_require(client, deployment, allocate):
    """It starts from the queue; then another request that would harm it is refused."""
    first = allocate(32)
    waiting = _asked(client, 5, wait=True, constraints=REQUIRE).json
    client.delete(f"/v1/allocations/{first['id']}?wait=5")
    assert deployment.serve_queues() == 1
    blue = _shown(client, waiting)
    for link in _free_uplinks(client, blue)[:2]:
        _fail(client, link)
    _drain(client, range(12, 32))
    assert _asked(client, 5).json["code"] == "disturbs"


def test_it_is_refused_where_a_subnet_manager_chooses_the_default_routes(deployment):
    client = deployment.client(foreign_default_routes=True)
    refused = _asked(client, 5, constraints=REQUIRE)
    assert refused.status_code == 400
    assert "enforcement = chains" in refused.json["detail"]


def test_growth_that_would_make_packets_cross_is_refused(client, narrow, allocate):
    red = allocate(4, name="red", constraints={"avoid_pods": [1]})
    _drain(client, range(12, 32))
    grown = client.patch(f"/v1/allocations/{red['id']}", json={"hosts": 5})
    assert (grown.status_code, grown.json["code"]) == (409, "disturbs"), narrow


def test_other_hosts_that_would_make_packets_cross_are_refused(client, narrow, allocate):
    """The only free hosts are beside "narrow", and one of them would need the last uplink."""
    red = allocate(4, name="red", constraints={"avoid_pods": [1]})
    _drain(client, range(12, 32))
    for dry_run in (True, False):
        body = {"hosts": [red["hosts"][0]["name"]], "dry_run": dry_run}
        refused = client.post(f"/v1/allocations/{red['id']}/replace-hosts", json=body)
        assert (refused.status_code, refused.json["code"]) == (409, "disturbs"), narrow
    client.delete(f"/v1/allocations/{narrow['id']}?wait=5")
    assert client.post(f"/v1/allocations/{red['id']}/replace-hosts", json=body).status_code == 202


def _told(client, allocation):
    """Asserts that it is told that others cross its links, and in no other state."""
    shown = _shown(client, allocation)
    pairs = shown["crossed_by"]
    assert pairs > 0
    assert f"packets of {pairs} pairs of ports of others" in shown["degraded"]["detail"]
    assert 'laas_allocations_disturbed{fabric="main"} 1.0' in client.get("/metrics").text
    assert client.get(f"{F}/crossed").json["crossing"] == pairs


def test_a_release_that_makes_packets_cross_is_told(client, narrow, allocate):
    """Hosts that lose their owner send by default routes, and the last free uplink has failed."""
    _drain(client, range(12, 32))
    red = allocate(3, name="red", constraints={"avoid_pods": [1]})
    assert [host["name"] for host in red["hosts"]] == ["node05", "node06", "node07"]
    _fail(client, _free_uplinks(client, narrow)[2])
    shown = _shown(client, narrow)
    assert (shown["crossed_by"], shown["degraded"]) == (0, None)
    client.delete(f"/v1/allocations/{red['id']}?wait=5")
    _told(client, narrow)


def test_the_end_of_a_fault_that_makes_packets_cross_is_told(client, narrow):
    """Until then nothing led from the hosts beside it to others."""
    own = next(link for link in narrow["links"] if link.startswith("leaf-0-1-"))
    for link in (own, _free_uplinks(client, narrow)[2]):
        _fail(client, link)
    assert _shown(client, narrow)["crossed_by"] == 0
    assert client.patch(f"{F}/links/{own}", json={"state": "up"}).status_code == 200
    _told(client, narrow)
