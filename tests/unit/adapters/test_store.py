# SPDX-License-Identifier: Apache-2.0

"""The promises of the store, on an SQLite file; ``test_databases`` repeats them on servers."""

import itertools
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa
import sqlalchemy.orm
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from oslo_db.exception import DBDeadlock, DBDuplicateEntry, DBError, DBReferenceError

from laas_service.adapters.db import allocation_rows, models, schema, soundness
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.documents import allocation_document
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.app.lifecycle import HOLDING, Action, AllocationFaults, Phase, State, next_action
from laas_service.app.records import (
    Confirmed,
    Evidence,
    HostState,
    LinkState,
    NewPlacement,
    QueueWait,
)
from laas_service.app.requests import AllocationRequest
from laas_service.domain.allocation import (
    Allocation,
    ColumnShare,
    GroupShare,
    NoFit,
    Promise,
    Refusal,
    Request,
    Sharing,
    SlotDemand,
)
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.errors import (
    ConcurrentUpdate,
    Conflict,
    DoubleClaim,
    IdempotencyMismatch,
    LimitExceeded,
    NameTaken,
    NotFound,
    Unavailable,
)
from laas_service.domain.features import HostChange, HostFeatures
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.moves.consent import Consent, Movable
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, Xgft
from laas_service.messages import ConfirmedBy, Initiator
from tests.drafts import on_ledger
from tests.waiting import at_once

SMALL = Topology(Xgft((4, 2, 2), (1, 4, 4)))  # 16 hosts, 4 leaves of 4, 2 pods
HOSTS = Inventory(tuple(f"node-{h}" for h in range(16)), (), (), (), (), (), ())
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def across_pods(id: str, position: int = 0) -> Allocation:
    """Host ``position`` of the first leaf of both pods, and a path between them."""
    mask = 1 << position
    return Allocation(
        id,
        2,
        "test",
        (GroupShare(0, mask, mask), GroupShare(2, mask, mask)),
        (ColumnShare(0, position, 1), ColumnShare(1, position, 1)),
    )


def new(id: str, key: str | None = None, **changes) -> AllocationRequest:
    values = {"fabric": "f", "name": id, "project_id": "blue", "policy": "test", "hosts": 2}
    return AllocationRequest(id=id, **{**values, "idempotency_key": key, **changes})


def admit(store: SqlStore, id: str, position: int = 0, key: str | None = None):
    return store.admissions.admit(new(id, key), lambda fabric: across_pods(id, position))


def release(store: SqlStore, id: str):
    record = store.allocations.transition(store.allocations.get(id), State.RELEASING, "asked")
    return store.allocations.free(store.allocations.hand_back(record), "gone")


@pytest.fixture
def managed(store):
    store.fabrics.add("f", SMALL, HOSTS)
    return store


def claims(store: SqlStore) -> dict[str, set[tuple[str, int]]]:
    with store._engine.connect() as connection:
        return {
            table: set(connection.execute(sa.text(f"select fabric, {what} from {table}")).all())
            for table, what in (
                ("host_claim", "host"),
                ("link_claim", "link"),
                ("pkey_claim", "pkey"),
            )
        }


def rebuilt(store: SqlStore) -> LedgerView:
    return SqlStore(store._engine).fabrics.ledger("f")[0]


# -- names --------------------------------------------------------------------


def named(store: SqlStore, id: str, slot: int = 0, name: str = "blue", fabric: str = "f"):
    asked = new(id, name=name, unique_name=True, fabric=fabric)
    return store.admissions.admit(asked, lambda draft: across_pods(id, slot))


def test_a_name_is_taken_by_one_of_many_at_the_same_time(managed):
    """On two fabrics, whose admissions no lock orders."""
    managed.fabrics.add("g", SMALL, replace(HOSTS, host_names=tuple(f"g-{h}" for h in range(16))))
    admitted, refused = [], []

    def ask(n: int) -> None:
        try:
            admitted.append(named(managed, f"t{n}", n // 2, fabric="fg"[n % 2]).id)
        except NameTaken as taken:
            refused.append(taken.allocation)

    at_once(*(partial(ask, n) for n in range(8)))
    assert len(admitted) == 1
    assert refused == admitted * 7


def test_the_database_gives_a_name_once(managed):
    named(managed, "a")
    second = {"project_id": "blue", "name": "blue", "allocation": "b"}
    step = sa.insert(models.NameRow).values(**second)
    with managed._engine.connect() as connection, pytest.raises(DBDuplicateEntry):
        connection.execute(step)


def test_a_name_is_free_once_its_allocation_is_released(managed):
    named(managed, "a")
    with pytest.raises(NameTaken, match="a"):
        named(managed, "b", 1)
    release(managed, "a")
    assert named(managed, "b", 1).state is State.ALLOCATING


def test_a_row_of_a_released_allocation_is_no_obstacle(managed):
    """Processes of an older release leave it."""
    named(managed, "a")
    with managed._engine.begin() as connection:
        connection.execute(sa.text("update allocation set state = 'released' where id = 'a'"))
    assert named(managed, "b", 1).id == "b"
    with pytest.raises(NameTaken, match="b"):
        named(managed, "c", 2)


# -- schema -------------------------------------------------------------------


def test_migrations_make_what_the_models_say(store):
    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, models.Base.metadata) == []


def test_the_table_of_all_allocations_has_what_all_have():
    """What belongs to a kind of tenancy or to a state is in a table of ``models.PARTS``."""
    assert len(models.AllocationRow.__table__.columns) <= 20
    assert {part.__tablename__ for part in models.PARTS} <= {*models.Base.metadata.tables}


def test_a_database_without_tables_is_not_ready(tmp_path):
    store = SqlStore(connect(f"sqlite:///{tmp_path}/new/laas.sqlite"))
    with pytest.raises(Unavailable, match="laas-manage db upgrade"):
        store.check()
    with pytest.raises(Unavailable, match="laas-manage db upgrade"):
        store.fabrics.all()
    schema.upgrade(store._engine)
    store.check()
    assert store.fabrics.all() == []


def test_a_database_that_cannot_be_written_is_unavailable(tmp_path):
    path = tmp_path / "laas.sqlite"
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(Unavailable):
        SqlStore(connect(f"sqlite:///{path}")).fabrics.all()


# -- promise 1: the database itself refuses a second owner ----------------------


@pytest.mark.parametrize(
    ("table", "what"), [("host_claim", "host"), ("link_claim", "link"), ("pkey_claim", "pkey")]
)
def test_second_owner_is_refused_by_the_database(managed, table, what):
    admit(managed, "a")
    admit(managed, "b", position=1)
    query = f"select {what} from {table} where allocation = 'a' limit 1"
    steal = f"insert into {table} (fabric, {what}, allocation) values ('f', :taken, 'b')"
    with managed._engine.connect() as connection:
        taken = connection.scalar(sa.text(query))
        with pytest.raises(DBDuplicateEntry):
            connection.execute(sa.text(steal), {"taken": taken})


def test_wrong_ledger_cannot_give_a_host_to_two(managed):
    admit(managed, "a")
    managed.fabrics.ledger("f")[0].release("a")  # a bug in memory
    before = claims(managed)
    with pytest.raises(DoubleClaim):
        admit(managed, "b")
    assert claims(managed) == before
    assert set(managed.fabrics.ledger("f")[0].allocations) == {"a"}  # read from the database again


def test_database_locked_for_too_long_is_unavailable(managed, monkeypatch):
    monkeypatch.setattr("laas_service.adapters.db.engine.BUSY_TIMEOUT_MS", 10)
    managed._engine.dispose()
    with managed._engine.connect().execution_options(laas_writes=True) as other, other.begin():
        assert managed.fabrics.ledger("f")[1] == 1  # readers do not wait
        with pytest.raises(Unavailable, match="locked"):
            admit(managed, "a")
    assert admit(managed, "a").state is State.ALLOCATING


# -- admission ----------------------------------------------------------------


def test_admission_records_everything_at_once(managed):
    record = admit(managed, "a")
    assert (record.state, record.version, record.pkey) == (State.ALLOCATING, 1, 1)
    assert record.placed == across_pods("a")
    assert [event.state for event in record.history] == [State.ALLOCATING]
    tree = SMALL.tree
    links: list[Link] = [
        LeafLink(0, 0, 0),
        LeafLink(1, 0, 0),
        SpineLink(0, 0, 0),
        SpineLink(1, 0, 0),
    ]
    assert claims(managed) == {
        "host_claim": {("f", 0), ("f", 8)},
        "link_claim": {("f", tree.link_id(link)) for link in links},
        "pkey_claim": {("f", 1)},
    }
    assert record == managed.allocations.get("a")
    assert managed.fabrics.get("f").generation == record.generation == 2


@pytest.mark.parametrize("queued", [False, True], ids=["placed", "queued"])
def test_the_answer_is_what_is_recorded(managed, queued):
    full = NoFit(Refusal.TOO_FEW_HOSTS, "full")
    asked = new(
        "a",
        "key",
        duration=60.5,
        wait=True,
        constraints=Constraints(avoid_hosts=frozenset({15})),
        consent=Consent(Movable.RESTART, notice=60.5),
        by=Initiator("request", "user", "blue"),
    )
    answer = managed.admissions.admit(
        asked, lambda fabric: QueueWait(full) if queued else across_pods("a")
    )
    assert answer == managed.allocations.get("a")


def test_refusal_leaves_nothing_behind(managed):
    refusal = NoFit(Refusal.TOO_FEW_HOSTS, "none left")

    def grab_and_refuse(fabric):
        fabric.claim(across_pods("a"))
        return refusal

    assert managed.admissions.admit(new("a", "key"), on_ledger(grab_and_refuse)) is refusal
    assert managed.fabrics.get("f").generation == 1
    assert managed.fabrics.ledger("f")[0].state() == Ledger(SMALL).state()
    assert admit(managed, "a", key="key").id == "a"


def test_failed_commit_changes_neither_database_nor_ledger(managed):
    def crash(step):
        if step == "before commit: admit":
            raise Unavailable("disk full")

    managed._transactions.at = crash
    with pytest.raises(Unavailable):
        admit(managed, "a", key="key")
    managed._transactions.at = lambda step: None
    assert (
        managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state() == Ledger(SMALL).state()
    )
    with pytest.raises(NotFound):
        managed.allocations.get("a")
    assert admit(managed, "a", key="key").generation == 2


def test_full_disk_leaves_nothing_behind(managed):
    with managed._engine.connect() as connection:
        (pages,) = connection.execute(sa.text("PRAGMA page_count")).one()

    def full(connection, record):
        connection.execute(f"PRAGMA max_page_count = {pages}")

    sa.event.listen(managed._engine, "connect", full)
    managed._engine.dispose()
    admitted = []

    def fill():
        for number in range(1000):
            admitted.append(admit(managed, f"a{number}", 0).id)
            release(managed, f"a{number}")

    with pytest.raises(Unavailable, match="full"):
        fill()
    sa.event.remove(managed._engine, "connect", full)
    managed._engine.dispose()
    held = {record.id for record in managed.allocations.page() if record.placed}
    assert managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state()
    assert set(managed.fabrics.ledger("f")[0].allocations) == held
    assert {record.id for record in managed.allocations.page()} == set(admitted)


def test_same_key_never_allocates_twice(managed):
    first = admit(managed, "a", key="key")
    assert managed.admissions.admit(new("b", "key", name="a"), pytest.fail) == first
    other_project = new("c", "key", project_id="red")
    assert managed.admissions.admit(other_project, lambda fabric: across_pods("c", 1)).id == "c"
    with pytest.raises(IdempotencyMismatch):
        managed.admissions.admit(new("b", "key", name="a", hosts=3), pytest.fail)


def test_key_outlives_renaming_and_release(managed):
    managed.allocations.rename(admit(managed, "a", key="key"), "other")
    release(managed, "a")
    assert managed.admissions.admit(new("b", "key", name="a"), pytest.fail).state is State.RELEASED


def test_key_race_gives_the_winner(managed):
    """Another process admits the same request between our search and our commit."""
    other = SqlStore(managed._engine)

    def lose(fabric):
        if "winner" not in fabric.allocations:
            other.admissions.admit(new("winner", "key", name="x"), lambda _: across_pods("winner"))
        return across_pods("late", 1)

    assert managed.admissions.admit(new("late", "key", name="x"), on_ledger(lose)).id == "winner"
    assert set(managed.fabrics.ledger("f")[0].allocations) == {"winner"}


def test_lost_race_is_retried_on_the_new_state(managed):
    other, seen = SqlStore(managed._engine), []

    def propose(fabric):
        seen.append(set(fabric.allocations))
        if len(seen) == 1:  # only the first search is overtaken
            admit(other, "b", position=1)
        return across_pods("a")

    assert managed.admissions.admit(new("a"), on_ledger(propose)).generation == 3
    assert seen == [set(), {"b"}]


def test_lost_race_can_end_in_a_refusal(managed):
    other = SqlStore(managed._engine)

    def propose(fabric):
        if fabric.allocations:
            return NoFit(Refusal.TOO_FEW_HOSTS, "too late")
        admit(other, "b")
        return across_pods("a")

    too_late = NoFit(Refusal.TOO_FEW_HOSTS, "too late")
    assert managed.admissions.admit(new("a"), on_ledger(propose)) == too_late
    assert set(managed.fabrics.ledger("f")[0].allocations) == {"b"}
    assert managed.fabrics.get("f").generation == 2


NO_ROOM = QueueWait(NoFit(Refusal.TOO_FEW_HOSTS, "nothing is free"))


def enqueue(store: SqlStore, id: str, key: str | None = None, **changes):
    return store.admissions.admit(new(id, key, wait=True, **changes), lambda fabric: NO_ROOM)


def test_who_waits_has_no_claims_and_everybody_has_to_look_again(managed):
    before = managed.fabrics.get("f")
    record = enqueue(managed, "a", duration=60.0)
    after = managed.fabrics.get("f")
    assert (record.state, record.version, record.placed) == (State.QUEUED, 1, None)
    assert (record.pkey, record.duration, record.ends_at) == (0, 60.0, None)
    assert [(e.state, e.reason) for e in record.history] == [
        (State.QUEUED, "waits: nothing is free")
    ]
    assert after.generation == before.generation + 1
    assert after.routes_generation == before.routes_generation
    assert not any(claims(managed).values())
    assert managed.allocations.due(EPOCH + timedelta(days=36500)) == []
    assert managed.fabrics.routed("f").tenants == ()


def rows_of(store: SqlStore, fabric: str) -> dict[str, int]:
    """How many rows each table has of a fabric; tables without a fabric: how many in all."""
    with store._engine.connect() as connection:
        counts = {}
        for table in models.Base.metadata.sorted_tables:
            query = sa.select(sa.func.count()).select_from(table)
            if "fabric" in table.columns:
                query = query.where(table.columns.fabric == fabric)
            elif table.name == "fabric":
                query = query.where(table.columns.id == fabric)
            elif "allocation" not in table.columns:
                continue
            counts[table.name] = connection.scalar(query) or 0
        return {name: count for name, count in counts.items() if count}


def test_a_deleted_fabric_leaves_no_row_and_its_neighbour_every_row(managed):
    managed.fabrics.add("g", SMALL, HOSTS)
    neighbour = rows_of(managed, "g")
    admit(managed, "a", key="k")
    enqueue(managed, "b")
    managed.components.set_host_state("f", 3, HostState.FAILED)
    managed.components.set_link_state("f", LeafLink(0, 0, 1), LinkState.FAILED)
    managed.components.describe_hosts("f", {1: HostChange(frozenset({"GPU"}), 4)})
    for expected in ("2 allocations: a, b;", "1 allocations: b;"):
        with pytest.raises(Conflict, match=expected):
            managed.fabrics.delete("f")
        assert managed.fabrics.get("f").id == "f"
        if expected.startswith("2"):
            release(managed, "a")
    managed.allocations.cancel(managed.allocations.get("b"), "no longer wanted")
    assert {"allocation", "event", "idempotency", "host_state", "delta"} <= rows_of(
        managed, "f"
    ).keys()
    assert managed.fabrics.delete("f").id == "f"
    assert rows_of(managed, "f") == {}
    assert rows_of(managed, "g") == neighbour
    assert [fabric.id for fabric in managed.fabrics.all()] == ["g"]
    for gone in (managed.fabrics.get, managed.fabrics.ledger, managed.fabrics.delete):
        with pytest.raises(NotFound):
            gone("f")
    with pytest.raises(NotFound):
        admit(managed, "late")


def test_a_fabric_may_come_back_under_the_id_of_a_deleted_one(managed):
    elsewhere = SqlStore(managed._engine)
    admit(elsewhere, "a")
    release(elsewhere, "a")
    managed.fabrics.delete("f")
    larger = Topology(Xgft((4, 2, 3), (1, 4, 4)))
    names = Inventory(tuple(f"node-{h}" for h in range(24)), (), (), (), (), (), ())
    managed.fabrics.add("f", larger, names)
    assert elsewhere.fabrics.ledger("f")[0].topology == larger
    assert admit(elsewhere, "b").state is State.ALLOCATING


def test_a_request_that_loses_the_race_against_the_deletion_finds_no_fabric(managed):
    def deleted_meanwhile(fabric):
        managed.fabrics.delete("f")
        return across_pods("a")

    with pytest.raises(NotFound):
        SqlStore(managed._engine).admissions.admit(new("a"), deleted_meanwhile)
    assert rows_of(managed, "f") == {}


def test_who_waits_is_admitted_as_anybody_is(managed):
    first, second = enqueue(managed, "a", key="k", duration=60.0), enqueue(managed, "b")
    records = managed.admissions.admit_waiting(
        "f", lambda fabric: [across_pods("b", 1), across_pods("a", 0)]
    )
    assert [(r.id, r.state, r.pkey) for r in records] == [
        ("b", State.ALLOCATING, 1),
        ("a", State.ALLOCATING, 2),
    ]
    a = managed.allocations.get("a")
    assert a.version == first.version + 1
    assert a.placed == across_pods("a", 0)
    assert a.ends_at is not None
    assert abs(a.ends_at - a.updated_at - timedelta(seconds=60)) < timedelta(seconds=5)
    assert managed.allocations.get("b").created_at == second.created_at
    assert enqueue(managed, "c", key="k", name="a", duration=60.0).id == "a"
    assert set(managed.fabrics.ledger("f")[0].allocations) == {"a", "b"}
    assert managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state()
    assert managed.fabrics.ledger("f")[1] == managed.fabrics.get("f").generation


def test_nobody_is_admitted_twice_or_after_leaving(managed):
    stale = enqueue(managed, "a")
    enqueue(managed, "b")
    managed.admissions.admit_waiting("f", lambda fabric: [across_pods("a", 0)])
    managed.allocations.cancel(managed.allocations.get("b"), "changed my mind")
    before = claims(managed)
    for id in ("a", "b"):
        with pytest.raises((ConcurrentUpdate, DoubleClaim)):
            managed.admissions.admit_waiting("f", lambda fabric, id=id: [across_pods(id, 2)])
    with pytest.raises(ConcurrentUpdate):
        managed.allocations.cancel(stale, "too late")
    with pytest.raises(Conflict):
        managed.allocations.cancel(managed.allocations.get("a"), "it runs")
    assert claims(managed) == before
    assert managed.allocations.get("b").state is State.RELEASED


def test_choice_is_made_anew_when_somebody_left_meanwhile(managed):
    enqueue(managed, "a")
    other = SqlStore(managed._engine)
    calls = []

    def choose(fabric):
        calls.append(fabric)
        if len(calls) == 1:
            other.allocations.cancel(other.allocations.get("a"), "changed my mind")
        waiting = managed.allocations.page(states=[State.QUEUED])
        return [across_pods("a")] if len(calls) == 1 or waiting else []

    assert managed.admissions.admit_waiting("f", choose) == []
    assert len(calls) == 2
    assert not any(claims(managed).values())


def test_partition_keys_are_those_of_the_range_and_run_out_with_a_clear_error(managed):
    narrow = SqlStore(managed._engine, pkeys=range(0x40, 0x42))
    assert [admit(narrow, "a", 0).pkey, admit(narrow, "b", 1).pkey] == [0x40, 0x41]
    with pytest.raises(LimitExceeded, match=r"all 2 partition keys .* pkeys"):
        admit(narrow, "c", 2)
    release(narrow, "a")
    assert admit(narrow, "c", 2).pkey == 0x40


PLANES = Description(xgft="3;2,2,4;1,2,2", rails=2, wiring="plane")
"""Two grouped pods of four hosts; each rail is a plane of its own, spines join the planes."""


def test_rails_that_the_links_do_not_join_have_a_partition_key_each(store):
    store = SqlStore(store._engine, pkeys=range(0x40, 0x43))
    made = generate(PLANES)
    store.fabrics.add("f", made.topology, made.inventory)

    def admit(id: str, *groups: GroupShare, columns: tuple[ColumnShare, ...] = ()):
        return store.admissions.admit(
            new(id), lambda fabric: Allocation(id, 2, "test", groups, columns)
        )

    apart = admit("a", GroupShare(0, 0b11, 0b0101))
    assert (apart.pkey, apart.pkeys, apart.keys_of(2)) == (0x40, (0x40, 0x41), (0x40, 0x41))
    assert "do not join its rails, so they have 2 partition keys" in apart.history[-1].reason
    with pytest.raises(LimitExceeded, match=r"needs 2 partition keys.* and 1 of fabric 'f'"):
        admit("b", GroupShare(1, 0b11, 0b0101))
    sides = GroupShare(1, 0b1, 0b0101), GroupShare(2, 0b1, 0b0101)
    spines = tuple(ColumnShare(pod, column, 1) for pod in (0, 1) for column in (0, 2))
    joined = admit("c", *sides, columns=spines)
    assert (joined.pkey, joined.pkeys, joined.keys_of(2)) == (0x42, (), (0x42, 0x42))
    routes = {tenant.allocation.id: tenant for tenant in store.fabrics.routed("f").tenants}
    assert [[routes[id].key(rail) for rail in (0, 1)] for id in "ac"] == [[0x40, 0x41], [0x42] * 2]
    with store._engine.connect() as connection:
        assert soundness.findings(connection) == []
    release(store, "a")
    assert admit("d", GroupShare(0, 0b11, 0b0101)).pkeys == (0x40, 0x41)


def test_unknown_names(managed):
    for call in (
        lambda: managed.fabrics.get("x"),
        lambda: managed.fabrics.ledger("x"),
        lambda: managed.fabrics.routed("x"),
        lambda: managed.allocations.get("x"),
        lambda: managed.allocations.page(marker="x"),
        lambda: managed.allocations.postpone("x", EPOCH, "why"),
        lambda: managed.components.set_host_state("f", 16, HostState.FAILED),
        lambda: managed.components.set_link_state("f", LeafLink(2, 0, 0), LinkState.FAILED),
        lambda: managed.admissions.admit(new("a", fabric="x"), pytest.fail),
    ):
        with pytest.raises(NotFound):
            call()


def test_fabric_is_kept_exactly_and_once(managed):
    record = SqlStore(managed._engine).fabrics.get("f")
    assert (record.topology, record.inventory, record.generation) == (SMALL, HOSTS, 1)
    with pytest.raises(Conflict):
        managed.fabrics.add("f", SMALL, HOSTS)


# -- life -----------------------------------------------------------------------


def test_release_frees_everything_and_tells_the_story(managed):
    admit(managed, "a")
    record = release(managed, "a")
    assert (record.state, record.placed) == (State.RELEASED, None)
    assert [event.state.value for event in record.history] == [
        "allocating",
        "releasing",
        "releasing",
        "released",
    ]
    assert claims(managed) == {"host_claim": set(), "link_claim": set(), "pkey_claim": set()}
    assert managed.fabrics.ledger("f")[0].state() == Ledger(SMALL).state()


def test_record_that_moved_on_is_not_overwritten(managed):
    stale = admit(managed, "a")
    managed.allocations.transition(stale, State.ACTIVE, "ready")
    for act in (
        lambda: managed.allocations.transition(stale, State.RELEASING, "asked"),
        lambda: managed.allocations.rename(stale, "other"),
    ):
        with pytest.raises(ConcurrentUpdate):
            act()
    releasing = managed.allocations.transition(
        managed.allocations.get("a"), State.RELEASING, "asked"
    )
    managed.allocations.hand_back(releasing)
    with pytest.raises(ConcurrentUpdate):
        managed.allocations.hand_back(releasing)
    assert managed.fabrics.get("f").generation == 3  # the refused call did not raise the generation


def test_states_follow_their_order(managed):
    record = admit(managed, "a")
    for act in (
        lambda: managed.allocations.free(record, "early"),
        lambda: managed.allocations.requeue(record, "early"),
        lambda: managed.allocations.transition(record, State.RELEASED, "early"),
        lambda: managed.allocations.transition(record, State.QUEUED, "back"),
    ):
        with pytest.raises(Conflict):
            act()
    record = managed.allocations.transition(record, State.RELEASING, "asked")
    with pytest.raises(Conflict, match="not handed back"):
        managed.allocations.free(record, "early")


def test_force_stays(managed):
    record = managed.allocations.transition(admit(managed, "a"), State.RELEASING, "asked")
    record = managed.allocations.transition(record, State.RELEASING, "forced", force=True)
    assert managed.allocations.hand_back(record).force


def test_a_change_answers_with_the_record_that_would_be_read(managed):
    """It is made of the record before and what is written, and costs no statement."""
    parts, by = managed.allocations, Initiator("req-1", "u", "p")
    read = Evidence(ConfirmedBy.SWITCHES, EPOCH, 2)
    confirmed = Confirmed(ConfirmedBy.SWITCHES, read, read)
    record = parts.transition(admit(managed, "a"), State.ACTIVE, "ready", confirmed=confirmed)
    assert record == parts.get("a")
    record = managed.placement_changes.consent(record, Consent(Movable.LIVE), "may move", by=by)
    assert record == parts.get("a")
    record = parts.rename(record, "green")
    assert record == parts.get("a")
    for _ in range(120):  # more than a record has of its history
        record = parts.rename(record, "green")
    assert record == parts.get("a")
    record = parts.transition(record, State.RELEASING, "asked", force=True)
    record = parts.hand_back(record)
    assert record == parts.get("a")
    assert parts.free(record, "freed") == parts.get("a")


def test_a_row_that_a_change_deletes_takes_its_other_columns_along(managed):
    record = managed.allocations.transition(admit(managed, "a"), State.ACTIVE, "ready")
    with managed._transactions.writing("announce") as session:
        told = {"announced": allocation_document(across_pods("a", 1)), "moves_at": EPOCH}
        allocation_rows.write(session, "a", {**told, "move_forced": True})
    record = managed.allocations.get("a")
    assert record.move_forced
    record = managed.placement_changes.drop_announcement(record, "called off")
    assert record == managed.allocations.get("a")
    assert not record.move_forced


def test_only_a_record_that_changed_is_read_again(managed):
    record = admit(managed, "a")
    assert managed.allocations.newest(record) is record
    changed = managed.allocations.rename(record, "green")
    assert managed.allocations.newest(record) == changed
    assert managed.allocations.newest(changed) is changed
    managed.allocations.postpone("a", EPOCH, "late", seen=record)
    assert managed.allocations.get("a") == changed
    managed.allocations.postpone("a", EPOCH, "in time", seen=changed)
    assert managed.allocations.get("a").error == "in time"


def test_routes_that_are_published_are_not_read_again(managed):
    admit(managed, "a")
    found = managed.fabrics.to_publish("f", None)
    assert found.state == managed.fabrics.routed("f")
    assert found.routes == (found.state.generation, found.state.stamp)
    assert managed.fabrics.to_publish("f", found.routes).state is None
    assert managed.fabrics.to_publish("f", (found.routes[0], "f" * 16)).state == found.state
    admit(managed, "b", 1)
    newer = managed.fabrics.to_publish("f", found.routes)
    assert newer.state == managed.fabrics.routed("f")
    with pytest.raises(NotFound):
        managed.fabrics.to_publish("x", None)


def test_due_work_and_postponing(managed):
    admit(managed, "a", 0)
    managed.allocations.transition(admit(managed, "b", 1), State.ACTIVE, "ready")
    admit(managed, "c", 2)
    assert managed.allocations.due(EPOCH) == ["a", "c"]
    managed.allocations.postpone("a", EPOCH + timedelta(seconds=5), "Nova is away")
    assert managed.allocations.due(EPOCH) == ["c"]
    assert managed.allocations.due(EPOCH + timedelta(seconds=5)) == ["a", "c"]
    record = managed.allocations.get("a")
    assert (record.error, record.failures, record.version) == ("Nova is away", 1, 2)
    managed.allocations.postpone("a", EPOCH, "Nova is away")
    record = managed.allocations.get("a")
    assert (record.failures, record.version) == (2, 2)  # clients see no change
    assert [event.reason for event in record.history][1:] == ["Nova is away"]
    record = managed.allocations.transition(record, State.ACTIVE, "ready")
    assert (record.error, record.failures) == (None, 0)


def test_lists_page_in_order_of_creation(managed):
    for position, id in enumerate("dbca"):
        admit(managed, id, position)
    release(managed, "b")
    assert [r.id for r in managed.allocations.page()] == ["d", "b", "c", "a"]
    assert [r.id for r in managed.allocations.page(marker="b", limit=1)] == ["c"]
    assert [r.id for r in managed.allocations.page(states=[State.ALLOCATING])] == ["d", "c", "a"]
    assert managed.allocations.page(project_id="red") == managed.allocations.page(fabric="g") == []


# -- ledger -----------------------------------------------------------------------


def test_processes_catch_up_by_deltas(managed):
    other = SqlStore(managed._engine)
    other.fabrics.ledger("f")
    admit(managed, "a", 0)
    admit(managed, "b", 1)
    managed.components.set_host_state("f", 3, HostState.DRAINED)
    managed.components.set_host_state("f", 0, HostState.FAILED)  # owned by a
    managed.components.set_link_state("f", SpineLink(0, 3, 3), LinkState.FAILED)
    release(managed, "a")
    statements: list[str] = []
    sa.event.listen(
        managed._engine, "before_cursor_execute", lambda *args: statements.append(args[2])
    )
    other.fabrics.ledger("f")
    assert not any("FROM allocation" in statement for statement in statements)
    assert other.fabrics.ledger("f")[0].state() == rebuilt(managed).state()
    assert other.fabrics.ledger("f")[1] == managed.fabrics.get("f").generation
    assert not other.fabrics.ledger("f")[0].free_hosts[0] & 0b1001


def test_missing_deltas_mean_reading_anew(managed):
    other = SqlStore(managed._engine)
    other.fabrics.ledger("f")
    forgetful = SqlStore(managed._engine, keep_deltas=1)
    admit(forgetful, "a", 0)
    admit(forgetful, "b", 1)
    assert other.fabrics.ledger("f")[0].state() == forgetful.fabrics.ledger("f")[0].state()


def test_what_a_reader_holds_does_not_change(managed):
    fabric, _ = managed.fabrics.ledger("f")
    admit(managed, "a")
    assert fabric.state() == Ledger(SMALL).state()
    assert managed.fabrics.ledger("f")[0] is not fabric


def test_same_state_again_is_no_change(managed):
    assert managed.components.set_host_state("f", 3, HostState.UP) == 1
    assert managed.components.set_host_state("f", 3, HostState.FAILED) == 2
    assert managed.components.set_host_state("f", 3, HostState.FAILED) == 2
    assert managed.components.set_host_state("f", 3, HostState.DRAINED) == 3
    assert managed.components.set_link_state("f", LeafLink(0, 0, 0), LinkState.UP) == 3
    assert managed.components.set_host_state("f", 3, HostState.UP) == 4
    assert (
        managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state() == Ledger(SMALL).state()
    )


def test_routes_follow_claims_until_handed_back(managed):
    admit(managed, "b", 1)
    admit(managed, "a", 0)
    state = managed.fabrics.routed("f")
    assert [t.allocation.id for t in state.tenants] == ["a", "b"]
    assert [t.pkey for t in state.tenants] == [2, 1]
    assert state.generation == managed.allocations.get("a").generation == 3
    managed.components.set_host_state("f", 3, HostState.FAILED)
    assert managed.fabrics.routed("f") == state  # no route depends on it
    record = managed.allocations.transition(managed.allocations.get("a"), State.RELEASING, "asked")
    record = managed.allocations.hand_back(record)
    state = managed.fabrics.routed("f")
    assert [t.allocation.id for t in state.tenants] == ["b"]
    assert state.generation == record.generation == 5
    managed.allocations.free(record, "gone")
    assert managed.fabrics.routed("f") == state
    assert managed.fabrics.get("f").routes_generation == 5


def test_failed_links_are_for_the_subnet_manager_too(managed):
    links: list[Link] = [SpineLink(0, 1, 2), LeafLink(0, 0, 3)]
    for link in links:
        managed.components.set_link_state("f", link, LinkState.FAILED)
    state = managed.fabrics.routed("f")
    assert state.failed_links == (links[1], links[0])
    assert state.generation == 3


def test_a_shared_plane_is_withheld_everywhere(managed):
    other = SqlStore(managed._engine)
    other.fabrics.ledger("f")
    plane = CommonPlane((1,), ())
    assert managed.components.set_shared_plane("f", plane) == 2
    assert managed.components.set_shared_plane("f", plane) == 2
    for store in (managed, other, SqlStore(managed._engine)):
        assert store.fabrics.get("f").shared_plane == plane
        assert store.fabrics.ledger("f")[0].state() == rebuilt(managed).state()
        assert store.fabrics.ledger("f")[0].shared_plane == plane
        assert store.fabrics.routed("f").shared_plane == plane
    assert managed.fabrics.get("f").routes_generation == 2
    with pytest.raises(DoubleClaim):
        admit(other, "b", position=1)
    admit(other, "a")
    with pytest.raises(Conflict, match="release them first: a"):
        managed.components.set_shared_plane("f", CommonPlane((0,), ()))
    assert managed.fabrics.get("f").shared_plane == plane
    assert managed.components.set_shared_plane("f", NO_PLANE) == 4
    admit(other, "b", position=1)
    with pytest.raises(NotFound):
        managed.components.set_shared_plane("g", plane)


# -- many at once ---------------------------------------------------------------


def test_threads_share_a_store(managed):
    """Each thread takes the lowest free position of the first leaf; four fit."""

    def propose(id, fabric):
        free = fabric.free_hosts[0]
        if not free:
            return NoFit(Refusal.TOO_FEW_HOSTS, "none left")
        return across_pods(id, (free & -free).bit_length() - 1)

    answers = []

    def ask(id):
        answers.append(managed.admissions.admit(new(id), on_ledger(partial(propose, id))))

    at_once(*(partial(ask, f"t{n}") for n in range(8)))
    assert sum(isinstance(answer, NoFit) for answer in answers) == 4
    assert len(claims(managed)["host_claim"]) == 8
    assert managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state()


# -- changes of placement -------------------------------------------------------


def active(store: SqlStore, id: str):
    admit(store, id)
    return store.allocations.transition(store.allocations.get(id), State.ACTIVE, "handed over")


def elsewhere(id: str) -> Allocation:
    """The hosts of ``across_pods``, over L2 index 3 and spine 2."""
    return Allocation(
        id,
        2,
        "test",
        (GroupShare(0, 1, 0b1000), GroupShare(2, 1, 0b1000)),
        (ColumnShare(0, 3, 0b100), ColumnShare(1, 3, 0b100)),
    )


def owned_links(store: SqlStore) -> set[Link]:
    return {SMALL.tree.link_at(link) for _, link in claims(store)["link_claim"]}


def test_a_move_holds_both_places_until_its_end(managed):
    record = active(managed, "a")
    old, new = across_pods("a"), elsewhere("a")
    both = {*old.links(SMALL), *new.links(SMALL)}
    record = managed.placement_changes.begin(
        record, lambda fabric: NewPlacement(new, "another way")
    )
    assert (record.placed, record.leaving, record.phase) == (new, old, Phase.PREPARE)
    assert (record.traffic, record.held) == (old, new.joined(old))
    stories, routes, versions = [record.history[-1].reason], [], [record.version]
    while record.phase is not None:
        assert owned_links(managed) == both
        assert set(rebuilt(managed).owners_of_links()) == both
        state = managed.fabrics.routed("f")
        assert state.generation == record.generation == managed.fabrics.get("f").routes_generation
        routes += [(state.tenants[0].allocation, state.tenants[0].beside)]
        record = managed.placement_changes.proceed(record, f"after {record.phase.value}")
        stories.append(record.history[-1].reason)
        versions.append(record.version)
    assert routes == [(old, new), (new, old), (new, None)]
    assert stories == ["another way", "after prepare", "after switch", "after withdraw"]
    assert versions == sorted(set(versions))
    assert (record.placed, record.leaving, record.held) == (new, None, new)
    assert owned_links(managed) == set(new.links(SMALL))
    assert managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state()
    assert managed.allocations.due(EPOCH) == []
    with pytest.raises(Conflict, match="no change"):
        managed.placement_changes.proceed(record, "once more")


@pytest.mark.parametrize("turned_back", [False, True])
def test_a_bridge_is_held_from_the_beginning_of_a_move_to_its_end(managed, turned_back):
    record, new = active(managed, "a"), elsewhere("a")
    bridge = Allocation("a", 0, "test", (GroupShare(3, 0, 0b1),), (ColumnShare(1, 2, 0b1),))
    links = set(bridge.links(SMALL))
    record = managed.placement_changes.begin(
        record, lambda fabric: NewPlacement(new, "another way", bridge)
    )
    assert record.held == new.joined(across_pods("a")).joined(bridge)
    if turned_back:
        record = managed.placement_changes.turn_back(
            managed.placement_changes.proceed(record, "on"), "called off"
        )
    while record.phase is not None:
        assert record.bridge == managed.allocations.get("a").bridge == bridge
        assert links < owned_links(managed)
        assert links < set(rebuilt(managed).owners_of_links())
        assert managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state()
        routed = managed.fabrics.routed("f").tenants[0].bridge
        assert routed == (None if record.phase is Phase.WITHDRAW else bridge)
        with managed._engine.connect() as connection:
            assert soundness.findings(connection) == []
        record = managed.placement_changes.proceed(record, "on")
    assert record.bridge is None
    kept = across_pods("a") if turned_back else new
    assert owned_links(managed) == set(kept.links(SMALL))
    assert managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state()


def test_a_bridge_that_another_holds_stops_a_move_before_it_begins(managed):
    record = active(managed, "a")
    admit(managed, "b", position=3)
    [share, *_] = across_pods("b", position=3).groups
    theirs = Allocation("a", 0, "test", (share._replace(hosts=0),))
    before = (claims(managed), managed.fabrics.ledger("f")[1])
    with pytest.raises(DoubleClaim):
        managed.placement_changes.begin(
            record, lambda fabric: NewPlacement(elsewhere("a"), "theft", theirs)
        )
    assert (claims(managed), managed.fabrics.ledger("f")[1]) == before


def test_only_one_of_two_moves_a_record(managed):
    record = active(managed, "a")
    managed.placement_changes.begin(record, lambda fabric: NewPlacement(elsewhere("a"), "first"))
    with pytest.raises(ConcurrentUpdate):
        managed.placement_changes.begin(
            record, lambda fabric: NewPlacement(elsewhere("a"), "second")
        )
    with pytest.raises(Conflict, match="changing already"):
        managed.placement_changes.begin(
            managed.allocations.get("a"), lambda fabric: NewPlacement(across_pods("a"), "back")
        )
    assert len(managed.allocations.get("a").history) == 3


def test_a_move_onto_what_another_has_leaves_nothing_behind(managed):
    record = active(managed, "a")
    admit(managed, "b", position=3)
    theirs = Allocation("a", 2, "test", across_pods("b", position=3).groups)
    before = (claims(managed), managed.fabrics.ledger("f")[1])
    with pytest.raises(DoubleClaim):
        managed.placement_changes.begin(record, lambda fabric: NewPlacement(theirs, "theft"))
    assert managed.placement_changes.begin(record, lambda fabric: "nowhere") == "nowhere"
    assert (claims(managed), managed.fabrics.ledger("f")[1]) == before
    assert managed.allocations.get("a") == record


def test_a_release_ends_a_move_and_frees_both_places(managed):
    managed.placement_changes.begin(
        active(managed, "a"), lambda fabric: NewPlacement(elsewhere("a"), "another way")
    )
    assert managed.allocations.due(EPOCH) == ["a"]
    record = release(managed, "a")
    assert (record.placed, record.leaving, record.phase) == (None, None, None)
    assert claims(managed)["link_claim"] == set()
    assert managed.fabrics.ledger("f")[0].state() == Ledger(SMALL).state()


@pytest.mark.parametrize("state", [state for state in State if state in HOLDING])
def test_what_is_due_is_what_the_lifecycle_has_an_action_for(managed, state):
    """For all records of a state: with and without a phase, faults, and handed back or not."""
    managed.placement_changes.begin(
        active(managed, "a"), lambda fabric: NewPlacement(elsewhere("a"), "another way")
    )
    leaving = allocation_document(across_pods("a"))
    failed = {"links": ["spine-1-0-0"], "hosts": []}
    for phase, faults, handed_back in itertools.product(
        (None, *Phase), (None, failed, {"links": [], "hosts": [0]}), (False, True)
    ):
        with sa.orm.Session(managed._engine) as session:
            session.execute(
                sa.update(models.AllocationRow).values(state=state.value, handed_back=handed_back)
            )
            change = {"phase": phase and phase.value, "leaving": leaving if phase else None}
            allocation_rows.write(session, "a", {**change, "faults": faults})
            session.commit()
        record = managed.allocations.get("a")
        for repairs in (False, True):
            action = next_action(record, False, repair_links=repairs)
            due = managed.allocations.due(EPOCH, faulty=repairs)
            assert due == ([] if action is Action.NOTHING else ["a"]), (phase, faults, repairs)


def test_what_fails_of_what_is_owned_is_noted_with_it(managed):
    record = active(managed, "a")
    link = SpineLink(1, 0, 0)
    managed.components.set_link_state("f", link, LinkState.FAILED)
    managed.components.set_link_state("f", SpineLink(1, 3, 3), LinkState.FAILED)  # no owner
    noted = managed.allocations.get("a")
    assert noted.faults == AllocationFaults((link,))
    assert noted.version == record.version + 1
    assert noted.history[-1].reason == "failed: link spine-1-0-0"
    assert (managed.allocations.due(EPOCH), managed.allocations.due(EPOCH, faulty=True)) == (
        [],
        ["a"],
    )
    managed.allocations.postpone("a", EPOCH + timedelta(minutes=1), "no other way")
    assert managed.allocations.due(EPOCH, faulty=True) == []
    managed.components.set_host_state("f", 8, HostState.DRAINED)
    assert managed.allocations.get("a").faults == AllocationFaults((link,))
    managed.components.set_host_state("f", 8, HostState.FAILED)
    assert managed.allocations.get("a").faults == AllocationFaults((link,), (8,))
    managed.components.set_link_state("f", link, LinkState.UP)
    noted = managed.allocations.get("a")
    assert noted.faults == AllocationFaults((), (8,))
    assert noted.history[-1].reason == "up again: link spine-1-0-0"
    assert managed.allocations.due(EPOCH, faulty=True) == []  # hosts are not moved
    managed.components.set_host_state("f", 8, HostState.UP)
    noted = managed.allocations.get("a")
    assert (noted.faults, noted.error) == (None, None)
    assert managed.components.note_faults("f") == []


def test_faults_recorded_by_an_earlier_release_are_noted(managed):
    active(managed, "a")
    managed.components.set_link_state("f", SpineLink(1, 0, 0), LinkState.FAILED)
    with managed._engine.begin() as connection:
        connection.execute(sa.text("delete from allocation_faults"))
    assert managed.components.note_faults("f") == ["a"]
    assert managed.allocations.get("a").faults == AllocationFaults((SpineLink(1, 0, 0),))


def test_a_failed_link_that_was_left_is_no_fault_any_more(managed):
    active(managed, "a")
    managed.components.set_link_state("f", SpineLink(1, 0, 0), LinkState.FAILED)
    record = managed.placement_changes.begin(
        managed.allocations.get("a"), lambda fabric: NewPlacement(elsewhere("a"), "away")
    )
    while record.phase is not None:
        assert record.faults == AllocationFaults((SpineLink(1, 0, 0),))
        assert managed.allocations.due(EPOCH, faulty=True) == ["a"]
        record = managed.placement_changes.proceed(record, "on")
    assert record.faults is None
    assert SpineLink(1, 0, 0) not in owned_links(managed)
    assert managed.fabrics.ledger("f")[0].state() == rebuilt(managed).state()


# -- features of hosts, and constraints of requests ----------------------------


GPU = HostFeatures(frozenset({"gpu", "nvme"}), 7)
SAID = HostChange(*GPU)


def test_what_hosts_are_like_reaches_other_processes_and_the_next_start(managed):
    other = SqlStore(managed._engine)
    generation = other.fabrics.ledger("f")[1]
    first = managed.components.describe_hosts("f", {0: SAID, 1: SAID, 5: HostChange(cost=3)})
    again = managed.components.describe_hosts(
        "f", {0: HostChange(cost=9), 1: HostChange(frozenset(), 0), 5: HostChange(frozenset("x"))}
    )
    assert (first, again) == (generation + 1, generation + 2)
    known = {0: GPU._replace(cost=9), 5: HostFeatures(frozenset("x"), 3)}
    for store in (managed, other, SqlStore(managed._engine)):
        assert store.fabrics.ledger("f")[0].features.hosts == known
    assert rebuilt(managed).state() == managed.fabrics.ledger("f")[0].state()


def test_the_same_word_on_a_host_again_is_no_change(managed):
    generation = managed.components.describe_hosts("f", {0: SAID})
    assert (
        managed.components.describe_hosts("f", {0: SAID, 3: HostChange(frozenset(), 0)})
        == generation
    )
    assert (
        managed.components.describe_hosts("f", {0: HostChange(), 1: HostChange(cost=0)})
        == generation
    )
    assert managed.components.describe_hosts("f", {}) == generation


def test_a_word_on_hosts_that_are_not_there_changes_nothing(managed):
    with pytest.raises(NotFound):
        managed.components.describe_hosts("f", {0: SAID, 16: SAID})
    with pytest.raises(NotFound):
        managed.components.describe_hosts("nowhere", {0: SAID})
    assert managed.fabrics.ledger("f")[0].features.hosts == {}


def test_a_word_on_more_hosts_than_a_statement_may_name(store):
    topology = Topology(Xgft((40, 32, 32), (1, 1, 1)))
    store.fabrics.add("large", topology, HOSTS)
    everybody = range(topology.hosts)  # 40,960, more than SQLite takes parameters
    store.components.describe_hosts("large", dict.fromkeys(everybody, SAID))
    store.components.describe_hosts("large", dict.fromkeys(everybody, HostChange(cost=1)))
    assert set(store.fabrics.ledger("large")[0].features.hosts.values()) == {GPU._replace(cost=1)}


WISH = Constraints(
    traits=frozenset({"gpu"}),
    avoid_hosts=frozenset({3, 1}),
    avoid_pods=frozenset({1}),
    within=Within.POD,
    max_host_cost=9,
    cheapest=True,
)


@pytest.mark.parametrize("wish", [None, WISH, Constraints(spread=2)])
def test_constraints_are_remembered_with_the_request(managed, wish):
    waits = NoFit(Refusal.TOO_FEW_HOSTS, "none")
    managed.admissions.admit(new("q", constraints=wish, wait=True), lambda fabric: QueueWait(waits))
    managed.admissions.admit(new("a", constraints=wish), lambda fabric: across_pods("a"))
    again = SqlStore(managed._engine)
    assert again.allocations.get("q").constraints == wish
    assert [record.constraints for record in again.allocations.page(fabric="f")] == [wish, wish]


def test_a_key_used_with_other_constraints_is_refused(managed):
    first = managed.admissions.admit(
        new("a", "k", constraints=WISH), lambda fabric: across_pods("a")
    )
    assert (
        managed.admissions.admit(new("b", "k", name="a", constraints=WISH), lambda fabric: None)
        == first
    )
    for other in (None, Constraints(spread=2)):
        with pytest.raises(IdempotencyMismatch):
            managed.admissions.admit(
                new("b", "k", name="a", constraints=other), lambda fabric: None
            )


# -- shared hosts ---------------------------------------------------------------

SHARING = Sharing(2, 4.0)


def share(store: SqlStore, id: str, placed: Allocation | None = None, sharing: Sharing = SHARING):
    """An allocation whose hosts are shared, placed as ``across_pods`` unless told otherwise."""
    answer = replace(placed or across_pods(id), id=id, sharing=sharing)
    return store.admissions.admit(new(id, sharing=sharing), lambda fabric: answer)


def slots(store: SqlStore, id: str, part: str, demand: SlotDemand, **changes):
    """An allocation with slots of such hosts; the refusal if they are not there."""
    asked = new(id, parent=part, slots=demand, policy="shared", **{"hosts": 0, **changes})
    request = Request(id, 1, slots=demand)
    return store.admissions.admit(
        asked, lambda draft: SharedSlots().propose(draft.ledger.ledger(part), request)
    )


def sums(store: SqlStore):
    """(used slots by host, certain promises by directed link) of all that is shared."""
    host, link = models.SharedHostRow, models.SharedLinkRow
    with store._transactions.reading() as session:
        return (
            dict(session.execute(sa.select(host.host, host.used)).all()),
            dict(session.execute(sa.select(link.link, link.certain)).all()),
        )


def test_slots_and_promises_are_recorded_and_given_back(managed):
    part = share(managed, "part")
    made = slots(managed, "a", "part", SlotDemand(3, 1.0))
    assert (made.state, made.pkey, made.hosts) == (State.ALLOCATING, 0, 0)
    assert made.generation == part.generation  # its routes are those of the hosts
    used, promised = sums(managed)
    assert sorted(used.values()) == [1, 2]
    assert set(promised.values()) == {1 << 20}  # one of three is beyond each link
    assert len(promised) == 4 + 2 * 4  # both hosts, both leaves, both spine links, each way
    assert managed.fabrics.get("f").routes_generation == part.generation
    release(managed, "a")
    used, promised = sums(managed)
    assert set(used.values()) == set(promised.values()) == {0}
    assert managed.fabrics.get("f").routes_generation == part.generation
    slots(managed, "b", "part", SlotDemand(1, 1.0))
    with pytest.raises(Conflict, match="inside"):
        managed.allocations.transition(managed.allocations.get("part"), State.RELEASING, "asked")
    release(managed, "b")
    release(managed, "part")
    assert sums(managed) == ({}, {})


def test_another_process_reads_the_same_slots(managed):
    share(managed, "part")
    slots(managed, "a", "part", SlotDemand(3, 1.0))
    for ledger in (
        managed.fabrics.ledger("f")[0],
        SqlStore(managed._engine).fabrics.ledger("f")[0],
    ):
        inner = ledger.ledger("part")
        assert sum(inner.used_slots.values()) == 3
        assert [held.id for held in ledger.sharers()] == ["a"]
        assert [held.id for held in ledger.everybody()] == ["part"]


@pytest.mark.parametrize("wrong", ["slots", "bandwidth"])
def test_the_database_refuses_what_is_not_there(managed, wrong):
    """A placement that nobody checked, as a bug in a search would make it."""
    share(managed, "part")
    first = slots(managed, "a", "part", SlotDemand(2, 1.0)).placed
    taken = replace(first, id="b")
    if wrong == "bandwidth":
        host = next(iter({0, 8} - first.slots.counts.keys()))
        own_link = SMALL.tree.leaf_links + SMALL.tree.spine_links + host
        over = Promise(2 * own_link, 5 << 20, 0, 0)
        units = ((host, (0, 1)),)
        taken = replace(taken, slots=replace(first.slots, units=units, promised=(over,)))
    before = sums(managed)

    def unchecked(fabric):
        fabric.ledger("part").used_slots.clear()
        return taken

    with pytest.raises(DoubleClaim, match="refuse"):
        managed.admissions.admit(
            new("b", parent="part", slots=taken.slots.demand, hosts=0), on_ledger(unchecked)
        )
    assert sums(managed) == before


# -- containers -------------------------------------------------------------------


def container(store: SqlStore, id: str, position: int = 0, parent: str | None = None):
    """A container with the placement of ``across_pods``."""
    answer = replace(across_pods(id, position), container=True, parent=parent)
    return store.admissions.admit(new(id, container=True, parent=parent), lambda fabric: answer)


def inside(store: SqlStore, id: str, parent: str, host: int = 0):
    """One host of the first leaf inside a container."""
    one = Allocation(id, 1, "test", (GroupShare(0, 1 << host, 0),), parent=parent)
    return store.admissions.admit(new(id, parent=parent), lambda fabric: one)


def test_children_claim_within_their_parents_claims(managed):
    other = SqlStore(managed._engine)
    other.fabrics.ledger("f")
    made = container(managed, "c")
    assert (made.container, made.parent, made.pkey) == (True, None, 0)
    child = inside(other, "x", "c")
    assert (child.container, child.parent, child.pkey) == (False, "c", 1)
    assert child.placed is not None
    assert child.placed.parent == "c"
    for store in (managed, other, SqlStore(managed._engine)):
        ledger = store.fabrics.ledger("f")[0]
        assert set(ledger.allocations) == {"c"}
        assert set(ledger.ledger("c").allocations) == {"x"}
        assert ledger.state() == rebuilt(managed).state()
        assert [tenant.allocation.id for tenant in store.fabrics.routed("f").tenants] == ["x"]
    with pytest.raises(DoubleClaim):
        inside(managed, "y", "c")
    with pytest.raises(DoubleClaim):
        inside(managed, "y", "c", host=1)  # the container does not hold this host
    release(managed, "x")
    inside(other, "y", "c")


@pytest.mark.parametrize(("table", "what"), [("host_claim", "host"), ("link_claim", "link")])
def test_the_database_refuses_siblings_the_same_and_strangers_anything(managed, table, what):
    container(managed, "c")
    admit(managed, "b", position=1)
    for id in ("x", "y"):
        managed.admissions.admit(
            new(id, parent="c"), lambda fabric, id=id: Allocation(id, 0, "test", (), parent="c")
        )
    insert = f"insert into {table} (fabric, scope, parent, {what}, allocation) values "
    query = f"select {what} from {table} where allocation = :of limit 1"
    with managed._engine.connect() as connection:
        held = connection.scalar(sa.text(query), {"of": "c"})
        foreign = connection.scalar(sa.text(query), {"of": "b"})
        row = sa.text(f"{insert} ('f', 'c', 'c', :taken, :by)")
        with pytest.raises(DBReferenceError):
            connection.execute(row, {"taken": foreign, "by": "x"})
        connection.rollback()
        connection.execute(row, {"taken": held, "by": "x"})
        with pytest.raises(DBDuplicateEntry):
            connection.execute(row, {"taken": held, "by": "y"})
        connection.rollback()
        connection.execute(row, {"taken": held, "by": "x"})
        with pytest.raises(DBReferenceError):
            connection.execute(sa.text(f"delete from {table} where allocation = 'c'"))
        connection.rollback()
        with pytest.raises((DBError, sa.exc.DBAPIError)):  # oslo.db passes MariaDB's error on
            connection.execute(sa.text(f"{insert} ('f', '', 'c', :taken, 'x')"), {"taken": held})


def test_a_container_is_not_released_under_who_is_inside(managed):
    container(managed, "c")
    inside(managed, "x", "c")
    waits = NoFit(Refusal.TOO_FEW_HOSTS, "full")
    managed.admissions.admit(new("q", parent="c"), lambda fabric: QueueWait(waits))
    for force in (False, True):
        with pytest.raises(Conflict, match="2 allocations inside; release them first: x, q"):
            managed.allocations.transition(
                managed.allocations.get("c"), State.RELEASING, "asked", force=force
            )
    managed.allocations.cancel(managed.allocations.get("q"), "no more")
    release(managed, "x")
    managed.allocations.transition(managed.allocations.get("c"), State.RELEASING, "asked")
    with pytest.raises(Conflict, match="is releasing"):
        inside(managed, "y", "c")
    record = managed.allocations.get("c")
    managed.allocations.free(managed.allocations.hand_back(record), "gone")
    assert claims(managed) == {"host_claim": set(), "link_claim": set(), "pkey_claim": set()}


def test_who_is_inside_needs_a_container(managed):
    admit(managed, "a")
    with pytest.raises(Conflict, match="no container"):
        managed.admissions.admit(new("x", parent="a"), lambda fabric: across_pods("x", 1))
    with pytest.raises(NotFound):
        managed.admissions.admit(new("x", parent="nobody"), lambda fabric: across_pods("x", 1))
    assert {record.id for record in managed.allocations.page()} == {"a"}


def test_many_enter_while_one_releases_the_container(managed):
    """No allocation is ever inside a container that is being released, whichever came first."""
    container(managed, "c", position=0)
    outcomes = []

    def enter():
        try:
            outcomes.append(inside(managed, "x", "c").id)
        except (Conflict, NotFound):
            outcomes.append("refused")

    def leave():
        try:
            managed.allocations.transition(managed.allocations.get("c"), State.RELEASING, "asked")
            outcomes.append("left")
        except Conflict:
            outcomes.append("stayed")

    at_once(enter, leave)
    assert sorted(outcomes) in (["left", "refused"], ["stayed", "x"])


def test_states_said_by_several_at_once_all_hold(managed):
    """No database reports a deadlock for these concurrent changes."""
    start = threading.Barrier(4)

    def say(first: int) -> None:
        store = SqlStore(managed._engine)
        start.wait()
        for host in range(first, 16, 4):
            store.components.set_host_state("f", host, HostState.DRAINED)

    at_once(*(partial(say, first) for first in range(4)))
    assert managed.fabrics.get("f").generation == 17
    assert managed.fabrics.ledger("f")[0].drained_hosts == set(range(16))


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.components.set_host_state("f", 3, HostState.FAILED),
        lambda store: store.components.set_link_state("f", LeafLink(0, 0, 0), LinkState.FAILED),
        lambda store: store.components.describe_hosts("f", {0: HostChange(cost=3)}),
        lambda store: store.components.set_shared_plane("f", CommonPlane((3,))),
        lambda store: admit(store, "a").hosts,
    ],
    ids=["host", "link", "features", "plane", "allocation"],
)
def test_a_change_that_has_to_give_way_is_made_all_the_same(managed, change):
    """Six transactions fail with a deadlock, as on busy nodes of Galera; the store repeats them."""
    first = iter([True] * 6)

    def give_way(step: str) -> None:
        if step.startswith("before commit") and next(first, False):
            raise DBDeadlock

    assert change(SqlStore(managed._engine, at=give_way)) == 2
    assert managed.fabrics.get("f").generation == 2
