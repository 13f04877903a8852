# SPDX-License-Identifier: Apache-2.0

"""Allocations: creation, refusals, idempotency, renaming, release, lists and nesting."""

from __future__ import annotations

import re
import threading
from datetime import datetime

import pytest
from sqlalchemy import event, insert

from laas_service.adapters.db import models
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.lifecycle import State
from laas_service.domain.errors import InvalidInput, Unavailable
from tests.recabling import apart

pytestmark = pytest.mark.road

BLUE = {"name": "blue", "hosts": 2}


def links_of(allocation):
    return {tuple(link) for link in allocation["leaf_links"]} | {
        ("spine", *link) for link in allocation["spine_links"]
    }


def test_a_life(deployment, client):
    answer = client.post("/v1/allocations", json={"name": "blue", "hosts": 6})
    assert answer.status_code == 202
    born = answer.json
    assert born["state"] == "allocating"
    assert born["requested"] == len(born["hosts"]) == 6
    assert (born["pkeys"], born["rails_joined"]) == ([born["pkey"]], True)
    assert born["class"] == "owned"
    assert answer.headers["Location"].endswith(f"/v1/allocations/{born['id']}")
    deployment.converge()
    grown = client.get(answer.headers["Location"]).json
    assert grown["state"] == "active"
    assert grown["version"] > born["version"]
    renamed = client.patch(f"/v1/allocations/{born['id']}", json={"name": "navy"}).json
    assert renamed["name"] == "navy"
    assert renamed["hosts"] == born["hosts"]
    gone = client.delete(f"/v1/allocations/{born['id']}")
    assert gone.status_code == 202
    assert gone.json["state"] == "releasing"
    deployment.converge()
    end = client.get(f"/v1/allocations/{born['id']}").json
    assert end["state"] == "released"
    assert end["hosts"] == end["links"] == []
    first, *_ = end["history"]
    assert (first["state"], set(first["seconds"])) == ("allocating", {"wait", "search", "commit"})
    assert [event["state"] for event in end["history"]][-1:] == ["released"]
    assert client.get("/v1/fabrics/main").json["hosts"]["free"] == 32


@pytest.fixture
def transactions(deployment):
    """The statements of each transaction from now on."""
    seen: list[list[str]] = []
    now: dict[object, list[str]] = {}

    def begin(connection):
        now[connection] = []
        seen.append(now[connection])

    def note(connection, cursor, statement, *rest):
        if not statement.startswith("BEGIN"):
            now[connection].append(statement)

    event.listen(deployment.engine, "begin", begin)
    event.listen(deployment.engine, "before_cursor_execute", note)
    return seen


@pytest.mark.parametrize("kind", ["owned", "shared"])
def test_a_request_reads_once_and_writes_once(deployment, client, allocate, transactions, kind):
    """All that it reads is in one transaction; the other one repeats what the claim depends on."""
    body = {"name": "a", "hosts": 2}
    if kind == "shared":
        allocate(4, "part", sharing={"slots": 4, "bandwidth": 10.0})
        body = {"name": "a", "class": "shared", "slots": 2, "bandwidth": 1.0}
    deployment.store.fabrics.ledger("main")
    transactions.clear()
    assert client.post("/v1/allocations", json=body).status_code == 202
    reading, writing = [
        statements
        for statements in transactions
        if not re.search("strftime|works_with", str(statements))  # once a second: clock, tables
    ]
    assert {said.split()[0] for said in reading} == {"SELECT"}
    assert any(said.startswith("INSERT") for said in writing)
    assert sum(said.startswith("SELECT") for said in reading + writing) <= 8


def test_a_tenant_is_told_whether_its_rails_are_joined(deployment):
    """Each rail is a plane of its own, and only spines join the planes."""
    made = generate(Description(xgft="3;2,2,4;1,2,2", rails=2, wiring="plane"))
    deployment.store.fabrics.add("planes", made.topology, apart(made.inventory, 1))
    client = deployment.client(default_fabric="planes")
    for hosts, joined, keys in ((4, False, 2), (8, True, 1)):  # a pod, and two pods over spines
        told = client.post("/v1/allocations", json={"name": "blue", "hosts": hosts}).json
        assert told["rails_joined"] is joined
        assert (len(told["pkeys"]), len(set(told["pkeys"]))) == (2, keys)
        assert told["pkey"] == told["pkeys"][0]
        client.delete(f"/v1/allocations/{told['id']}")
        deployment.converge()


def test_a_long_history_has_pages(client, allocate):
    id = allocate(2)["id"]
    for number in range(120):
        client.patch(f"/v1/allocations/{id}", json={"name": f"n{number}"})
    pages = [client.get(f"/v1/allocations/{id}/history?limit=50").json]
    while pages[-1]["next"]:
        pages.append(client.get(pages[-1]["next"]).json)
    story = [event for page in pages for event in page["history"]]
    assert [len(page["history"]) for page in pages] == [50, 50, 22]
    assert [event["number"] for event in story] == list(range(1, 123))
    assert "'n118'" in story[-1]["reason"]
    assert client.get(f"/v1/allocations/{id}").json["history"] == story[-100:]
    wrong = client.get(f"/v1/allocations/{id}/history?marker=999")
    assert wrong.status_code == 400
    assert "marker" in wrong.json["detail"]


def test_a_long_story_is_read_in_parts(deployment, client, allocate):
    """An answer and a step of the worker load the newest events, whatever the length."""
    id, many = allocate(2)["id"], 54_000
    row = {"allocation": id, "at": datetime(2026, 1, 1), "state": "active", "reason": "again"}
    with deployment.engine.begin() as connection:
        connection.execute(insert(models.EventRow), [row] * many)
    loaded = []

    def load(target, context):
        loaded.append(target.id)

    event.listen(models.EventRow, "load", load)
    try:
        assert deployment.store.allocations.get(id).initiator.user_id == "local"
        shown = client.get(f"/v1/allocations/{id}").json
        assert [e["number"] for e in shown["history"]] == list(range(many - 97, many + 3))
        last = client.get(f"/v1/allocations/{id}/history?marker={many - 100}&limit=10").json
        assert [e["number"] for e in last["history"]] == list(range(many - 99, many - 89))
        client.patch(f"/v1/allocations/{id}", json={"name": "b"})
        client.delete(f"/v1/allocations/{id}")
        deployment.converge()
    finally:
        event.remove(models.EventRow, "load", load)
    assert client.get(f"/v1/allocations/{id}").json["state"] == "released"
    assert len(loaded) < many / 10


def test_tenants_share_neither_hosts_nor_links(allocate):
    tenants = [allocate(size, name=f"t{size}") for size in (6, 3, 7, 9)]
    hosts = [host["index"] for tenant in tenants for host in tenant["hosts"]]
    links = [link for tenant in tenants for link in links_of(tenant)]
    assert len(hosts) == len(set(hosts)) == 25
    assert len(links) == len(set(links)) > 0
    assert all(len(t["links"]) == len(links_of(t)) for t in tenants)


def test_the_shape_adds_up(allocate):
    shape = allocate(11)["shape"]
    full = shape["pods"] * shape["leaves"] * shape["hosts"]
    assert full + shape["remainder_leaves"] * shape["hosts"] + shape["remainder_hosts"] == 11
    assert shape["text"]


def test_waiting_gives_the_outcome(deployment, client):
    answer = client.post("/v1/allocations?wait=10", json={"name": "blue", "hosts": 2})
    assert answer.json["state"] == "active"
    gone = client.delete(f"/v1/allocations/{answer.json['id']}?wait=10")
    assert gone.json["state"] == "released"


@pytest.mark.parametrize(("seconds", "waited"), [(3, 3), (100000, 60)])
def test_waiting_ends_when_the_time_is_up_or_at_the_services_bound(
    deployment, client, seconds, waited
):
    deployment.while_waiting = lambda: None
    answer = client.post(f"/v1/allocations?wait={seconds}", json={"name": "blue", "hosts": 2})
    assert answer.status_code == 202
    assert answer.json["state"] == "allocating"
    assert deployment.slept == pytest.approx(waited, abs=0.2)


def test_waiting_ends_with_an_error(deployment, client):
    def fail():
        for record in deployment.store.allocations.page(states=(State.ALLOCATING,)):
            deployment.store.allocations.transition(
                record, State.ERROR, "the SM is gone", error="gone"
            )

    deployment.while_waiting = fail
    answer = client.post("/v1/allocations?wait=60", json={"name": "blue", "hosts": 2})
    assert answer.json["state"] == "error"
    assert answer.json["error"] == "gone"


def test_too_many_waiters_are_answered_at_once(deployment):
    client = deployment.client(waiters=1)
    entered, leave = threading.Event(), threading.Event()

    def hold():
        entered.set()
        leave.wait(600)

    deployment.while_waiting = hold
    body = {"name": "blue", "hosts": 2}
    thread = threading.Thread(
        target=client.post, args=["/v1/allocations?wait=0.04"], kwargs={"json": body}
    )
    thread.start()
    assert entered.wait(600)
    answer = client.application.test_client().post("/v1/allocations?wait=30", json=body)
    assert answer.json["state"] == "allocating"
    leave.set()
    thread.join(600)


def test_the_worker_is_woken(deployment, client, allocate):
    id = allocate(2)["id"]
    before = deployment.woken
    client.delete(f"/v1/allocations/{id}")
    assert before == 1
    assert deployment.woken == 2


# -- refusals -----------------------------------------------------------------------


def test_too_few_hosts(client, allocate):
    allocate(30)
    answer = client.post("/v1/allocations", json={"name": "red", "hosts": 3})
    assert answer.status_code == 409
    assert answer.json["code"] == answer.json["reason"] == "too_few_hosts"
    assert answer.json["largest_fit"] == 2
    assert "2" in answer.json["detail"]
    fits = client.post("/v1/allocations", json={"name": "red", "hosts": 2})
    assert fits.status_code == 202


def test_hosts_but_no_legal_shape(deployment, client):
    """All uplinks of all leaves are down: an allocation cannot span two leaves."""
    for pod in range(2):
        for leaf in range(4):
            for up in range(4):
                client.patch(
                    f"/v1/fabrics/main/links/leaf-{pod}-{leaf}-{up}", json={"state": "failed"}
                )
    answer = client.post("/v1/allocations", json={"name": "red", "hosts": 5})
    assert answer.status_code == 409
    assert answer.json["reason"] != "too_few_hosts"
    assert answer.json["largest_fit"] == 4


def test_a_refusal_leaves_nothing_behind(deployment, client):
    before = client.get("/v1/fabrics/main").json
    client.post("/v1/allocations", json={"name": "red", "hosts": 33})
    assert client.get("/v1/fabrics/main").json == before
    assert client.get("/v1/allocations").json["allocations"] == []
    assert deployment.woken == 0


def test_one_allocation_per_project_where_nova_cannot_tell_two_apart(deployment):
    client = deployment.client(one_per_project=True)
    first = client.post("/v1/allocations", json={"name": "a", "hosts": 1}).json
    again = client.post("/v1/allocations", json={"name": "b", "hosts": 1})
    assert again.status_code == 409
    assert again.json["code"] == "quota"
    assert first["id"] in again.json["detail"]
    dry = client.post("/v1/allocations", json={"name": "b", "hosts": 1, "dry_run": True})
    assert dry.json["code"] == "quota"
    other = client.post("/v1/allocations", json={"name": "c", "hosts": 1, "project_id": "other"})
    assert other.status_code == 202
    client.delete(f"/v1/allocations/{first['id']}")
    assert client.post("/v1/allocations", json={"name": "b", "hosts": 1}).status_code == 409
    deployment.converge()
    assert client.post("/v1/allocations", json={"name": "b", "hosts": 1}).status_code == 202


def test_more_hosts_than_servers_allowed_are_refused(deployment, client):
    """Nova's default quota is ten instances: a project could not use eleven hosts."""
    deployment.compute.limits["project"] = 10
    body = {"name": "a", "hosts": 11, "project_id": "project"}
    answer = client.post("/v1/allocations", json=body)
    assert (answer.status_code, answer.json["code"]) == (409, "quota")
    assert answer.json["largest_fit"] == 10
    assert "may run 10 servers in Nova" in answer.json["detail"]
    dry = client.post("/v1/allocations", json={**body, "dry_run": True})
    assert dry.json["code"] == "quota"
    waiting = client.post("/v1/allocations", json={**body, "wait": True})
    assert waiting.status_code == 409
    assert client.post("/v1/allocations", json={**body, "hosts": 10}).status_code == 202


def test_the_size_that_a_server_limit_allows_is_found_under_constraints(deployment, client):
    """The search looks inside the container, at hosts that the constraints allow."""
    outer = {"name": "outer", "hosts": 16, "container": True}
    outer = client.post("/v1/allocations?wait=5", json=outer).json
    deployment.compute.limits["project"] = 10
    body = {"name": "a", "hosts": 11, "project_id": "project", "parent": outer["id"]}
    assert client.post("/v1/allocations", json=body).json["largest_fit"] == 10
    for host in outer["hosts"][3:]:
        path = f"/v1/fabrics/main/hosts/{host['name']}"
        assert client.patch(path, json={"traits": ["HW_GPU"]}).status_code == 200
    body["constraints"] = {"traits": ["HW_GPU"], "within": "leaf"}
    assert client.post("/v1/allocations", json=body).json["largest_fit"] == 4
    body = {"name": "a", "hosts": 11, "project_id": "project", "container": True}
    assert client.post("/v1/allocations", json=body).status_code == 202


def test_the_size_that_a_server_limit_allows_is_searched_within_the_budget(deployment):
    client = deployment.client(search_budget=1)
    deployment.compute.limits["project"] = 10
    body = {"name": "a", "hosts": 11, "project_id": "project"}
    refused = client.post("/v1/allocations", json=body).json
    assert (refused["code"], refused["largest_fit"], refused["cut_off"]) == ("quota", 0, True)


# -- dry runs -----------------------------------------------------------------------


def test_a_dry_run_tells_what_would_be_given_and_takes_nothing(client):
    body = {"name": "blue", "hosts": 6}
    before = client.get("/v1/fabrics/main").json
    dry = client.post("/v1/allocations", json={**body, "dry_run": True})
    assert dry.status_code == 200
    assert client.get("/v1/fabrics/main").json == before
    real = client.post("/v1/allocations", json=body).json
    for key in ("hosts", "leaf_links", "spine_links", "links", "shape", "policy", "project_id"):
        assert dry.json[key] == real[key]


def test_a_dry_run_is_refused_like_the_real_thing(client):
    body = {"name": "blue", "hosts": 40}
    dry = client.post("/v1/allocations", json={**body, "dry_run": True})
    real = client.post("/v1/allocations", json=body)
    dry.json.pop("request_id")
    assert dry.status_code == real.status_code == 409
    for key in ("code", "detail", "largest_fit"):
        assert dry.json[key] == real.json[key]


# -- idempotency ---------------------------------------------------------------------


def test_repeating_a_request_with_its_key_allocates_once(client):
    key = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
    body = {"name": "blue", "hosts": 6}
    first = client.post("/v1/allocations", json=body, headers=key)
    second = client.post("/v1/allocations", json=body, headers=key)
    assert first.status_code == second.status_code == 202
    assert first.json["id"] == second.json["id"]
    assert len(client.get("/v1/allocations").json["allocations"]) == 1


def test_a_key_belongs_to_one_request(client):
    key = {"Idempotency-Key": "k"}
    client.post("/v1/allocations", json={"name": "blue", "hosts": 6}, headers=key)
    other = client.post("/v1/allocations", json={"name": "blue", "hosts": 7}, headers=key)
    assert other.status_code == 422
    assert other.json["code"] == "idempotency_mismatch"


def test_a_refused_request_may_be_repeated_with_its_key(deployment, client, allocate):
    key = {"Idempotency-Key": "k"}
    blocker = allocate(32)["id"]
    body = {"name": "blue", "hosts": 6}
    assert client.post("/v1/allocations", json=body, headers=key).status_code == 409
    client.delete(f"/v1/allocations/{blocker}?wait=5")
    assert client.post("/v1/allocations", json=body, headers=key).status_code == 202


@pytest.fixture
def nested(client, allocate):
    """A request with a key inside a container that has been released since, and its answer."""
    outer = allocate(8, "outer", container=True)["id"]
    body = {"name": "inner", "hosts": 2, "parent": outer}
    body["constraints"] = {"avoid_hosts": ["node31", "node30"]}
    key = {"Idempotency-Key": "k"}
    first = client.post("/v1/allocations?wait=5", json=body, headers=key).json
    assert first["state"] == "active"
    for id in (first["id"], outer):
        assert client.delete(f"/v1/allocations/{id}?wait=5").json["state"] == "released"
    return body, first


def test_a_used_key_answers_before_the_request_is_checked(client, nested):
    body, first = nested
    new = client.post("/v1/allocations", json=body, headers={"Idempotency-Key": "new"})
    assert new.status_code == 400
    again = client.post("/v1/allocations", json=body, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json["id"]) == (202, first["id"])
    assert again.json["state"] == "released"


@pytest.mark.parametrize(
    "change",
    [
        {"hosts": 3},
        {"name": "x"},
        {"constraints": {}},
        {"constraints": {"avoid_hosts": ["node99"]}},
        {"policy": "no-such-policy"},
        {"fabric": "elsewhere"},
        {"hosts": 1000},
        {"parent": "nobody"},
        {"parent": None},
        {"duration": 60.0},
        {"wait": True},
        {"container": True},
    ],
)
def test_a_used_key_does_not_answer_another_request(client, nested, change):
    """Although the container that the first request named is released since."""
    body, _ = nested
    headers = {"Idempotency-Key": "k"}
    other = client.post("/v1/allocations", json={**body, **change}, headers=headers)
    assert (other.status_code, other.json["code"]) == (422, "idempotency_mismatch")
    again = client.post("/v1/allocations", json=body, headers=headers)
    assert again.status_code == 202


def test_a_used_key_refuses_another_request_after_its_fabric_has_gone(client, deployment):
    headers, body = {"Idempotency-Key": "k"}, {"name": "blue", "hosts": 6}
    id = client.post("/v1/allocations?wait=5", json=body, headers=headers).json["id"]
    same = client.post("/v1/allocations", json={**body, "fabric": "main"}, headers=headers)
    assert (same.status_code, same.json["id"]) == (202, id), "the default, by name"
    client.delete(f"/v1/allocations/{id}?wait=5")
    deployment.add_fabric("other")  # there is no default any more
    again = client.post("/v1/allocations", json=body, headers=headers)
    assert (again.status_code, again.json["id"]) == (202, id)
    other = client.post("/v1/allocations", json={**body, "hosts": 5}, headers=headers)
    assert (other.status_code, other.json["code"]) == (422, "idempotency_mismatch")


def test_a_used_key_is_answered_while_nova_cannot_be_asked(client, deployment, monkeypatch):
    headers, body = {"Idempotency-Key": "k"}, {"name": "blue", "hosts": 6}
    first = client.post("/v1/allocations", json=body, headers=headers).json
    monkeypatch.setattr(deployment.compute, "server_limit", pytest.fail)
    assert client.post("/v1/allocations", json=body, headers=headers).json["id"] == first["id"]


# -- versions ------------------------------------------------------------------------


def test_a_stale_version_changes_nothing(client, allocate):
    url = f"/v1/allocations/{allocate(2)['id']}"
    tag = client.get(url).headers["ETag"]
    assert client.patch(url, json={"name": "x"}, headers={"If-Match": tag}).status_code == 200
    late = client.patch(url, json={"name": "y"}, headers={"If-Match": tag})
    assert late.status_code == 412
    assert late.json["code"] == "precondition_failed"
    assert client.get(url).json["name"] == "x"
    assert client.delete(url, headers={"If-Match": tag}).status_code == 412
    assert client.get(url).json["state"] == "active"


@pytest.mark.parametrize(
    ("form", "status"),
    [
        *((form, 200) for form in ("{tag}", '"999", {tag}', "*")),
        *((form, 412) for form in ("W/{tag}", "nonsense", '"abc"', "")),
    ],
)
def test_forms_of_if_match(client, allocate, form, status):
    url = f"/v1/allocations/{allocate(2)['id']}"
    tag = client.get(url).headers["ETag"]
    given = {"If-Match": form.format(tag=tag)}
    assert client.patch(url, json={"name": "x"}, headers=given).status_code == status


# -- release -------------------------------------------------------------------------


def test_a_release_is_refused_while_servers_run(deployment, client, allocate):
    allocation = allocate(3)
    host = allocation["hosts"][0]["name"]
    deployment.compute.servers[host] = "local"
    url = f"/v1/allocations/{allocation['id']}"
    answer = client.delete(url)
    assert answer.status_code == 409
    assert answer.json["code"] == "hosts_busy"
    assert host in answer.json["detail"]
    assert client.get(url).json["state"] == "active"
    forced = client.delete(f"{url}?force=true")
    assert forced.status_code == 202
    assert forced.json["state"] == "releasing"


def test_a_stuck_release_can_be_forced(deployment, client, allocate):
    allocation = allocate(3)
    url = f"/v1/allocations/{allocation['id']}"
    client.delete(url)
    deployment.compute.servers[allocation["hosts"][0]["name"]] = "local"
    assert client.delete(url).status_code == 202
    assert not deployment.store.allocations.get(allocation["id"]).force
    assert client.delete(f"{url}?force=1").status_code == 202
    assert deployment.store.allocations.get(allocation["id"]).force


def test_releasing_twice_is_releasing_once(deployment, client, allocate):
    url = f"/v1/allocations/{allocate(3)['id']}"
    first, second = client.delete(url), client.delete(url)
    assert first.json == second.json
    deployment.converge()
    third = client.delete(url)
    assert third.status_code == 202
    assert third.json["state"] == "released"


def test_servers_elsewhere_do_not_matter(deployment, client, allocate):
    blue, red = allocate(3), allocate(3)
    deployment.compute.servers[red["hosts"][0]["name"]] = "local"
    assert client.delete(f"/v1/allocations/{blue['id']}").status_code == 202


def test_when_compute_cannot_tell_nothing_changes(deployment, client, allocate):
    url = f"/v1/allocations/{allocate(3)['id']}"
    deployment.compute.faults.before["occupants"] = Unavailable("placement did not answer")
    answer = client.delete(url)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert client.get(url).json["state"] == "active"


def test_an_allocation_that_is_in_error_can_be_released(deployment, client):
    id = client.post("/v1/allocations", json={"name": "blue", "hosts": 2}).json["id"]
    deployment.store.allocations.transition(
        deployment.store.allocations.get(id), State.ERROR, "why", error="why"
    )
    assert client.delete(f"/v1/allocations/{id}").json["state"] == "releasing"


def test_a_worker_that_moves_the_record_meanwhile_does_not_disturb(deployment, client):
    """The release reads version 1; the worker makes the allocation active before the write."""
    id = client.post("/v1/allocations", json={"name": "blue", "hosts": 2}).json["id"]
    real = deployment.compute.occupants
    raced: list[bool] = []

    def occupants(hosts):
        if not raced:
            raced.append(True)
            deployment.converge()
        return real(hosts)

    deployment.compute.occupants = occupants
    assert client.delete(f"/v1/allocations/{id}").status_code == 202
    assert raced


def test_a_rename_survives_a_worker_that_is_faster(deployment, client):
    url = f"/v1/allocations/{client.post('/v1/allocations', json=BLUE).json['id']}"
    real = deployment.store.allocations.rename
    raced: list[bool] = []

    def rename(record, name, **by):
        if not raced:
            raced.append(True)
            deployment.converge()
        return real(record, name, **by)

    deployment.store.allocations.rename = rename
    renamed = client.patch(url, json={"name": "navy"}).json
    assert (renamed["name"], renamed["state"]) == ("navy", "active")


# -- lists ---------------------------------------------------------------------------


def test_pages_follow_each_other(client, allocate):
    ids = [allocate(1, name=f"t{i}")["id"] for i in range(5)]
    seen, url = [], "/v1/allocations?limit=2"
    sizes = []
    while url:
        page = client.get(url).json
        sizes.append(len(page["allocations"]))
        seen += [allocation["id"] for allocation in page["allocations"]]
        url = page["next"]
    assert seen == ids
    assert sizes == [2, 2, 1]


def test_released_ones_are_listed_when_asked_for(client, allocate):
    keep, gone = allocate(1)["id"], allocate(1)["id"]
    client.delete(f"/v1/allocations/{gone}?wait=5")

    def listed(query):
        return [a["id"] for a in client.get(f"/v1/allocations{query}").json["allocations"]]

    assert listed("") == [keep]
    assert listed("?state=released") == [gone]
    assert listed("?state=active&fabric=main") == [keep]
    assert listed("?fabric=other") == []
    assert listed("?project_id=other") == []


def test_a_page_may_start_after_one_that_was_released(client, allocate):
    ids = [allocate(1)["id"] for _ in range(3)]
    client.delete(f"/v1/allocations/{ids[0]}?wait=5")
    page = client.get(f"/v1/allocations?marker={ids[0]}").json
    assert [a["id"] for a in page["allocations"]] == ids[1:]


def test_an_unknown_marker_is_said(client):
    assert client.get("/v1/allocations?marker=nobody").status_code == 404


# -- allocations inside allocations ---------------------------------------------------


def test_a_container_and_who_is_inside(client, allocate):
    outer = allocate(16, "outer", container=True)
    assert (outer["container"], outer["parent"], outer["pkey"]) == (True, None, None)
    assert outer["state"] == "active"
    fits = client.get(f"/v1/fabrics/main/fit?hosts=16&parent={outer['id']}").json
    assert (fits["fits"], fits["largest_fit"]) == (True, 16)
    tried = client.post(
        "/v1/allocations",
        json={"name": "try", "hosts": 5, "parent": outer["id"], "dry_run": True},
    ).json
    assert (tried["parent"], tried["container"]) == (outer["id"], False)
    inner = allocate(8, "inner", parent=outer["id"], container=True)
    leaf = allocate(3, "leaf", parent=inner["id"], project_id="red")
    held = {host["index"] for host in outer["hosts"]}
    assert {host["index"] for host in leaf["hosts"]} < {h["index"] for h in inner["hosts"]} < held
    assert set(leaf["links"]) <= set(inner["links"]) <= set(outer["links"])
    owners = [host["owner"] for host in client.get("/v1/fabrics/main/hosts").json["hosts"]]
    assert [owners.count(one["id"]) for one in (outer, inner, leaf)] == [8, 5, 3]
    assert client.get("/v1/fabrics/main/utilization").json["hosts"]["allocated"] == 16
    refused = client.post(
        "/v1/allocations", json={"name": "more", "hosts": 9, "parent": outer["id"]}
    )
    assert refused.status_code == 409
    assert refused.json["largest_fit"] == 8


def test_a_container_is_released_after_who_is_inside(client, allocate, deployment):
    outer = allocate(16, "outer", container=True)
    inner = allocate(4, "inner", parent=outer["id"])
    for force in ("", "?force=true"):
        answer = client.delete(f"/v1/allocations/{outer['id']}{force}")
        assert answer.status_code == 409
        assert f"release them first: {inner['id']}" in answer.json["detail"]
    client.delete(f"/v1/allocations/{inner['id']}")
    assert client.delete(f"/v1/allocations/{outer['id']}").status_code == 409  # still releasing
    deployment.converge()
    assert client.delete(f"/v1/allocations/{outer['id']}").status_code == 202
    deployment.converge()
    assert client.get("/v1/fabrics/main").json["hosts"]["free"] == 32


def test_who_waits_inside_does_not_hold_up_who_is_outside(client, allocate, deployment):
    outer = allocate(8, "outer", container=True)
    first = allocate(8, "first", parent=outer["id"])
    body = {"name": "q", "hosts": 4, "parent": outer["id"], "wait": True}
    queued = client.post("/v1/allocations", json=body).json
    assert (queued["state"], queued["position"]) == ("queued", 1)
    never = client.post("/v1/allocations", json={**body, "hosts": 9})
    assert "would wait for ever" in never.json["detail"]
    assert allocate(4, "outside")["state"] == "active"
    client.delete(f"/v1/allocations/{first['id']}")
    deployment.converge()
    assert deployment.serve_queues() == 1
    shown = client.get(f"/v1/allocations/{queued['id']}").json
    assert shown["state"] == "allocating"
    assert shown["parent"] == outer["id"]


def test_the_project_that_an_administrator_names_is_checked_or_said_not_to_be(deployment):
    """The fake of Keystone knows ``known``, and refuses ``gone``."""

    class Keystone:
        def check(self, project):
            if project == "gone":
                raise InvalidInput("project_id", project, "Keystone has no such project")
            return project == "known"

    deployment.projects = Keystone()
    client = deployment.client()

    def ask(project):
        return client.post(
            "/v1/allocations", json={"name": project, "hosts": 1, "project_id": project}
        )

    refused = ask("gone")
    assert refused.status_code == 400
    assert refused.json["errors"][0]["field"] == "project_id"
    assert ask("known").json["history"][0]["reason"] == "claimed 1 hosts"
    unknown = ask("unknown").json["history"][0]["reason"]
    assert unknown == "claimed 1 hosts; nobody checked that project unknown exists"
