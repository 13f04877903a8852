# SPDX-License-Identifier: Apache-2.0

"""The budget of one search, in units of work.

A search counts steps and never seconds, so that the same state and the same request get the
same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from laas_service.domain.budget import RequestBudget

WORK = 60_000
"""Default budget of one search, in units of ``SearchBudget``: 15 to 30 ms.

Most requests place without a search and use none of it. Tenants of mixed sizes that come and
go rarely need one percent of it.
"""


class SearchBudget:
    """The units of work that one search has left.

    A unit is about half a microsecond of processor time. A search pays before a step whose
    cost is known, and right after a step whose cost is not. Every unit is also paid from the
    request's budget, if there is one, and the search stops when either is used up.
    """

    left: int
    """Units left, 0 or more."""
    nodes: int
    """Nodes of search trees visited so far."""
    exceeded: bool
    """Whether the search wanted more units than it had. Its "no" is then no proof."""

    def __init__(self, work: int, request_budget: RequestBudget | None = None) -> None:
        self.left = work
        self.nodes = 0
        self.exceeded = False
        self._request_budget = request_budget

    def spend(self, cost: int) -> bool:
        """Pay ``cost`` units; False, with nothing left, if there are fewer."""
        self.left -= cost
        request_budget = self._request_budget
        if request_budget is not None and not request_budget.spend(min(cost, cost + self.left)):
            self.left = -1
        if self.left < 0:
            self.left = 0
            self.exceeded = True
            return False
        return True

    @contextmanager
    def portion(self, parts: int) -> Iterator[None]:
        """Limit the work inside the context to 1 / ``parts`` of the units left."""
        reserved = self.left - self.left // parts
        self.left -= reserved
        try:
            yield
        finally:
            self.left += reserved
