# SPDX-License-Identifier: Apache-2.0

"""The converger: order of steps, failed steps, and repetition of every step."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

import pytest

from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.app import lifecycle
from laas_service.app.handovers import difference_of_handovers
from laas_service.app.lifecycle import Action, AllocationFaults, Phase, State
from laas_service.app.placement_changes import begin_link_repair
from laas_service.app.ports.compute import Handover
from laas_service.app.records import (
    AllocationRecord,
    Drift,
    HostState,
    LinkState,
    NewPlacement,
)
from laas_service.app.requests import AllocationRequest
from laas_service.app.worker.converger import BATCH_SECONDS
from laas_service.app.worker.round import Pace
from laas_service.domain.allocation import (
    Allocation,
    GroupShare,
    Request,
    Shape,
    Sharing,
    SlotDemand,
)
from laas_service.domain.errors import (
    ConcurrentUpdate,
    HostsBusy,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from laas_service.domain.inventory import Inventory
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.topology import LeafLink, Topology, Xgft
from laas_service.messages import Applied, Initiator, Span
from tests import rewind
from tests.convergers import Convergers
from tests.fakes import FakeCompute, FakeSubnetManager

SMALL = Topology(Xgft((4, 2, 1), (1, 4, 0)), absent_hosts=frozenset({7}))
HOSTS = Inventory(tuple(f"node-{h}" for h in range(8)), (), (), (), (), (), ())
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A store with one fabric, fakes of Nova and OpenSM, a clock, and a converger."""

    def __init__(self, store: SqlStore, *, switches=None, fabric=(SMALL, HOSTS), **options):
        self.store = store
        self.compute = FakeCompute()
        self.switches = switches or FakeSubnetManager()
        self.time = EPOCH
        self.steps: list[str] = []
        self.converger = self.restarted(**options)
        store.fabrics.add("f", *fabric)

    def restarted(self, **options) -> Convergers:
        """A new converger, as after a restart of the worker."""
        return Convergers(
            self.store,
            self.compute,
            self.switches,
            now=lambda: self.time,
            chance=Random(1),
            at=self.steps.append,
            **options,
        )

    def allocate(
        self, id: str, *slots: int, project: str = "blue", by: Initiator | None = None
    ) -> None:
        mask = sum(1 << position for position in slots)
        answer = Allocation(id, len(slots), "test", (GroupShare(0, mask, 0),))
        new = AllocationRequest(
            id=id, fabric="f", name=id, project_id=project, policy="test", hosts=len(slots), by=by
        )
        self.store.admissions.admit(new, lambda fabric: answer)

    def active(self, id: str, *slots: int, project: str = "blue") -> None:
        self.allocate(id, *slots, project=project)
        self.converger.run_once()
        assert self.state(id) is State.ACTIVE

    def release(self, id: str, *, force: bool = False) -> None:
        record = self.store.allocations.get(id)
        self.store.allocations.transition(record, State.RELEASING, "asked", force=force)

    def state(self, id: str) -> State:
        return self.store.allocations.get(id).state

    def error(self, id: str) -> str:
        return self.store.allocations.get(id).error or ""

    def later(self, seconds: float = 120.0) -> None:
        self.time += timedelta(seconds=seconds)

    def owned(self) -> set[str]:
        return set(self.store.fabrics.ledger("f")[0].allocations)

    def outside(self) -> tuple[object, ...]:
        """State visible to tenants: projects accepted by each host, and tenants on the switches."""
        accepted = {host: self.compute.accepts(host) for host in HOSTS.host_names}
        return accepted, self.switches.tenants("f")


@pytest.fixture
def world(store):
    return World(store)


def test_the_history_and_the_fabric_say_where_the_time_went(store, monkeypatch):
    """What no step took was waiting: the seconds of an entry are those since the entry before."""
    ticks, taken = [0.0], SqlLeases(store._engine)
    world = World(store, clock=lambda: ticks[0])
    assert taken.take("f", "node1/7", 3600) is not None
    world.switches.spent = {Span.RENDER: 2.0, Span.RELOAD: 1.0}
    hand_over, applied = world.compute.hand_over, world.switches.applied

    def slow_hand_over(handover: Handover, ready: Collection[str] = ()) -> None:
        ticks[0] += 4.0
        hand_over(handover)

    def slow_applied(fabric: str) -> Applied:
        ticks[0] += 0.5
        return applied(fabric)

    monkeypatch.setattr(world.compute, "hand_over", slow_hand_over)
    monkeypatch.setattr(world.switches, "applied", slow_applied)
    world.allocate("a", 0)
    claimed, *_ = store.allocations.get("a").history
    assert claimed.seconds.keys() == {Span.WAIT, Span.SEARCH, Span.COMMIT}
    world.time = store.allocations.get("a").updated_at + timedelta(seconds=30)
    world.converger.run_once()
    *_, last = store.allocations.get("a").history
    assert last.state is State.ACTIVE
    assert last.seconds == {
        Span.WAIT: 22.5,
        Span.RENDER: 2.0,
        Span.RELOAD: 1.0,
        Span.READ_BACK: 0.5,
        Span.NOVA: 4.0,
    }
    holding = store.observations.holding("f")
    assert (holding.activated, holding.seconds[Span.NOVA]) == (1, 4.0)
    assert holding.seconds[Span.WAIT] == pytest.approx(22.5 + claimed.seconds[Span.WAIT])
    world.allocate("b", 1)
    world.converger.run_once()
    holding = store.observations.holding("f")
    assert (holding.activated, holding.seconds[Span.NOVA]) == (2, 8.0)
    world.release("a")
    while world.converger.run_once():
        pass
    *_, back, freed = store.allocations.get("a").history
    assert Span.RENDER not in back.seconds  # that was the publication for b
    assert freed.seconds[Span.RENDER] == 2.0
    assert store.observations.holding("f").activated == 2


def test_what_an_agent_spent_is_told_apart(store, monkeypatch):
    world = World(store, clock=lambda: 0.0)
    applied = world.switches.applied

    def told(fabric: str) -> Applied:
        spent = {Span.FETCH: 3.0, Span.RELOAD: 0.5, Span.READ_BACK: 4.0}
        seen: Applied = applied(fabric)
        return replace(seen, spent=spent)

    monkeypatch.setattr(world.switches, "applied", told)
    world.allocate("a", 0)
    world.time = store.allocations.get("a").updated_at + timedelta(seconds=30)
    world.converger.run_once()
    *_, last = store.allocations.get("a").history
    assert {span: seconds for span, seconds in last.seconds.items() if seconds} == {
        Span.WAIT: 22.5,
        Span.FETCH: 3.0,
        Span.RELOAD: 0.5,
        Span.READ_BACK: 4.0,
    }


def test_one_publication_is_for_all_that_wait(store):
    topology = Topology(Xgft((16, 8, 1), (1, 16, 0)))
    names = Inventory(tuple(f"node-{h}" for h in range(128)), (), (), (), (), (), ())
    world = World(store, fabric=(topology, names), clock=lambda: 0.0)
    for leaf in range(8):
        for position in range(16):
            answer = Allocation(
                f"{leaf}-{position}", 1, "test", (GroupShare(leaf, 1 << position, 0),)
            )
            new = AllocationRequest(
                id=answer.id, fabric="f", name="a", project_id="blue", policy="test", hosts=1
            )
            store.admissions.admit(new, lambda fabric, answer=answer: answer)
    world.converger.run_once()
    assert world.steps.count("before publish") == 1
    assert {record.state for record in store.allocations.page()} == {State.ACTIVE}


def test_routes_do_not_wait_for_slow_steps_at_hosts(store, monkeypatch):
    """The subnet manager programs them while hosts are taken back."""
    ticks = [0.0]
    world = World(store, clock=lambda: ticks[0])
    world.active("a", 0)
    world.active("b", 1)
    for id in ("a", "b"):
        world.release(id)
    world.allocate("c", 2)
    take_back, seen = world.compute.take_back, []

    def slow_take_back(handover: Handover) -> None:
        seen.append((handover.allocation_id, "c" in world.switches.tenants("f")))
        ticks[0] += 4.0
        take_back(handover)

    monkeypatch.setattr(world.compute, "take_back", slow_take_back)
    world.converger.run_once()
    assert seen == [("a", False), ("b", True)]
    assert world.steps.count("before publish") == 4  # two for the others, one early, one at the end
    assert (world.owned(), world.state("c")) == ({"c"}, State.ACTIVE)


def test_a_round_ends_in_time_and_the_next_one_goes_on(store):
    """However many steps are due, faults are observed and routes published in between."""
    ticks = count(step=BATCH_SECONDS)  # each step takes as long as a batch may
    world = World(store, clock=lambda: next(ticks))
    world.allocate("a", 0)
    world.allocate("b", 1)
    assert world.converger.run_once() == 2
    assert (world.state("a"), world.state("b")) == (State.ACTIVE, State.ALLOCATING)
    while world.converger.run_once():
        assert world.owned() == {"a", "b"}
    assert world.state("b") is State.ACTIVE
    assert not world.error("b")


def test_a_commit_whose_answer_was_lost_leaves_no_error_behind(store):
    """The connection is lost right after the commit, so the step is done."""
    world, lose = World(store), ["after commit: active", "after commit: hand back"]

    def at(step: str) -> None:
        if step in lose:
            lose.remove(step)
            raise Unavailable("the database failed: server closed the connection")

    store._transactions.at = at
    world.allocate("a", 0)
    world.converger.run_once()
    record = store.allocations.get("a")
    assert (record.state, record.error, record.failures) == (State.ACTIVE, None, 0)
    assert record.next_try is None
    world.release("a")
    while world.converger.run_once():
        pass
    assert lose == []
    assert world.state("a") is State.RELEASED
    assert not [event for event in store.allocations.get("a").history if "failed" in event.reason]


def test_a_failure_after_the_last_step_leaves_no_error_behind(world, monkeypatch):
    """The database fails when the worker reads whether there is another step."""
    true, lost = lifecycle.next_action, []

    def fail(record, *given, **options):
        if record.state in (State.ACTIVE, State.RELEASED) and record.state not in lost:
            lost.append(record.state)
            raise Unavailable("the database failed: server closed the connection")
        return true(record, *given, **options)

    monkeypatch.setattr("laas_service.app.lifecycle.next_action", fail)
    world.active("a", 0)
    assert (world.error("a"), world.store.allocations.get("a").next_try) == ("", None)
    world.release("a")
    world.converger.run_once()
    assert lost == [State.ACTIVE, State.RELEASED]
    states = [event.state for event in world.store.allocations.get("a").history]
    assert states.count(State.RELEASED) == 1
    assert world.error("a") == ""


# -- order ------------------------------------------------------------------------


def test_hosts_are_handed_over_only_after_routes_are_confirmed(world):
    world.switches.at_once = False
    world.allocate("a", 0, 1)
    world.converger.run_once()
    assert world.state("a") is State.ALLOCATING
    assert "waiting for the subnet manager" in world.error("a")
    assert world.compute.aggregates == {}
    world.switches.apply()
    world.later()
    world.converger.run_once()
    assert world.state("a") is State.ACTIVE
    assert world.compute.accepts("node-0") == world.compute.accepts("node-1") == {"blue"}
    assert world.error("a") == ""


def test_nothing_is_freed_before_both_sides_confirm(world):
    world.active("a", 0, 1)
    world.compute.servers["node-1"] = "blue"
    world.release("a")
    world.converger.run_once()
    assert "servers still run on node-1" in world.error("a")
    assert world.compute.accepts("node-0") == set()  # no new servers while the release waits
    assert world.switches.tenants("f") == {"a"}  # its servers keep their network
    assert world.owned() == {"a"}

    del world.compute.servers["node-1"]
    world.switches.at_once = False
    world.later()
    world.converger.run_once()
    assert world.compute.aggregates == {}
    assert world.owned() == {"a"}  # the switches still route it

    world.switches.apply()
    world.later()
    world.converger.run_once()
    assert (world.state("a"), world.owned()) == (State.RELEASED, set())
    assert world.switches.tenants("f") == set()


def test_forced_release_cuts_the_network_first_and_frees_when_empty(world):
    world.active("a", 0, 1)
    world.compute.servers["node-1"] = "blue"
    world.release("a", force=True)
    world.converger.run_once()
    assert world.switches.tenants("f") == set()
    assert world.compute.accepts("node-0") == set()
    assert world.owned() == {"a"}
    assert "servers still run on node-1" in world.error("a")
    del world.compute.servers["node-1"]
    world.later()
    world.converger.run_once()
    assert (world.state("a"), world.owned()) == (State.RELEASED, set())
    assert world.compute.aggregates == {}


def test_release_that_waits_can_be_forced(world):
    world.active("a", 0)
    world.compute.servers["node-0"] = "blue"
    world.release("a")
    world.converger.run_once()
    world.release("a", force=True)
    world.converger.run_once()  # force ends the pause before the next attempt
    assert world.switches.tenants("f") == set()
    assert world.owned() == {"a"}


def test_release_of_what_was_never_handed_over(world):
    world.switches.faults.before["publish"] = LimitExceeded("too many tenants")
    world.allocate("a", 0)
    world.converger.run_once()
    assert "too many tenants" in world.error("a")
    world.release("a")
    del world.switches.faults.before["publish"]
    world.converger.run_once()
    assert (world.state("a"), world.owned()) == (State.RELEASED, set())


def test_one_publication_serves_all(store):
    world = World(store, clock=lambda: 0.0)
    world.active("a", 0)
    world.active("b", 1, project="red")
    world.release("a")
    world.release("b")
    world.allocate("c", 2, project="green")
    before = len(world.switches.faults.calls)
    world.converger.run_once()
    published = [c for c in world.switches.faults.calls[before:] if c[0] == "publish"]
    assert len(published) == 1
    assert world.owned() == {"c"}
    assert world.state("c") is State.ACTIVE


# -- failures -----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("side", "verb"),
    [
        ("compute", "hand_over"),
        ("compute", "fence"),
        ("compute", "take_back"),
        ("switches", "publish"),
        ("switches", "applied"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_failed_step_is_recorded_and_repeated(world, side, verb, when, force):
    """The end is the same whether the failed call had its effect or not."""
    faults = getattr(world, side).faults
    world.converger.run_once()
    getattr(faults, when)[verb] = Unavailable("no answer")
    world.allocate("a", 0)
    world.converger.run_once()
    if verb in ("hand_over", "publish", "applied") and (verb, when) != ("applied", "after"):
        assert world.state("a") is State.ALLOCATING
        assert "no answer" in world.error("a")
    getattr(faults, when).clear()
    world.later()
    world.converger.run_once()
    assert world.state("a") is State.ACTIVE

    getattr(faults, when)[verb] = Unavailable("no answer")
    world.release("a", force=force)
    world.converger.run_once()
    if verb in ("fence", "take_back", "publish"):
        assert (world.state("a"), world.owned()) == (State.RELEASING, {"a"})
        assert "no answer" in world.error("a")
    getattr(faults, when).clear()
    world.later()
    world.converger.run_once()
    assert (world.state("a"), world.owned()) == (State.RELEASED, set())
    assert world.outside() == ({host: set() for host in HOSTS.host_names}, set())


def test_others_go_on(world):
    world.compute.servers["node-0"] = "stranger"
    world.allocate("a", 0)
    world.allocate("b", 1, project="red")
    world.converger.run_once()
    assert "stranger has a server on node-0" in world.error("a")
    assert world.state("b") is State.ACTIVE


def test_bug_in_an_adapter_is_recorded_too(world):
    world.compute.faults.before["hand_over"] = ZeroDivisionError("bug")
    world.allocate("a", 0)
    world.converger.run_once()
    assert "unexpected ZeroDivisionError" in world.error("a")


def test_pauses_double_up_to_the_last(world):
    world.compute.faults.before["hand_over"] = Unavailable("no answer")
    world.allocate("a", 0)
    pauses: list[float] = []
    while len(pauses) < 9:
        if world.converger.run_once():
            pauses.append(0.0)
        look = 2.0 ** len(pauses) / 16  # before a pause has doubled, it has 8 looks or more
        world.later(look)
        pauses[-1] += look
    for failures, pause in enumerate(pauses[:-1]):
        full = min(60.0, 2.0**failures)
        assert full / 2 <= pause <= full + 2.0**failures / 8
    assert world.store.allocations.get("a").failures == 9


def test_pause_has_bounds():
    pace = Pace(first=1, last=10)
    pauses = [pace.pause(n, Random(n)).total_seconds() for n in (0, 1, 2, 5, 10_000)]
    for pause, full in zip(pauses, (1, 2, 4, 10, 10), strict=True):
        assert full / 2 <= pause <= full


def test_same_routes_are_not_published_while_they_are_being_applied(world):
    world.switches.at_once = False
    world.allocate("a", 0)
    for _ in range(5):
        world.converger.run_once()
        world.later(20)
    assert [c[0] for c in world.switches.faults.calls].count("publish") == 1
    world.later(120)
    world.converger.run_once()
    assert [c[0] for c in world.switches.faults.calls].count("publish") == 2


def test_generation_of_another_database_confirms_nothing(world):
    """With a database from a backup, the switches run a later generation than recorded."""
    world.converger.run_once()
    state = world.switches.running["f"]
    world.switches.running["f"] = replace(state, generation=99)
    world.allocate("a", 0)
    world.switches.at_once = False
    world.converger.run_once()
    assert world.compute.aggregates == {}
    reasons = [event.reason for event in world.store.allocations.get("a").history]
    assert any("the switches run generation 99, which it does not" in text for text in reasons)


# -- repeatability -------------------------------------------------------------------


class Crash(BaseException):
    """The process is killed at this step."""


@pytest.mark.parametrize("force", [False, True])
def test_dying_at_any_step_and_starting_again(world, force):
    """The process dies at each step in turn; each restart begins with a new converger."""
    world.allocate("a", 0, 1)
    asked = False
    for dies_at in range(200):
        left = dies_at % 23

        def die(step: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash(step)

        world.converger = world.restarted()
        world.store._transactions.at = die
        world.converger.at(die)
        try:
            world.later()
            world.converger.run_once()
        except Crash:
            pass
        world.store._transactions.at = lambda step: None
        for host in HOSTS.host_names:  # a host handed over is owned and routed
            if world.compute.accepts(host):
                assert "a" in world.owned()
                assert world.switches.tenants("f") == {"a"}
        if world.state("a") is State.ACTIVE and not asked:
            world.release("a", force=force)
            asked = True
        if world.state("a") is State.RELEASED:
            break
    assert asked
    assert world.state("a") is State.RELEASED
    assert world.outside() == ({host: set() for host in HOSTS.host_names}, set())


def test_step_drives_one_allocation(world):
    world.allocate("a", 0)
    world.allocate("b", 1, project="red")
    world.converger.step("b")
    assert (world.state("a"), world.state("b")) == (State.ALLOCATING, State.ACTIVE)
    with pytest.raises(NotFound):
        world.converger.step("x")


# -- comparing everything ---------------------------------------------------------------


def test_new_fabric_is_pooled_and_routed_before_anybody_asks(world):
    world.converger.run_once()
    assert world.compute.pooled == {f"node-{h}" for h in range(7)}  # host 7 is absent
    assert world.switches.running["f"].generation == 1


def test_busy_host_is_reported_and_the_others_pooled(world):
    world.compute.servers["node-3"] = "stranger"
    assert any("node-3" in finding for finding in world.converger.reconcile())
    assert len(world.compute.pooled) == 6
    del world.compute.servers["node-3"]
    assert world.converger.reconcile() == []
    assert len(world.compute.pooled) == 7


@pytest.mark.parametrize(
    ("observed", "drift"),
    [
        (None, "nothing is handed over"),
        (Handover("a", "red", ("node-0", "node-1")), "project 'red'"),
        (Handover("a", "blue", ("node-0",)), "hosts not handed over: node-1"),
        (Handover("a", "blue", ("node-0", "node-1", "node-5")), "hosts too many: node-5"),
    ],
)
def test_drift_is_found_repaired_and_told(world, observed, drift):
    world.active("a", 0, 1)
    right = world.compute.aggregates["a"]
    if observed is None:
        del world.compute.aggregates["a"]
    else:
        world.compute.aggregates["a"] = observed
    assert any(drift in finding for finding in world.converger.reconcile())
    assert world.compute.aggregates == {"a": right}
    assert drift in world.store.allocations.get("a").history[-1].reason
    assert world.converger.reconcile() == []


def test_drift_is_only_reported_when_so_configured(store):
    world = World(store, repair=False)
    world.active("a", 0)
    del world.compute.aggregates["a"]
    assert world.converger.reconcile() == ["allocation a: nothing is handed over"]
    assert world.compute.aggregates == {}
    assert world.error("a") == "nothing is handed over"


def test_active_allocation_recovers_from_its_error(world):
    world.active("a", 0)
    world.compute.faults.before["hand_over"] = HostsBusy("a stranger on node-0")
    assert world.converger.reconcile()
    assert (world.state("a"), world.error("a")) == (State.ACTIVE, "a stranger on node-0")
    world.compute.faults.before.clear()
    assert world.converger.reconcile() == []
    assert world.error("a") == ""


def test_every_aggregate_is_touched_in_every_round(world):
    world.active("a", 0)
    calls = len(world.compute.faults.calls)
    world.converger.reconcile()
    assert ("hand_over", "a") in world.compute.faults.calls[calls:]


def test_leftover_of_a_released_allocation_goes(world):
    world.active("a", 0)
    leftover = world.compute.aggregates["a"]
    world.release("a")
    world.converger.run_once()
    world.compute.aggregates["a"] = leftover
    assert any("is released" in finding for finding in world.converger.reconcile())
    assert world.compute.aggregates == {}


def test_aggregate_we_never_recorded_is_left_alone(world):
    world.compute.aggregates["x"] = Handover("x", "blue", ("elsewhere",))
    assert any("not recorded" in finding for finding in world.converger.reconcile())
    assert "x" in world.compute.aggregates


def test_lost_routes_are_published_again(world):
    world.active("a", 0)
    world.switches.running.clear()
    world.later()
    world.converger.reconcile()
    assert world.switches.tenants("f") == {"a"}


def test_routes_that_the_switches_no_longer_run_are_reported_counted_and_published_again(world):
    """For example after a restart of OpenSM with an older set of files."""
    SqlLeases(world.store._engine).take("f", "one", 3600)
    world.active("a", 0)
    world.converger.run_once()
    assert (
        world.store.observations.holding("f").applied
        == world.store.fabrics.get("f").routes_generation
    )
    older = replace(world.switches.running["f"], generation=1, stamp="", tenants=())
    world.switches.running["f"] = world.switches.published["f"] = older
    world.later()
    assert world.converger.reconcile() == [
        "fabric f: generation 2 is no longer confirmed: generation 1 is applied"
    ]
    assert world.switches.tenants("f") == {"a"}
    assert world.converger.reconcile() == []
    assert world.store.observations.drift("f") == {Drift.ROUTES: 1}


def test_drift_is_counted_by_kind(world):
    world.active("a", 0)
    assert world.store.observations.drift("f") == {}
    for _ in range(2):
        del world.compute.aggregates["a"]
        world.converger.reconcile()
    world.compute.aggregates["x"] = Handover("x", "blue", ("node-5",))
    world.compute.servers["node-3"] = "stranger"
    world.compute.pooled.discard("node-3")
    world.converger.reconcile()
    assert world.store.observations.drift("f") == {Drift.HOSTS: 2, Drift.LEFTOVER: 1, Drift.POOL: 1}
    world.compute.faults.before["pool"] = Unavailable("Nova is away")  # an outage is no drift
    world.converger.reconcile()
    assert world.store.observations.drift("f")[Drift.POOL] == 1


def test_link_that_fails_is_routed_around_at_once(world):
    world.active("a", 0)
    world.store.components.set_link_state("f", LeafLink(0, 0, 3), LinkState.FAILED)
    world.converger.run_once()
    assert world.switches.running["f"].failed_links == (LeafLink(0, 0, 3),)


def test_routes_that_cannot_be_published_do_not_keep_the_worker_busy(world):
    world.converger.run_once()
    world.store.components.set_link_state("f", LeafLink(0, 0, 3), LinkState.FAILED)
    world.switches.faults.before["publish"] = LimitExceeded("too many")
    for _ in range(5):
        world.converger.run_once()
    assert [c[0] for c in world.switches.faults.calls].count("publish") == 2
    world.switches.faults.before.clear()
    world.converger.reconcile()
    assert world.switches.running["f"].failed_links


# -- unexpected errors in a step ----------------------------------------------


def poisoned(world: World, id: str) -> None:
    """Handing over this allocation raises an unexpected error; the others succeed."""
    hand_over = world.compute.hand_over

    def poison(handover: Handover, ready: Collection[str] = ()) -> None:
        if handover.allocation_id == id:
            raise ZeroDivisionError("a bug")
        hand_over(handover)

    world.compute.hand_over = poison  # type: ignore[method-assign]


def test_a_poisoned_allocation_is_parked_and_the_others_go_on(store):
    world = World(store, park_after=3)
    poisoned(world, "a")
    world.allocate("a", 0)
    for number in range(3):
        assert world.state("a") is State.ALLOCATING
        world.allocate(f"b{number}", number + 1)
        world.converger.run_once()
        assert world.state(f"b{number}") is State.ACTIVE
        world.later()
    record = store.allocations.get("a")
    assert (record.state, record.parked) == (State.ERROR, State.ALLOCATING)
    assert record.error == "unexpected ZeroDivisionError: a bug"
    assert record.history[-1].reason.startswith("parked after 3 tries")
    assert "a" in world.owned()
    assert world.converger.run_once() == 0


def test_a_fault_of_ours_with_one_allocation_holds_up_no_other(store, monkeypatch):
    """Also where it shows before the allocation has its turn."""
    world, awaited_hosts = World(store), lifecycle.awaited_hosts

    def poisoned(record: AllocationRecord) -> Allocation | None:
        if record.id == "a":
            raise ZeroDivisionError("a bug")
        return awaited_hosts(record)

    world.allocate("a", 0)
    world.allocate("b", 1)
    monkeypatch.setattr(lifecycle, "awaited_hosts", poisoned)
    world.converger.run_once()
    assert "unexpected ZeroDivisionError: a bug" in world.error("a")
    assert world.state("b") is State.ACTIVE


def test_what_is_foreseen_is_tried_for_ever(store):
    world = World(store, park_after=3)
    world.allocate("a", 0)
    world.compute.faults.before["hand_over"] = Unavailable("Nova is away")
    for _ in range(10):
        world.converger.run_once()
        world.later()
    assert (world.state("a"), store.allocations.get("a").failures) == (State.ALLOCATING, 10)


def test_from_error_it_goes_on_where_it_was(store):
    world = World(store, park_after=1)
    honest = world.compute.take_back
    world.active("a", 0)
    world.release("a")

    def poison(handover, *, force=False):
        raise ZeroDivisionError("a bug")

    world.compute.take_back = poison  # type: ignore[method-assign]
    world.converger.run_once()
    record = store.allocations.get("a")
    assert (record.state, record.parked) == (State.ERROR, State.RELEASING)
    again = store.allocations.transition(record, State.ERROR, "still")
    assert again.parked is State.RELEASING
    world.compute.take_back = honest  # type: ignore[method-assign]
    back = store.allocations.transition(again, again.parked, "retry")
    assert (back.state, back.parked, back.error) == (State.RELEASING, None, None)
    world.converger.run_once()
    assert world.state("a") is State.RELEASED


def test_what_the_switches_run_is_noted_when_it_changes(world):
    SqlLeases(world.store._engine).take("f", "one", 3600)
    world.converger.run_once()
    first = world.store.observations.holding("f")
    assert (first.worker, first.applied, first.problem) == ("one", 1, None)
    world.later()
    world.active("a", 0)
    assert world.store.observations.holding("f").applied == 2
    world.switches.at_once = False
    world.allocate("b", 1)
    world.converger.run_once()
    noted = world.store.observations.holding("f")
    assert (noted.applied, world.store.fabrics.get("f").routes_generation) == (2, 3)
    with pytest.raises(NotFound):
        world.store.observations.holding("x")


# -- links that fail under a live allocation ----------------------------------------


FAILED = LeafLink(0, 1, 1)


def linked(world: World, **options) -> Convergers:
    """Two hosts and two uplinks on each of two leaves; one of the uplinks has failed."""
    shares = (GroupShare(0, 0b11, 0b0011), GroupShare(1, 0b11, 0b0011))
    answer = Allocation("a", 4, "jigsaw", shares, (), Shape(1, 2, 2))
    new = AllocationRequest(
        id="a", fabric="f", name="a", project_id="blue", policy="jigsaw", hosts=4
    )
    world.store.admissions.admit(new, lambda fabric: answer)
    world.converger = world.restarted(**options)
    world.converger.run_once()
    assert world.state("a") is State.ACTIVE
    world.store.components.set_link_state("f", FAILED, LinkState.FAILED)
    return world.converger


def uplinks(allocation: Allocation | None) -> int | None:
    return None if allocation is None else allocation.groups[0].uplinks


def routed(world: World) -> tuple[int | None, int | None]:
    """The uplinks that the switches use, and those prepared beside them."""
    (tenant,) = world.switches.running["f"].tenants
    return uplinks(tenant.allocation), uplinks(tenant.beside)


def story(world: World) -> list[str]:
    return [event.reason for event in world.store.allocations.get("a").history]


def owned_uplinks(world: World) -> int:
    return world.store.fabrics.ledger("f")[0].allocations["a"].groups[0].uplinks


def test_failed_link_is_replaced_and_told(world):
    before = world.outside()
    linked(world)
    assert world.converger.run_once() == 1
    record = world.store.allocations.get("a")
    assert (record.state, record.error, record.faults, record.phase) == (State.ACTIVE, *[None] * 3)
    assert owned_uplinks(world) == uplinks(record.placed) == 0b0101
    assert routed(world) == (0b0101, None)
    assert world.outside() != before
    assert world.compute.accepts("node-0") == {"blue"}
    assert story(world)[-5:] == [
        "failed: link leaf-0-1-1",
        "repair: links leaf-0-0-1, leaf-0-1-1 replaced by links leaf-0-0-2, leaf-0-1-2",
        "routes over the new links confirmed in the switches; traffic goes over to them",
        "routes that move the traffic to the new links confirmed in the switches; "
        "the old routes have to go",
        "withdrawal of the old routes confirmed in the switches; "
        "freed links leaf-0-0-1, leaf-0-1-1",
    ]
    assert world.converger.run_once() == 0


def test_switches_are_read_only_after_a_publication(world):
    """Routes that were not published cannot be confirmed; reading a large fabric is slow."""
    linked(world)
    before = len(world.switches.faults.calls)
    world.converger.run_once()
    verbs = [call[0] for call in world.switches.faults.calls[before:]]
    assert verbs == ["publish", "applied"] * 3


def test_nothing_old_is_freed_before_each_phase_is_confirmed(world):
    linked(world)
    world.switches.at_once = False
    seen: list[tuple[int | None, int | None]] = []
    for _ in range(4):
        for _ in range(2):  # a second round without news changes nothing
            world.later()
            world.converger.run_once()
        assert owned_uplinks(world) == (0b0111 if len(seen) < 3 else 0b0101)
        seen.append(routed(world))
        assert ("waiting for the subnet manager" in world.error("a")) == (len(seen) < 4)
        world.switches.apply()
    assert seen == [(0b0011, None), (0b0011, 0b0101), (0b0101, 0b0011), (0b0101, None)]


def test_dying_at_any_step_of_a_repair_and_starting_again(world):
    linked(world)
    allowed = {(0b0011, None), (0b0011, 0b0101), (0b0101, 0b0011), (0b0101, None)}
    for dies_at in range(200):
        left = dies_at % 17

        def die(step: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash(step)

        world.converger = world.restarted()
        world.store._transactions.at = die
        world.converger.at(die)
        with suppress(Crash):
            world.later()
            world.converger.run_once()
        world.store._transactions.at = lambda step: None
        assert routed(world) in allowed
        way = routed(world)[0]
        assert way is not None
        assert owned_uplinks(world) & way == way
        if world.store.allocations.get("a").faults is None:
            break
    assert routed(world) == (0b0101, None)
    assert owned_uplinks(world) == 0b0101
    assert sum("replaced by" in line for line in story(world)) == 1


def test_failed_links_are_only_reported_when_so_configured(world):
    linked(world, repair_links=False)
    assert world.converger.run_once() == 0
    record = world.store.allocations.get("a")
    assert record.faults == AllocationFaults((FAILED,))
    assert owned_uplinks(world) == 0b0011
    assert world.switches.running["f"].failed_links == (FAILED,)
    begun = begin_link_repair(world.store.placement_changes, record)
    assert isinstance(begun, AllocationRecord)
    assert begun.phase is Phase.PREPARE
    assert world.converger.run_once() == 1  # a requested repair is completed
    assert owned_uplinks(world) == 0b0101


def test_what_cannot_be_repaired_is_told_once_and_tried_again(world):
    linked(world)
    for up in (2, 3):
        world.store.components.set_link_state("f", LeafLink(0, 0, up), LinkState.FAILED)
    for _ in range(3):
        world.converger.run_once()
        world.later()
    assert world.error("a").startswith("degraded: link leaf-0-1-1 has failed; leaf 0/1 has 1 of 2")
    assert len([line for line in story(world) if line.startswith("degraded")]) == 1
    assert world.converger.reconcile() == []
    assert not any("repaired" in line for line in story(world))
    world.store.components.set_link_state("f", LeafLink(0, 0, 3), LinkState.UP)
    world.later()
    world.converger.run_once()
    assert owned_uplinks(world) == 0b1001
    assert world.error("a") == ""


def test_degraded_ends_by_itself_when_the_link_comes_back(world):
    linked(world)
    for up in (2, 3):
        world.store.components.set_link_state("f", LeafLink(0, 0, up), LinkState.FAILED)
    world.converger.run_once()
    world.store.components.set_link_state("f", FAILED, LinkState.UP)
    record = world.store.allocations.get("a")
    assert (record.faults, record.error) == (None, None)
    assert world.converger.run_once() == 0
    assert owned_uplinks(world) == 0b0011
    assert begin_link_repair(world.store.placement_changes, record) is record


def test_what_is_due_and_needs_nothing_does_not_keep_the_worker_busy(world, monkeypatch):
    linked(world)
    monkeypatch.setattr(
        "laas_service.app.lifecycle.next_action", lambda *given, **options: Action.NOTHING
    )
    assert world.store.allocations.due(world.time, faulty=True) == ["a"]
    assert world.converger.run_once() == 0


def test_two_workers_repair_once(world):
    linked(world)
    seen = world.store.allocations.get("a")
    assert world.restarted().run_once() == 1
    with pytest.raises(ConcurrentUpdate):
        begin_link_repair(world.store.placement_changes, seen)
    assert sum("replaced by" in line for line in story(world)) == 1


def test_a_failed_host_is_reported_and_nothing_moves(world):
    linked(world)
    world.converger.run_once()
    world.store.components.set_host_state("f", 1, HostState.FAILED)
    assert world.converger.run_once() == 0
    record = world.store.allocations.get("a")
    assert record.faults == AllocationFaults((), (1,))
    assert record.state is State.ACTIVE
    assert story(world)[-1] == "failed: host 1"


def test_nova_away_is_a_finding(world):
    world.compute.faults.before["handed_over"] = Unavailable("no answer")
    assert world.converger.reconcile() == ["no answer"]


def test_difference_of_equals_is_none():
    handover = Handover("a", "blue", ("x", "y"))
    assert difference_of_handovers(handover, replace(handover, hosts=("y", "x"))) is None


# -- containers -----------------------------------------------------------------------


def test_a_containers_hosts_accept_nobody_and_its_childrens_accept_their_project(world):
    held = Allocation("c", 3, "test", (GroupShare(0, 0b111, 0),), container=True)
    world.store.admissions.admit(
        AllocationRequest(
            id="c", fabric="f", name="c", project_id="blue", policy="test", hosts=3, container=True
        ),
        lambda f: held,
    )
    world.converger.run_once()
    assert world.state("c") is State.ACTIVE
    assert world.switches.tenants("f") == set()
    assert not any(world.compute.accepts(host) for host in HOSTS.host_names)
    child = Allocation("x", 2, "test", (GroupShare(0, 0b110, 0),), parent="c")
    world.store.admissions.admit(
        AllocationRequest(
            id="x", fabric="f", name="x", project_id="red", policy="test", hosts=2, parent="c"
        ),
        lambda f: child,
    )
    world.converger.run_once()
    assert world.state("x") is State.ACTIVE
    assert world.switches.tenants("f") == {"x"}
    accepted = {host: world.compute.accepts(host) for host in HOSTS.host_names}
    assert {host for host, projects in accepted.items() if projects} == {"node-1", "node-2"}
    assert accepted["node-1"] == {"red"}
    assert world.restarted().reconcile() == []
    assert set(world.compute.aggregates) == {"x"}
    world.release("x")
    world.converger.run_once()
    assert world.state("x") is State.RELEASED
    world.release("c", force=True)
    world.converger.run_once()
    assert world.state("c") is State.RELEASED
    assert world.owned() == set()
    assert "fence" not in [step for step in world.steps if "c" in step.split()]


def test_shared_hosts_are_routed_as_a_whole_and_slots_need_no_step_of_anybody(world):
    sharing, demand = Sharing(2, 10.0), SlotDemand(3, 1.0)
    held = Allocation("p", 3, "test", (GroupShare(0, 0b111, 0),), sharing=sharing)
    asked = AllocationRequest(
        id="p", fabric="f", name="p", project_id="blue", policy="test", hosts=3, sharing=sharing
    )
    world.store.admissions.admit(asked, lambda f: held)
    for id in ("x", "y"):
        request = Request(id, 1, slots=demand)
        world.store.admissions.admit(
            replace(asked, id=id, hosts=0, sharing=None, slots=demand, parent="p"),
            lambda draft, request=request: SharedSlots().propose(draft.ledger.ledger("p"), request),
        )
    world.switches.at_once = False
    world.converger.run_once()
    assert {world.state(id) for id in "pxy"} == {State.ALLOCATING}  # the routes of p are awaited
    world.switches.at_once = True
    world.switches.apply()
    world.later()
    world.converger.run_once()
    assert {world.state(id) for id in "pxy"} == {State.ACTIVE}
    assert "accounted, not enforced" in world.store.allocations.get("x").history[-1].reason
    assert world.switches.tenants("f") == {"p"}
    assert not any(world.compute.accepts(host) for host in HOSTS.host_names)
    assert world.restarted().reconcile() == []
    published = world.store.fabrics.get("f").routes_generation
    record = world.store.allocations.get("x")

    def change(fabric):
        inner = fabric.ledger("p")
        answer = SharedSlots().change(inner, inner.allocations["x"], SlotDemand(3, 6.0))
        assert isinstance(answer, Allocation)
        return NewPlacement(answer, "wider")

    moved = world.store.placement_changes.begin(record, change)
    assert moved.change is None, "host links of 10 Gb/s take 1 * 6 and 1 * 1 beside it"
    assert moved.slots.bandwidth == 6.0
    for id in ("x", "y"):
        world.release(id)
        world.converger.run_once()
        assert world.state(id) is State.RELEASED
    assert world.store.fabrics.get("f").routes_generation == published
    world.release("p")
    while world.converger.run_once():
        pass
    assert world.state("p") is State.RELEASED
    assert world.owned() == set()


# -- a database that goes back --------------------------------------------------------


@pytest.mark.parametrize("lead", [0, 1, 2], ids=["newer", "level", "older"])
def test_a_tenant_is_not_active_on_routes_of_another_past(store, lead):
    """The switches run a generation that the database lost; it makes ``lead`` ones since."""
    world = World(store)
    world.allocate("a", 0, 1)
    rows = rewind.copy(store._engine)
    world.converger.run_once()
    world.release("a")
    while world.converger.run_once():
        pass
    lost = store.fabrics.get("f").routes_generation
    assert (lost, world.switches.tenants("f")) == (3, set())
    rewind.put_back(store._engine, rows)
    world.store = SqlStore(store._engine)  # a process without a memory
    world.converger = world.restarted()
    for position in range(lead):
        world.allocate(f"n{position}", 2 + position)
    world.switches.at_once = False
    world.converger.run_once()
    assert world.state("a") is State.ALLOCATING
    assert world.compute.aggregates == {}
    reasons = [event.reason for event in world.store.allocations.get("a").history]
    assert any("the database went back" in reason for reason in reasons)
    assert world.store.fabrics.get("f").routes_generation > lost + 1000
    world.switches.apply()
    assert "a" in world.switches.tenants("f")
    world.later()
    world.converger.run_once()
    assert world.state("a") is State.ACTIVE
    assert world.switches.published["f"].stamp == world.store.fabrics.get("f").routes_stamp


def test_nothing_is_published_over_a_set_of_another_past(store):
    """Also if only a link's state changed, for which nobody reads the switches."""
    world = World(store)
    rows = rewind.copy(store._engine)
    world.active("lost", 0)
    rewind.put_back(store._engine, rows)
    world.store = SqlStore(store._engine)
    world.converger = world.restarted()
    world.converger.run_once()
    before = world.switches.published["f"]
    assert before.generation > 1000
    assert before.tenants == ()
    world.store.components.set_link_state("f", LeafLink(0, 0, 0), LinkState.FAILED)
    world.converger.run_once()
    after = world.switches.published["f"]
    assert (after.generation, after.failed_links) == (before.generation + 1, (LeafLink(0, 0, 0),))
