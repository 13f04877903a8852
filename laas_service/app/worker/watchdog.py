# SPDX-License-Identifier: Apache-2.0

"""Watches the thread that takes the steps: a worker that is stuck must not hold fabrics."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from laas_service.domain.errors import LeaseLost

SLOW = 5.0
"""Seconds without a beat after which readers are told what the worker waits for."""


class Watchdog:
    """The working thread calls ``beat`` whenever it moves; another thread asks ``stuck``.

    The working thread is stuck when it has not beaten for ``patience`` seconds of ``clock``
    while it works. Its fabrics are then given up. If it moves again, its next beat raises
    ``LeaseLost`` before it takes another effect. Beats of other threads do not count.

    A thread that has not beaten for ``slow`` seconds waits for something, which ``waits_for``
    tells.
    """

    def __init__(self, clock: Callable[[], float], patience: float, slow: float = SLOW) -> None:
        self._clock = clock
        self._patience = patience
        self._slow = slow
        self._doing = ""
        self._thread: int | None = None
        self._moved = 0.0
        self._given_up = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """This thread is the working one until the end of the block; may be nested."""
        outer, self._thread = self._thread, threading.get_ident()
        self._moved, self._doing = self._clock(), ""
        try:
            yield
        finally:
            self._thread = outer
            self._moved, self._doing = self._clock(), ""

    def beat(self, doing: str = "") -> None:
        """The working thread moves, and goes on with ``doing``, if that has a name.

        Raises:
            LeaseLost: its fabrics were given up meanwhile.
        """
        if threading.get_ident() == self._thread:
            self._moved, self._doing = self._clock(), doing
            if self._given_up:
                raise LeaseLost("this worker was stuck, and its fabrics were given up")

    def recover(self) -> None:
        """The working thread has dropped the fabrics that were given up, and begins anew."""
        self._given_up = False

    def waits_for(self) -> str | None:
        """What the working thread waits for, in a sentence; None while it moves, or rests."""
        doing, seconds = self._doing, self._clock() - self._moved
        if self._thread is None or seconds < self._slow:
            return None
        what = f": {doing}" if doing else " for the end of a step"
        return f"the worker has waited for {seconds:.0f} s{what}"

    def stuck(self) -> bool:
        """Whether the working thread has not moved for too long; its next beat raises then."""
        late = self._thread is not None and self._clock() - self._moved > self._patience
        self._given_up = self._given_up or late
        return late
