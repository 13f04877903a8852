# SPDX-License-Identifier: Apache-2.0

"""Room for a size that was refused: plans, consent, announcements, moves and their windows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from laas_service.domain.errors import Unavailable
from tests.functional.api.test_resize import active as active
from tests.functional.api.test_resize import names, story
from tests.functional.api.test_resize import work as work
from tests.functional.api.test_tenants import ask as ask

ROOM = "/v1/fabrics/main/make-room"
WANTED = {"hosts": 4, "constraints": {"within": "leaf"}}


@pytest.fixture
def crowded(active):
    """Eight tenants of three hosts, one on each leaf; one host of each leaf is free."""
    return [active(3, name=f"tenant{number}") for number in range(8)]


def consents(client, path, **given):
    answer = client.patch(path, json={"movable": "restart", **given})
    assert answer.status_code == 200, answer.text
    return answer.json


def test_a_refused_size_fits_after_one_move(client, deployment, crowded, work):
    assert client.post("/v1/allocations", json={"name": "new", **WANTED}).status_code == 409
    refused = client.post(ROOM, json=WANTED)
    assert (refused.status_code, refused.json["code"]) == (409, "constraint")
    mover = crowded[5]
    assert consents(client, mover, move_cost=2)["movable"] == "restart"
    before = client.get(mover).json
    plan = client.post(ROOM, json={**WANTED, "dry_run": True})
    assert plan.status_code == 200
    assert (plan.json["fits"], plan.json["moved_hosts"], plan.json["cost"]) == (False, 3, 6.0)
    (move,) = plan.json["moves"]
    assert (move["allocation"], move["announced"]) == (before["id"], False)
    assert move["leaving"] == names(before)
    assert (move["servers"], move["disk_gb"]) == (0, 0)
    assert client.get(mover).json == before
    begun = client.post(ROOM, json=WANTED)
    assert (begun.status_code, begun.json["moves"][0]["announced"]) == (202, True)
    told = client.get(mover).json
    assert told["announced"]["leaving"] == names(before)
    assert "a move to make room for 4 hosts is announced by" in story(client, mover)[-1]
    deployment.compute.servers[names(before)[0]] = before["project_id"]
    deployment.compute.broken.add(names(before)[0])
    work()
    waits = client.get(mover).json
    assert (waits["changing"], waits["announced"]) == ("leave", None)
    assert deployment.compute.accepts(names(before)[0]) == set()
    assert deployment.compute.accepts(waits["joining"][0]) == {before["project_id"]}
    del deployment.compute.servers[names(before)[0]]
    work()
    after = client.get(mover).json
    assert (after["changing"], names(after)) == (None, sorted(move["joining"]))
    assert client.post(ROOM, json=WANTED).json["fits"] is True
    assert client.post("/v1/allocations", json={"name": "new", **WANTED}).status_code == 202


def test_a_plan_tells_the_servers_and_the_disks_that_are_copied(client, deployment, crowded):
    consents(client, crowded[5])
    before = client.get(crowded[5]).json
    deployment.compute.servers |= dict.fromkeys(names(before)[:2], before["project_id"])
    (move,) = client.post(ROOM, json={**WANTED, "dry_run": True}).json["moves"]
    assert (move["servers"], move["disk_gb"]) == (2, 2 * deployment.compute.disk_gb)
    deployment.compute.faults.before["load"] = Unavailable("Nova is down")
    (move,) = client.post(ROOM, json={**WANTED, "dry_run": True}).json["moves"]
    assert (move["servers"], move["disk_gb"]) == (None, None)


def test_a_move_waits_for_its_notice_and_may_be_called_off(client, crowded, work):
    consents(client, crowded[0], notice=10**6)
    before = client.get(crowded[0]).json
    plan = client.post(ROOM, json=WANTED).json
    assert plan["moves"][0]["begins"] == client.get(crowded[0]).json["announced"]["begins"]
    work()
    waiting = client.get(crowded[0]).json
    assert (waiting["changing"], waiting["announced"] is None) == (None, False)
    events = len(story(client, crowded[0]))
    again = client.post(ROOM, json=WANTED)
    assert (again.status_code, again.json["id"]) == (202, plan["id"])
    assert len(story(client, crowded[0])) == events, "nobody is told twice"
    never = client.patch(crowded[0], json={"movable": "never"}).json
    assert (never["movable"], never["announced"]) == ("never", None)
    work()
    assert names(client.get(crowded[0]).json) == names(before)


def test_an_announced_move_is_called_off_when_its_hosts_are_taken(client, crowded, work):
    consents(client, crowded[0], notice=1000)
    joining = client.post(ROOM, json=WANTED).json["moves"][0]["joining"]
    for name in ("fast", "faster"):
        answer = client.post("/v1/allocations", json={"name": name, "hosts": 4})
        assert answer.status_code == 202
    for _ in range(2):
        work()
    shown = client.get(crowded[0]).json
    assert (shown["announced"], shown["changing"]) == (None, None)
    assert set(joining).isdisjoint(names(shown))
    assert "called off: its new hosts or links are no longer free" in story(client, crowded[0])[-1]


def test_a_tenant_that_does_not_leave_in_time_stays(client, deployment, crowded, work):
    consents(client, crowded[0])
    before = client.get(crowded[0]).json
    deployment.compute.servers[names(before)[1]] = before["project_id"]
    deployment.compute.broken.add(names(before)[1])
    client.post(ROOM, json=WANTED)
    work()
    deployment.slept += 4000
    work()
    after = client.get(crowded[0]).json
    assert (names(after), after["changing"]) == (names(before), None)
    assert deployment.compute.accepts(names(before)[1]) == {before["project_id"]}
    assert any(
        "the time to empty its old hosts is over" in line for line in story(client, crowded[0])
    )
    assert deployment.store.fabrics.ledger("main")[0].free_host_count == 8


def test_what_costs_too_much_stays_and_an_operator_may_override(client, crowded):
    for path in crowded:
        consents(client, path, move_cost=5)
    assert client.post(ROOM, json={**WANTED, "max_cost": 4}).status_code == 409
    assert client.post(ROOM, json={**WANTED, "max_cost": 5, "dry_run": True}).status_code == 200
    client.patch(crowded[0], json={"move_cost": 1})
    cheap = client.post(ROOM, json={**WANTED, "max_cost": 1, "dry_run": True}).json
    assert cheap["moves"][0]["name"] == "tenant0"
    for path in crowded:
        client.patch(path, json={"movable": "never"})
    assert client.post(ROOM, json=WANTED).status_code == 409
    forced = client.post(ROOM, json={**WANTED, "override": True, "dry_run": True})
    assert forced.status_code == 200


def test_servers_that_may_not_stop_keep_their_hosts(client, crowded):
    for path in crowded:
        consents(client, path, movable="live")
    assert client.post(ROOM, json=WANTED).status_code == 409
    consents(client, crowded[6])
    plan = client.post(ROOM, json={**WANTED, "dry_run": True}).json
    assert [move["name"] for move in plan["moves"]] == ["tenant6"]
    assert client.post(ROOM, json={**WANTED, "moves": 0, "override": True}).status_code == 409


def test_consent_at_creation(client, active):
    path = active(3, movable="live", notice=60, move_cost=0.5)
    shown = client.get(path).json
    assert (shown["movable"], shown["notice"], shown["move_cost"]) == ("live", 60, 0.5)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"movable": "often"}, "movable"),
        ({"notice": -1}, "notice"),
        ({"move_cost": -1}, "move_cost"),
        ({"movable": "live", "hosts": 4}, "movable"),
        ({"movable": "live", "name": "x"}, "name"),
    ],
)
def test_wrong_consent(client, active, body, field):
    answer = client.patch(active(3), json=body)
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field)


@pytest.mark.parametrize(("field", "value"), [("hosts", 0), ("moves", 5), ("max_cost", -1)])
def test_wrong_requests_for_room(client, field, value):
    answer = client.post(ROOM, json={"hosts": 4, field: value})
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field)


@pytest.mark.parametrize(("token", "status"), [("admin", 200), ("blue", 403), ("watch", 403)])
def test_who_may_make_room(ask, deployment, token, status):
    assert ask(token, "POST", ROOM, json={"hosts": 4}).status_code == status


@pytest.fixture
def willing(client, crowded):
    """The crowded fabric, where every tenant consents at the same cost, with notice."""
    for path in crowded:
        consents(client, path, notice=1000)
    return crowded


def told(client, crowded):
    """The names of the tenants that are told to move."""
    shown = [client.get(path).json for path in crowded]
    return [one["name"] for one in shown if one["announced"] is not None]


def ids(answers):
    return {answer.json["id"] for answer in answers}


def test_five_equal_requests_tell_one_tenant(client, willing):
    answers = [client.post(ROOM, json=WANTED) for _ in range(5)]
    assert {answer.status_code for answer in answers} == {202}
    assert len(told(client, willing)) == 1
    assert len(ids(answers)) == 1
    moves = {answer.json["moves"][0]["allocation"] for answer in answers}
    assert len(moves) == 1


def test_five_equal_requests_at_the_same_time_tell_one_tenant(deployment, client, willing):
    clients = [deployment.client() for _ in range(5)]
    together = threading.Barrier(len(clients), timeout=60)

    def ask(number):
        together.wait()
        return clients[number].post(ROOM, json=WANTED)

    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(ask, range(len(clients))))
    assert {answer.status_code for answer in answers} == {202}, [a.json for a in answers]
    assert len(told(client, willing)) == 1
    assert len(ids(answers)) == 1


def test_a_plan_is_kept_while_it_holds(client, willing):
    """A plan that was shown is the one that is carried out, although others have become free."""
    seen = client.post(ROOM, json={**WANTED, "dry_run": True}).json
    (move,) = seen["moves"]
    for path in willing:
        if client.get(path).json["id"] != move["allocation"]:
            consents(client, path, move_cost=0)
    begun = client.post(ROOM, json=WANTED).json
    assert (begun["id"], begun["moves"][0]["joining"]) == (seen["id"], move["joining"])


def test_a_plan_whose_tenant_objects_is_made_anew(client, willing):
    seen = client.post(ROOM, json=WANTED).json
    mover = seen["moves"][0]["allocation"]
    assert client.patch(f"/v1/allocations/{mover}", json={"movable": "never"}).status_code == 200
    anew = client.post(ROOM, json=WANTED).json
    assert anew["id"] != seen["id"]
    assert anew["moves"][0]["allocation"] != mover
    assert len(told(client, willing)) == 1


def test_a_plan_whose_hosts_are_taken_is_made_anew(client, willing):
    seen = client.post(ROOM, json={**WANTED, "dry_run": True}).json
    taken = client.post("/v1/allocations", json={"name": "fast", "hosts": 4})
    assert taken.status_code == 202
    assert set(seen["moves"][0]["joining"]) & set(names(taken.json))
    anew = client.post(ROOM, json=WANTED).json
    assert anew["id"] != seen["id"]
    assert set(anew["moves"][0]["joining"]).isdisjoint(names(taken.json))


def test_room_that_an_announced_move_makes_is_not_made_again(client, willing):
    """Requests that differ count the move that one of them has announced."""
    first = client.post(ROOM, json=WANTED).json
    other = client.post(ROOM, json={**WANTED, "moves": 2}).json
    assert other["moves"][0]["allocation"] == first["moves"][0]["allocation"]
    assert (len(other["moves"]), other["moves"][0]["announced"]) == (1, True)
    assert len(told(client, willing)) == 1


def test_room_that_a_move_under_way_makes_is_not_made_again(deployment, client, willing, work):
    consents(client, willing[3], notice=0)
    for path in willing:
        consents(client, path, movable="never" if path != willing[3] else "restart")
    client.post(ROOM, json=WANTED)
    busy = names(client.get(willing[3]).json)[0]
    deployment.compute.servers[busy] = client.get(willing[3]).json["project_id"]
    deployment.compute.broken.add(busy)
    work()
    assert client.get(willing[3]).json["changing"] == "leave"
    for path in willing[:3]:
        consents(client, path)
    answer = client.post(ROOM, json={**WANTED, "moves": 3})
    assert [move["name"] for move in answer.json["moves"]] == ["tenant3"]
    assert told(client, willing) == []


def test_a_key_announces_once(client, willing, work):
    key = {"Idempotency-Key": "room-1"}
    first = client.post(ROOM, json=WANTED, headers=key)
    again = client.post(ROOM, json=WANTED, headers=key)
    assert (again.status_code, again.json["id"]) == (202, first.json["id"])
    mover = first.json["moves"][0]["allocation"]
    client.patch(f"/v1/allocations/{mover}", json={"movable": "never"})
    late = client.post(ROOM, json=WANTED, headers=key)
    assert late.status_code == 200
    assert told(client, willing) == [], "the request with this key has told its tenant"
    assert client.post(ROOM, json=WANTED, headers={"Idempotency-Key": "room-2"}).status_code == 202
    assert len(told(client, willing)) == 1


@pytest.mark.parametrize(
    ("path", "bodies"),
    [
        (ROOM, (WANTED, {"hosts": 5})),
        ("/v1/fabrics/main/sleep", ({"moves": 1}, {"moves": 2})),
        ("/v1/fabrics/main/evacuate", ()),
    ],
)
def test_a_key_belongs_to_one_question(client, willing, path, bodies):
    key = {"Idempotency-Key": "once"}
    first, second, *_ = names(client.get(willing[0]).json)
    if "evacuate" in path:
        bodies = ({"hosts": [first]}, {"hosts": [second]})
    assert client.post(path, json=bodies[0], headers=key).status_code in (200, 202)
    answer = client.post(path, json=bodies[1], headers=key)
    assert (answer.status_code, answer.json["code"]) == (422, "idempotency_mismatch")


def test_the_same_hosts_are_evacuated_by_the_same_plan(client, willing):
    host = names(client.get(willing[0]).json)[0]
    seen = client.post("/v1/fabrics/main/evacuate", json={"hosts": [host], "dry_run": True}).json
    answers = [client.post("/v1/fabrics/main/evacuate", json={"hosts": [host]}) for _ in range(3)]
    assert ids(answers) == {seen["id"]}
    assert told(client, willing) == ["tenant0"]
