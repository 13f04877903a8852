# SPDX-License-Identifier: Apache-2.0

"""The head of a queue makes room: plans, notice, objections, quotas, exemptions, held room."""

from __future__ import annotations

from datetime import time, timedelta
from random import Random

import pytest

from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.adapters.db.store import SqlStore
from laas_service.app.admission_queue import AdmissionQueue
from laas_service.app.queue_moves import QueueMoves, RoomMode, RoomRules
from laas_service.app.quotas import ProjectLimits
from laas_service.app.records import HostState, Limits
from laas_service.app.room_planner import Permission
from laas_service.app.use_cases import every_policy
from laas_service.domain.admission.queue import Discipline
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.verification import isolation_violations, shape_violations
from tests.convergers import Convergers
from tests.functional.api.test_resize import names, story

ROOM = "/v1/fabrics/main/make-room"
WANTED = {"hosts": 4, "constraints": {"within": "leaf"}}
ON = RoomRules(RoomMode.ON, gain=60.0)


class Site:
    """A service whose worker acts in ``work``; eight tenants of three hosts, one a leaf."""

    def __init__(self, deployment, rules=ON, **given):
        self.deployment = deployment
        self.rules, self.limits = rules, Limits()
        self.unmoved: frozenset[str] = frozenset()
        self.discipline = Discipline("easy")
        self.restart()
        self.tenants = [self.give(f"tenant{number}", 3, **given) for number in range(8)]

    def restart(self):
        """Replace all processes; the new ones read the recorded state."""
        made = self.deployment
        made.engine.dispose()
        made.engine = connect(made.engine.url.render_as_string())
        made.store = self.store = SqlStore(made.engine, now=made.clock)
        policies = every_policy(SharedSlots())
        self.queue = AdmissionQueue(self.store, policies, self.discipline, clock=made.clock)
        quotas = ProjectLimits(self.store, made.compute, limits=self.limits, unmoved=self.unmoved)
        self.moves = QueueMoves(
            self.store, self.queue, quotas, self.rules, policies["jigsaw"], clock=made.clock
        )
        self.client = made.client(
            queue=self.discipline, policies=policies, limits=self.limits, unmoved=self.unmoved
        )
        self.converger = Convergers(
            self.store, made.compute, made.subnet_manager, now=made.clock, chance=Random(1)
        )

    def later(self, seconds):
        self.deployment.slept += seconds

    def work(self, rounds=8):
        """Let the worker take all steps that are due, a minute apart."""
        for _ in range(rounds):
            self.queue.serve_all()
            self.moves.serve_all()
            self.converger.run_once()
            self.later(61)

    def ask(self, name, hosts, **more):
        body = {"name": name, "hosts": hosts, **more}
        answer = self.client.post("/v1/allocations", json=body)
        assert answer.status_code == 202, answer.text
        return f"/v1/allocations/{answer.json['id']}"

    def give(self, name, hosts, **more):
        path = self.ask(name, hosts, **more)
        self.work(2)
        assert self.show(path)["state"] == "active"
        return path

    def wait(self, name="head", **more):
        path = self.ask(name, **{**WANTED, "wait": True, **more})
        assert self.show(path)["state"] == "queued"
        return path

    def show(self, path):
        return self.client.get(path).json

    def room(self, path):
        return self.show(path)["waits_for"]["room"]

    def consents(self, number, **given):
        body = {"movable": "restart", **given}
        answer = self.client.patch(self.tenants[number], json=body)
        assert answer.status_code == 200, answer.text

    def announced(self):
        return [path for path in self.tenants if self.show(path)["announced"] is not None]

    def moving(self):
        return [path for path in self.tenants if self.show(path)["changing"] is not None]

    def stays(self, **work):
        """Work; return whether nobody was asked to move."""
        self.work(**work)
        return (
            not self.announced()
            and not self.moving()
            and self.store.admissions.room("main") is None
        )

    def needs_moves(self, size):
        """Whether so many hosts fit only after a move."""
        answer = self.client.post(ROOM, json={"hosts": size, "dry_run": True})
        return answer.status_code == 200 and not answer.json["fits"]

    def sound(self):
        ledger, _ = self.store.fabrics.ledger("main")
        held = list(ledger.everybody())
        tree = ledger.topology
        broken = [fault for allocation in held for fault in shape_violations(tree, allocation)]
        return not broken and not isolation_violations(tree, held)


@pytest.fixture
def site(deployment):
    return Site(deployment)


def test_the_head_gets_room_after_one_move(site):
    site.consents(5)
    head = site.wait()
    site.work(1)
    told = site.show(site.tenants[5])
    assert "a move to make room for 4 hosts is announced by the queue" in str(told["history"])
    assert "room is made for it: 1 allocation moves, to 3 new hosts" in story(site.client, head)
    assert site.room(head)["state"] == "moving"
    shown = site.client.get(ROOM).json["plan"]
    assert (shown["hosts"], shown["moved_hosts"], shown["cost"]) == (4, 3, 3.0)
    assert shown["allocation"] == site.show(head)["id"]
    assert [step["allocation"] for step in shown["steps"]] == [told["id"]]
    site.work()
    got = site.show(head)
    assert (got["state"], len(got["hosts"])) == ("active", 4)
    assert site.sound()
    site.work(1)
    assert site.client.get(ROOM).json["plan"]["state"] == "done"


def test_without_the_option_nobody_moves(deployment):
    site = Site(deployment, RoomRules())
    site.consents(5)
    head = site.wait()
    assert site.stays()
    assert site.room(head) is None
    assert site.client.get(ROOM).json == {"fabric": "main", "plan": None}


def test_advice_shows_cost_and_gain_and_moves_nobody(deployment):
    site = Site(deployment, RoomRules(RoomMode.ADVISE))
    site.consents(5, move_cost=2.5, notice=600)
    head = site.wait()
    site.work()
    shown = site.room(head)
    assert (shown["state"], shown["moves"], shown["moved_hosts"]) == ("advised", 1, 3)
    assert (shown["cost"], shown["gain"], shown["made"]) == (7.5, None, 0)
    assert not site.announced()
    assert not site.moving()
    site.consents(5, movable="never")
    site.later(100)
    site.work(2)
    assert site.room(head) is None


@pytest.mark.parametrize(
    "cannot",
    [{}, {"movable": "never"}, {"movable": "live"}, {"movable": "restart", "move_cost": 9}],
)
def test_who_does_not_consent_or_costs_too_much_stays(deployment, cannot):
    site = Site(deployment, RoomRules(RoomMode.ON, Permission(max_cost=8)))
    if cannot:
        site.consents(5, **cannot)
    head = site.wait()
    assert site.stays()
    assert site.show(head)["state"] == "queued"


def test_notice_is_waited_for_and_an_objection_ends_the_plan(site):
    site.consents(5, notice=10_000)
    head = site.wait()
    site.work()
    assert site.announced() == [site.tenants[5]]
    assert not site.moving()
    site.consents(5, movable="never")
    site.work()
    assert site.show(site.tenants[5])["announced"] is None
    shown = site.room(head)
    assert (shown["state"], shown["detail"]) == ("failed", "a tenant that was to move objects")
    assert story(site.client, head)[-1] == f"no room is made for it: {shown['detail']}"
    site.later(100_000)
    site.work()
    assert not site.announced()
    site.consents(6)
    site.later(100)
    site.work()
    assert site.show(head)["state"] == "active"


def test_a_tenant_that_kept_its_place_is_not_asked_again_until_it_changes(site):
    site.consents(5)
    before = site.show(site.tenants[5])
    compute = site.deployment.compute
    compute.servers[names(before)[0]] = before["project_id"]
    compute.broken.add(names(before)[0])  # the service cannot move it, and the tenant does not
    site.wait()
    site.work(3)
    assert site.moving() == [site.tenants[5]]
    site.later(4000)
    site.work()
    assert site.client.get(ROOM).json["plan"]["state"] == "failed"
    lines = len(story(site.client, site.tenants[5]))
    for _ in range(5):
        site.later(10_000)
        site.work(2)
    site.restart()
    site.work(2)
    assert len(story(site.client, site.tenants[5])) == lines, "asked again"
    assert names(site.show(site.tenants[5])) == names(before)
    site.consents(5, notice=1)
    site.later(100)
    site.work(2)
    assert len(story(site.client, site.tenants[5])) > lines


def test_nobody_takes_the_room_that_is_made(deployment):
    """Requests that end before the head could start overtake it, but not into its room."""
    site = Site(deployment, duration=50_000)
    site.consents(5, notice=3000)
    head = site.wait()
    site.work(1)
    plan = site.client.get(ROOM).json["plan"]
    places = set(plan["steps"][0]["joining"])
    assert (len(places), plan["gain"] > 10_000) == (3, True)
    small = [site.client.post("/v1/allocations", json=body(number)) for number in range(8)]
    given = [host["name"] for one in small if one.status_code == 202 for host in one.json["hosts"]]
    assert len(given) == 8 - 3 - 1
    assert places.isdisjoint(given)
    queued = site.ask("small", 1, wait=True, duration=100)
    site.work(2)
    assert site.show(queued)["state"] == "queued"
    assert site.announced() == [site.tenants[5]]
    site.later(3000)
    site.work()
    assert site.show(head)["state"] == "active"
    assert site.sound()


def body(number):
    return {"name": f"small{number}", "hosts": 1, "duration": 100}


def test_moves_of_a_project_are_limited_in_a_day(deployment):
    site = Site(deployment)
    project = site.show(site.tenants[0])["project_id"]
    SqlQuotas(deployment.engine, deployment.clock).set(project, None, None, moves=1)
    for number in (0, 5):
        site.consents(number)
    first = site.wait("first")
    site.work(10)
    assert site.show(first)["state"] == "active"
    usage = site.client.get(f"/v1/quota?project_id={project}").json["moves"]
    assert usage == {"limit": 1, "used": 1}
    second = site.wait("second")
    site.work()
    assert not site.announced()
    assert not site.moving()
    refused = site.client.post(ROOM, json={**WANTED, "dry_run": True})
    assert refused.status_code == 409, "on demand, too"
    forced = site.client.post(ROOM, json={**WANTED, "dry_run": True, "override": True})
    assert forced.status_code == 200
    site.later(24 * 3600)
    site.work(10)
    assert site.show(second)["state"] == "active"


def test_exempt_projects_are_never_moved(deployment):
    site = Site(deployment)
    site.consents(5)
    site.unmoved = frozenset({site.show(site.tenants[5])["project_id"]})
    site.restart()
    site.wait()
    assert site.stays()
    assert site.client.post(ROOM, json={**WANTED, "dry_run": True}).status_code == 409
    host = names(site.show(site.tenants[5]))[0]
    evacuation = {"hosts": [host], "dry_run": True}
    staying = site.client.post("/v1/fabrics/main/evacuate", json=evacuation).json["staying"]
    assert staying[0]["why"] == "its project is never moved"
    site.unmoved = frozenset()
    site.restart()
    site.work()
    assert site.client.get(ROOM).json["plan"]["state"] == "done"


def test_a_head_that_starts_soon_anyway_moves_nobody(deployment):
    site = Site(deployment, RoomRules(RoomMode.ON, gain=5000.0))
    for path in site.tenants[1:]:
        assert site.client.delete(path).status_code == 202
    site.work(4)
    brief = [site.give(f"brief{number}", 3, duration=4000) for number in range(7)]
    site.tenants = [site.tenants[0], *brief]
    site.consents(0, notice=10)
    site.wait()
    assert site.stays(rounds=2)
    site.rules = RoomRules(RoomMode.ON, gain=100.0)
    site.restart()
    site.work(1)
    assert site.announced() == [site.tenants[0]]
    assert 100 < site.client.get(ROOM).json["plan"]["gain"] < 4000


def test_a_cancelled_head_calls_the_move_off(site):
    site.consents(5, notice=10_000)
    head = site.wait()
    site.work(1)
    assert site.announced()
    site.client.delete(head)
    site.work(1)
    assert not site.announced()
    assert "waits no longer" in story(site.client, site.tenants[5])[-1]


def test_switched_off_a_plan_ends_before_its_move_begins(site):
    site.consents(5, notice=10_000)
    site.wait()
    site.work(1)
    site.rules = RoomRules()
    site.restart()
    site.work(1)
    assert not site.announced()


def test_two_moves_of_one_plan_follow_each_other(deployment):
    site = Site(deployment, RoomRules(RoomMode.ON, Permission(moves=2)))
    site.client.delete(site.tenants.pop())
    site.work(4)
    site.tenants += [site.give("a", 2), site.give("b", 2)]  # they fill the last leaf
    for number in (7, 8):
        site.consents(number, notice=100)
    head = site.wait()
    told = []
    for _ in range(40):
        site.work(1)
        told.append(site.announced() + site.moving())
        if site.show(head)["state"] == "active":
            break
    assert max(map(len, told)) == 1
    assert {path for paths in told for path in paths} == set(site.tenants[7:])
    assert site.sound()


def test_the_room_of_a_fault_is_not_waited_for(site):
    """The place of the moving tenant fails during its notice: another plan follows."""
    site.consents(5, notice=1000)
    head = site.wait()
    site.work(1)
    joining = site.show(site.tenants[5])["announced"]["joining"]
    for name in joining:
        number = site.store.fabrics.get("main").inventory.host_numbers[name]
        site.store.components.set_host_state("main", number, HostState.FAILED)
    site.work(20)
    assert site.client.get(ROOM).json["plan"]["state"] in ("failed", "moving")
    site.later(1000)
    site.work(20)
    assert site.show(head)["state"] == "active"


def test_room_is_made_on_a_schedule(deployment):
    hour = deployment.clock().hour
    window = (time((hour + 6) % 24), time((hour + 8) % 24))
    site = Site(deployment)
    for number in range(8):
        site.consents(number)
    size = next(size for size in range(2, 9) if site.needs_moves(size))
    site.rules = RoomRules(RoomMode.ON, window=window, hosts=size)
    site.restart()
    assert site.stays()
    site.later(7 * 3600)
    assert window[0] <= deployment.clock().time()
    site.work()
    plan = site.client.get(ROOM).json["plan"]
    assert (plan["allocation"], plan["hosts"], plan["state"]) == (None, size, "done")
    assert site.client.post(ROOM, json={"hosts": size, "dry_run": True}).json["fits"] is True
    site.work()
    assert not site.announced()


def test_outside_the_window_a_plan_is_shown_only(deployment):
    now = deployment.clock()
    window = ((now + timedelta(hours=6)).time(), (now + timedelta(hours=8)).time())
    site = Site(deployment, RoomRules(RoomMode.ON, window=window))
    site.consents(5)
    head = site.wait()
    site.work(2)
    assert site.room(head)["state"] == "advised"
    assert not site.announced()
    site.later(7 * 3600)
    site.work(10)
    assert site.show(head)["state"] == "active"


def test_two_workers_make_one_plan(site):
    """The other worker records a plan while this one is still looking for another one."""
    site.consents(4, notice=1000, move_cost=5)
    site.consents(5, notice=1000)
    size = next(size for size in range(2, 9) if site.needs_moves(size))
    site.rules = RoomRules(RoomMode.ON, hosts=size)
    site.restart()
    first, planner = site.moves, site.moves._planner
    site.rules = RoomRules(RoomMode.ON, Permission(max_cost=2), hosts=size)
    site.restart()
    planned = planner.plan_early
    moved: list[str] = []
    others: list[int] = []

    def slow(*args):
        plan = planned(*args)
        moved.extend(move.record.id for move in plan.moves)
        others.append(site.moves.serve_all())
        return plan

    planner.plan_early = slow
    assert first.serve_all() == 0
    assert (len(moved), others) == (1, [1])
    assert site.announced() == [site.tenants[5]]
    assert not site.tenants[5].endswith(moved[0])


MONTH = 30 * 86_400


def test_a_tenant_with_a_months_notice_is_not_asked_while_another_could_go_now(site):
    site.consents(3, notice=MONTH)
    site.consents(6)
    head = site.wait()
    site.work()
    assert site.show(head)["state"] == "active"
    assert "announced" not in str(story(site.client, site.tenants[3]))
    assert "moves as announced" in str(story(site.client, site.tenants[6]))


def test_a_plan_that_waits_for_a_month_gives_way_to_one_that_needs_not(site):
    site.consents(3, notice=MONTH)
    head = site.wait()
    site.work(2)
    assert site.announced() == [site.tenants[3]]
    site.consents(6, notice=300)
    site.work(10)
    assert "other moves make room earlier" in str(story(site.client, site.tenants[3]))
    site.later(300)
    site.work()
    assert site.show(head)["state"] == "active"
    assert site.show(site.tenants[3])["announced"] is None
    assert site.sound()


def test_a_notice_that_is_nearly_over_is_not_given_up_for_a_new_one(site):
    site.consents(3, notice=10_000)
    site.wait()
    site.work(1)
    site.later(8000)
    site.consents(6, notice=5000)
    site.work(5)
    assert site.announced() == [site.tenants[3]]


def test_consent_and_objection_again_and_again_hold_nobody_up(site):
    """Two plans fail because of a tenant; then it is not asked any more, and others are."""
    head, asked = site.wait(), 0
    for _ in range(6):
        site.consents(5, notice=2000)
        site.later(100)
        site.work(2)
        asked += site.announced() == [site.tenants[5]]
        site.consents(5, movable="never")
        site.work(2)
    assert asked == 2
    assert not site.announced()
    site.consents(5, notice=0)  # it waits for nothing now, and yet gains nothing
    site.later(100)
    site.work(3)
    assert not site.moving()
    site.consents(6, notice=2000)
    site.later(100)
    site.work(2)
    assert site.announced() == [site.tenants[6]]
    site.later(2000)
    site.work()
    assert site.show(head)["state"] == "active"


def test_who_failed_a_plan_cannot_have_another_plan_called_off(site):
    site.consents(5)
    head = site.wait()
    site.moves.serve_all()
    assert site.announced() == [site.tenants[5]]
    site.consents(5, movable="never")
    site.work(1)
    assert site.room(head)["state"] == "failed"
    site.consents(3, notice=MONTH)
    site.later(100)
    site.work(2)
    assert site.announced() == [site.tenants[3]]
    site.consents(5)  # it would go at once, and might object again
    site.work(5)
    assert site.announced() == [site.tenants[3]]


def test_a_months_notice_keeps_no_host_from_others(deployment):
    """Room is held for an hour before the last move may begin."""
    site = Site(deployment, duration=MONTH * 4)
    site.consents(5, notice=MONTH)
    site.wait()
    site.work(1)
    assert site.announced() == [site.tenants[5]]
    small = [site.client.post("/v1/allocations", json=body(number)) for number in range(8)]
    given = [host["name"] for one in small if one.status_code == 202 for host in one.json["hosts"]]
    assert len(given) == 8
