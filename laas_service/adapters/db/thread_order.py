# SPDX-License-Identifier: Apache-2.0

"""The order in which threads of one process decide about a fabric: one after the other.

Concurrent searches on one ledger tend to choose the same hosts, and only the first commit wins;
the other threads search and write again. So a thread first waits for the previous one.

The wait is bounded, and correctness never depends on it, because every commit compares
generations. Slow searches delay a thread by at most ``PATIENCE`` from its arrival, however many are
before it; then it searches beside them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 0.25
"""Seconds for which a thread waits for those before it; most decisions take a tenth of this."""


class ThreadOrder:
    """The threads of one process that decide about fabrics, in order of arrival."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._last: dict[str, threading.Event] = {}
        """By fabric: whether the thread that arrived last has left."""
        self._lock = threading.Lock()

    @contextmanager
    def after_previous(self, fabric_id: str) -> Iterator[None]:
        """Enter once the previous thread has left, or after ``patience`` seconds."""
        left = threading.Event()
        with self._lock:
            previous = self._last.get(fabric_id)
            self._last[fabric_id] = left
        try:
            if previous is not None:
                previous.wait(self._patience)
            yield
        finally:
            left.set()
