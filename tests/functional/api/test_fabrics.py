# SPDX-License-Identifier: Apache-2.0

"""Fabrics: figures, inventory, faults, the largest fit, routing, common plane, making room."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest

from laas_service.adapters.fabric_import.generator import inventory
from laas_service.domain.compute_hosts import HostMemory, Quarantine, Trouble
from laas_service.domain.errors import Unavailable
from laas_service.domain.topology import LeafLink, Port, Topology, Xgft
from tests.functional.api.test_tenants import TokensAsHeaders
from tests.recabling import apart

pytestmark = pytest.mark.road

F = "/v1/fabrics/main"


def collected(client, url, key):
    items = []
    while url:
        page = client.get(url).json
        items += page[key]
        url = page["next"]
    return items


def test_a_fabric_in_numbers(client, allocate):
    empty = client.get(F).json
    assert empty["shape"] == {"m": [4, 4, 2], "w": [1, 4, 4], "cables": [1, 1], "rails": 1}
    assert (empty["hosts"]["total"], empty["hosts"]["free"]) == (32, 32)
    assert (empty["leaf_links"]["total"], empty["spine_links"]["total"]) == (32, 32)
    assert empty["switches"] == 8 + 8 + 16
    allocation = allocate(9)
    used = client.get(F).json
    assert used["hosts"]["allocated"] == 9
    assert used["leaf_links"]["allocated"] == len(allocation["leaf_links"]) > 0
    assert used["spine_links"]["allocated"] == len(allocation["spine_links"])
    assert used["leaf_links"]["free"] == 32 - len(allocation["leaf_links"])
    assert used["generation"] > empty["generation"]
    assert used["allocations"]["active"] == 1
    assert client.get("/v1/fabrics").json["fabrics"][0]["id"] == "main"


def test_a_fabric_is_deleted_once_nobody_lives_there(client, deployment, allocate):
    deployment.add_fabric("other")
    kept = allocate(2, "elsewhere", fabric="other")
    allocation = allocate(9, fabric="main")
    refused = client.delete(F)
    assert (refused.status_code, refused.json["code"]) == (409, "conflict")
    assert allocation["id"] in refused.json["detail"]
    assert client.get(F).json["hosts"]["allocated"] == 9
    client.delete(f"/v1/allocations/{allocation['id']}?wait=5")
    deleted = client.delete(F)
    assert (deleted.status_code, deleted.json["id"]) == (200, "main")
    assert client.get(F).status_code == client.delete(F).status_code == 404
    assert client.get(f"/v1/allocations/{allocation['id']}").status_code == 404
    assert [fabric["id"] for fabric in client.get("/v1/fabrics").json["fabrics"]] == ["other"]
    assert client.get(f"/v1/allocations/{kept['id']}").json["state"] == "active"
    deployment.add_fabric()
    assert allocate(9, "again", fabric="main")["state"] == "active"


def test_utilization(client, allocate):
    allocate(8)
    use = client.get(f"{F}/utilization").json
    assert use["utilization"] == 0.25
    counts = {"total": 32, "allocated": 8, "free": 24, "failed": 0, "drained": 0, "withheld": 0}
    assert use["hosts"] == counts


def test_hosts_know_their_owner(client, allocate):
    allocation = allocate(5)
    hosts = collected(client, f"{F}/hosts", "hosts")
    assert [host["index"] for host in hosts] == list(range(32))
    owned = [host["name"] for host in hosts if host["owner"] == allocation["id"]]
    assert owned == [host["name"] for host in allocation["hosts"]]
    (port,) = hosts[5]["ports"]
    assert (port["rail"], port["pod"], port["leaf"], port["k"]) == (0, 0, 1, 1)
    assert port["description"].startswith("node05")


def test_links_know_their_owner(client, allocate):
    allocation = allocate(9)
    owned = collected(client, f"{F}/links?owner={allocation['id']}&limit=3", "links")
    assert [link["id"] for link in owned] == allocation["links"]
    triples = {"leaf": allocation["leaf_links"], "spine": allocation["spine_links"]}
    for kind, indices in triples.items():
        assert [link["index"] for link in owned if link["kind"] == kind] == indices


def test_inventory_is_filtered(client, allocate):
    allocate(5)
    client.patch(f"{F}/hosts/node31", json={"state": "drained"})
    client.patch(f"{F}/links/spine-1-2-0", json={"state": "failed"})

    def names(url, key, name):
        return [item[name] for item in collected(client, f"{F}/{url}", key)]

    assert names("hosts?state=drained", "hosts", "name") == ["node31"]
    assert len(names("hosts?free=true&limit=7", "hosts", "name")) == 26
    assert names("links?state=failed", "links", "id") == ["spine-1-2-0"]
    assert set(names("links?kind=leaf", "links", "kind")) == {"leaf"}
    assert len(names("links?pod=1", "links", "id")) == 32
    assert len(names("switches?level=3", "switches", "guid")) == 16
    assert len(names("switches?limit=5", "switches", "guid")) == 32


def test_pages_continue_though_the_marker_stopped_matching(client):
    first = client.get(f"{F}/hosts?state=up&limit=2").json
    client.patch(f"{F}/hosts/node01", json={"state": "failed"})
    second = client.get(first["next"]).json
    assert [host["name"] for host in second["hosts"]] == ["node02", "node03"]


def test_an_unknown_marker_is_said(client):
    answer = client.get(f"{F}/hosts?marker=nobody")
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "marker"


def test_switches_have_their_places(client):
    switches = collected(client, f"{F}/switches", "switches")
    assert switches[0]["positions"] == [[0, 0]]
    assert switches[7]["positions"] == [[1, 3]]
    assert switches[-1]["positions"] == [[3, 3]]
    assert all(switch["lid"] for switch in switches)


# -- faults --------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["drained", "failed"])
def test_a_host_that_is_down_is_not_handed_out_until_repaired(deployment, client, state):
    answer = client.patch(f"{F}/hosts/node07", json={"state": state})
    assert answer.status_code == 200
    assert answer.json["state"] == state
    refused = client.post("/v1/allocations", json={"name": "all", "hosts": 32})
    assert refused.json["largest_fit"] == 31
    rest = client.post("/v1/allocations?wait=5", json={"name": "rest", "hosts": 31}).json
    assert "node07" not in [host["name"] for host in rest["hosts"]]
    assert client.patch(f"{F}/hosts/node07", json={"state": "up"}).json["state"] == "up"
    assert client.post("/v1/allocations", json={"name": "one", "hosts": 1}).status_code == 202


def test_a_failed_link_is_not_handed_out(client):
    client.patch(f"{F}/links/leaf-0-0-2", json={"state": "failed"})
    given = client.post("/v1/allocations", json={"name": "most", "hosts": 30}).json
    assert [0, 0, 2] not in given.get("leaf_links", [])
    links = client.get(f"{F}/links?state=failed").json["links"]
    assert [link["id"] for link in links] == ["leaf-0-0-2"]
    assert client.get(F).json["leaf_links"]["failed"] == 1


def test_the_owner_keeps_what_fails(client, allocate):
    allocation = allocate(9)
    host, link = allocation["hosts"][0]["name"], allocation["links"][0]
    kept = client.patch(f"{F}/hosts/{host}", json={"state": "failed"}).json
    assert (kept["state"], kept["owner"]) == ("failed", allocation["id"])
    kept = client.patch(f"{F}/links/{link}", json={"state": "failed"}).json
    assert (kept["state"], kept["owner"]) == ("failed", allocation["id"])
    assert client.get(f"/v1/allocations/{allocation['id']}").json["links"] == allocation["links"]


def test_the_same_word_twice_changes_nothing(client):
    client.patch(f"{F}/hosts/node01", json={"state": "drained"})
    before = client.get(F).json
    client.patch(f"{F}/hosts/node01", json={"state": "drained"})
    assert client.get(F).json == before


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("hosts/nobody", 404),
        ("hosts/a/b", 404),
        ("links/leaf-9-0-0", 404),
        ("links/spine-0-0-99", 404),
        ("links/leaf-00-0-0", 404),
        ("links/leaf-0-0", 400),
        ("links/trunk-0-0-0", 400),
    ],
)
def test_what_is_not_there_cannot_fail(client, path, status):
    answer = client.patch(f"{F}/{path}", json={"state": "failed"})
    assert answer.status_code == status


def test_links_cannot_be_drained(client):
    answer = client.patch(f"{F}/links/leaf-0-0-0", json={"state": "drained"})
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "state"


def test_host_names_may_hold_any_character(deployment):
    topology = Topology(Xgft((2, 1, 1), (1, 0, 0)))
    names = ("rack 1/node;1", "h\u00f6st:2")
    odd = replace(apart(inventory(topology), 1), host_names=names)
    deployment.store.fabrics.add("odd", topology, odd)
    client = deployment.client()
    for host in client.get("/v1/fabrics/odd/hosts").json["hosts"]:
        url = f"/v1/fabrics/odd/hosts/{quote(host['name'], safe='')}"
        assert client.patch(url, json={"state": "failed"}).json["state"] == "failed"


# -- largest fit ---------------------------------------------------------------------


def test_fit(client, allocate):
    allocate(20)
    yes = client.get(f"{F}/fit?hosts=3").json
    assert yes["fits"]
    assert yes["shape"]
    no = client.get(f"{F}/fit?hosts=13").json
    assert not no["fits"]
    assert no["reason"] == "too_few_hosts"
    assert "12" in no["detail"]
    assert yes["largest_fit"] == no["largest_fit"]
    largest = no["largest_fit"]
    assert client.get(f"{F}/fit?hosts={largest}").json["fits"]
    assert client.post("/v1/allocations", json={"name": "x", "hosts": largest}).status_code == 202


# -- routing -------------------------------------------------------------------------


def test_routing_compares_wanted_and_applied(deployment, client, allocate):
    allocate(3)
    before = client.get(f"{F}/routing").json
    (manager,) = before["subnet_managers"]
    assert not manager["current"]
    assert manager["problem"]
    deployment.subnet_manager.publish(deployment.store.fabrics.routed("main"))
    after = client.get(f"{F}/routing").json["subnet_managers"]
    assert after == [
        {
            "name": "local",
            "generation": before["generation"],
            "confirmed_by": "switches",
            "current": True,
            "problem": None,
            "engine": None,
            "master": None,
            "without": [],
            "unconfirmed": [],
        }
    ]


def test_a_silent_subnet_manager_is_a_line_in_the_report(deployment, client):
    deployment.subnet_manager.faults.before["applied"] = Unavailable("OpenSM does not answer")
    (manager,) = client.get(f"{F}/routing").json["subnet_managers"]
    assert manager["problem"] == "OpenSM does not answer"
    assert not manager["current"]


# -- several fabrics -----------------------------------------------------------------


def test_with_several_fabrics_one_has_to_be_named(deployment, client):
    deployment.add_fabric("spare")
    body = {"name": "blue", "hosts": 2}
    answer = client.post("/v1/allocations", json=body)
    assert answer.status_code == 400
    assert "main, spare" in answer.json["errors"][0]["detail"]
    named = client.post("/v1/allocations", json={**body, "fabric": "spare"}).json
    assert named["fabric"] == "spare"
    assert client.get("/v1/fabrics/main").json["hosts"]["allocated"] == 0
    assert client.get("/v1/fabrics").json["default"] is None
    configured = deployment.client(default_fabric="main")
    assert configured.get("/v1/fabrics?limit=1").json["default"] == "main"
    assert configured.post("/v1/allocations", json=body).json["fabric"] == "main"
    listed = client.get("/v1/allocations?fabric=spare").json["allocations"]
    assert [allocation["id"] for allocation in listed] == [named["id"]]


def test_without_a_fabric_there_is_nothing_to_give(bare):
    client = bare.client()
    assert client.get("/v1/fabrics").json == {"fabrics": [], "default": None, "next": None}
    answer = client.post("/v1/allocations", json={"name": "blue", "hosts": 2})
    assert answer.status_code == 404


def test_two_rails(deployment):
    """The links of both rails are owned, counted and shown."""
    tree = Xgft((2, 4, 1), (1, 2, 0))
    ports = tuple((Port(0, 2 * g, k), Port(0, 2 * g + 1, k)) for g in range(2) for k in range(2))
    topology = Topology(tree, 2, ports)
    deployment.store.fabrics.add("rails", topology, apart(inventory(topology), 1))
    client = deployment.client(default_fabric="rails")
    given = client.post("/v1/allocations", json={"name": "t", "hosts": 4}).json
    assert len(given["leaf_links"]) == len({tuple(link) for link in given["leaf_links"]})
    use = client.get("/v1/fabrics/rails/utilization").json["leaf_links"]
    assert use["allocated"] == len(given["leaf_links"])
    assert use["allocated"] + use["free"] == use["total"] == 8
    assert LeafLink(0, 0, 0) in [LeafLink(*link) for link in given["leaf_links"]]
    hosts = client.get("/v1/fabrics/rails/hosts").json["hosts"]
    assert [(p["rail"], p["leaf"]) for p in hosts[2]["ports"]] == [(0, 2), (1, 3)]


# -- idle links ----------------------------------------------------------------------


def test_what_may_be_turned_down(client, allocate):
    before = client.get(f"{F}/idle").json
    allocation = allocate(9)
    found = client.get(f"{F}/idle").json
    assert found["generation"] > before["generation"]
    assert set(allocation["links"]) & set(before["links"])
    assert not set(allocation["links"]) & set(found["links"])
    assert set(found["links"]) <= set(before["links"])
    assert {switch["level"] for switch in before["switches"]} <= {2, 3}


def test_what_may_be_turned_down_comes_in_pages(client, allocate):
    whole = client.get(f"{F}/idle").json
    assert whole["next"] is None
    links, url = [], f"{F}/idle?limit=7"
    while url:
        page = client.get(url).json
        assert page["switches"] == whole["switches"]
        assert len(page["links"]) <= 7
        links += page["links"]
        url = page["next"]
    assert links == whole["links"]
    marker = links[3]
    allocate(9)
    left = client.get(f"{F}/idle").json["links"]
    assert marker not in left, "the last of a page may be somebody's when the next one is asked for"
    after = client.get(f"{F}/idle?marker={marker}").json["links"]
    assert after == [link for link in left if links.index(link) > 3]
    for wrong in ("leaf-0-0", "leaf-9-9-9", "x"):
        assert client.get(f"{F}/idle?marker={wrong}").status_code == 400


# -- crossed links -------------------------------------------------------------------


def test_links_that_others_have_to_cross_are_told(client, allocate):
    """Two hosts are left on a leaf whose free uplinks have failed."""
    nothing = client.get(f"{F}/crossed").json
    assert (nothing["crossing"], nothing["links"]) == (0, [])
    assert nothing["pairs"] > 0
    owned = set(allocate(9)["links"])
    links = client.get(f"{F}/links?kind=leaf").json["links"]
    free = [link for link in links if link["id"] not in owned]
    partly = {tuple(link["index"][:2]) for link in links if link["id"] in owned}
    for link in free:
        if tuple(link["index"][:2]) in partly:
            body = {"state": "failed"}
            assert client.patch(f"{F}/links/{link['id']}", json=body).status_code == 200
    found = client.get(f"{F}/crossed").json
    assert 0 < found["crossing"] < found["pairs"]
    assert {link["id"] for link in found["links"]} <= owned
    assert all(link["crossed_by"] > 0 for link in found["links"])
    first, *_ = found["links"]
    leaf = first["id"].removeprefix("leaf-").rpartition("-")[0].replace("-", "/")
    count = sum(link.startswith(first["id"].rpartition("-")[0]) for link in owned)
    reason = f"{count} of 4 uplinks of leaf {leaf} are owned, {4 - count} have failed"
    assert first["why"] == reason
    first = client.get(f"{F}/crossed?limit=1").json
    assert first["links"] == found["links"][:1]
    assert (first["next"] is None) == (len(found["links"]) == 1)


# -- the common plane ------------------------------------------------------------------


def test_a_plane_is_seen_changed_and_given_back(client):
    nothing = client.get(f"{F}/plane").json
    assert (nothing["l2"], nothing["spines"], nothing["leaf_links"]) == ([], [], 0)
    tried = client.put(f"{F}/plane", json={"l2": [1], "dry_run": True}).json
    assert tried["cost"] == [
        {
            "policy": "jigsaw",
            "largest": 12,
            "largest_before": 32,
            "beyond_leaf": 24,
            "beyond_leaf_before": 32,
            "cut_off": False,
        }
    ]
    assert client.get(f"{F}/plane").json == nothing
    made = client.put(f"{F}/plane", json={"l2": [1]}).json
    assert (made["l2"], made["leaf_links"], made["spine_links"]) == ([1], 8, 8)
    assert (made["unreached"], made["mixed"], made["cost"]) == ([], [], None)
    assert made["generation"] == nothing["generation"] + 1
    use = client.get(f"{F}/utilization").json
    assert (use["leaf_links"]["withheld"], use["leaf_links"]["free"]) == (8, 24)
    assert (use["spine_links"]["withheld"], use["spine_links"]["free"]) == (8, 24)
    withheld = [x["id"] for x in collected(client, f"{F}/links", "links") if x["withheld"]]
    assert withheld[:2] == ["leaf-0-0-1", "leaf-0-1-1"]
    free = collected(client, f"{F}/links?free=true", "links")
    assert len(free) == 48
    assert client.put(f"{F}/plane", json={}).json["l2"] == []
    assert len(collected(client, f"{F}/links?free=true", "links")) == 64


@pytest.mark.parametrize(
    ("body", "field"), [({"l2": [4]}, "l2"), ({"spines": [-1]}, "spines.0"), ({"l2": "0"}, "l2")]
)
def test_a_wrong_plane_names_the_field(client, body, field):
    answer = client.put(f"{F}/plane", json=body)
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == field


# -- making room -----------------------------------------------------------------------


def test_administrators_see_how_to_make_room(client, allocate):
    allocation = allocate(32)
    room = {"releases": [allocation["id"]], "undrain": [], "hosts": 32}
    refused = client.post("/v1/allocations", json={"name": "late", "hosts": 2}).json
    assert (refused["room"], refused["fits_when_empty"]) == (room, True)
    assert client.get(f"{F}/fit?hosts=2").json["room"] == room
    never = client.get(f"{F}/fit?hosts=33").json
    assert (never["room"], never["fits_when_empty"]) == (None, False)


def test_a_refused_request_is_told_briefly_and_a_dry_run_in_full(client, allocate, monkeypatch):
    monkeypatch.setattr("laas_service.app.allocations.BRIEF", 0)
    allocation = allocate(32)
    wanted = {"name": "late", "hosts": 2}
    refused = client.post("/v1/allocations", json=wanted).json
    assert (refused.get("room"), refused["cut_off"]) == (None, True)
    dry = client.post("/v1/allocations", json=wanted | {"dry_run": True}).json
    assert dry["room"]["releases"] == [allocation["id"]]
    assert "cut_off" not in dry


def test_a_host_that_nova_withholds_is_no_advice(deployment, client):
    """Both are drained; an operator can undo only his own drain."""
    why = "server 1 vanished while nova-compute was not up"
    memory = HostMemory(quarantine={"node31": Quarantine(why, 0.0)})
    deployment.store.faults.judge_hosts("main", lambda before: memory)
    for node in ("node07", "node31"):
        client.patch(f"{F}/hosts/{node}", json={"state": "drained"})
    room = {"releases": [], "undrain": [7], "hosts": 0}
    refused = client.post("/v1/allocations", json={"name": "most", "hosts": 31}).json
    assert (refused["room"], refused["fits_when_empty"]) == (room, True)
    assert client.get(f"{F}/fit?hosts=31").json["room"] == room
    refused = client.post("/v1/allocations", json={"name": "all", "hosts": 32}).json
    assert (refused.get("room"), refused["fits_when_empty"]) == (None, False)


def test_the_quarantine_of_a_host_ends_with_a_word(deployment, client):
    """The host is drained by ``nova`` meanwhile; ``up`` does not end the quarantine."""
    why = "server 1 vanished while nova-compute was not up"
    memory = HostMemory(quarantine={"node31": Quarantine(why, 0.0)})
    deployment.store.faults.judge_hosts("main", lambda before: memory)
    url = f"{F}/hosts/node31"
    answer = client.patch(url, json={"state": "up"}).json
    assert (answer["state"], answer["source"]) == ("drained", "nova")
    assert answer["evidence"] == f"quarantined: {why}"
    assert client.get(F).json["hosts"]["drained"] == 1
    answer = client.patch(url, json={"confirm_empty": True}).json
    assert (answer["state"], answer["source"]) == ("up", None)
    again = client.patch(url, json={"confirm_empty": True})
    assert (again.status_code, again.json["detail"]) == (409, "host 'node31' is not in quarantine")


WITHHELD = HostMemory(
    {
        "node29": Trouble("disabled in Nova: memory", 0.0, withheld=True),
        "node28": Trouble("down in Nova", 0.0),
        "node30": Trouble("server 1 runs there", 0.0, withheld=True),
    },
    {"node31": Quarantine("server 1 vanished", 0.0)},
)
"""Three hosts that no new owner gets; node28 is down, but not for long enough."""


def test_withheld_hosts_are_counted_by_cause(deployment, client):
    deployment.store.faults.judge_hosts("main", lambda before: WITHHELD)
    told = client.get("/metrics").text
    counts = {"disabled": 1, "down": 0, "unknown": 0, "quarantined": 1, "occupied": 1}
    for cause, count in counts.items():
        assert f'laas_hosts_withheld{{cause="{cause}",fabric="main"}} {count}.0' in told


def test_a_refusal_names_withheld_hosts_to_administrators(deployment, client):
    before = client.post("/v1/allocations", json={"name": "all", "hosts": 33}).json["detail"]
    assert "withheld" not in before
    deployment.store.faults.judge_hosts("main", lambda before: WITHHELD)
    asked = {"name": "all", "hosts": 32}
    told = (
        "; withheld hosts: node29 (disabled in Nova: memory), node30 (server 1 runs there), "
        "node31 (quarantined: server 1 vanished)"
    )
    assert client.post("/v1/allocations", json=asked).json["detail"].endswith(told)
    dry_run = client.post("/v1/allocations", json={**asked, "dry_run": True}).json
    assert dry_run["detail"].endswith(told)
    tenant = deployment.client(authenticate=TokensAsHeaders)
    refused = tenant.post("/v1/allocations", json=asked, headers={"X-Auth-Token": "blue"}).json
    assert refused["detail"].endswith(
        "; withheld hosts: 1 disabled in Nova, 1 quarantined, 1 occupied"
    )
    assert "node" not in refused["detail"]


def test_every_example_of_the_openapi_document_can_be_sent(client, allocate):
    """On a fabric that has what they name; logins and certificates are of other deployments."""
    record = allocate(4)
    document = client.get("/v1/openapi.json").json
    elsewhere = {"/v1/session", "/v1/fabrics/{fabric_id}/consolidate", "/view/{name}"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {"content": {"application/json": {}}})
            example = body["content"]["application/json"].get("example")
            if method == "get" and "query" in {p["in"] for p in operation["parameters"]}:
                continue
            if method in ("delete", "get") or example is None or path in elsewhere:
                continue
            address = path
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    known = {"allocation_id": record["id"]}
                    given = known.get(parameter["name"], parameter["example"])
                    address = address.replace(f"{{{parameter['name']}}}", given)
            answer = client.open(address, method=method.upper(), json=example)
            assert answer.status_code < 300 or answer.status_code == 409, (address, answer.text)
