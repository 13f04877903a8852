# SPDX-License-Identifier: Apache-2.0

"""The class of service ``shared``: slots of shared hosts with a guarantee of bandwidth."""

from __future__ import annotations

import pytest

from laas_service.adapters.fabric_import.generator import Description, generate
from tests.recabling import apart

SLOTS = 4


@pytest.fixture
def part(allocate):
    """Two leaves of shared hosts: 8 hosts of 4 slots, links of 10 Gb/s."""
    return allocate(8, "part", sharing={"slots": SLOTS, "bandwidth": 10.0})


@pytest.fixture
def share(client):
    def ask(slots, bandwidth=1.0, name="red", **more):
        body = {"name": name, "class": "shared", "slots": slots, "bandwidth": bandwidth, **more}
        return client.post("/v1/allocations?wait=5", json=body)

    return ask


def units(document):
    return {host["name"]: host["units"] for host in document["units"]}


def test_a_life_on_shared_hosts(client, part, share):
    assert (part["class"], part["sharing"]["slots"]) == ("owned", SLOTS)
    made = share(10)
    assert made.status_code == 202, made.text
    made = made.json
    assert (made["class"], made["state"], made["parent"]) == ("shared", "active", part["id"])
    assert (made["slots"], made["bandwidth"], made["deviation"]) == (10, 1.0, 0.0)
    assert made["enforcement"] == "accounted, not enforced"
    assert sorted(n for on in units(made).values() for n in on) == list(range(10))
    assert set(units(made)) <= {host["name"] for host in part["hosts"]}
    assert client.get(f"/v1/allocations/{part['id']}").json["state"] == "active"
    assert client.delete(f"/v1/allocations/{part['id']}").status_code == 409
    gone = client.delete(f"/v1/allocations/{made['id']}?wait=5").json
    assert (gone["state"], gone["units"]) == ("released", [])
    assert client.delete(f"/v1/allocations/{part['id']}?wait=5").json["state"] == "released"


def test_a_dry_run_reserves_nothing(client, part, share):
    tried = share(10, dry_run=True)
    assert tried.status_code == 200
    assert (tried.json["slots"], tried.json["parent"]) == (10, part["id"])
    assert len(tried.json["units"]) == len(tried.json["hosts"]) == 3
    assert len(client.get("/v1/allocations").json["allocations"]) == 1


def test_a_refusal_names_slots_or_the_link_and_the_largest_that_fits(part, share):
    refused = share(33)
    assert refused.status_code == 409
    assert (refused.json["code"], refused.json["largest_fit"]) == ("too_few_slots", 32)
    assert "32 slots are free" in refused.json["detail"]
    assert refused.json["fits_when_empty"] is False
    assert share(8, 5.0).status_code == 202  # two hosts, each link carries 4 * 5 > 10: spread
    refused = share(12, 5.0).json
    assert refused["code"] == "bandwidth"
    assert "link" in refused["detail"]
    fits = refused["largest_fit"]
    assert 0 < fits < 12
    assert refused["fits_when_empty"] is True
    assert share(fits, 5.0, dry_run=True).status_code == 200
    assert share(fits + 1, 5.0, dry_run=True).status_code == 409


def test_less_is_given_at_once_and_more_without_moves_where_it_can(client, part, share):
    made = share(10).json
    before = units(made)
    less = client.patch(f"/v1/allocations/{made['id']}", json={"slots": 6, "bandwidth": 0.5})
    assert less.status_code == 200, less.text
    assert (less.json["slots"], less.json["bandwidth"], less.json["changing"]) == (6, 0.5, None)
    assert less.json["unit_moves"] == []
    assert set(units(less.json)) <= set(before)
    more = client.patch(f"/v1/allocations/{made['id']}", json={"slots": 12})
    assert (more.status_code, more.json["slots"], more.json["unit_moves"]) == (200, 12, [])
    again = client.patch(f"/v1/allocations/{made['id']}", json={"slots": 12})
    assert again.json["version"] == more.json["version"]
    reasons = [event["reason"] for event in more.json["history"]]
    assert any("6 slots of 0.5 Gb/s to 12 of 0.5 Gb/s" in reason for reason in reasons)


def test_moves_are_planned_held_and_counted(client, deployment, part, share):
    """Of 8 with 4 Gb/s each, two at most fit on a host whose link has 10 Gb/s."""
    first = share(4, 0.1, name="first").json
    [host] = units(first)
    grown = {"slots": 5, "bandwidth": 11.0}
    refused = client.patch(f"/v1/allocations/{first['id']}", json=grown)
    assert refused.status_code == 409
    assert refused.json["code"] == "bandwidth"
    grown = {"bandwidth": 4.0, "slots": 8}
    plan = client.patch(f"/v1/allocations/{first['id']}", json={**grown, "dry_run": True})
    assert plan.status_code == 200, plan.text
    assert client.get(f"/v1/allocations/{first['id']}").json["slots"] == 4
    moves = plan.json["unit_moves"]
    assert [move["leaves"] for move in moves] == [host, host]
    begun = client.patch(f"/v1/allocations/{first['id']}", json=grown)
    assert begun.status_code == 202, begun.text
    assert begun.json["unit_moves"] == moves
    assert begun.json["changing"] == "leave"
    assert set(begun.json["joining"]) == set(units(begun.json)) - {host}
    conflict = client.patch(f"/v1/allocations/{first['id']}", json={"slots": 9})
    assert conflict.status_code == 409
    record = deployment.store.allocations.get(first["id"])
    deployment.store.placement_changes.proceed(record, "moved")
    over = client.get(f"/v1/allocations/{first['id']}").json
    assert (over["changing"], over["unit_moves"], over["slots"]) == (None, [], 8)


def test_a_repeated_key_has_one_answer(client, part):
    body = {"name": "red", "class": "shared", "slots": 3, "bandwidth": 1.0}
    key = {"Idempotency-Key": "once"}
    first, second = (client.post("/v1/allocations", json=body, headers=key) for _ in range(2))
    assert first.json["id"] == second.json["id"]
    other = client.post("/v1/allocations", json={**body, "slots": 4}, headers=key)
    assert other.status_code == 422


def test_a_request_waits_and_gets_the_slots_that_become_free(client, deployment, part, share):
    first = share(30).json
    waiting = share(10, wait=True, name="waiting").json
    assert (waiting["state"], waiting["position"]) == ("queued", 1)
    assert waiting["waits_for"]["code"] == "too_few_slots"
    assert waiting["waits_for"]["largest_fit"] == 2
    overtaking = share(2, name="newcomer").json
    assert overtaking["code"] == "others_wait"
    hopeless = share(40, wait=True)
    assert hopeless.status_code == 409
    assert "wait for ever" in hopeless.json["detail"]
    client.delete(f"/v1/allocations/{first['id']}?wait=5")
    assert deployment.serve_queues() == 1
    deployment.converge()
    admitted = client.get(f"/v1/allocations/{waiting['id']}").json
    assert (admitted["state"], sum(map(len, units(admitted).values()))) == ("active", 10)


def test_shared_hosts_take_no_owner_and_are_not_resized(client, part, share):
    inside = {"name": "whole", "hosts": 2, "parent": part["id"]}
    refused = client.post("/v1/allocations", json=inside)
    assert (refused.status_code, refused.json["errors"][0]["field"]) == (400, "parent")
    share(3)
    for change in ({"hosts": 9}, {"slots": 3}):
        assert client.patch(f"/v1/allocations/{part['id']}", json=change).status_code == 409


def test_slots_are_of_an_allocation_that_shares_its_hosts(client, allocate, share):
    nowhere = share(3)
    assert (nowhere.status_code, nowhere.json["errors"][0]["field"]) == (400, "class")
    plain = allocate(2, "plain")
    refused = share(3, parent=plain["id"])
    assert (refused.status_code, refused.json["errors"][0]["field"]) == (400, "parent")
    sharing = {"slots": 2, "bandwidth": 10.0}
    first, second = allocate(2, "a", sharing=sharing), allocate(2, "b", sharing=sharing)
    unclear = share(3)
    assert (unclear.status_code, unclear.json["errors"][0]["field"]) == (400, "parent")
    assert first["id"] in unclear.json["detail"]
    assert share(3, parent=second["id"]).json["parent"] == second["id"]


def test_virtual_machines_may_differ(client, part, share):
    """Those of 8 Gb/s have no room together on a host whose link has 10."""
    listed = {"bandwidth": [8.0, 8.0, 0.5, 0.5, 0.5], "deviation": [0.0, 0.0, 0.1, 0.1, 0.1]}
    made = share(5, **listed).json
    assert (made["slots"], made["bandwidth"]) == (5, listed["bandwidth"])
    assert made["deviation"] == listed["deviation"]
    assert sorted(n for on in units(made).values() for n in on) == list(range(5))
    assert client.get(f"/v1/allocations/{made['id']}").json["bandwidth"] == listed["bandwidth"]
    less = {"bandwidth": [8.0, 4.0, 0.5], "deviation": 0.0}
    patched = client.patch(f"/v1/allocations/{made['id']}", json=less)
    assert patched.status_code == 200, patched.text
    assert (patched.json["slots"], patched.json["bandwidth"]) == (3, less["bandwidth"])
    assert patched.json["unit_moves"] == []
    kept = {name: [unit for unit in on if unit < 3] for name, on in units(made).items()}
    assert units(patched.json) == {name: on for name, on in kept.items() if on}
    reasons = [event["reason"] for event in patched.json["history"]]
    assert any("5 slots of 0.5 to 8 Gb/s to 3 of 0.5 to 8 Gb/s" in reason for reason in reasons)
    refused = share(5, [50.0, 40.0, 30.0, 20.0, 15.0]).json
    assert (refused["code"], refused["largest_fit"]) == ("bandwidth", 4)
    mismatch = client.patch(f"/v1/allocations/{made['id']}", json={"slots": 4})
    assert mismatch.status_code == 400
    assert [error["field"] for error in mismatch.json["errors"]] == ["bandwidth"]


def test_a_change_of_different_demands_moves_virtual_machines(client, deployment, part, share):
    """Links have 10 Gb/s, so two of 6 have to join the one of 11 elsewhere."""
    made = share(4, bandwidth=[1.0, 1.0, 1.0, 0.5]).json
    [host] = units(made)
    grown = {"bandwidth": [6.0, 6.0, 6.0, 1.0, 11.0]}
    plan = client.patch(f"/v1/allocations/{made['id']}", json={**grown, "dry_run": True})
    assert plan.status_code == 200, plan.text
    assert [move["leaves"] for move in plan.json["unit_moves"]] == [host, host]
    begun = client.patch(f"/v1/allocations/{made['id']}", json=grown)
    assert begun.status_code == 202, begun.text
    assert begun.json["unit_moves"] == plan.json["unit_moves"]
    deployment.store.placement_changes.proceed(
        deployment.store.allocations.get(made["id"]), "moved"
    )
    over = client.get(f"/v1/allocations/{made['id']}").json
    assert (over["changing"], over["slots"]) == (None, 5)
    assert sorted(n for on in units(over).values() for n in on) == list(range(5))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"class": "shared", "slots": 2, "bandwidth": [1.0]}, "bandwidth"),
        ({"class": "shared", "slots": 2, "bandwidth": 1.0, "deviation": [0.1] * 3}, "deviation"),
        ({"class": "shared", "bandwidth": 1.0}, "slots"),
        ({"class": "shared", "slots": 2}, "bandwidth"),
        ({"class": "shared", "slots": 2, "bandwidth": 1.0, "hosts": 2}, "hosts"),
        ({"class": "shared", "slots": 2, "bandwidth": 1.0, "policy": "jigsaw"}, "policy"),
        ({"class": "shared", "slots": 0, "bandwidth": 1.0}, "slots"),
        ({"class": "shared", "slots": 2, "bandwidth": 0.0}, "bandwidth"),
        ({"class": "shared", "slots": 2, "bandwidth": 1.0, "risk": 0.6}, "risk"),
        ({"class": "shared", "slots": 2, "bandwidth": 1.0, "risk": 0.01}, "risk"),
        ({"hosts": 2, "slots": 2}, "slots"),
        ({"hosts": 2, "bandwidth": 1.0}, "bandwidth"),
        ({}, "hosts"),
        ({"hosts": 2, "sharing": {"slots": 0, "bandwidth": 1.0}}, "sharing.slots"),
        ({"hosts": 2, "container": True, "sharing": {"slots": 1, "bandwidth": 1.0}}, "sharing"),
    ],
)
def test_a_wrong_field_is_named(client, part, body, field):
    answer = client.post("/v1/allocations", json={"name": "x", **body})
    assert answer.status_code == 400
    assert field in [error["field"] for error in answer.json["errors"]]


def test_hosts_with_several_rails_are_not_shared(deployment):
    made = generate(Description(xgft="3;2,2,4;1,2,2", rails=2, wiring="plane"))
    deployment.store.fabrics.add("planes", made.topology, apart(made.inventory, 1))
    client = deployment.client(default_fabric="planes")
    body = {"name": "x", "hosts": 4, "sharing": {"slots": 2, "bandwidth": 10.0}}
    for dry_run in (True, False):
        answer = client.post("/v1/allocations", json={**body, "dry_run": dry_run})
        assert answer.status_code == 400
        assert [error["field"] for error in answer.json["errors"]] == ["sharing"]
        assert "more than one rail" in answer.json["detail"]
    assert client.get("/v1/allocations").json["allocations"] == []


def test_where_nothing_claims_slots_sharing_is_refused(deployment):
    client = deployment.client(unshared="nothing claims slots in placement")
    sharing = {"slots": 2, "bandwidth": 10.0}
    for body in (
        {"name": "x", "hosts": 2, "sharing": sharing},
        {"name": "x", "class": "shared", "slots": 2, "bandwidth": 1.0},
    ):
        answer = client.post("/v1/allocations", json=body)
        assert (answer.status_code, answer.json["code"]) == (501, "not_supported")
        assert "nothing claims slots" in answer.json["detail"]


def test_a_stochastic_demand_needs_less_than_its_peak(part, share):
    """10 Gb/s links: 3 of 2 +- 1 on each side of a link fit, where 3 of 4 (2 sigma) do not."""
    certain = share(32, 4.0, dry_run=True).json["largest_fit"]
    stochastic = share(32, 2.0, deviation=1.0, dry_run=True).json["largest_fit"]
    assert stochastic > certain


@pytest.fixture
def wide(allocate):
    """Two leaves of shared hosts: 8 hosts of 10 slots, links of 56 Gb/s."""
    return allocate(8, "wide", sharing={"slots": 10, "bandwidth": 56.0})


def test_ten_slots_of_a_tenth_of_a_link_fill_it(client, wide, share):
    """Floats say 10 * 5.6 is more than 56 of any binary step; whole kb/s are exact."""
    every = share(80, 5.6)
    assert every.status_code == 202, every.text
    client.delete(f"/v1/allocations/{every.json['id']}?wait=5")
    for number in range(10):
        made = share(8, 5.6, name=f"tenant {number}")
        assert made.status_code == 202, (number, made.text)
    assert share(1, 1.0).json["code"] == "too_few_slots"


def test_finer_amounts_are_rounded_up_and_shown(client, wide, share):
    made = share(2, 5.1234567, deviation=[0.1000001, 0.0]).json
    assert (made["bandwidth"], made["deviation"]) == (5.123457, [0.100001, 0.0])
    changed = client.patch(f"/v1/allocations/{made['id']}", json={"bandwidth": 1.0000001})
    assert changed.json["bandwidth"] == 1.000001
    part = {"name": "p", "hosts": 2, "sharing": {"slots": 2, "bandwidth": 10.0000019}}
    assert client.post("/v1/allocations", json=part).json["sharing"]["bandwidth"] == 10.000001


def test_a_refusal_names_hosts_by_name(wide, share):
    names = {host["name"] for host in wide["hosts"]}
    refused = share(11, 57.0).json
    assert refused["code"] == "bandwidth"
    assert any(f"host {name} " in refused["detail"] for name in names), refused["detail"]


def test_fewer_slots_shorten_a_list(client, part, share):
    made = share(3, [3.0, 2.0, 1.0], deviation=[0.0, 0.1, 0.2]).json
    asked = client.patch(f"/v1/allocations/{made['id']}", json={"slots": 2})
    assert asked.status_code == 200, asked.text
    assert (asked.json["bandwidth"], asked.json["deviation"]) == ([3.0, 2.0], [0.0, 0.1])
    more = client.patch(f"/v1/allocations/{made['id']}", json={"slots": 4})
    assert [error["field"] for error in more.json["errors"]] == ["bandwidth"]


def test_a_fault_is_told_to_those_whose_promise_it_breaks(client, deployment, part, share):
    """The overview gets no better by a fault, and slots can be given back meanwhile."""
    made = share(20, 0.5, name="red").json
    other = share(2, 0.1, name="other").json
    own = client.get(f"/v1/allocations/{made['id']}/promise").json
    assert (own["slots"], own["bandwidth"], own["holds"], own["detail"]) == (20, 0.5, True, None)
    assert {link["state"] for link in own["links"]} == {"kept"}
    overview = client.get("/v1/fabrics/main/promises").json["promises"]
    before = max(entry["outage"] for entry in overview)
    leaf = min(link["link"] for link in own["links"] if link["kind"] == "leaf").rsplit("-", 1)[0]
    lost = [f"{leaf}-{up}" for up in range(4)]
    for number, link in enumerate(lost, 1):
        client.patch(f"/v1/fabrics/main/links/{link}", json={"state": "failed"})
        overview = client.get("/v1/fabrics/main/promises").json["promises"]
        assert max(entry["outage"] for entry in overview) >= before, number
        before = max(entry["outage"] for entry in overview)
    shown = client.get(f"/v1/allocations/{made['id']}").json["degraded"]
    assert shown["apart"]
    assert "no path over its working links is left" in shown["detail"]
    own = client.get(f"/v1/allocations/{made['id']}/promise").json
    assert own["holds"] is False
    assert "dead" in {link["state"] for link in own["links"]}
    assert before == 1.0
    assert client.get(f"/v1/allocations/{other['id']}").json["degraded"] is None
    given = client.patch(f"/v1/allocations/{made['id']}", json={"slots": 19})
    assert given.status_code == 200, given.text
    for link in lost:
        client.patch(f"/v1/fabrics/main/links/{link}", json={"state": "up"})
    assert client.get(f"/v1/allocations/{made['id']}").json["degraded"] is None


def test_a_promise_is_of_slots_and_of_their_own_tenant(client, part, share):
    refused = client.get(f"/v1/allocations/{part['id']}/promise")
    assert (refused.status_code, refused.json["code"]) == (409, "conflict")
    assert client.get("/v1/allocations/nobody/promise").status_code == 404
