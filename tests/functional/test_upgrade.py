# SPDX-License-Identifier: Apache-2.0

"""Upgrades from the first released schema, with rows in all tables, on each database."""

import json
import multiprocessing
import os
import signal
import threading
import zlib
from datetime import datetime

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from oslo_config import cfg

from laas_service.adapters.db import models, schema, soundness
from laas_service.adapters.db.engine import connect, consistent_read
from laas_service.adapters.db.store import SqlStore
from laas_service.app.lifecycle import State
from laas_service.cmd.api import application
from laas_service.conf import register_opts
from laas_service.domain.errors import Unavailable
from laas_service.domain.topology import Topology, Xgft
from laas_service.wiring import Parts
from tests.servers import mariadb, postgresql

EVERY = int(os.environ.get("LAAS_UPGRADE", "8"))
"""Number of schema or row changes after which an upgrade is killed on MariaDB."""

SERVERS = {"mariadb": mariadb, "postgresql": postgresql, "sqlite": None}
NOW = datetime(2026, 1, 2, 3, 4, 5)
TOPOLOGY = {
    "version": 1,
    "m": [4, 2, 2],
    "w": [1, 4, 4],
    "cables": [1, 1],
    "rails": 1,
    "host_ports": [],
    "absent_hosts": [],
    "absent_links": [],
}
INVENTORY = {
    "version": 1,
    "host_names": [f"node-{host}" for host in range(16)],
    "switches": [],
    "cables": [],
    "endpoints": [],
    "leaf_guids": [],
    "l2_guids": [],
    "spine_guids": [],
    "lids": [],
}


def placement(id, slot):
    """Host ``slot`` of the first leaf of each pod, in the format of the first release."""
    mask = hex(1 << slot)
    return {
        "version": 1,
        "id": id,
        "requested": 2,
        "policy": "jigsaw",
        "groups": [[0, mask, mask], [2, mask, mask]],
        "columns": [[0, slot, "0x1"], [1, slot, "0x1"]],
        "shape": None,
    }


HOSTS = {"a": (0, 8), "b": (1, 9)}
LINKS = {"a": (0, 8, 16, 32), "b": (1, 9, 20, 36)}


def allocation(id, state, placed, pkey, generation):
    return {
        "id": id,
        "fabric": "f",
        "name": id,
        "project_id": "blue",
        "policy": "jigsaw",
        "hosts": 2,
        "state": state,
        "version": 3,
        "pkey": pkey,
        "placed": placed and json.dumps(placed),
        "generation": generation,
        "handed_back": state == "released",
        "force": False,
        "error": None,
        "failures": 0,
        "due_at": None,
        "created_at": NOW,
        "updated_at": NOW,
    }


def event(id, state):
    return {"allocation": id, "at": NOW, "state": state, "reason": "then"}


def packed(document):
    return zlib.compress(json.dumps(document).encode())


ROWS = {
    "fabric": [
        {
            "id": "f",
            "generation": 4,
            "routes_generation": 3,
            "topology": packed(TOPOLOGY),
            "inventory": packed(INVENTORY),
            "created_at": NOW,
        }
    ],
    "allocation": [
        allocation("gone", "released", None, 1, 1),
        allocation("a", "active", placement("a", 0), 1, 2),
        allocation("b", "allocating", placement("b", 1), 2, 3),
    ],
    "event": [
        event("gone", "released"),
        event("a", "allocating"),
        event("a", "active"),
        event("b", "allocating"),
    ],
    "host_claim": [
        {"fabric": "f", "host": host, "allocation": id} for id in HOSTS for host in HOSTS[id]
    ],
    "link_claim": [
        {"fabric": "f", "link": link, "allocation": id} for id in LINKS for link in LINKS[id]
    ],
    "pkey_claim": [
        {"fabric": "f", "pkey": pkey, "allocation": id} for id, pkey in (("a", 1), ("b", 2))
    ],
    "host_state": [{"fabric": "f", "host": 5, "state": "drained"}],
    "link_state": [{"fabric": "f", "link": 3, "state": "failed"}],
    "delta": [
        {"fabric": "f", "generation": 2, "change": json.dumps({"claim": placement("a", 0)})},
        {"fabric": "f", "generation": 3, "change": json.dumps({"claim": placement("b", 1)})},
        {"fabric": "f", "generation": 4, "change": json.dumps({"host": 5, "state": "drained"})},
    ],
    "idempotency": [
        {"project_id": "blue", "key": "k", "request": json.dumps({"hosts": 2}), "allocation": "a"}
    ],
}
"""Rows of all tables of the first release, with the columns of that release alone."""


@pytest.fixture(scope="module", params=SERVERS)
def server(request):
    module = SERVERS[request.param]
    if module is None:
        yield None
        return
    if not module.AVAILABLE:
        pytest.skip(f"needs the Debian package {request.param}")
    with (mariadb.MariaDb if module is mariadb else postgresql.PostgreSql)() as running:
        yield running


@pytest.fixture
def url(server, tmp_path):
    return server.database() if server else f"sqlite:///{tmp_path}/laas.sqlite"


@pytest.fixture
def first(url):
    """The URL of a database at the first released revision, with rows."""
    return written(url)


def written(url):
    engine = connect(url)
    schema.upgrade(engine, "a001")
    with engine.begin() as connection:
        for table, rows in ROWS.items():
            assert rows
            names = ", ".join(connection.dialect.identifier_preparer.quote(n) for n in rows[0])
            values = ", ".join(f":{name}" for name in rows[0])
            text = sa.text(f"INSERT INTO {table} ({names}) VALUES ({values})")
            connection.execute(text, rows)
    engine.dispose()
    return url


def check(engine):
    """Assert that all rows are kept and that tables and models agree; release an allocation."""
    with consistent_read(engine) as connection:
        assert schema.current(connection) == schema.head()
        assert soundness.findings(connection) == []
        names = set(sa.inspect(connection).get_table_names())
    assert names == {*models.Base.metadata.tables, "alembic_version"}
    store = SqlStore(engine)
    states = [(one.id, one.state, one.version) for one in store.allocations.page()]
    assert states == [
        ("gone", State.RELEASED, 3),
        ("a", State.ACTIVE, 3),
        ("b", State.ALLOCATING, 3),
    ]
    fabric, generation = store.fabrics.ledger("f")
    assert generation == 4
    assert fabric.topology == Topology(Xgft((4, 2, 2), (1, 4, 4)))
    assert {*fabric.allocations} == {"a", "b"}
    assert fabric.drained_hosts == {5}
    with engine.connect() as connection:
        for model, what, wanted in (
            (models.HostClaim, "host", HOSTS),
            (models.LinkClaim, "link", LINKS),
        ):
            query = sa.select(model.allocation, getattr(model, what), model.scope, model.parent)
            found = {tuple(row) for row in connection.execute(query)}
            assert found == {(id, n, "", None) for id in wanted for n in wanted[id]}
    assert [e.reason for e in store.allocations.get("a").history] == ["then", "then"]
    released = store.allocations.transition(store.allocations.get("a"), State.RELEASING, "asked")
    store.allocations.free(store.allocations.hand_back(released), "gone")


def test_rows_of_the_first_release_come_through_every_migration(first):
    engine = connect(first)
    schema.upgrade(engine)
    check(engine)
    schema.upgrade(engine)
    engine.dispose()


def test_one_migration_after_the_other(first):
    """As a site does that installs every release."""
    engine = connect(first)
    for revision in sorted(schema.revisions()):
        schema.upgrade(engine, revision)
    check(engine)
    engine.dispose()


def _upgrade_and_die(url, after):
    """Upgrade in a separate process, which kills itself after ``after`` changes of tables."""
    engine = connect(url)
    changes = iter(range(after))

    @sa.event.listens_for(engine, "after_cursor_execute")
    def dies(connection, cursor, statement, *rest):
        verb = statement.split(None, 1)[0]
        if verb in {"CREATE", "ALTER", "DROP", "INSERT", "UPDATE"} and next(changes, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    schema.upgrade(engine)


def test_an_upgrade_that_is_killed_is_finished_by_the_next_one(first):
    """The upgrade is killed again and again until an attempt completes.

    MariaDB commits each change of the schema: an attempt starts where the last one was killed
    (``tox -e upgrade`` kills it after every change). The other databases roll back, so each
    attempt there makes more changes than the last one.
    """
    spawned = multiprocessing.get_context("fork")
    kept = "mysql" in first
    killed = 0
    for after in [EVERY] * 100 if kept else range(0, 1000, 11):
        process = spawned.Process(target=_upgrade_and_die, args=(first, after))
        process.start()
        process.join(300)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        killed += 1
    assert killed > 2
    engine = connect(first)
    schema.upgrade(engine)
    check(engine)
    engine.dispose()


def test_the_api_answers_503_until_the_tables_are_current_and_then_serves(tmp_path):
    """One process runs before and after the upgrade; requests without tables always succeed."""
    url = f"sqlite:///{tmp_path}/laas.sqlite"
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], project="laas", default_config_files=[], default_config_dirs=[])
    conf.set_override("connection", url, group="database")
    conf.set_override("state_dir", str(tmp_path))
    parts = Parts(conf)
    written(url)
    client = application(conf, parts.use_cases(lambda: None)).test_client()
    wish = {"name": "new", "hosts": 4}
    for answer in (
        client.get("/v1/allocations"),
        client.get("/v1/fabrics"),
        client.post("/v1/allocations", json=wish),
        client.delete("/v1/allocations/a"),
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

    parts.upgrade_database()
    assert client.get("/healthcheck").status_code == 200
    listed = client.get("/v1/allocations").json
    assert listed is not None
    assert [one["name"] for one in listed["allocations"]] == ["a", "b"]
    assert client.post("/v1/allocations", json=wish).status_code == 202
    parts.admission_queue.serve_all()
    parts._engine.dispose()


def at(url, revision, oldest):
    """The store on tables of another release, which lets releases from ``oldest`` on work."""
    schema.upgrade(connect(url))
    store = SqlStore(connect(url))
    store.check()
    with store._engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))
        connection.execute(sa.delete(models.WorksWith))
        if oldest is not None:
            connection.execute(sa.insert(models.WorksWith).values(oldest=oldest))
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


def test_two_upgrades_at_once(first):
    """One upgrade runs at a time; the others wait and then find nothing to do."""
    engine, failures = connect(first), []

    def run():
        try:
            schema.upgrade(engine)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    check(engine)
    engine.dispose()
