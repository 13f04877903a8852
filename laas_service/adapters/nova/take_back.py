# SPDX-License-Identifier: Apache-2.0

"""How hosts are taken back in Nova: once they are empty, only the pool has them."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from laas_service.adapters.nova.aggregates import Aggregate, Aggregates
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.keys import SLOTS, aggregate_name
from laas_service.adapters.nova.members import Members
from laas_service.adapters.nova.nodes import NodeCare
from laas_service.adapters.nova.occupancy import Occupancy, sentence
from laas_service.adapters.nova.pool import PoolAggregates
from laas_service.adapters.nova.shares import TakeBackSlots
from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import HostsBusy
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)


class TakingBack:
    """Deletes the aggregate of an allocation once none of its servers is left.

    ``delete_server`` asks for the end of a server, in a release by force; None: force changes
    nothing.
    """

    def __init__(
        self,
        aggregates: Aggregates,
        hosts: Hosts,
        members: Members,
        pool: PoolAggregates,
        occupancy: Occupancy,
        nodes: NodeCare,
        take_back_slots: TakeBackSlots,
        delete_server: Callable[[str], object] | None,
    ) -> None:
        self._aggregates = aggregates
        self._hosts = hosts
        self._members = members
        self._pool = pool
        self._occupancy = occupancy
        self._nodes = nodes
        self._take_back_slots = take_back_slots
        self._delete_server = delete_server

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        """See ``Compute.take_back``. Closes the hosts first; then only the pool holds them.

        Servers of any project on the aggregate's hosts prevent it, and so do servers of the
        allocation's project on other hosts of the handover, also with ``force``. With that and
        ``delete_server`` those of the allocation's project on the aggregate's hosts are deleted.
        """
        present = self._aggregates.get(aggregate_name(handover.allocation_id))
        members = present.hosts if present else frozenset()
        if present:
            present = self._members.fence(present)
        hypervisors = self._hosts.known({*members, *handover.hosts})
        if handover.shared or (present and SLOTS in present.metadata):
            self._take_back_slots(handover, present, hypervisors)
            return
        if force and self._delete_server:
            self._delete_all(self._delete_server, handover, members, hypervisors)
        self._check_emptied(handover, members, hypervisors, present)
        if present and (dirty := self._nodes.leaving(present, members, hypervisors)):
            raise HostsBusy(f"hosts cannot be taken back: {listed(dirty.values())}")
        if present:
            self._pool.join(members & hypervisors.keys())
            self._members.delete(present)
            self._check_emptied(handover, members, hypervisors)

    def _delete_all(
        self,
        delete: Callable[[str], object],
        handover: Handover,
        hosts: Iterable[str],
        hypervisors: Mapping[str, Hypervisor],
    ) -> None:
        """Ask for the end of the servers that the allocation's project has on these hosts.

        Refusals are not told: what is still there is.
        """
        for one in self._occupancy.on(hosts, hypervisors):
            if one.project_id == handover.project_id:
                LOG.info("server %s on host %s is deleted by force", one.consumer, one.host)
                delete(one.consumer)

    def _check_emptied(
        self,
        handover: Handover,
        members: Collection[str],
        hypervisors: Mapping[str, Hypervisor],
        within: Aggregate | None = None,
    ) -> None:
        """Raise HostsBusy if servers are left. ``within`` as in ``Occupancy.on``."""
        occupants = self._occupancy.on({*members, *handover.hosts}, hypervisors, within)
        occupants = self._occupancy.staying(occupants, hypervisors)
        left = [o for o in occupants if o.host in members or o.project_id == handover.project_id]
        if left:
            text = sentence(self._occupancy.dated(left))
            raise HostsBusy(f"hosts cannot be taken back: {text}")
