# SPDX-License-Identifier: Apache-2.0

"""Quotas of projects, the request rate limit and the search budget."""

from __future__ import annotations

import time

from laas_service.adapters.db.concurrency.decider import LOSSES
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.api.auth import middleware
from laas_service.app.records import Limits
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import Request
from laas_service.domain.policies.base import SEARCH
from laas_service.domain.policies.jigsaw import Jigsaw

RED = {"X-Project-Id": "red"}
BLUE = {"X-Project-Id": "blue"}


def limited(deployment, hosts=None, allocations=None):
    SqlQuotas(deployment.engine).set("blue", hosts, allocations)
    return deployment.client()


def ask(client, hosts, headers=BLUE, **more):
    return client.post(
        "/v1/allocations", json={"name": "x", "hosts": hosts, **more}, headers=headers
    )


def test_a_project_gets_no_more_hosts_than_it_may_have(deployment):
    client = limited(deployment, hosts=8)
    first = ask(client, 5)
    assert first.status_code == 202
    for more in ({}, {"dry_run": True}, {"wait": True}, {"container": True}):
        answer = ask(client, 4, **more)
        assert answer.status_code == 403
        assert answer.json["code"] == "quota_exceeded"
        (error,) = answer.json["errors"]
        assert (error["field"], error["value"]) == ("hosts", 9)
        assert "it may have 8" in error["detail"]
    assert ask(client, 3).status_code == 202
    assert ask(client, 20, RED).status_code == 202
    client.delete(f"/v1/allocations/{first.json['id']}")
    assert ask(client, 1).status_code == 403, "hosts that are not free yet count"
    deployment.converge()
    assert ask(client, 5).status_code == 202


def test_a_project_gets_no_more_allocations_than_it_may_have(deployment):
    client = limited(deployment, allocations=2)
    assert ask(client, 1).status_code == 202
    assert ask(client, 32, wait=True).json["state"] == "queued"
    answer = ask(client, 1)
    assert answer.status_code == 403
    assert [(e["field"], e["value"]) for e in answer.json["errors"]] == [("allocations", 3)]
    assert len(client.get("/v1/allocations?project_id=blue").json["allocations"]) == 2


def test_a_project_gets_no_more_slots_than_it_may_have(deployment):
    SqlQuotas(deployment.engine).set("blue", None, None, slots=6)
    client = deployment.client()
    sharing = {"slots": 4, "bandwidth": 10.0, "open": True}
    assert ask(client, 4, RED, sharing=sharing).status_code == 202
    deployment.converge()

    def share(slots, headers=BLUE, **more):
        body = {"name": "x", "class": "shared", "slots": slots, "bandwidth": 1.0, **more}
        return client.post("/v1/allocations", json=body, headers=headers)

    first = share(4)
    assert first.status_code == 202
    for more in ({}, {"dry_run": True}, {"wait": True}):
        answer = share(3, **more)
        assert answer.status_code == 403
        assert [(e["field"], e["value"]) for e in answer.json["errors"]] == [("slots", 7)]
    assert share(3, RED).status_code == 202
    deployment.converge()
    path = f"/v1/allocations/{first.json['id']}"
    assert client.patch(path, json={"slots": 7}, headers=BLUE).status_code == 403
    tried = client.patch(path, json={"slots": 7, "dry_run": True}, headers=BLUE)
    assert tried.status_code == 403
    assert client.patch(path, json={"slots": 6}, headers=BLUE).status_code == 200
    usage = client.get("/v1/quota", headers=BLUE).json["slots"]
    assert usage == {"limit": 6, "used": 6}


def test_what_is_inside_a_container_is_counted_once(deployment):
    client = limited(deployment, hosts=12)
    container = ask(client, 8, container=True).json["id"]
    deployment.converge()
    assert ask(client, 4, parent=container).status_code == 202
    assert ask(client, 4).status_code == 202
    assert ask(client, 1).json["errors"][0]["value"] == 13


def test_a_projects_own_quota_comes_before_what_all_may_have(deployment):
    client = deployment.client(limits=Limits(hosts=4, allocations=3))
    quotas = SqlQuotas(deployment.engine)
    assert ask(client, 5).status_code == 403
    quotas.set("blue", 8, None)
    assert ask(client, 5).status_code == 202
    assert ask(client, 5, RED).status_code == 403
    quotas.set("blue", -1, 1)
    assert ask(client, 1).json["errors"][0]["field"] == "allocations"
    quotas.set("blue", -1, -1)
    assert ask(client, 9).status_code == 202
    quotas.unset("blue")
    assert ask(client, 1).json["errors"][0]["value"] == 15
    assert ask(client, 4, RED).status_code == 202


def test_a_repeated_key_is_answered_even_if_there_may_be_no_more(deployment):
    client = limited(deployment, allocations=1)
    headers = {**BLUE, "Idempotency-Key": "k"}
    assert ask(client, 1, headers).json["id"] == ask(client, 1, headers).json["id"]


def test_who_asks_too_fast_is_told_when_to_come_back(deployment):
    deployment.conf.set_override("rate", 0.001, "limits")
    deployment.conf.set_override("burst", 3, "limits")
    client = deployment.client()
    answers = [client.get("/v1/allocations", headers=BLUE) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3].json["code"] == "too_many_requests"
    assert 1 <= int(answers[3].headers["Retry-After"]) <= 1000
    assert client.get("/v1/allocations", headers=RED).status_code == 200
    assert client.get("/healthcheck").status_code == 200
    assert ask(client, 1).status_code == 429
    assert client.get("/v1/allocations", headers=RED).json["allocations"] == []


def test_a_history_grows_no_faster_than_the_rate_of_changes(deployment):
    """200 at once, then two in a second."""
    client = deployment.client()
    id = ask(client, 1).json["id"]

    def rename(number, headers=BLUE):
        path = f"/v1/allocations/{id}"
        return client.patch(path, json={"name": f"n{number}"}, headers=headers).status_code

    begun, codes = time.monotonic(), [200]
    while codes[-1] == 200:
        codes.append(rename(len(codes)))
    assert 200 <= len(codes) - 2 <= 201 + 2 * (time.monotonic() - begun)
    assert codes[-1] == 429
    assert client.get(f"/v1/allocations/{id}", headers=BLUE).status_code == 200
    assert ask(client, 1).status_code == 202
    assert client.delete(f"/v1/allocations/{id}", headers=BLUE).status_code == 202


# -- search budget --------------------------------------------------------------


def test_an_answer_that_the_budget_cut_off_says_so(deployment):
    """Refusal, largest fit and cost of a plane are marked if cut off, and only then."""
    for budget, cut in ((500, True), (4_000_000, False)):
        client = deployment.client(search_budget=budget)
        refused = client.post("/v1/allocations", json={"name": "a", "hosts": 33})
        assert refused.status_code == 409
        assert refused.json.get("cut_off", False) is cut
        fit = client.get("/v1/fabrics/main/fit?hosts=9").json
        assert fit["cut_off"] is cut
        assert (fit["largest_fit"] == 32) is not cut
        plane = client.put("/v1/fabrics/main/plane", json={"l2": [0], "dry_run": True})
        assert [one["cut_off"] for one in plane.json["cost"]] == [cut]


class Overtaken:
    """Jigsaw; during each of the first searches another request is placed."""

    name, isolating, monotone = Jigsaw.name, Jigsaw.isolating, Jigsaw.monotone

    def __init__(self, store):
        self._store = store
        self.searches = 0

    def propose(self, fabric, request):
        self.searches += 1
        if self.searches <= LOSSES:
            rival = Request(f"rival-{self.searches}", 1)
            asked = AllocationRequest(
                hosts=1,
                id=rival.id,
                name=rival.id,
                fabric="main",
                project_id="rivals",
                policy=self.name,
            )
            self._store.admissions.admit(asked, lambda draft: Jigsaw().propose(draft.ledger, rival))
        return Jigsaw().propose(fabric, request)


def test_every_search_after_a_lost_race_has_the_whole_budget(deployment):
    policy = Overtaken(deployment.store)
    client = deployment.client(policies={"jigsaw": policy}, search_budget=2 * SEARCH - 1)
    assert client.post("/v1/allocations", json={"name": "a", "hosts": 2}).status_code == 202
    assert policy.searches == LOSSES + 1


# -- quota and use ---------------------------------------------------------------------


def test_a_project_sees_what_it_may_have_and_has(guarded, deployment):
    red, blue, admin = ({"X-Auth-Token": f"{who}-token"} for who in ("red", "blue", "root"))
    keystone = middleware("keystone", "0.0.0.0", deployment.conf)
    client = deployment.client(keystone, limits=Limits(hosts=9, allocations=2))
    body = {"name": "a", "hosts": 5}
    assert client.post("/v1/allocations", json=body, headers=red).status_code == 202
    shown = client.get("/v1/quota", headers=red).json
    assert shown == {
        "project_id": "red",
        "hosts": {"limit": 9, "used": 5},
        "allocations": {"limit": 2, "used": 1},
        "moves": {"limit": None, "used": 0},
        "slots": {"limit": None, "used": 0},
    }
    assert client.get("/v1/quota", headers=blue).json["hosts"] == {"limit": 9, "used": 0}
    SqlQuotas(deployment.engine).set("red", -1, None)
    shown = client.get("/v1/quota?project_id=red", headers=admin).json
    assert shown["hosts"] == {"limit": None, "used": 5}
    assert shown["allocations"] == {"limit": 2, "used": 1}
    for path in ("/v1/quota?project_id=red", "/v1/quota?project_id=nobody"):
        assert client.get(path, headers=blue).status_code == 403
    assert client.get("/v1/quota?project_id=red", headers=red).status_code == 200
    assert client.get("/v1/quota").status_code == 401
    assert client.get("/v1/quota?limit=1", headers=red).status_code == 400
