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

PART_TO_TRY = 8
"""Attempts may take 1 / ``PART_TO_TRY`` of the work of a search, beside it."""


class SearchBudget:
    """The units of work that one search has left.

    A unit is about half a microsecond of processor time. A search pays before a step whose
    cost is known, and right after a step whose cost is not. Every unit is also paid from the
    request's budget, if there is one, and the search stops when either is used up.
    """

    left: int
    """Units left, 0 or more."""
    left_to_try: int
    """Units left for attempts, beside ``left``, 0 or more."""
    trying: bool
    """Whether this is an attempt."""
    nodes: int
    """Nodes of search trees visited so far."""
    exceeded: bool
    """Whether the search wanted more units than it had. Its "no" is then no proof."""

    def __init__(self, work: int, request_budget: RequestBudget | None = None) -> None:
        self.left = work
        self.left_to_try = work // PART_TO_TRY
        self.nodes = 0
        self.exceeded = False
        self.trying = False
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

    @property
    def to_try(self) -> int:
        """Units left for tries: beside those of the search, or those of an attempt."""
        return self.left if self.trying else self.left_to_try

    def spend_to_try(self, cost: int) -> bool:
        """Pay ``cost`` units of ``to_try``; False, with nothing paid, if there are fewer."""
        if cost > self.to_try:
            return False
        if not self.trying:
            self.left_to_try -= cost
            self.left += cost
        return self.spend(cost)

    def first_try(self, work: int) -> FirstTry:
        """A budget of ``work`` of the units ``to_try``, for a search that may be given up."""
        return FirstTry(self, work)

    @contextmanager
    def attempt(self, most: int, *, of_search: bool = False) -> Iterator[None]:
        """Give the work inside the context up to ``most`` units of its own.

        They are part of ``left_to_try``, so an attempt never takes from the search that follows
        one cut off; ``of_search``: they are part of ``left``. Within the context ``exceeded``
        says whether they were used up; afterwards it is what it was before.
        """
        units = min(most, self.left if of_search else self.left_to_try)
        before = self.left, self.exceeded, self.trying
        if not of_search:
            self.left_to_try -= units
        self.left, self.exceeded, self.trying = units, False, True
        try:
            yield
        finally:
            unused = self.left
            self.left, self.exceeded, self.trying = before
            if of_search:
                self.left -= units - unused
            else:
                self.left_to_try += unused

    def give_up_trying(self) -> bool:
        """End an attempt, if this is one, before a step that takes more work than a try is worth.

        The rest of its units is for other attempts.
        """
        if self.trying:
            self.left_to_try += self.left
            self.left, self.exceeded = 0, True
        return self.trying

    @contextmanager
    def portion(self, parts: int) -> Iterator[None]:
        """Limit the work inside the context to 1 / ``parts`` of the units left."""
        reserved = self.left - self.left // parts
        self.left -= reserved
        try:
            yield
        finally:
            self.left += reserved


class FirstTry(SearchBudget):
    """The units of work for a first search, paid by the ``search`` that it is part of.

    They are paid of what that has for tries (``to_try``), so that the search that follows loses
    nothing. If the first search wants more, it proves nothing, but the search goes on in
    another way. So that is not cut off (``exceeded``).
    """

    def __init__(self, search: SearchBudget, work: int) -> None:
        super().__init__(work)
        self._search = search

    def spend(self, cost: int) -> bool:
        if cost <= self.left and self._search.spend_to_try(cost):
            self.left -= cost
            return True
        self._search.spend_to_try(min(self.left, self._search.to_try))
        self.left = 0
        self.exceeded = True
        return False
