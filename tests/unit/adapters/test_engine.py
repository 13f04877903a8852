# SPDX-License-Identifier: Apache-2.0

"""Connections to the database, and the errors that are reported for lost ones."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing, nullcontext

import pytest
from sqlalchemy import event, text

from laas_service.adapters.db import engine as engine_module
from laas_service.adapters.db.engine import _server_connected, connect, write_transaction
from laas_service.domain.errors import InvalidInput, Unavailable


def test_a_connection_lost_on_its_way_back_is_one_line_of_the_log(tmp_path, caplog):
    engine = connect(f"sqlite:///{tmp_path}/laas.sqlite")

    def lost(*arguments):
        raise ConnectionResetError("server gone\n  in the middle of it")

    event.listen(engine, "reset", lost)
    with caplog.at_level(logging.DEBUG), engine.connect() as connection:
        connection.execute(text("select 1"))
    engine.dispose()
    (record,) = [r for r in caplog.records if "server gone" in r.getMessage()]
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith("server gone in the middle of it")
    assert not record.exc_info


@pytest.mark.parametrize("scheme", ["mysql+mysqldb", "postgresql+pg8000", "nothing"])
def test_a_driver_that_is_not_installed_is_refused_in_one_sentence(scheme):
    with pytest.raises(InvalidInput) as refused:
        connect(f"{scheme}://laas:SECRET@db.example.org/laas")
    said = str(refused.value)
    assert said.startswith("[database] connection: its value (not shown) is not valid; its driver")
    assert scheme not in said.partition("pip install")[0]
    assert "\n" not in said
    assert "SECRET" not in said


class MariaDb:
    """A connection, and its own cursor; ``said`` has the statements."""

    def __init__(self, galera: str) -> None:
        self.said: list[str] = []
        self._answers = {
            "SELECT version()": ("10.11.6-MariaDB",),
            "SHOW VARIABLES": ("wsrep_on", galera),
        }

    def cursor(self):
        return nullcontext(self)

    def execute(self, statement):
        self.said.append(statement)

    def fetchone(self):
        return self._answers[" ".join(self.said[-1].split()[:2])]

    def commit(self):
        self.said.append("COMMIT")


@pytest.mark.parametrize("galera", ["ON", "OFF"])
def test_on_galera_a_session_sees_what_other_nodes_committed(galera):
    server = MariaDb(galera)
    _server_connected(server, None)
    assert ("SET SESSION wsrep_sync_wait = 7" in server.said) == (galera == "ON")
    assert server.said[-1] == "COMMIT"


@pytest.fixture
def sqlite(tmp_path):
    """An engine on a database with an empty table, and another process's connection to it."""
    path = tmp_path / "laas.sqlite"
    engine = connect(f"sqlite:///{path}")
    with write_transaction(engine) as session:
        session.execute(text("create table one (number integer)"))
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        yield engine, other
    engine.dispose()


def write(engine, number):
    with write_transaction(engine) as session:
        session.execute(text("insert into one values (:number)"), {"number": number})


def test_a_writer_goes_on_at_its_next_look_after_another_process(sqlite, monkeypatch):
    engine, other = sqlite
    looks = []

    def other_ends_at_the_third(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            other.execute("commit")

    monkeypatch.setattr("laas_service.adapters.db.engine.time.sleep", other_ends_at_the_third)
    other.execute("begin immediate")
    write(engine, 1)
    assert looks == [engine_module.BUSY_POLL] * 3
    assert other.execute("select number from one").fetchall() == [(1,)]


def test_a_writer_gives_up_on_a_process_that_does_not_end_its_transaction(sqlite, monkeypatch):
    engine, other = sqlite
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 20)
    other.execute("begin immediate")
    with pytest.raises(Unavailable, match="database is locked"):
        write(engine, 1)
    other.execute("rollback")
    write(engine, 2)
    assert other.execute("select number from one").fetchall() == [(2,)]


def test_a_thread_waits_for_another_thread_without_looks(sqlite, monkeypatch):
    engine, other = sqlite
    looks: list[float] = []
    monkeypatch.setattr("laas_service.adapters.db.engine.time.sleep", looks.append)
    threads = [threading.Thread(target=write, args=(engine, number)) for number in range(4)]
    with write_transaction(engine) as session:
        for thread in threads:
            thread.start()
        session.execute(text("insert into one values (9)"))
    for thread in threads:
        thread.join()
    assert sorted(other.execute("select number from one").fetchall()) == [
        (n,) for n in (0, 1, 2, 3, 9)
    ]
    assert not looks


def test_a_thread_gives_up_on_one_that_does_not_end_its_transaction(sqlite, monkeypatch):
    engine, _ = sqlite
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 20)
    refusals = []

    def refused():
        with pytest.raises(Unavailable) as error:
            write(engine, 1)
        refusals.append(str(error.value))

    with write_transaction(engine):
        thread = threading.Thread(target=refused)
        thread.start()
        thread.join()
    (refusal,) = refusals
    assert "another thread of this process has not ended for 0.02 s; restart" in refusal


def test_an_error_at_the_beginning_is_reported_at_once(tmp_path, sqlite, monkeypatch):
    monkeypatch.setattr(
        "laas_service.adapters.db.engine.time.sleep", lambda seconds: pytest.fail("waits")
    )
    engine = connect(f"sqlite:///file:{tmp_path}/laas.sqlite?mode=ro&uri=true")
    with pytest.raises(Unavailable, match="readonly"):
        write(engine, 1)
    engine.dispose()
