# SPDX-License-Identifier: Apache-2.0

"""The inventory as it is shown: every host, link and switch with its state and its owner."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from laas_service.app.records import FabricRecord, HostState, LinkState
from laas_service.domain.features import PLAIN, HostFeatures
from laas_service.domain.inventory import Endpoint, PortRef, Switch
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import Link, Port


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One host; ``owner`` is an allocation's id. ``endpoints`` come in rail order."""

    index: int
    name: str
    state: HostState
    owner: str | None
    ports: tuple[Port, ...]
    endpoints: tuple[Endpoint, ...]
    features: HostFeatures = PLAIN


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """One cable of the tree; ``withheld``: it belongs to the shared plane.

    ``lower`` and ``upper`` are the switch ports at its ends, None if unknown.
    """

    link: Link
    state: LinkState
    owner: str | None
    lower: PortRef | None
    upper: PortRef | None
    withheld: bool = False

    @property
    def free(self) -> bool:
        """Whether a tenant could get it now."""
        return self.state is LinkState.UP and self.owner is None and not self.withheld


@dataclass(frozen=True, slots=True)
class SwitchEntry:
    """One switch and its position; ``pod`` is None for spines, ``positions`` count locally.

    A physical spine that serves several L2 indices has several positions, each
    ``(l2, spine)``; leaves and L2 switches have one, ``(pod, leaf)`` or ``(pod, l2)``.
    """

    switch: Switch
    lid: int | None
    positions: tuple[tuple[int, int], ...]


def host_state(ledger: LedgerView, host: int) -> HostState:
    if host in ledger.failed_hosts:
        return HostState.FAILED
    return HostState.DRAINED if host in ledger.drained_hosts else HostState.UP


def hosts(
    fabric: FabricRecord, ledger: LedgerView, numbers: Collection[int] | None = None
) -> Iterator[HostEntry]:
    """Hosts for tenants that exist, by number; of these numbers only, if given."""
    owners = ledger.owners_of_hosts()
    names = fabric.inventory.host_names
    for number in range(len(names)) if numbers is None else sorted(numbers):
        if names[number] and number not in fabric.topology.absent_hosts:
            yield _host_entry(fabric, ledger, owners, number)


def host(fabric: FabricRecord, ledger: LedgerView, number: int) -> HostEntry:
    """One host that exists."""
    return _host_entry(fabric, ledger, ledger.owners_of_hosts(), number)


def _host_entry(
    fabric: FabricRecord, ledger: LedgerView, owners: Mapping[int, str], number: int
) -> HostEntry:
    topology, inventory = fabric.topology, fabric.inventory
    rails = ((number, rail) for rail in range(topology.rails))
    endpoints = (inventory.endpoint_of_port.get(rail) for rail in rails)
    return HostEntry(
        number,
        inventory.host_names[number],
        host_state(ledger, number),
        owners.get(number),
        topology.ports_of(number),
        tuple(endpoint for endpoint in endpoints if endpoint is not None),
        ledger.features.of(number),
    )


def links(fabric: FabricRecord, ledger: LedgerView) -> Iterator[LinkEntry]:
    """Every cable of the regular tree that exists: leaf links first, then spine links."""
    tree, absent = fabric.topology.tree, fabric.topology.absent_links
    owners = ledger.owners_of_links()
    for number in range(tree.leaf_links + tree.spine_links):
        link = tree.link_at(number)
        if link not in absent:
            yield _link_entry(fabric, ledger, owners, link)


def link(fabric: FabricRecord, ledger: LedgerView, link: Link) -> LinkEntry:
    """One link that exists."""
    return _link_entry(fabric, ledger, ledger.owners_of_links(), link)


def _link_entry(
    fabric: FabricRecord, ledger: LedgerView, owners: Mapping[Link, str], link: Link
) -> LinkEntry:
    cable = fabric.inventory.cable_of_link.get(link)
    return LinkEntry(
        link,
        LinkState.FAILED if link in ledger.failed_links else LinkState.UP,
        owners.get(link),
        cable.lower if cable else None,
        cable.upper if cable else None,
        ledger.shared_plane.withholds(fabric.topology.tree, link),
    )


def switches(fabric: FabricRecord) -> Iterator[SwitchEntry]:
    """Every switch, in the inventory's order."""
    tree, inventory = fabric.topology.tree, fabric.inventory
    positions: dict[int, list[tuple[int, int]]] = {}
    levels = (
        (inventory.leaf_guids, tree.m[1]),
        (inventory.l2_guids, tree.l2_per_pod),
        (inventory.spine_guids, tree.spines_per_group),
    )
    for guids, width in levels:
        for number, guid in enumerate(guids):
            positions.setdefault(guid, []).append(divmod(number, width))
    for switch in inventory.switches:
        yield SwitchEntry(
            switch, inventory.lids.get(switch.guid), tuple(positions.get(switch.guid, ()))
        )
