# SPDX-License-Identifier: Apache-2.0

"""Other hosts in place of failed or named ones: steps, way back, refusals, constraints."""

from __future__ import annotations

import pytest

from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.domain.verification import isolation_violations, shape_violations
from tests.functional.api.test_resize import HOSTS, names, story
from tests.functional.api.test_resize import active as active
from tests.functional.api.test_resize import work as work
from tests.functional.api.test_tenants import ask as ask

LINKS = "/v1/fabrics/main/links"


@pytest.fixture
def replace(client):
    """Ask for other hosts of an allocation."""

    def asked(path, **body):
        return client.post(f"{path}/replace-hosts", json=body)

    return asked


@pytest.fixture
def fail(client):
    def failed(*hosts, state="failed"):
        for host in hosts:
            assert client.patch(f"{HOSTS}/{host}", json={"state": state}).status_code == 200

    return failed


@pytest.fixture
def judged(deployment):
    """Check the ledger: what everybody holds is apart, legal, and in Nova."""

    def check():
        records = [r for r in deployment.store.allocations.page() if r.placed is not None]
        topology = deployment.store.fabrics.get("main").topology
        assert isolation_violations(topology, [r.held for r in records]) == []
        assert [v for r in records for v in shape_violations(topology, r.placed)] == []

    yield check
    check()


def owned(client, path):
    id = path.rsplit("/", 1)[1]
    return sorted(host["name"] for host in client.get(f"{HOSTS}?owner={id}").json["hosts"])


def test_a_failed_host_is_replaced(client, deployment, active, work, replace, fail, judged):
    path = active(3)
    before = client.get(path).json
    dead, *alive = names(before)
    assert replace(path).status_code == 200, "none has failed"
    assert client.get(path).json["version"] == before["version"]
    fail(dead)
    record = deployment.store.allocations.get(before["id"])
    SqlQuotas(deployment.engine).set(record.project_id, 3, None)
    deployment.compute.servers[dead] = record.project_id
    begun = replace(path)
    assert (begun.status_code, begun.json["changing"]) == (202, "prepare")
    assert begun.json["leaving"] == [dead]
    (new,) = begun.json["joining"]
    again = replace(path)
    assert (again.status_code, again.json["version"]) == (202, begun.json["version"])
    judged()
    work()
    waits = client.get(path).json
    assert waits["changing"] == "leave"
    assert f"servers still run on {dead}" in waits["error"]
    assert deployment.compute.accepts(new) == {record.project_id}
    assert deployment.compute.accepts(dead) == set()
    assert owned(client, path) == sorted([*names(before), new])
    judged()
    del deployment.compute.servers[dead]
    work()
    after = client.get(path).json
    assert (after["changing"], after["error"], after["degraded"]) == (None, None, None)
    assert owned(client, path) == sorted(names(after)) == sorted([*alive, new])
    assert after["requested"] == deployment.store.allocations.get(before["id"]).hosts == 3
    assert after["pkey"] == before["pkey"]
    told = next(line for line in story(client, path) if line.startswith("other hosts asked for"))
    assert "1 host join, 1 host leave" in told
    assert replace(path).status_code == 200
    assert dead not in {h["name"] for h in client.get(f"{HOSTS}?free=true").json["hosts"]}


def test_named_hosts_and_a_dry_run(client, active, work, replace, judged):
    path = active(4)
    before = client.get(path).json
    shown = replace(path, hosts=[names(before)[0]], dry_run=True)
    assert shown.status_code == 200
    assert names(before)[0] in shown.json["leaving"]
    assert len(shown.json["joining"]) == len(shown.json["leaving"])
    assert client.get(path).json == before
    begun = replace(path, hosts=[names(before)[0]])
    assert begun.json["leaving"] == shown.json["leaving"]
    work()
    assert sorted(names(client.get(path).json)) == sorted(names(shown.json))
    wrong = replace(path, hosts=[names(before)[0]])
    assert (wrong.status_code, wrong.json["errors"][0]["field"]) == (400, "hosts")


def owned_links(client, path):
    id = path.rsplit("/", 1)[1]
    return {link["id"] for link in client.get(f"{LINKS}?owner={id}").json["links"]}


def test_the_links_that_join_old_and_new_hosts_are_shown(client, active, work, replace, judged):
    path = active(4)
    hosts = names(client.get(path).json)
    shown = replace(path, hosts=hosts, dry_run=True).json["bridge"]
    begun = replace(path, hosts=hosts).json
    assert begun["bridge"] == shown != []
    assert set(shown) <= owned_links(client, path)
    told = next(line for line in story(client, path) if line.startswith("other hosts asked for"))
    assert told.endswith(f"links {', '.join(shown)} join old and new hosts meanwhile")
    work()
    after = client.get(path).json
    assert (after["changing"], after["bridge"]) == (None, [])
    assert owned_links(client, path).isdisjoint(shown)


def test_no_free_links_join_old_and_new_hosts(client, active, replace, judged):
    path = active(4)
    hosts, held = names(client.get(path).json), owned_links(client, path)
    for link in client.get(LINKS).json["links"]:
        if link["id"] not in held:
            failed = client.patch(f"{LINKS}/{link['id']}", json={"state": "failed"})
            assert failed.status_code == 200
    assert replace(path, hosts=hosts, dry_run=True).json["bridge"] is None
    begun = replace(path, hosts=hosts).json
    assert (begun["changing"], begun["bridge"]) == ("stop", None)
    told = next(line for line in story(client, path) if line.startswith("other hosts asked for"))
    assert told.endswith("no free links join old and new hosts, so servers stop before they leave")


def test_a_replacement_turns_back(client, deployment, active, work, replace, judged):
    path = active(3)
    before = client.get(path).json
    assert replace(path, turn_back=True).status_code == 409
    replace(path, hosts=[names(before)[1]])
    assert replace(path, hosts=[names(before)[0]]).status_code == 409
    deployment.compute.servers[names(before)[1]] = before["project_id"]
    work()
    back = replace(path, turn_back=True)
    assert (back.status_code, back.json["changing"]) == (202, "enter")
    work()
    after = client.get(path).json
    assert (names(after), after["changing"]) == (names(before), None)
    assert owned(client, path) == sorted(names(before))
    assert deployment.compute.accepts(names(before)[1]) == {before["project_id"]}
    for body in ({"hosts": names(before)[:1]}, {"dry_run": True}):
        assert replace(path, turn_back=True, **body).status_code == 400


def test_without_room_the_refusal_says_what_would_fit(client, active, replace, fail, judged):
    path = active(4)
    held = names(client.get(path).json)
    fail(*(f"node{host:02}" for host in range(32) if f"node{host:02}" not in held), state="drained")
    fail(held[0])
    refused = replace(path)
    assert (refused.status_code, refused.json["code"]) == (409, "too_few_hosts")
    assert refused.json["largest_fit"] == 3
    assert "3 hosts would fit" in refused.json["detail"]
    dry = replace(path, dry_run=True)
    assert (dry.status_code, dry.json["detail"]) == (409, refused.json["detail"])
    assert client.get(path).json["changing"] is None


def test_constraints_hold_and_all_hosts_may_go_to_another_leaf(
    client, active, work, replace, fail, judged
):
    path = active(4, constraints={"within": "leaf"})
    before = names(client.get(path).json)
    fail(before[0])
    begun = replace(path)
    assert begun.status_code == 202, begun.text
    work()
    after = names(client.get(path).json)
    assert set(after).isdisjoint(before)
    assert len({int(name[4:]) // 4 for name in after}) == 1


def test_a_host_without_the_trait_is_no_replacement(client, active, work, replace, fail):
    for host in (0, 1, 2, 8):
        client.patch(f"{HOSTS}/node{host:02}", json={"traits": ["HW_GPU"]})
    path = active(3, constraints={"traits": ["HW_GPU"], "within": "leaf"})
    fail("node01")
    refused = replace(path)
    assert (refused.status_code, refused.json["code"]) == (409, "constraint")
    assert refused.json["largest_fit"] == 2
    client.patch(f"{HOSTS}/node03", json={"traits": ["HW_GPU"]})
    assert replace(path).json["joining"] == ["node03"]


def test_inside_a_container_the_new_host_is_one_of_it(client, active, work, replace, fail):
    outer = active(8, name="outer", container=True)
    path = active(3, name="in", parent=outer.rsplit("/", 1)[1])
    fail(names(client.get(path).json)[0])
    assert set(replace(path).json["joining"]) <= set(names(client.get(outer).json))
    work()
    assert client.get(path).json["degraded"] is None
    assert replace(outer).status_code == 409


@pytest.mark.parametrize(
    ("token", "status"), [("admin", 202), ("blue", 202), ("watch", 403), ("red", 404)]
)
def test_who_may_replace_hosts(ask, client, deployment, active, token, status):
    path = active(3)
    host = names(client.get(path).json)[0]
    with deployment.engine.begin() as connection:
        connection.exec_driver_sql("update allocation set project_id = 'blue'")
    assert ask(token, "POST", f"{path}/replace-hosts", json={"hosts": [host]}).status_code == status
