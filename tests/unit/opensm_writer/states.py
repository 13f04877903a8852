# SPDX-License-Identifier: Apache-2.0

"""The fabric and tenants of the files in ``tests/golden``, and other small states."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from laas_service.adapters.fabric_import import generator
from laas_service.domain.allocation import Allocation
from laas_service.messages import FabricState, TenantRoute
from opensm_writer.render import Settings
from tests.partitions import tenant

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "three_tenants"
SETTINGS = Settings("/var/lib/laas/opensm/tiny/current", services=(0x2C90380000003,))

TINY = generator.generate(
    generator.Description(xgft="3;3,2,2;1,3,2", subnet_managers=1, storage_hosts=1, odd_names=True)
)
"""XGFT(3; 3,2,2; 1,3,2): 12 hosts, a subnet manager and a storage host."""

ONE = tenant("one-leaf", [(1, 0b110, 0)])
POD = tenant("a.pod", [(0, 0b001, 0b001), (1, 0b001, 0b001)])
WIDE = tenant(
    "wide_0",
    [(0, 0b110, 0b110), (2, 0b011, 0b110), (3, 0b100, 0b010)],
    [(0, 1, 0b01), (0, 2, 0b10), (1, 1, 0b11), (1, 2, 0b10)],
)


def state(tenants: Iterable[Allocation] = (POD, ONE, WIDE), generation: int = 7) -> FabricState:
    """A fabric state; a partition key depends on the tenant's name, so others do not change it."""
    ordered = sorted(tenants, key=lambda t: t.id)
    routes = (TenantRoute(t, 0x100 + sum(t.id.encode()) % 0x1000) for t in ordered)
    return FabricState("tiny", generation, TINY.topology, TINY.inventory, tuple(routes))
