# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


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
