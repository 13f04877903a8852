# SPDX-License-Identifier: Apache-2.0

"""Recorded states of hosts, links and switches."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from laas_service.app.records import HostState, LinkState, SwitchState, Words
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.features import HostChange
from laas_service.domain.topology import Link
from laas_service.messages import Initiator


class Components(Protocol):
    """States of hosts, links and switches. ``by`` is the initiator; None for the service itself.
    ``reason`` is why operators say that something is not up.

    Methods that return an integer return the fabric's generation after the change.
    ``NotFound`` from every method.
    """

    def words(self, fabric_id: str) -> Words:
        """Who says what of the hosts, links and switches that are not up."""

    def set_host_state(
        self,
        fabric_id: str,
        host: int,
        state: HostState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        """Record what operators say of a host; it stays failed if its leaf has failed."""

    def set_leaf_state(
        self,
        fabric_id: str,
        leaf: int,
        state: HostState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        """Drain the hosts of a leaf (its GUID) that are up, or undrain those that only drains of
        leaves keep down: one transaction.

        A host that has failed, or was drained by itself, keeps its state.
        """

    def set_switch_state(
        self,
        fabric_id: str,
        guid: int,
        state: SwitchState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        """Fail a switch, put it under maintenance, or take that back: one transaction.

        All links of a failed switch have failed, and the hosts of a failed leaf. Under
        maintenance nobody new gets a link of an L2 switch or spine, or a host of a leaf, and
        owners' links move away where possible. What was said of links and hosts themselves
        stays as it is. What is taken back has its effects until ``return_switches``; it begins a
        new generation of routes, whose confirmation shows that the switch has its tables.
        """

    def return_switches(self, fabric_id: str, guids: Collection[int]) -> int:
        """The tables of these repaired switches are confirmed: their links and hosts are usable."""

    def describe_hosts(self, fabric_id: str, changes: Mapping[int, HostChange]) -> int:
        """Record the features of hosts, by their numbers."""

    def set_link_state(
        self,
        fabric_id: str,
        link: Link,
        state: LinkState,
        *,
        by: Initiator | None = None,
        reason: str | None = None,
    ) -> int:
        """Record what operators say of a link.

        ``UP`` takes back what they said, and ends a quarantine. A link that is seen down, or whose
        switch has failed, stays failed.
        """

    def set_shared_plane(self, fabric_id: str, plane: CommonPlane) -> int:
        """Withhold a plane instead of the one before. ``Conflict`` if a tenant has a link of it."""

    def virtual_ports(self, fabric_id: str) -> Mapping[int, tuple[int, ...]]:
        """GUIDs, ascending, of the virtual ports of each port of a host that has any."""

    def set_virtual_ports(self, fabric_id: str, ports: Mapping[int, Sequence[int]]) -> int:
        """Record the virtual ports of these ports (GUIDs) instead of those before.

        ``NotFound`` if a host has no such port, ``Conflict`` if another port has a GUID.
        """

    def note_faults(self, fabric_id: str) -> list[str]:
        """Record which failed hosts and links allocations hold, where that is not recorded yet.

        ``set_host_state`` and ``set_link_state`` do so themselves. Ids of the allocations changed.
        """
