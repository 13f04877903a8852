# SPDX-License-Identifier: Apache-2.0

"""Audits that propose moves, action plans that make them, and plans that fail and turn back."""

from __future__ import annotations

import pytest
from oslo_config import cfg
from watcher import objects
from watcher.applier.actions.factory import ActionFactory
from watcher.common.context import make_context

from tests.waiting import eventually
from watcher_plugin.service import GROUP

ROOM = "/v1/fabrics/main/make-room"
LEAF = {"within": "leaf"}
STEPS = ["laas_hold", "laas_migrate", "laas_switch"]


def names(document):
    return [host["name"] for host in document["hosts"]]


@pytest.fixture
def active(client, worker):
    """Allocate hosts for a tenant that consents to moves; return the path."""

    def make(hosts, name, **more):
        wanted = {"name": name, "hosts": hosts, "movable": "restart", **more}
        made = client.post("/v1/allocations", json=wanted)
        assert made.status_code == 202, made.text
        path = f"/v1/allocations/{made.json['id']}"
        for _ in range(4):
            worker.step()
        assert client.get(path).json["state"] == "active"
        return path

    return make


@pytest.fixture
def crowded(client, active):
    """Four tenants of three hosts, one on each leaf; the first one consents to moves."""
    paths = [active(3, f"tenant{number}") for number in range(4)]
    for path in paths[1:]:
        client.patch(path, json={"movable": "never"})
    return paths


def test_an_audit_proposes_and_an_approved_plan_makes_room(
    client, deployment, crowded, watcher, worker
):
    before = client.get(crowded[0]).json
    host = names(before)[0]
    deployment.compute.servers[host] = before["project_id"]
    audit = watcher.audited(hosts=4, constraints=LEAF)
    assert audit["state"] == "SUCCEEDED"
    plan = watcher.plan(audit)
    assert plan["state"] == "RECOMMENDED"
    figures = {figure["name"]: float(figure["value"]) for figure in plan["efficacy_indicators"]}
    assert figures == {"hosts_fitting": 4, "tenants_moved": 1, "hosts_moved": 3, "moves_cost": 3}
    proposed = watcher.actions(plan)
    assert [action["action_type"] for action in proposed] == STEPS
    assert proposed[0]["input_parameters"]["resource_name"] == "tenant0"
    joining = proposed[0]["input_parameters"]["joining"]
    assert client.get(crowded[0]).json["announced"] is None, "moved without approval"
    watcher.told(plan, "PENDING")
    assert watcher.ended(plan)["state"] == "SUCCEEDED"
    assert watcher.outcomes(plan) == [(step, "SUCCEEDED") for step in STEPS]
    after = client.get(crowded[0]).json
    assert (names(after), after["changing"]) == (sorted(joining), None)
    assert list(deployment.compute.servers) == [s for s in joining if s in names(after)][:1]
    assert client.post(ROOM, json={"hosts": 4, "constraints": LEAF}).json["fits"] is True


@pytest.fixture
def packed(client, active, worker):
    """Tenants of two and of one host, and one free host, on each of four leaves."""
    paths, spare = {}, []
    for number in range(4):
        paths[f"pair{number}"] = active(2, f"pair{number}")
        paths[f"single{number}"] = active(1, f"single{number}")
        spare.append(active(1, "spare"))
    for path in spare:
        client.delete(path)
    for _ in range(4):
        worker.step()
    return paths


@pytest.fixture
def halves(client, deployment, packed, watcher):
    """An approved plan of two moves, and the allocations in the order in which they move.

    A server of the second one cannot be moved.
    """
    plan = watcher.plan(watcher.audited(hosts=4, constraints=LEAF, moves=2))
    moves = [action["input_parameters"] for action in watcher.actions(plan)[::3]]
    first, second = (packed[move["resource_name"]] for move in moves)
    deployment.compute.servers[moves[1]["leaving"][0]] = client.get(second).json["project_id"]
    deployment.compute.broken.add(moves[1]["leaving"][0])
    return plan, moves, first, second


def outcomes(*states):
    return list(zip(STEPS * 2, states, strict=True))


def test_several_tenants_move_one_after_the_other(client, deployment, halves, watcher):
    plan, moves, first, second = halves
    deployment.compute.broken.clear()
    watcher.told(plan, "PENDING")
    assert watcher.ended(plan)["state"] == "SUCCEEDED"
    for path, move in ((first, moves[0]), (second, moves[1])):
        assert names(client.get(path).json) == sorted(move["joining"])
    assert client.post("/v1/allocations", json={"name": "new", "hosts": 4}).status_code == 202


@pytest.mark.parametrize("gives_up", ["service", "watcher"])
def test_a_plan_that_fails_half_way_turns_its_move_back(
    client, deployment, halves, watcher, worker, gives_up
):
    """``move_window`` of the service is over, or the time that Watcher gives a step."""
    plan, moves, first, second = halves
    before = client.get(second).json
    if gives_up == "watcher":
        worker.pace = 0.0
    watcher.told(plan, "PENDING")
    if gives_up == "watcher":
        eventually(lambda: watcher.outcomes(plan)[4][1] == "ONGOING", "servers are to go")
        cfg.CONF.set_override("step_timeout", 1.0, group=GROUP)
    assert watcher.ended(plan)["state"] == "FAILED"
    assert watcher.outcomes(plan) == outcomes(*["SUCCEEDED"] * 4, "FAILED", "SKIPPED")
    failed, skipped = watcher.actions(plan)[-2:]
    assert f"{before['name']} keeps its old place: " in failed["status_message"]
    asked = f"POST {second}/replace-hosts" in worker.asked
    if gives_up == "watcher":
        assert ": the move is emptying its old hosts" in failed["status_message"]
        assert "servers still run on" in failed["status_message"]
    else:
        assert "the time to empty its old hosts is over" in failed["status_message"]
    assert asked == (gives_up == "watcher")
    assert len(failed["status_message"]) <= 255, "too long for MySQL"
    assert "is not begun" in skipped["status_message"]
    after = client.get(second).json
    assert (names(after), after["links"]) == (names(before), before["links"])
    assert (after["changing"], after["announced"]) == (None, None)
    assert list(deployment.compute.servers) == [moves[1]["leaving"][0]]
    assert deployment.compute.accepts(moves[1]["leaving"][0]) == {before["project_id"]}
    assert names(client.get(first).json) == sorted(moves[0]["joining"]), "what is made stays"
    assert deployment.store.fabrics.ledger("main")[0].free_host_count == 4


def test_a_cancelled_plan_turns_its_move_back(client, deployment, halves, watcher, worker):
    plan, moves, _, second = halves
    before = client.get(second).json
    worker.pace = 0.0
    watcher.told(plan, "PENDING")
    eventually(lambda: watcher.outcomes(plan)[4][1] == "ONGOING", "servers are to go")
    watcher.told(plan, "CANCELLING")
    assert watcher.ended(plan)["state"] == "CANCELLED"
    assert watcher.outcomes(plan) == outcomes(*["SUCCEEDED"] * 4, "FAILED", "CANCELLED")
    assert "the action plan is cancelled" in watcher.actions(plan)[4]["status_message"]
    after = client.get(second).json
    assert (names(after), after["changing"]) == (names(before), None)
    assert list(deployment.compute.servers) == [moves[1]["leaving"][0]]


def test_a_tenant_that_objects_keeps_its_place(client, crowded, watcher, worker):
    worker.pace = 0.0
    client.patch(crowded[0], json={"movable": "restart", "notice": 10**6})
    before = client.get(crowded[0]).json
    plan = watcher.plan(watcher.audited(hosts=4, constraints=LEAF))
    watcher.told(plan, "PENDING")
    eventually(lambda: client.get(crowded[0]).json["announced"], "the tenant is told")
    assert watcher.outcomes(plan)[0] == ("laas_hold", "ONGOING")
    client.patch(crowded[0], json={"movable": "never"})
    assert watcher.ended(plan)["state"] == "FAILED"
    assert [state for _, state in watcher.outcomes(plan)] == ["FAILED", "SKIPPED", "SKIPPED"]
    after = client.get(crowded[0]).json
    assert (names(after), after["announced"]) == (names(before), None)


def test_a_plan_that_is_cancelled_during_the_notice_is_called_off(client, crowded, watcher, worker):
    worker.pace = 0.0
    client.patch(crowded[0], json={"movable": "restart", "notice": 10**6})
    plan = watcher.plan(watcher.audited(hosts=4, constraints=LEAF))
    watcher.told(plan, "PENDING")
    eventually(lambda: client.get(crowded[0]).json["announced"], "the tenant is told")
    watcher.told(plan, "CANCELLING")
    assert watcher.ended(plan)["state"] == "CANCELLED"
    assert client.get(crowded[0]).json["announced"] is None


def test_a_plan_that_is_out_of_date_moves_nobody(client, crowded, watcher):
    plan = watcher.plan(watcher.audited(hosts=4, constraints=LEAF))
    client.patch(crowded[0], json={"movable": "never"})
    client.patch(crowded[1], json={"movable": "restart"})
    placed = [names(client.get(path).json) for path in crowded]
    watcher.told(plan, "PENDING")
    assert watcher.ended(plan)["state"] == "FAILED"
    hold = watcher.actions(plan)[0]
    assert "the plan is out of date: tenant1 would move from node04" in hold["status_message"]
    assert [names(client.get(path).json) for path in crowded] == placed
    assert all(client.get(path).json["announced"] is None for path in crowded)


def test_nobody_moves_for_a_request_that_fits_meanwhile(client, crowded, watcher, worker):
    plan = watcher.plan(watcher.audited(hosts=4, constraints=LEAF))
    before = names(client.get(crowded[0]).json)
    client.delete(crowded[3])
    for _ in range(4):
        worker.step()
    watcher.told(plan, "PENDING")
    assert watcher.ended(plan)["state"] == "SUCCEEDED"
    assert watcher.outcomes(plan) == [(step, "SKIPPED") for step in STEPS]
    assert names(client.get(crowded[0]).json) == before


def test_an_audit_that_finds_no_moves_says_why(client, crowded, watcher):
    client.patch(crowded[0], json={"movable": "never"})
    audit = watcher.audited(hosts=4, constraints=LEAF)
    assert audit["state"] == "FAILED"
    assert "free, 4 asked" in audit["status_message"]


def test_a_watcher_that_rolls_back_turns_the_move_back(
    client, deployment, crowded, watcher, worker
):
    before = client.get(crowded[0]).json
    deployment.compute.servers[names(before)[0]] = before["project_id"]
    deployment.compute.broken.add(names(before)[0])
    plan = watcher.plan(watcher.audited(hosts=4, constraints=LEAF))
    loader = ActionFactory()
    hold, migrate, switch = (
        loader.make_action(objects.Action.get_by_uuid(make_context(), action["uuid"]))
        for action in watcher.actions(plan)
    )
    worker.pace = 0.0
    client.post(ROOM, json={"hosts": 4, "constraints": LEAF})
    for action in (switch, migrate, hold):
        action.revert()
    after = client.get(crowded[0]).json
    assert (names(after), after["announced"]) == (names(before), None)
    hold.pre_condition()
    assert hold.execute() is True
    assert hold.abort() is True


def test_wrong_parameters_are_refused(watcher):
    for parameters in ({}, {"hosts": 0}, {"hosts": 4, "moves": 5}, {"hosts": 4, "host": "n1"}):
        asked = {"audit_type": "ONESHOT", "goal": "laas_room", "strategy": "laas_make_room"}
        answer = watcher.api.post("/audits", {**asked, "parameters": parameters})
        assert answer.status_code == 400, answer.text
