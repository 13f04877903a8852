# SPDX-License-Identifier: Apache-2.0

"""Memory allocation of long-running processes: few heaps of the C library."""

from __future__ import annotations

import ctypes
from contextlib import suppress

HEAPS = 2
"""Number of heaps. Two suffice: threads spend little time in ``malloc``, and most in Python."""

_M_ARENA_MAX = -8
"""The parameter's number, in ``malloc.h`` of the GNU C library."""


def limit_heaps() -> None:
    """Limit the heaps that all threads share to ``HEAPS``; call before the first thread starts.

    By default the GNU C library gives each thread its own heap, up to eight for each core.
    Other threads cannot use the free memory of a heap, so a process grows for days. With
    other C libraries this function does nothing.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS)
