# SPDX-License-Identifier: Apache-2.0

"""What links promise to those who share hosts: listed, measured, drawn; what other risks give."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import NormalDist

import pytest

from laas_service.domain.faults.counters import (
    CounterRules,
    PortReading,
    SwitchCounters,
    accounted,
    findings,
)
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.topology import parse_link
from tests.functional.api.test_shared import share as share

F = "/v1/fabrics/main"
NORMAL = NormalDist()


@pytest.fixture
def part(allocate):
    """Two leaves of shared hosts: 8 hosts of 8 slots, links of 10 Gb/s."""
    return allocate(8, "part", sharing={"slots": 8, "bandwidth": 10.0})


def recorded(deployment, ids):
    """(link, direction) -> (mean, variance) in Gb/s, added up from the records of sharers."""
    fabric = deployment.store.fabrics.get("main")
    tree, names = fabric.topology.tree, fabric.inventory.host_names
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for id in ids:
        for link, certain, mean, variance in deployment.store.allocations.get(
            id
        ).placed.slots.promised:
            number, down = divmod(link, 2)
            if number < tree.leaf_links + tree.spine_links:
                x = tree.link_at(number)
                name = f"{'leaf' if number < tree.leaf_links else 'spine'}-{x[0]}-{x[1]}-{x[2]}"
            else:
                name = names[number - tree.leaf_links - tree.spine_links]
            of_link = sums[name, "down" if down else "up"]
            of_link[0] += (certain + mean) / 10**6
            of_link[1] += variance / 10**6
    return sums


def test_each_promise_is_what_the_records_add_up_to(client, deployment, part, share):
    ids = [
        share(20, 0.3, "certain").json["id"],
        share(20, 0.4, "normal", deviation=0.2).json["id"],
        share(20, 0.8, "wide", deviation=0.6).json["id"],
    ]
    wanted = recorded(deployment, ids)
    promises = client.get(f"{F}/promises").json["promises"]
    assert {(p["link"], p["direction"]) for p in promises} == set(wanted)
    quantile = NORMAL.inv_cdf(0.95)
    for shown in promises:
        mean, variance = wanted[shown["link"], shown["direction"]]
        deviation = math.sqrt(variance)
        assert (shown["allocation"], shown["bandwidth"], shown["risk"]) == (part["id"], 10.0, 0.05)
        assert shown["mean"] == pytest.approx(mean, abs=1e-5)
        assert shown["deviation"] == pytest.approx(deviation, abs=1e-5)
        assert shown["promised"] == pytest.approx(mean + quantile * deviation, abs=1e-4)
        outage = 1 - NORMAL.cdf((10.0 - mean) / deviation) if deviation else 0.0
        assert shown["outage"] == pytest.approx(outage, rel=0.01, abs=1e-12)
        assert shown["outage"] <= 0.05
        assert shown["measured"] is None
    assert {p["kind"] for p in promises} == {"host", "leaf"}
    assert max(p["outage"] for p in promises) > 0


def test_pages_go_on_where_a_promise_has_gone(client, part, share):
    share(40, 0.2)
    gone = share(8, 1.0, "gone").json["id"]
    everything = client.get(f"{F}/promises").json["promises"]
    first = client.get(f"{F}/promises?limit=3").json
    client.delete(f"/v1/allocations/{gone}?wait=5")
    rest: list[dict[str, object]] = []
    following = first["next"]
    while following:
        page = client.get(following).json
        rest, following = rest + page["promises"], page["next"]
    left = client.get(f"{F}/promises").json["promises"]
    names = [(p["link"], p["direction"]) for p in [*first["promises"], *rest]]
    assert names == [
        (p["link"], p["direction"]) for p in everything if p in first["promises"] or p in left
    ]
    hosts = client.get(f"{F}/promises?kind=host").json["promises"]
    assert hosts == [p for p in left if p["kind"] == "host"]
    assert client.get(f"{F}/promises?allocation=none").json["promises"] == []
    for marker in ("x", f"{part['id']}/x", "/3"):
        assert client.get(f"{F}/promises", query_string={"marker": marker}).status_code == 400


def read(deployment, at, words):
    """Readings of all switches, accounted as a worker does; ``words`` by (GUID, port)."""
    fabric = deployment.store.fabrics.get("main")
    cabling, rules = Cabling(fabric.inventory), CounterRules()
    ports: dict[int, dict[int, PortReading]] = defaultdict(dict)
    for cable in fabric.inventory.cable_of_link.values():
        for end in (cable.lower, cable.upper):
            ports[end.guid][end.port] = PortReading({"PortXmitData": 0, "PortRcvData": 0})
    for endpoint in fabric.inventory.endpoints:
        ports[endpoint.at.guid][endpoint.at.port] = PortReading(
            {"PortXmitData": 0, "PortRcvData": 0}
        )
    for (guid, port), (sent, received) in words.items():
        ports[guid][port] = PortReading({"PortXmitData": sent, "PortRcvData": received})
    readings = [SwitchCounters(guid, at, found) for guid, found in ports.items()]
    deployment.store.faults.record_counters("main", readings)

    def account(memory, reading, owners):
        after = accounted(memory, reading, cabling, owners, rules)
        return after, findings(after, cabling, rules)

    while deployment.store.faults.account_counters("main", account):
        pass


def test_promised_and_measured_stand_side_by_side(client, deployment, part, share):
    """In 10 s, 1.25e9 words of 4 bytes are 4 Gb/s."""
    share(40, 0.2)
    promises = client.get(f"{F}/promises").json["promises"]
    inventory = deployment.store.fabrics.get("main").inventory
    cable = inventory.cable_of_link[
        parse_link(next(p["link"] for p in promises if p["kind"] == "leaf"))
    ]
    host = next(p["link"] for p in promises if p["kind"] == "host")
    at = next(e.at for e in inventory.endpoints if e.name.split()[0] == host)
    read(deployment, 1_800_000_000.0, {})
    assert all(p["measured"] is None for p in client.get(f"{F}/promises").json["promises"])
    words = {
        (cable.lower.guid, cable.lower.port): (1_250_000_000, 625_000_000),
        (at.guid, at.port): (312_500_000, 0),
    }
    read(deployment, 1_800_000_010.0, words)
    shown = client.get(f"{F}/promises").json["promises"]
    measured = {(p["link"], p["direction"]): p["measured"] for p in shown}
    link = next(p["link"] for p in promises if p["kind"] == "leaf")
    assert measured[link, "up"] == {
        "bandwidth": 4.0,
        "seconds": 10.0,
        "at": "2027-01-15T08:00:10Z",
    }
    assert measured[link, "down"]["bandwidth"] == 2.0
    assert (measured[host, "down"]["bandwidth"], measured[host, "up"]["bandwidth"]) == (1.0, 0.0)
    others = [m for key, m in measured.items() if key[0] not in (link, host)]
    assert {m["bandwidth"] for m in others} == {0.0}
    cell = client.get(f"{F}/map").json["promises"]
    drawn = [p["measured"] for by_cell in cell.values() for both in by_cell.values() for p in both]
    assert sorted(drawn) == sorted(m["bandwidth"] for m in measured.values())
    metrics = client.get("/metrics").text
    labels = f'allocation="{part["id"]}",fabric="main"'
    assert f"laas_shared_links_measured{{{labels}}} 0.4" in metrics


def test_where_only_the_upper_switch_was_read_its_counters_tell(client, deployment, part, share):
    share(40, 0.2)
    name = next(
        p["link"] for p in client.get(f"{F}/promises").json["promises"] if p["kind"] == "leaf"
    )
    cable = deployment.store.fabrics.get("main").inventory.cable_of_link[parse_link(name)]
    upper = cable.upper
    for at, words in ((1_800_000_000.0, 0), (1_800_000_010.0, 1_250_000_000)):
        ports = {upper.port: PortReading({"PortXmitData": 0, "PortRcvData": words})}
        fabric = deployment.store.fabrics.get("main")
        cabling, rules = Cabling(fabric.inventory), CounterRules()
        deployment.store.faults.record_counters("main", [SwitchCounters(upper.guid, at, ports)])

        def account(memory, reading, owners, cabling=cabling, rules=rules):
            after = accounted(memory, reading, cabling, owners, rules)
            return after, findings(after, cabling, rules)

        deployment.store.faults.account_counters("main", account)
    shown = client.get(f"{F}/promises").json["promises"]
    measured = {p["direction"]: p["measured"]["bandwidth"] for p in shown if p["link"] == name}
    assert measured == {"up": 4.0, "down": 0.0}


def fit(client, **asked):
    return client.get(f"{F}/fit", query_string=asked)


def test_fit_answers_about_slots_as_a_request_is_answered(client, part, share):
    share(8, 1.0)
    for asked in ({"slots": 10, "bandwidth": 2.0}, {"slots": 20, "bandwidth": 4.0}):
        answer = fit(client, **asked).json
        tried = share(**asked, dry_run=True)
        assert answer["fits"] is (tried.status_code == 200)
        assert (answer["slots"], answer["hosts"], answer["risks"]) == (asked["slots"], 0, None)
        if not answer["fits"]:
            assert answer["largest_fit"] == tried.json["largest_fit"]
            assert (answer["reason"], answer["detail"]) == (
                tried.json["reason"],
                tried.json["detail"],
            )
        most = answer["largest_fit"]
        assert share(most, asked["bandwidth"], dry_run=True).status_code == 200
        assert share(most + 1, asked["bandwidth"], dry_run=True).status_code == 409
    listed = fit(client, slots=3, bandwidth="8,8,0.5", deviation="0,1,0").json
    assert (listed["fits"], listed["largest_fit"]) == (True, 3)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({}, "hosts"),
        ({"slots": 3}, "bandwidth"),
        ({"hosts": 3, "bandwidth": 1.0}, "bandwidth"),
        ({"hosts": 3, "slots": 3, "bandwidth": 1.0}, "slots"),
        ({"slots": 3, "bandwidth": 1.0, "traits": "HW_GPU"}, "slots"),
        ({"slots": 3, "bandwidth": "1,2"}, "bandwidth"),
        ({"slots": 3, "bandwidth": 1.0, "risks": "0.6"}, "risks"),
        ({"slots": 3, "bandwidth": 1.0, "risks": ",".join(["0.1"] * 9)}, "risks"),
        ({"slots": 3, "bandwidth": 1.0, "parent": "none"}, None),
    ],
)
def test_a_wrong_question_names_the_field(client, part, asked, field):
    answer = fit(client, **asked)
    if field is None:
        assert answer.status_code == 404
        return
    assert answer.status_code == 400, answer.text
    assert field in answer.json["errors"][0]["field"]


def test_a_larger_risk_has_room_for_more_tenants(client, allocate):
    """As many as are admitted one after the other where hosts are shared with that risk."""
    kind = {"slots": 12, "bandwidth": 1.0, "deviation": 1.0}
    found = {}
    for risk in (0.001, 0.05, 0.3):
        part = allocate(8, f"part {risk}", sharing={"slots": 8, "bandwidth": 10.0, "risk": risk})
        asked = fit(client, **kind, parent=part["id"], risks="0.001,0.05,0.3").json
        tenants = {at["risk"]: at["tenants"] for at in asked["risks"]}
        assert not any(at["more"] for at in asked["risks"])
        found[risk] = tenants
        body = {"name": "one", "class": "shared", **kind, "parent": part["id"]}
        admitted = 0
        while client.post("/v1/allocations?wait=5", json=body).status_code == 202:
            admitted += 1
        assert tenants[risk] == admitted
    assert found[0.001] == found[0.05] == found[0.3]  # of parts that are alike
    assert found[0.05][0.001] < found[0.05][0.05] < found[0.05][0.3]


def test_questions_change_nothing(client, deployment, part, share):
    share(7, 1.0, deviation=0.3)
    before = deployment.store.fabrics.ledger("main")[0].state()
    promised = client.get(f"{F}/promises").json
    for bandwidth, deviation in ((0.5, 0.0), (2.0, 0.5), ("6,2,2", 1.0)):
        asked = {"slots": 3, "bandwidth": bandwidth, "deviation": deviation}
        answer = fit(client, **asked, risks="0.01,0.4").json
        assert fit(client, **asked, risks="0.4,0.01").json == answer
        assert answer["risks"][0]["tenants"] > 0
    assert deployment.store.fabrics.ledger("main")[0].state() == before
    assert client.get(f"{F}/promises").json == promised


def test_the_map_asks_about_slots(client, part, share):
    asked = {"slots": 6, "bandwidth": 1.0, "risks": "0.1"}
    question = client.get(f"{F}/map", query_string=asked).json["question"]
    assert (question["slots"], question["fits"]) == (6, True)
    assert [at["risk"] for at in question["risks"]] == [0.05, 0.1]
    placed = share(6, 1.0, dry_run=True).json
    assert len(question["cells"]["hosts"]) == len(placed["hosts"])
    refused = client.get(f"{F}/map?slots=65&bandwidth=1").json["question"]
    assert (refused["fits"], refused["reason"]) == (False, "too_few_slots")
    both = client.get(f"{F}/map?slots=6&bandwidth=1&hosts=3")
    assert both.status_code == 400
