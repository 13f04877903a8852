# SPDX-License-Identifier: Apache-2.0

"""The check finds each kind of contradiction between tables."""

import shutil

import pytest
import sqlalchemy as sa

from laas_service.adapters.db import models, soundness
from laas_service.adapters.db.engine import connect, consistent_read
from laas_service.adapters.db.store import SqlStore
from tests.unit.adapters.test_backup import INVENTORY, lived_in
from tests.unit.adapters.test_store import SMALL


@pytest.fixture(scope="module")
def lived(empty_database, tmp_path_factory):
    """A database in which every table has rows."""
    path = tmp_path_factory.mktemp("lived") / "laas.sqlite"
    shutil.copy(empty_database, path)
    engine = connect(f"sqlite:///{path}")
    told = SqlStore(engine, announce=True)
    told.fabrics.add("f", SMALL, INVENTORY)
    lived_in(told)
    engine.dispose()
    return path


@pytest.fixture
def database(lived, tmp_path):
    path = tmp_path / "laas.sqlite"
    shutil.copy(lived, path)
    return f"sqlite:///{path}"


@pytest.fixture
def spoil(store):
    """Run statements without constraint checks, and return the findings."""

    def run(*statements):
        with store._engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            raw.execute("PRAGMA foreign_keys = OFF")
            raw.execute("PRAGMA ignore_check_constraints = ON")
            for statement in statements:
                assert raw.execute(statement).rowcount, statement
        with consistent_read(store._engine) as connection:
            return soundness.findings(connection)

    return run


def test_what_was_lived_in_is_sound(spoil):
    assert spoil() == []


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("delete from host_claim where allocation = 'moving'", "without a claim"),
        ("delete from link_claim where allocation = 'moving'", "without a claim"),
        ("delete from pkey_claim where allocation = 'boxed'", "claims none"),
        ("update pkey_claim set pkey = pkey + 9 where allocation = 'boxed'", "it has partition"),
        (
            "update allocation_placement set placed = null where allocation = 'moving'",
            "has no placement",
        ),
        (
            "update allocation_placement set placed = '[]' where allocation = 'moving'",
            "moving cannot be read",
        ),
        (
            "update allocation_change set leaving = null where allocation = 'moving'",
            "half recorded",
        ),
        (
            "update allocation_change set phase = 'jump' where allocation = 'moving'",
            "no phase 'jump'",
        ),
        ("update allocation set state = 'lost' where id = 'moving'", "there is no such state"),
        ("update allocation set state = 'queued' where id = 'moving'", "has a placement"),
        ("update allocation set state = 'active' where id = 'waits'", "has no placement"),
        ("update allocation set parked = 'active' where id = 'moving'", "parked from 'active'"),
        ("update allocation set version = -1 where id = 'moving'", "version -1"),
        ("update allocation set generation = 99 where id = 'moving'", "is of generation 99"),
        ("update allocation set parent = 'waits' where id = 'boxed'", "no container"),
        ("update allocation set fabric = 'g' where id = 'moving'", "that is not there"),
        ("update fabric set routes_generation = 99", "its routes are of generation 99"),
        ("update fabric set generation = generation + 1", "do not lead to generation"),
        ("delete from delta where generation = 3", "do not lead to generation"),
        ("delete from allocation where id = 'gone'", "rows of event name a allocation"),
        ("delete from event where allocation = 'gone'", "its story ends with nothing"),
        ("update event set state = 'active' where allocation = 'waits'", "story ends with active"),
        ("update host_state set host = 99", "host 99 is recorded as 'drained'"),
        ("update host_state set state = 'up'", "is recorded as 'up'"),
        ("update link_state set link = 999 where link = 0", "link 999 is recorded as 'failed'"),
        ("update host_state set operator = 'failed'", "host 5 is drained, but what is said makes"),
        ("update host_state set observed = 'failed'", "what is said makes it failed"),
        ("update link_state set state = 'drained'", "is drained, but what is said makes it failed"),
        ("delete from link_state", "link 31 is up, but what is said makes it drained"),
        ("update switch_state set state = 'failed'", "what is said makes it failed"),
        ("delete from switch_state", "is drained, but what is said makes it up"),
        ("update link_state set moved = 1", "was moved, and is observed as None"),
        ("update host_feature set cost = -1", "with cost -1"),
        ("update lease set token = 0", "the lease has the token 0"),
        ("update quota set hosts = -2", "the quota of hosts is -2"),
        ("update notification set document = '{}'", "notification 1 cannot be read"),
        ("update idempotency set allocation = 'x'", "rows of idempotency name a allocation"),
        (
            "insert into host_claim (fabric, scope, host, allocation) values ('f', '', 15, 'gone')",
            "claims host 15, which it does not have",
        ),
        (
            "insert into host_claim (fabric, scope, host, allocation) "
            "select 'f', 'x', host, 'waits' from host_claim where allocation = 'moving'",
            "two owners of host",
        ),
        ("update slot_claim set units = units + 9", "claims other slots than it has"),
        ("update slot_claim set part = 'box'", "has slots of box, not of its parent"),
        ("update shared_host set used = 2 where used = 1", "counts 2 slots, its owners others"),
        ("update shared_host set slots = 1", "of 1 slots"),
        ("update shared_host set host = 1 where host = 6", "which it does not share"),
        ("delete from shared_host where host = 6", "has no row of shared host or link 6"),
        ("update link_load set mean = mean + 1", "claims other promises of links"),
        ("delete from link_load", "counts other promises than it has made"),
        ("update shared_link set capacity = 1", "has another bandwidth"),
        ("update shared_link set certain = capacity", "promises more than it has"),
        ("update allocation set kind = 'owned' where id = 'sharer'", "of another class"),
        ("update allocation set kind = 'owned' where id = 'part'", "no container of its fabric"),
        ("update host_claim set scope = 'box' where allocation = 'moving'", "in another scope"),
    ],
)
def test_what_does_not_agree_is_found(spoil, statement, said):
    found = spoil(statement)
    assert any(said in finding for finding in found), found


def test_a_fabric_that_cannot_be_read(spoil, store):
    with store._engine.begin() as connection:
        fabric = models.FabricRow
        connection.execute(sa.update(fabric).values(topology={"m": [0]}))
    assert any(finding.startswith("fabric f cannot be read") for finding in spoil())
