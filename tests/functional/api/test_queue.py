# SPDX-License-Identifier: Apache-2.0

"""Queued requests: order, overtaking, cancelling, explanations, restarts."""

from __future__ import annotations

from datetime import datetime

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.app.admission_queue import EXPLAINED, AdmissionQueue
from laas_service.app.lifecycle import State
from laas_service.app.records import HostState
from laas_service.app.use_cases import every_policy
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.sharing.policy import SharedSlots

FIFO = Discipline("fifo")
EASY = Discipline("easy")


class Site:
    """A deployment whose queue is served when ``work`` is called, as the worker does."""

    def __init__(self, deployment, discipline):
        deployment.store = SqlStore(deployment.engine, now=deployment.clock)
        self.deployment = deployment
        self.discipline = discipline
        self.restart()

    def restart(self):
        """Replace the processes; the new ones read the recorded state."""
        made = self.deployment
        made.engine.dispose()
        made.engine = connect(made.engine.url.render_as_string())
        made.store = SqlStore(made.engine, now=made.clock)
        policies = every_policy(SharedSlots())
        self.admission_queue = AdmissionQueue(
            made.store, policies, self.discipline, clock=made.clock
        )
        self.client = made.client(queue=self.discipline, policies=policies)

    def work(self):
        self.deployment.converge()
        admitted = self.admission_queue.serve_all()
        self.deployment.converge()
        return admitted

    def ask(self, name, hosts, headers=None, **more):
        return self.client.post(
            "/v1/allocations", json={"name": name, "hosts": hosts, **more}, headers=headers
        )

    def wait(self, name, hosts, **more):
        answer = self.ask(name, hosts, wait=True, **more)
        assert answer.status_code == 202, answer.text
        return answer.json

    def give(self, name, hosts, **more):
        answer = self.ask(name, hosts, **more)
        assert answer.status_code == 202, answer.text
        assert answer.json["state"] == "allocating"
        self.deployment.converge()
        return answer.json

    def release(self, allocation):
        answer = self.client.delete(f"/v1/allocations/{allocation['id']}")
        assert answer.status_code == 202
        return answer.json

    def show(self, allocation):
        return self.client.get(f"/v1/allocations/{allocation['id']}").json

    def queue(self):
        listed = self.client.get("/v1/allocations?state=queued").json["allocations"]
        return [(one["position"], one["name"]) for one in listed]

    def states(self):
        listed = self.client.get("/v1/allocations").json["allocations"]
        return {one["name"]: one["state"] for one in listed}


@pytest.fixture
def fifo(deployment):
    return Site(deployment, FIFO)


@pytest.fixture
def easy(deployment):
    return Site(deployment, EASY)


def test_who_waits_is_served_in_order(fifo):
    blue = fifo.give("blue", 32)
    born = fifo.wait("a", 20)
    assert (born["state"], born["position"], born["pkey"]) == ("queued", 1, None)
    assert born["hosts"] == born["links"] == []
    fifo.wait("b", 16)
    fifo.wait("c", 4)
    assert fifo.queue() == [(1, "a"), (2, "b"), (3, "c")]
    fifo.release(blue)
    assert fifo.queue() == [(1, "a"), (2, "b"), (3, "c")]  # its hosts are not free yet
    assert fifo.work() == 1
    assert fifo.queue() == [(1, "b"), (2, "c")]  # c would fit and does not overtake
    a = fifo.show(born)
    assert a["state"] == "active"
    assert (a["position"], a["waits_for"]) == (None, None)
    assert len(a["hosts"]) == 20
    assert a["pkey"] is not None
    assert [e["state"] for e in a["history"]] == ["queued", "allocating", "active"]
    fifo.release(a)
    assert fifo.work() == 2
    assert fifo.states() == {"b": "active", "c": "active"}


def test_a_request_that_leaves_the_queue_while_it_is_listed_is_shown(easy, monkeypatch):
    """Between two looks of the reader, somebody cancels the only request that waits."""
    easy.give("blue", 32)
    waiting = easy.wait("a", 20)
    monkeypatch.setattr(AdmissionQueue, "_waiting", lambda *_: [])
    assert (easy.show(waiting)["state"], easy.show(waiting)["waits_for"]) == ("queued", None)


def test_who_does_not_wait_does_not_overtake(fifo):
    fifo.give("blue", 24)
    fifo.wait("a", 16)
    refused = fifo.ask("b", 2)
    assert (refused.status_code, refused.json["code"]) == (409, "others_wait")
    assert refused.json["largest_fit"] == 8
    assert fifo.ask("b", 2, dry_run=True).json["code"] == "others_wait"
    assert fifo.ask("b", 20).json["code"] == "too_few_hosts"
    late = fifo.wait("b", 2)
    assert late["position"] == 2
    assert late["waits_for"]["code"] == "others_wait"


def test_a_newcomer_waits_behind_who_is_about_to_start(fifo):
    """Free hosts go to the queue first, even before a worker has served it."""
    blue = fifo.give("blue", 32)
    waiting = fifo.wait("a", 30)
    fifo.release(blue)
    fifo.deployment.converge()
    assert fifo.show(waiting)["waits_for"]["code"] is None
    refused = fifo.ask("b", 4).json
    assert (refused["code"], refused["largest_fit"]) == ("others_wait", 32)
    assert fifo.ask("b", 2).status_code == 202
    assert fifo.work() == 1
    assert fifo.show(waiting)["state"] == "active"


def test_a_request_leaves_the_queue_to_the_worker(fifo):
    """A newcomer starts if it leaves room for the queued request; the worker admits that one."""
    blue = fifo.give("blue", 32)
    waiting = fifo.wait("a", 20)
    fifo.release(blue)
    fifo.deployment.converge()
    given = fifo.give("b", 12)
    assert fifo.show(waiting)["state"] == "queued"
    assert fifo.work() == 1
    hosts = [{host["name"] for host in fifo.show(one)["hosts"]} for one in (waiting, given)]
    assert [len(names) for names in hosts] == [20, 12]
    assert hosts[0].isdisjoint(hosts[1])


def test_cancelling_lets_the_next_one_through(fifo):
    fifo.give("blue", 24)
    first, second = fifo.wait("a", 16), fifo.wait("b", 8)
    assert fifo.work() == 0
    gone = fifo.release(first)
    assert (gone["state"], gone["position"]) == ("released", None)
    assert fifo.release(first)["state"] == "released"
    assert fifo.queue() == [(1, "b")]
    assert fifo.work() == 1
    assert fifo.show(second)["state"] == "active"
    assert [e["state"] for e in fifo.show(first)["history"]] == ["queued", "released"]


def test_a_higher_priority_goes_first_and_may_change_while_it_waits(fifo):
    """Equal ones stay in order; ``position``, admission and newcomers follow the new order."""
    blue = fifo.give("blue", 32)
    a = fifo.wait("a", 20)
    fifo.wait("b", 20, priority=7)
    c = fifo.wait("c", 20)
    assert sorted(fifo.queue()) == [(1, "b"), (2, "a"), (3, "c")]
    path = f"/v1/allocations/{c['id']}"
    for _ in range(2):  # safe to repeat
        changed = fifo.client.patch(path, json={"priority": 4294967295})
        assert (changed.status_code, changed.json["priority"]) == (200, 4294967295)
        assert changed.json["version"] == c["version"] + 1
    assert sorted(fifo.queue()) == [(1, "c"), (2, "b"), (3, "a")]
    fifo.restart()
    fifo.release(blue)
    assert fifo.work() == 1
    assert fifo.show(c)["state"] == "active"
    assert fifo.show(a)["position"] == 2
    assert fifo.ask("late", 12).status_code == 409  # b waits, and goes first
    assert fifo.ask("urgent", 12, priority=8).json["state"] == "allocating"
    answer = fifo.client.patch(path, json={"priority": 1})
    assert (answer.status_code, answer.json["code"]) == (409, "conflict")
    assert "only a queued request has a priority" in answer.json["detail"]


@pytest.mark.parametrize("priority", [-1, 4294967296, 1.5, "high", True])
def test_no_priority(fifo, priority):
    fifo.give("blue", 32)
    path = f"/v1/allocations/{fifo.wait('a', 20)['id']}"
    for answer in (
        fifo.client.patch(path, json={"priority": priority}),
        fifo.ask("b", 2, wait=True, priority=priority),
    ):
        assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, "priority")
    answer = fifo.client.patch(path, json={"priority": 1, "name": "c"})
    assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, "name")


def test_renamed_while_it_waits(fifo):
    blue = fifo.give("blue", 32)
    waiting = fifo.wait("a", 4)
    renamed = fifo.client.patch(f"/v1/allocations/{waiting['id']}", json={"name": "z"})
    assert (renamed.status_code, renamed.json["position"]) == (200, 1)
    fifo.release(blue)
    assert fifo.work() == 1
    assert fifo.states() == {"z": "active"}


def test_a_restart_loses_nothing(fifo):
    blue = fifo.give("blue", 32)
    fifo.wait("a", 20)
    fifo.wait("b", 12)
    fifo.restart()
    assert fifo.queue() == [(1, "a"), (2, "b")]
    fifo.release(blue)
    fifo.deployment.converge()
    fifo.restart()
    assert fifo.work() == 2
    fifo.restart()
    assert fifo.work() == 0
    assert fifo.states() == {"a": "active", "b": "active"}


def test_each_says_what_it_waits_for(easy):
    easy.give("blue", 20, duration=1000)
    easy.give("red", 6, duration=3000)
    head, next_one = easy.wait("a", 12, duration=50), easy.wait("b", 9)
    waits = easy.show(head)["waits_for"]
    assert (waits["code"], waits["largest_fit"]) == ("too_few_hosts", 6)
    assert "12" in waits["detail"]
    start = datetime.fromisoformat(waits["expected_start"])
    assert (start - easy.deployment.clock()).total_seconds() == 1000
    waits = easy.show(next_one)["waits_for"]
    assert (waits["code"], waits["expected_start"]) == ("too_few_hosts", None)


def test_only_who_does_not_delay_the_first_overtakes(easy):
    easy.give("blue", 24, duration=1000)
    easy.wait("large", 32)
    assert easy.ask("small", 4).json["code"] == "others_wait"
    assert easy.ask("long", 4, duration=1001).json["code"] == "others_wait"
    brief = easy.give("brief", 4, duration=900)
    assert brief["duration"] == 900
    end = datetime.fromisoformat(brief["expected_end"])
    assert (end - easy.deployment.clock()).total_seconds() == 900
    assert easy.wait("later", 8, duration=10)["position"] == 2
    easy.release(brief)
    assert easy.work() == 1  # "later" fills the gap, "large" keeps its reservation
    assert easy.queue() == [(1, "large")]


def test_looks_again_when_something_outlives_its_end(easy):
    """The reservation moves to the next expected end, so that other requests may overtake."""
    easy.give("short", 8, duration=100)
    easy.give("long", 16, duration=1000)
    easy.wait("large", 16)
    easy.wait("filler", 8, duration=500)
    assert easy.work() == 0
    assert easy.queue() == [(1, "large"), (2, "filler")]
    easy.deployment.slept += 101
    assert easy.work() == 1
    assert easy.queue() == [(1, "large")]


def test_a_repaired_host_admits(fifo):
    store = fifo.deployment.store
    store.components.set_host_state("main", 0, HostState.FAILED)
    waiting = fifo.wait("a", 32)
    assert waiting["waits_for"]["code"] in ("fault", "too_few_hosts")
    assert fifo.work() == 0
    name = fifo.deployment.store.fabrics.get("main").inventory.host_names[0]
    fifo.client.patch(f"/v1/fabrics/main/hosts/{name}", json={"state": "up"})
    assert fifo.work() == 1


def test_what_can_never_fit_does_not_block_the_queue(fifo):
    refused = fifo.ask("a", 33, wait=True)
    assert (refused.status_code, refused.json["code"]) == (409, "too_few_hosts")
    assert refused.json["largest_fit"] == 32
    assert fifo.queue() == []


def test_policies_mix_in_one_queue(easy):
    blue = easy.give("blue", 32, duration=1000)
    easy.wait("a", 20, policy="baseline")
    easy.wait("b", 12, policy="jigsaw", duration=5)
    easy.release(blue)
    assert easy.work() == 2
    assert easy.states() == {"a": "active", "b": "active"}


def test_the_same_key_queues_once(fifo):
    blue = fifo.give("blue", 32)
    key = {"Idempotency-Key": "k"}
    first = fifo.ask("a", 4, headers=key, wait=True, duration=60).json
    assert fifo.ask("a", 4, headers=key, wait=True, duration=60).json["id"] == first["id"]
    assert fifo.queue() == [(1, "a")]
    assert fifo.ask("a", 4, headers=key, wait=True, duration=61).status_code == 422
    assert fifo.ask("a", 4, headers=key).status_code == 422
    fifo.release(blue)
    fifo.work()
    again = fifo.ask("a", 4, headers=key, wait=True, duration=60).json
    assert (again["id"], again["state"]) == (first["id"], "active")


def test_a_dry_run_queues_nothing(fifo):
    fifo.give("blue", 32)
    assert fifo.ask("a", 4, wait=True, dry_run=True).json["code"] == "too_few_hosts"
    assert fifo.queue() == []


def test_tenants_see_their_own_place_only(fifo):
    fifo.give("blue", 32, project_id="blue")
    fifo.wait("a", 4, project_id="red")
    fifo.wait("b", 4, project_id="blue")
    listed = fifo.client.get("/v1/allocations?state=queued&project_id=blue").json["allocations"]
    assert [(one["name"], one["position"]) for one in listed] == [("b", 2)]


def test_the_queue_is_measured(fifo):
    fifo.give("blue", 32)
    fifo.wait("a", 4)
    fifo.wait("b", 4)
    assert 'laas_queue_length{fabric="main"} 2.0' in fifo.client.get("/metrics").text


@pytest.mark.parametrize("duration", [0, -1, "60", 1e300, True])
def test_a_duration_that_is_none(client, duration):
    body = {"name": "a", "hosts": 1, "duration": duration}
    answer = client.post("/v1/allocations", json=body)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json["errors"]] == ["duration"]


def test_convergence_leaves_queued_ones_alone(fifo):
    fifo.give("blue", 32)
    fifo.wait("a", 4)
    store = fifo.deployment.store
    assert store.allocations.due(fifo.deployment.clock()) == []
    assert [r.state for r in store.allocations.page(states=[State.QUEUED])] == [State.QUEUED]
    assert len(store.fabrics.routed("main").tenants) == 1


def test_looking_twice_at_the_same_state_costs_no_search(fifo, monkeypatch):
    fifo.give("blue", 32)
    fifo.wait("a", 4)
    assert fifo.work() == 0
    searches = []
    monkeypatch.setattr(
        fifo.deployment.store.admissions, "admit_waiting", lambda *given: searches.append(1)
    )
    assert fifo.work() == 0
    assert searches == []


def test_however_many_wait_so_many_are_searched_for_at_once(deployment):
    """The list explains a bounded number of requests; a single one is always explained."""
    site = Site(deployment, FIFO)
    site.give("blue", 32)
    ids = [site.wait(f"w{hosts}", hosts)["id"] for hosts in range(1, 33)]
    ids += [
        site.wait(f"c{hosts}", hosts, constraints={"max_host_cost": 9})["id"]
        for hosts in range(1, 9)
    ]
    ids += [site.wait("again", 5)["id"]]
    shown = site.client.get("/v1/allocations?state=queued").json["allocations"]
    assert [one["id"] for one in shown] == ids
    assert [one["position"] for one in shown] == list(range(1, 42))
    codes = [one["waits_for"]["code"] for one in shown]
    assert set(codes[:EXPLAINED]) == {"too_few_hosts"}
    assert set(codes[EXPLAINED:]) == {"search_budget"}
    assert "ask for it alone" in shown[-1]["waits_for"]["detail"]
    alone = site.client.get(f"/v1/allocations/{ids[-1]}").json
    assert alone["position"] == 41
    assert alone["waits_for"]["code"] == "too_few_hosts"
    page = site.client.get(f"/v1/allocations?state=queued&limit=5&marker={ids[34]}").json
    assert {one["waits_for"]["code"] for one in page["allocations"]} == {"too_few_hosts"}
