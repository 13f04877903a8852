# SPDX-License-Identifier: Apache-2.0

"""A backup holds all committed rows, and a restore raises every number that others have seen."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event, Thread

import pytest
import sqlalchemy as sa

from laas_service.adapters.db import allocation_rows, backup, models, quotas, schema, soundness
from laas_service.adapters.db.engine import connect, consistent_read
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.adapters.db.restore import LIFT, restore
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.ufm_memory import SqlUfmMemory
from laas_service.adapters.documents import allocation_document
from laas_service.adapters.ufm.memory import PartitionRequest
from laas_service.app.lifecycle import State
from laas_service.app.plans import PlanKind, PlanQuestion, PlanStep, RecordedPlan
from laas_service.app.records import (
    Drift,
    Evidence,
    Holding,
    HostState,
    LinkState,
    NewPlacement,
    QueueRoom,
    QueueWait,
    RoomMove,
    RoomState,
    SwitchState,
)
from laas_service.domain.allocation import (
    Allocation,
    ColumnShare,
    GroupShare,
    NoFit,
    Refusal,
    SlotDemand,
)
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.compute_hosts import HostMemory, Quarantine
from laas_service.domain.errors import Conflict, InvalidFile, InvalidInput, LimitExceeded
from laas_service.domain.faults.observation import Mode
from laas_service.domain.features import HostChange
from laas_service.domain.inventory import Cable, Endpoint, PortRef, Switch
from laas_service.domain.topology import LeafLink, SpineLink
from laas_service.messages import Applied, ConfirmedBy, Initiator
from tests.unit.adapters.test_store import (
    HOSTS,
    SMALL,
    active,
    admit,
    claims,
    container,
    elsewhere,
    inside,
    new,
    release,
    share,
    slots,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SPINE = 0x2C90200000010
L2 = 0x2C90200000020
ADAPTER = 0x2C90300000030
INVENTORY = replace(
    HOSTS,
    switches=(Switch(L2, "l2", 2, 8), Switch(SPINE, "spine", 3, 4)),
    cables=(Cable(PortRef(L2, 5), PortRef(SPINE, 1), SpineLink(0, 3, 3)),),
    endpoints=(Endpoint(ADAPTER, "node0 mlx5_0", PortRef(L2, 1), host=0),),
)


@pytest.fixture
def told(store):
    """A store that records notifications, so that the outbox is not empty."""
    told = SqlStore(store._engine, announce=True)
    told.fabrics.add("f", SMALL, INVENTORY)
    return told


@pytest.fixture
def empty(blank):
    """A database without tables."""
    engine = connect(blank)
    yield engine
    engine.dispose()


def lived_in(store):
    """Fill every table, with an allocation in every state."""
    store.components.set_shared_plane("f", CommonPlane((2,), ()))
    admit(store, "gone")
    release(store, "gone")
    container(store, "box", position=1)
    inside(store, "boxed", "box", host=1)
    leaves = (GroupShare(1, 0b100, 0b1000), GroupShare(3, 0b100, 0b1000))
    spines = (ColumnShare(0, 3, 1), ColumnShare(1, 3, 1))
    share(store, "part", Allocation("part", 2, "test", leaves, spines))
    slots(store, "sharer", "part", SlotDemand(3, 1.0, 0.25))
    store.placement_changes.begin(
        active(store, "moving"),
        lambda fabric: NewPlacement(elsewhere("moving"), "another way"),
    )
    store.admissions.admit(
        new("waits", "key", duration=9.5, unique_name=True),
        lambda fabric: QueueWait(NoFit(Refusal.TOO_FEW_HOSTS, "full")),
    )
    store.components.set_host_state("f", 5, HostState.DRAINED)
    store.components.set_link_state("f", LeafLink(0, 0, 0), LinkState.FAILED)
    store.components.set_switch_state("f", SPINE, SwitchState.MAINTENANCE)
    store.faults.set_mode("f", Mode.OBSERVE)
    store.components.describe_hosts("f", {3: HostChange(frozenset({"gpu"}), 7)})
    store.components.set_virtual_ports("f", {ADAPTER: [0x2C90300000031]})
    store.observations.note_drift("f", Drift.POOL, "host away")
    store.faults.judge_hosts(
        "f", lambda memory: HostMemory(quarantine={"n": Quarantine("why", 1.0)})
    )
    store.observations.note_applied("f", Applied(None, "nobody"))
    SqlQuotas(store._engine).set("blue", 12, None)
    ufm = SqlUfmMemory(store._engine)
    ufm.begin(PartitionRequest("f", 0x101, False, frozenset({0x1B, 0x2B}), 1))
    ufm.mark("f", [PortRef(0x1A, 3)])
    SqlLeases(store._engine).take("f", "worker-1", 60)
    SqlLeases(store._engine).enrol("worker-1", 60)
    store.allocations.postpone("boxed", NOW, "Nova does not answer")
    move = RoomMove("moving", elsewhere("moving"), 1, 1.0, NOW)
    store.admissions.record_room(
        QueueRoom(
            fabric="f",
            state=RoomState.FAILED,
            hosts=9,
            allocation="waits",
            placement=elsewhere("waits"),
            moves=(move,),
            at=NOW,
            avoided={"moving": "mark"},
        )
    )
    question = PlanQuestion("f", PlanKind.ROOM, ("jigsaw", 9))
    step = PlanStep("moving", elsewhere("moving"), elsewhere("moving"), 1, 2.0)
    known = store.placement_changes.known_plans(question, "blue", None)
    store.placement_changes.record_plan(
        question, RecordedPlan((step,)), known, key="k", by=Initiator("r", "u", "blue")
    )
    assert store.placement_changes.known_plans(question, "blue", "k").keyed == RecordedPlan((step,))
    with store._transactions.writing("count") as session:
        quotas.count_move(session, "blue", NOW)
        document = allocation_document(elsewhere("moving"))
        told = {"announced": document, "moves_at": NOW, "move_forced": True}
        faults = {"faults": {"links": ["leaf-0-0-0"], "hosts": []}}
        shown = {"routes_confirmed": Evidence(ConfirmedBy.AGENT, NOW, 3)}
        allocation_rows.write(session, "moving", {**told, **faults, **shown, "forgotten": 0})
    return store


def back_up(store, path):
    backup.write(store._engine, path, NOW)
    return path


def restored(engine, path, seen=lambda fabric: 0):
    restore(engine, path, seen=seen, now=NOW)
    return SqlStore(engine)


def sound(engine):
    with consistent_read(engine) as connection:
        return soundness.findings(connection)


def rows(engine):
    with engine.connect() as connection:
        return {
            table.name: [
                row._asdict()
                for row in connection.execute(sa.select(table).order_by(*table.primary_key))
            ]
            for table in backup.TABLES
        }


MOVED = {
    "fabric": {"generation", "layout", "routes_generation", "routes_stamp", "stamp"},
    "allocation": {"generation", "version", "due_at"},
    "lease": {"owner", "token", "applied", "confirmed", "problem", "seen_at"},
}
"""The columns that a restore changes; it leaves all others as they are in the backup."""


def test_what_is_restored_is_what_was_backed_up_but_for_the_numbers(told, empty, tmp_path):
    lived_in(told)
    assert sound(told._engine) == []
    before = rows(told._engine)
    assert all(before.values()), "something in every table"
    store = restored(empty, back_up(told, tmp_path / "laas.gz"))
    after = rows(empty)
    stories = after["event"][len(before["event"]) :]
    assert {one["allocation"] for one in stories} == {
        *("box", "boxed", "moving", "part", "sharer", "waits"),
    }
    after["event"] = after["event"][: len(before["event"])]
    for table, moved in MOVED.items():
        for row in [*before[table], *after[table]]:
            for column in moved:
                del row[column]
    assert after == before
    assert sound(empty) == []
    assert claims(store) == claims(told)
    assert store.fabrics.ledger("f")[0].state() == told.fabrics.ledger("f")[0].state()
    record = store.allocations.get("moving")
    assert record.history[-1].reason == "restored from the backup of 2026-06-01 00:00:00 UTC"
    assert record.history[-1].state is State.ACTIVE


def test_life_goes_on_after_a_restore(told, empty, tmp_path):
    """New rows get new numbers; PostgreSQL has a sequence for them that a restore has to set."""
    lived_in(told)
    store = restored(empty, back_up(told, tmp_path / "laas.gz"))
    store.allocations.cancel(store.allocations.get("waits"), "no more")
    release(store, "boxed")
    store.components.set_shared_plane("f", NO_PLANE)
    admit(store, "next", position=2)
    assert [one.id for one in store.allocations.page()][-1] == "next"
    assert sound(empty) == []


def test_nothing_that_others_have_seen_goes_back(told, empty, tmp_path):
    """Others have seen generations, fencing tokens and versions of allocations."""
    lived_in(told)
    leases = SqlLeases(told._engine)
    path = back_up(told, tmp_path / "laas.gz")
    for number in range(5):
        told.components.set_host_state("f", 6, [HostState.DRAINED, HostState.UP][number % 2])
    told.allocations.rename(told.allocations.get("box"), "other")
    seen, token = told.fabrics.get("f"), _token(told)
    cached = SqlStore(empty)
    store = restored(empty, path, seen=lambda fabric: {"f": 5_000_000}[fabric])
    after = store.fabrics.get("f")
    assert after.generation == after.routes_generation == 5_000_000 + LIFT > seen.generation
    assert store.fabrics.routed("f").generation > seen.routes_generation
    assert store.allocations.get("box").version > told.allocations.get("box").version
    assert replace(store.observations.holding("f"), taken=0) == Holding()
    assert _token(store) > token
    for one in store.allocations.page():
        assert one.generation == after.generation, "confirmed only by what is published now"
    assert cached.fabrics.ledger("f")[0].state() == store.fabrics.ledger("f")[0].state()
    assert leases.free() == []
    assert SqlLeases(empty).free() == ["f"]


def _token(store):
    with store._engine.connect() as connection:
        return connection.scalar(sa.select(models.LeaseRow.token))


def test_a_process_that_ran_through_a_restore_reads_the_fabric_anew(told, empty, tmp_path):
    """Its cached ledger has a later generation than the backup, and other allocations."""
    admit(told, "kept")
    path = back_up(told, tmp_path / "laas.gz")
    admit(told, "lost", position=2)
    running = SqlStore(empty)
    store = restored(empty, path)
    running._ledgers.keep("f", told._ledgers.caught_up(_session(told), "f"))
    assert set(running.fabrics.ledger("f")[0].allocations) == {"kept"}
    assert admit(running, "found", position=2).state is State.ALLOCATING
    assert set(store.fabrics.ledger("f")[0].allocations) == {"kept", "found"}


def _session(store):
    return sa.orm.Session(store._engine)


def test_others_write_while_a_backup_is_taken(told, empty, tmp_path, monkeypatch):
    """The backup is a consistent snapshot: it has no row of an allocation admitted meanwhile."""
    admit(told, "first")
    made, begun = Event(), Event()

    def slowly(connection, original=backup._rows):
        for number, row in enumerate(original(connection)):
            yield row
            if number == 0:
                begun.set()
                assert made.wait(60)

    def meanwhile():
        assert begun.wait(60)
        admit(told, "second", position=1)
        made.set()

    other = Thread(target=meanwhile)
    other.start()
    monkeypatch.setattr(backup, "_rows", slowly)
    path = back_up(told, tmp_path / "laas.gz")
    other.join()
    store = restored(empty, path)
    assert [one.id for one in store.allocations.page()] == ["first"]
    assert sound(empty) == []
    assert len(told.allocations.page()) == 2


def test_only_an_empty_database_is_restored_into(told, empty, tmp_path):
    lived_in(told)
    path = back_up(told, tmp_path / "laas.gz")
    before = rows(told._engine)
    with pytest.raises(Conflict, match="not empty"):
        restored(told._engine, path)
    assert rows(told._engine) == before
    schema.upgrade(empty)
    SqlQuotas(empty).set("somebody", 1, 1)
    with pytest.raises(Conflict, match="there are rows of quota"):
        restored(empty, path)
    SqlQuotas(empty).unset("somebody")
    assert restored(empty, path).fabrics.get("f")


def test_a_database_with_tables_of_others_is_left_alone(told, empty, tmp_path):
    path = back_up(told, tmp_path / "laas.gz")
    with empty.begin() as connection:
        connection.execute(sa.text("CREATE TABLE keystone_user (id INTEGER)"))
    with pytest.raises(Conflict, match=r"tables of others \(keystone_user\)"):
        restored(empty, path)
    assert sa.inspect(empty).get_table_names() == ["keystone_user"]


def test_a_row_that_cannot_be_written_leaves_nothing_behind(told, empty, tmp_path):
    """The file gives a host two owners, and its checksum is right."""
    lived_in(told)
    path = back_up(told, tmp_path / "laas.gz")
    header, *lines, _ = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    double = next(line for line in lines if line[0] == "host_claim")
    _put(path, [header, *lines, [*double[:4], "moving", *double[5:]]])
    with pytest.raises(InvalidFile, match="contradict each other"):
        restored(empty, path)
    assert not any(rows(empty).values())
    path = back_up(told, path)
    assert restored(empty, path).fabrics.get("f")


def _put(path, documents):
    """Write a backup of these lines, with a matching checksum."""
    backup._write(path, documents[0], iter(documents[1:]))


def test_a_torn_file_is_refused_wherever_it_ends(told, empty, tmp_path):
    whole = back_up(lived_in(told), tmp_path / "laas.gz").read_bytes()
    torn = tmp_path / "torn.gz"
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        torn.write_bytes(whole[:length])
        with pytest.raises(InvalidFile):
            restored(empty, torn)
    lines = gzip.decompress(whole).splitlines(keepends=True)
    for kept in (lines[:-1], lines[:3] + lines[4:], lines[:1] + lines[2:], [*lines, lines[1]]):
        torn.write_bytes(gzip.compress(b"".join(kept)))
        with pytest.raises(InvalidFile, match="torn"):
            restored(empty, torn)
    assert sa.inspect(empty).get_table_names() == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"SQLite format 3", "give a file of laas-manage db backup"),
        (gzip.compress(b"", mtime=0), "it is empty"),
        (gzip.compress(b"hello\n", mtime=0), "it is torn"),
        (gzip.compress(b"[1]\n", mtime=0), "this is no backup"),
        (gzip.compress(b'{"kind": "other"}\n', mtime=0), "this is no backup"),
        (
            gzip.compress(b'{"kind": "laas-backup", "format": 1, "revision": "z999"}\n', mtime=0),
            "made by another release .revision z999",
        ),
        (
            gzip.compress(b'{"kind": "laas-backup", "format": 2, "revision": "a001"}\n', mtime=0),
            "made by another release",
        ),
        (
            gzip.compress(
                b'{"kind": "laas-backup", "format": 1, "revision": "a100", '
                b'"tables": {"user": ["id"]}}\n',
                mtime=0,
            ),
            "there is no such table as user",
        ),
    ],
    ids=["no gzip", "empty", "text", "a list", "another kind", "revision", "format", "table"],
)
def test_what_is_no_backup_of_ours_is_refused(empty, tmp_path, content, said):
    path = tmp_path / "laas.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match=said):
        restored(empty, path)
    assert sa.inspect(empty).get_table_names() == []


def test_a_file_that_cannot_be_used_is_named(told, empty, tmp_path):
    with pytest.raises(InvalidInput, match="can be read"):
        restored(empty, tmp_path / "none.gz")
    with pytest.raises(InvalidInput, match="can be written"):
        back_up(told, tmp_path / "none" / "laas.gz")


def test_an_old_backup_stays_until_the_new_one_is_whole(told, tmp_path, monkeypatch):
    path = back_up(told, tmp_path / "laas.gz")
    before = path.read_bytes()

    def broken(connection):
        yield ["fabric"]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_rows", broken)
    with pytest.raises(InvalidInput, match="No space left"):
        back_up(told, path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.glob("*laas.gz*")] == ["laas.gz"]
    assert path.stat().st_mode & 0o077 == 0


def test_numbers_that_cannot_be_moved_on_are_refused(told, empty, tmp_path):
    path = back_up(told, tmp_path / "laas.gz")
    with pytest.raises(LimitExceeded, match="generation of f"):
        restored(empty, path, seen=lambda fabric: 2**31 - 2)
    assert not any(rows(empty).values())


def test_an_idempotency_key_outlives_a_restore(told, empty, tmp_path):
    first = admit(told, "a", key="k")
    store = restored(empty, back_up(told, tmp_path / "laas.gz"))
    again = store.admissions.admit(replace(new("b", "k"), name="a"), lambda fabric: None)
    assert again.id == first.id
