# SPDX-License-Identifier: Apache-2.0

"""Waits for other processes and threads, never without a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

PATIENCE = 300.0
"""Seconds before a wait fails, enough for a busy machine; most waits take less than one."""

PAUSE = 0.1
"""Seconds between two calls of ``look``."""

T = TypeVar("T")


def eventually(
    look: Callable[[], T],
    what: str | Callable[[], str],
    patience: float = PATIENCE,
    pause: float = PAUSE,
) -> T:
    """Call ``look`` until its result is true; return that result.

    ``what`` describes the condition for the error message: a text, or a function that returns
    it. ``patience`` and ``pause`` are in seconds. ``look`` is called once more after
    ``patience`` has passed, in case the test itself was held up. ``look`` raises if the
    condition can no longer become true.

    Raises:
        AssertionError: no result was true in time.
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


def at_once(*calls: Callable[[], object]) -> None:
    """Make each call in a thread of its own; return when all have returned.

    Raises:
        Exception: what the first of them that failed has raised.
    """
    with ThreadPoolExecutor(len(calls)) as threads:
        for made in [threads.submit(call) for call in calls]:
            made.result(PATIENCE)
