# SPDX-License-Identifier: Apache-2.0

"""A leaf switch as it is shown before maintenance: its hosts, and who still holds them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from laas_service.app.records import AllocationRecord, FabricRecord
from laas_service.app.views.inventory import HostEntry
from laas_service.domain.errors import InvalidInput, NotFound
from laas_service.domain.inventory import Switch
from laas_service.domain.ledger import LedgerView

GUID = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """An allocation, and those of its hosts that have a port on the leaf, by number."""

    record: AllocationRecord
    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeafEntry:
    """A leaf, its hosts for tenants by number, and the allocations that hold some of them.

    A container is listed beside the allocations inside it: the leaf is empty once all are gone.
    """

    switch: Switch
    hosts: tuple[HostEntry, ...]
    tenants: tuple[Tenant, ...]


def find(fabric: FabricRecord, named: str) -> Switch:
    """The leaf of this GUID or name.

    Raises:
        NotFound: there is no such switch.
        InvalidInput: several have this name, or it is no leaf.
    """
    inventory = fabric.inventory
    matching = [switch for switch in inventory.switches if switch.name == named]
    if not matching and GUID.fullmatch(named):
        matching = [switch for switch in inventory.switches if switch.guid == int(named, 16)]
    if not matching:
        raise NotFound("switch", named)
    if len(matching) > 1:
        guids = ", ".join(f"{switch.guid:#018x}" for switch in matching)
        raise InvalidInput("switch", named, f"several have this name; use a GUID: {guids}")
    if matching[0].guid not in inventory.leaf_guids:
        raise InvalidInput("switch", named, "only a leaf has hosts to drain; fail links instead")
    return matching[0]


def hosts_on(fabric: FabricRecord, leaf: int) -> tuple[int, ...]:
    """Numbers of the hosts for tenants with a port on the leaf of this GUID, ascending."""
    ends = fabric.inventory.endpoints
    return tuple(sorted({e.host for e in ends if e.host is not None and e.at.guid == leaf}))


def holders(
    fabric: FabricRecord, ledger: LedgerView, hosts: Iterable[int]
) -> dict[str, tuple[int, ...]]:
    """By allocation, containers included, the numbers of these hosts that it holds."""
    numbers = frozenset(hosts)
    held = {
        allocation.id: tuple(sorted(numbers.intersection(allocation.hosts(fabric.topology))))
        for allocation in ledger.everybody()
    }
    return {id: held_hosts for id, held_hosts in sorted(held.items()) if held_hosts}
