# SPDX-License-Identifier: Apache-2.0

"""What handing over, comparing and taking back need of slots; ``sharing`` implements it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from laas_service.adapters.nova.aggregates import Aggregate
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.app.ports.compute import Handover, Occupant

TakeBackSlots = Callable[[Handover, Aggregate | None, Mapping[str, Hypervisor]], None]
"""Lets no server start on an allocation's slots, and forgets them once none is held.

The aggregate is the fenced one of the allocation; None if it has none. Raises: HostsBusy."""


class SlotQuestions(Protocol):
    """Questions about slots; they change nothing."""

    def check_divisible(self, host: str, hypervisor: Hypervisor) -> None:
        """Raises: Conflict, if a host has no slots, because one server takes it whole."""

    def without(
        self, occupants: Iterable[Occupant], hypervisors: Mapping[str, Hypervisor]
    ) -> list[Occupant]:
        """The occupants that hold no slot of any allocation and are there still."""

    def numbers(
        self, aggregates: Mapping[str, Aggregate], *, recent: bool
    ) -> dict[str, dict[str, int]]:
        """The slots by host, for each of these aggregates of class ``shared`` by allocation id.

        Read in placement, host by host. ``recent``: a list of the hosts from not long ago will do.
        """


class SlotChanges(Protocol):
    """Changes of how many slots allocations have on hosts."""

    def ensure(self, handover: Handover, hypervisors: Mapping[str, Hypervisor]) -> None:
        """Have the slots of an allocation of class ``shared`` in placement. Raises: Conflict."""

    def close(self, aggregate: Aggregate, hosts: Collection[str]) -> None:
        """Let no server of an allocation of class ``shared`` start on hosts that it leaves."""
