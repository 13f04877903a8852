# SPDX-License-Identifier: Apache-2.0

"""The database's clock, by which everything that is due or taken is judged.

Clocks of machines differ and jump. Whatever one process writes as a time and another one compares
is therefore of the one clock that all share.
"""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from laas_service.adapters.db.engine import translated
from laas_service.adapters.db.types import Clock

FRESH = 1.0
"""Seconds for which a reading is continued by the monotonic clock of this machine."""


def database_clock(session: Session) -> datetime:
    """The time of the database's clock, which all workers share."""
    return session.scalars(select(Clock())).one()


class DatabaseClock:
    """The database's clock for one process; safe to share between threads.

    The database is asked once in ``FRESH`` seconds. A jump of this machine's clock changes nothing;
    a jump of the database's is followed. Raises (when called): Unavailable.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        read: Callable[[Session], datetime] = database_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._read, self._monotonic = engine, read, monotonic
        self._lock = threading.Lock()
        self._last: tuple[float, datetime] | None = None

    def __call__(self) -> datetime:
        with self._lock:
            now = self._monotonic()
            if self._last is None or now - self._last[0] >= FRESH:
                with translated(), Session(self._engine) as session:
                    self._last = self._monotonic(), self._read(session)
            at, reading = self._last
            return reading + timedelta(seconds=max(0.0, self._monotonic() - at))
