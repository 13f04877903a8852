# SPDX-License-Identifier: Apache-2.0


"""Who is inside whom, as the allocations say."""

from __future__ import annotations

from collections.abc import Sequence

from laas_service.domain.allocation import Allocation
from laas_service.domain.verification.partition import WHOLE_LINKS


class Nest:
    """Allocations by depth; parents that are not there, or are their own, end a line."""

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        self._by_id = {allocation.id: allocation for allocation in allocations}
        self.outermost_first = sorted(allocations, key=lambda a: (len(self._line(a)), a.id))

    def _line(self, allocation: Allocation) -> list[Allocation]:
        """The containers around it, the innermost first."""
        line: list[Allocation] = []
        parent = self._by_id.get(allocation.parent or "")
        while parent is not None and parent not in line:
            line.append(parent)
            parent = self._by_id.get(parent.parent or "")
        return line

    def carrier(self, allocation: Allocation) -> Allocation | None:
        """Whose links its packets are to use: its own, or else those of a container around it."""
        if allocation.policy in WHOLE_LINKS:
            return allocation
        around = (each for each in self._line(allocation) if each.policy in WHOLE_LINKS)
        return next(around, None)
