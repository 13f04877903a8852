# SPDX-License-Identifier: Apache-2.0

"""Whether the thread that takes the steps still moves: what is stuck must not hold a fabric."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from laas_service.domain.errors import LeaseLost


class Watchdog:
    """Beats whenever the working thread moves; taken by another thread that watches it.

    It is ``stuck`` when it has not moved for ``patience`` seconds of ``clock`` while it works.
    What it held is then given up, and if it ever moves again it hears ``LeaseLost`` at its next
    beat, before it does anything more. Other threads than the working one may beat in vain.
    """

    def __init__(self, clock: Callable[[], float], patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._thread: int | None = None
        self._moved = 0.0
        self._given_up = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """This thread works, from here to the end of the block; may be nested."""
        before, self._thread = self._thread, threading.get_ident()
        self._moved = self._clock()
        try:
            yield
        finally:
            self._thread = before
            self._moved = self._clock()

    def beat(self) -> None:
        """The working thread moves. Raises: LeaseLost, if it was given up meanwhile."""
        if threading.get_ident() == self._thread:
            self._moved = self._clock()
            if self._given_up:
                raise LeaseLost("this worker was stuck, and its fabrics were given up")

    def recover(self) -> None:
        """The working thread has let go of what was given up, and begins anew."""
        self._given_up = False

    def stuck(self) -> bool:
        """Whether it has not moved for too long; from now on it is given up."""
        late = self._thread is not None and self._clock() - self._moved > self._patience
        self._given_up = self._given_up or late
        return late


def untiring() -> Watchdog:
    """A pulse that is never stuck."""
    return Watchdog(lambda: 0.0, 1.0)
