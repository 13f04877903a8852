# SPDX-License-Identifier: Apache-2.0

"""How slots of shared hosts are taken back in Nova and placement."""

from collections.abc import Mapping

from laas_service.adapters.nova.aggregates import Aggregate
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.members import Members
from laas_service.adapters.nova.occupancy import Occupancy, sentence
from laas_service.adapters.nova.pool import PoolAggregates
from laas_service.adapters.nova.sharing.slots import SlotCounts, SlotHolders
from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import HostsBusy


class TakingBackSlots:
    """Takes back slots of shared hosts. The aggregate goes last: it tells that some are left."""

    def __init__(
        self,
        members: Members,
        pool: PoolAggregates,
        occupancy: Occupancy,
        holders: SlotHolders,
        slots: SlotCounts,
    ) -> None:
        self._members = members
        self._pool = pool
        self._occupancy = occupancy
        self._holders = holders
        self._slots = slots

    def take_back(
        self,
        handover: Handover,
        present: Aggregate | None,
        hypervisors: Mapping[str, Hypervisor],
    ) -> None:
        """See ``TakeBackSlots``."""
        hosts = {*handover.hosts, *(present.hosts if present else ())} & hypervisors.keys()
        self._slots.keep(handover.allocation_id, dict.fromkeys(hosts, 0), hypervisors)
        held = self._holders.on(handover, hosts, hypervisors)
        left = [
            one
            for one in self._holders.without(self._occupancy.on(hosts, hypervisors), hypervisors)
            if one.project_id == handover.project_id
        ]
        if left or held:
            text = sentence(self._occupancy.dated([*left, *held]))
            raise HostsBusy(f"slots cannot be taken back: {text}")
        self._slots.drop(handover.allocation_id)
        if present:
            self._pool.join(present.hosts & hypervisors.keys())
            self._members.delete(present)
