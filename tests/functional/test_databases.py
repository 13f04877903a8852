# SPDX-License-Identifier: Apache-2.0

"""Tests of the store and its neighbours, run again on real MariaDB and PostgreSQL servers."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.leases import SqlLeases
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.app.records import LinkState
from laas_service.domain.topology import SpineLink
from tests.functional import test_admission, test_races
from tests.servers import mariadb, postgresql
from tests.unit.adapters import (
    test_agent_switches,
    test_backup,
    test_component_words,
    test_forward,
    test_leases,
    test_outbox,
    test_retention,
    test_store,
    test_ufm_memory,
)
from tests.unit.adapters.fabric_import import test_review

SERVERS = {"mariadb": mariadb.MariaDb, "postgresql": postgresql.PostgreSql}
AVAILABLE = {"mariadb": mariadb.AVAILABLE, "postgresql": postgresql.AVAILABLE}
ONLY_SQLITE = {
    "test_a_database_without_tables_is_not_ready",
    "test_a_database_that_cannot_be_written_is_unavailable",
    "test_database_locked_for_too_long_is_unavailable",
    "test_full_disk_leaves_nothing_behind",
    # Tests of a backup's file, which need no database server:
    "test_a_file_that_cannot_be_used_is_named",
    "test_a_process_that_ran_through_a_restore_reads_the_fabric_anew",
    "test_a_torn_file_is_refused_wherever_it_ends",
    "test_an_idempotency_key_outlives_a_restore",
    "test_an_old_backup_stays_until_the_new_one_is_whole",
    "test_numbers_that_cannot_be_moved_on_are_refused",
    "test_what_is_no_backup_of_ours_is_refused",
}

SHARED = {
    name: value
    for module in (
        test_store,
        test_outbox,
        test_leases,
        test_admission,
        test_races,
        test_backup,
        test_component_words,
        test_retention,
        test_forward,
        test_ufm_memory,
    )
    for name, value in vars(module).items()
}
OF_AGENTS = (
    "test_what_was_reported_last_is_kept",
    "test_the_database_itself_refuses_a_second_active_one",
    "test_of_many_that_report_at_once_one_is_active",
    "test_random_histories",
)
"""Tests of agents that depend on the database."""


forgetful = test_retention.forgetful
managed, telling, outbox = test_store.managed, test_outbox.telling, test_outbox.outbox
told, empty, past = test_backup.told, test_backup.empty, test_forward.past
rivals = test_races.rivals
together = test_races.together
clock, leases, busy = test_leases.clock, test_leases.leases, test_leases.busy
agents, site = test_agent_switches.agents, test_component_words.site
globals().update(
    {
        name: test
        for name, test in SHARED.items()
        if name.startswith("test_") and callable(test) and name not in ONLY_SQLITE
    }
)
globals().update({name: vars(test_agent_switches)[name] for name in OF_AGENTS})
test_everything_that_is_recorded_by_number_is_renumbered = (
    test_review.test_everything_that_is_recorded_by_number_is_renumbered
)


@pytest.fixture(scope="module", params=SERVERS)
def server(request, servers):
    if not AVAILABLE[request.param]:
        pytest.skip(f"needs the Debian package {request.param}")
    return servers(SERVERS[request.param])


@pytest.fixture(scope="module")
def upgraded(server):
    """The name of a database with empty tables at the newest revision."""
    engine = connect(server.database("upgraded"))
    schema.upgrade(engine)
    engine.dispose()
    return "upgraded"


@pytest.fixture
def database(server, upgraded):
    """The URL of a database with empty tables at the newest revision."""
    return server.database(like=upgraded)


def test_stores_of_these_tests_are_on_the_server(store, server):
    assert store._engine.name == {mariadb.MariaDb: "mysql"}.get(type(server), "postgresql")


@pytest.fixture
def blank(server):
    """The URL of a database without tables."""
    return server.database()


@pytest.mark.road
def test_a_fault_is_told_in_the_state_of_who_is_released_meanwhile(managed, database):
    test_store.active(managed, "a")
    other = SqlStore(connect(database))
    first = iter([True])

    @event.listens_for(managed._engine, "before_cursor_execute")
    def released(connection, cursor, statement, *rest):
        if statement.startswith("UPDATE allocation") and next(first, False):
            other.allocations.transition(other.allocations.get("a"), State.RELEASING, "asked")

    managed.components.set_link_state("f", SpineLink(1, 0, 0), LinkState.FAILED)
    record = other.allocations.get("a")
    told = [(event.state, event.reason) for event in record.history[-2:]]
    assert record.state is State.RELEASING
    assert told == [
        (State.RELEASING, "asked"),
        (State.RELEASING, "failed: link spine-1-0-0"),
    ]
    other._engine.dispose()


@pytest.mark.road
def test_who_stands_still_in_a_transaction_does_not_keep_what_it_has_locked(
    managed, database, monkeypatch
):
    monkeypatch.setattr("laas_service.adapters.db.engine.IDLE_SECONDS", 1)
    still = connect(database)
    with still.connect() as connection:
        connection.exec_driver_sql("UPDATE fabric SET generation = generation")
        managed.components.set_link_state(
            "f", SpineLink(1, 0, 0), LinkState.FAILED
        )  # must not block
        connection.invalidate()
    still.dispose()
    assert managed.fabrics.ledger("f")[0].failed_links == {SpineLink(1, 0, 0)}


@pytest.mark.road
def test_both_threads_of_a_worker_say_at_once_that_it_is_there(database):
    """Neither thread finds a row of the worker, so both insert one."""
    engine = connect(database)
    both, waited = threading.Barrier(2), threading.local()

    @event.listens_for(engine, "before_cursor_execute")
    def together(connection, cursor, statement, *rest):
        if statement.startswith("INSERT INTO worker") and not hasattr(waited, "once"):
            waited.once = True
            both.wait(timeout=600)

    with ThreadPoolExecutor(2) as threads:
        said = [threads.submit(SqlLeases(engine).enrol, "a", 600) for _ in range(2)]
        assert [one.result() for one in said] == [1, 1]
    engine.dispose()
