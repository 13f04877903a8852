# SPDX-License-Identifier: Apache-2.0

"""Baseline: any free hosts, no links; like a scheduler that ignores the network."""

from typing import ClassVar

from laas_service.domain.allocation import Allocation, GroupShare, NoFit, Refusal, Request
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.any_hosts import any_hosts
from laas_service.domain.search.bicliques import lowest_bits


class Baseline:
    """The first free hosts, in order. Each host has one owner; links are not promised."""

    name: ClassVar[str] = "baseline"
    isolating: ClassVar[bool] = False
    monotone: ClassVar[bool] = True

    def propose(self, fabric: LedgerView, request: Request) -> Allocation | NoFit:
        missing, constraints = request.hosts, request.constraints
        if (
            constraints is not None
            and constraints.of_shape
            and request.hosts <= fabric.free_host_count
        ):
            return self._constrained(fabric, request, constraints)
        shares = []
        for group, free in enumerate(fabric.free_hosts):
            if not free:
                continue
            taken = lowest_bits(free, missing)
            shares.append(GroupShare(group, taken, 0))
            missing -= taken.bit_count()
            if not missing:
                return Allocation(request.id, request.hosts, self.name, tuple(shares))
        free_hosts = request.hosts - missing
        return NoFit(Refusal.TOO_FEW_HOSTS, f"{free_hosts} hosts free, {request.hosts} asked")

    def _constrained(
        self, fabric: LedgerView, request: Request, constraints: Constraints
    ) -> Allocation | NoFit:
        width, groups = fabric.topology.groups_per_pod, range(fabric.topology.groups)
        within, spread = constraints.place, constraints.least_pods
        step = {Within.LEAF: 1, Within.POD: width, None: len(groups)}[within]
        places = (groups[first : first + step] for first in groups[::step])
        if shares := any_hosts(fabric, places, request.hosts, constraints):
            return Allocation(request.id, request.hosts, self.name, tuple(shares))
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{fabric.free_host_count} hosts free, {request.hosts} asked, but not in "
            + (f"one {within.value}" if within else f"{spread} pods"),
        )
