# SPDX-License-Identifier: Apache-2.0

"""What a tenant asks for is bounded before anything is built of it, and breaks no other's view."""

from __future__ import annotations

import json
import logging
import tracemalloc

import pytest
from sqlalchemy import select, update

from laas_service.adapters.db import models
from laas_service.app.requests import ServicePolicy
from tests.functional.api.test_shared import part as part
from tests.functional.api.test_shared import share as share
from tests.worst_questions import RISKS

F = "/v1/fabrics/main"
LITTLE = 4 << 20
"""Bytes that a refused request may need at one time."""


def refused_with_little(client, method, path, body=None):
    """The answer; asserts that no memory in proportion to a number of the request was needed."""
    client.open(path, method=method, json=body)  # what the first request of its kind loads
    tracemalloc.start()
    try:
        answer = client.open(path, method=method, json=body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < LITTLE, (method, path, most)
    return answer


def slots_asked(slots, allocation):
    """Every request that has a number of slots."""
    new = {"name": "red", "class": "shared", "slots": slots, "bandwidth": 1.0}
    return [
        ("GET", f"{F}/fit?slots={slots}&bandwidth=1", None),
        ("GET", f"{F}/map?slots={slots}&bandwidth=1", None),
        ("POST", "/v1/allocations", new),
        ("POST", "/v1/allocations", {**new, "dry_run": True}),
        ("POST", "/v1/allocations", {**new, "wait": True}),
        ("PATCH", f"/v1/allocations/{allocation}", {"slots": slots}),
        ("PATCH", f"/v1/allocations/{allocation}", {"slots": slots, "dry_run": True}),
    ]


def test_more_slots_than_any_allocation_has_are_malformed(client, part, share):
    id = share(4).json["id"]
    for method, path, body in slots_asked(10_000_000, id):
        answer = refused_with_little(client, method, path, body)
        assert answer.status_code == 400, answer.text
        assert [error["field"] for error in answer.json["errors"]] == ["slots"]


def test_more_slots_than_the_shared_hosts_have_are_refused(client, part, share):
    id = share(4).json["id"]
    for method, path, body in slots_asked(65_536, id):
        answer = refused_with_little(client, method, path, body)
        if method == "GET":
            found = answer.json if "/fit" in path else answer.json["question"]
            told = found["fits"], found["reason"], found["largest_fit"]
            assert told == (False, "too_few_slots", 28)
        else:
            assert (answer.status_code, answer.json["code"]) == (409, "too_few_slots")
            assert answer.json["largest_fit"] in (28, 32)
            assert "slots are free, 65536 asked for" in answer.json["detail"]


def test_many_slots_are_malformed_where_hosts_are_not_shared(deployment):
    client = deployment.client(unshared="because")
    path = f"{F}/fit?slots=10000000&bandwidth=1"
    assert refused_with_little(client, "GET", path).status_code == 400


def test_a_deviation_near_0_is_taken_and_a_huge_one_is_not(part, share):
    """The variances of nine with 1e6 Gb/s overflowed, so that a link promised more than it has."""
    assert share(2, 1.0, deviation=1e-160).status_code == 202
    refused = share(2, 1.0, deviation=1e6)
    assert (refused.status_code, refused.json["errors"][0]["field"]) == (400, "deviation")


@pytest.mark.parametrize("risk", [1e-17, 1e-300, 0])
def test_a_risk_near_0_is_malformed(client, part, share, risk):
    body = {"name": "x", "hosts": 1, "sharing": {"slots": 1, "bandwidth": 1.0, "risk": risk}}
    for answer in (
        client.post("/v1/allocations", json=body),
        share(1, risk=risk),
        client.get(f"{F}/fit?slots=1&bandwidth=1&risks={risk}"),
    ):
        assert answer.status_code == 400, answer.text
        assert "risk" in answer.json["errors"][0]["field"]


@pytest.fixture
def odd_risk(deployment, client, allocate, part):
    """Another shared allocation, with slots, whose recorded risk today's schema refuses."""
    sharing = {"slots": 4, "bandwidth": 10.0}
    odd = allocate(4, "odd", sharing=sharing)["id"]
    body = {"name": "in", "class": "shared", "slots": 6, "bandwidth": 1.0, "parent": odd}
    assert client.post("/v1/allocations?wait=5", json=body).status_code == 202
    shared, placement = models.SharedHostsPart, models.PlacementPart
    with deployment.engine.begin() as connection:
        query = select(placement.placed).where(placement.allocation == odd)
        placed = json.loads(json.dumps(connection.scalars(query).one()))
        placed["sharing"]["risk"] = 1e-17
        for table, values in (
            (shared, {"sharing": placed["sharing"]}),
            (placement, {"placed": placed}),
        ):
            connection.execute(update(table).where(table.allocation == odd).values(values))
        connection.execute(update(models.DeltaRow).values(change={"of": "an earlier release"}))
    deployment.store._ledgers.forget("main")
    return odd


def test_a_value_of_an_earlier_release_breaks_only_its_own_part(
    client, part, share, odd_risk, caplog
):
    assert share(6, parent=part["id"]).status_code == 202
    share(3, parent=part["id"])
    for path in ("/v1/allocations", f"/v1/allocations/{odd_risk}", F):
        assert client.get(path).status_code == 200
    lines = [
        (f"{F}/promises", "promises"),
        (f"{F}/map", "promises"),
        ("/metrics", "promises"),
    ]
    for path, what in lines:
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            answer = client.get(path)
        assert answer.status_code == 200, answer.text
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1, told
        assert odd_risk in told[0]
        assert what in told[0]
        assert "\n" not in told[0]
        assert not any(record.exc_info for record in caplog.records)
    assert f'allocation="{part["id"]}"' in client.get("/metrics").text
    promises = client.get(f"{F}/promises").json["promises"]
    assert {promise["allocation"] for promise in promises} == {part["id"]}
    assert client.get(f"{F}/map").json["promises"]["hosts"]
    assert client.delete(f"/v1/allocations/{odd_risk}").status_code == 409  # in use


def test_a_search_that_its_budget_ends_says_so(deployment, part, client, share):
    """Answers with all of their budget are whole; with little of it they say that they are not."""
    share(7, 1.3, deviation=0.5)
    asked = f"{F}/fit?slots=3&bandwidth=0.5,0.7,0.9&deviation=0.2&risks={RISKS}"
    whole = client.get(asked).json
    assert (whole["fits"], whole["cut_off"]) == (True, False)
    assert len(whole["risks"]) == 9
    assert all(at["tenants"] and not at["more"] for at in whole["risks"])
    little = deployment.client(search_budget=10_000)
    cut = little.get(asked).json
    assert cut["cut_off"]
    assert all(at["more"] for at in cut["risks"] if at["tenants"] < 5)
    known = {at["risk"]: at["tenants"] for at in whole["risks"]}
    assert all(at["tenants"] <= known[at["risk"]] for at in cut["risks"])
    none = deployment.client(search_budget=1)
    body = {"name": "x", "class": "shared", "slots": 3, "bandwidth": 1.0, "dry_run": True}
    answer = none.post("/v1/allocations", json=body)
    assert (answer.status_code, answer.json["code"]) == (409, "search_budget")
    assert answer.json["cut_off"]
    question = none.get(f"{F}/map?slots=3&bandwidth=1&risks=0.1").json["question"]
    assert (question["fits"], question["cut_off"]) == (False, True)


def test_the_default_budget_is_a_few_seconds():
    """A unit is half a microsecond at the most (``domain.budget``)."""
    assert ServicePolicy(policies={}, default_policy="").search_budget <= 4_000_000
