# SPDX-License-Identifier: Apache-2.0

"""Sizes that earlier searches proved not to fit, so that no search looks for them again."""

from __future__ import annotations

from dataclasses import dataclass, field

from laas_service.domain.ledger import LedgerView

NEVER = 1 << 62
"""More hosts than any fabric has: no size is known not to fit."""


@dataclass(slots=True)
class Misfits:
    """The smallest size known not to fit, by place; kept with a ledger (``reader_cache``).

    A place is a policy's name for anywhere in the fabric, or a pod's number for two or more
    leaf groups of that pod. Larger sizes do not fit either. Each size is remembered with the
    ledger's generation of what became free (``freed`` or ``pod_freed[pod]``) and holds until
    that advances: claims and faults make no room.

    Of full leaf groups in several pods, a size is remembered for longer: until something
    becomes free that such a placement could take (``in_several_pods``).
    """

    _sizes: dict[str | int, tuple[int, int]] = field(default_factory=dict)
    """(generation, size) by place."""
    _in_several_pods: tuple[int, int, int] = NEVER, 0, 0
    """A size that did not fit, the ``freed`` of that time, and the least hosts on its leaves."""

    def smallest(self, place: str | int, generation: int) -> int:
        """The smallest size known not to fit at this generation, NEVER if none is known."""
        known = self._sizes.get(place)
        return known[1] if known is not None and known[0] == generation else NEVER

    def remember(self, place: str | int, generation: int, hosts: int) -> None:
        """So many hosts do not fit; a smaller size was not known at this generation."""
        self._sizes[place] = generation, hosts

    def in_several_pods(self, fabric: LedgerView) -> int:
        """The smallest size known not to fit on full leaf groups and a remainder leaf.

        Let a size S with a remainder leaf of R hosts have been refused, and after that only
        leaf groups with less than R free hosts have become free in part. Then no S' >= S fits
        now. Its full leaf groups and spine uplinks were free then, too. If its remainder leaf
        has R or more hosts, so was that leaf, and S' would have fitted. If not, S' has a full
        leaf group more than S. The placement without its remainder leaf would have fitted, has
        S or more hosts and is legal, in one pod or several. That was refused as well.
        """
        hosts, generation, leaf_hosts = self._in_several_pods
        return hosts if fabric.last_freed(leaf_hosts) <= generation else NEVER

    def remember_in_several_pods(self, fabric: LedgerView, hosts: int, leaf_hosts: int) -> None:
        """So many hosts fit nowhere, with ``leaf_hosts`` on the smallest leaf in several pods."""
        self._in_several_pods = hosts, fabric.freed, leaf_hosts

    def copy(self) -> Misfits:
        return Misfits(dict(self._sizes), self._in_several_pods)
