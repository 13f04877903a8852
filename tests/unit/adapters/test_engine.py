# SPDX-License-Identifier: Apache-2.0

"""Connections to the database, and the errors that are reported for lost ones."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import event, text

from laas_service.adapters.db.engine import connect
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
