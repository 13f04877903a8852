# SPDX-License-Identifier: Apache-2.0

"""Compute port on Nova: a host aggregate for each allocation, and a pool that admits no project.

Which module answers what:

=====================================  ===========================================================
how hosts are handed over, taken back  ``handover``, ``take_back``; ``pool``, ``closed_hosts``
who is on a host, who is a stranger    ``occupancy``, ``strangers``; ``hosts`` lists them
what the aggregates say                ``observation``, ``keys``; ``members`` changes one of them
class ``shared``                       ``sharing``; ``shares`` is what others need of it
servers that move                      ``moves``, ``server_moves``
Ironic's nodes behind Nova             ``nodes``
names of hosts that differ in Nova     ``names``
checks of ``laas-status``              ``checks``
calls to Nova and placement            ``cloud``: ``aggregates``, ``hypervisors``, ``servers``,
                                       ``placement``
=====================================  ===========================================================

Every change starts from Nova's present state and ends with a check, so it may be repeated at any
time, even after a lost answer. ``occupancy``, ``strangers``, ``hosts``, ``observation``, ``checks``
and ``SlotHolders`` change nothing. ``aggregates`` remembers the aggregates that a thread
has read, ``hosts`` the last list of the hypervisors, and ``occupancy`` the projects of servers.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from oslo_config import cfg

from laas_service.adapters import ironic_nodes
from laas_service.adapters.ironic_nodes import Nodes
from laas_service.adapters.nova import cloud as nova_and_placement
from laas_service.adapters.nova.aggregates import Aggregates
from laas_service.adapters.nova.checks import Checks
from laas_service.adapters.nova.closed_hosts import ClosedHosts
from laas_service.adapters.nova.cloud import Cloud
from laas_service.adapters.nova.handover import HandingOver
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.keys import OwnKeys
from laas_service.adapters.nova.members import Members
from laas_service.adapters.nova.moves import NextMoves
from laas_service.adapters.nova.nodes import NodeCare, NodeFitness
from laas_service.adapters.nova.observation import AggregateReader
from laas_service.adapters.nova.occupancy import Occupancy
from laas_service.adapters.nova.pool import PoolAggregates
from laas_service.adapters.nova.sharing.placement_slots import PlacementSlots
from laas_service.adapters.nova.sharing.settling import SettlingSlots
from laas_service.adapters.nova.sharing.slots import SlotCounts, SlotHolders
from laas_service.adapters.nova.sharing.take_back import TakingBackSlots
from laas_service.adapters.nova.strangers import StrangerSearch
from laas_service.adapters.nova.take_back import TakingBack
from laas_service.app.ports.compute import (
    ComputeHost,
    Handover,
    MoveProgress,
    ObservedAggregates,
    Occupant,
    ServerLoad,
    ServerMoves,
    SlotMoves,
)


class NovaCompute:
    """The ``Compute`` port on Nova and placement; one writer at a time in this process.

    ``pool`` is the name of the first aggregate of all managed hosts; further ones have a number
    behind it. ``sentinel`` is a project id that no project has. With ``shared_disks`` the local
    disks of servers outlive their host; with ``delete_servers`` a release by force deletes
    servers; with ``clear_lessees`` nodes are taken from lessees that are not their owners. Hosts
    that Nova does not know count as empty, so a deleted compute service does not block a release;
    pooling or handing them over raises ``NotFound``.

    Hosts of class ``shared`` are in the aggregates of several allocations, all of that class. Their
    slots are claimed in placement (``sharing``), so a server without a slot is a stranger.

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
        self.cloud = cloud
        self.nodes = nodes
        self._writing = threading.Lock()
        keys, fitness = OwnKeys(pool, sentinel), NodeFitness(nodes, sentinel)
        # what reads
        self._aggregates = aggregates = Aggregates(cloud.aggregates)
        self.hosts = hosts = Hosts(cloud.hypervisors, cloud.names, nodes, aggregates)
        self._occupancy = occupancy = Occupancy(
            cloud.placement, cloud.servers, hosts, aggregates, fitness
        )
        placed_slots = PlacementSlots(cloud.placement_adapter, cloud.beat)
        self._holders = holders = SlotHolders(placed_slots, cloud.placement, hosts)
        self._observation = AggregateReader(keys, aggregates, holders)
        strangers = StrangerSearch(keys, aggregates, occupancy, holders)
        self.checks = Checks(keys, cloud.aggregates, cloud.servers, cloud.placement, hosts)
        # what changes
        members = Members(cloud.aggregates, cloud.placement, aggregates, hosts, keys)
        care = NodeCare(nodes, fitness, aggregates, clear_lessees=clear_lessees)
        slots = SlotCounts(placed_slots, hosts)
        self._pool = PoolAggregates(keys, aggregates, hosts, members, occupancy, strangers, care)
        self._handing_over = HandingOver(
            keys, aggregates, hosts, members, self._pool, strangers, slots, care
        )
        self._taking_back = TakingBack(
            aggregates,
            hosts,
            members,
            self._pool,
            occupancy,
            care,
            TakingBackSlots(members, self._pool, occupancy, holders, slots).take_back,
            cloud.servers.delete_server if delete_servers else None,
        )
        self._closed_hosts = ClosedHosts(keys, members)
        self._moves = NextMoves(cloud.servers, hosts, shared_disks=shared_disks)
        self._settling = SettlingSlots(
            cloud.servers, hosts, holders, slots, shared_disks=shared_disks
        )

    # -- what reads ---------------------------------------------------------------

    def comparison(self) -> AbstractContextManager[None]:
        """See ``Compute.comparison``. Aggregates are listed once, and hypervisors not at all if
        a look has listed them within ``hosts.SHARED_FOR`` seconds.
        """
        return self._aggregates.comparison()

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """See ``Occupancy.occupants``."""
        return self._occupancy.occupants(hosts)

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost]:
        """See ``Occupancy.look``."""
        return self._occupancy.look(hosts)

    def nearest(self, hosts: Collection[str]) -> Mapping[str, str]:
        """See ``HostNames.nearest``."""
        return self.hosts.nearest(hosts)

    def load(self, hosts: Collection[str]) -> ServerLoad:
        """See ``Occupancy.load``."""
        return self._occupancy.load(hosts)

    def slot_holders(self, handover: Handover) -> Sequence[Occupant]:
        """See ``SlotHolders.of``; hosts in the order of their names."""
        return self._occupancy.dated(self._holders.of(handover))

    def handed_over(self) -> Mapping[str, Handover]:
        """See ``AggregateReader.handed_over``."""
        return self._observation.handed_over()

    def observed(self) -> ObservedAggregates:
        """See ``AggregateReader.observed``."""
        return self._observation.observed()

    def server_limit(self, project_id: str) -> int | None:
        """See ``Compute.server_limit``."""
        limit = self.cloud.servers.server_limit(project_id)
        return limit if limit >= 0 else None

    # -- what changes -------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One writer at a time, from the aggregates as they are now."""
        with self._writing:
            self._aggregates.begin()
            yield

    def pool(self, hosts: Collection[str]) -> None:
        """See ``PoolAggregates.take_in``."""
        with self._changing():
            self._pool.take_in(hosts)

    def hand_over(self, handover: Handover, ready: Collection[str] = ()) -> None:
        """See ``HandingOver.hand_over``."""
        with self._changing():
            self._handing_over.hand_over(handover, ready)

    def fence(self, allocation_id: str) -> None:
        """See ``HandingOver.fence``."""
        with self._changing():
            self._handing_over.fence(allocation_id)

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        """See ``TakingBack.take_back``."""
        with self._changing():
            self._taking_back.take_back(handover, force=force)

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """See ``ClosedHosts.close``."""
        with self._changing():
            self._closed_hosts.close(hosts, closed)

    def running(self, moves: ServerMoves) -> MoveProgress:
        """See ``NextMoves.running``."""
        return self._moves.running(moves)

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """See ``NextMoves.move_servers``."""
        return self._moves.move_servers(moves)

    def settle_slots(self, moves: SlotMoves) -> MoveProgress:
        """See ``SettlingSlots.settle``."""
        return self._settling.settle(moves)

    def stop(self, server: str) -> None:
        """See ``Compute.stop``."""
        self.cloud.servers.stop(server)


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
    cloud = nova_and_placement.connect(conf, beat, names)
    ironic = ironic_nodes.connect(conf, guids, beat)
    return NovaCompute(
        cloud,
        pool=conf.compute.pool,
        sentinel=conf.compute.sentinel,
        shared_disks=conf.compute.shared_disks,
        delete_servers=conf.compute.delete_servers,
        clear_lessees=conf.compute.clear_lessees,
        nodes=ironic[1] if ironic else None,
    )
