# SPDX-License-Identifier: Apache-2.0

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from sqlalchemy import literal

from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.types import Moment
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Handover
from laas_service.app.requests import AllocationRequest
from laas_service.app.worker.fabric_leases import FabricLeases, Intervals, Renewal
from laas_service.app.worker.watchdog import Watchdog
from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.errors import Unavailable
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import Topology, Xgft
from tests import databases
from tests.convergers import converger
from tests.fakes import FakeCompute, FakeSubnetManager
from tests.unit.adapters.test_leases import contents

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = 15.0
TREE = Topology(Xgft((4, 2, 1), (1, 4, 0)))


def hosts_of(fabric: str) -> Inventory:
    return Inventory(tuple(f"{fabric}-{h}" for h in range(8)), (), (), (), (), (), ())


class Site:
    """A database with fabrics, fakes of Nova and OpenSM, a clock, and any number of workers."""

    def __init__(self, store: SqlStore, fabrics: str = "f") -> None:
        self.store = store
        self.compute = FakeCompute()
        self.switches = FakeSubnetManager()
        self.time = EPOCH
        self.steps: dict[str, list[str]] = {}
        for id in fabrics:
            store.fabrics.add(id, TREE, hosts_of(id))

    def worker(self, name: str, at=None, patience: float = 1e9) -> FabricLeases:
        """A worker with a store of its own; ``at`` is called at each of its steps."""
        steps = self.steps[name] = []
        told = at or steps.append
        mine = SqlStore(self.store._engine, at=told)

        def make_converger(store, fabric, before_effect):
            return converger(
                store,
                self.compute,
                self.switches,
                now=lambda: self.time,
                chance=Random(1),
                at=told,
                fabric=fabric,
                before_effect=before_effect,
            )

        return FabricLeases(
            mine,
            SqlLeases(self.store._engine, clock=lambda: literal(self.time, Moment())),
            make_converger,
            owner=name,
            seconds=LEASE,
            intervals=Intervals(reconcile=300, drift=10),
            clock=lambda: self.time.timestamp(),
            watchdog=Watchdog(lambda: self.time.timestamp(), patience),
        )

    def later(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def allocate(self, id: str, *slots: int, fabric: str = "f") -> None:
        answer = Allocation(id, len(slots), "test", (GroupShare(0, sum(1 << s for s in slots), 0),))
        new = AllocationRequest(
            id=id, fabric=fabric, name=id, project_id="blue", policy="test", hosts=len(slots)
        )
        self.store.admissions.admit(new, lambda _: answer)

    def state(self, id: str) -> State:
        return self.store.allocations.get(id).state


@pytest.fixture
def site(store):
    return Site(store)


def test_one_works_and_the_other_waits(site):
    one, two = site.worker("one"), site.worker("two")
    site.allocate("a", 0)
    assert one.run_once() == 1
    assert two.run_once() == 0
    assert (one.fabrics, two.fabrics) == (["f"], [])
    assert site.state("a") is State.ACTIVE
    assert site.steps["two"] == []


def test_whoever_ends_is_followed_at_once(site):
    one, two = site.worker("one"), site.worker("two")
    one.run_once()
    one.leave()
    two.run_once()
    assert (one.fabrics, two.fabrics) == ([], ["f"])


def test_whoever_is_killed_is_followed_when_the_lease_expires(site):
    one, two = site.worker("one"), site.worker("two")
    one.run_once()
    site.allocate("a", 0)
    site.later(LEASE - 1)
    two.run_once()
    assert (two.fabrics, site.state("a")) == ([], State.ALLOCATING)
    site.later(1)
    two.run_once()
    assert (two.fabrics, site.state("a")) == (["f"], State.ACTIVE)


def test_a_vacancy_wakes_a_worker_that_looks_seldom(site):
    one, two = site.worker("one"), site.worker("two")
    woken: list[float] = []
    renewal = Renewal(two, LEASE, lambda: woken.append(site.time.timestamp()))
    renewal.round()
    one.run_once()
    renewal.round()
    assert len(woken) == 1
    site.later(LEASE)
    renewal.round()
    assert len(woken) == 2
    two.run_once()
    renewal.round()
    assert (two.fabrics, len(woken)) == (["f"], 2)


def test_a_worker_that_renews_stays(site):
    one, two = site.worker("one"), site.worker("two")
    one.run_once()
    for _ in range(10):
        site.later(LEASE - 1)
        one.renew()
        two.run_once()
    assert (one.fabrics, two.fabrics) == (["f"], [])


def test_whoever_woke_up_too_late_does_nothing_more(site):
    one, two = site.worker("one"), site.worker("two")
    one.run_once()
    site.later(LEASE)
    two.run_once()
    site.allocate("a", 0)
    done = list(site.steps["one"])
    assert one.run_once() == 0
    assert (one.fabrics, site.steps["one"], site.state("a")) == ([], done, State.ALLOCATING)
    assert two.run_once() == 1


def test_whoever_could_not_renew_and_was_not_missed_goes_on(site):
    one = site.worker("one")
    one.run_once()
    converger = one._held["f"].converger
    site.later(1000)
    site.allocate("a", 0)
    one.run_once()
    assert one._held["f"].converger is converger
    assert (one.fabrics, site.state("a")) == (["f"], State.ACTIVE)


def test_every_effect_outside_begins_with_a_whole_lease(site):
    """Earlier steps may take long, as long as no other worker takes the fabric over."""
    two = site.worker("two")

    def slow(step: str) -> None:
        if step.startswith("before"):
            two.run_once()
            assert two.fabrics == []
        else:
            site.later(LEASE - 1)

    one = site.worker("one", at=slow)
    site.allocate("a", 0)
    one.run_once()
    assert site.state("a") is State.ACTIVE


def test_workers_share_the_fabrics_and_give_up_what_is_beyond_their_share(store):
    site = Site(store, "fgh")
    one, two = site.worker("one"), site.worker("two")
    one.run_once()
    assert one.fabrics == ["f", "g", "h"]
    two.run_once()
    assert two.fabrics == []  # no lease is free yet
    one.renew()
    one.run_once()
    two.run_once()
    assert (one.fabrics, two.fabrics) == (["f", "g"], ["h"])
    for fabric in "fgh":
        site.allocate(fabric * 2, 0, fabric=fabric)
    assert (one.run_once(), two.run_once()) == (2, 1)
    assert {site.state(fabric * 2) for fabric in "fgh"} == {State.ACTIVE}
    two.leave()
    one.run_once()
    assert one.fabrics == ["f", "g", "h"]


def test_trouble_with_one_fabric_leaves_the_others_alone(store):
    site = Site(store, "fg")
    one = site.worker("one")
    one.run_once()

    class Broken:
        def run_once(self):
            raise ZeroDivisionError("a bug")

        reconcile = run_once

    one._held["f"].converger = Broken()  # type: ignore[assignment]
    site.allocate("b", 0, fabric="g")
    assert one.run_once() == 1
    assert site.state("b") is State.ACTIVE
    one.reconcile()
    assert one.fabrics == ["f", "g"]


def test_all_is_compared_when_it_is_taken_and_after_the_interval(site):
    one, two = site.worker("one"), site.worker("two")
    site.allocate("a", 0)
    one.run_once()
    assert one.reconcile() == []
    del site.compute.aggregates["a"]
    assert one.reconcile() == []  # the interval has not passed
    site.later(300)
    assert one.reconcile() == ["allocation a: nothing is handed over; repaired"]
    del site.compute.aggregates["a"]
    one.leave()
    two.run_once()
    assert two.reconcile() == ["allocation a: nothing is handed over; repaired"]


def test_a_busy_worker_puts_a_comparison_off_by_one_interval_at_most(site):
    one = site.worker("one")
    site.allocate("a", 0)
    one.run_once()
    one.reconcile()
    first = site.store.observations.holding("f").compared_at
    assert first is not None
    del site.compute.aggregates["a"]
    site.later(599)
    assert one.reconcile(busy=True) == []
    assert site.store.observations.holding("f").compared_at == first
    site.later(1)
    assert one.reconcile(busy=True) == ["allocation a: nothing is handed over; repaired"]
    assert site.store.observations.holding("f").compared_at > first


def test_a_comparison_that_nova_does_not_answer_is_none(site, monkeypatch):
    one = site.worker("one")
    one.run_once()

    def away():
        raise Unavailable("Nova is away")

    monkeypatch.setattr(site.compute, "handed_over", away)
    assert one.reconcile() == ["Nova is away"]
    assert site.store.observations.holding("f").compared_at is None


def test_drift_is_looked_for_between_two_comparisons(site):
    one = site.worker("one")
    site.allocate("a", 0)
    one.run_once()
    one.reconcile()
    del site.compute.aggregates["a"]
    site.later(9)
    assert one.check_drift() == []
    site.later(1)
    assert one.check_drift() == ["allocation a: nothing is handed over; repaired"]


def test_looks_take_no_more_than_a_tenth_of_the_time(site):
    one = site.worker("one")
    one.run_once()
    one.reconcile()
    observed, times = site.compute.observed, []

    def slow():
        times.append(site.time)
        site.later(5)
        return observed()

    site.compute.observed = slow
    for _ in range(120):
        site.later(1)
        one.renew()
        one.check_drift()
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    assert min(pauses) == 50


def test_rounds_go_on_while_all_tables_are_read(site):
    """A comparison is made when they are read; the time of the reading is part of its own."""
    one = site.worker("one")
    site.allocate("a", 0)
    one.run_once()
    one.reconcile()
    del site.compute.aggregates["a"]
    site.later(10)
    site.switches.prepares = False
    site.allocate("b", 1)
    for _ in range(35):
        assert one.check_drift() == []
        one.run_once()
        site.later(1)
        one.renew()
    assert site.state("b") is State.ACTIVE
    site.switches.prepares = True
    assert one.check_drift() == ["allocation a: nothing is handed over; repaired"]
    del site.compute.aggregates["a"]
    for pause in (200, 114):  # 9 times 35 seconds
        site.later(pause)
        assert one.check_drift() == []
    site.later(1)
    assert one.check_drift() == ["allocation a: nothing is handed over; repaired"]


def test_all_is_compared_in_the_round_in_which_the_tables_are_read(site):
    one = site.worker("one")
    site.allocate("a", 0)
    one.run_once()
    site.switches.prepares = False
    one.reconcile()
    assert site.store.observations.holding("f").compared_at is None
    site.switches.prepares = True
    one.reconcile()
    assert site.store.observations.holding("f").compared_at is not None


def test_drift_of_another_fabric_is_its_holders_affair(store):
    site = Site(store, "fg")
    one, two = site.worker("one"), site.worker("two")
    site.allocate("b", 0, fabric="g")
    for worker in (one, two, one, two, one):
        worker.renew()
        worker.run_once()
    assert (one.fabrics, two.fabrics) == (["f"], ["g"])
    leftover = site.compute.aggregates["b"]
    site.store.allocations.transition(site.store.allocations.get("b"), State.RELEASING, "asked")
    two.run_once()
    site.compute.aggregates["b"] = leftover
    site.compute.aggregates["x"] = Handover("x", "blue", ("g-3",))
    site.compute.aggregates["y"] = Handover("y", "blue", ("elsewhere",))
    assert [text.split(",")[0] for text in one.reconcile()] == [
        "hosts are handed over to allocation y"
    ]
    assert len(two.reconcile()) == 3
    assert set(site.compute.aggregates) == {"x", "y"}


def test_a_lease_that_was_lost_while_comparing_ends_it(site):
    one, two = site.worker("one"), site.worker("two")
    site.allocate("a", 0)
    one.run_once()
    site.later(LEASE)
    two.run_once()
    del site.compute.aggregates["a"]
    assert one.reconcile() == []
    assert (one.fabrics, site.compute.aggregates) == ([], {})


def test_without_the_database_nothing_is_given_up(site, monkeypatch):
    one = site.worker("one")
    one.run_once()

    def away(*_):
        raise Unavailable("the database failed")

    with monkeypatch.context() as patch:
        patch.setattr(one._leases, "enrol", away)
        with pytest.raises(Unavailable):
            one.renew()
    one.renew()
    assert one.fabrics == ["f"]


def test_loss_is_noticed_at_the_next_effect_and_no_earlier_step_is_undone(site):
    """Another worker takes the fabric over in the middle of a round, between two effects."""
    two = site.worker("two")

    def pause(step: str) -> None:
        if step == "after publish" and not two.fabrics:
            site.later(LEASE)
            two.run_once()

    one = site.worker("one", at=pause)
    site.allocate("a", 0)
    assert one.run_once() == 0
    assert (two.fabrics, site.state("a")) == (["f"], State.ACTIVE)
    one.renew()
    one.run_once()
    assert one.fabrics == []
    assert [e.state for e in site.store.allocations.get("a").history] == [
        State.ALLOCATING,
        State.ACTIVE,
    ]


def asked(site: Site) -> None:
    """Allocations to hand over, to take back and to cut off, one of each."""
    for position, id in enumerate("rca"):
        site.allocate(id, position)
    for id in "rc":
        record = site.store.allocations.get(id)
        site.store.allocations.transition(record, State.RELEASING, "asked", force=id == "c")


def round_with_a_pause(site: Site, pause_at: int) -> bool:
    """Whether worker ``one`` reached step ``pause_at``; it pauses there until ``two`` is done.

    Nova is away when ``one`` resumes, so that ``one`` has an error to record.
    """
    two, seen, count = site.worker("two"), [], 0

    def at(step: str) -> None:
        nonlocal count
        if step.startswith("before commit"):
            return  # other writers wait for the database here
        count += 1
        if count != pause_at:
            return
        site.later(LEASE)
        while two.run_once():
            pass
        two.reconcile()
        seen.append(contents(site.store))
        for verb in ("pool", "hand_over", "fence", "take_back"):
            site.compute.faults.before[verb] = Unavailable("Nova is away")

    site.worker("one", at=at).run_once()
    if seen:
        assert contents(site.store) == seen[0]
        assert {site.state(id) for id in "rc"} == {State.RELEASED}
        assert site.state("a") is State.ACTIVE
    return bool(seen)


def test_wherever_a_worker_pauses_it_writes_nothing_after_its_successor():
    for pause_at in range(1, 100):
        with databases.fresh() as engine:
            site = Site(SqlStore(engine))
            asked(site)
            if not round_with_a_pause(site, pause_at):
                break
    assert pause_at > 15


def test_a_worker_lets_go_of_a_deleted_fabric_and_serves_the_others(store):
    site = Site(store, "fg")
    worker = site.worker("one")
    worker.run_once()
    assert worker.fabrics == ["f", "g"]
    store.fabrics.delete("f")
    site.allocate("a", 0, fabric="g")
    worker.run_once()
    worker.renew()
    worker.run_once()
    assert (worker.fabrics, site.state("a")) == (["g"], State.ACTIVE)
    store.fabrics.add("f", TREE, hosts_of("f"))
    site.allocate("b", 0)
    worker.run_once()
    assert (worker.fabrics, site.state("b")) == (["f", "g"], State.ACTIVE)
