# SPDX-License-Identifier: Apache-2.0

"""What a request for an allocation depends on, read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from laas_service.app.records import (
    AllocationRecord,
    Enclosing,
    FabricRecord,
    Holding,
    Limits,
    QueueRoom,
)
from laas_service.domain.ledger import Ledger, LedgerView


@dataclass(frozen=True, slots=True)
class QueueState:
    """The requests that wait for a fabric and its containers, and what their order depends on."""

    waiting: tuple[AllocationRecord, ...] = ()
    """In order of creation, without history."""
    room: QueueRoom | None = None
    """The last plan that makes room; None, too, if nobody waits."""
    ends: Mapping[str, datetime] | None = None
    """When present allocations are expected to end, by id; None if nobody waits."""

    def of(self, scope: str | None) -> list[AllocationRecord]:
        """The queue of a container, or with None the fabric's own."""
        return [record for record in self.waiting if record.parent == scope]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a search for a new request works on."""

    ledger: Ledger
    """A copy of its own; it may claim there."""
    queue: QueueState
    """At the generation of the ledger, or a later one."""


@dataclass(frozen=True, slots=True)
class FabricSnapshot:
    """A fabric that a request may be placed on."""

    fabric: FabricRecord
    holding: Holding
    ledger: LedgerView
    """All threads share it: read only."""
    queue: QueueState


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a request for an allocation depends on, all of one state of the database."""

    fabrics: Mapping[str, FabricRecord]
    """All of them, by id in ascending order."""
    possible: Mapping[str, FabricSnapshot]
    """By id, the fabrics that the request may be placed on; none if it names none that exists."""
    parent: Enclosing | None
    """The allocation that the request names as its parent; None, too, if there is no such one."""
    parts: tuple[Enclosing, ...]
    """Allocations that share their hosts, if the request is for slots and names no parent."""
    limits: Limits
    """Of the project: its own quota, or else the default."""
