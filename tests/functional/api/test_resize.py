# SPDX-License-Identifier: Apache-2.0

"""Another size of an active allocation: in place, with dry runs, quotas and the way back."""

from __future__ import annotations

from random import Random

import pytest

from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.app.lifecycle import State
from laas_service.domain.errors import Unavailable
from tests.convergers import Convergers
from tests.functional.api.test_tenants import ask as ask

pytestmark = pytest.mark.road

HOSTS = "/v1/fabrics/main/hosts"


@pytest.fixture
def work(deployment):
    """Let a worker take all steps; servers and schedulers are those of the fake Nova."""

    def run():
        deployment.slept += 600
        worker = Convergers(
            deployment.store,
            deployment.compute,
            deployment.subnet_manager,
            now=deployment.clock,
            chance=Random(1),
        )
        for _ in range(8):  # what waits for a server to go waits for ever
            worker.run_once()
            deployment.slept += 60

    return run


@pytest.fixture
def active(client, work):
    """Allocate hosts and let the worker hand them over; return the path."""

    def make(hosts, name="blue", **more):
        made = client.post("/v1/allocations", json={"name": name, "hosts": hosts, **more})
        assert made.status_code == 202, made.text
        work()
        assert client.get(f"/v1/allocations/{made.json['id']}").json["state"] == "active"
        return f"/v1/allocations/{made.json['id']}"

    return make


def names(document):
    return [host["name"] for host in document["hosts"]]


def story(client, path):
    return [event["reason"] for event in client.get(path).json["history"]]


def test_an_allocation_grows_and_keeps_its_hosts(client, deployment, active, work):
    path = active(3)
    before = client.get(path).json
    begun = client.patch(path, json={"hosts": 6})
    assert (begun.status_code, begun.json["changing"]) == (202, "prepare")
    assert (begun.json["requested"], begun.json["leaving"]) == (6, [])
    assert set(begun.json["joining"]) == set(names(begun.json)) - set(names(before))
    assert begun.headers["ETag"] == f'"{before["version"] + 1}"'
    again = client.patch(path, json={"hosts": 6})
    assert (again.status_code, again.json["version"]) == (202, begun.json["version"])
    assert set(deployment.compute.aggregates[before["id"]].hosts) == set(names(before))
    work()
    after = client.get(path).json
    assert (after["changing"], after["joining"], after["leaving"]) == (None, [], [])
    assert set(names(before)) < set(names(after))
    assert len(names(after)) == after["requested"] == 6
    assert set(deployment.compute.aggregates[before["id"]].hosts) == set(names(after))
    assert after["pkey"] == before["pkey"]
    told = story(client, path)
    assert told[-5].startswith("resize from 3 to 6 hosts asked for by")
    assert told[-5].endswith("3 hosts join")
    assert told[-2] == "3 hosts handed over"
    assert client.patch(path, json={"hosts": 6}).status_code == 200


def test_hosts_are_given_back_once_they_are_empty(client, deployment, active, work):
    path = active(6)
    held = names(client.get(path).json)
    deployment.compute.servers[held[0]] = client.get(path).json["project_id"]
    begun = client.patch(path, json={"hosts": 4})
    assert (begun.status_code, len(begun.json["leaving"])) == (202, 2)
    leaving = begun.json["leaving"]
    assert held[0] not in leaving
    deployment.compute.servers[leaving[0]] = client.get(path).json["project_id"]
    work()
    waits = client.get(path).json
    assert waits["changing"] == "leave"
    assert f"servers still run on {leaving[0]}" in waits["error"]
    assert deployment.compute.accepts(leaving[0]) == set()
    owned = client.get(f"{HOSTS}?owner={waits['id']}").json["hosts"]
    assert len(owned) == 6
    del deployment.compute.servers[leaving[0]]
    work()
    after = client.get(path).json
    assert (after["changing"], after["error"]) == (None, None)
    assert sorted(names(after)) == sorted(set(held) - set(leaving))
    owned = client.get(f"{HOSTS}?owner={waits['id']}").json["hosts"]
    assert sorted(host["name"] for host in owned) == sorted(names(after))
    assert story(client, path)[-2].startswith("2 hosts taken back")


def test_named_hosts_are_given_back(client, deployment, active, work):
    path = active(6)
    held = names(client.get(path).json)
    body = {"hosts": 5, "give_back": [held[2]]}
    deployment.compute.servers[held[2]] = "somebody"
    refused = client.patch(path, json=body)
    assert (refused.status_code, refused.json["code"]) == (409, "hosts_busy")
    assert held[2] in refused.json["detail"]
    del deployment.compute.servers[held[2]]
    assert client.patch(path, json=body).json["leaving"] == [held[2]]
    work()
    assert set(names(client.get(path).json)) == set(held) - {held[2]}


def test_without_enough_empty_hosts_the_refusal_says_which_to_empty(client, deployment, active):
    path = active(4)
    for name in names(client.get(path).json)[:3]:
        deployment.compute.servers[name] = "somebody"
    refused = client.patch(path, json={"hosts": 2})
    assert (refused.status_code, refused.json["code"]) == (409, "hosts_busy")
    assert "1 of 4 have none; delete or move the servers on 1 of node00" in refused.json["detail"]
    deployment.compute.faults.before["occupants"] = Unavailable("Nova is away")
    assert client.patch(path, json={"hosts": 2}).status_code == 503
    assert client.get(path).json["changing"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"hosts": 2, "give_back": ["elsewhere"]}, "give_back"),
        ({"hosts": 1, "give_back": ["node00", "node01"]}, "give_back"),
        ({"hosts": 9, "give_back": ["node00"]}, "give_back"),
    ],
)
def test_wrong_hosts_to_give_back(client, active, body, field):
    path = active(4)
    answer = client.patch(path, json=body)
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field)
    assert client.get(path).json["changing"] is None


def test_a_dry_run_changes_nothing(client, active):
    path = active(3)
    before = client.get(path).json
    shown = client.patch(path, json={"hosts": 6, "dry_run": True})
    assert shown.status_code == 200
    assert (shown.json["requested"], shown.json["dry_run"]) == (6, True)
    assert set(shown.json["joining"]) == set(names(shown.json)) - set(names(before))
    assert len(shown.json["joining"]) == 3
    less = client.patch(path, json={"hosts": 2, "dry_run": True}).json
    assert (len(less["leaving"]), less["joining"]) == (1, [])
    assert client.get(path).json == before


def test_a_refusal_says_what_fits_in_place_and_by_moving(client, active):
    """Two tenants share a leaf, and free hosts are in the other pod: one could move there."""
    path = active(2)
    other = active(2, name="red")
    assert {name[:5] for name in names(client.get(path).json)} == {"node0"}
    assert names(client.get(other).json) == ["node02", "node03"]
    for host in range(4, 32):
        if host not in (16, 17, 18, 19):
            client.patch(f"{HOSTS}/node{host:02}", json={"state": "drained"})
    refused = client.patch(path, json={"hosts": 4})
    dry = client.patch(path, json={"hosts": 4, "dry_run": True})
    for answer in (refused, dry):
        assert (answer.status_code, answer.json["code"]) == (409, "no_legal_shape"), answer.json
        assert answer.json["largest_fit"] == 2
        assert answer.json["by_moving"] == {"moves": ["node00", "node01"], "new_hosts": 4}
    assert client.get(path).json["changing"] is None
    many = client.patch(path, json={"hosts": 33})
    assert (many.json["code"], many.json.get("by_moving")) == ("too_few_hosts", None)


def test_a_change_turns_back_when_the_old_size_is_asked_for(client, deployment, active, work):
    path = active(3)
    before = client.get(path).json
    client.patch(path, json={"hosts": 6})
    wrong = client.patch(path, json={"hosts": 5})
    assert (wrong.status_code, wrong.json["code"]) == (409, "conflict")
    assert "ask for 3 hosts to turn back" in wrong.json["detail"]
    back = client.patch(path, json={"hosts": 3})
    assert (back.status_code, back.json["changing"]) == (202, "withdraw")
    assert "called off by" in back.json["history"][-1]["reason"]
    assert client.patch(path, json={"hosts": 6}).status_code == 409  # too late for this one
    work()
    after = client.get(path).json
    assert (names(after), after["links"]) == (names(before), before["links"])
    assert deployment.store.allocations.get(before["id"]).hosts == 3


def test_new_hosts_that_cannot_be_used_turn_the_change_back(client, deployment, active, work):
    path = active(3)
    before = client.get(path).json
    joining = client.patch(path, json={"hosts": 6}).json["joining"]

    class Memory:
        def withheld(self):
            return {joining[0]: (None, "disabled in Nova")}

        def problem(self, host):
            return ""

    deployment.store.faults.host_memory = lambda fabric: Memory()
    work()
    after = client.get(path).json
    assert (names(after), after["changing"]) == (names(before), None)
    words = f"the new placement cannot be used: {joining[0]} (disabled in Nova)"
    assert any(words in line for line in story(client, path))


def test_growth_counts_against_the_quota_from_its_beginning(deployment, client, active, work):
    path = active(3)
    record = deployment.store.allocations.get(path.rsplit("/", 1)[1])
    SqlQuotas(deployment.engine).set(record.project_id, 5, None)
    for body in ({"hosts": 6}, {"hosts": 6, "dry_run": True}):
        refused = client.patch(path, json=body)
        assert (refused.status_code, refused.json["code"]) == (403, "quota_exceeded")
    assert client.patch(path, json={"hosts": 5}).status_code == 202
    work()
    assert client.patch(path, json={"hosts": 2}).status_code == 202
    assert deployment.store.allocations.get(record.id).hosts == 5, "what it still has counts"
    work()
    assert deployment.store.allocations.get(record.id).hosts == 2


def test_no_more_hosts_than_servers_in_nova(deployment, client, active):
    path = active(3)
    project = client.get(path).json["project_id"]
    deployment.compute.limits[project] = 4
    refused = client.patch(path, json={"hosts": 5})
    assert (refused.status_code, refused.json["code"]) == (409, "quota")
    assert client.patch(path, json={"hosts": 4}).status_code == 202


def test_wrong_times_and_versions(client, deployment, active, work):
    made = client.post("/v1/allocations", json={"name": "a", "hosts": 4}).json
    path = f"/v1/allocations/{made['id']}"
    early = client.patch(path, json={"hosts": 5})
    assert (early.status_code, early.json["code"]) == (409, "conflict")
    work()
    version = client.get(path).json["version"]
    stale = client.patch(path, json={"hosts": 5}, headers={"If-Match": f'"{version - 1}"'})
    assert stale.status_code == 412
    box = active(4, name="box", container=True)
    answer = client.patch(box, json={"hosts": 5})
    assert (answer.status_code, "container" in answer.json["detail"]) == (409, True)
    assert client.patch("/v1/allocations/absent", json={"hosts": 5}).status_code == 404
    fresh = client.patch(path, json={"hosts": 5}, headers={"If-Match": f'"{version}"'})
    assert fresh.status_code == 202


def test_inside_a_container_an_allocation_grows_within_it(client, active, work):
    outer = active(8, name="outer", container=True)
    path = active(3, name="in", parent=outer.rsplit("/", 1)[1])
    held = set(names(client.get(outer).json))
    assert client.patch(path, json={"hosts": 9}).json["largest_fit"] == 8
    assert client.patch(path, json={"hosts": 8}).status_code == 202
    work()
    assert set(names(client.get(path).json)) == held


def test_a_release_ends_a_change_of_size(client, deployment, active, work):
    path = active(3)
    assert client.patch(path, json={"hosts": 6}).status_code == 202
    assert client.delete(path).status_code == 202
    work()
    assert client.get(path).json["state"] == State.RELEASED.value
    assert deployment.store.fabrics.ledger("main")[0].free_host_count == 32
    assert deployment.compute.aggregates == {}


def test_constraints_hold_for_new_hosts(client, active, work):
    for host in (0, 1, 2, 3, 8):
        client.patch(f"{HOSTS}/node{host:02}", json={"traits": ["HW_GPU"]})
    path = active(2, constraints={"traits": ["HW_GPU"], "within": "leaf"})
    refused = client.patch(path, json={"hosts": 5})
    assert refused.json["code"] == "constraint", refused.json
    assert "constraints" in refused.json["detail"]
    assert client.patch(path, json={"hosts": 4}).status_code == 202
    work()
    assert names(client.get(path).json) == ["node00", "node01", "node02", "node03"]


@pytest.mark.parametrize(
    ("token", "status"), [("admin", 202), ("blue", 202), ("watch", 403), ("red", 404)]
)
def test_who_may_resize(ask, deployment, active, token, status):
    path = active(3)
    with deployment.engine.begin() as connection:
        connection.exec_driver_sql("update allocation set project_id = 'blue'")
    assert ask(token, "PATCH", path, json={"hosts": 4}).status_code == status


@pytest.mark.parametrize(
    ("field", "value"), [("name", "b"), ("movable", "live"), ("notice", 60.0), ("move_cost", 2.5)]
)
def test_a_resize_names_what_needs_a_request_of_its_own(client, field, value):
    made = client.post("/v1/allocations?wait=5", json={"name": "a", "hosts": 4}).json
    answer = client.patch(f"/v1/allocations/{made['id']}", json={"hosts": 6, field: value})
    assert answer.status_code == 400, answer.text
    detail = answer.json["detail"]
    assert detail == f"{field}: {value!r} is not valid; change it in a request without hosts"
