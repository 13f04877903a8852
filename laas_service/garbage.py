# SPDX-License-Identifier: Apache-2.0

"""Garbage collection of Python: full collections only while no request is in progress.

Python collects in three generations. The first two are small. A full collection visits every
container object of the process, for a fabric of 11,664 hosts more than 40 ms long, and no thread
runs meanwhile. Python starts it at any allocation, so also in the middle of a search.

Therefore a process freezes what it has made at its start, so that no collection visits it again,
and turns the automatic full collections off. It still needs full collections: objects that refer
to each other in a circle and became old would otherwise fill the memory. The process makes them
itself, between requests.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from laas_service import background

DUE = 70_000
"""New container objects after which a full collection is due: Python's own default up to 3.12.

Later versions count other numbers of objects as one collection, so the collections say little."""

OVERDUE = 20 * DUE
"""New container objects, some 100 MB, after which it waits no longer for a quiet moment."""

QUIET = 0.05
"""Seconds without a request before a collection, so that the server has sent the last answer."""

_NEVER = 2**31 - 1
"""A threshold that no count reaches."""


def settle() -> None:
    """Exempt all present objects from collections, and turn automatic full collections off.

    Call it when the structures that live as long as the process are made.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)


@contextmanager
def settled() -> Iterator[None]:
    """As ``settle``, until the end of the block.

    In a process that has settled before, its objects stay exempt.
    """
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    settle()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:
            gc.unfreeze()


@contextmanager
def collected_later() -> Iterator[None]:
    """No collections until the end of the block, and none of the many objects that it makes.

    For a command that ends soon after.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def collect_if_due() -> None:
    """Collect if enough objects have been made since the last full collection.

    A loop calls it between two steps.
    """
    if _survived() >= DUE:
        gc.collect()


def _survived() -> int:
    """Container objects made since the last full collection, less those that were freed.

    Python counts collections of the middle generation, one each time that this many were made.
    """
    young, middle, _ = gc.get_threshold()
    return gc.get_count()[2] * young * middle


class Collector:
    """Makes the full collections of a process while none of its threads is ``busy``.

    A thread starts when a collection is due, waits until no other thread has been busy for
    ``quiet`` seconds, collects, and ends. A request that arrives during the collection waits for
    its end. If the process is never quiet, the collection waits until it is overdue.
    """

    def __init__(self, quiet: float = QUIET, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._lock = threading.Lock()
        self._busy = 0
        """Number of requests and rounds in progress."""
        self._busy_until = clock()
        """When the last of them ended."""
        self._settled = False
        self._collecting = False

    def settle(self) -> None:
        """As the function ``settle``; from now on this object makes the full collections."""
        settle()
        self._settled = True

    @contextmanager
    def busy(self) -> Iterator[None]:
        """No full collection begins inside the block, unless one is overdue."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    def sleep(self, seconds: float) -> None:
        """Sleep inside a ``busy`` block; collections may be made meanwhile."""
        self._end()
        try:
            time.sleep(seconds)
        finally:
            self._begin()

    def _begin(self) -> None:
        with self._lock:
            self._busy += 1

    def _end(self) -> None:
        with self._lock:
            self._busy -= 1
            self._busy_until = self._clock()
            if not self._settled or self._collecting or _survived() < DUE:
                return
            self._collecting = True
        # Not a thread of the whole process: a WSGI server may fork after the application is made.
        background.start("laas-garbage", self._collect)

    def _collect(self) -> None:
        while True:
            with self._lock:  # so that no request begins before the collection
                quiet = not self._busy and self._clock() - self._busy_until >= self._quiet
                if quiet or _survived() >= OVERDUE:
                    gc.collect()
                    self._collecting = False
                    return
            time.sleep(self._quiet)
