# SPDX-License-Identifier: Apache-2.0

"""One budget for all the searches that are made to answer one request.

A single search has its own (``policies.search.WORK``). An answer may take hundreds of them:
the largest size that fits, what would make room, who of a queue may start. Steps are counted,
never seconds, so that the same state gives the same answer everywhere.
"""

from __future__ import annotations

UNBOUNDED = 1 << 62
"""More than anybody could wait for."""


class RequestBudget:
    """Units of ``policies.blocks.Budget`` that several searches share: about half a
    microsecond each. ``cut`` says that more was wanted than there was."""

    def __init__(self, work: int) -> None:
        self.left = work
        self.cut = False

    def spend(self, cost: int) -> bool:
        """Pay; False, and nothing left, if that is more than there is."""
        if cost > self.left:
            self.left = 0
            self.cut = True
            return False
        self.left -= cost
        return True
