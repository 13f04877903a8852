# SPDX-License-Identifier: Apache-2.0

"""In-memory fabrics and allocations, with the methods that lookups and quotas call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from laas_service.adapters.fabric_import.generator import inventory
from laas_service.app.lifecycle import State
from laas_service.app.ports.snapshots import FabricSnapshot, QueueState, Snapshot
from laas_service.app.records import (
    AllocationRecord,
    Enclosing,
    FabricRecord,
    Holding,
    Limits,
    ProjectUsage,
)
from laas_service.domain.errors import NotFound, QuotaExceeded
from laas_service.domain.ledger import Ledger
from laas_service.domain.topology import Topology, Xgft

TOPOLOGY = Topology(Xgft((4, 4, 2), (1, 4, 4)))
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Memory:
    """Empty fabrics of 32 hosts, and allocations that hold none of them."""

    def __init__(self, *fabrics: str) -> None:
        self.fabrics = MemoryFabrics(fabrics)
        self.allocations = MemoryAllocations()
        self.quotas = MemoryQuotas(self.allocations.records)

    def add(self, id: str, project: str, *, fabric: str = "f", **values) -> AllocationRecord:
        record = AllocationRecord(
            **{
                "id": id,
                "fabric": fabric,
                "name": id,
                "project_id": project,
                "policy": "jigsaw",
                "hosts": 1,
                "state": State.ACTIVE,
                "version": 1,
                "pkey": 0,
                "placed": None,
                "handed_back": False,
                "force": False,
                "error": None,
                "created_at": EPOCH,
                "updated_at": EPOCH,
                **values,
            }
        )
        self.allocations.records[id] = record
        return record

    def undo(self, id):
        """A failover loses the allocation, as if it had never been."""
        del self.allocations.records[id]

    def snapshot(self, asked, project_id, default, limits):
        fabrics = {fabric.id: fabric for fabric in self.fabrics.all()}
        possible = {
            id: FabricSnapshot(fabric, Holding(), Ledger(fabric.topology), QueueState())
            for id, fabric in fabrics.items()
        }
        known = self.allocations.records.get(asked.parent)
        parent = None
        if known is not None:
            parent = Enclosing(
                known.id, known.fabric, known.project_id, known.state, 1, known.container, None
            )
        return Snapshot(fabrics, possible, parent, (), limits)


class MemoryFabrics:
    def __init__(self, ids: Iterable[str]) -> None:
        hosts = inventory(TOPOLOGY)
        self._fabrics = {id: FabricRecord(id, TOPOLOGY, hosts, 1, EPOCH) for id in ids}
        self.held: Ledger | None = None

    def ids(self):
        return sorted(self._fabrics)

    def all(self):
        return [self._fabrics[id] for id in self.ids()]

    def get(self, id):
        if id not in self._fabrics:
            raise NotFound("fabric", id)
        return self._fabrics[id]

    def ledger(self, fabric_id):
        return self.held or Ledger(self.get(fabric_id).topology), 1


class MemoryAllocations:
    def __init__(self) -> None:
        self.records: dict[str, AllocationRecord] = {}

    def get(self, id):
        if id not in self.records:
            raise NotFound("allocation", id)
        return self.records[id]

    def page(self, *, fabric=None, project_id=None, states=(), limit=2, marker=None):
        """At most two records a page, so that readers have to ask for further pages."""
        ids = list(self.records)
        if marker:
            self.get(marker)
        after = ids[ids.index(marker) + 1 :] if marker else ids
        return [
            record
            for record in map(self.records.__getitem__, after)
            if fabric in (None, record.fabric)
            and project_id in (None, record.project_id)
            and (not states or record.state in states)
        ][: min(limit, 2)]


class MemoryQuotas:
    def __init__(self, records: Mapping[str, AllocationRecord]) -> None:
        self._records = records
        self.left: Mapping[str, int] = {}

    def usage(self, project_id: str, limits: Limits) -> ProjectUsage:
        held = [r for r in self._records.values() if r.project_id == project_id]
        return ProjectUsage(project_id, limits, sum(r.hosts for r in held), len(held))

    def within_limits(self, request) -> None:
        usage = self.usage(request.project_id, request.limits)
        if usage.limits.hosts is not None and usage.hosts + request.hosts > usage.limits.hosts:
            raise QuotaExceeded("hosts", usage.hosts, "release some")

    def moves_left(self, project_ids, limits):
        return {id: left for id, left in self.left.items() if id in project_ids}
