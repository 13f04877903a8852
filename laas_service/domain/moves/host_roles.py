# SPDX-License-Identifier: Apache-2.0

"""The hosts that a placement may have on each leaf group, what they cost, and their choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import lowest_bits

Roles = Sequence[tuple[int, int]]
"""The leaf groups of a placement, each with its number of hosts."""


@dataclass(frozen=True, slots=True)
class HostSupply:
    """The hosts that a placement must or may have, as masks of positions by leaf group."""

    kept: Sequence[int]
    """Hosts that it must have."""
    spare: Sequence[int]
    """Further hosts that cost nothing, for example those that the tenant has already."""
    new: Sequence[int]
    """Further hosts that cost 1 each."""


class HostRoles:
    """What each leaf group can have of a tenant's placement.

    ``view`` is the fabric without the tenant. ``tenant`` also says the id, the policy, the
    number of hosts asked for and the present links.
    """

    def __init__(self, view: LedgerView, tenant: Allocation, supply: HostSupply) -> None:
        self.view = view
        self.tenant = tenant
        self.supply = supply
        self.topology = view.topology
        self.width = view.topology.groups_per_pod

        self.kept = [mask.bit_count() for mask in supply.kept]
        """How many hosts of each leaf group stay."""

        self.at_no_cost = [
            kept + spare.bit_count() for kept, spare in zip(self.kept, supply.spare, strict=True)
        ]
        """How many it can have at no cost, those that stay included."""

        self.most = [
            count + new.bit_count() for count, new in zip(self.at_no_cost, supply.new, strict=True)
        ]
        """How many it can have."""

    def cost(self, group: int, hosts: int) -> int:
        return max(0, hosts - self.at_no_cost[group])

    def can_have(self, group: int, hosts: int) -> bool:
        return self.kept[group] <= hosts <= self.most[group]

    def candidates(self, groups: Iterable[int], hosts: int) -> list[int]:
        """The leaf groups that can have so many hosts; cheap ones, then fuller ones first."""
        able = [group for group in groups if self.can_have(group, hosts)]
        return sorted(able, key=lambda g: (self.cost(g, hosts), self.most[g], g))

    def on_hosts(self, shape: Shape, roles: Roles) -> Allocation:
        """The tenant on these hosts, with its present links as the wish for ``best_links``."""
        old = {share.group: share for share in self.tenant.groups}
        everywhere = reduce(or_, (share.uplinks for share in self.tenant.groups), 0)
        columns: dict[int, int] = {}
        for _, column, uplinks in self.tenant.columns:
            columns[column] = columns.get(column, 0) | uplinks
        kept = {(pod, column): uplinks for pod, column, uplinks in self.tenant.columns}
        most = max(hosts for _, hosts in roles)
        groups = []
        for group, hosts in sorted(roles):
            share = old.get(group)
            uplinks = everywhere
            if hosts < most and share is not None and share.uplinks:
                uplinks = share.uplinks
            groups.append(GroupShare(group, self.hosts_of(group, hosts), uplinks))
        pods = sorted({group // self.width for group, _ in roles})
        wanted = (
            ColumnShare(pod, column, kept.get((pod, column), uplinks))
            for pod in pods
            for column, uplinks in sorted(columns.items())
        )
        return replace(self.tenant, groups=tuple(groups), columns=tuple(wanted), shape=shape)

    def hosts_of(self, group: int, hosts: int) -> int:
        """So many hosts of a leaf group: those that stay, those at no cost, then new ones."""
        supply = self.supply
        chosen = supply.kept[group]
        for mask in (supply.spare[group], supply.new[group]):
            chosen |= lowest_bits(mask, hosts - chosen.bit_count())
        return chosen
