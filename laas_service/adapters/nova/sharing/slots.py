# SPDX-License-Identifier: Apache-2.0

"""Slots of allocations of class ``shared`` on Nova's hosts: who holds them, and how many there are.

``placement_slots`` tells how placement claims a slot for each server.
"""

from collections.abc import Collection, Iterable, Mapping

from laas_service.adapters.nova.aggregates import Aggregate
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.keys import SLOTS, class_of
from laas_service.adapters.nova.placement import PlacementCalls
from laas_service.adapters.nova.sharing.placement_slots import PlacementSlots
from laas_service.app.ports.compute import Handover, Occupant
from laas_service.domain.errors import Conflict


class SlotHolders:
    """Asks placement which servers hold slots, and how many slots there are; changes nothing."""

    def __init__(self, slots: PlacementSlots, placement: PlacementCalls, hosts: Hosts) -> None:
        self._slots = slots
        self._placement = placement
        self._hosts = hosts

    def check_divisible(self, host: str, hypervisor: Hypervisor) -> None:
        """See ``SlotQuestions.check_divisible``."""
        if hypervisor.bare or len(hypervisor.providers) > 1:
            text = f"host {host} is a bare-metal node, which has one owner and no slots"
            raise Conflict(f"{text}; share hosts on which Nova runs several servers")

    def held(self, host: str, node: Hypervisor, classes: Iterable[str] | None = None) -> set[str]:
        """The consumers with a slot on a host. Raises: Conflict, if hosts like it have no slots."""
        self.check_divisible(host, node)
        return self._slots.holders(node.providers[0], classes)

    def of(self, handover: Handover) -> list[Occupant]:
        """The servers (and migrations) with slots of an allocation, host by host."""
        hypervisors = self._hosts.known(handover.hosts)
        return self.on(handover, {*handover.hosts} & hypervisors.keys(), hypervisors)

    def on(
        self,
        handover: Handover,
        hosts: Collection[str],
        hypervisors: Mapping[str, Hypervisor],
    ) -> list[Occupant]:
        """The servers (and migrations) with slots of an allocation on these hosts."""
        name = class_of(handover.allocation_id)
        return [
            Occupant(host, consumer, handover.project_id)
            for host in sorted(hosts)
            for consumer in sorted(self.held(host, hypervisors[host], [name]))
        ]

    def without(
        self, occupants: Iterable[Occupant], hypervisors: Mapping[str, Hypervisor]
    ) -> list[Occupant]:
        """See ``SlotQuestions.without``."""
        held: dict[str, set[str]] = {}
        found = []
        for one in occupants:
            node = hypervisors[one.host]
            if one.host not in held:
                held[one.host] = self.held(one.host, node)
            if one.consumer in held[one.host]:
                continue
            placed = self._placement.owner(one.consumer) is not None
            if placed or one.consumer in node.servers:
                found.append(one)
        return found

    def numbers(
        self, aggregates: Mapping[str, Aggregate], *, recent: bool
    ) -> dict[str, dict[str, int]]:
        """See ``SlotQuestions.numbers``."""
        hosts = {host for aggregate in aggregates.values() for host in aggregate.hosts}
        hypervisors = self._hosts.shared() if recent else self._hosts.known(hosts)
        inventories = {
            host: self._slots.inventory(hypervisors[host].providers[0])
            for host in sorted(hosts & hypervisors.keys())
        }
        return {
            id: {
                host: number
                for host, inventory in inventories.items()
                if host in aggregate.hosts and inventory is not None
                if (number := inventory.slots(aggregate.metadata[SLOTS]))
            }
            for id, aggregate in aggregates.items()
        }


class SlotCounts:
    """Sets how many slots allocations have on hosts."""

    def __init__(self, slots: PlacementSlots, hosts: Hosts) -> None:
        self._slots = slots
        self._hosts = hosts

    def ensure(self, handover: Handover, hypervisors: Mapping[str, Hypervisor]) -> None:
        """See ``SlotChanges.ensure``."""
        if not handover.shared:
            return
        name = class_of(handover.allocation_id)
        self._slots.ensure_class(name)
        for host in sorted(handover.hosts):
            provider, slots = hypervisors[host].providers[0], handover.slots_on(host)
            self._slots.set_slots(provider, name, slots)
            self._slots.check(provider, name, slots)

    def keep(
        self, allocation_id: str, kept: Mapping[str, int], hypervisors: Mapping[str, Hypervisor]
    ) -> None:
        """Have so many slots of an allocation on each of these hosts; closed where some are held.

        Hosts that Nova does not know have none.
        """
        name = class_of(allocation_id)
        for host in sorted(kept.keys() & hypervisors.keys()):
            self._slots.set_slots(hypervisors[host].providers[0], name, kept[host])

    def close(self, aggregate: Aggregate, hosts: Collection[str]) -> None:
        """See ``SlotChanges.close``."""
        if SLOTS not in aggregate.metadata or not hosts:
            return
        hypervisors = self._hosts.known(hosts)
        for host in sorted(hypervisors.keys() & hosts):
            provider = hypervisors[host].providers[0]
            self._slots.set_slots(provider, aggregate.metadata[SLOTS], 0)

    def drop(self, allocation_id: str) -> None:
        """Forget the slots of an allocation that has none. Raises: Conflict."""
        self._slots.drop_class(class_of(allocation_id))
