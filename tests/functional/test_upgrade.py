# SPDX-License-Identifier: Apache-2.0

"""Upgrades from the last states before 1.0.0, with rows in all tables, on each database."""

import itertools
import multiprocessing
import os
import signal
from functools import partial

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from laas_service.adapters.db import allocation_rows, models, schema, soundness
from laas_service.adapters.db.engine import connect, consistent_read
from laas_service.adapters.db.migrations import conversion
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.types import Serial
from laas_service.app.lifecycle import State
from laas_service.cmd.api import application
from laas_service.domain.errors import Unavailable
from laas_service.wiring.composition import Composition
from tests.functional import earlier
from tests.options import options_from
from tests.servers import mariadb, postgresql
from tests.waiting import at_once

EVERY = int(os.environ.get("LAAS_UPGRADE", "7"))
"""Changes of tables between two at which an upgrade is killed, on servers."""

SERVERS = {"mariadb": mariadb, "postgresql": postgresql, "sqlite": None}


@pytest.fixture(scope="module", params=SERVERS)
def server(request, servers):
    module = SERVERS[request.param]
    if module is None:
        return None
    if not module.AVAILABLE:
        pytest.skip(f"needs the Debian package {request.param}")
    return servers(mariadb.MariaDb if module is mariadb else postgresql.PostgreSql)


@pytest.fixture
def database(server, tmp_path):
    """Makes a new database; returns its URL."""
    numbers = itertools.count()
    return lambda: server.database() if server else f"sqlite:///{tmp_path}/{next(numbers)}.sqlite"


@pytest.fixture
def url(database):
    return database()


@pytest.fixture(params=conversion.FROM)
def revision(request):
    return request.param


def check(engine, revision):
    """Assert that all rows are kept and that tables and models agree; release an allocation."""
    before = earlier.read(revision)
    with consistent_read(engine) as connection:
        assert schema.current(connection) == schema.head()
        assert soundness.findings(connection) == []
        names = set(sa.inspect(connection).get_table_names())
        assert compare_metadata(MigrationContext.configure(connection), models.Base.metadata) == []
        oldest = connection.scalars(sa.select(models.WorksWithRow.oldest)).all()
        rows = {
            table.name: [row._asdict() for row in connection.execute(sa.select(table))]
            for table in models.Base.metadata.sorted_tables
        }
        query = allocation_rows.ALLOCATIONS.order_by(models.AllocationRow.sequence)
        records = [row._asdict() for row in connection.execute(query)]
    assert names == {*models.Base.metadata.tables, "alembic_version"}
    assert oldest == [schema.OLDEST]
    for table in before.keys() - {"allocation", "works_with"}:
        serial = {
            column.name for column in models.Base.metadata.tables[table].c if column.type is Serial
        }
        assert ordered(rows[table], serial) == ordered(before[table], serial), table
    assert [row["id"] for row in records] == [row["id"] for row in before["allocation"]]
    for old, new in zip(before["allocation"], records, strict=True):
        kind = new.pop("kind")
        assert (kind == "container", kind == "shared_hosts", kind == "slots") == (
            old.pop("container"),
            old["sharing"] is not None,
            old["demand"] is not None,
        )
        old["sequence"] = new["sequence"]
        new |= {name: new[name] or 0 for name in ("pkey", "forgotten")}
        later = new.keys() - old.keys()  # columns of later migrations
        assert new == old | dict.fromkeys(later)
    store = SqlStore(engine)
    record = store.allocations.transition(store.allocations.get("busy"), State.RELEASING, "asked")
    store.allocations.free(store.allocations.hand_back(record), "gone")
    change = store.allocations.get("moving").change
    assert change is not None
    assert (
        store.placement_changes.turn_back(store.allocations.get("moving"), "back").leaving
        == change.new
    )


def ordered(rows, without):
    return sorted(
        str(
            sorted(
                (key, value)
                for key, value in row.items()
                if key not in without and value is not None
            )
        )
        for row in rows
    )


def test_a_database_of_each_state_before_is_taken_over(url, revision):
    engine = connect(earlier.make(url, revision))
    schema.upgrade(engine)
    schema.upgrade(engine)
    check(engine, revision)
    engine.dispose()


def test_older_databases_are_refused_with_what_to_do(url):
    engine = connect(earlier.make(url, "a050"))
    for older in ("a001", "a046", "a051"):
        with engine.begin() as connection:
            connection.execute(sa.text(f"update alembic_version set version_num = '{older}'"))
        with pytest.raises(
            Unavailable, match=rf"revision {older}.* \(revision a052\) first"
        ) as said:
            schema.upgrade(engine)
        assert "\n" not in str(said.value)
        with pytest.raises(Unavailable, match="run laas-manage db upgrade"):
            SqlStore(engine).check()
    with engine.begin() as connection:
        connection.execute(sa.text("update alembic_version set version_num = 'a050'"))
    schema.upgrade(engine)
    check(engine, "a050")
    engine.dispose()


CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE")


def _upgrade_and_die(url, after):
    """Upgrade in a separate process, which kills itself after ``after`` changes of tables."""
    engine = connect(url)
    changes = iter(range(after))

    @sa.event.listens_for(engine, "after_cursor_execute")
    def dies(connection, cursor, statement, *rest):
        if statement.split(None, 1)[0] in CHANGES and next(changes, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    schema.upgrade(engine)


def test_an_upgrade_that_is_killed_is_finished_by_the_next_one(database, tmp_path):
    """It is killed after every change, each time on another database.

    MariaDB commits each change of the schema, so that the next upgrade finds it half done there.
    Servers of databases take longer: ``tox -e upgrade`` kills after every change on each.
    """
    spawned = multiprocessing.get_context("fork")
    for after in range(0, 200, 1 if "sqlite" in database() else EVERY):
        url = earlier.make(database(), "a050" if after % 2 else "a052")
        process = spawned.Process(target=_upgrade_and_die, args=(url, after))
        process.start()
        process.join(300)
        engine = connect(url)
        if process.exitcode:
            assert process.exitcode == -signal.SIGKILL
            schema.upgrade(engine)
        check(engine, "a050" if after % 2 else "a052")
        engine.dispose()
        if not process.exitcode:
            break
    assert after > 20


def test_tables_whose_making_is_killed_are_made_by_the_next_upgrade(database):
    spawned = multiprocessing.get_context("fork")
    for after in range(0, 200, 2 * EVERY):
        url = database()
        process = spawned.Process(target=_upgrade_and_die, args=(url, after))
        process.start()
        process.join(300)
        engine = connect(url)
        schema.upgrade(engine)
        store = SqlStore(engine)
        store.check()
        assert store.fabrics.all() == []
        with engine.connect() as connection:
            assert (
                compare_metadata(MigrationContext.configure(connection), models.Base.metadata) == []
            )
        engine.dispose()
        if not process.exitcode:
            break
    assert process.exitcode == 0
    assert after > 40


def test_the_api_answers_503_until_the_tables_are_current_and_then_serves(tmp_path):
    """One process runs before and after the upgrade; requests without tables always succeed."""
    url = f"sqlite:///{tmp_path}/laas.sqlite"
    conf = options_from()
    conf.set_override("connection", url, group="database")
    conf.set_override("state_dir", str(tmp_path))
    parts = Composition(conf)
    earlier.make(url, "a052")
    client = application(conf, parts.use_cases(lambda: None)).test_client()
    wish = {"name": "new", "hosts": 2, "fabric": "g"}
    for answer in (
        client.get("/v1/allocations"),
        client.get("/v1/fabrics"),
        client.post("/v1/allocations", json=wish),
        client.delete("/v1/allocations/busy"),
        client.get("/healthcheck"),
    ):
        assert answer.status_code == 503
        assert answer.mimetype == "application/problem+json"
        assert "run laas-manage db upgrade" in answer.text
        assert answer.headers["Retry-After"]
    assert client.get("/").status_code == 200
    assert client.get("/v1/openapi.json").status_code == 200
    assert "laas_store_up 0" in client.get("/metrics").text
    with pytest.raises(Unavailable, match="laas-manage db upgrade"):
        parts.worker.round()
    assert "laas_store_up 0" in client.get("/metrics").text

    parts.database.upgrade()
    assert client.get("/healthcheck").status_code == 200
    listed = client.get("/v1/allocations").json
    assert listed is not None
    assert {one["id"] for one in listed["allocations"]} >= {"box", "part", "moving", "busy"}
    assert client.post("/v1/allocations", json=wish).status_code == 202
    parts.admission_queue.serve_all()
    parts.database.engine.dispose()


def at(url, revision, oldest):
    """The store on tables of another release, which lets releases from ``oldest`` on work."""
    schema.upgrade(connect(url))
    store = SqlStore(connect(url))
    store.check()
    with store._engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))
        connection.execute(sa.delete(models.WorksWithRow))
        if oldest is not None:
            connection.execute(sa.insert(models.WorksWithRow).values(oldest=oldest))
    return store


@pytest.mark.parametrize(
    ("revision", "oldest"), [("b001", "b001"), ("b002", "b001"), ("b001", None), ("head", "b001")]
)
def test_a_process_stops_when_it_is_too_old_for_the_tables(url, revision, oldest):
    """``check`` refuses them before the first change, so that the process takes no further step."""
    store = at(url, schema.head() if revision == "head" else revision, oldest)
    with pytest.raises(Unavailable, match="install the later release"):
        store.check()
    if revision != "head":
        with pytest.raises(Unavailable, match="install the later release"):
            schema.upgrade(store._engine)
    store._engine.dispose()


def test_a_process_of_the_release_before_goes_on_with_the_tables(url):
    store = at(url, "b001", schema.OLDEST)
    store.check()
    schema.upgrade(store._engine)
    store.check()
    assert store.fabrics.all() == []
    with store._engine.connect() as connection:
        assert schema.current(connection) == "b001"
        store._engine.dispose()


def shape(engine):
    """The tables, by name and column: type, whether NULL or a default stands for no value."""
    looked, columns, rules = sa.inspect(engine), {}, {}
    for name in sorted(set(looked.get_table_names()) - {"alembic_version"}):
        columns[name] = {
            column["name"]: (
                str(column["type"]),
                bool(column["nullable"]) or column["default"] is not None,
            )
            for column in looked.get_columns(name)
        }
        rules[name] = [
            looked.get_pk_constraint(name)["constrained_columns"],
            sorted(str(one["column_names"]) for one in looked.get_unique_constraints(name)),
            sorted(str(one["constrained_columns"]) for one in looked.get_foreign_keys(name)),
            sorted(str(one["sqltext"]) for one in looked.get_check_constraints(name)),
        ]
    return columns, rules


def test_later_migrations_only_add_what_the_release_before_need_not_know(url):
    """Otherwise the migration has to raise ``schema.OLDEST`` to its own revision."""
    engine = connect(url)
    schema.upgrade(engine, schema.OLDEST)
    old_columns, old_rules = shape(engine)
    schema.upgrade(engine)
    columns, rules = shape(engine)
    for table, known in old_columns.items():
        assert columns[table].items() >= known.items(), table
        new = {name: may for name, (_, may) in columns[table].items() if name not in known}
        assert all(new.values()), f"{table}: {new} has to have a default"
        assert rules[table] == old_rules[table], table
    engine.dispose()


def test_names_of_revisions_ascend():
    """Releases compare them: alembic knows the order of its own revisions only."""
    script = ScriptDirectory(str(schema._MIGRATIONS))
    names = [each.revision for each in script.walk_revisions()][::-1]
    assert names == sorted(names)
    assert schema.OLDEST in names


def test_every_migration_is_made_of_steps_that_can_be_repeated():
    """Upgrades use ``steps`` alone; only downgrades, which are never repeated, may use ``op``."""
    for path in sorted((schema._MIGRATIONS / "versions").glob("a*.py")):
        upgrade = path.read_text().partition("def upgrade")[2].partition("def downgrade")[0]
        assert "op." not in upgrade.replace("steps.", ""), path.name


def test_two_upgrades_at_once(url):
    """One upgrade runs at a time; the others wait and then find nothing to do."""
    engine = connect(earlier.make(url, "a052"))
    at_once(*[partial(schema.upgrade, engine)] * 3)
    check(engine, "a052")
    engine.dispose()
