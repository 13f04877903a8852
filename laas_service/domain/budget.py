# SPDX-License-Identifier: Apache-2.0

"""The budget that all searches for one request share, in units of work.

Each search has a budget of its own as well (``search.budget``). One request may need hundreds
of searches: for the largest size that fits, for what would make room, for the queue. Searches
count steps and never seconds, so that the same state gives the same answer on every machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager

UNBOUNDED = 1 << 62
"""More units than any request can use."""


class RequestBudget:
    """The units of work that the searches for one request have left.

    A unit is that of ``search.budget.SearchBudget``, about half a microsecond.
    """

    left: int
    """Units not spent yet."""

    cut: bool
    """Whether a search needed more than was left, so that an answer may be incomplete."""

    def __init__(self, work: int) -> None:
        self._work = work
        self.renew()

    def renew(self) -> None:
        """Start again with all units, because the request is decided anew."""
        self.left = self._work
        self.cut = False

    @contextmanager
    def portion(self, parts: int) -> Iterator[None]:
        """Limit the work inside the context to 1 / ``parts`` of the units left."""
        reserved = self.left - self.left // parts
        self.left -= reserved
        try:
            yield
        finally:
            self.left += reserved

    def spend(self, cost: int) -> bool:
        """Pay ``cost`` units; False, with nothing left, if there are fewer."""
        if cost > self.left:
            self.left = 0
            self.cut = True
            return False
        self.left -= cost
        return True
