# SPDX-License-Identifier: Apache-2.0

"""The data that crossed the ports of allocations, from the counters of switches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from laas_service.app.records import AllocationRecord
from laas_service.domain.faults.counters import Data, Findings

MOST = 1000
"""The most allocations that are shown, the oldest first; each is six series in Prometheus."""


@dataclass(frozen=True, slots=True)
class TenantTraffic:
    """Bytes of an allocation by where they were counted (``PLACES``)."""

    id: str
    project_id: str
    bytes: Mapping[str, int]


PLACES = ("injected", "delivered", "leaf_up", "leaf_down", "spine_up", "spine_down")
"""Data that the allocation's hosts sent and received, that went up and came down on its leaf
links, and on its spine links."""


def tenant_traffic(
    found: Iterable[Findings], records: Iterable[AllocationRecord]
) -> list[TenantTraffic]:
    """The traffic of those allocations whose ports were read, in the order of ``records``."""
    sums: dict[str, dict[str, int]] = {}
    for findings in found:
        for owner, data in findings.data.items():
            of_owner = sums.setdefault(owner, dict.fromkeys(PLACES, 0))
            for place, count in zip(_places(findings, data), data, strict=True):
                of_owner[place] += count
    shown = (
        TenantTraffic(record.id, record.project_id, sums[record.id])
        for record in records
        if record.id in sums
    )
    return list(islice(shown, MOST))


def _places(findings: Findings, data: Data) -> tuple[str, ...]:
    links = ("leaf_up", "leaf_down") if findings.leaf else ("spine_up", "spine_down")
    return "injected", "delivered", *links
