# SPDX-License-Identifier: Apache-2.0

"""Sessions of real database servers: failover behind an address, poolers, characters, keys."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect, narrow_characters, write_transaction
from laas_service.adapters.db.store import SqlStore
from laas_service.domain.errors import InvalidInput, Unavailable
from tests.servers import mariadb, postgresql
from tests.servers.daemon import Daemon
from tests.storm.gate import Gates
from tests.storm.site import Site
from tests.storm.wire import ask
from tests.waiting import eventually

POOLER = Path("/usr/sbin/pgbouncer")
NAME = "a 😀"

needs_postgresql = pytest.mark.skipif(
    not postgresql.AVAILABLE, reason="needs the Debian package postgresql"
)
needs_mariadb = pytest.mark.skipif(
    not mariadb.AVAILABLE, reason="needs the Debian package mariadb-server"
)
needs_pooler = pytest.mark.skipif(
    not (postgresql.AVAILABLE and POOLER.exists()), reason="needs the Debian package pgbouncer"
)

# -- failover behind an address that moves ---------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgresql", marks=needs_postgresql),
        pytest.param("mariadb", marks=needs_mariadb),
    ],
)
def test_requests_succeed_after_a_standby_was_promoted_and_old_sessions_stay(tmp_path, kind):
    """The first request of each process to the new primary may find the old one: 503 once."""
    with Site(kind, tmp_path, apis=2, workers=1) as site:
        wish = {"name": "a", "hosts": 1, "fabric": "f"}
        for port in site.ports * 2:
            assert ask(port, "POST", "/v1/allocations", wish).status == 202
        site.promote()
        after = [ask(port, "POST", "/v1/allocations", wish).status for port in site.ports * 8]
        recorded = len(site.tables().allocations)
        assert after.count(503) <= len(site.ports), after
        assert set(after) <= {202, 503}
        assert set(after[4:]) == {202}
        assert recorded == 4 + after.count(202)


@needs_postgresql
def test_a_session_that_cannot_write_any_more_is_not_used_again(tmp_path):
    """Also one that only reads: the old primary knows nothing new."""
    home = tmp_path / "s"
    home.mkdir()
    gates = Gates()
    with postgresql.PostgreSql() as old:
        gate = gates.add(home / old.address.name, old.address)
        url = old.database().replace(str(old.directory), str(home))
        engine = connect(url)
        with write_transaction(engine) as session:
            session.execute(sa.text("CREATE TABLE t (x integer PRIMARY KEY)"))
        new = old.standby()
        try:
            old.retire()
            new.promote(old)
            gate.to = new.address
            other = connect(url.replace(str(home), str(new.directory)))
            with write_transaction(other) as session:
                session.execute(sa.text("INSERT INTO t VALUES (1)"))
            eventually(partial(_sees, engine, [1]), "the new primary is read")
            with write_transaction(engine) as session:
                session.execute(sa.text("INSERT INTO t VALUES (2)"))
            assert _sees(other, [1, 2])
            engine.dispose()
            other.dispose()
        finally:
            new.close()
            gates.close()


def _sees(engine: sa.Engine, rows: list[int]) -> bool:
    with engine.connect() as connection:
        return list(connection.scalars(sa.text("SELECT x FROM t ORDER BY x"))) == rows


@needs_postgresql
def test_a_failed_write_drops_all_connections(tmp_path):
    with postgresql.PostgreSql() as server:
        engine = connect(server.database())
        first, second = engine.connect(), engine.connect()
        numbers = {one.scalar(sa.text("SELECT pg_backend_pid()")) for one in (first, second)}
        second.close()
        server._run("ALTER SYSTEM SET default_transaction_read_only = on")
        server._run("SELECT pg_reload_conf()")
        first.rollback()
        eventually(partial(_refused, first), "a write is refused")
        server._run("ALTER SYSTEM RESET default_transaction_read_only")
        server._run("SELECT pg_reload_conf()")
        with engine.connect() as third:
            assert third.scalar(sa.text("SELECT pg_backend_pid()")) not in numbers
        engine.dispose()


def _refused(connection: sa.Connection) -> bool:
    try:
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS t (x integer PRIMARY KEY)"))
        connection.rollback()
    except Exception:
        assert connection.invalidated
        return True
    return False


# -- poolers ----------------------------------------------------------------------------------


class _Pooler(Daemon):
    """pgbouncer in front of a server, on a socket in its directory."""

    def __init__(self, server: postgresql.PostgreSql, mode: str, size: int) -> None:
        super().__init__("pgbouncer", user="postgres")
        self._server, self._mode, self._size = server, mode, size

    def prepare(self) -> None:
        (self.directory / "users").write_text('"laas" ""\n')
        (self.directory / "ini").write_text(
            f"[databases]\n* = host={self._server.directory}\n[pgbouncer]\n"
            f"unix_socket_dir = {self.directory}\nlisten_port = 5432\nauth_type = trust\n"
            f"auth_file = {self.directory}/users\npool_mode = {self._mode}\n"
            f"default_pool_size = {self._size}\n"
        )

    def command(self) -> list[str]:
        return [str(POOLER), str(self.directory / "ini")]

    def ready(self) -> bool:
        return (self.directory / ".s.PGSQL.5432").exists()


@contextmanager
def _pooled(servers, mode: str, size: int = 20) -> Iterator[str]:
    """The URL of an upgraded database behind pgbouncer."""
    server = servers(postgresql.PostgreSql)
    url = server.database()
    engine = connect(url)
    schema.upgrade(engine)
    engine.dispose()
    with _Pooler(server, mode, size) as pooler:
        yield url.replace(str(server.directory), str(pooler.directory))


@needs_pooler
@pytest.mark.parametrize(
    ("mode", "size"), [("transaction", 1), ("transaction", 20), ("statement", 20)]
)
def test_a_pooler_that_shares_sessions_is_refused_in_one_line(servers, tmp_path, mode, size):
    with _pooled(servers, mode, size) as url:
        for command in (["laas-api"], ["laas-worker"], ["laas-manage", "db", "version"]):
            done = _run(tmp_path, url, *command)
            assert done.returncode == 1
            assert done.stdout == ""
            (line,) = done.stderr.splitlines()
            assert "[database] connection" in line
            assert "pool_mode = session" in line


@needs_pooler
def test_a_pooler_that_shares_no_sessions_is_fine(servers, tmp_path):
    with _pooled(servers, "session") as url:
        done = _run(tmp_path, url, "laas-manage", "db", "version")
        assert (done.returncode, done.stderr) == (0, "")
        engine = connect(url)
        store = SqlStore(engine)
        store.check()
        store.check_writes()
        engine.dispose()


def _run(tmp_path: Path, url: str, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "laas.conf"
    file.write_text(
        f"[DEFAULT]\nstate_dir = {tmp_path}\n[database]\nmax_retries = 1\nconnection = {url}\n"
    )
    command = [name, "--config-file", str(file), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


# -- characters and keys ------------------------------------------------------------------------


@needs_mariadb
@pytest.mark.parametrize("charset", ["", "&charset=utf8", "&charset=utf8mb4"])
def test_every_name_fits_whatever_the_url_says(servers, charset):
    server = servers(mariadb.MariaDb)
    url = server.database().replace("&charset=utf8mb4", charset)
    engine = connect(url)
    assert narrow_characters(engine) == []
    with write_transaction(engine) as session:
        session.execute(sa.text("CREATE TABLE t (x VARCHAR(20) PRIMARY KEY)"))
        session.execute(sa.text("INSERT INTO t VALUES (:x)"), {"x": NAME})
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT x FROM t")) == NAME
    engine.dispose()


@needs_mariadb
def test_a_text_that_mariadb_cannot_hold_is_refused_by_its_name(servers):
    server = servers(mariadb.MariaDb)
    engine = connect(server.database())
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER DATABASE CHARACTER SET latin1"))
        connection.execute(
            sa.text("CREATE TABLE t (id INTEGER PRIMARY KEY, reason TEXT CHARACTER SET latin1)")
        )
    (said,) = narrow_characters(engine)
    assert "the database has character set latin1; t.reason has character set latin1" in said
    _is_refused(engine)


@needs_postgresql
def test_a_text_that_postgresql_cannot_hold_is_refused_by_its_name(servers):
    server = servers(postgresql.PostgreSql)
    server._run(
        "CREATE DATABASE narrow TEMPLATE template0 ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    url = server.database()
    engine = connect(f"{url.partition('@/')[0]}@/narrow?host={server.directory}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (id INTEGER PRIMARY KEY, reason TEXT)"))
    assert "the database has encoding LATIN1" in narrow_characters(engine)[0]
    _is_refused(engine)


def _is_refused(engine: sa.Engine) -> None:
    values = {"id": 1, "reason": NAME}
    with (
        pytest.raises(InvalidInput, match="reason: 'a 😀' is not valid"),
        write_transaction(engine) as session,
    ):
        session.execute(sa.text("INSERT INTO t VALUES (:id, :reason)"), values)
    engine.dispose()


@needs_mariadb
def test_the_tables_are_made_where_each_must_have_a_primary_key():
    with mariadb.MariaDb("--innodb-force-primary-key=1") as server:
        engine = connect(server.database())
        with pytest.raises(Unavailable, match="primary key"), write_transaction(engine) as session:
            session.execute(sa.text("CREATE TABLE t (x INTEGER)"))
        schema.upgrade(engine)
        SqlStore(engine).check()
        engine.dispose()
