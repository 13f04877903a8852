# SPDX-License-Identifier: Apache-2.0

"""Compute port on Nova: a host aggregate for each allocation, and a pool that admits no project.

The order of the calls follows from how Nova's schedulers learn of aggregates
(doc/source/install/nova.rst). Every method starts from Nova's present state and ends with a
check, so it may be repeated at any time, even after a lost answer. No method relies on the
answer to a single write: after a refusal it reads the state again.
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import loading
from novaclient import client as nova_client
from oslo_config import cfg

from laas_service.adapters import ironic_nodes, slot_moves
from laas_service.adapters.ironic_nodes import Node, Nodes
from laas_service.adapters.nova.cloud import (
    CANDIDATES,
    HINTS_VERSION,
    NODE,
    NOVA_VERSION,
    OWNER,
    Aggregate,
    Cloud,
    Hypervisor,
)
from laas_service.adapters.nova.names import HostNames, read_pairs
from laas_service.adapters.placement_slots import SLOTS, class_of
from laas_service.adapters.server_moves import advance
from laas_service.app.ports.compute import (
    KEPT,
    ComputeHost,
    Handover,
    MoveProgress,
    Observed,
    Occupant,
    ServerLoad,
    ServerMoves,
    Share,
    SlotMoves,
)
from laas_service.domain.compute_hosts import UNKNOWN, HostView
from laas_service.domain.errors import (
    Conflict,
    Forbidden,
    HostsBusy,
    InvalidInput,
    LaasError,
    NotFound,
    Unavailable,
)
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)

SOUND_VERSION = (2, 104)
"""The newest version of Nova 34, all of whose releases have the fix of CVE-2026-46448."""

FORGED_HINT = "_nova_check_type"
"""The hint by which a create passed for a rebuild before that fix; Nova stores it."""

ALLOCATION = "laas:allocation"
"""Key with the allocation of an aggregate; ``nova_filters.laas`` reads it."""

POOL = "laas:pool"
"""Key of the pool: ``nova_filters.laas`` lets no other aggregate open its hosts."""

DRAINED = "laas:drained"
"""Key of an aggregate whose hosts ``nova_filters.laas`` closes to all projects."""

CLOSING = {DRAINED: "true"}

PART = 200
"""Hosts in an aggregate of the pool; Nova's time for a change of it grows with them."""

PARTS = 50
"""Aggregates of the pool, unless somebody made more: a GET to placement names all of them."""

SPREAD = 20
"""Hosts that leave an aggregate of the pool with too many of them, in one comparison."""

SEVERAL = 10
"""From so many hosts of an aggregate of the pool on, one request tells which of them are empty."""

TOGETHER = 3
"""As ``SEVERAL``, for an aggregate that has no other hosts."""

SHARED_FOR = 600.0
"""Seconds for which a comparison uses an earlier list of the hypervisors with their servers."""

MEMORY = "MEMORY_MB"
"""The resource of which every hypervisor has some free if it is empty."""

FEW = 100
"""Up to so many hypervisors, all are listed where some are asked for."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """All hypervisors with their servers, and when they were read (``time.monotonic``)."""

    hypervisors: Mapping[str, Hypervisor]
    begun: float

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.begun < SHARED_FOR


class _Reading(threading.local):
    """The aggregates as one thread read them.

    ``aggregates``: as last read, with what this thread wrote since; None if they have to be read.
    ``comparing``: whether the methods of the port share them.
    """

    aggregates: dict[str, Aggregate] | None = None
    comparing = False


class NovaCompute:
    """The ``Compute`` port on Nova and placement; one writer at a time in this process.

    ``pool`` is the name of the first aggregate of all managed hosts; further ones have a number
    behind it. ``sentinel`` is a project id that no project has. With ``shared_disks`` the local
    disks of servers outlive their host; with ``delete_servers`` a release by force deletes
    servers; with ``clear_lessees`` nodes are taken from lessees that are not their owners. Hosts
    that Nova does not know count as empty, so a deleted compute service does not block a release;
    pooling or handing them over raises ``NotFound``.

    Hosts of class ``shared`` are in the aggregates of several allocations, all of that class. Their
    slots are claimed in placement (``placement_slots``), so a server without a slot is a stranger.

    With ``nodes`` a host is a compute host or one of Ironic's nodes. An aggregate names its nodes
    in keys (``NODE``), and their providers are its members in placement.

    Errors beyond those of the port: ``Conflict`` for foreign aggregates that admit projects
    to our hosts, and without ``nodes`` for hosts with several nodes (Ironic);
    ``Forbidden`` for a permission that the service's user lacks; ``InvalidInput`` for a
    project id that ``filter_tenant_id`` cannot hold.
    """

    scripted: ClassVar[bool] = False
    claims_slots: ClassVar[bool] = True

    def __init__(
        self,
        cloud: Cloud,
        *,
        pool: str,
        sentinel: str,
        shared_disks: bool = False,
        delete_servers: bool = False,
        clear_lessees: bool = False,
        nodes: Nodes | None = None,
    ) -> None:
        self._cloud = cloud
        self._slots = cloud.slots
        self._delete_servers = delete_servers
        self._clear_lessees = clear_lessees
        self.nodes = nodes
        self._node_of: Mapping[str, str] = {}  # UUIDs of the nodes that are hosts, as last listed
        self._shared_disks = shared_disks
        self._pool_name = pool
        self._closed_name = f"{pool}-closed"
        self._closed = {OWNER: sentinel}
        self._pooled = {OWNER: sentinel, POOL: "true"}
        self._writing = threading.Lock()
        self._owners: dict[str, str] = {}  # projects of servers, which never change
        self._listing: _Listing | None = None  # the last one
        self._reading = _Reading()

    # -- the port ---------------------------------------------------------------

    @contextmanager
    def comparison(self) -> Iterator[None]:
        """See ``Compute.comparison``. Aggregates are listed once, and hypervisors not at all if
        a look has listed them within ``SHARED_FOR`` seconds.
        """
        self._reading.aggregates, self._reading.comparing = None, True
        try:
            yield
        finally:
            self._reading.comparing = False

    def pool(self, hosts: Collection[str]) -> None:
        """See ``Compute.pool``. Unallocated hosts of the pool must be empty, too.

        When an error names hosts that cannot join, all others have joined. A host on which Nova
        has a server does not join while it has. Placement is asked for servers that were being
        built after the hosts have joined; then no other server can come. Edited metadata of the
        pool are corrected before any other call.
        """
        with self._writing:
            self._begin()
            pooled = {host for part in self._parts().values() for host in part.hosts}
            ours = filter(_is_ours, self._aggregates.values())
            owned = {host for aggregate in ours for host in aggregate.hosts}
            joining = set(hosts) - pooled
            shared = self._reading.comparing or len(joining) > FEW
            hypervisors = self._shared() if shared else self._known(hosts)
            if shared:
                hypervisors = {**hypervisors, **self._known({*joining} - hypervisors.keys())}
            known = set(hosts) & hypervisors.keys()
            suspects = {host for host in (joining & known) - owned if hypervisors[host].servers}
            if shared:
                hypervisors = {**hypervisors, **self._known(suspects)}
            occupants = self._occupants(suspects, hypervisors)
            self._join_pool(known - {o.host for o in occupants}, touch=True)
            for part in self._parts().values():
                if part.nodes:
                    self._ensure_nodes(part, part.hosts)
            asked = known - owned
            if self._reading.comparing:
                self._spread()
                suspects = {host for host in asked & pooled if hypervisors[host].servers}
                hypervisors = {**hypervisors, **self._known(suspects)}
                asked = asked - pooled | suspects
            asked -= self._empty(asked, hypervisors)
            busy = {*occupants, *self._occupants(asked, hypervisors)}
            foreign = self._foreign(known)
            self._settle(known - owned - {o.host for o in busy}, hypervisors)
            self._unlease(known, hypervisors)
        if busy:
            raise HostsBusy(f"free hosts must be empty, but {_listed_occupants(busy)}")
        if foreign:
            raise Conflict(foreign)
        if unknown := set(hosts) - hypervisors.keys():
            raise NotFound("compute host", listed(sorted(unknown)))

    def _settle(self, hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Let free nodes run the cleaning steps that they owe."""
        for host in sorted(hosts):
            seen = hypervisors[host].bare
            if self.nodes and seen and self.nodes.owes(seen):
                node = self.nodes.node(seen.uuid)
                self.nodes.settle(host, node) if node else None

    def _unlease(self, hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Take nodes without an instance from lessees that are not their owners, if so set."""
        if not (self._clear_lessees and self.nodes):
            return
        owners = self._owners_of_hosts()
        for host in sorted(hosts):
            seen = hypervisors[host].bare
            if seen and self._is_misleased(seen, owners.get(host)):
                node = self.nodes.node(seen.uuid)
                if node and self._is_misleased(node, owners.get(host)):
                    refusal = self.nodes.unlease(node)
                    LOG.warning(
                        "node %s is taken from its lessee, project %s: %s",
                        host,
                        node.lessee,
                        refusal or "done",
                    )

    def _is_misleased(self, node: Node, owner: str | None) -> bool:
        """Whether a project could deploy a node past Nova that is not its owner."""
        return node.clean and node.lessee not in (None, owner, self._closed[OWNER])

    def _owners_of_hosts(self) -> dict[str, str]:
        """The projects of the hosts that belong to allocations."""
        ours = filter(_is_ours, self._aggregates.values())
        return {host: each.metadata.get(OWNER, "") for each in ours for host in each.hosts}

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """See ``Compute.occupants``; hosts in the order of their names."""
        hypervisors = self._known(hosts, search=True)
        found = self._not_evacuated(self._occupants(hosts, hypervisors), hypervisors)
        return self._dated(found)

    def _dated(self, occupants: Iterable[Occupant]) -> list[Occupant]:
        """The same occupants; servers that Nova keeps after their deletion with its time."""
        found, deleted = [], dict[str, Mapping[str, str]]()
        for one in occupants:
            if one.host not in deleted:
                bare = one.host in self._node_of
                deleted[one.host] = {} if bare else self._cloud.deleted_on(one.host)
            found.append(replace(one, deleted_at=deleted[one.host].get(one.consumer, "")))
        return found

    def hand_over(self, handover: Handover, ready: Collection[str] = ()) -> None:
        """See ``Compute.hand_over``. Repeating it changes nothing, but refreshes all schedulers.

        An existing aggregate is corrected before any check, so that it admits no wrong
        project even after an error. The hosts join the pool before the aggregate, so that
        they never accept other projects. If another project's server appears between the
        first and the last check, the aggregate is closed again.
        """
        desired = self._desired(handover)
        name, hosts = _name(handover.allocation_id), set(handover.hosts)
        with self._writing:
            self._begin()
            present = self._aggregates.get(name)
            in_place = present and present.hosts == hosts and present.isolates_as(desired)
            dirty: Mapping[str, str] = {}
            if present and in_place and self._reading.comparing:
                self._confirm(present, handover, desired)
                return
            if present:
                dirty = self._dirty(present, present.hosts - hosts)
                self._close_slots(present, present.hosts - hosts)
                self._correct(present, hosts.union(dirty), desired)
            if dirty:
                raise HostsBusy(f"hosts cannot be taken back: {listed(dirty.values())}")
            hypervisors = self._known(hosts)
            _check_ready(hosts.intersection(ready), hypervisors)
            if unknown := hosts - hypervisors.keys():
                raise NotFound("compute host", listed(sorted(unknown)))
            self._check_alone(handover, hypervisors)
            joining = self._lacking(present, hosts)
            self._check_clean(joining, hypervisors)
            self._welcome(joining, hypervisors)
            self._join_pool(hosts)
            self._set_slots(handover, hypervisors)
            aggregate = self._ensured(name, desired)
            aggregate = self._add_all(aggregate, self._lacking(aggregate, hosts))
            aggregate = self._ensure_mirrored(aggregate, handover, hypervisors)
            aggregate = self._set(aggregate, desired)
            self._reading.aggregates = None  # somebody may have changed some meanwhile
            self._check_written(self._aggregates.get(name), handover, desired)
            try:
                self._check_alone(handover, hypervisors, within=aggregate)
            except Conflict:
                if not in_place:
                    self._close(aggregate)
                raise

    def _confirm(
        self, aggregate: Aggregate, handover: Handover, desired: Mapping[str, str]
    ) -> None:
        """Touch an aggregate that is in place; look closer at hosts that seem to have strangers."""
        written = self._set(aggregate, desired)
        self._check_written(written, handover, desired)
        self._join_pool(handover.hosts)
        hypervisors = self._shared()
        if missing := set(handover.hosts) - hypervisors.keys():
            hypervisors = {**hypervisors, **self._known(missing)}
        if unknown := set(handover.hosts) - hypervisors.keys():
            raise NotFound("compute host", listed(sorted(unknown)))
        self._ensure_mirrored(written, handover, hypervisors)
        self._set_slots(handover, hypervisors)
        suspects = {
            server.host
            for host in handover.hosts
            for server in self._seen(host, hypervisors[host]).servers
            if handover.shared or server.project_id != handover.project_id
        }
        self._check_alone(handover, self._known(suspects), suspects)

    def fence(self, allocation_id: str) -> None:
        """See ``Compute.fence``."""
        with self._writing:
            self._begin()
            present = self._aggregates.get(_name(allocation_id))
            if present is not None:
                self._close(present)

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        """See ``Compute.take_back``. Closes the hosts first; then only the pool holds them.

        Servers of any project on the aggregate's hosts prevent it, and so do servers of the
        allocation's project on other hosts of the handover, also with ``force``. With that and
        ``delete_servers`` those of the allocation's project on the aggregate's hosts are deleted.
        """
        with self._writing:
            self._begin()
            present = self._aggregates.get(_name(handover.allocation_id))
            members = present.hosts if present else frozenset()
            if present:
                present = self._close(present)
            hypervisors = self._known({*members, *handover.hosts})
            if handover.shared or (present and SLOTS in present.metadata):
                self._take_back_slots(handover, present, hypervisors)
                return
            if force and self._delete_servers:
                self._delete_all(handover, members, hypervisors)
            self._check_emptied(handover, members, hypervisors, present)
            if present and (dirty := self._dirty(present, members, hypervisors)):
                raise HostsBusy(f"hosts cannot be taken back: {listed(dirty.values())}")
            if present:
                self._join_pool(members & hypervisors.keys())
                self._delete(present)
                self._check_emptied(handover, members, hypervisors)

    def _take_back_slots(
        self,
        handover: Handover,
        present: Aggregate | None,
        hypervisors: Mapping[str, Hypervisor],
    ) -> None:
        """Take back slots of shared hosts. The aggregate goes last: it tells that some are left."""
        hosts = {*handover.hosts, *(present.hosts if present else ())} & hypervisors.keys()
        name = class_of(handover.allocation_id)
        for host in sorted(hosts):
            self._slots.set_slots(hypervisors[host].providers[0], name, 0)
        held = {host: self._held_slots(host, hypervisors[host], [name]) for host in hosts}
        left = [
            o
            for o in self._without_slots(self._occupants(hosts, hypervisors), hypervisors)
            if o.project_id == handover.project_id
        ]
        left += [
            Occupant(host, id, handover.project_id) for host in sorted(held) for id in held[host]
        ]
        if left:
            text = _listed_occupants(self._dated(left))
            raise HostsBusy(f"slots cannot be taken back: {text}")
        self._slots.drop_class(name)
        if present:
            self._join_pool(present.hosts & hypervisors.keys())
            self._delete(present)

    def settle_slots(self, moves: SlotMoves) -> MoveProgress:
        """See ``Compute.settle_slots`` and ``slot_moves``."""
        hosts = moves.kept.keys()
        name = class_of(moves.handover.allocation_id)
        hypervisors = self._known(hosts)
        known = sorted(hosts & hypervisors.keys())
        held = {host: self._held_slots(host, hypervisors[host], [name]) for host in known}
        progress = slot_moves.settle(self._cloud, moves, held, shared_disks=self._shared_disks)
        if progress == MoveProgress():
            for host in known:
                provider = hypervisors[host].providers[0]
                self._slots.set_slots(provider, name, moves.kept[host])
        return progress

    def slot_holders(self, handover: Handover) -> Sequence[Occupant]:
        """See ``Compute.slot_holders``; hosts in the order of their names."""
        name = class_of(handover.allocation_id)
        hypervisors = self._known(handover.hosts)
        return self._dated(
            Occupant(host, consumer, handover.project_id)
            for host in sorted({*handover.hosts} & hypervisors.keys())
            for consumer in sorted(self._held_slots(host, hypervisors[host], [name]))
        )

    def _delete_all(
        self, handover: Handover, hosts: Iterable[str], hypervisors: Mapping[str, Hypervisor]
    ) -> None:
        """Ask for the end of the servers that the allocation's project has on these hosts.

        Refusals are not told: what is still there is.
        """
        for one in self._occupants(hosts, hypervisors):
            if one.project_id == handover.project_id:
                LOG.info("server %s on host %s is deleted by force", one.consumer, one.host)
                self._cloud.delete_server(one.consumer)

    def handed_over(self) -> Mapping[str, Handover]:
        """See ``Compute.handed_over``; the project of a fenced allocation is the sentinel.

        Slots are read in placement, host by host.
        """
        self._begin()
        found = self._handed_over(self._aggregates)
        shared = {a.metadata[ALLOCATION]: a for a in self._aggregates.values() if _is_shared(a)}
        hosts = {host for aggregate in shared.values() for host in aggregate.hosts}
        hypervisors = self._shared() if self._reading.comparing else self._known(hosts)
        inventories = {
            host: self._slots.inventory(hypervisors[host].providers[0])
            for host in sorted(hosts & hypervisors.keys())
        }
        with_slots = dict(found)
        for id, aggregate in shared.items():
            slots = {
                host: number
                for host, inventory in inventories.items()
                if host in aggregate.hosts and inventory is not None
                if (number := inventory.slots(aggregate.metadata[SLOTS]))
            }
            with_slots[id] = replace(found[id], share=slots)
        return with_slots

    def _handed_over(self, aggregates: Mapping[str, Aggregate]) -> Mapping[str, Handover]:
        return {
            aggregate.metadata[ALLOCATION]: Handover(
                aggregate.metadata[ALLOCATION],
                aggregate.admitted,
                tuple(sorted(aggregate.hosts)),
                Share.UNREAD if _is_shared(aggregate) else Share.WHOLE,
            )
            for aggregate in aggregates.values()
            if _is_ours(aggregate)
        }

    def observed(self) -> Observed:
        """See ``Compute.observed``. One list-aggregates call; servers are not checked."""
        self._begin()
        aggregates = self._aggregates
        closed = aggregates.get(self._closed_name)
        parts = (a for a in aggregates.values() if self._is_part(a.name))
        foreign = [
            aggregate
            for name, aggregate in sorted(aggregates.items())
            if not self._is_part(name) and not _is_ours(aggregate)
            if any(key.startswith(OWNER) for key in aggregate.metadata)
        ]
        return Observed(
            self._handed_over(aggregates),
            frozenset(h for part in parts if part.isolates_as(self._pooled) for h in part.hosts),
            {host: aggregate.name for aggregate in foreign for host in aggregate.hosts},
            closed.hosts if closed and closed.isolates_as(CLOSING) else frozenset(),
            frozenset(
                aggregate.metadata[ALLOCATION]
                for aggregate in aggregates.values()
                if _is_ours(aggregate) and aggregate.isolates_as(self._closed)
            ),
        )

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost]:
        """See ``Compute.look``. One listing of the hypervisors; projects are asked for once.

        With ``nodes``, one of the nodes and one of the aggregates as well.
        """
        hypervisors = self._listed()
        owners: dict[str, str] = {}
        if any(host.bare for host in hypervisors.values()):
            self._begin()
            owners = self._owners_of_hosts()
        listed_servers = {id for node in hypervisors.values() for id in node.servers}
        self._owners = {id: self._owners[id] for id in self._owners.keys() & listed_servers}
        return {
            host: self._seen(host, hypervisors[host], owners)
            for host in sorted(set(hosts) & hypervisors.keys())
        }

    def _seen(
        self, host: str, node: Hypervisor, owners: Mapping[str, str] = MappingProxyType({})
    ) -> ComputeHost:
        """``owners`` are the projects of the hosts that belong to allocations."""
        unknown = self._projects_of(host, node.servers - self._owners.keys(), node.bare)
        self._owners |= {id: project for id, project in unknown.items() if project}
        projects = unknown | {id: self._owners[id] for id in node.servers & self._owners.keys()}
        servers = (Occupant(host, id, project) for id, project in sorted(projects.items()))
        unfit = self._unfit(host, node.bare, owners.get(host)) if node.bare else ""
        name = "" if node.bare else self._cloud.names.nova(host)
        return ComputeHost(node.up, node.enabled, node.reason, tuple(servers), unfit, name)

    def _changed_hardware(self, host: str, node: Node) -> str:
        return "" if self.nodes is None or node.deployed else self.nodes.changed(host, node)

    def _unfit(self, host: str, node: Node, owner: str | None) -> str:
        """Why no new owner may get a node; for one with an owner why no server may start there."""
        if node.problem:
            return node.problem
        if node.deployed:
            return ""  # its servers tell
        if node.lessee not in (None, owner, self._closed[OWNER]):
            return (
                f"leased to project {node.lessee}, which could deploy it past Nova; clear it "
                f"(openstack baremetal node unset {node.name} --lessee)"
            )
        if owner is not None or self.nodes is None:
            return ""
        return node.unfit or self.nodes.suspicion(host, node)

    def nearest(self, hosts: Collection[str]) -> Mapping[str, str]:
        """See ``Compute.nearest``."""
        return self._cloud.names.nearest(hosts)

    def load(self, hosts: Collection[str]) -> ServerLoad:
        """See ``Compute.load``. One list-servers call for each host; disks of nodes stay."""
        bare = set(hosts) & self._node_of.keys()
        servers = [
            one
            for host in sorted(set(hosts) - bare)
            for one in self._cloud.servers_on(host).values()
        ]
        number = len(servers) + (len(self.occupants(bare)) if bare else 0)
        return ServerLoad(number, sum(server.disk_gb for server in servers))

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """See ``Compute.close``: ``closed`` are in an aggregate that ``LaasTenantFilter`` reads."""
        with self._writing:
            self._begin()
            aggregate = self._ensured(self._closed_name, CLOSING)
            aggregate = self._leave(aggregate, (set(hosts) & aggregate.hosts) - set(closed))
            joining = self._lacking(aggregate, set(closed) & set(hosts))
            self._set(self._add_all(aggregate, joining), CLOSING)

    def stop(self, server: str) -> None:
        """See ``Compute.stop``."""
        self._cloud.stop(server)

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """See ``Compute.move_servers`` and ``server_moves``; ``Forbidden`` if one is a node."""
        if {*moves.targets, *moves.targets.values()} & self._node_of.keys():
            raise Forbidden(
                "servers on bare metal do not move: create them anew on the new nodes, and delete "
                "the old ones"
            )
        return advance(self._cloud, moves, shared_disks=self._shared_disks)

    def server_limit(self, project_id: str) -> int | None:
        """See ``Compute.server_limit``."""
        limit = self._cloud.server_limit(project_id)
        return limit if limit >= 0 else None

    def forged_rebuilds(self) -> str | None:
        """What Nova shows about OSSA-2026-022, in a sentence; None if there is nothing to do.

        The newest microversion tells the series, but not the point release.
        """
        newest = self._cloud.newest_version()
        if newest < SOUND_VERSION:
            found = (
                f"Nova offers {newest[0]}.{newest[1]}, so it is older than 34.0.0: unless it is "
                "31.3.1, 32.2.1, 33.0.2 or newer in its series, update it (OSSA-2026-022)"
            )
        else:
            found = None
        shown = tuple(map(int, HINTS_VERSION.split(".")))
        if newest < shown:
            return f"{found}; it does not show which servers were created with a forged hint"
        try:
            servers = self._cloud.hinted_servers(FORGED_HINT)
        except Forbidden as error:
            return "; ".join(filter(None, [found, f"forged hints are not looked for: {error}"]))
        if servers:
            forged = f"servers were created with the forged hint {FORGED_HINT}: {listed(servers)}"
            return "; ".join(filter(None, [found, forged]))
        return found

    def unmoved_servers(self) -> str | None:
        """Why the service cannot move the servers of tenants; None if it can list migrations.

        Nova has no call that tells whether it may ask for a migration.
        """
        try:
            self._cloud.migrations("00000000-0000-0000-0000-000000000000")
        except Forbidden as error:
            return f"servers of tenants that move are left to their owners: {error}"
        return None

    def unread_memberships(self) -> str | None:
        """Why the service cannot tell the aggregates of a node in placement; None if it can.

        Placement has no call that tells whether it may change them.
        """
        hosts = self._listed()
        node = next((host.providers[0] for host in hosts.values() if host.bare), None)
        try:
            if node is not None:
                self._cloud.memberships(node)
        except Forbidden as error:
            return str(error)
        return None

    def candidates(self) -> tuple[str | None, str]:
        """What placement offers to other projects: a problem or None, and what is well.

        The scheduler's two longest requests are made: the one for a project without an
        allocation, with ``nova_filters.laas.hide_pool``, and the one of Nova's pre-filter for the
        project with most allocations. The second value is empty if there is a problem.
        """
        aggregates = self._cloud.aggregates()
        parts = [part for name, part in sorted(aggregates.items()) if self._is_part(name)]
        if not parts:
            return None, "there is no pool yet"
        pooled: set[str] = set()
        for part in parts:
            members = self._cloud.members(part)
            pooled |= members
            if len(members) < len(part.hosts):
                return (
                    f"placement shows {len(members)} of {len(part.hosts)} hosts of aggregate "
                    f"{part.name} and offers the others to every project; run nova-manage "
                    "placement sync_aggregates"
                ), ""
        owned: dict[str, list[str]] = {}
        for aggregate in filter(_is_ours, aggregates.values()):
            owned.setdefault(aggregate.metadata.get(OWNER, ""), []).append(aggregate.uuid)
        owned.pop(self._closed[OWNER], None)
        uuids = ",".join(sorted(part.uuid for part in parts))
        most = max(owned.items(), key=lambda item: (len(item[1]), item), default=("", []))
        try:
            offered, size = self._cloud.candidates(f"!in:{uuids}")
            if most[1]:
                self._cloud.candidates(f"in:{','.join(sorted(most[1]))}")
        except Unavailable as error:
            return (
                f"{error}; the scheduler makes such requests: if their length is refused, raise "
                "the limit of placement's web server (uWSGI: buffer-size)"
            ), ""
        if wrong := offered & pooled:
            return f"placement offers {len(wrong)} hosts of the pool to projects without one", ""
        shown = f"{len(offered)}{' or more' if len(offered) >= CANDIDATES else ''}"
        return None, (
            f"placement offers {shown} hosts outside the pool to other projects (a request of "
            f"{size:,} bytes)"
        )

    # -- checks -------------------------------------------------------------------

    def _desired(self, handover: Handover) -> dict[str, str]:
        """The metadata of an allocation's aggregate. Raises: InvalidInput."""
        project, id = handover.project_id, handover.allocation_id
        if not project.strip() or "," in project or len(project) > 255:
            raise InvalidInput("project_id", project, "name one project, up to 255 characters")
        if project == self._closed[OWNER]:
            raise InvalidInput("project_id", project, "this id stands for no project")
        if self._is_part(_name(id)):
            raise InvalidInput("allocation_id", id, "its aggregate would be the pool")
        shared = {SLOTS: class_of(id)} if handover.shared else {}
        return {OWNER: project, ALLOCATION: id, **shared}

    def _set_slots(self, handover: Handover, hypervisors: Mapping[str, Hypervisor]) -> None:
        """Have the slots of an allocation of class ``shared`` in placement. Raises: Conflict."""
        if not handover.shared:
            return
        name = class_of(handover.allocation_id)
        self._slots.ensure_class(name)
        for host in sorted(handover.hosts):
            provider, slots = hypervisors[host].providers[0], handover.slots_on(host)
            self._slots.set_slots(provider, name, slots)
            self._slots.check(provider, name, slots)

    def _close_slots(self, aggregate: Aggregate, hosts: Collection[str]) -> None:
        """Let no server of an allocation of class ``shared`` start on hosts that it leaves."""
        if SLOTS not in aggregate.metadata or not hosts:
            return
        hypervisors = self._known(hosts)
        for host in sorted(hypervisors.keys() & hosts):
            provider = hypervisors[host].providers[0]
            self._slots.set_slots(provider, aggregate.metadata[SLOTS], 0)

    def _held_slots(
        self, host: str, node: Hypervisor, classes: Iterable[str] | None = None
    ) -> set[str]:
        """The consumers with a slot on a host. Raises: Conflict, if hosts like it have no slots."""
        _check_divisible(host, node)
        return self._slots.holders(node.providers[0], classes)

    def _without_slots(
        self, occupants: Iterable[Occupant], hypervisors: Mapping[str, Hypervisor]
    ) -> list[Occupant]:
        """Those occupants that hold no slot of any allocation, and are there still."""
        held: dict[str, set[str]] = {}
        found = []
        for one in occupants:
            node = hypervisors[one.host]
            if one.host not in held:
                held[one.host] = self._held_slots(one.host, node)
            if one.consumer in held[one.host]:
                continue
            placed = self._cloud.owner(one.consumer) is not None
            if placed or one.consumer in node.servers:
                found.append(one)
        return found

    def _check_alone(
        self,
        handover: Handover,
        hypervisors: Mapping[str, Hypervisor],
        hosts: Collection[str] | None = None,
        within: Aggregate | None = None,
    ) -> None:
        """Raise if other projects have servers on the hosts, or another aggregate admits them.

        With ``hosts``, servers are looked for on these only; ``within`` as in ``_occupants``.
        """
        shared = handover.shared
        asked = handover.hosts if hosts is None else hosts
        for host in asked if shared else ():
            _check_divisible(host, hypervisors[host])
        occupants = self._occupants(asked, hypervisors, None if shared else within)
        if shared:
            strangers = self._without_slots(occupants, hypervisors)
        else:
            strangers = [o for o in occupants if o.project_id != handover.project_id]
        if strangers:
            lacking = ", which holds no slot" if shared else ""
            raise HostsBusy(f"hosts cannot be handed over: {_listed_occupants(strangers)}{lacking}")
        if foreign := self._foreign(handover.hosts, _name(handover.allocation_id), shared=shared):
            raise Conflict(foreign)

    def _check_clean(self, hosts: Iterable[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Raise unless the nodes among these hosts may be handed over.

        Those with servers may: ``_check_alone`` found none of others.
        """
        bare = {host: hypervisors[host].bare for host in hosts}
        if unfit := [
            f"{host} is {why}"
            for host, node in sorted(bare.items())
            if node and (why := self._unfit(host, node, None) or self._changed_hardware(host, node))
        ]:
            raise HostsBusy(f"hosts cannot be handed over: {listed(unfit)}")

    def _welcome(self, hosts: Iterable[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Forget what nodes owed when they left their last allocation; they join another one."""
        bare = (hypervisors[host].bare for host in hosts)
        for node in filter(None, bare):
            if self.nodes and node.debt:
                self.nodes.welcome(node)

    def _dirty(
        self,
        aggregate: Aggregate,
        hosts: Collection[str],
        hypervisors: Mapping[str, Hypervisor] = MappingProxyType({}),
    ) -> Mapping[str, str]:
        """By host a sentence about each node of an aggregate that may not be free, as it is now.

        Nodes that were just read are in ``hypervisors``.
        """
        found, id = {}, aggregate.metadata.get(ALLOCATION, "")
        just_read = {seen.bare.uuid: seen.bare for seen in hypervisors.values() if seen.bare}
        for uuid, host in sorted(aggregate.nodes.items(), key=lambda item: item[1]):
            if self.nodes is None or host not in hosts:
                continue
            node = just_read.get(uuid) or self.nodes.node(uuid)
            if node and (text := self.nodes.leaving(host, node, id)):
                found[host] = text
        return found

    def _check_emptied(
        self,
        handover: Handover,
        members: Collection[str],
        hypervisors: Mapping[str, Hypervisor],
        within: Aggregate | None = None,
    ) -> None:
        occupants = self._occupants({*members, *handover.hosts}, hypervisors, within)
        occupants = self._not_evacuated(occupants, hypervisors)
        left = [o for o in occupants if o.host in members or o.project_id == handover.project_id]
        if left:
            text = _listed_occupants(self._dated(left))
            raise HostsBusy(f"hosts cannot be taken back: {text}")

    def _check_written(
        self, written: Aggregate | None, handover: Handover, desired: Mapping[str, str]
    ) -> None:
        if (
            written is None
            or written.hosts != set(handover.hosts)
            or not written.isolates_as(desired)
        ):
            name = _name(handover.allocation_id)
            raise Unavailable(f"aggregate {name} is not as it was written: somebody changes it")

    def _foreign(
        self, hosts: Iterable[str], own: str | None = None, *, shared: bool = False
    ) -> str | None:
        """A sentence that names other aggregates that admit projects to these hosts.

        With ``own``, the aggregates of other allocations count too, with ``shared`` only those that
        are not of class ``shared``. The sentence never advises to change these: they protect hosts
        of somebody, also where their allocation is of another fabric or not recorded.
        """
        ours = set(hosts)
        found = [
            (aggregate, f"aggregate {aggregate.name} has {listed(sorted(both))}")
            for name, aggregate in sorted(self._aggregates.items())
            if name != own
            and not self._is_part(name)
            and not (own is None and _is_ours(aggregate))
            and not (shared and _is_shared(aggregate))
            and any(key.startswith(OWNER) for key in aggregate.metadata)
            and (both := aggregate.hosts & ours)
        ]
        owned = [told for aggregate, told in found if ALLOCATION in aggregate.metadata]
        if owned:
            return (
                f"hosts belong to other allocations: {'; '.join(owned)}. Leave these aggregates as "
                "they are; if two fabrics record the same hosts, release the allocations of one of "
                "them, then delete that fabric (laas fabric delete)"
            )
        if foreign := [told for _, told in found]:
            return (
                f"other aggregates with {OWNER} hold our hosts, remove these from them: "
                + "; ".join(foreign)
            )
        return None

    def _occupants(
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
            asked -= self._empty_in([within], asked, hypervisors, TOGETHER)
        for host in sorted(asked):
            node = hypervisors[host]
            if len(node.providers) > 1:
                raise Conflict(
                    f"compute host {host} has {len(node.providers)} nodes (Ironic?); give the "
                    "service a login in [ironic], and name the nodes as hosts"
                )
            placed = self._cloud.consumers(node.providers[0])
            found = placed | self._projects_of(host, node.servers - placed.keys(), node.bare)
            occupants += [Occupant(host, id, project) for id, project in sorted(found.items())]
        return occupants

    def _not_evacuated(
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
            return self._cloud.evacuated_from(host)
        except Forbidden as error:
            LOG.warning("servers that were evacuated from host %s count as there: %s", host, error)
            return set()

    def _empty(self, hosts: Iterable[str], hypervisors: Mapping[str, Hypervisor]) -> set[str]:
        """Those of many hosts in the pool that are empty, as far as few requests tell.

        ``_occupants`` asks placement for each host.
        """
        asked = set(hosts)
        if len(asked) < SEVERAL:
            return set()
        return self._empty_in(self._parts().values(), asked, hypervisors, SEVERAL)

    def _empty_in(
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
                    found = self._cloud.empty_members(aggregate, resource)
                except Forbidden as error:
                    LOG.info("placement is asked for the servers of each host: %s", error)
                    return empty
                empty |= {host for host, provider in providers.items() if provider in found}
        return empty

    def _projects_of(
        self, host: str, servers: Collection[str], bare: Node | None
    ) -> dict[str, str | None]:
        """The projects of these servers of a host, without those that are gone by now.

        Placement does not know servers that were scheduled without it. None: the service's user
        may not list servers, or nobody told whose the instance of a node is.
        """
        owners = {server: self._cloud.owner(server) for server in sorted(servers)}
        unknown = {server for server, project in owners.items() if project is None}
        if not unknown:
            return owners
        if bare:
            lessee = None if bare.lessee == self._closed[OWNER] else bare.lessee
            return {id: project or lessee for id, project in owners.items()}
        try:
            listed_servers = self._cloud.servers_on(host)
        except Forbidden as error:
            LOG.warning("servers without an allocation in placement on host %s: %s", host, error)
            return owners
        gone = unknown - listed_servers.keys()
        return {
            id: owner or listed_servers[id].project_id
            for id, owner in owners.items()
            if id not in gone
        }

    # -- what Nova has --------------------------------------------------------------

    def _begin(self) -> None:
        """Read the aggregates anew where they are needed, unless this is a comparison."""
        if not self._reading.comparing:
            self._reading.aggregates = None

    @property
    def _aggregates(self) -> dict[str, Aggregate]:
        if self._reading.aggregates is None:
            self._reading.aggregates = self._cloud.aggregates()
        return self._reading.aggregates

    def _listed(self) -> Mapping[str, Hypervisor]:
        """All hypervisors, as they are now."""
        begun, names = time.monotonic(), self._cloud.names.changes
        if self.nodes is None:
            found = self._cloud.hypervisors()
        else:
            found, nodes = self._cloud.hypervisors_and_nodes()
            by_host = self.nodes.by_host(found).items()
            bare = {h: n for h, n in by_host if h not in found and n.uuid in nodes}
            self._node_of = {host: node.uuid for host, node in bare.items()}
            found |= {host: _with(nodes[node.uuid], node) for host, node in bare.items()}
        self._listing = _Listing(found, begun)
        if self._cloud.names.changes != names:
            self._reading.aggregates = None  # they were read under other names
        return found

    def _shared(self) -> Mapping[str, Hypervisor]:
        """All hypervisors, as somebody listed them not long ago."""
        listing = self._listing
        return listing.hypervisors if listing and listing.is_recent else self._listed()

    def _known(self, hosts: Collection[str], *, search: bool = False) -> Mapping[str, Hypervisor]:
        """At least those of these hosts that Nova has, as they are now.

        A list costs Nova some 10 ms for each host of the cloud. Where few of many are asked for,
        they are searched by the names of their nodes, which an earlier list told. Without one,
        all are listed or, with ``search``, searched by the names of the hosts.
        """
        listing = self._listing
        if not hosts:
            return {}
        if listing is None:
            return self._searched({host: host for host in hosts}) if search else self._listed()
        known = listing.hypervisors
        if len(known) <= max(FEW, 4 * len(hosts)):
            return self._listed()
        asked = {host: known[host] for host in hosts if host in known}
        several = any(len(node.providers) > 1 for node in asked.values())
        if several or (len(asked) < len(set(hosts)) and not listing.is_recent):
            return self._listed()
        return self._searched({host: node.node for host, node in asked.items()})

    def _searched(self, names: Mapping[str, str]) -> Mapping[str, Hypervisor]:
        """These hosts, each by a part of its node's name; all are listed if one is not found."""
        found: dict[str, Hypervisor] = {}
        for host, name in sorted(names.items(), key=lambda pair: (len(pair[1]), pair)):
            if self.nodes and self._listing and self._node_of.get(host) == name:
                if node := self.nodes.node(name):
                    found[host] = _with(self._listing.hypervisors[host], node)
            elif host not in found:
                found |= self._cloud.hypervisors_named(name)
            if host not in found:
                return self._listed()
        return found

    # -- changes ------------------------------------------------------------------

    def _changed(self, answer: Callable[[], Aggregate | str]) -> Aggregate | str:
        """Carry out a write, and remember the aggregate that it left."""
        try:
            written = answer()
        except LaasError:
            self._reading.aggregates = None
            raise
        if isinstance(written, str):
            self._reading.aggregates = None
        elif self._reading.aggregates is not None:
            self._reading.aggregates[written.name] = written
        return written

    def _ensured(self, name: str, desired: Mapping[str, str]) -> Aggregate:
        """The aggregate of this name, created and corrected if necessary."""
        present = self._aggregates.get(name)
        if present is None:
            made = self._changed(lambda: self._cloud.create(name))
            present = self._aggregates.get(name)
            if present is None:
                raise Conflict(f"aggregate {name} cannot be created: {made or 'it vanished'}")
        return present if present.isolates_as(desired) else self._set(present, desired)

    def _correct(
        self, aggregate: Aggregate, hosts: Collection[str], desired: Mapping[str, str]
    ) -> None:
        """Make an aggregate admit only the desired project, and only to these hosts.

        A closed aggregate stays closed, because another project may have servers there. Stray
        hosts leave before the metadata admit the desired project.
        """
        stray = aggregate.hosts - set(hosts)
        closed = aggregate.isolates_as(self._closed)
        if stray and not aggregate.isolates_as(desired):
            self._close(aggregate)
        elif not closed:
            self._set(aggregate, desired)
        if stray:
            self._join_pool(stray & self._known(stray).keys())
            self._leave(aggregate, stray)
            if not closed:
                self._ensured(aggregate.name, desired)

    def _set(self, aggregate: Aggregate, desired: Mapping[str, str]) -> Aggregate:
        """Write the metadata even if unchanged, as that makes every scheduler read them again."""
        keys = {**aggregate.corrections(desired), **desired}
        written = self._changed(lambda: self._cloud.set_metadata(aggregate, keys))
        if isinstance(written, str):
            raise Conflict(f"cannot set the metadata of aggregate {aggregate.name}: {written}")
        return written

    def _close(self, aggregate: Aggregate) -> Aggregate:
        written = self._set(aggregate, self._closed)
        if not written.isolates_as(self._closed):
            raise Unavailable(f"aggregate {aggregate.name} is not closed: somebody changes it")
        return written

    def _lacking(self, aggregate: Aggregate | None, hosts: Collection[str]) -> list[str]:
        """Those of these hosts that the aggregate does not have, or has as another node."""
        if aggregate is None:
            return sorted(hosts)
        return sorted(
            host
            for host in hosts
            if host not in aggregate.hosts
            or (host in self._node_of and aggregate.nodes.get(self._node_of[host]) != host)
        )

    def _add_all(self, aggregate: Aggregate, hosts: Collection[str]) -> Aggregate:
        """Add hosts; nodes together."""
        if bare := self._node_of.keys() & set(hosts):
            aggregate = self._ensure_nodes(aggregate, bare)
        for host in sorted(set(hosts) - bare):
            aggregate = self._add(aggregate, host)
        return aggregate

    def _ensure_nodes(self, aggregate: Aggregate, hosts: Collection[str]) -> Aggregate:
        """Make those of these hosts that are nodes members of the aggregate, in Nova and placement.

        Other nodes that are members in placement alone leave, and so do those that were the hosts
        before.
        """
        wanted = {self._node_of[host]: host for host in hosts if host in self._node_of}
        before = {uuid: h for uuid, h in aggregate.nodes.items() if h in wanted.values()}
        keys: dict[str, str | None] = {f"{NODE}{uuid}": None for uuid in before.keys() - wanted}
        keys |= {f"{NODE}{uuid}": h for uuid, h in wanted.items() if before.get(uuid) != h}
        if keys:
            written = self._changed(lambda: self._cloud.set_metadata(aggregate, keys))
            if isinstance(written, str):
                raise Conflict(f"nodes cannot join aggregate {aggregate.name}: {written}")
            aggregate = written
        members = self._cloud.members(aggregate)
        for uuid in sorted(wanted.keys() - members):
            LOG.info("node %s joins aggregate %s in placement", wanted[uuid], aggregate.name)
            if refusal := self._cloud.set_member(aggregate, uuid, member=True):
                raise Conflict(
                    f"node {wanted[uuid]} cannot join aggregate {aggregate.name}: {refusal}"
                )
        known = {*self._node_of.values(), *before}
        for uuid in sorted((members & known) - aggregate.nodes.keys()):
            LOG.warning("node %s leaves aggregate %s in placement", uuid, aggregate.name)
            self._withdraw(aggregate, uuid)
        return aggregate

    def _withdraw(self, aggregate: Aggregate, node: str) -> None:
        if refusal := self._cloud.set_member(aggregate, node, member=False):
            raise Conflict(f"node {node} cannot leave aggregate {aggregate.name}: {refusal}")

    def _add(self, aggregate: Aggregate, host: str) -> Aggregate:
        written = self._changed(lambda: self._cloud.add_host(aggregate, host))
        if not isinstance(written, str):
            return written
        present = self._aggregates.get(aggregate.name)
        if present and host in present.hosts:
            return present
        if host not in self._listed():
            raise NotFound("compute host", host)
        if host in self._node_of:
            return self._ensure_nodes(aggregate, {host})
        raise Conflict(f"host {host} cannot join aggregate {aggregate.name}: {written}")

    def _leave(self, aggregate: Aggregate, hosts: Iterable[str]) -> Aggregate:
        for host in sorted(hosts):
            aggregate = self._remove(aggregate, host)
        return aggregate

    def _remove(self, aggregate: Aggregate, host: str) -> Aggregate:
        if uuids := sorted(uuid for uuid, name in aggregate.nodes.items() if name == host):
            for uuid in uuids:
                self._withdraw(aggregate, uuid)
            keys = {f"{NODE}{uuid}": None for uuid in uuids}
            unnamed = self._changed(lambda: self._cloud.set_metadata(aggregate, keys))
            if isinstance(unnamed, str):
                raise Conflict(f"node {host} cannot leave aggregate {aggregate.name}: {unnamed}")
            return unnamed
        written = self._changed(lambda: self._cloud.remove_host(aggregate, host))
        if not isinstance(written, str):
            return written
        present = self._aggregates.get(aggregate.name)
        if present and host in present.hosts:
            raise Conflict(f"host {host} cannot leave aggregate {aggregate.name}: {written}")
        return present or replace(aggregate, hosts=aggregate.hosts - {host})

    def _is_part(self, name: str) -> bool:
        """Whether this is the name of one of the pool's aggregates."""
        return bool(re.fullmatch(re.escape(self._pool_name) + r"(-\d\d)?", name))

    def _parts(self) -> dict[str, Aggregate]:
        """The pool's aggregates by name, corrected; the first is created if necessary."""
        self._ensured(self._pool_name, self._pooled)
        names = sorted(filter(self._is_part, self._aggregates))
        return {name: self._ensured(name, self._pooled) for name in names}

    def _with_room(self, parts: Mapping[str, Aggregate], size: int) -> Aggregate:
        """An aggregate of the pool with fewer hosts than ``size``; a new one if none has."""
        if part := next((part for part in parts.values() if len(part.hosts) < size), None):
            return part
        free = (f"{self._pool_name}-{number:02d}" for number in range(1, 100))
        name = next((name for name in free if name not in parts), None)
        if name is None:
            raise Conflict(
                f"the pool {self._pool_name} has {len(parts)} aggregates, all full, so hosts are "
                "in several of them: remove each of these hosts from all but one (openstack "
                "aggregate remove host)"
            )
        return self._ensured(name, self._pooled)

    def _join_pool(self, hosts: Collection[str], *, touch: bool = False) -> None:
        """Add hosts to the pool; write the metadata again where one joined, or with ``touch``.

        A host that cannot join does not keep out the others; the first error is raised then.
        """
        parts = self._parts()
        pooled = {host for part in parts.values() for host in part.hosts}
        missing = sorted(
            set.intersection(*(set(self._lacking(part, hosts)) for part in parts.values()))
        )
        size = _part_size(len(pooled.union(missing)))
        touched = set(parts) if touch else set()
        refusals: list[LaasError] = []
        bare: dict[str, set[str]] = {}
        for host in missing:
            part = self._with_room(parts, size)
            touched.add(part.name)
            if host in self._node_of:
                bare.setdefault(part.name, set()).add(host)
                parts[part.name] = replace(part, hosts=part.hosts | {host})
                continue
            try:
                parts[part.name] = self._add(part, host)
            except (Conflict, NotFound) as error:
                parts[part.name] = part
                refusals.append(error)
        for name, nodes in sorted(bare.items()):
            try:
                parts[name] = self._ensure_nodes(parts[name], nodes)
            except Conflict as error:
                refusals.append(error)
        for name in sorted(touched):
            self._set(parts[name], self._pooled)
        if refusals:
            raise refusals[0]

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
                part = self._add_all(self._with_room(parts, size), [host])
                parts[part.name] = self._set(part, self._pooled)
        self._leave(crowded, moving)

    def _ensure_mirrored(
        self, aggregate: Aggregate, handover: Handover, hypervisors: Mapping[str, Hypervisor]
    ) -> Aggregate:
        """Add hosts again that placement lacks, as Nova answers 200 even if updating it failed."""
        if aggregate.nodes:
            aggregate = self._ensure_nodes(aggregate, handover.hosts)
        if not (lacking := self._unmirrored(aggregate, handover, hypervisors)):
            return aggregate
        for host in lacking:
            LOG.warning(
                "placement does not show host %s in aggregate %s; adding it again",
                host,
                aggregate.name,
            )
            aggregate = self._add_all(self._remove(aggregate, host), [host])
        if lacking := self._unmirrored(aggregate, handover, hypervisors):
            raise Unavailable(
                f"placement does not show host {listed(lacking)} in aggregate {aggregate.name}; "
                "if this persists, run nova-manage placement sync_aggregates"
            )
        return aggregate

    def _unmirrored(
        self, aggregate: Aggregate, handover: Handover, hypervisors: Mapping[str, Hypervisor]
    ) -> list[str]:
        members = self._cloud.members(aggregate)
        return sorted(h for h in handover.hosts if not members.issuperset(hypervisors[h].providers))

    def _delete(self, aggregate: Aggregate) -> None:
        for node in sorted(aggregate.nodes):
            self._withdraw(aggregate, node)
        aggregate = self._leave(aggregate, aggregate.hosts - {*aggregate.nodes.values()})
        refusal = self._cloud.delete(aggregate)
        self._reading.aggregates = None
        if refusal and aggregate.name in self._aggregates:
            raise Conflict(f"aggregate {aggregate.name} is not deleted: {refusal}")


def connect(
    conf: cfg.ConfigOpts,
    guids: Callable[[], Mapping[str, Collection[int]]] = dict,
    beat: Callable[[str], None] = lambda action: None,
    names: Callable[[], Mapping[str, str]] = dict,
) -> NovaCompute:
    """The port as [compute], [nova] and [placement] configure it; it does not call Nova yet.

    With a login in [ironic] hosts may be Ironic's nodes. ``guids`` as in ``Nodes``, ``beat`` as in
    ``Cloud``, ``names`` are the recorded names of ``HostNames``.

    Raises:
        InvalidInput: the options give no login, or the file of names is wrong.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, "nova")
        own = loading.load_auth_from_conf_options(conf, "placement")
        nova, placement = (
            loading.load_adapter_from_conf_options(
                conf, group, session=loading.load_session_from_conf_options(conf, group), auth=login
            )
            for group, login in (("nova", auth), ("placement", own or auth))
        )
    except keystone_errors.ClientException as error:
        raise InvalidInput("[nova], [placement]", "login", str(error)) from error
    if auth is None:
        raise InvalidInput("[nova] auth_type", None, "set it, for example to password")
    ironic = ironic_nodes.connect(conf, guids, beat)
    told = read_pairs(conf.compute.host_names) if conf.compute.host_names else {}
    client = nova_client.Client(
        NOVA_VERSION,
        session=nova.session,
        auth=auth,
        endpoint_type=nova.interface,
        **{name: getattr(nova, name) for name in _ADAPTER_OPTIONS},
    )
    return NovaCompute(
        Cloud(client, placement, beat, HostNames(names, told)),
        pool=conf.compute.pool,
        sentinel=conf.compute.sentinel,
        shared_disks=conf.compute.shared_disks,
        delete_servers=conf.compute.delete_servers,
        clear_lessees=conf.compute.clear_lessees,
        nodes=ironic[1] if ironic else None,
    )


_ADAPTER_OPTIONS = (
    "connect_retries",
    "connect_retry_delay",
    "endpoint_override",
    "region_name",
    "service_name",
    "service_type",
    "status_code_retries",
    "status_code_retry_delay",
)


def _name(allocation_id: str) -> str:
    return f"laas-{allocation_id}"


def _part_size(hosts: int) -> int:
    """How many hosts an aggregate of the pool may have, of so many in all."""
    return max(PART, math.ceil(hosts / PARTS))


def _is_ours(aggregate: Aggregate) -> bool:
    return ALLOCATION in aggregate.metadata and aggregate.name == _name(
        aggregate.metadata[ALLOCATION]
    )


def _is_shared(aggregate: Aggregate) -> bool:
    """Whether it is of an allocation of class ``shared``."""
    return _is_ours(aggregate) and SLOTS in aggregate.metadata


def _check_divisible(host: str, hypervisor: Hypervisor) -> None:
    """Raise Conflict if a host has no slots, because one server takes it whole."""
    if hypervisor.bare or len(hypervisor.providers) > 1:
        text = f"host {host} is a bare-metal node, which has one owner and no slots"
        raise Conflict(f"{text}; share hosts on which Nova runs several servers")


def _check_ready(hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
    """Raise Unavailable if one of these hosts, as they are now, could start no server."""
    problems = []
    for host in sorted(hosts):
        seen = hypervisors.get(host)
        why = HostView(seen.up, seen.enabled, seen.reason).problem if seen else UNKNOWN
        problems += [f"{host} is {why}"] if why else []
    if problems:
        raise Unavailable(f"hosts cannot be handed over now: {listed(problems)}")


def _listed_occupants(occupants: Collection[Occupant]) -> str:
    text = listed(sorted(f"{one.host} {one.text}" for one in occupants))
    return f"{text}; {KEPT}" if any(one.deleted_at for one in occupants) else text


def _with(compute: Hypervisor, node: Node) -> Hypervisor:
    """A node as Nova and Ironic have it; Ironic tells its server."""
    servers = {node.instance or node.uuid} if node.deployed else ()
    return replace(compute, servers=frozenset(servers), bare=node)
