# SPDX-License-Identifier: Apache-2.0

"""Moves of tenants after which switches can sleep: the plan, consent, and what is announced."""

from __future__ import annotations

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from tests.functional.api.test_make_room import consents
from tests.functional.api.test_resize import active as active
from tests.functional.api.test_resize import names, story
from tests.functional.api.test_resize import work as work
from tests.functional.api.test_tenants import ask as ask

SLEEP = "/v1/fabrics/main/sleep"


@pytest.fixture
def deployment(bare):
    """A fabric of 8 leaves; the subnet manager has the place of the first host."""
    made = generate(Description(xgft="3;4,4,2;1,4,4", subnet_managers=1))
    bare.store.fabrics.add("main", made.topology, made.inventory)
    return bare


@pytest.fixture
def sparse(client, active, work):
    """Three tenants of two hosts with a leaf each; all other hosts are free.

    Packets of the subnet manager keep to one L2 index.
    """
    assert client.put("/v1/fabrics/main/plane", json={"l2": [0]}).status_code == 200
    tenants, fillers = [], [active(3, name="filler")]
    for number in range(3):
        tenants.append(active(2, name=f"tenant{number}"))
        fillers.append(active(2, name=f"filler{number}"))
    for filler in fillers:
        client.delete(filler)
    work()
    leaves = [{host["index"] // 4 for host in client.get(one).json["hosts"]} for one in tenants]
    assert leaves == [{1}, {2}, {3}]
    return tenants


def sleep(client, **given):
    return client.post(SLEEP, json=given)


def idle(client):
    return {switch["name"] for switch in client.get("/v1/fabrics/main/idle").json["switches"]}


def switches(answer, when):
    return {switch["name"] for switch in answer.json[when]}


def test_a_leaf_sleeps_after_a_move(client, sparse, work):
    refused = sleep(client)
    assert (refused.status_code, refused.json["moves"]) == (200, []), "nobody consents"
    assert switches(refused, "idle_now") == switches(refused, "idle_after") == idle(client)
    for tenant in sparse:
        consents(client, tenant)
    plan = sleep(client, dry_run=True)
    assert plan.status_code == 200
    (move,) = plan.json["moves"]
    assert (move["announced"], plan.json["moved_hosts"], plan.json["cut_off"]) == (False, 2, False)
    begun = sleep(client)
    assert (begun.status_code, begun.json["moves"][0]["announced"]) == (202, True)
    mover = f"/v1/allocations/{move['allocation']}"
    assert "a move so that switches can sleep is announced" in story(client, mover)[-1]
    work()
    assert names(client.get(mover).json) == move["joining"]
    assert idle(client) == switches(plan, "idle_after") > switches(plan, "idle_now")
    assert sleep(client).json["moves"] == [], "the third tenant has no leaf to go to"


def test_a_move_that_wakes_more_switches_than_it_empties_is_not_planned(client, sparse):
    """Without a plane, packets of the subnet manager to two other hosts take two more switches."""
    for tenant in sparse:
        consents(client, tenant)
    client.put("/v1/fabrics/main/plane", json={})
    plan = sleep(client, dry_run=True).json
    assert (plan["moves"], plan["idle_after"]) == ([], plan["idle_now"])


def test_a_higher_cost_and_an_exemption_keep_a_tenant(client, sparse):
    consents(client, sparse[0], move_cost=5)
    assert sleep(client, dry_run=True, max_cost=4).json["moves"] == []
    (move,) = sleep(client, dry_run=True, max_cost=5).json["moves"]
    assert move["cost"] == 10.0
    (move,) = sleep(client, dry_run=True, override=True).json["moves"]
    assert move["movable"] in ("never", "restart")


@pytest.mark.parametrize("body", [{"moves": -1}, {"moves": 5}, {"hosts": 1}])
def test_wrong_requests(client, body):
    assert sleep(client, **body).status_code == 400


@pytest.mark.parametrize(("token", "status"), [("admin", 200), ("red", 403)])
def test_who_may(ask, deployment, token, status):
    assert ask(token, "POST", SLEEP, json={"dry_run": True}).status_code == status
