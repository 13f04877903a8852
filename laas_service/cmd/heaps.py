# SPDX-License-Identifier: Apache-2.0


"""Memory of processes that run for months."""

from __future__ import annotations

import ctypes
from contextlib import suppress

HEAPS = 2
"""Enough that threads hardly ever wait for each other; a service's own work is in Python."""

_M_ARENA_MAX = -8
"""The parameter's number, in ``malloc.h`` of the GNU C library."""


def share() -> None:
    """From now on all threads take their memory from a few heaps; call before there are any.

    By itself the GNU C library gives each thread a heap of its own, up to eight for each
    core. What is free in one is of no use to the others, so that a process grows for days.
    With other C libraries nothing happens.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS)
