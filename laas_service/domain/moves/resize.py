# SPDX-License-Identifier: Apache-2.0

"""Resize in place: more hosts around those that a tenant has, or some of those that it has."""

from collections.abc import Collection
from dataclasses import replace

from laas_service.domain.admission.undisturbed import harm
from laas_service.domain.allocation import WHOLE, Allocation, GroupShare, NoFit, Refusal
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import Conflict, InvalidInput
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.host_roles import HostSupply
from laas_service.domain.moves.legal_shapes import SHAPED, legal_shapes
from laas_service.domain.moves.nearest import nearest
from laas_service.domain.moves.replacement import without
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.budget import WORK, SearchBudget

SIZES_WORK = 20 * WORK
"""Default budget of all sizes that one ``resize`` looks at, in units of ``SearchBudget``."""


def resize(
    fabric: LedgerView,
    allocation: Allocation,
    hosts: int,
    give_back: Collection[int] | None = None,
    budget: RequestBudget | None = None,
) -> Allocation | NoFit:
    """The allocation with ``hosts`` hosts where it is, or a refusal with the largest size.

    ``fabric`` holds the allocation, and is the ledger of its container if it has one. A larger
    allocation has all present hosts and free ones. A smaller one has some of the present hosts:
    all but those of ``give_back`` stay, and by default any may be given back. Links are chosen
    anew among free ones and its own that have not failed, and as many as possible of its own
    are kept. Drained links and failed or drained hosts of its own may stay. The shape is one
    that its policy allows; one of Jigsaw's extension only if the allocation has such a shape.

    The answer is exact while the search budget lasts: it fits if and only if there are such
    hosts and links. A refusal after that has ``cut_off`` set. Growth is not monotone, so
    ``largest_fit`` is the largest size below ``hosts`` that fits in place, the present one
    included.

    Raises:
        InvalidInput: ``hosts`` is below 1, or a host of ``give_back`` is not the tenant's.
        Conflict: the policy has neither shapes nor hosts alone (ta, lc-s, starcube).
    """
    if hosts < 1:
        raise InvalidInput("hosts", hosts, "ask for at least 1 host")
    search = _Resize(fabric, allocation, give_back, budget or RequestBudget(SIZES_WORK))
    if hosts == allocation.requested and not search.failed_links:
        return allocation
    answer = search.to(hosts) if hosts <= search.most else None
    if answer is None:
        return search.refusal(hosts)
    return harm(fabric, answer) or answer


class _Resize:
    def __init__(
        self,
        fabric: LedgerView,
        allocation: Allocation,
        give_back: Collection[int] | None,
        budget: RequestBudget,
    ) -> None:
        topology = fabric.topology
        if allocation.policy not in SHAPED | {"baseline"} or allocation.bandwidth != WHOLE:
            raise Conflict(f"{allocation.id!r} keeps its size: its policy is {allocation.policy}")
        self._allocation = allocation
        self._budget = budget
        self._cut_off = False
        links = tuple(allocation.links(topology))
        self.failed_links = [link for link in links if link in fabric.failed_links]
        own = {share.group: share.hosts for share in allocation.groups}
        self._own = tuple(own.get(group, 0) for group in range(topology.groups))
        self._optional = self._own
        if give_back is not None:
            hosts = allocation.hosts(topology)
            for host in give_back:
                if host not in hosts:
                    raise InvalidInput("give_back", host, "name hosts of the allocation")
            self._optional = topology.positions_of(give_back)
        self._free = tuple(fabric.free_hosts)
        self._view = without(fabric, allocation)
        self.most = allocation.size + fabric.free_host_count

    def to(self, hosts: int) -> Allocation | None:
        """The allocation with so many hosts; None if there is none, or the budget is spent."""
        supply = self._supply(hosts)
        if self._allocation.policy == "baseline":
            return self._hosts_alone(supply, hosts)
        allocation = replace(self._allocation, requested=hosts)
        shape, topology = allocation.shape, self._view.topology
        extended = shape is not None and shape.extended
        shapes = legal_shapes(allocation.policy, hosts, topology, two_pods=extended)
        budget = SearchBudget(WORK, self._budget)
        answer = nearest(self._view, allocation, supply, shapes, budget)
        self._cut_off |= budget.exceeded
        return None if answer is None else answer.allocation

    def refusal(self, hosts: int) -> NoFit:
        present, most = self._allocation.size, self.most
        grows = hosts > self._allocation.requested
        cut_off = self._cut_off
        largest = self._largest_below(min(hosts, most + 1))
        if self.failed_links and not grows:
            reason = Refusal.FAULT
            detail = f"{len(self.failed_links)} links of the allocation have failed, and no free"
            detail += f" ones join {hosts} of its hosts"
        elif hosts > most:
            reason = Refusal.TOO_FEW_HOSTS
            detail = f"{hosts} hosts asked; the allocation has {present} and {most - present}"
            detail += " are free"
        elif cut_off:
            reason = Refusal.BUDGET
            detail = f"the search for {hosts} hosts around the present ones stopped at its budget"
        else:
            reason = Refusal.NO_LEGAL_SHAPE
            detail = f"{hosts} hosts asked; {most - present} hosts are free, but no legal shape has"
            detail += " the hosts that stay and enough free links in common"
        return NoFit(reason, detail, largest, cut_off=self._cut_off)

    def _largest_below(self, hosts: int) -> int:
        present = self._allocation.requested
        for size in range(hosts - 1, 0, -1):
            if (size == present and not self.failed_links) or self.to(size) is not None:
                return size
            if self._budget.cut:
                break
        return present if present < hosts and not self.failed_links else 0

    def _supply(self, hosts: int) -> HostSupply:
        own, none = self._own, (0,) * len(self._own)
        if hosts >= self._allocation.requested:
            return HostSupply(own, none, self._free)
        kept = tuple(mask & ~out for mask, out in zip(own, self._optional, strict=True))
        return HostSupply(kept, self._optional, none)

    def _hosts_alone(self, supply: HostSupply, hosts: int) -> Allocation | None:
        missing = hosts - sum(mask.bit_count() for mask in supply.kept)
        groups = []
        for group, kept in enumerate(supply.kept):
            taken = lowest_bits(supply.spare[group] | supply.new[group], max(0, missing))
            missing -= taken.bit_count()
            if kept | taken:
                groups.append(GroupShare(group, kept | taken, 0))
        if missing:
            return None
        return replace(self._allocation, requested=hosts, groups=tuple(groups))
