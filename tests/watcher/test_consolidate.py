# SPDX-License-Identifier: Apache-2.0

"""Audits that propose to empty shared hosts, and action plans that move virtual machines."""

from __future__ import annotations

import pytest

from tests.waiting import eventually

GOAL = {"goal": "laas_empty_hosts", "strategy": "laas_consolidate"}
SLOTS = 4
STEP = "laas_move_slots"


@pytest.fixture
def scattered(client, worker):
    """Five tenants, each on a shared host of its own with room for others; paths by name."""
    body = {"name": "part", "hosts": 8, "sharing": {"slots": SLOTS, "bandwidth": 10.0}}
    assert client.post("/v1/allocations", json=body).status_code == 202
    paths, spare = {}, []
    for number, slots in enumerate((1, 2, 1, 3, 2)):
        for name, size in ((f"tenant{number}", slots), ("spare", SLOTS - slots)):
            body = {"name": name, "class": "shared", "slots": size, "bandwidth": 0.5}
            made = client.post("/v1/allocations", json={**body, "movable": "restart"})
            path = f"/v1/allocations/{made.json['id']}"
            if name == "spare":
                spare.append(path)
            else:
                paths[name] = path
    for _ in range(4):
        worker.step()
    for path in spare:
        client.delete(path)
    for _ in range(4):
        worker.step()
    return paths


def used(client, paths):
    """Names of the hosts with a virtual machine."""
    return {host["name"] for path in paths.values() for host in client.get(path).json["units"]}


def test_an_approved_plan_empties_hosts(client, scattered, watcher):
    before = used(client, scattered)
    audit = watcher.audited(**GOAL, moves=4, moves_per_host=2)
    assert audit["state"] == "SUCCEEDED"
    plan = watcher.plan(audit)
    figures = {figure["name"]: float(figure["value"]) for figure in plan["efficacy_indicators"]}
    actions = watcher.actions(plan)
    assert {action["action_type"] for action in actions} == {STEP}
    assert figures["tenants_moved"] == len(actions) > 1
    assert figures["machines_moved"] == figures["moves_cost"] <= 4
    (share,) = plan["global_efficacy"]
    assert float(share["value"]) == figures["machines_moved"] / figures["hosts_emptied"]
    assert used(client, scattered) == before, "moved without approval"
    watcher.told(plan, "PENDING")
    assert watcher.ended(plan)["state"] == "SUCCEEDED"
    assert watcher.outcomes(plan) == [(STEP, "SUCCEEDED")] * len(actions)
    after = used(client, scattered)
    assert after < before
    assert len(before) - len(after) == figures["hosts_emptied"]
    empty = watcher.plan(watcher.audited(**GOAL, moves=4, moves_per_host=0.5))
    assert empty["state"] == "SUCCEEDED"


def test_a_tenant_that_objects_stays_and_the_others_move(client, scattered, watcher, worker):
    worker.pace = 0.0
    for path in scattered.values():
        client.patch(path, json={"movable": "restart", "notice": 10**6})
    plan = watcher.plan(watcher.audited(**GOAL, moves=4, moves_per_host=2))
    first, *others = (
        action["input_parameters"]["resource_name"] for action in watcher.actions(plan)
    )
    watcher.told(plan, "PENDING")
    eventually(lambda: client.get(scattered[first]).json["announced"], "the tenant is told")
    assert all(client.get(scattered[name]).json["announced"] for name in others)
    before = client.get(scattered[first]).json["units"]
    client.patch(scattered[first], json={"movable": "never"})
    eventually(lambda: watcher.outcomes(plan)[0][1] == "FAILED", "the first move has failed")
    worker.pace = 10.0**6
    assert watcher.ended(plan)["state"] == "FAILED"
    assert watcher.outcomes(plan) == [(STEP, "FAILED"), *[(STEP, "SUCCEEDED") for _ in others]]
    assert client.get(scattered[first]).json["units"] == before


def test_a_plan_that_is_out_of_date_moves_nobody(client, scattered, watcher):
    plan = watcher.plan(watcher.audited(**GOAL, moves=4, moves_per_host=2))
    actions = watcher.actions(plan)
    first = actions[0]["input_parameters"]["resource_name"]
    client.patch(scattered[first], json={"movable": "never"})
    before = used(client, scattered)
    watcher.told(plan, "PENDING")
    assert watcher.ended(plan)["state"] == "FAILED"
    assert {state for _, state in watcher.outcomes(plan)} == {"FAILED"}
    told = watcher.actions(plan)[0]["status_message"]
    assert "the plan is out of date" in told
    assert used(client, scattered) == before
    assert all(client.get(path).json["announced"] is None for path in scattered.values())


def test_a_plan_that_is_cancelled_during_the_notice_is_called_off(
    client, scattered, watcher, worker
):
    worker.pace = 0.0
    for path in scattered.values():
        client.patch(path, json={"movable": "restart", "notice": 10**6})
    plan = watcher.plan(watcher.audited(**GOAL, moves=4, moves_per_host=2))
    paths = [
        scattered[action["input_parameters"]["resource_name"]] for action in watcher.actions(plan)
    ]
    assert len(paths) > 1
    watcher.told(plan, "PENDING")
    eventually(
        lambda: all(client.get(path).json["announced"] for path in paths), "the tenants are told"
    )
    watcher.told(plan, "CANCELLING")
    assert watcher.ended(plan)["state"] == "CANCELLED"
    assert [client.get(path).json["announced"] for path in paths] == [None] * len(paths)


def test_an_audit_of_hosts_that_nobody_shares_says_so(client, watcher):
    audit = watcher.audited(**GOAL)
    assert audit["state"] == "FAILED"
    assert "shares its hosts" in audit["status_message"]
