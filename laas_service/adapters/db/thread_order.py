# SPDX-License-Identifier: Apache-2.0

"""The order in which threads of one process decide about a fabric: one after the other.

Concurrent searches on one ledger tend to choose the same hosts, and only the first commit wins;
the other threads search and write again. So a thread first waits for the previous one.

The wait is bounded, and correctness never depends on it, because every commit compares
generations. A slow search delays the next thread by at most ``PATIENCE`` from its beginning;
the threads behind that one do not wait for the slow search at all.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 0.25
"""Seconds for which a thread waits for the previous one; most decisions take a tenth of this."""


class _Decider:
    """A thread that waits, decides, or has decided."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()
        self.patience_ends = 0.0
        """When the next thread waits no longer, on the monotonic clock; set before ``began``."""


class ThreadOrder:
    """The threads of one process that decide about fabrics, in order of arrival."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._last: dict[str, _Decider] = {}
        self._lock = threading.Lock()

    @contextmanager
    def after_previous(self, fabric_id: str) -> Iterator[None]:
        """Enter once the previous thread has left, or was inside for ``patience`` seconds."""
        present = _Decider()
        with self._lock:
            previous = self._last.get(fabric_id)
            self._last[fabric_id] = present
        try:
            if previous is not None:
                previous.began.wait()
                previous.ended.wait(previous.patience_ends - time.monotonic())
            present.patience_ends = time.monotonic() + self._patience
            present.began.set()
            yield
        finally:
            present.began.set()
            present.ended.set()
