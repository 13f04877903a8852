# SPDX-License-Identifier: Apache-2.0

"""Nothing is handed on while a standby OpenSM could still route by the past."""

from __future__ import annotations

import re
from random import Random

import pytest

from laas_service.adapters.agent_switches import AgentSubnetManager
from laas_service.adapters.db.leases import SqlLeases
from tests.convergers import Convergers
from tests.functional.api.test_agents import listed
from tests.functional.api.test_agents import report as report
from tests.functional.api.test_resize import names

AGENTS = "/v1/fabrics/main/agents"


@pytest.fixture
def manager(deployment):
    return AgentSubnetManager(deployment.agents, seconds=15, patience=0, wake=lambda: None)


@pytest.fixture
def turns(client, deployment, manager, report):
    """Turns of the worker and of agents: those named fetch each set that is wanted."""

    def run(*fetching):
        deployment.slept += 600
        worker = Convergers(
            deployment.store,
            deployment.compute,
            manager,
            now=deployment.clock,
            chance=Random(1),
        )
        for _ in range(8):
            worker.run_once()
            deployment.slept += 70
            orders = report("sm1", "starting").json
            for name in fetching:
                has = {"published": orders["wanted"], "published_stamp": orders["stamp"]}
                if name == "sm1":
                    has |= {"generation": orders["wanted"], "stamp": orders["stamp"]}
                report(name, "applied" if name == "sm1" else "not_master", **has)

    return run


@pytest.fixture
def tenant(client, turns):
    """A tenant of six hosts whose routes both managers have."""
    turns("sm1", "sm2")
    made = client.post("/v1/allocations", json={"name": "blue", "hosts": 6})
    assert made.status_code == 202, made.text
    turns("sm1", "sm2")
    shown = client.get(f"/v1/allocations/{made.json['id']}").json
    assert shown["state"] == "active"
    return f"/v1/allocations/{made.json['id']}"


def owners(client):
    """The owner of each host and link that has one, by name."""
    hosts = client.get("/v1/fabrics/main/hosts").json["hosts"]
    links = client.get("/v1/fabrics/main/links").json["links"]
    return {
        **{host["name"]: host["owner"] for host in hosts if host["owner"]},
        **{link["id"]: link["owner"] for link in links if link["owner"]},
    }


def held(client):
    """How many allocations the metric says are held."""
    name = 'laas_allocations_held{fabric="main"} '
    return float(client.get("/metrics").text.partition(name)[2].split()[0])


def released(client, path):
    assert client.delete(path).status_code == 202


def shrunk(client, path):
    assert client.patch(path, json={"hosts": 2}).status_code == 202


def moved(client, path):
    last = names(client.get(path).json)[-1]
    assert client.post(f"{path}/replace-hosts", json={"hosts": [last]}).status_code == 202


@pytest.mark.parametrize("change", [released, shrunk, moved], ids=lambda change: change.__name__)
def test_what_is_given_up_is_held_until_a_standby_has_the_set(client, turns, tenant, change):
    before = owners(client)
    id = client.get(tenant).json["id"]
    change(client, tenant)
    turns("sm1")
    assert before.items() <= owners(client).items(), "the standby has the files from before"
    shown = client.get(tenant).json
    assert "held: sm2 could become the master with files from before" in shown["error"]
    assert listed(client)["sm2"]["holds"] == 1
    assert held(client) == 1
    everything = client.post("/v1/allocations", json={"name": "all", "hosts": 27})
    assert everything.status_code == 409, "nobody gets what is held"
    turns("sm1", "sm2")
    after = owners(client)
    assert before.items() - after.items(), "it is free now"
    assert {owner for part, owner in after.items() if part in before} <= {id}
    assert (held(client), listed(client)["sm2"]["holds"]) == (0, 0)
    assert client.get(tenant).json["error"] is None


def test_a_standby_that_is_silent_for_days_holds_until_it_is_forgotten(
    client, deployment, turns, tenant
):
    before = owners(client)
    deployment.later += 3 * 86400
    released(client, tenant)
    turns("sm1")
    assert owners(client) == before
    refused = client.delete(f"{AGENTS}/sm1")
    assert (refused.status_code, refused.json["code"]) == (409, "conflict")
    assert client.delete(f"{AGENTS}/nobody").status_code == 404
    (advised,) = re.findall(r"'laas manager forget (\S+)'", client.get(tenant).json["error"])
    gone = client.delete(f"{AGENTS}/{advised}")
    assert (gone.status_code, gone.json["name"]) == (200, "sm2")
    turns("sm1")
    assert owners(client) == {}
    assert client.get(tenant).json["state"] == "released"


def test_one_that_reports_is_not_forgotten(client, turns, tenant):
    refused = client.delete(f"{AGENTS}/sm2")
    assert refused.status_code == 409
    assert "stop OpenSM and laas-opensm-agent on that machine" in refused.json["detail"]


def test_the_active_one_is_not_forgotten_before_another_one_is_active(client, deployment, turns):
    turns("sm1", "sm2")
    deployment.later = 60.0
    refused = client.delete(f"{AGENTS}/sm1")
    assert refused.status_code == 409
    assert "start the agent of another manager" in refused.json["detail"]
    assert "wait" not in refused.json["detail"]


def test_one_that_never_had_a_set_holds_too(client, turns, tenant, report):
    """Its OpenSM routes as it likes."""
    before = owners(client)
    report("sm3", "not_master")
    released(client, tenant)
    turns("sm1", "sm2")
    assert owners(client) == before
    assert listed(client)["sm3"]["holds"] == 1


def test_after_a_takeover_with_old_files_each_allocation_concerned_says_so(
    client, deployment, turns, tenant, report
):
    SqlLeases(deployment.engine).take("main", "worker", 600)
    old = report("sm1", "starting").json
    turns("sm1", "sm2")
    made = client.post("/v1/allocations", json={"name": "red", "hosts": 4})
    turns("sm1")
    newer = f"/v1/allocations/{made.json['id']}"
    assert client.get(newer).json["state"] == "active"
    assert [client.get(path).json["error"] for path in (tenant, newer)] == [None, None]
    deployment.later += 60
    past = {"published": old["wanted"], "published_stamp": old["stamp"]}
    seen = {"generation": old["wanted"], "stamp": old["stamp"]}
    report("sm2", "other_generation", **past, **seen)
    assert listed(client)["sm2"]["role"] == "active"
    told = client.get(newer).json["error"]
    assert f"not as promised: the switches run generation {old['wanted']}" in told
    assert client.get(tenant).json["error"] is None, "its routes are in the old set too"
    summaries = client.get("/v1/allocations").json["allocations"]
    assert {one["name"]: bool(one["error"]) for one in summaries} == {"blue": False, "red": True}
    now = report("sm2", "applied", **past, **seen).json
    new = {"published": now["wanted"], "published_stamp": now["stamp"]}
    report("sm2", "applied", **new, generation=now["wanted"], stamp=now["stamp"])
    assert [client.get(path).json["error"] for path in (tenant, newer)] == [None, None]


def test_while_another_manager_rules_every_allocation_says_so(
    client, deployment, turns, tenant, report
):
    SqlLeases(deployment.engine).take("main", "worker", 600)
    orders = report("sm1", "starting").json
    has = {"published": orders["wanted"], "published_stamp": orders["stamp"]}
    report("sm1", "applied", **has, generation=orders["wanted"], stamp=orders["stamp"])
    assert client.get(tenant).json["error"] is None
    report("sm1", "not_master", **has, detail="port 0x99 with priority 15 is the master")
    told = client.get(tenant).json["error"]
    assert told.startswith("its routes and keys are no longer confirmed: ")
    assert "0x99" in told
    report("sm1", "applied", **has, generation=orders["wanted"], stamp=orders["stamp"])
    assert client.get(tenant).json["error"] is None
