# SPDX-License-Identifier: Apache-2.0

"""Connections to the database, and the errors that are reported for lost ones."""

from __future__ import annotations

import logging

from sqlalchemy import event, text

from laas_service.adapters.db.engine import connect


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
