# SPDX-License-Identifier: Apache-2.0

"""A worker that hangs in an adapter loses its fabrics and does nothing when it resumes."""

import threading
import time
from random import Random

import pytest

from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.worker.fabric_leases import FabricLeases, Intervals, Renewal
from laas_service.app.worker.watchdog import Watchdog
from laas_service.app.worker.worker import Worker
from laas_service.domain.errors import LeaseLost
from tests.convergers import converger
from tests.fakes import FakeCompute
from tests.unit.app.worker.test_fabric_leases import EPOCH, LEASE, Site

PATIENCE = 60.0
LONG = 120.0
"""Seconds that a test waits for what other threads do."""


@pytest.fixture
def site(store):
    return Site(store)


def hung(site: Site, step: str, seconds: float) -> tuple[FabricLeases, FabricLeases]:
    """A worker whose ``step`` takes ``seconds`` while it renews its leases, and a second worker."""
    two = site.worker("two")

    def at(name: str) -> None:
        if name == step:
            for _ in range(int(seconds / 5)):
                site.later(5)
                one.renew()
            two.run_once()
            two.reconcile()

    one = site.worker("one", at=at, patience=PATIENCE)
    return one, two


def test_who_hangs_is_followed_although_it_renews(site):
    one, two = hung(site, "before hand over", PATIENCE + 10)
    site.allocate("a", 0)
    assert one.run_once() == 0
    assert two.fabrics == ["f"]
    assert site.state("a") is State.ACTIVE
    assert [event.state for event in site.store.allocations.get("a").history] == [
        State.ALLOCATING,
        State.ACTIVE,
    ]
    assert (
        site.store.observations.holding("f").taken,
        site.store.observations.holding("f").stuck,
    ) == (2, 1)
    assert one.run_once() == 0
    assert one.fabrics == []


def test_who_is_only_slow_is_left_alone(site):
    one, two = hung(site, "before hand over", PATIENCE - 10)
    site.allocate("a", 0)
    assert one.run_once() == 1
    assert (one.fabrics, two.fabrics) == (["f"], [])
    assert site.store.observations.holding("f").stuck == 0


def test_who_was_given_up_does_nothing_more_and_begins_anew(site):
    """No other worker has taken the fabric, so the same worker takes it again."""
    compute = FakeCompute()
    one = site.worker("one", patience=PATIENCE)
    hand_over = site.compute.hand_over

    def hang(handover, ready=()) -> None:
        site.later(PATIENCE + 1)
        one.renew()
        one.watchdog.beat()  # as before each call to Nova
        compute.hand_over(handover)

    site.compute.hand_over = hang
    site.allocate("a", 0)
    assert one.run_once() == 0
    assert compute.aggregates == {}
    site.compute.hand_over = hand_over
    site.later(LEASE)
    one.run_once()
    assert (one.fabrics, site.state("a")) == (["f"], State.ACTIVE)


def test_idle_workers_are_not_stuck_and_other_threads_do_not_beat():
    time = [0.0]
    pulse = Watchdog(lambda: time[0], 10)
    time[0] = 100
    assert not pulse.stuck()
    with pulse.working():
        time[0] += 9
        pulse.beat()
        time[0] += 9
        assert not pulse.stuck()
        other = threading.Thread(target=pulse.beat)
        other.start()
        other.join()
        time[0] += 9
        assert pulse.stuck()
        with pytest.raises(LeaseLost):
            pulse.beat()
        pulse.recover()
        pulse.beat()
    time[0] += 100
    assert not pulse.stuck()


def test_who_waits_for_long_says_for_what():
    time = [0.0]
    watchdog = Watchdog(lambda: time[0], 600, slow=5)
    assert watchdog.waits_for() is None
    with watchdog.working():
        watchdog.beat("list aggregates")
        time[0] += 4
        assert watchdog.waits_for() is None
        time[0] += 8
        assert watchdog.waits_for() == "the worker has waited for 12 s: list aggregates"
        watchdog.beat()
        assert watchdog.waits_for() is None
        time[0] += 7
        assert watchdog.waits_for() == "the worker has waited for 7 s for the end of a step"
    assert watchdog.waits_for() is None
    time[0] += 100
    assert watchdog.waits_for() is None


def test_what_a_worker_waits_for_is_recorded_until_it_moves(site):
    one, told = site.worker("one", patience=PATIENCE), []
    hand_over = site.compute.hand_over

    def slow(handover, ready=()) -> None:
        one.watchdog.beat("list hypervisors")
        for _ in range(2):
            site.later(4)
            one.renew()
            told.append(site.store.observations.holding("f").waits_for)
        hand_over(handover)

    site.compute.hand_over = slow
    site.allocate("a", 0)
    assert one.run_once() == 1
    assert told == [None, "the worker has waited for 8 s: list hypervisors"]
    one.renew()
    assert site.store.observations.holding("f").waits_for is None
    assert site.state("a") is State.ACTIVE


class Real:
    """A worker and its lease renewal in threads, with the system clock."""

    def __init__(
        self, store: SqlStore, compute: FakeCompute, site: Site, name: str, patience: float
    ) -> None:
        def make_converger(held, fabric, before_effect):
            return converger(
                held,
                compute,
                site.switches,
                now=lambda: EPOCH,
                chance=Random(1),
                fabric=fabric,
                before_effect=before_effect,
            )

        leases = FabricLeases(
            SqlStore(store._engine),
            SqlLeases(store._engine),
            make_converger,
            owner=name,
            seconds=LONG,
            intervals=Intervals(LONG, LONG),
            clock=lambda: 0.0,
            watchdog=Watchdog(time.monotonic, patience),
        )
        self.worker = Worker(leases, lambda: 0, interval=0.05)
        self.renewal = Renewal(leases, 0.3, self.worker.wake)
        for loop in (self.worker, self.renewal):
            loop.start()

    def stop(self) -> None:
        self.renewal.stop(LONG)
        self.worker.stop(LONG)


def test_a_worker_that_waits_for_nova_for_ever_is_followed_by_another_one(site):
    """With real threads; the lease alone would not expire during the test."""
    hanging, hangs, released = FakeCompute(), threading.Event(), threading.Event()

    def hang(handover, ready=()) -> None:
        hangs.set()
        assert released.wait(LONG)

    hanging.hand_over = hang  # type: ignore[method-assign]
    site.allocate("a", 0)
    first = Real(site.store, hanging, site, "first", patience=2)
    assert hangs.wait(LONG)
    second = Real(site.store, site.compute, site, "second", patience=LONG)
    try:
        for _ in range(int(LONG / 0.1)):
            if site.state("a") is State.ACTIVE:
                break
            threading.Event().wait(0.1)
        assert site.state("a") is State.ACTIVE
        assert site.store.observations.holding("f").worker == "second"
    finally:
        released.set()
        first.stop()
        second.stop()
    assert site.store.observations.holding("f").stuck >= 1
    assert site.state("a") is State.ACTIVE
