# SPDX-License-Identifier: Apache-2.0

"""Databases of tests in memory: SQLite files with empty tables that no commit writes to a disk.

A file and not ``:memory:``: threads and workers open it by its name. What a commit costs on a disk,
and what survives a crash, is tested by ``tests/functional/test_durability.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import Engine

from laas_service.adapters.db import schema
from laas_service.adapters.db.engine import connect, failed_writes

_SHARED = Path("/dev/shm")
MEMORY = _SHARED if _SHARED.is_dir() else None
"""Where Linux keeps files in memory; None: the usual directory of temporary files."""


@cache
def empty() -> bytes:
    """A database with empty tables at the newest revision, made once in each process."""
    with TemporaryDirectory(dir=MEMORY) as directory:
        path = Path(directory) / "empty.sqlite"
        engine = connect(f"sqlite:///{path}")
        schema.upgrade(engine)
        engine.dispose()
        return path.read_bytes()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    path = tmp_path_factory.mktemp("database") / "empty.sqlite"
    path.write_bytes(empty())
    return path


@contextmanager
def fresh() -> Iterator[Engine]:
    """Connections to a new database with empty tables, which ends with the block.

    One engine serves one block after the other: it keeps its compiled statements. To compile them
    takes longer than to carry them out.
    """
    made = _IDLE.pop() if _IDLE else _Database()
    made.path.write_bytes(empty())
    url = str(made.engine.url)
    _USED[url] = made.engine
    try:
        yield made.engine
    finally:
        del _USED[url]
        made.empty()
        _IDLE.append(made)


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """Connections to the database of a URL, of any server; that of ``fresh`` if it is its own."""
    if url in _USED:
        yield _USED[url]
        return
    engine = connect(url)
    try:
        yield engine
    finally:
        engine.dispose()


class _Database:
    """A place for databases, one at a time, and the engine that connects to it."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory(dir=MEMORY)
        self.path = Path(self._directory.name) / "laas.sqlite"
        self.engine = connect(f"sqlite:///{self.path}")

    def empty(self) -> None:
        """End the connections, and delete the database with its journals."""
        self.engine.dispose()
        for file in self.path.parent.iterdir():
            file.unlink()
        failures = failed_writes(self.engine)
        failures.count, failures.newest = 0, ""


_IDLE: list[_Database] = []
_USED: dict[str, Engine] = {}
