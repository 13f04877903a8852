# SPDX-License-Identifier: Apache-2.0

"""The database of one process, and what administrators do to it."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from oslo_config import cfg
from sqlalchemy import Engine

from laas_service.adapters import messaging
from laas_service.adapters.db import backup, restore, schema, soundness
from laas_service.adapters.db.clock import DatabaseClock
from laas_service.adapters.db.engine import (
    connect,
    consistent_read,
    narrow_characters,
    translated,
    weak_settings,
)
from laas_service.adapters.db.quotas import SqlQuotas
from laas_service.adapters.db.retention import archive_file
from laas_service.adapters.db.store import SqlStore
from laas_service.adapters.db.transactions import utc_now
from laas_service.app.worker.housekeeper import BATCH
from laas_service.conf.database import connection, engine_options
from laas_service.conf.opensm import OpenSmOptions
from laas_service.domain.errors import InvalidInput
from opensm_writer.fileset import published_generation
from opensm_writer.serve import WITH_GUIDS


class Database:
    """The engine, the store and their upkeep; each part is made on first use and kept.

    ``at`` as for ``Composition``. Raises (of every part): as ``Composition``.
    """

    def __init__(self, conf: cfg.ConfigOpts, *, at: Callable[[str], None]) -> None:
        self._conf = conf
        self._at = at

    @cached_property
    def engine(self) -> Engine:
        return connect(connection(self._conf), **engine_options(self._conf))

    @cached_property
    def clock(self) -> DatabaseClock:
        """The database's clock, by which everything that is due or taken is judged."""
        return DatabaseClock(self.engine)

    @cached_property
    def store(self) -> SqlStore:
        return SqlStore(
            self.engine,
            now=self.clock,
            at=self._at,
            announce=messaging.announces(self._conf),
            pkeys=OpenSmOptions.of(self._conf).pkeys,
        )

    @cached_property
    def quotas(self) -> SqlQuotas:
        return SqlQuotas(self.engine, self.clock)

    def upgrade(self) -> None:
        """Migrate the tables to this release; safe to repeat."""
        schema.upgrade(self.engine)

    def revisions(self) -> tuple[str | None, str]:
        """The revisions of the tables (None: there are none), and of this release."""
        with translated(), self.engine.connect() as connection:
            return schema.current(connection), schema.head()

    def back_up(self, path: Path) -> int:
        """Write a backup; returns the number of rows. See ``backup.write``."""
        return backup.write(self.engine, path, utc_now())

    def restore(self, path: Path, above: int = 0) -> backup.Header:
        """Fill the database, which must be empty, from a backup. See ``restore.restore``.

        Generations continue above those published on this machine, and above ``above``.
        """
        served = file_sets(self._conf)
        roots = (OpenSmOptions.of(self._conf).directory, served, served / WITH_GUIDS)

        def newest(fabric: str) -> int:
            return max(above, *(published_generation(root, fabric) for root in roots))

        return restore.restore(self.engine, path, seen=newest, now=utc_now())

    def forget_allocations(self, days: int | None, path: Path | None = None) -> int:
        """Delete the allocations that were released ``days`` ago; returns their number.

        [retention] says how many days if None is given. What is deleted is appended to the file of
        this name, if there is one. Raises: InvalidInput, also if neither names days.
        """
        days = self._conf.retention.released_days if days is None else days
        if days < 1:
            fix = "give at least 1, or set [retention] released_days"
            raise InvalidInput("--released-days", days, fix)
        self.store.check()
        with archive_file(path) if path else nullcontext() as archive:
            total = 0
            while number := self.store.allocations.forget(timedelta(days=days), BATCH, archive):
                total += number
            return total

    def findings(self) -> list[str]:
        """Contradictions between tables of the database, a sentence each."""
        self.store.check()
        with consistent_read(self.engine) as connection:
            return soundness.findings(connection)

    def weak_settings(self) -> list[str]:
        """Settings of the database server that may lose acknowledged requests. ``Unavailable``."""
        return weak_settings(self.engine)

    def narrow_characters(self) -> list[str]:
        """Why the database cannot hold every name, a sentence each. ``Unavailable``."""
        return narrow_characters(self.engine)


def file_sets(conf: cfg.ConfigOpts) -> Path:
    """The directory of the file sets that agents fetch."""
    return Path(conf.state_dir) / "file-sets"
