# SPDX-License-Identifier: Apache-2.0

"""The pool of hosts under management in Nova: aggregates that admit no project.

A large pool has several aggregates, because Nova's time for a change of one grows with its hosts.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from laas_service.adapters.nova.aggregates import Aggregate, Aggregates
from laas_service.adapters.nova.hosts import FEW, Hosts
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.keys import OwnKeys
from laas_service.adapters.nova.members import Members
from laas_service.adapters.nova.nodes import NodeCare
from laas_service.adapters.nova.occupancy import SEVERAL, Occupancy, sentence
from laas_service.adapters.nova.strangers import StrangerSearch
from laas_service.domain.errors import Conflict, HostsBusy, LaasError, NotFound
from laas_service.domain.wording import listed

PART = 200
"""Hosts in an aggregate of the pool; Nova's time for a change of it grows with them."""

PARTS = 50
"""Aggregates of the pool, unless somebody made more: a GET to placement names all of them."""

SPREAD = 20
"""Hosts that leave an aggregate of the pool with too many of them, in one comparison."""


class PoolAggregates:
    """Adds hosts to the aggregates of the pool (its parts); checks that free ones are empty."""

    def __init__(
        self,
        keys: OwnKeys,
        aggregates: Aggregates,
        hosts: Hosts,
        members: Members,
        occupancy: Occupancy,
        strangers: StrangerSearch,
        nodes: NodeCare,
    ) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._hosts = hosts
        self._members = members
        self._occupancy = occupancy
        self._strangers = strangers
        self._nodes = nodes

    def take_in(self, hosts: Collection[str]) -> None:
        """See ``Compute.pool``. Unallocated hosts of the pool must be empty, too.

        When an error names hosts that cannot join, all others have joined. A host on which Nova
        has a server does not join while it has. Placement is asked for servers that were being
        built after the hosts have joined; then no other server can come. Edited metadata of the
        pool are corrected before any other call.
        """
        comparing = self._aggregates.comparing
        pooled = {host for part in self._parts().values() for host in part.hosts}
        owned = self._aggregates.owners().keys()
        joining = set(hosts) - pooled
        shared = comparing or len(joining) > FEW
        hypervisors = self._hosts.shared() if shared else self._hosts.known(hosts)
        if shared:
            hypervisors = self._with(hypervisors, joining - hypervisors.keys())
        known = set(hosts) & hypervisors.keys()
        suspects = {host for host in (joining & known) - owned if hypervisors[host].servers}
        if shared:
            hypervisors = self._with(hypervisors, suspects)
        occupants = self._occupancy.on(suspects, hypervisors)
        self.join(known - {o.host for o in occupants}, touch=True)
        for part in self._parts().values():
            if part.nodes:
                self._members.ensure_nodes(part, part.hosts)
        asked = known - owned
        if comparing:
            self._spread()
            suspects = {host for host in asked & pooled if hypervisors[host].servers}
            hypervisors = self._with(hypervisors, suspects)
            asked = asked - pooled | suspects
        asked -= self._empty(asked, hypervisors)
        busy = {*occupants, *self._occupancy.on(asked, hypervisors)}
        foreign = self._strangers.admitting(known)
        self._nodes.clean(known - owned - {o.host for o in busy}, hypervisors)
        self._nodes.end_leases(known, hypervisors)
        if busy:
            raise HostsBusy(f"free hosts must be empty, but {sentence(busy)}")
        if foreign:
            raise Conflict(foreign)
        if unknown := set(hosts) - hypervisors.keys():
            raise NotFound("compute host", listed(sorted(unknown)))

    def join(self, hosts: Collection[str], *, touch: bool = False) -> None:
        """Add hosts to the pool; write the metadata again where one joined, or with ``touch``.

        A host that cannot join does not keep out the others; the first error is raised then.
        """
        parts = self._parts()
        pooled = {host for part in parts.values() for host in part.hosts}
        missing = sorted(
            set.intersection(*(set(self._members.lacking(part, hosts)) for part in parts.values()))
        )
        size = _part_size(len(pooled.union(missing)))
        touched = set(parts) if touch else set()
        refusals: list[LaasError] = []
        bare: dict[str, set[str]] = {}
        for host in missing:
            part = self._with_room(parts, size)
            touched.add(part.name)
            if host in self._hosts.node_of:
                bare.setdefault(part.name, set()).add(host)
                parts[part.name] = replace(part, hosts=part.hosts | {host})
                continue
            try:
                parts[part.name] = self._members.add_host(part, host)
            except (Conflict, NotFound) as error:
                parts[part.name] = part
                refusals.append(error)
        for name, nodes in sorted(bare.items()):
            try:
                parts[name] = self._members.ensure_nodes(parts[name], nodes)
            except Conflict as error:
                refusals.append(error)
        for name in sorted(touched):
            self._members.write(parts[name], self._keys.pooled)
        if refusals:
            raise refusals[0]

    def _parts(self) -> dict[str, Aggregate]:
        """The pool's aggregates by name, corrected; the first is created if necessary."""
        self._members.ensured(self._keys.pool, self._keys.pooled)
        names = sorted(filter(self._keys.is_part, self._aggregates.present))
        return {name: self._members.ensured(name, self._keys.pooled) for name in names}

    def _with(
        self, hypervisors: Mapping[str, Hypervisor], hosts: Collection[str]
    ) -> Mapping[str, Hypervisor]:
        """Hypervisors, with the present state of these hosts."""
        return {**hypervisors, **self._hosts.known(hosts)}

    def _with_room(self, parts: Mapping[str, Aggregate], size: int) -> Aggregate:
        """An aggregate of the pool with fewer hosts than ``size``; a new one if none has."""
        if part := next((part for part in parts.values() if len(part.hosts) < size), None):
            return part
        free = (f"{self._keys.pool}-{number:02d}" for number in range(1, 100))
        name = next((name for name in free if name not in parts), None)
        if name is None:
            raise Conflict(
                f"the pool {self._keys.pool} has {len(parts)} aggregates, all full, so hosts are "
                "in several of them: remove each of these hosts from all but one (openstack "
                "aggregate remove host)"
            )
        return self._members.ensured(name, self._keys.pooled)

    def _spread(self) -> None:
        """Move some hosts of an aggregate of the pool that has far too many.

        A host joins another aggregate of the pool before it leaves this one.
        """
        parts = self._parts()
        size = _part_size(sum(len(part.hosts) for part in parts.values()))
        crowded = next((part for part in parts.values() if len(part.hosts) > 2 * size), None)
        if crowded is None:
            return
        moving = sorted(crowded.hosts)[-SPREAD:]
        for host in moving:
            if not any(host in part.hosts for part in parts.values() if part is not crowded):
                part = self._members.add(self._with_room(parts, size), [host])
                parts[part.name] = self._members.write(part, self._keys.pooled)
        self._members.leave(crowded, moving)

    def _empty(self, hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> set[str]:
        """Those of many hosts in the pool that are empty, as far as few requests tell.

        ``Occupancy.on`` asks placement for each host.
        """
        if len(hosts) < SEVERAL:
            return set()
        return self._occupancy.empty_in(self._parts().values(), hosts, hypervisors, SEVERAL)


def _part_size(hosts: int) -> int:
    """How many hosts an aggregate of the pool may have, of so many in all."""
    return max(PART, math.ceil(hosts / PARTS))
