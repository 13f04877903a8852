# SPDX-License-Identifier: Apache-2.0

"""Observed faults over REST: who says what, the mode, the alarm, links named by their ports."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest

from laas_service.app.records import Observation
from laas_service.domain.faults.counters import (
    CounterMemory,
    Data,
    Findings,
    Foreign,
    PortErrors,
    PortReading,
    SwitchCounters,
)
from laas_service.domain.faults.interpretation import Cabling, interpret
from laas_service.domain.faults.observation import ReadingOutcome, Rules, judge
from laas_service.domain.faults.reading import EndReading, FabricReading, PortState
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import parse_link

F = "/v1/fabrics/main"
RULES = Rules(hold_down=2.0, reading_lifetime=1e9)
LINK = "leaf-0-3-2"


@pytest.fixture
def see(deployment):
    """Judge and record four readings in which these links are down."""
    store, inventory = deployment.store, deployment.store.fabrics.get("main").inventory
    clock = [1_800_000_000.0]

    def see(*down: str) -> None:
        cables = [inventory.cable_of_link[parse_link(name)] for name in down]
        ends = [
            EndReading(end, PortState.DOWN)
            for cable in cables
            for end in (cable.lower, cable.upper)
        ]
        for _ in range(4):
            clock[0] += 1
            reading = FabricReading(clock[0], tuple(ends), PortRef(1, 1), 32, 32)
            seen = interpret(Cabling(inventory), reading)

            def judgement(before: Observation, seen=seen) -> ReadingOutcome:
                rules = replace(RULES, mode=before.mode or RULES.mode)
                return judge(before.memory, seen, rules, clock[0], before.operator)

            store.faults.judged("main", reading, judgement, 0.0)

    return see


def link(client, name=LINK):
    links = client.get(f"{F}/links").json["links"]
    return next(link for link in links if link["id"] == name)


def set_link(client, name, state):
    answer = client.patch(f"{F}/links/{name}", json={"state": state})
    assert answer.status_code == 200, answer.text
    return answer.json


def test_an_observed_fault_is_shown_with_its_source_and_evidence(client, see):
    assert (link(client)["state"], link(client)["source"]) == ("up", None)
    see(LINK)
    shown = link(client)
    assert (shown["state"], shown["source"]) == ("failed", "observed")
    assert (shown["condition"], shown["evidence"]) == ("failed", "both ends are down")
    assert shown["since"].startswith("2027-01-15T08:00:01")
    observation = client.get(f"{F}/observation").json
    assert (observation["mode"], observation["configured"]) == ("act", True)
    assert observation["alarm"] is None
    assert observation["observer"] == "0x0000000000000001 port 1"
    [seen] = observation["links"]
    assert (seen["id"], seen["recorded"]) == (LINK, True)
    see()
    assert link(client)["state"] == "up"


def test_an_operators_repair_leaves_a_link_failed_that_is_seen_down(client, see):
    see(LINK)
    failed = set_link(client, LINK, "failed")
    assert (failed["state"], failed["source"]) == ("failed", "operator")
    assert failed["by"]["user_id"]
    assert failed["by"].keys() == {"user_id", "project_id", "request_id"}
    repaired = set_link(client, LINK, "up")
    assert repaired["by"] is None
    assert (repaired["state"], repaired["source"]) == ("failed", "observed")


def test_links_are_named_by_the_ports_at_both_ends(client):
    shown = link(client)
    for end, name in (("lower", "leaf-0-3"), ("upper", "l2-0-2")):
        port = shown[end]["port"]
        for node in (shown[end]["guid"], name):
            assert set_link(client, f"{node}/{port}", "failed")["id"] == LINK
            assert set_link(client, quote(f"{node}/{port}", safe=""), "up")["id"] == LINK


@pytest.mark.parametrize(
    ("named", "status"),
    [("leaf-0-3/99", 404), ("leaf-0-3/x", 404), ("nobody/1", 404), ("leaf-9-9-9", 404), ("x", 400)],
)
def test_names_of_no_link_are_refused(client, named, status):
    answer = client.patch(f"{F}/links/{named}", json={"state": "failed"})
    assert answer.status_code == status


def test_the_mode_is_chosen_and_given_back(client, see):
    answer = client.patch(f"{F}/observation", json={"mode": "observe"}).json
    assert (answer["mode"], answer["configured"]) == ("observe", False)
    assert answer["mode_by"] == set_link(client, "leaf-0-0-0", "failed")["by"] | {
        "request_id": answer["mode_by"]["request_id"]
    }
    assert answer["mode_since"] is not None
    see(LINK)
    assert link(client)["state"] == "up"
    assert link(client)["condition"] == "failed"
    [seen] = client.get(f"{F}/observation").json["links"]
    assert not seen["recorded"]
    answer = client.patch(f"{F}/observation", json={"mode": "configured"}).json
    assert (answer["mode"], answer["configured"]) == ("act", True)
    see(LINK)
    assert link(client)["state"] == "failed"


@pytest.mark.parametrize("body", [{}, {"mode": "off"}, {"acknowledge": False}, {"alarm": None}])
def test_a_change_of_nothing_is_refused(client, body):
    assert client.patch(f"{F}/observation", json=body).status_code == 400


def test_an_alarm_is_shown_and_acknowledged(client, see):
    lost = [f"leaf-{pod}-{leaf}-0" for pod in (0, 1) for leaf in range(4)]
    see(*lost)
    alarm = client.get(f"{F}/observation").json["alarm"]
    assert "8 of 64 links" in alarm["text"]
    assert client.get(f"{F}/links?state=failed").json["links"] == []
    metrics = client.get("/metrics").text
    assert 'laas_observation_alarm{fabric="main"} 1.0' in metrics
    answer = client.patch(f"{F}/observation", json={"acknowledge": True}).json
    assert answer["alarm"] is None
    assert answer["acknowledged"]["text"] == alarm["text"]
    assert answer["acknowledged"]["by"]["user_id"]
    see(*lost)
    failed = client.get(f"{F}/links?state=failed").json["links"]
    assert [link["id"] for link in failed] == lost
    metrics = client.get("/metrics").text
    labels = 'fabric="main",source="observed",state="failed"'
    assert f"laas_links_not_up{{{labels}}} 8.0" in metrics


def test_counters_are_shown_with_links_and_allocations(client, deployment):
    fabric = deployment.store.fabrics.get("main")
    cable = fabric.inventory.cable_of_link[parse_link(LINK)]
    guid, at = cable.lower.guid, 1_800_000_000.0
    deployment.store.faults.record_counters(
        "main", [SwitchCounters(guid, at, {1: PortReading({})})]
    )
    error = PortErrors(cable.lower, "PortRcvErrors", at, "grew", "gone")
    foreign = Foreign("gone", "up", 5000, 10, 100, 60.0)
    found = Findings(guid, at, True, (error,), (foreign,), {"gone": Data(1, 2, 3, 4)})

    def account(memory, reading, owners):
        return CounterMemory(reading), found

    deployment.store.faults.account_counters("main", account)
    shown = client.get(f"{F}/observation").json["counters"]
    name = fabric.inventory.switch_of_guid[guid].name
    assert shown["oldest"] == shown["newest"] == "2027-01-15T08:00:00Z"
    assert (shown["switches"], shown["port_errors"], shown["foreign_data"]) == (1, 1, 1)
    [seen] = shown["errors"]
    assert (seen["port"], seen["link"]) == (f"{name} port {cable.lower.port}", LINK)
    assert (seen["counter"], seen["text"], seen["allocation"]) == ("PortRcvErrors", "grew", "gone")
    [seen] = shown["foreign"]
    assert (seen["switch"], seen["direction"]) == (name, "up")
    assert (seen["sent"], seen["received"], seen["tolerated"]) == (5000, 10, 100)
    metrics = client.get("/metrics").text
    assert 'laas_ports_with_errors{counter="PortRcvErrors",fabric="main"} 1.0' in metrics
    assert 'laas_audit_foreign_data{fabric="main"} 1.0' in metrics
    assert 'laas_counters_read_seconds{fabric="main"} 1.8e+09' in metrics
    assert 'allocation="gone"' not in metrics


def test_data_of_live_allocations_is_counted(client, deployment):
    body = {"name": "blue", "hosts": 4, "project_id": "p"}
    id = client.post("/v1/allocations", json=body).json["id"]
    guid = deployment.store.fabrics.get("main").inventory.leaf_guids[0]
    reading = SwitchCounters(guid, 1_800_000_000.0, {1: PortReading({})})
    found = Findings(guid, reading.at, True, data={id: Data(1, 2, 3, 4)})
    deployment.store.faults.record_counters("main", [reading])
    deployment.store.faults.account_counters("main", lambda *_: (CounterMemory(reading), found))
    lines = client.get("/metrics").text.splitlines()
    shown = [line for line in lines if line.startswith("laas_allocation_data_bytes_total{")]
    values = {line.split('place="')[1].split('"')[0]: line.split()[-1] for line in shown}
    assert all(f'allocation="{id}"' in line for line in shown)
    assert values == {
        "injected": "1.0",
        "delivered": "2.0",
        "leaf_up": "3.0",
        "leaf_down": "4.0",
        "spine_up": "0.0",
        "spine_down": "0.0",
    }
