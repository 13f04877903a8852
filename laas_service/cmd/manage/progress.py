# SPDX-License-Identifier: Apache-2.0

"""Progress of a command that takes seconds, on standard error."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

PATIENCE = 2.0
"""Seconds until the first line."""

AGAIN = 10.0
"""Seconds between further lines."""


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on standard error what goes on, if the block takes longer than ``PATIENCE``."""
    over, start = Event(), time.monotonic()

    def tell() -> None:
        pause = PATIENCE
        while not over.wait(pause):
            seconds = time.monotonic() - start
            print(f"laas-manage: {what}, {seconds:.0f} s so far", file=sys.stderr, flush=True)
            pause = AGAIN

    thread = Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
