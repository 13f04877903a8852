# SPDX-License-Identifier: Apache-2.0

"""The fabrics on which faults are played: generated trees, and dumps of real machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.recovery import Selection, recover
from laas_service.domain.inventory import Endpoint, Inventory
from laas_service.domain.topology import Topology
from tests.shared import SHARED

Sizes = tuple[int, ...]
"""Hosts of each tenant."""


@dataclass(frozen=True)
class Fabric:
    """A fabric, the port of its subnet manager, and the sizes of its tenants."""

    name: str
    title: str
    topology: Topology
    inventory: Inventory
    manager: Endpoint
    sizes: Sizes
    spares: tuple[int, ...] = ()
    """Drained hosts. Leaves with one have a free uplink, so that a cut one can be replaced."""


def tree(name: str, xgft: str, sizes: Sizes, every: int = 2) -> Fabric:
    """A generated full tree with a port for the subnet manager.

    The last host of one leaf in ``every`` is a spare.
    """
    made = generate(Description(xgft=xgft, subnet_managers=1))
    title = f"{len(made.inventory.host_names):,} hosts"
    below = made.topology.tree.m[0]
    spares = tuple(range(below - 1, made.topology.hosts, every * below))
    manager = _manager(made.inventory)
    return Fabric(name, title, made.topology, made.inventory, manager, sizes, spares)


def dump(name: str, title: str, selection: Selection, sizes: Sizes) -> Fabric:
    """The fabric of a dump; the subnet manager runs on a port that no tenant can have."""
    path = SHARED / "fabrics" / f"{name}.ibnetdiscover.txt"
    made = recover(ibnetdiscover.parse(path.read_text(), path.name), selection)
    return Fabric(name, title, made.topology, made.inventory, _manager(made.inventory), sizes)


def _manager(inventory: Inventory) -> Endpoint:
    """The port with the highest LID of those that no tenant can have."""
    return max(inventory.service_endpoints, key=lambda end: inventory.lids[end.guid])


FABRICS: dict[str, Callable[[], Fabric]] = {
    "128": lambda: tree("128", "3;4,4,8;1,4,4", (18, 9, 6, 13, 2, 11)),
    "lab4sw-2023": lambda: dump(
        "lab4sw-2023",
        "4 switches",
        Selection(managers=("Host2_3*",), exclude=("Host2_2*", "Host2_3*")),
        (2,),
    ),
    "dgx-ndr-2025": lambda: dump(
        "dgx-ndr-2025", "DGX, 4 rails", Selection(managers=("*CUFM*",)), (7, 30, 5, 21, 3)
    ),
    "lassen-edr-2019": lambda: dump(
        "lassen-edr-2019", "Lassen, 2 rails", Selection(managers=("lassenufm*",)), (90, 41, 200, 7)
    ),
    "3456": lambda: tree("3456", "3;12,12,24;1,12,12", (267, 30, 500, 100, 13, 800), 8),
    "11664": lambda: tree("11664", "3;18,18,36;1,18,18", (267, 30, 1500, 400, 13, 3000), 16),
}
"""By name. The dumps are no part of the project; they are read where they are."""

DUMPS = ("lab4sw-2023", "dgx-ndr-2025", "lassen-edr-2019")
LARGE = ("3456", "11664")
