# SPDX-License-Identifier: Apache-2.0

"""What has failed under a tenant and is missing in a dump: switched off, it is not seen.

It stays recorded, failed as it is, as long as nothing else is in its place, so that one dead
host of a tenant does not keep everybody from importing the rest.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from laas_service.domain.inventory import Cable, Endpoint, PortRef
from laas_service.domain.ledger import LedgerView
from laas_service.domain.reimport.layout import Layout
from laas_service.domain.topology import Port, Topology, link_name


def with_failed(before: Layout, after: Layout, ledger: LedgerView) -> tuple[Layout, list[str]]:
    """``after`` with what is missing but failed and held; and its names."""
    used = {end for cable in after.inventory.cables for end in (cable.lower, cable.upper)}
    used |= {endpoint.at for endpoint in after.inventory.endpoints}
    hosts = _hosts(before, after, ledger, used)
    used |= {endpoint.at for ends in hosts.values() for endpoint in ends}
    cables = _cables(before, after, ledger, used)
    names = list(after.inventory.host_names)
    kept = []
    for number, ends in hosts.items():
        old = ends[0].host
        names[number] = before.inventory.host_names[-1 if old is None else old]
        kept.append(f"host {names[number]}")
    kept += [f"link {link_name(cable.link)}" for cable in cables if cable.link is not None]
    if not kept:
        return after, []
    more = [replace(e, host=number) for number, ends in hosts.items() for e in ends]
    known = before.inventory.lids
    inventory = replace(
        after.inventory,
        host_names=tuple(names),
        endpoints=tuple(sorted((*after.inventory.endpoints, *more), key=lambda e: e.at)),
        cables=tuple(sorted((*after.inventory.cables, *cables), key=lambda c: (c.lower, c.upper))),
        lids={**{e.guid: known[e.guid] for e in more if e.guid in known}, **after.inventory.lids},
    )
    topology = replace(
        after.topology,
        absent_hosts=after.topology.absent_hosts - hosts.keys(),
        absent_links=after.topology.absent_links - {cable.link for cable in cables},
    )
    return Layout(topology, inventory), kept


def _hosts(
    before: Layout, after: Layout, ledger: LedgerView, used: Set[PortRef]
) -> dict[int, tuple[Endpoint, ...]]:
    """By its number then: the ports of each host that is missing, failed and held."""
    held = ledger.owners_of_hosts().keys() & ledger.failed_hosts
    named, guids = after.inventory.host_numbers, {e.guid for e in after.inventory.endpoints}
    found = {}
    for host in sorted(held):
        ends = before.host_endpoints.get(host, ())
        number = _number(after.topology, before.topology.ports_of(host))
        if before.inventory.host_names[host] in named or number is None or not ends:
            continue
        there = all(
            end.at not in used
            and end.guid not in guids
            and after.place_of_leaf.get(end.at.guid) == before.place_of_leaf.get(end.at.guid)
            for end in ends
        )
        if there:
            found[number] = ends
    return found


def _number(topology: Topology, ports: tuple[Port, ...]) -> int | None:
    """The number of the host that is missing at these ports, None if somebody is there."""
    for host in topology.absent_hosts:
        if topology.ports_of(host) == ports:
            return host
    return None


def _cables(before: Layout, after: Layout, ledger: LedgerView, used: Set[PortRef]) -> list[Cable]:
    """The cables of links that are missing, failed and held; of the same two switches."""
    held = ledger.owners_of_links().keys() & ledger.failed_links & after.topology.absent_links
    switches = after.inventory.switch_of_guid
    places = [dict(_joined(layout)) for layout in (before, after)]
    found = []
    for link in sorted(held, key=before.topology.tree.link_id):
        cable = before.inventory.cable_of_link.get(link)
        if cable is None or used & {cable.lower, cable.upper}:
            continue
        ends = {cable.lower.guid, cable.upper.guid}
        if ends <= switches.keys() and all(
            places[0].get(guid) == places[1].get(guid) for guid in ends
        ):
            found.append(cable)
    return found


def _joined(layout: Layout) -> list[tuple[int, frozenset[tuple[int, int, int]]]]:
    """GUID -> everywhere it stands in the tree."""
    found: dict[int, set[tuple[int, int, int]]] = {}
    for level, rows in enumerate((layout.leaves, layout.l2s, layout.spines)):
        for number, row in enumerate(rows):
            for index, guid in enumerate(row):
                found.setdefault(guid, set()).add((level, number, index))
    return [(guid, frozenset(places)) for guid, places in found.items() if guid]
