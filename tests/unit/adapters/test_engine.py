# SPDX-License-Identifier: Apache-2.0

"""Connections to the database, and the errors that are reported for lost ones."""

from __future__ import annotations

import logging
from contextlib import nullcontext

import pytest
from sqlalchemy import event, text

from laas_service.adapters.db.engine import _server_connected, connect
from laas_service.domain.errors import InvalidInput


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
def test_a_driver_that_is_not_installed_is_named_in_one_sentence(scheme):
    with pytest.raises(InvalidInput) as refused:
        connect(f"{scheme}://laas:SECRET@db.example.org/laas")
    said = str(refused.value)
    assert said.startswith(f"[database] connection: {scheme!r} is not valid; its driver is not")
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
