# SPDX-License-Identifier: Apache-2.0

"""Settings of a database server that may lose acknowledged requests are told at the start."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from laas_service.adapters.db.engine import connect, weak_settings
from tests.servers import mariadb, postgresql

NEEDS = "needs the Debian packages mariadb-server and postgresql"


def weak(url: str) -> list[str]:
    engine = connect(url)
    found = [
        text.split(" = ")[0].removeprefix("the database has ") for text in weak_settings(engine)
    ]
    engine.dispose()
    return found


@pytest.mark.skipif(not postgresql.AVAILABLE, reason=NEEDS)
def test_postgresql(servers):
    server = servers(postgresql.PostgreSql)  # it never waits for the disk
    url = server.database()
    assert weak(url) == ["fsync"]
    name = sa.make_url(url).database
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for setting in (
            "synchronous_commit = off",
            "default_transaction_isolation = 'read uncommitted'",
        ):
            connection.execute(sa.text(f'ALTER DATABASE "{name}" SET {setting}'))
    engine.dispose()
    assert weak(url) == ["fsync", "synchronous_commit", "default_transaction_isolation"]


@pytest.mark.skipif(not mariadb.AVAILABLE, reason=NEEDS)
def test_mariadb():
    with mariadb.MariaDb() as server:  # it never waits for the disk
        url = server.database()
        assert weak(url) == ["innodb_flush_log_at_trx_commit", "innodb_doublewrite"]
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text("SET GLOBAL innodb_flush_log_at_trx_commit = 1"))
            connection.execute(sa.text("SET GLOBAL tx_isolation = 'READ-UNCOMMITTED'"))
        engine.dispose()
        assert weak(url) == ["innodb_doublewrite", "tx_isolation"]


def test_sqlite_needs_nothing(tmp_path):
    assert weak(f"sqlite:///{tmp_path}/laas.sqlite") == []
