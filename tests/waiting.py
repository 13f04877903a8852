# SPDX-License-Identifier: Apache-2.0

"""The one way in which tests wait for other processes: until it is so, for a generous time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 300.0
"""Seconds until a test gives up waiting, also on a busy machine; most waits end within one."""

PAUSE = 0.1
"""Seconds between two looks."""

T = TypeVar("T")


def eventually(
    look: Callable[[], T],
    what: str | Callable[[], str],
    patience: float = PATIENCE,
    pause: float = PAUSE,
) -> T:
    """The first true answer of ``look``.

    ``what`` is what the test waits for, or gives the text that says so. ``patience`` and
    ``pause`` are in seconds; the last look begins when the time is up, so that a test that was
    itself held up sees what has happened meanwhile. ``look`` raises if it sees that waiting is
    in vain.

    Raises:
        AssertionError: no answer was true in time.
    """
    until = time.monotonic() + patience
    while True:
        last = time.monotonic() > until
        if found := look():
            return found
        assert not last, (
            f"waited {patience:g} s in vain: {what if isinstance(what, str) else what()}"
        )
        time.sleep(pause)
