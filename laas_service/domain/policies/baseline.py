# SPDX-License-Identifier: Apache-2.0

"""Baseline: any free hosts, no links; what a scheduler does that ignores the network."""

from __future__ import annotations

from typing import ClassVar

from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.any_hosts import any_hosts
from laas_service.domain.topology import bits


class Baseline:
    """First free hosts in order. Promises one owner a host, and nothing about links."""

    name: ClassVar[str] = "baseline"
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = True

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        wanted = request.hosts
        wish = request.constraints
        if wish is not None and wish.of_shape and wanted <= fabric.free_host_count:
            return self._constrained(fabric, request, wish)
        shares = []
        for group, free in enumerate(fabric.free_hosts):
            if not free:
                continue
            taken = free if free.bit_count() <= wanted else _lowest(free, wanted)
            shares.append(GroupShare(group, taken, 0))
            wanted -= taken.bit_count()
            if not wanted:
                return Allocation(request.id, request.hosts, self.name, tuple(shares))
        free_hosts = request.hosts - wanted
        return NoFit(Refusal.TOO_FEW_HOSTS, f"{free_hosts} hosts free, {request.hosts} asked")

    def _constrained(
        self, fabric: LedgerView, request: Request, wish: Constraints
    ) -> Allocation | NoFit:
        width, groups = fabric.topology.groups_per_pod, range(fabric.topology.groups)
        step = {Within.LEAF: 1, Within.POD: width, None: len(groups)}[wish.within]
        places = (groups[first : first + step] for first in groups[::step])
        if shares := any_hosts(fabric, places, request.hosts, wish):
            return Allocation(request.id, request.hosts, self.name, tuple(shares))
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{fabric.free_host_count} hosts free, {request.hosts} asked, but not in "
            + (f"one {wish.within.value}" if wish.within else f"{wish.spread} pods"),
        )


def _lowest(mask: int, count: int) -> int:
    """The ``count`` lowest bits of ``mask``."""
    taken = 0
    for position, _ in zip(bits(mask), range(count), strict=False):
        taken |= 1 << position
    return taken
