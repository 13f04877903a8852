# SPDX-License-Identifier: Apache-2.0

"""Recorded fabrics, their ledgers, and the states of hosts and links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.domain.features import HostChange
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import LedgerView
from laas_service.domain.shared_plane import SharedPlane
from laas_service.domain.topology import Link, Topology
from laas_service.messages import Initiator


class FabricReader(Protocol):
    """Fabrics as recorded."""

    def fabrics(self) -> list[FabricRecord]:
        """All fabrics by id."""

    def fabric(self, id: str) -> FabricRecord:
        """One fabric at its newest generation. ``NotFound``."""

    def ledger(self, fabric_id: str) -> tuple[LedgerView, int]:
        """The fabric's ledger, brought up to date by the recorded deltas, and its generation.

        All threads of this process share the object: read it, do not write it. ``NotFound``.
        """


class FabricRegistry(Protocol):
    """The fabrics that the service manages."""

    def check(self) -> None:
        """Return if the database answers and its schema is current, else ``Unavailable``."""

    def add_fabric(self, id: str, topology: Topology, inventory: Inventory) -> FabricRecord:
        """Record a new fabric at generation 1. ``Conflict`` if the id is taken."""


class ComponentStates(Protocol):
    """States of hosts and links. ``by`` is the initiator; None for the service itself.

    Methods that return an integer return the fabric's generation after the change.
    ``NotFound`` from every method.
    """

    def set_host_state(
        self, fabric_id: str, host: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        """Record a host's state."""

    def set_leaf_state(
        self, fabric_id: str, leaf: int, state: HostState, *, by: Initiator | None = None
    ) -> int:
        """Drain the hosts of a leaf (its GUID) that are up, or undrain those that only drains of
        leaves keep down: one transaction.

        A host that has failed, or was drained by itself, keeps its state.
        """

    def describe_hosts(self, fabric_id: str, changes: Mapping[int, HostChange]) -> int:
        """Record the features of hosts, by their numbers."""

    def set_link_state(
        self, fabric_id: str, link: Link, state: LinkState, *, by: Initiator | None = None
    ) -> int:
        """Record a link's state."""

    def set_shared_plane(self, fabric_id: str, plane: SharedPlane) -> int:
        """Withhold a plane instead of the one before. ``Conflict`` if a tenant has a link of it."""

    def note_faults(self, fabric_id: str) -> list[str]:
        """Record which failed hosts and links allocations hold, where that is not recorded yet.

        ``set_host_state`` and ``set_link_state`` do so themselves. Ids of the allocations changed.
        """
