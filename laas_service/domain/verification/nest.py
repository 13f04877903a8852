# SPDX-License-Identifier: Apache-2.0

"""Nesting of allocations in containers, from the parents that the allocations name."""

from collections.abc import Sequence

from laas_service.domain.allocation import Allocation
from laas_service.domain.verification.partition import WHOLE_LINKS


class Nest:
    """The containers around each allocation.

    An unknown parent ends the chain of containers, and so does one that occurs in it already.
    """

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        self._by_id = {allocation.id: allocation for allocation in allocations}
        self.outermost_first = sorted(allocations, key=lambda a: (len(self._around(a)), a.id))
        """The allocations by depth, then by id."""

    def _around(self, allocation: Allocation) -> list[Allocation]:
        """The containers around an allocation, the innermost first."""
        containers: list[Allocation] = []
        parent = self._by_id.get(allocation.parent or "")
        while parent is not None and parent not in containers:
            containers.append(parent)
            parent = self._by_id.get(parent.parent or "")
        return containers

    def carrier(self, allocation: Allocation) -> Allocation | None:
        """The allocation whose links its packets use: itself, else the innermost container around.

        Only allocations with whole links count; None if there is none.
        """
        chain = (allocation, *self._around(allocation))
        return next((a for a in chain if a.policy in WHOLE_LINKS), None)
