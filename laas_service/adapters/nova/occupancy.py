# SPDX-License-Identifier: Apache-2.0

"""Who occupies hosts: the servers that Nova and placement show, their projects and their disks."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from laas_service.adapters.ironic_nodes import IronicNode
from laas_service.adapters.nova.aggregates import Aggregate, Aggregates
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.nodes import NodeFitness
from laas_service.adapters.nova.placement import PlacementCalls
from laas_service.adapters.nova.servers import ServerCalls
from laas_service.app.ports.compute import KEPT, ComputeHost, Occupant, ServerLoad
from laas_service.domain.errors import Conflict, Forbidden
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)

SEVERAL = 10
"""From so many hosts of an aggregate of the pool on, one request tells which of them are empty."""

TOGETHER = 3
"""As ``SEVERAL``, for an aggregate that has no other hosts."""

MEMORY = "MEMORY_MB"
"""The resource of which every hypervisor has some free if it is empty."""


class Occupancy:
    """Asks Nova and placement for servers; remembers their projects, which never change.

    A host that Nova does not know counts as empty, so a deleted compute service does not block a
    release. Arguments ``hypervisors`` have the state of at least those hosts that Nova knows.
    """

    def __init__(
        self,
        placement: PlacementCalls,
        servers: ServerCalls,
        hosts: Hosts,
        aggregates: Aggregates,
        fitness: NodeFitness,
    ) -> None:
        self._placement = placement
        self._servers = servers
        self._hosts = hosts
        self._aggregates = aggregates
        self._fitness = fitness
        self._owners: dict[str, str] = {}

    # -- the port -----------------------------------------------------------------

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """See ``Compute.occupants``; hosts in the order of their names."""
        hypervisors = self._hosts.known(hosts, search=True)
        return self.dated(self.staying(self.on(hosts, hypervisors), hypervisors))

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost]:
        """See ``Compute.look``. One listing of the hypervisors; projects are asked for once.

        If hosts may be nodes, one of the nodes and one of the aggregates as well.
        """
        hypervisors = self._hosts.listed()
        owners: dict[str, str] = {}
        if any(host.bare for host in hypervisors.values()):
            self._aggregates.begin()
            owners = self._aggregates.owners()
        listed_servers = {id for node in hypervisors.values() for id in node.servers}
        self._owners = {id: self._owners[id] for id in self._owners.keys() & listed_servers}
        return {
            host: self.seen(host, hypervisors[host], owners)
            for host in sorted(set(hosts) & hypervisors.keys())
        }

    def load(self, hosts: Collection[str]) -> ServerLoad:
        """See ``Compute.load``. One list-servers call for each host; disks of nodes stay."""
        bare = set(hosts) & self._hosts.node_of.keys()
        servers = [
            one
            for host in sorted(set(hosts) - bare)
            for one in self._servers.servers_on(host).values()
        ]
        number = len(servers) + (len(self.occupants(bare)) if bare else 0)
        return ServerLoad(number, sum(server.disk_gb for server in servers))

    # -- hosts --------------------------------------------------------------------

    def seen(
        self, host: str, node: Hypervisor, owners: Mapping[str, str] = MappingProxyType({})
    ) -> ComputeHost:
        """A host as the port shows it; ``owners`` are the projects of hosts of allocations."""
        unknown = self._projects_of(host, node.servers - self._owners.keys(), node.bare)
        self._owners |= {id: project for id, project in unknown.items() if project}
        projects = unknown | {id: self._owners[id] for id in node.servers & self._owners.keys()}
        servers = (Occupant(host, id, project) for id, project in sorted(projects.items()))
        bare = node.bare
        unfit = self._fitness.unfit(host, bare, owners.get(host)) if bare else ""
        name = "" if bare else self._hosts.name_in_nova(host)
        return ComputeHost(node.up, node.enabled, node.reason, tuple(servers), unfit, name)

    def on(
        self,
        hosts: Iterable[str],
        hypervisors: Mapping[str, Hypervisor],
        within: Aggregate | None = None,
    ) -> list[Occupant]:
        """What placement or Nova itself shows on these hosts, all of them ``within`` an aggregate.

        Without that, placement is asked for each.
        """
        occupants, asked = [], set(hosts) & hypervisors.keys()
        if within is not None:
            asked -= self.empty_in([within], asked, hypervisors, TOGETHER)
        for host in sorted(asked):
            node = hypervisors[host]
            if len(node.providers) > 1:
                raise Conflict(
                    f"compute host {host} has {len(node.providers)} nodes (Ironic?); give the "
                    "service a login in [ironic], and name the nodes as hosts"
                )
            placed = self._placement.consumers(node.providers[0])
            found = placed | self._projects_of(host, node.servers - placed.keys(), node.bare)
            occupants += [Occupant(host, id, project) for id, project in sorted(found.items())]
        return occupants

    def empty_in(
        self,
        aggregates: Iterable[Aggregate],
        hosts: Collection[str],
        hypervisors: Mapping[str, Hypervisor],
        fewest: int,
    ) -> set[str]:
        """Those of these hosts that are empty; one request for each kind of hosts of an aggregate.

        None are told of kinds of less than ``fewest`` hosts, and where the service's user may not
        ask for candidates.
        """
        empty: set[str] = set()
        for aggregate in aggregates:
            kinds: dict[str, dict[str, str]] = {}
            for host in aggregate.hosts.intersection(hosts):
                seen = hypervisors[host]
                if len(seen.providers) == 1 and not seen.servers:
                    kind = seen.bare.resource if seen.bare else MEMORY
                    kinds.setdefault(kind, {})[host] = seen.providers[0]
            for resource, providers in sorted(kinds.items()):
                if len(providers) < fewest:
                    continue
                try:
                    found = self._placement.empty_members(aggregate, resource)
                except Forbidden as error:
                    LOG.info("placement is asked for the servers of each host: %s", error)
                    return empty
                empty |= {host for host, provider in providers.items() if provider in found}
        return empty

    # -- occupants ----------------------------------------------------------------

    def dated(self, occupants: Iterable[Occupant]) -> list[Occupant]:
        """The same occupants; servers that Nova keeps after their deletion with its time."""
        found, deleted = [], dict[str, Mapping[str, str]]()
        for one in occupants:
            if one.host not in deleted:
                bare = one.host in self._hosts.node_of
                deleted[one.host] = {} if bare else self._servers.deleted_on(one.host)
            found.append(replace(one, deleted_at=deleted[one.host].get(one.consumer, "")))
        return found

    def staying(
        self, occupants: Iterable[Occupant], hypervisors: Mapping[str, Hypervisor]
    ) -> list[Occupant]:
        """Occupants without those that were evacuated from a host that is down.

        Nova takes the server and its room off the host when its compute service starts again.
        """
        left: dict[str, set[str]] = {}
        found = []
        for one in occupants:
            node = hypervisors[one.host]
            if not node.up and one.consumer not in node.servers:
                if one.host not in left:
                    left[one.host] = self._evacuated_from(one.host)
                if one.consumer in left[one.host]:
                    continue
            found.append(one)
        return found

    def _evacuated_from(self, host: str) -> set[str]:
        try:
            return self._servers.evacuated_from(host)
        except Forbidden as error:
            LOG.warning("servers that were evacuated from host %s count as there: %s", host, error)
            return set()

    def _projects_of(
        self, host: str, servers: Collection[str], bare: IronicNode | None
    ) -> dict[str, str | None]:
        """The projects of these servers of a host, without those that are gone by now.

        Placement does not know servers that were scheduled without it. None: the service's user
        may not list servers, or nobody told whose the instance of a node is.
        """
        owners = {server: self._placement.owner(server) for server in sorted(servers)}
        unknown = {server for server, project in owners.items() if project is None}
        if not unknown:
            return owners
        if bare:
            lessee = self._fitness.lessee(bare)
            return {id: project or lessee for id, project in owners.items()}
        try:
            listed_servers = self._servers.servers_on(host)
        except Forbidden as error:
            LOG.warning("servers without an allocation in placement on host %s: %s", host, error)
            return owners
        gone = unknown - listed_servers.keys()
        return {
            id: owner or listed_servers[id].project_id
            for id, owner in owners.items()
            if id not in gone
        }


def sentence(occupants: Collection[Occupant]) -> str:
    """Occupants in a sentence; it tells how servers that were deleted come to their end."""
    text = listed(sorted(f"{one.host} {one.text}" for one in occupants))
    return f"{text}; {KEPT}" if any(one.deleted_at for one in occupants) else text
