# SPDX-License-Identifier: Apache-2.0

"""Whether the database takes writes, for the health check: few writes, one result for many."""

import math
import secrets
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime

from sqlalchemy import Engine, delete, insert

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import failed_writes, write_transaction
from laas_service.domain.errors import Unavailable

GOOD_FOR = 5.0
"""Seconds for which a success counts: anybody may ask for the health."""

PAUSE = 1.0
"""Seconds for which a failure counts."""

LARGE = 1000
"""Rows of some 300 bytes that have to fit after a failed write; an admission writes no more."""

_CHECK = "check-"
_ENDED = datetime(2000, 1, 1, tzinfo=UTC)


class WriteCheck:
    """Writes a row; after a failed write of this process, as much as an admission. Thread-safe.

    On a full disk one row may still fit where a request's write does not. So a failed write of
    this process counts until a large write succeeds.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._failed = failed_writes(engine)
        self._lock = threading.Lock()
        self._proved = self._failed.count
        self._looked = -math.inf

    def __call__(self) -> None:
        """Return if the database takes writes. Raises: Unavailable."""
        with self._lock:  # those that come meanwhile share the result
            now = time.monotonic()
            if now >= self._looked + (PAUSE if self._failing else GOOD_FOR):
                self._looked = now
                self._look()
            if self._failing:
                raise Unavailable(self._failed.newest)

    @property
    def _failing(self) -> bool:
        """Whether a write has failed since the last one that proves that writes succeed."""
        return self._failed.count != self._proved

    def _look(self) -> None:
        count = self._failed.count
        with suppress(Unavailable):  # counted as failed
            if self._failing:
                self._insert(LARGE)  # committed, as SQLite writes nothing that goes at once
            with write_transaction(self._engine) as session:
                session.execute(insert(models.WorkerRow).values(_row()))
                session.execute(
                    delete(models.WorkerRow).where(models.WorkerRow.id.startswith(_CHECK))
                )
            self._proved = count

    def _insert(self, count: int) -> None:
        with write_transaction(self._engine) as session:
            session.execute(insert(models.WorkerRow), [_row() for _ in range(count)])


def _row() -> dict[str, object]:
    """A worker that ended long ago, so that nobody counts it."""
    return {"id": f"{_CHECK}{secrets.token_hex(120)}", "expires_at": _ENDED}
