# SPDX-License-Identifier: Apache-2.0

"""Fixtures and settings of all tests: a database for each test, and no skipped tests in CI."""

from __future__ import annotations

import gc
import logging
import os

import pytest
from hypothesis import settings

from laas_service.adapters.db.store import SqlStore
from tests import databases
from tests.databases import empty_database as empty_database
from tests.marks import pytest_runtest_makereport as pytest_runtest_makereport

# No deadline: the duration of an example depends on the machine more than on the code. In CI
# the examples are the same in every run, so that a failure can be reproduced.
settings.register_profile("laas", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("laas")


LONG = (
    *("test_crash", "test_storm", "test_opensm_agent", "test_bus", "test_rewind", "test_upgrade"),
    "test_recipes",
)
"""Files that take minutes: they come first, so that no process of the tests is idle at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_collection_finish() -> None:
    """Exempt modules and tests from collections: a command that collects visited all of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_as_before():
    """A command that configures logging in a test leaves no handler on a closed stream behind."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
    for handler in [handler for handler in handlers if handler not in root.handlers]:
        root.addHandler(handler)
    root.setLevel(level)


@pytest.fixture
def database():
    """The URL of a database with empty tables at the newest revision, in memory."""
    with databases.fresh() as engine:
        yield str(engine.url)


@pytest.fixture
def blank(tmp_path):
    """The URL of a database without tables."""
    return f"sqlite:///{tmp_path}/blank.sqlite"


@pytest.fixture
def store(database):
    with databases.opened(database) as engine:
        yield SqlStore(engine)
