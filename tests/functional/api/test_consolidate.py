# SPDX-License-Identifier: Apache-2.0

"""Shared hosts that are emptied: plans, consent, announcements, moves server by server."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest

from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.verification import physical_tables, slot_violations
from tests.fakes import FakeCompute
from tests.functional.api.test_resize import story
from tests.functional.api.test_resize import work as work
from tests.functional.api.test_tenants import ask as ask

PATH = "/v1/fabrics/main/consolidate"
SLOTS = 4


class Claiming(FakeCompute):
    """Compute that keeps servers to their slots."""

    claims_slots: ClassVar[bool] = True


@pytest.fixture
def claims():
    """Whether compute keeps servers to their slots."""
    return True


@pytest.fixture
def scattered(claims, client, deployment, work):
    """Two leaves of shared hosts, and five tenants of one to three slots on a host of their own.

    Those between them are gone, so that each host has room. Paths by name.
    """
    if claims:
        deployment.compute = Claiming()
    body = {"name": "part", "hosts": 8, "sharing": {"slots": SLOTS, "bandwidth": 10.0}}
    assert client.post("/v1/allocations", json=body).status_code == 202
    paths, spare = {}, []
    for number, slots in enumerate((1, 2, 1, 3, 2)):
        for name, size in ((f"tenant{number}", slots), ("spare", SLOTS - slots)):
            body = {"name": name, "class": "shared", "slots": size, "bandwidth": 0.5}
            made = client.post("/v1/allocations", json={**body, "movable": "restart"})
            assert made.status_code == 202, made.text
            path = f"/v1/allocations/{made.json['id']}"
            if name == "spare":
                spare.append(path)
            else:
                paths[name] = path
    work()
    for path in spare:
        client.delete(path)
    work()
    for path in paths.values():
        assert client.get(path).json["state"] == "active"
    return paths


def used(client, paths):
    """Host -> virtual machines."""
    total = Counter[str]()
    for path in paths.values():
        for host in client.get(path).json["units"]:
            total[host["name"]] += len(host["units"])
    return total


def broken(deployment):
    """What the judge says of slots and promises, from records and tables alone."""
    fabric, (ledger, _) = (
        deployment.store.fabrics.get("main"),
        deployment.store.fabrics.ledger("main"),
    )
    parts = list(ledger.allocations.values())
    routed = forwarding_tables(fabric.topology, fabric.inventory, parts)
    tables = physical_tables(routed.rows, routed.index)
    return slot_violations(fabric.topology, fabric.inventory, parts, ledger.sharers(), tables)


@pytest.mark.parametrize("claims", [True, False], ids=["claimed", "accounted"])
def test_hosts_are_emptied_as_the_dry_run_says(client, deployment, scattered, work, claims):
    before = used(client, scattered)
    asked = {"moves": 3, "moves_per_host": 2}
    dry = client.post(PATH, json={**asked, "dry_run": True})
    assert dry.status_code == 200, dry.text
    plan = dry.json
    emptied = {host["host"] for host in plan["hosts"]}
    assert emptied
    assert plan["moved_units"] == sum(host["moves"] for host in plan["hosts"]) <= 3
    assert plan["cost"] == plan["moved_units"]
    assert all(host["moves"] <= 2 for host in plan["hosts"])
    assert {move["announced"] for move in plan["moves"]} == {False}
    assert used(client, scattered) == before
    assert all(client.get(path).json["announced"] is None for path in scattered.values())
    begun = client.post(PATH, json=asked)
    assert begun.status_code == 202, begun.text
    assert {move["announced"] for move in begun.json["moves"]} == {True}
    assert begun.json["hosts"] == plan["hosts"]
    assert client.post(PATH, json={**asked, "moves": 0}).json["hosts"] == []
    mover = f"/v1/allocations/{plan['moves'][0]['allocation']}"
    told = client.get(mover).json["announced"]
    assert told["leaving"] == plan["moves"][0]["leaving"]
    assert "a move so that shared hosts are empty is announced by" in story(client, mover)[-1]
    if claims:
        for move in plan["moves"]:
            handed = deployment.compute.aggregates[move["allocation"]].share
            deployment.compute.slots[move["allocation"]] = dict(handed)
    for _ in range(3):
        work()
        assert broken(deployment) == []
    after = used(client, scattered)
    assert set(after) == set(before) - emptied
    assert after.total() == before.total()
    for path in scattered.values():
        shown = client.get(path).json
        assert (shown["changing"], shown["announced"], shown["unit_moves"]) == (None, None, [])
        if claims:
            handed = deployment.compute.aggregates[shown["id"]].share
            assert handed == {host["name"]: len(host["units"]) for host in shown["units"]}
    assert any("moves as announced: " in line for line in story(client, mover))


def test_what_the_owner_said_is_kept(client, scattered):
    for path in scattered.values():
        client.patch(path, json={"movable": "never"})
    asked = {"moves": 20, "dry_run": True}
    assert client.post(PATH, json=asked).json["hosts"] == []
    assert client.post(PATH, json={**asked, "override": True}).json["hosts"]
    for path in scattered.values():
        client.patch(path, json={"movable": "restart", "move_cost": 5})
    assert client.post(PATH, json={**asked, "max_cost": 4}).json["hosts"] == []
    plan = client.post(PATH, json=asked).json
    assert plan["cost"] == 5 * plan["moved_units"] > 0
    assert client.post(PATH, json={**asked, "moves_per_host": 0.5}).json["hosts"] == []


def test_a_tenant_that_objects_stays(client, scattered, work):
    for path in scattered.values():
        client.patch(path, json={"movable": "restart", "notice": 10**6})
    before = used(client, scattered)
    plan = client.post(PATH, json={}).json
    work()
    assert used(client, scattered) == before
    again = client.post(PATH, json={}).json
    assert again["id"] == plan["id"], "nobody else is told"
    assert [m["begins"] for m in again["moves"]] == [m["begins"] for m in plan["moves"]]
    for move in plan["moves"]:
        path = f"/v1/allocations/{move['allocation']}"
        assert client.get(path).json["announced"]["begins"] == move["begins"]
        assert client.patch(path, json={"movable": "never"}).json["announced"] is None


def test_a_move_whose_slots_are_taken_meanwhile_is_called_off(client, deployment, scattered, work):
    for path in scattered.values():
        client.patch(path, json={"movable": "restart", "notice": 1000})
    plan = client.post(PATH, json={"moves": 1, "moves_per_host": 1}).json
    (move,) = plan["moves"]
    body = {"name": "big", "class": "shared", "slots": 32 - 9, "bandwidth": 0.1}
    assert client.post("/v1/allocations", json=body).status_code == 202
    for _ in range(2):
        work()
    path = f"/v1/allocations/{move['allocation']}"
    shown = client.get(path).json
    assert (shown["announced"], shown["changing"]) == (None, None)
    assert "is called off: its new slots are no longer free" in story(client, path)[-1]
    assert move["leaving"] == [host["name"] for host in shown["units"]]
    assert broken(deployment) == []


def test_a_move_to_a_host_that_is_drained_meanwhile_is_called_off(client, scattered, work):
    for path in scattered.values():
        client.patch(path, json={"movable": "restart", "notice": 1000})
    plan = client.post(PATH, json={"moves": 1, "moves_per_host": 1}).json
    (move,) = plan["moves"]
    (joins,) = {unit["joins"] for unit in move["unit_moves"]}
    client.patch(f"/v1/fabrics/main/hosts/{joins}", json={"state": "drained"})
    for _ in range(2):
        work()
    path = f"/v1/allocations/{move['allocation']}"
    assert "called off: a host that it would go to has failed or is drained" in str(
        story(client, path)
    )


def test_projects_have_so_many_moves(client, deployment, scattered, work):
    for path in scattered.values():
        client.patch(path, json={"movable": "restart"})
    project = client.get(next(iter(scattered.values()))).json["project_id"]
    SqlQuotas(deployment.engine, deployment.clock).set(project, None, None, moves=1)
    plan = client.post(PATH, json={"moves": 20}).json
    assert len(plan["moves"]) == 1
    assert client.post(PATH, json={"moves": 19}).json["moves"] == []
    assert client.post(PATH, json={"moves": 20}).json["id"] == plan["id"]
    work()
    mover = client.get(f"/v1/allocations/{plan['moves'][0]['allocation']}").json
    assert mover["announced"] is None
    assert {host["name"] for host in mover["units"]} == set(plan["moves"][0]["joining"])
    assert client.post(PATH, json={"moves": 20}).json["moves"] == [], "a move that began counts"
    assert client.post(PATH, json={"moves": 20, "override": True, "dry_run": True}).json["moves"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"moves": -1}, "moves"),
        ({"moves": 65}, "moves"),
        ({"moves_per_host": 0}, "moves_per_host"),
        ({"parent": "nobody"}, "parent"),
        ({"host": "node00"}, "host"),
    ],
)
def test_wrong_requests(client, scattered, body, field):
    answer = client.post(PATH, json=body)
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field)


def test_where_hosts_are_not_shared_or_several_are_this_is_told(client, allocate):
    answer = client.post(PATH, json={})
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, "parent")
    sharing = {"slots": 2, "bandwidth": 10.0}
    ids = {allocate(2, name, sharing=sharing)["id"] for name in ("a", "b")}
    answer = client.post(PATH, json={})
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, "parent")
    assert all(id in answer.json["detail"] for id in ids)
    for id in ids:
        assert client.post(PATH, json={"parent": id}).json["parent"] == id


@pytest.mark.parametrize(("token", "status"), [("admin", 400), ("blue", 403), ("watch", 403)])
def test_who_may_consolidate(ask, deployment, token, status):
    assert ask(token, "POST", PATH, json={}).status_code == status
