# SPDX-License-Identifier: Apache-2.0

"""One budget for all the searches that are made to answer one request.

A single search has its own (``search.one_pod.WORK``). An answer may take hundreds of them:
the largest size that fits, what would make room, which queued requests may start. Steps are
counted, never seconds, so that the same state gives the same answer everywhere.
"""

from __future__ import annotations

UNBOUNDED = 1 << 62
"""A budget that no request exhausts, units of work."""


class RequestBudget:
    """Units of work that several searches share, about half a microsecond each.

    The units are those of ``search.bicliques.Budget``.
    """

    def __init__(self, work: int) -> None:
        self.left = work
        """Units not spent yet."""

        self.cut = False
        """Whether a search needed more than was left, so that an answer may be incomplete."""

    def spend(self, cost: int) -> bool:
        """Take ``cost`` units; if fewer are left, take these and return False."""
        if cost > self.left:
            self.left = 0
            self.cut = True
            return False
        self.left -= cost
        return True
