# SPDX-License-Identifier: Apache-2.0

"""Drains with --move: who moves off hosts or a leaf, who stays, and what nobody may call off."""

from __future__ import annotations

import pytest

from tests.functional.api.test_replace_hosts import judged as judged
from tests.functional.api.test_resize import HOSTS, names, story
from tests.functional.api.test_resize import active as active
from tests.functional.api.test_resize import work as work
from tests.functional.api.test_tenants import ask as ask

EVACUATE = "/v1/fabrics/main/evacuate"


@pytest.fixture
def evacuate(client):
    def asked(**body):
        return client.post(EVACUATE, json=body)

    return asked


def consents(client, path, **given):
    assert client.patch(path, json={"movable": "restart", **given}).status_code == 200


def leaf_of(client, host):
    leaves = client.get("/v1/fabrics/main/switches?level=1").json["switches"]
    return leaves[int(host[4:]) // 4]["name"]


def test_a_leaf_is_evacuated(client, deployment, active, work, evacuate, judged):
    first, second = active(2), active(2, name="red")
    leaf = leaf_of(client, "node00")
    held = {path: names(client.get(path).json) for path in (first, second)}
    assert sorted(held[first] + held[second]) == [f"node0{n}" for n in range(4)]
    for path in held:
        consents(client, path)
    dry = evacuate(switch=leaf, dry_run=True)
    assert (dry.status_code, dry.json["staying"], dry.json["empty"]) == (200, [], False)
    assert [move["announced"] for move in dry.json["moves"]] == [False, False]
    assert client.get(f"{HOSTS}?state=drained").json["hosts"] == []
    begun = evacuate(switch=leaf)
    assert (begun.status_code, begun.json["staying"]) == (202, [])
    assert "a move off drained hosts is announced by" in story(client, first)[-1]
    again = evacuate(switch=leaf)
    assert [move["joining"] for move in again.json["moves"]] == [
        move["joining"] for move in begun.json["moves"]
    ]
    work()
    judged()
    assert not set(held[first] + held[second]) & {
        *names(client.get(first).json),
        *names(client.get(second).json),
    }
    assert client.get(f"/v1/fabrics/main/switches/{leaf}").json["empty"] is True
    done = evacuate(switch=leaf)
    assert (done.status_code, done.json["empty"]) == (200, True)
    for path in held:
        id = path.rsplit("/", 1)[1]
        shown = client.get(path).json
        assert set(deployment.compute.aggregates[id].hosts) == set(names(shown))


def test_who_does_not_consent_stays_unless_overridden(
    client, deployment, active, work, evacuate, judged
):
    path = active(2)
    host = names(client.get(path).json)[0]
    refused = evacuate(hosts=[host])
    (staying,) = refused.json["staying"]
    assert (refused.status_code, staying["why"]) == (200, "movable is never")
    assert staying["hosts"] == [host]
    assert client.get(path).json["announced"] is None
    client.patch(path, json={"movable": "live"})
    assert evacuate(hosts=[host]).json["staying"][0]["why"] == "movable is live"
    consents(client, path, notice=5000, move_cost=3)
    assert evacuate(hosts=[host], max_cost=2).json["staying"][0]["why"] == "its move_cost is 3.0"
    client.patch(path, json={"movable": "never"})
    forced = evacuate(hosts=[host], override=True)
    assert (forced.status_code, forced.json["staying"]) == (202, [])
    told = client.get(path).json["announced"]
    assert (told["forced"], told["begins"]) == (True, forced.json["moves"][0]["begins"])
    client.patch(path, json={"movable": "restart"})
    client.patch(path, json={"movable": "never"})
    assert client.get(path).json["announced"] == told, "called off in spite of the override"
    work()
    assert client.get(path).json["announced"] == told, "before its notice was over"
    deployment.slept += 5000
    work()
    assert host not in names(client.get(path).json)


def test_a_tenant_that_consents_may_object(client, active, work, evacuate):
    path = active(2)
    before = names(client.get(path).json)
    consents(client, path, notice=1000)
    (move,) = evacuate(switch=leaf_of(client, before[0]), dry_run=True).json["moves"]
    assert set(move["joining"]).isdisjoint(f"node0{number}" for number in range(4))
    assert evacuate(hosts=before).status_code == 202
    client.patch(path, json={"movable": "never"})
    for _ in range(2):
        work()
    assert names(client.get(path).json) == before
    drained = client.get(f"{HOSTS}?state=drained").json["hosts"]
    assert [host["name"] for host in drained] == before


def test_a_forced_move_under_way_is_not_turned_back_by_its_tenant(
    client, ask, deployment, active, work, evacuate
):
    path = active(2)
    before = client.get(path).json
    with deployment.engine.begin() as connection:
        connection.exec_driver_sql("update allocation set project_id = 'blue'")
    deployment.compute.servers[names(before)[0]] = "blue"
    evacuate(hosts=names(before), override=True)
    work()
    assert client.get(path).json["changing"] == "leave"
    back = {"json": {"turn_back": True}}
    assert ask("blue", "POST", f"{path}/replace-hosts", **back).status_code == 409
    assert ask("admin", "POST", f"{path}/replace-hosts", **back).status_code == 202


def test_an_administrator_alone_calls_off_a_forced_move(
    client, ask, deployment, active, work, evacuate
):
    path = active(2)
    with deployment.engine.begin() as connection:
        connection.exec_driver_sql("update allocation set project_id = 'blue'")
    before = names(client.get(path).json)
    consents(client, path, notice=10**6)
    back = {"json": {"turn_back": True}}
    assert client.post(f"{path}/replace-hosts", **back).status_code == 409, "nothing is announced"
    evacuate(hosts=before, override=True)
    assert ask("blue", "POST", f"{path}/replace-hosts", **back).status_code == 409
    answer = ask("admin", "POST", f"{path}/replace-hosts", **back)
    assert (answer.status_code, answer.json["announced"]) == (200, None)
    assert "the announced move is called off: somebody asked for it" in story(client, path)[-1]
    work()
    assert names(client.get(path).json) == before


def test_nobody_moves_where_there_is_no_room(client, active, evacuate):
    path = active(2)
    host = names(client.get(path).json)[0]
    consents(client, path)
    others = [f"node{number:02}" for number in range(2, 32)]
    for name in others:
        client.patch(f"{HOSTS}/{name}", json={"state": "drained"})
    (staying,) = evacuate(hosts=[host]).json["staying"]
    assert "0 hosts are free" in staying["why"]


def test_inside_a_container_a_tenant_moves_within_it(client, active, work, evacuate, judged):
    outer = active(8, name="outer", container=True)
    path = active(2, name="in", parent=outer.rsplit("/", 1)[1])
    host = names(client.get(path).json)[0]
    consents(client, path)
    begun = evacuate(hosts=[host]).json
    assert [move["name"] for move in begun["moves"]] == ["in"]
    assert [(one["name"], "container" in one["why"]) for one in begun["staying"]] == [
        ("outer", True)
    ]
    work()
    after = names(client.get(path).json)
    assert host not in after
    assert set(after) <= set(names(client.get(outer).json))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"hosts": ["node00"], "switch": "leaf-0-0"}, 400),
        ({"hosts": ["elsewhere"]}, 404),
        ({"switch": "elsewhere"}, 404),
    ],
)
def test_wrong_requests(evacuate, body, status):
    assert evacuate(**body).status_code == status


@pytest.mark.parametrize(("token", "status"), [("admin", 200), ("blue", 403), ("watch", 403)])
def test_who_may_evacuate(ask, deployment, token, status):
    assert ask(token, "POST", EVACUATE, json={"hosts": ["node00"]}).status_code == status
