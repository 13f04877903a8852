# SPDX-License-Identifier: Apache-2.0

"""What all tests share: a database for each, and in CI a skipped test is a failed one."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import settings

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect
from laas_service.adapters.db.store import SqlStore
from tests.marks import pytest_runtest_makereport as pytest_runtest_makereport

# How long an example takes says more about the machine than about the code. In CI the same
# code is tried with the same examples; elsewhere every run draws new ones.
settings.register_profile("laas", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("laas")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    path = tmp_path_factory.mktemp("database") / "empty.sqlite"
    engine = connect(f"sqlite:///{path}")
    schema.upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture
def database(empty_database, tmp_path):
    """The URL of a database at the newest revision, with nothing in it."""
    path = tmp_path / "laas.sqlite"
    shutil.copy(empty_database, path)
    return f"sqlite:///{path}"


@pytest.fixture
def blank(tmp_path):
    """The URL of a database without tables."""
    return f"sqlite:///{tmp_path}/blank.sqlite"


@pytest.fixture
def store(database):
    engine = connect(database)
    yield SqlStore(engine)
    engine.dispose()
