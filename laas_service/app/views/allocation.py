# SPDX-License-Identifier: Apache-2.0

"""An allocation as it is shown: its record, place in the queue, degradation and progress."""

from __future__ import annotations

from dataclasses import dataclass

from laas_service.app.records import AllocationRecord, FabricRecord
from laas_service.app.requests import Place, Progress
from laas_service.domain.faults.degradation import Degraded, degradation
from laas_service.domain.topology import Topology


@dataclass(frozen=True, slots=True)
class AllocationView:
    """An allocation and what follows from it now."""

    record: AllocationRecord
    fabric: FabricRecord
    place: Place | None
    """None unless it is queued."""
    degraded: Degraded | None
    """None if nothing that it uses has failed."""
    progress: Progress | None = None
    """None in lists."""


def degradation_now(record: AllocationRecord, topology: Topology) -> Degraded | None:
    """The failed hosts and links that its traffic would use now; None if there are none."""
    if record.faults is None or record.traffic is None:
        return None
    links, hosts = record.faults.links, record.faults.hosts
    degraded = degradation(topology, record.traffic, links, hosts)
    return degraded if degraded.links or degraded.hosts else None
