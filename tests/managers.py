# SPDX-License-Identifier: Apache-2.0

"""Fabrics whose subnet manager is on a leaf of tenants, another leaf, an L2 switch or a spine."""

from __future__ import annotations

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import FabricFile, parse_fabric
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.domain.inventory import Inventory
from tests.recabling import replugged
from tests.shared import SHARED

EIGHT_RAILS = Description(
    xgft="3;4,3,16;1,4,3", rails=8, wiring="plane", subnet_managers=1, aggregation_nodes=True
)
"""24 hosts with eight ports each; every rail is a plane of two pods, and spines join the planes."""

PLACES = ("tenants' leaf", "leaf of another rail", "L2 switch", "spine")

MANAGERS = Selection(managers=("sm*",))

DUMPS = {"lab4sw-2023": "Host2_3*", "dgx-ndr-2025": "*CUFM*", "lassen-edr-2019": "lassenufm*"}
"""Dumps of real fabrics, and their subnet managers."""


def imported(inventory: Inventory, selection: Selection = MANAGERS) -> FabricFile:
    """The fabric that the import recovers from a dump of an inventory."""
    return parse_fabric(ibnetdiscover.render(inventory), "dump", selection)


def eight_rails(kind: str, selection: Selection = MANAGERS) -> FabricFile:
    """The fabric ``EIGHT_RAILS`` with its manager at one of ``PLACES``."""
    made = generate(EIGHT_RAILS).inventory
    return imported(replugged(made, made.managers[0].guid, _place(made, kind)), selection)


def _place(inventory: Inventory, kind: str) -> int:
    """GUID of a switch."""
    return {
        "tenants' leaf": inventory.leaf_guids[0],
        "leaf of another rail": inventory.leaf_guids[13],
        "L2 switch": inventory.l2_guids[5],
        "spine": inventory.spine_guids[2],
    }[kind]


def dumped(name: str, level: int | None = None) -> FabricFile:
    """A real fabric; with ``level``, its last manager is on the first switch of this level."""
    selection = Selection(managers=(DUMPS[name],))
    text = (SHARED / "fabrics" / f"{name}.ibnetdiscover.txt").read_text()
    fabric = parse_fabric(text, name, selection)
    if level is None:
        return fabric
    inventory = fabric.inventory
    switch = next(s.guid for s in inventory.switches if s.level == level)
    return imported(replugged(inventory, inventory.managers[-1].guid, switch), selection)
