# SPDX-License-Identifier: Apache-2.0

"""Decisions of laas-slurm: each case by itself, and random histories with crashes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from slurm_plugin.decide import (
    Free,
    Gate,
    Offer,
    Open,
    Rank,
    Release,
    Stop,
    Tell,
    Unhold,
    avoided,
    decide,
    has_features,
)
from slurm_plugin.world import GATE, Allocation, Job, Mark, Node, Settings, World

HOSTS = tuple(f"n{n}" for n in range(8))
NODES = [Node(name) for name in HOSTS]
SETTINGS = Settings(start_timeout=5, retry=3, window=3)
GATED = (f"{GATE}:1",)
NEW = Mark("new")


def world(*jobs, allocations=(), nodes=NODES, now=100, foreign=frozenset()):
    return World(jobs, nodes, frozenset(HOSTS), allocations, foreign, now)


def waiting(id=1, **more):
    return Job(id, "PENDING", licenses=GATED, mark=NEW, **more)


def owned(id="a", job=1, hosts=("n0",), state="active", **more):
    given = {"confirmed_by": "switches", "requested": len(hosts), **more}
    return Allocation(id, job, state, hosts if state != "queued" else (), **given)


def kinds(instructions):
    return [type(each) for each in instructions]


def test_a_new_job_is_offered():
    assert kinds(decide(world(waiting()), SETTINGS)) == [Offer]


@pytest.mark.parametrize(
    "more",
    [{"priority": 0}, {"reason": "Dependency"}, {"reason": "QOSMaxJobsPerUserLimit"}],
    ids=lambda more: next(iter(more)),
)
def test_a_job_that_could_not_start_is_not_offered_and_holds_nothing(more):
    assert decide(world(waiting(**more)), SETTINGS) == []
    held = world(waiting(**more), allocations=[owned()])
    assert kinds(decide(held, SETTINGS)) == [Release]


def test_a_job_starts_on_its_own_hosts_once_the_routes_are_confirmed():
    (opened,) = decide(world(waiting(), allocations=[owned()]), SETTINGS)
    assert isinstance(opened, Open)
    assert opened.hosts == ("n0",)
    for early in ({"confirmed_by": None}, {"confirmed_by": "nobody"}, {"changing": True}):
        assert decide(world(waiting(), allocations=[owned(**early)]), SETTINGS) == []


def ready(**more):
    given = {"mark": Mark("open", "a", 98), "required": ("n0",), **more}
    return Job(1, "PENDING", **given)


def test_a_job_that_may_start_is_left_alone():
    assert decide(world(ready(), allocations=[owned()]), SETTINGS) == []


@pytest.mark.parametrize(
    ("job", "own"),
    [
        (ready(), None),
        (ready(priority=0), owned()),
        (ready(required=("n1",)), owned()),
        (ready(required=()), owned()),
        (ready(mark=Mark("open", "a", 90)), owned()),
        (ready(mark=None), owned()),
        (ready(), owned(state="releasing")),
        (ready(), owned(confirmed_by=None)),
    ],
)
def test_the_gate_is_shut_again(job, own):
    """Without an allocation, held, on other hosts, too late, or with routes unconfirmed."""
    answer = decide(world(job, allocations=[own] if own else []), SETTINGS)
    assert kinds(answer) == [Gate]


def test_the_gate_is_shut_again_if_a_host_is_drained():
    nodes = [replace(node, usable=node.name != "n0") for node in NODES]
    assert kinds(decide(world(ready(), allocations=[owned()], nodes=nodes), SETTINGS)) == [Gate]


def test_what_did_not_start_is_given_back_only_behind_the_gate_and_rests():
    job = waiting()
    returned = replace(job, mark=Mark("returned", "a", 99))
    answer = decide(world(returned, allocations=[owned()]), SETTINGS)
    assert kinds(answer) == [Release]
    assert decide(world(returned), SETTINGS) == []
    assert kinds(decide(world(returned, now=103), SETTINGS)) == [Offer]


def test_what_runs_off_its_allocation_is_stopped_and_old_jobs_are_not():
    job = Job(1, "RUNNING", allocated=("n0",), mark=NEW)
    assert kinds(decide(world(job), SETTINGS)) == [Stop]
    assert kinds(decide(world(job, allocations=[owned(hosts=("n1",))]), SETTINGS)) == [Stop]
    assert decide(world(job, allocations=[owned()]), SETTINGS) == []
    assert decide(world(replace(job, mark=None)), SETTINGS) == []
    assert decide(world(replace(job, state="COMPLETING")), SETTINGS) == []


@pytest.mark.parametrize("jobs", [(), (Job(1, "COMPLETED"),), (Job(1, "CANCELLED"),)])
def test_an_allocation_ends_with_its_job(jobs):
    assert kinds(decide(world(*jobs, allocations=[owned()]), SETTINGS)) == [Release]


def test_the_queue_is_in_slurms_order_and_no_longer_than_the_window():
    jobs = [waiting(id, priority=id) for id in range(1, 6)]
    offered = [each.job.id for each in decide(world(*jobs), SETTINGS) if isinstance(each, Offer)]
    assert offered == [5, 4, 3]


def test_priorities_are_told_again_only_if_the_order_would_be_wrong():
    queued = owned(state="queued", hosts=(), requested=1, priority=1)
    second = replace(queued, id="b", job=2, priority=5)
    jobs = waiting(1, priority=11), waiting(2, priority=19)
    aged = decide(world(*jobs, allocations=[queued, second]), SETTINGS)
    assert kinds(aged) == [Tell, Tell]
    turned = (waiting(1, priority=30), waiting(2, priority=19))
    answer = decide(world(*turned, allocations=[queued, second]), SETTINGS)
    assert answer[:2] == [Rank(queued, 30), Rank(second, 19)]
    equal = replace(second, priority=1)  # the service places it behind the first
    answer = decide(world(*jobs, allocations=[queued, equal]), SETTINGS)
    assert answer[:2] == [Rank(equal, 19), Rank(queued, 11)]
    newcomer = waiting(3, priority=15)  # the service would place it before those that have aged
    answer = decide(world(*jobs, newcomer, allocations=[queued, second]), SETTINGS)
    assert kinds(answer) == [Rank, Rank, Tell, Offer, Tell]
    assert [each.priority for each in answer if isinstance(each, Rank)] == [19, 11]


def test_a_request_that_is_out_of_date_is_made_again():
    queued = owned(state="queued", hosts=(), requested=2)
    assert kinds(decide(world(waiting(), allocations=[queued]), SETTINGS)) == [Release]


def test_tasks_of_an_array_become_jobs():
    answer = decide(world(waiting(tasks=(1, 2, 3, 4))), SETTINGS)
    assert [each.task for each in answer if isinstance(each, Tell)] == [1, 2, 3]


def test_hosts_that_a_job_avoids():
    nodes = [
        replace(node, features=frozenset({"even"} if n % 2 == 0 else ()))
        for n, node in enumerate(NODES)
    ]
    nodes[2] = replace(nodes[2], usable=False)
    old = Job(9, "RUNNING", allocated=("n4",))
    seen = world(old, nodes=nodes[:7], foreign=frozenset({"n6"}))
    assert avoided(waiting(features="even"), seen) == set(HOSTS) - {"n0"}
    assert avoided(waiting(excluded=("n0",)), seen) == {"n0", "n2", "n4", "n6", "n7"}


def test_features():
    assert has_features(frozenset("ab"), "a&b")
    assert not has_features(frozenset("a"), "a&b")
    assert has_features(frozenset("a"), "b|a")


def test_switching_off_lets_all_jobs_go():
    off = replace(SETTINGS, closing=True)
    assert kinds(decide(world(waiting(), allocations=[owned()]), off)) == [Free, Release]
    assert kinds(decide(world(ready(), allocations=[owned()]), off)) == [Free, Release]
    running = Job(1, "RUNNING", allocated=("n0",), mark=NEW)
    assert decide(world(running, allocations=[owned()]), off) == []


def test_an_allocation_as_rest_shows_it():
    """Fields of situations are absent."""
    least = {"id": "a", "name": "job-7", "state": "active", "requested": 1, "policy": "jigsaw"}
    least["created_at"] = "1970-01-01T00:01:00Z"
    own = Allocation.of({**least, "hosts": [{"name": "n0"}], "confirmed_by": "switches"})
    assert own == owned(job=7, words="jigsaw, 1 hosts, contention_free: no", created=60.0)
    assert Allocation.of({**least, "name": "blue"}) is None


# -- random histories -------------------------------------------------------------


class Site:
    """A model of Slurm, its prolog and the service, in which anything may happen at any time."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now = 1000
        self.jobs = {}
        self.allocations = {}
        self.down = set()
        self.serial = 0
        self.forgotten = []
        """Jobs and hosts on which they run although Slurm does not know it any more."""
        self.calm = False
        """Nothing fails any more, and each job that runs ends."""

    def read(self):
        """As the daemon reads: the service first, and a step may pass before Slurm answers."""
        allocations = list(self.allocations.values())
        if self.rng.random() < 0.3:
            self.step()
        nodes = [Node(name, name not in self.down) for name in HOSTS]
        return World(
            list(self.jobs.values()), nodes, frozenset(HOSTS), allocations, frozenset(), self.now
        )

    def round(self, crash=0.0):
        for instruction in decide(self.read(), SETTINGS):
            if self.rng.random() < crash:
                return
            self.carry_out(instruction)
            if self.rng.random() < 0.3:
                self.step()

    def carry_out(self, instruction):
        match instruction:
            case Offer(job, avoid):
                self.serial += 1
                id = f"a{self.serial}"
                self.allocations[id] = Allocation(
                    *(id, job.id, "queued"),
                    requested=job.nodes,
                    duration=job.seconds,
                    avoided=avoid,
                    priority=job.priority,
                )
            case Rank(allocation, priority):
                if (own := self.allocations.get(allocation.id)) and own.state == "queued":
                    self.allocations[own.id] = replace(own, priority=priority)
            case Release(allocation, _, certain):
                if certain or (allocation.job, allocation.hosts) not in self.forgotten:
                    self.allocations.pop(allocation.id, None)
            case Open(job, hosts, mark):
                self.change(job, licenses=(), required=hosts, mark=mark)
            case Gate(job, mark):
                self.change(job, licenses=GATED, required=(), mark=mark)
            case Tell(job, mark, None):
                self.change(job, mark=mark, pending=False)
            case Stop(job, mark):
                raise AssertionError(f"{job} ran off its allocation: {mark}")

    def change(self, job, pending=True, **changes):
        now = self.jobs[job.id]
        if now.state == "PENDING" or not pending:
            self.jobs[job.id] = replace(now, **changes)

    def step(self):
        """One thing happens in Slurm or in the service."""
        calm = self.calm
        self.now += 1
        self.admit()
        job = self.rng.choice(list(self.jobs.values()))
        match job.state:
            case "PENDING" if not job.gated and job.priority and self.idle(job):
                owner = [a for a in self.allocations.values() if a.job == job.id]
                fits = any(a.state == "active" and a.hosts == job.required for a in owner)
                if fits:  # the prolog
                    self.jobs[job.id] = replace(job, state="RUNNING", allocated=job.required)
            case "PENDING" if not calm and self.rng.random() < 0.2:
                self.jobs[job.id] = replace(job, priority=self.rng.choice([0, 1, 1, 5]))
            case "RUNNING":
                chance = self.rng.random()
                if not calm and chance < 0.1:  # slurmctld is killed before it saved the start
                    self.forgotten.append((job.id, job.allocated))
                    gone = self.rng.choice(["PENDING", "CANCELLED"])
                    self.jobs[job.id] = replace(job, state=gone, allocated=(), ended=self.now)
                elif not calm and chance < 0.2:  # requeued
                    self.jobs[job.id] = replace(job, state="PENDING", allocated=())
                elif chance < 0.5 or calm:
                    over = {"left": job.allocated, "ended": self.now}
                    self.jobs[job.id] = replace(job, state="COMPLETED", allocated=(), **over)
        if self.forgotten and self.rng.random() < 0.2:  # the nodes register, and Slurm ends it
            self.forgotten.pop()
        if not calm and self.rng.random() < 0.1:
            self.down = set(self.rng.sample(HOSTS, self.rng.randrange(3)))
        self.check()

    def idle(self, job):
        busy = {node for other in self.jobs.values() for node in other.allocated}
        return job.required and not busy & set(job.required) and not self.down & set(job.required)

    def admit(self):
        """The first of the queue gets hosts if there are enough; then routes are confirmed."""
        for own in list(self.allocations.values()):
            if own.state == "allocating":
                self.allocations[own.id] = replace(own, state="active", confirmed_by="switches")
        taken = {host for own in self.allocations.values() for host in own.hosts}
        queued = [a for a in self.allocations.values() if a.state == "queued"]
        head = max(queued, key=lambda each: each.priority, default=None)
        if head is not None:
            free = [host for host in HOSTS if host not in taken | head.avoided]
            if len(free) >= head.requested:
                hosts = tuple(sorted(self.rng.sample(free, head.requested)))
                self.allocations[head.id] = replace(head, state="allocating", hosts=hosts)

    def check(self):
        for job in self.jobs.values():
            if job.state == "RUNNING":
                own = [a for a in self.allocations.values() if a.job == job.id]
                assert any(set(job.allocated) <= set(a.hosts) for a in own), job
        for job, hosts in self.forgotten:
            assert any((a.job, a.hosts) == (job, hosts) for a in self.allocations.values()), job


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_keep_jobs_on_their_hosts_and_leave_nothing(seed):
    site = Site(seed)
    for id in range(1, 13):
        site.jobs[id] = waiting(id, nodes=site.rng.randint(1, 4), priority=site.rng.randint(1, 3))
    for _ in range(80):
        site.round(crash=0.2)
        site.step()
    site.calm, site.down = True, set()
    for id, job in site.jobs.items():
        site.jobs[id] = replace(job, priority=job.priority or 1)
    for _ in range(600):
        site.round()
        site.step()
        if all(job.over for job in site.jobs.values()) and not site.allocations:
            return
    pytest.fail(f"{site.jobs}\n{site.allocations}")


def test_only_a_job_that_ran_on_its_hosts_and_left_them_is_certainly_gone():
    over = Job(1, "COMPLETED", mark=NEW, left=("n0",), ended=50)
    for job, given, certain in [
        (over, owned(created=40), True),
        (over, owned(created=60), False),  # requeued since, and slurmctld forgot it
        (replace(over, left=()), owned(created=40), False),  # it seemed to wait until its end
        (replace(over, left=("n0", "n1")), owned(created=40), False),
    ]:
        assert decide(world(job, allocations=[given]), SETTINGS) == [
            Release(given, "job 1 has ended", certain)
        ]
    assert decide(world(allocations=[owned()]), SETTINGS) == [
        Release(owned(), "Slurm knows no job 1", certain=False)
    ]


def test_a_job_whose_launch_failed_is_not_held_for_ever():
    held = waiting(priority=0, reason="launch failed requeued held")
    assert kinds(decide(world(held), SETTINGS)) == [Unhold]
    assert Unhold not in kinds(decide(world(waiting(priority=0, reason="JobHeldUser")), SETTINGS))
