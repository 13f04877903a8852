# SPDX-License-Identifier: Apache-2.0

"""A database that goes back under running processes; ``test_databases`` repeats this on servers."""

import logging

import pytest
import sqlalchemy as sa

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import consistent_read
from laas_service.adapters.db.restore import LIFT
from laas_service.adapters.db.soundness import findings
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.records import HostState
from laas_service.domain.errors import DoubleClaim
from tests import rewind
from tests.drafts import on_ledger
from tests.unit.adapters.test_store import HOSTS, SMALL, across_pods, admit, new, rebuilt, release


@pytest.fixture
def past(store):
    """A store with a fabric and allocation a, and a copy of the database at that moment."""
    store.fabrics.add("f", SMALL, HOSTS)
    admit(store, "a", 0)
    store.fabrics.ledger("f")
    return store, rewind.copy(store._engine)


def sound(store: SqlStore) -> None:
    with consistent_read(store._engine) as connection:
        assert findings(connection) == []


def same(store: SqlStore) -> bool:
    """Whether the ledger in memory is that of the tables."""
    mine, tables = store.fabrics.ledger("f")[0], rebuilt(store)
    return mine.allocations == tables.allocations and mine.drained_hosts == tables.drained_hosts


def test_each_generation_has_a_stamp_of_its_own(past):
    store, rows = past
    before = store.fabrics.get("f")
    admit(store, "b", 1)
    first = store.fabrics.get("f")
    rewind.put_back(store._engine, rows)
    other = SqlStore(store._engine)
    admit(other, "c", 1)
    second = other.fabrics.get("f")
    assert second.generation == first.generation == before.generation + 1
    assert len({before.stamp, first.stamp, second.stamp}) == 3
    assert second.stamp == second.routes_stamp == other.fabrics.routed("f").stamp
    other.components.set_host_state("f", 3, HostState.DRAINED)
    third = other.fabrics.get("f")
    assert third.stamp != third.routes_stamp == second.stamp


@pytest.mark.parametrize("ahead", [1, 2, 3], ids=["behind", "level", "ahead"])
def test_a_ledger_of_another_past_is_read_again(past, ahead):
    """Of this process, which saw two more generations; another one has made ``ahead`` since."""
    store, rows = past
    admit(store, "lost-1", 1)
    admit(store, "lost-2", 2)
    assert {*store.fabrics.ledger("f")[0].allocations} == {"a", "lost-1", "lost-2"}
    rewind.put_back(store._engine, rows)
    other = SqlStore(store._engine)
    for position in range(1, 1 + ahead):
        admit(other, f"new-{position}", position)
    assert same(store)
    assert {*store.fabrics.ledger("f")[0].allocations} == {
        "a",
        *(f"new-{s}" for s in range(1, 1 + ahead)),
    }
    sound(store)


def test_the_next_caller_gets_no_double_claim(past):
    """The hosts that the stale ledger counts as free are owned, and the other way round."""
    store, rows = past
    release(store, "a")
    admit(store, "lost", 1)
    rewind.put_back(store._engine, rows)
    other = SqlStore(store._engine)
    other.components.set_host_state("f", 3, HostState.DRAINED)
    other.components.set_host_state("f", 2, HostState.DRAINED)

    def first_free(ledger):
        free = ledger.free_hosts[0]
        return across_pods("next", next(position for position in range(4) if free >> position & 1))

    assert store.admissions.admit(new("next"), on_ledger(first_free)).state is State.ALLOCATING
    assert same(store)
    sound(store)


def test_numbers_go_on_above_what_this_process_has_seen(past, caplog):
    store, rows = past
    admit(store, "lost", 1)
    seen = store.fabrics.get("f").generation
    versions = {record.id: record.version for record in store.allocations.page()}
    rewind.put_back(store._engine, rows)
    with caplog.at_level(logging.ERROR):
        store.fabrics.ledger("f")
    assert "the database went back: this process has read generation 3" in caplog.text
    assert "release again what was released since" in caplog.text
    after = store.fabrics.get("f")
    assert after.generation == after.routes_generation == seen + LIFT
    record = store.allocations.get("a")
    assert record.generation == after.generation
    assert record.version > versions["a"]
    assert "the database went back" in record.history[-1].reason
    caplog.clear()
    admit(store, "b", 1)
    assert store.fabrics.get("f").generation == seen + LIFT + 1
    assert same(store)
    store.fabrics.ledger("f")
    assert not caplog.text
    sound(store)


def test_what_was_seen_in_the_switches_is_judged_by_its_stamp(past):
    store, rows = past
    admit(store, "lost", 1)
    lost = store.fabrics.get("f")
    assert store.fabrics.in_past("f", lost.routes_generation, lost.routes_stamp)
    rewind.put_back(store._engine, rows)
    store = SqlStore(store._engine)
    assert not store.fabrics.in_past("f", lost.routes_generation, lost.routes_stamp)
    admit(store, "new", 1)
    now = store.fabrics.get("f")
    assert now.routes_generation == lost.routes_generation
    assert not store.fabrics.in_past("f", lost.routes_generation, lost.routes_stamp)
    assert store.fabrics.in_past("f", now.routes_generation, now.routes_stamp)
    admit(store, "newer", 2)
    assert not store.fabrics.in_past("f", lost.routes_generation, lost.routes_stamp), "by its delta"
    assert store.fabrics.in_past("f", now.routes_generation, now.routes_stamp)
    assert store.fabrics.in_past("f", now.routes_generation, ""), (
        "an earlier release knows no stamps"
    )
    assert not store.fabrics.in_past("f", 9, "")
    assert not store.fabrics.go_forward("f", now.routes_generation, now.routes_stamp, "in a test")
    assert store.fabrics.go_forward("f", 9, "", "in a test")
    assert not store.fabrics.go_forward("f", 9, "", "in a test"), "it is below now"
    assert store.fabrics.get("f").generation == 9 + LIFT
    sound(store)


def test_who_reads_late_does_not_lift_the_numbers(past):
    """A transaction that began before a commit reads an older generation: nothing went back."""
    store, _ = past
    before = store.fabrics.get("f").generation
    with store._transactions.reading() as session:
        session.scalar(sa.select(models.FabricRow.generation))
        admit(store, "b", 1)
        store.fabrics.ledger("f")
        store._ledgers._newest["f"] = (before + 1, store.fabrics.get("f").stamp)
        store._ledgers.doubtful["f"] = store._ledgers._newest["f"]
    store.fabrics.ledger("f")
    assert store.fabrics.get("f").generation == before + 1
    assert not store._ledgers.doubtful


def test_a_release_without_stamps_beside_this_one_is_understood(past):
    """It moves the generation on and leaves the stamps of fabric and delta alone."""
    store, _ = past
    number = store.fabrics.get("f").generation
    with store._engine.begin() as connection:
        connection.execute(
            sa.update(models.FabricRow).values(generation=number + 1, routes_generation=number + 1)
        )
        row = {"fabric": "f", "generation": number + 1, "change": {"host": 3, "state": "drained"}}
        connection.execute(sa.insert(models.DeltaRow).values(row))
    assert store.fabrics.ledger("f")[0].drained_hosts == {3}
    fabric = store.fabrics.get("f")
    assert (fabric.stamp, fabric.routes_stamp) == ("", "")
    assert store.fabrics.in_past("f", number + 1, "0123456789abcdef")
    admit(store, "b", 1)
    assert {*store.fabrics.ledger("f")[0].allocations} == {"a", "b"}
    assert store.fabrics.get("f").generation == number + 2


def test_a_double_claim_that_the_tables_confirm_is_told(past):
    store, _ = past

    def taken(ledger):
        return across_pods("b", 1)

    with store._engine.begin() as connection:
        row = {"fabric": "f", "host": 1, "allocation": "a"}
        connection.execute(sa.insert(models.HostClaimRow).values(row))
    with pytest.raises(DoubleClaim):
        store.admissions.admit(new("b"), taken)
