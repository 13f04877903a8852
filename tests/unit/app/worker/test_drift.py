# SPDX-License-Identifier: Apache-2.0

"""The next check finds drift, reports it once, and repairs it where repair is switched on."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest
from oslo_context import context
from sqlalchemy import select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.log_context import acting_for
from laas_service.app.handovers import difference_of_handovers, handover_of
from laas_service.app.lifecycle import State
from laas_service.app.ports.compute import Handover, HostPart
from laas_service.app.records import Drift, DriftFacts
from laas_service.app.worker import instructions as do
from laas_service.app.worker.decide import drift
from laas_service.domain.errors import NotFound, Unavailable
from laas_service.messages import Applied, Condition, FabricState, Initiator, Span, Standing
from opensm_writer.local import LocalSubnetManager
from opensm_writer.opensm import OpenSm
from tests.unit.app.worker.test_converger import World
from tests.unit.opensm_writer.states import TINY

LONG = 3600.0


def telling(store: SqlStore) -> SqlStore:
    """The same store, with notifications."""
    return SqlStore(store._engine, announce=True)


@pytest.fixture(params=[True, False], ids=["repairs", "reports"])
def repair(request) -> bool:
    return bool(request.param)


@pytest.fixture
def world(store, repair) -> World:
    """One active allocation on two hosts, without drift, after a first comparison."""
    world = World(telling(store), repair=repair)
    SqlLeases(store._engine).take("f", "one", LONG)
    world.active("a", 0, 1)
    world.converger.reconcile()
    assert looks(world) == []
    told(world)
    return world


def looks(world: World, times: int = 2) -> list[str]:
    """Findings of ``times`` checks, one drift interval apart."""
    findings = []
    for _ in range(times):
        world.later(10)
        findings += world.converger.check_drift()
    return findings


def told(world: World) -> list[tuple[str, str | None]]:
    """Event types and kinds of the fabrics' notifications; empties the outbox."""
    with Session(world.store._engine) as session:
        rows = session.scalars(
            select(models.NotificationRow).order_by(models.NotificationRow.id)
        ).all()
        found = [(row.document["event_type"], row.document["drift"]) for row in rows]
        for row in rows:
            session.delete(row)
        session.commit()
    return [event for event in found if ".fabric." in event[0]]


def as_told(kind: Drift, repaired: bool) -> list[tuple[str, str | None]]:
    events = ["found", "repaired"] if repaired else ["found"]
    return [(f"isolated_network.fabric.drift.{event}", kind.value) for event in events]


def counted(world: World) -> tuple[dict[Drift, int], dict[Drift, int]]:
    repaired = {
        kind: count for kind, count in world.store.observations.repaired("f").items() if count
    }
    return dict(world.store.observations.drift("f")), repaired


def is_settled(world: World, kind: Drift, repaired: bool) -> None:
    """The drift is counted and reported once, although the check is repeated."""
    looks(world, 3)
    assert counted(world) == ({kind: 1}, {kind: 1} if repaired else {})
    assert told(world) == as_told(kind, repaired)


# -- differences as values ----------------------------------------------------------


def test_a_difference_names_its_kind_its_subject_and_its_repair(store):
    world = World(store)
    world.active("a", 0, 1)
    fabric, record = store.fabrics.get("f"), store.allocations.get("a")
    handover = handover_of(fabric, record)
    assert drift.hosts_difference(fabric, record, handover) is None
    difference = drift.hosts_difference(fabric, record, None)
    assert difference == drift.Difference(
        Drift.HOSTS, "a", "f", "nothing is handed over", do.hand_over.asked(handover), record
    )
    assert difference.sentence == difference.finding == "allocation a: nothing is handed over"
    assert drift.leftover_difference(record, handover, "f") is None
    leftover = drift.leftover_difference(replace(record, state=State.RELEASED), handover, "f")
    assert leftover is not None
    assert leftover.repair == do.take_back.asked(handover)
    assert leftover.about == (Drift.LEFTOVER, "a")
    unknown = drift.leftover_difference(None, handover, "f")
    assert unknown is not None
    assert unknown.repair is None
    assert drift.pool_difference(fabric, ()) is None
    missing = drift.pool_difference(fabric, {"node-3", "node-2"})
    assert missing is not None
    assert missing.repair == do.pool.asked(("node-2", "node-3"))
    assert missing.finding == f"fabric f: {missing.sentence}"
    assert drift.opened_difference(fabric, {"elsewhere": "theirs"}) is None
    opened = drift.opened_difference(fabric, {"node-2": "theirs"})
    assert opened is not None
    assert (opened.repair, opened.detail) == (None, "other aggregates open hosts: node-2 by theirs")
    assert opened.about != missing.about
    lost = drift.routes_difference(fabric, Applied(None, "OpenSM does not run"))
    assert lost.repair == do.publish.asked()
    assert lost.finding == "fabric f: generation 2 is no longer confirmed: OpenSM does not run"


@pytest.mark.parametrize("kind", Drift, ids=lambda kind: kind.value)
def test_a_kind_of_drift_carries_its_words(kind):
    """Each names what differs, and the log says of which allocation or fabric."""
    found = drift.Difference(kind, "subject", "fabric", "detail {0}")
    for sentence in (found.sentence, found.finding):
        assert sentence.endswith("detail {0}")
    if kind is not Drift.LEFTOVER:  # its detail names the allocation
        assert found.finding in ("allocation subject: detail {0}", "fabric fabric: detail {0}")


def test_a_kind_of_drift_without_words_is_not_accepted():
    with pytest.raises(AttributeError, match="code"):

        class _Wordless(Enum):
            __new__ = vars(Drift)["__new_member__"]
            NEW = "new"

    with pytest.raises(TypeError, match="logged"):
        DriftFacts("new", sentence="{detail}")  # type: ignore[call-arg]


def test_a_condition_of_the_switches_is_one_kind_of_drift():
    shown = [condition for kind in Drift for condition in kind.facts.conditions]
    assert sorted(shown) == sorted({*shown})


@pytest.mark.parametrize(
    ("recorded", "observed", "sentence"),
    [
        (HostPart.WHOLE, HostPart.WHOLE, None),
        (HostPart.WHOLE, HostPart.UNREAD, "slots are handed over instead of whole hosts"),
        (HostPart.WHOLE, {}, "slots are handed over instead of whole hosts"),
        ({"n": 1}, HostPart.WHOLE, "whole hosts are handed over instead of slots"),
        ({"n": 1}, HostPart.UNREAD, None),
        ({"n": 1}, {}, "slots differ: n has 0 instead of 1"),
        ({"n": 1}, {"n": 1}, None),
    ],
)
def test_not_read_not_shared_and_no_slots_are_three_answers(recorded, observed, sentence):
    answer = difference_of_handovers(
        Handover("a", "blue", ("n",), recorded), Handover("a", "blue", ("n",), observed)
    )
    assert answer == sentence


def test_only_numbers_of_slots_can_be_asked_for():
    assert Handover("a", "blue", ("n",), {"n": 2}).slots_on("other") == 0
    for share in HostPart:
        with pytest.raises(ValueError, match=share.value):
            Handover("a", "blue", ("n",), share).slots_on("n")


def test_a_repair_that_fails_is_said_with_what_differs(world, repair):
    world.compute.pooled.discard("node-5")
    world.compute.servers["node-5"] = "stranger"
    (finding,) = looks(world, 1)
    assert "node-5" in finding
    assert ("; not repaired: " in finding) is repair
    assert counted(world) == ({Drift.POOL: 1}, {})


def test_an_aggregate_in_error_that_admits_another_project_is_closed(world, repair):
    """An allocation in error has no step that would correct its aggregate."""
    record = world.store.allocations.get("a")
    world.store.allocations.transition(record, State.ERROR, "parked", error="a bug")
    world.compute.aggregates["a"] = replace(world.compute.aggregates["a"], project_id="red")
    is_settled(world, Drift.HOSTS, repair)
    assert (world.compute.fenced == {"a"}) is repair
    assert world.store.allocations.get("a").state is State.ERROR


# -- aggregates ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "observed",
    [
        None,
        Handover("a", "red", ("node-0", "node-1")),
        Handover("a", "blue,red", ("node-0", "node-1")),
        Handover("a", "blue", ("node-0",)),
        Handover("a", "blue", ("node-0", "node-1", "node-5")),
        Handover("a", "blue", ("node-0", "node-1"), HostPart.UNREAD),
    ],
    ids=["deleted", "other project", "second project", "host out", "host in", "slots"],
)
def test_an_aggregate_edited_by_hand_is_found_by_one_look(world, repair, observed):
    right = world.compute.aggregates.pop("a")
    if observed:
        world.compute.aggregates["a"] = observed
    (finding,) = looks(world, 1)
    assert finding.startswith("allocation a: ")
    left = {"a": observed} if observed else {}
    assert world.compute.aggregates == ({"a": right} if repair else left)
    assert (world.error("a") == "") is repair
    is_settled(world, Drift.HOSTS, repair)


def test_what_was_put_right_by_hand_is_an_error_no_more(store):
    world = World(store, repair=False)
    world.active("a", 0)
    world.converger.reconcile()
    right = world.compute.aggregates.pop("a")
    looks(world, 1)
    assert world.error("a")
    world.compute.aggregates["a"] = right
    assert looks(world, 1) == []
    assert world.error("a") == ""


def test_a_look_asks_placement_nothing_and_touches_nothing(world):
    before = len(world.compute.faults.calls)
    assert looks(world) == []
    assert {verb for verb, _ in world.compute.faults.calls[before:]} == {"observed"}


def test_a_host_gone_from_nova_is_found_by_one_look(world, repair):
    """Nova takes a compute host out of its aggregates when its service is deleted."""
    world.compute.pooled.discard("node-5")
    (*_, finding) = looks(world, 1)
    assert "node-5" in finding
    assert ("node-5" in world.compute.pooled) is repair
    is_settled(world, Drift.POOL, repair)


def test_a_tenants_host_gone_from_nova_is_tried_again_later_and_counted_once(world, repair):
    world.compute.faults.before["hand_over"] = NotFound("compute host", "node-1")
    world.compute.aggregates["a"] = Handover("a", "blue", ("node-0",))
    looks(world, 1)
    assert ("node-1" in world.error("a")) is True
    tries = [call[0] for call in world.compute.faults.calls].count("hand_over")
    world.later(-9)
    world.converger.check_drift()  # it is not time yet
    assert [call[0] for call in world.compute.faults.calls].count("hand_over") == tries
    looks(world, 20)
    assert ([call[0] for call in world.compute.faults.calls].count("hand_over") > tries) is repair
    assert counted(world) == ({Drift.HOSTS: 1}, {})
    world.compute.faults.before.clear()
    looks(world, 8)
    assert counted(world)[1] == ({Drift.HOSTS: 1} if repair else {})
    assert (world.error("a") == "") is repair


def test_a_host_that_cannot_go_back_is_told_once(world):
    world.compute.pooled.discard("node-5")
    world.compute.pooled.discard("node-6")
    world.compute.servers["node-5"] = "stranger"
    looks(world, 3)
    assert counted(world)[0] == {Drift.POOL: 1}
    assert [event for event, _ in told(world)] == ["isolated_network.fabric.drift.found"]


def test_hosts_that_never_were_in_the_pool_are_no_drift(store):
    world = World(store)
    world.compute.servers["node-5"] = "stranger"
    world.converger.run_once()
    assert world.store.observations.drift("f") == {Drift.POOL: 1}
    assert looks(world, 3) == []
    assert world.store.observations.drift("f") == {Drift.POOL: 1}


def test_an_aggregate_of_others_that_opens_our_hosts_is_found_by_one_look(world):
    world.compute.opened = {"node-5": "theirs", "elsewhere": "theirs"}
    assert looks(world, 1) == ["fabric f: other aggregates open hosts: node-5 by theirs"]
    is_settled(world, Drift.POOL, repaired=False)


def test_a_leftover_and_an_unknown_aggregate_are_found_by_one_look(world, repair):
    leftover = world.compute.aggregates["a"]
    world.release("a")
    world.converger.run_once()
    assert world.state("a") is State.RELEASED
    told(world)
    world.compute.aggregates["a"] = leftover
    assert len(looks(world, 1)) == 1
    assert ("a" in world.compute.aggregates) is not repair
    is_settled(world, Drift.LEFTOVER, repair)
    world.compute.aggregates["x"] = Handover("x", "blue", ("node-5",))
    world.compute.aggregates["y"] = Handover("y", "blue", ("elsewhere",))
    assert looks(world) == ["hosts are handed over to allocation x, which is not recorded"]
    assert counted(world)[0] == {Drift.LEFTOVER: 2}


def test_nova_away_is_no_drift(world):
    world.compute.faults.before["observed"] = Unavailable("Nova is away")
    assert looks(world) == ["Nova is away", "Nova is away"]
    assert counted(world) == ({}, {})


# -- switches: published files, and OpenSM's log and dump -------------------------------


class OpenSmBeside:
    """Files published for an OpenSM, with its dump and log, which the test changes."""

    def __init__(self, directory: Path) -> None:
        self.files, self.dump, self.log = directory / "files", directory / "dump", directory / "log"
        self.log.touch()
        opensm = OpenSm(dump_file=self.dump, log_file=self.log)
        self.manager = LocalSubnetManager(self.files, opensm, patience=0)

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        spent = self.manager.publish(state)
        self.sweeps()
        self.manager.applied("f")  # after tables of others, the set follows with a sweep of its own
        self.sweeps()
        return spent

    def prepared(self, fabric: str) -> bool:
        return self.manager.prepared(fabric)

    def applied(self, fabric: str) -> Applied:
        return self.manager.applied(fabric)

    def standing(self, fabric: str) -> Standing | None:
        return None

    def on_disk(self, fabric: str) -> tuple[int, str] | None:
        return self.manager.on_disk(fabric)

    def sweeps(self, engine: str = "file") -> None:
        self.dump.write_text((self.files / "f" / "current" / "lfts").read_text())
        with self.log.open("a") as log:
            log.write(f"{engine} tables configured on all switches\nSUBNET UP\n")

    def an_entry_changes(self) -> None:
        entry = re.compile(r"(?m)^(0x[0-9a-f]{4} )002")
        text, count = entry.subn(r"\g<1>001", self.dump.read_text(), count=1)
        assert count
        self.dump.write_text(text)

    def it_falls_back(self) -> None:
        self.sweeps("minhop")

    def it_starts_with_older_files(self) -> None:
        current = self.files / "f" / "current"
        older = min(current.parent.glob("gen-*"), key=lambda path: int(path.name[4:]))
        assert older != current.resolve()
        current.unlink()
        current.symlink_to(older.name)
        self.sweeps()


@pytest.mark.parametrize(
    ("what", "kind", "instead"),
    [
        (OpenSmBeside.an_entry_changes, Drift.ROUTES, "1 of "),
        (OpenSmBeside.it_falls_back, Drift.ENGINE, "OpenSM routed with minhop, not file"),
        (OpenSmBeside.it_starts_with_older_files, Drift.ROUTES, "generation 1 is applied"),
    ],
)
def test_what_others_did_to_the_switches_is_found_by_the_second_look(
    store, tmp_path, repair, what, kind, instead
):
    opensm = OpenSmBeside(tmp_path)
    fabric = (TINY.topology, TINY.inventory)
    world = World(telling(store), switches=opensm, fabric=fabric, repair=repair)
    SqlLeases(store._engine).take("f", "one", LONG)
    world.converger.run_once()
    world.active("a", 0, 1)
    assert looks(world) == []
    assert told(world) == [("isolated_network.fabric.routes.applied", None)] * 2
    what(opensm)
    assert looks(world, 1) == []
    (finding,) = looks(world, 1)
    assert finding.startswith("fabric f: generation 2 is no longer confirmed: ")
    assert instead in finding
    assert (opensm.applied("f").generation == 2) is repair
    assert world.store.observations.holding("f").applied != 2
    is_settled(world, kind, repair)
    assert (world.store.observations.holding("f").applied == 2) is repair


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        (Condition.WRONG_KEYS, Drift.KEYS),
        (Condition.NOT_MASTER, Drift.MANAGER),
        (Condition.WRONG_SETTINGS, Drift.MANAGER),
    ],
)
def test_wrong_keys_and_another_master_are_told_by_the_first_look(world, repair, condition, kind):
    world.switches.lost = Applied(None, "2 ports", condition=condition)
    (finding,) = looks(world, 1)
    assert finding.endswith("is no longer confirmed: 2 ports")
    is_settled(world, kind, repair)


def test_a_sweep_between_two_looks_is_no_drift(world):
    running = world.switches.running
    for _ in range(3):
        world.switches.running = {}
        assert looks(world, 1) == []
        world.switches.running = running
        assert looks(world, 1) == []
    assert counted(world) == ({}, {})


def test_routes_that_are_only_reported_stay_so_for_the_next_worker_and_change_with_the_next(
    world, repair
):
    older = replace(world.switches.running["f"], generation=1, stamp="", tenants=())
    world.switches.running["f"] = world.switches.published["f"] = older
    looks(world)
    world.converger = world.restarted(repair=repair)
    world.converger.run_once()
    world.converger.reconcile()
    looks(world)
    assert (world.switches.tenants("f") == {"a"}) is repair
    world.allocate("b", 2)
    world.converger.run_once()
    assert world.switches.tenants("f") == {"a", "b"}


def test_routes_that_wait_for_the_switches_are_no_drift(world):
    world.switches.at_once = False
    world.allocate("b", 2)
    world.converger.run_once()
    assert looks(world, 4) == []
    assert counted(world) == ({}, {})
    world.switches.apply()
    assert looks(world) == []
    assert ("isolated_network.fabric.routes.applied", None) in told(world)


# -- request context of log lines ----------------------------------------------------


def test_what_is_logged_of_an_allocation_is_for_whoever_asked(store):
    """Steps, retries and drift carry the request's context; the thread keeps none afterwards."""
    world = World(store, acting_for=acting_for)
    seen: list[tuple[str, object]] = []
    noted = world.compute.hand_over

    def hand_over(handover: Handover, ready: Collection[str] = ()) -> None:
        current = context.get_current()
        seen.append((handover.allocation_id, current and current.request_id))
        noted(handover)

    world.compute.hand_over = hand_over  # type: ignore[method-assign]
    for position, id in enumerate("ab"):
        world.allocate(id, position, by=Initiator(f"req-{id}", "alice", "blue"))
    world.allocate("c", 2)
    world.converger.run_once()
    world.compute.aggregates.clear()
    world.converger.check_drift()
    asked = [("a", "req-a"), ("b", "req-b"), ("c", None)]
    assert seen == asked * 2
    assert context.get_current() is None
