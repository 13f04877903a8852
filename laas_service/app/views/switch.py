# SPDX-License-Identifier: Apache-2.0

"""Finds a switch by its GUID or its name."""

import re

from laas_service.app.records import FabricRecord
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.domain.inventory import Switch
from laas_service.domain.wording import alike

GUID = re.compile(r"0x[0-9a-fA-F]{1,16}")


def find_switch(fabric: FabricRecord, named: str) -> Switch:
    """The switch of this GUID or name.

    Raises:
        NotFound: there is no such switch.
        InvalidInput: several have this name.
    """
    switches = fabric.inventory.switches
    matching = [switch for switch in switches if switch.name == named]
    if not matching and GUID.fullmatch(named):
        matching = [switch for switch in switches if switch.guid == int(named, 16)]
    if not matching:
        names = (switch.name for switch in switches)
        raise NotFound("switch", named, alike(named, names, f"fabric {fabric.id}"))
    if len(matching) > 1:
        guids = ", ".join(f"{switch.guid:#018x}" for switch in matching)
        raise InvalidInput("switch", named, f"several have this name; use a GUID: {guids}")
    return matching[0]
