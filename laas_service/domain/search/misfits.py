# SPDX-License-Identifier: Apache-2.0

"""Sizes that earlier searches proved not to fit, so that no search looks for them again."""

from __future__ import annotations

from dataclasses import dataclass, field

NEVER = 1 << 62
"""More hosts than any fabric has: no size is known not to fit."""


@dataclass(slots=True)
class Misfits:
    """The smallest size known not to fit, by place; kept with a ledger (``reader_cache``).

    A place is a policy's name for anywhere in the fabric, or a pod's number for two or more
    leaf groups of that pod. Larger sizes do not fit either. Each size is remembered with the
    ledger's generation of what became free (``freed`` or ``pod_freed[pod]``) and holds until
    that advances: claims and faults make no room.
    """

    _sizes: dict[str | int, tuple[int, int]] = field(default_factory=dict)
    """(generation, size) by place."""

    def smallest(self, place: str | int, generation: int) -> int:
        """The smallest size known not to fit at this generation, NEVER if none is known."""
        known = self._sizes.get(place)
        return known[1] if known is not None and known[0] == generation else NEVER

    def remember(self, place: str | int, generation: int, hosts: int) -> None:
        """So many hosts do not fit; a smaller size was not known at this generation."""
        self._sizes[place] = generation, hosts

    def copy(self) -> Misfits:
        return Misfits(dict(self._sizes))
