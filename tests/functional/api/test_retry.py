# SPDX-License-Identifier: Apache-2.0

import re
from datetime import UTC, datetime

import pytest

from laas_service.adapters.db.leases import SqlLeases
from laas_service.app.lifecycle import State
from laas_service.app.records import Drift
from laas_service.messages import Applied, Span

SOON = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def waiting(client, deployment):
    """The id of an allocation whose last step failed."""
    id = client.post("/v1/allocations", json={"name": "blue", "hosts": 4}).json["id"]
    deployment.store.allocations.postpone(id, SOON, "Nova is away")
    return id


def test_progress_says_what_comes_next_and_when(client, deployment, waiting):
    shown = client.get(f"/v1/allocations/{waiting}").json
    assert shown["error"] == "Nova is away"
    assert shown["progress"] == {
        "next_step": "publish routes",
        "failures": 1,
        "next_try": "2030-01-01T00:00:00Z",
        "generation_wanted": deployment.store.allocations.get(waiting).generation,
        "generation_seen": None,
    }
    SqlLeases(deployment.engine).take("main", "node1/7", 3600)
    generation = deployment.store.fabrics.get("main").routes_generation
    deployment.store.observations.note_applied("main", Applied(generation))
    progress = client.get(f"/v1/allocations/{waiting}").json["progress"]
    assert (progress["next_step"], progress["generation_seen"]) == ("hand over", generation)
    deployment.store.observations.note_applied("main", Applied(None, "OpenSM does not run"))
    routing = client.get("/v1/fabrics/main/routing").json
    assert (routing["generation"], routing["worker"]["generation"]) == (generation, None)
    assert routing["worker"]["name"] == "node1/7"
    assert routing["worker"]["problem"] == "OpenSM does not run"
    assert routing["worker"]["until"]


def test_where_nothing_is_to_be_done_progress_says_so(client, deployment, waiting):
    deployment.converge()
    progress = client.get(f"/v1/allocations/{waiting}").json["progress"]
    assert (progress["next_step"], progress["failures"], progress["next_try"]) == (None, 0, None)
    assert client.get("/v1/fabrics/main/routing").json["worker"]["name"] is None


def test_retry_takes_the_next_step_now(client, deployment, waiting):
    woken = deployment.woken
    answer = client.post(f"/v1/allocations/{waiting}/retry")
    assert (answer.status_code, answer.json["state"]) == (202, "allocating")
    assert (answer.json["error"], answer.json["progress"]["next_try"]) == (None, None)
    assert answer.json["history"][-1]["reason"].startswith("retry asked for by")
    assert deployment.woken > woken
    assert deployment.store.allocations.due(datetime(2026, 1, 1, tzinfo=UTC)) == [waiting]
    assert client.post(f"/v1/allocations/{waiting}/retry").status_code == 200


def test_retry_goes_on_where_it_was_parked(client, deployment, waiting):
    store = deployment.store
    store.allocations.transition(
        store.allocations.get(waiting), State.ERROR, "parked", error="a bug"
    )
    assert client.get(f"/v1/allocations/{waiting}").json["state"] == "error"
    assert 'laas_allocations{fabric="main",state="error"} 1.0' in client.get("/metrics").text
    stale = {"If-Match": '"1"'}
    assert client.post(f"/v1/allocations/{waiting}/retry", headers=stale).status_code == 412
    answer = client.post(f"/v1/allocations/{waiting}/retry?wait=5")
    assert (answer.status_code, answer.json["state"]) == (202, "active")


def test_what_holds_the_worker_up_is_shown_and_a_retry_is_seen(client, deployment, allocate):
    """A step that hangs has not failed: without this, nothing would be said about it."""
    held, why = SqlLeases(deployment.engine), "the worker has waited for 31 s: list aggregates"
    lease = held.take("main", "node1/7", 3600)
    assert lease is not None
    rest = allocate(2, name="rest")["id"]
    id = client.post("/v1/allocations", json={"name": "blue", "hosts": 4}).json["id"]
    assert client.get(f"/v1/allocations/{id}").json["error"] is None
    assert client.post(f"/v1/allocations/{id}/retry").status_code == 200
    held.renew(lease, 3600, why)
    listed = client.get("/v1/allocations").json["allocations"]
    assert {one["id"]: one["error"] for one in listed} == {rest: None, id: why}
    assert client.get("/v1/fabrics/main/routing").json["worker"]["waits_for"] == why
    woken = deployment.woken
    answer = client.post(f"/v1/allocations/{id}/retry")
    assert (answer.status_code, answer.json["error"]) == (202, why)
    assert answer.json["history"][-1]["reason"].startswith("retry asked for by")
    assert deployment.woken > woken
    held.renew(lease, 3600)
    assert client.get(f"/v1/allocations/{id}").json["error"] is None
    held.renew(lease, 3600, why)
    held.give_back(lease)
    assert client.get(f"/v1/allocations/{id}").json["error"] is None


def test_there_is_nothing_to_retry_in_a_queue_or_after_the_end(client, deployment, allocate):
    id = allocate(4)["id"]
    deployment.converge()
    client.delete(f"/v1/allocations/{id}")
    deployment.converge()
    answer = client.post(f"/v1/allocations/{id}/retry")
    assert (answer.status_code, answer.json["code"]) == (409, "conflict")
    assert client.post("/v1/allocations/nobody/retry").status_code == 404


def test_where_the_time_of_allocations_goes_is_measured(client, deployment, allocate):
    SqlLeases(deployment.engine).take("main", "node1/7", 3600)
    told = client.get("/metrics").text
    assert 'laas_allocations_activated_total{fabric="main"} 0.0' in told
    for span in Span:
        assert f'laas_allocation_seconds_total{{fabric="main",span="{span.value}"}} 0.0' in told
    id = allocate(4)["id"]
    deployment.converge()
    history = client.get(f"/v1/allocations/{id}/history").json["history"]
    waited = sum(event["seconds"].get("wait", 0.0) for event in history)
    told = client.get("/metrics").text
    assert 'laas_allocations_activated_total{fabric="main"} 1.0' in told
    (line,) = re.findall(r'laas_allocation_seconds_total{fabric="main",span="wait"} (.*)', told)
    assert float(line) == pytest.approx(waited, abs=0.002)


def test_what_workers_saw_is_measured(client, deployment):
    SqlLeases(deployment.engine).take("main", "node1/7", 3600)
    deployment.store.observations.note_drift("main", Drift.ROUTES, "another engine")
    deployment.store.observations.note_drift("main", Drift.ROUTES, "another engine")
    told = client.get("/metrics").text
    assert 'laas_drift_total{fabric="main",kind="routes"} 2.0' in told
    assert 'laas_drift_total{fabric="main",kind="hosts"} 0.0' in told
    assert 'laas_drift_repaired_total{fabric="main",kind="routes"} 0.0' in told
    assert 'laas_fabric_routes_current{fabric="main"} 0.0' in told
    assert 'laas_fabric_taken_total{fabric="main"} 1.0' in told
    assert 'laas_worker_stuck_total{fabric="main"} 0.0' in told
    assert "laas_fabric_compared_seconds{" not in told
    deployment.store.observations.note_compared("main")
    assert 'laas_fabric_compared_seconds{fabric="main"} ' in client.get("/metrics").text
    generation = deployment.store.fabrics.get("main").routes_generation
    deployment.store.observations.note_applied("main", Applied(generation))
    assert 'laas_fabric_routes_current{fabric="main"} 1.0' in client.get("/metrics").text
    deployment.store.observations.note_applied("main", Applied(None, "OpenSM does not run"))
    deployment.store.observations.note_applied("main", Applied(generation))
    told = client.get("/metrics").text
    assert 'laas_drift_repaired_total{fabric="main",kind="routes"} 1.0' in told
