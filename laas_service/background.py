# SPDX-License-Identifier: Apache-2.0

"""Threads in the background: all of them are started here, and none ends without a log line."""

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

AGAIN = 5.0
"""Seconds until work that failed begins again."""


def start(name: str, run: Callable[[], None], *, again: float | None = None) -> threading.Thread:
    """Call ``run`` in a thread of its own, which does not keep the process alive.

    An error of ``run`` is logged. After it, ``run`` is called again in ``again`` seconds, until it
    returns; with None the thread ends.
    """

    def attempts() -> None:
        while not _done(name, run) and again is not None:
            time.sleep(again)

    thread = threading.Thread(target=attempts, name=name, daemon=True)
    thread.start()
    return thread


def _done(name: str, run: Callable[[], None]) -> bool:
    """Call ``run``; False after an error, which is logged."""
    try:
        run()
    except Exception:
        LOG.exception("%s: unexpected error", name)
        return False
    return True


def log_ends() -> None:
    """Log the error that ends a thread of any library; Python prints it to standard error."""
    threading.excepthook = _ended


def _ended(end: threading.ExceptHookArgs) -> None:
    if end.exc_type is SystemExit:
        return
    name = end.thread.name if end.thread is not None else "a thread"
    error = end.exc_value if end.exc_value is not None else end.exc_type()
    LOG.critical("%s has ended: unexpected error", name, exc_info=error)
