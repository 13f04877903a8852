# SPDX-License-Identifier: Apache-2.0

"""A switch as it is shown before maintenance: its hosts, and who still holds them or its links."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from laas_service.app.records import AllocationRecord, FabricRecord, Word
from laas_service.app.views.inventory import HostEntry
from laas_service.app.views.switch import find_switch
from laas_service.domain.errors import InvalidInput
from laas_service.domain.inventory import Switch
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Link


@dataclass(frozen=True, slots=True)
class Tenant:
    """An allocation, those of its hosts that have a port on the leaf, by number, and those of its
    links that the switch has."""

    record: AllocationRecord
    hosts: tuple[int, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class LeafEntry:
    """A switch, its hosts for tenants by number, and the allocations that hold some of them.

    Of other switches than leaves, the allocations that hold some of its links. A container is
    listed beside the allocations inside it: the switch is empty once all are gone. ``word`` is as
    in ``inventory.SwitchEntry``.
    """

    switch: Switch
    hosts: tuple[HostEntry, ...]
    tenants: tuple[Tenant, ...]
    word: Word | None = None


def find(fabric: FabricRecord, named: str) -> Switch:
    """The leaf of this GUID or name.

    Raises:
        NotFound: there is no such switch.
        InvalidInput: several have this name, or it is no leaf.
    """
    switch = find_switch(fabric, named)
    if switch.guid not in fabric.inventory.leaf_guids:
        fix = "only a leaf has hosts to drain; put the switch under maintenance, or fail it"
        raise InvalidInput("switch", named, fix)
    return switch


def hosts_on(fabric: FabricRecord, leaf: int) -> tuple[int, ...]:
    """Numbers of the hosts for tenants with a port on the leaf of this GUID, ascending."""
    ends = fabric.inventory.endpoints
    return tuple(sorted({e.host for e in ends if e.host is not None and e.at.guid == leaf}))


def links_on(fabric: FabricRecord, switch: Switch) -> frozenset[Link]:
    """The links that an allocation may hold at a switch; none of a leaf, where hosts tell more."""
    if switch.level == 1:
        return frozenset()
    cables = fabric.inventory.cable_of_link.items()
    return frozenset(
        link for link, cable in cables if switch.guid in (cable.lower.guid, cable.upper.guid)
    )


def holders(
    fabric: FabricRecord, ledger: LedgerView, hosts: Iterable[int], links: Collection[Link] = ()
) -> dict[str, tuple[tuple[int, ...], tuple[Link, ...]]]:
    """By allocation, containers included, those of these hosts and links that it holds."""
    topology, numbers, at_switch = fabric.topology, frozenset(hosts), frozenset(links)
    held = {}
    for allocation in ledger.everybody():
        on = numbers.intersection(allocation.hosts(topology))
        over = at_switch.intersection(allocation.links(topology)) if at_switch else ()
        if on or over:
            held[allocation.id] = (
                tuple(sorted(on)),
                tuple(sorted(over, key=topology.tree.link_id)),
            )
    return dict(sorted(held.items()))
