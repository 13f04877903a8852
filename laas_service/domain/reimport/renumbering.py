# SPDX-License-Identifier: Apache-2.0

"""The new numbers of hosts, links and leaf groups after a re-import.

Places (pod, index, uplink, position) stay, so links keep their names. If the tree grew, numbers
that are computed from its sizes change: those of hosts on one rail, links and leaf groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.errors import Conflict
from laas_service.domain.reimport.host_places import matched_hosts
from laas_service.domain.reimport.layout import Layout
from laas_service.domain.topology import Link, Topology, bits


@dataclass(frozen=True)
class Renumbering:
    """From the numbers of one topology to those of another."""

    before: Topology
    after: Topology

    hosts: Mapping[int, int]
    """The new number of each host that remains."""

    @classmethod
    def between(cls, before: Layout, after: Layout) -> Renumbering:
        return cls(before.topology, after.topology, matched_hosts(before, after))

    def link(self, link: Link) -> Link | None:
        """The link itself if it still exists, else None."""
        exists = self.after.tree.has_link(link) and link not in self.after.absent_links
        return link if exists else None

    def link_id(self, number: int) -> int | None:
        """The new number of a link; None if it no longer exists."""
        link = self.link(self.before.tree.link_at(number))
        return None if link is None else self.after.tree.link_id(link)

    def allocation(self, held: Allocation) -> Allocation:
        """The same hosts and links in the new numbers.

        Raises:
            Conflict: one of its hosts, leaf groups or pods no longer exists.
        """
        groups = tuple(sorted(self._group(share) for share in held.groups))
        columns = tuple(sorted(self._column(share) for share in held.columns))
        return replace(held, groups=groups, columns=columns)

    def _group(self, share: GroupShare) -> GroupShare:
        group = self._groups.get(self._leaves(self.before, share.group))
        if group is None or self.before.plane_of_rail != self.after.plane_of_rail:
            raise Conflict(f"leaf group {share.group} no longer exists")
        mask = 0
        for host in self._hosts_of(share):
            if host not in self.hosts:
                raise Conflict(f"host {host} no longer exists")
            at, position = self.after.place_of(self.hosts[host])
            if at != group:
                raise Conflict(f"host {host} is on other leaves")
            mask |= 1 << position
        old, new = self.before.tree.w[1], self.after.tree.w[1]
        uplinks = sum(
            (share.uplinks >> plane * old & (1 << old) - 1) << plane * new
            for plane in range(self.before.planes)
        )
        return GroupShare(group, mask, uplinks)

    def _hosts_of(self, share: GroupShare) -> Iterator[int]:
        by_position = (self.before.host_at(share.group, position) for position in bits(share.hosts))
        return (host for host in by_position if host is not None)

    def _column(self, share: ColumnShare) -> ColumnShare:
        index = self.after.column_of_l2.get(self.before.l2_of_column(share.pod, share.column))
        if index is None:
            raise Conflict(f"pod {share.pod} no longer exists in its old form")
        return ColumnShare(*divmod(index, self.after.columns_per_pod), share.uplinks)

    def _leaves(self, topology: Topology, group: int) -> tuple[tuple[int, int], ...]:
        """The places (pod, leaf) of a group's leaves."""
        leaves = topology.leaves_of_group(group)
        return tuple((leaf // topology.tree.m[1], leaf % topology.tree.m[1]) for leaf in leaves)

    @cached_property
    def _groups(self) -> dict[tuple[tuple[int, int], ...], int]:
        return {self._leaves(self.after, group): group for group in range(self.after.groups)}
