# SPDX-License-Identifier: Apache-2.0

"""A leaf is drained as a whole; its document lists the remaining allocations until none is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laas_service.adapters.db.outbox import SqlOutbox
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.fabric_import.generator import inventory
from laas_service.domain.topology import Port, Topology, Xgft
from tests.recabling import apart

F = "/v1/fabrics/main"
LEAF = f"{F}/switches/leaf-0-1"
ON_LEAF = ["node04", "node05", "node06", "node07"]


def states(client, fabric="main"):
    hosts = client.get(f"/v1/fabrics/{fabric}/hosts").json["hosts"]
    return {host["name"]: host["state"] for host in hosts}


def put(client, url, state):
    answer = client.patch(url, json={"state": state})
    assert answer.status_code == 200, answer.text
    return answer.json


def test_nothing_new_lands_on_a_drained_leaf_until_it_is_repaired(client):
    drained = put(client, LEAF, "drained")
    assert drained["state"] == "drained"
    assert drained["hosts"] == {"total": 4, "up": 0, "drained": 4, "failed": 0}
    assert drained["empty"]
    refused = client.post("/v1/allocations", json={"name": "all", "hosts": 32})
    assert refused.json["largest_fit"] == 28
    rest = client.post("/v1/allocations?wait=5", json={"name": "rest", "hosts": 28}).json
    assert not {host["name"] for host in rest["hosts"]}.intersection(ON_LEAF)
    assert put(client, LEAF, "up")["state"] == "up"
    assert client.post("/v1/allocations", json={"name": "one", "hosts": 4}).status_code == 202


def test_who_is_still_there_is_told_until_it_is_empty(client, allocate):
    allocation = allocate(6)
    drained = put(client, LEAF, "drained")
    assert not drained["empty"]
    (tenant,) = drained["allocations"]
    assert (tenant["id"], tenant["project_id"]) == (allocation["id"], allocation["project_id"])
    here = [host for host in allocation["hosts"] if host["name"] in ON_LEAF]
    assert tenant["hosts"] == [{key: host[key] for key in ("index", "name")} for host in here]
    assert client.get(LEAF).json == drained
    assert client.get(f"/v1/allocations/{allocation['id']}").json["hosts"] == allocation["hosts"]
    client.delete(f"/v1/allocations/{allocation['id']}?wait=5")
    assert client.get(LEAF).json["empty"]
    assert client.get(LEAF).json["state"] == "drained"


def test_a_leaf_has_its_name_and_its_guid(client):
    guid = client.get(LEAF).json["guid"]
    assert put(client, f"{F}/switches/{guid}", "drained") == client.get(LEAF).json


def test_what_failed_or_was_drained_by_itself_stays_so(client):
    put(client, f"{F}/hosts/node04", "failed")
    put(client, f"{F}/hosts/node05", "drained")
    drained = put(client, LEAF, "drained")
    assert drained["hosts"] == {"total": 4, "up": 0, "drained": 3, "failed": 1}
    put(client, f"{F}/hosts/node06", "drained")
    repaired = put(client, LEAF, "up")
    assert repaired["hosts"] == {"total": 4, "up": 1, "drained": 2, "failed": 1}
    found = states(client)
    assert [found[name] for name in ON_LEAF] == ["failed", "drained", "drained", "up"]


def test_of_two_drained_leaves_each_holds_its_hosts(deployment):
    """With two rails a host has two leaves; it is up again once neither is drained."""
    tree = Xgft((2, 4, 1), (1, 2, 0))
    ports = tuple((Port(0, 2 * g, k), Port(0, 2 * g + 1, k)) for g in range(2) for k in range(2))
    topology = Topology(tree, 2, ports)
    deployment.store.fabrics.add("rails", topology, apart(inventory(topology), 1))
    client = deployment.client()
    leaves = [f"/v1/fabrics/rails/switches/leaf-0-{leaf}" for leaf in (0, 1)]
    for leaf in leaves:
        put(client, leaf, "drained")
    put(client, leaves[0], "up")
    assert list(states(client, "rails").values()) == ["drained", "drained", "up", "up"]
    put(client, leaves[1], "up")
    assert set(states(client, "rails").values()) == {"up"}


def test_the_same_word_twice_changes_nothing_and_asks_for_no_routes(client):
    wanted = client.get(f"{F}/routing").json["generation"]
    put(client, LEAF, "drained")
    before = client.get(F).json
    put(client, LEAF, "drained")
    assert client.get(F).json == before
    assert client.get(f"{F}/routing").json["generation"] == wanted


def test_another_process_catches_up(deployment, client):
    other = SqlStore(deployment.engine)
    other.fabrics.ledger("main")
    put(client, LEAF, "drained")
    assert other.fabrics.ledger("main")[0].drained_hosts == {4, 5, 6, 7}
    assert (
        other.fabrics.ledger("main")[0].state()
        == SqlStore(deployment.engine).fabrics.ledger("main")[0].state()
    )


def test_others_are_told_of_each_host_as_if_it_were_drained_alone(deployment):
    deployment.store = SqlStore(deployment.engine, announce=True)
    client = deployment.client()
    put(client, f"{F}/hosts/node04", "failed")
    put(client, LEAF, "drained")
    put(client, LEAF, "up")
    outbox = SqlOutbox(deployment.engine)
    now = deployment.clock()
    told = [note for _, note in outbox.take(now, now)][1:]
    assert {note.event_type for note in told} == {"isolated_network.host.update"}
    assert [(note.host, note.old_state, note.new_state) for note in told] == [
        *((name, "up", "drained") for name in ON_LEAF[1:]),
        *((name, "drained", "up") for name in ON_LEAF[1:]),
    ]
    assert all(note.initiator is not None for note in told)


@pytest.mark.parametrize(
    ("switch", "status"),
    [("nobody", 404), ("0x1", 404), ("l2-0-0", 400), ("spine-0-0", 400), ("a/b", 404)],
)
def test_only_a_leaf_can_be_drained(client, switch, status):
    before = client.get(F).json
    answer = client.patch(f"{F}/switches/{switch}", json={"state": "drained"})
    assert answer.status_code == status
    assert switch in answer.json["detail"]
    assert client.get(F).json == before


def test_a_failed_leaf_fails_its_hosts_and_links_until_it_is_repaired(client, deployment):
    put(client, LEAF, "drained")
    failed = put(client, LEAF, "failed")
    assert (failed["state"], failed["source"]) == ("failed", "operator")
    assert failed["hosts"] == {"total": 4, "up": 0, "drained": 0, "failed": 4}
    link = client.get(f"{F}/links?state=failed").json["links"][0]
    assert (link["id"], link["source"]) == ("leaf-0-1-0", "operator")
    assert link["evidence"] == "switch leaf-0-1 has failed"
    returning = put(client, LEAF, "up")
    assert (returning["state"], returning["hosts"]["failed"]) == ("returning", 4)
    assert "its tables are not compared yet" in returning["evidence"]
    assert returning["by"]["user_id"]
    deployment.return_switches()
    assert client.get(LEAF).json["hosts"]["drained"] == 4
    assert put(client, LEAF, "up")["hosts"]["up"] == 4


def test_an_unknown_state_of_a_switch_is_refused(client):
    answer = client.patch(LEAF, json={"state": "broken"})
    assert answer.status_code == 400
    assert answer.json["errors"][0]["field"] == "state"


def test_a_spine_under_maintenance_shows_who_still_has_its_links(client, allocate, deployment):
    allocation = allocate(20)
    _, l2, spine = allocation["spine_links"][0]
    name = f"spine-{l2}-{spine}"
    url = f"{F}/switches/{name}"
    before = client.get(url).json
    assert (before["state"], before["level"], before["empty"]) == ("up", 3, False)
    assert before["allocations"][0]["links"] == [f"spine-0-{l2}-{spine}", f"spine-1-{l2}-{spine}"]
    shown = put(client, url, "maintenance")
    assert (shown["state"], shown["source"]) == ("maintenance", "operator")
    listed = client.get(f"{F}/switches?level=3").json["switches"]
    assert [s["name"] for s in listed if s["state"] == "maintenance"] == [name]
    drained = client.get(f"{F}/links?state=drained").json["links"]
    assert {link["id"] for link in drained} == {f"spine-{p}-{l2}-{spine}" for p in (0, 1)}
    assert put(client, url, "up")["state"] == "returning"
    deployment.return_switches()
    assert client.get(url).json["state"] == "up"
    assert client.get(f"{F}/links?state=drained").json["links"] == []


def test_leaves_of_one_name_are_told_apart_by_guid(deployment):
    topology = Topology(Xgft((2, 2, 1), (1, 2, 0)))
    made = apart(inventory(topology), 1)
    named = tuple(replace(switch, name="switch") for switch in made.switches)
    deployment.store.fabrics.add("twins", topology, replace(made, switches=named))
    client = deployment.client()
    answer = client.get("/v1/fabrics/twins/switches/switch")
    assert answer.status_code == 400
    assert f"{made.leaf_guids[1]:#018x}" in answer.json["errors"][0]["detail"]
