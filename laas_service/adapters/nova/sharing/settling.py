# SPDX-License-Identifier: Apache-2.0

"""How an allocation on shared hosts is brought to the slots that it keeps."""

from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.keys import class_of
from laas_service.adapters.nova.servers import ServerCalls
from laas_service.adapters.nova.sharing import slot_moves
from laas_service.adapters.nova.sharing.slots import SlotCounts, SlotHolders
from laas_service.app.ports.compute import MoveProgress, SlotMoves


class SettlingSlots:
    """Asks Nova for the next step of the servers beyond the slots of an allocation.

    With ``shared_disks`` the local disks of servers outlive their host.
    """

    def __init__(
        self,
        servers: ServerCalls,
        hosts: Hosts,
        holders: SlotHolders,
        slots: SlotCounts,
        *,
        shared_disks: bool,
    ) -> None:
        self._servers = servers
        self._hosts = hosts
        self._holders = holders
        self._slots = slots
        self._shared_disks = shared_disks

    def settle(self, moves: SlotMoves) -> MoveProgress:
        """See ``Compute.settle_slots`` and ``slot_moves``."""
        hosts = moves.kept.keys()
        id = moves.handover.allocation_id
        hypervisors = self._hosts.known(hosts)
        held = {
            host: self._holders.held(host, hypervisors[host], [class_of(id)])
            for host in sorted(hosts & hypervisors.keys())
        }
        progress = slot_moves.settle(self._servers, moves, held, shared_disks=self._shared_disks)
        if progress == MoveProgress():
            self._slots.keep(id, moves.kept, hypervisors)
        return progress
