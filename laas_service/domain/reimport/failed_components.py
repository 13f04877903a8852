# SPDX-License-Identifier: Apache-2.0

"""Failed hosts and links of tenants that a dump lacks because they are switched off.

They stay recorded as failed as long as nothing else is in their place. So one dead host of a
tenant does not prevent the re-import of the rest.
"""

from collections.abc import Iterator, Set
from dataclasses import replace

from laas_service.domain.inventory import Cable, Endpoint, PortRef
from laas_service.domain.ledger import LedgerView
from laas_service.domain.reimport.layout import Layout
from laas_service.domain.topology import Port, Topology, link_name


def with_failed_components(
    before: Layout, after: Layout, ledger: LedgerView
) -> tuple[Layout, list[str]]:
    """``after`` with the missing hosts and links that are failed and held, and their names."""
    used = {end for cable in after.inventory.cables for end in (cable.lower, cable.upper)}
    used |= {endpoint.at for endpoint in after.inventory.endpoints}
    hosts = dict(_hosts(before, after, ledger, used))
    used |= {endpoint.at for endpoints in hosts.values() for endpoint in endpoints}
    cables = list(_cables(before, after, ledger, used))
    names = list(after.inventory.host_names)
    kept = []
    for number, endpoints in hosts.items():
        old = endpoints[0].host
        names[number] = before.inventory.host_names[-1 if old is None else old]
        kept.append(f"host {names[number]}")
    kept += [f"link {link_name(cable.link)}" for cable in cables if cable.link is not None]
    if not kept:
        return after, []
    returned = [
        replace(endpoint, host=number)
        for number, endpoints in hosts.items()
        for endpoint in endpoints
    ]
    known = before.inventory.lids
    inventory = replace(
        after.inventory,
        host_names=tuple(names),
        endpoints=tuple(sorted((*after.inventory.endpoints, *returned), key=lambda e: e.at)),
        cables=tuple(sorted((*after.inventory.cables, *cables), key=lambda c: (c.lower, c.upper))),
        lids={
            **{e.guid: known[e.guid] for e in returned if e.guid in known},
            **after.inventory.lids,
        },
    )
    topology = replace(
        after.topology,
        absent_hosts=after.topology.absent_hosts - hosts.keys(),
        absent_links=after.topology.absent_links - {cable.link for cable in cables},
    )
    return Layout(topology, inventory), kept


def _hosts(
    before: Layout, after: Layout, ledger: LedgerView, used: Set[PortRef]
) -> Iterator[tuple[int, tuple[Endpoint, ...]]]:
    """Each host that is missing, failed and held: its number in ``after``, and its ports."""
    held = ledger.owners_of_hosts().keys() & ledger.failed_hosts
    named, guids = after.inventory.host_numbers, {e.guid for e in after.inventory.endpoints}
    for host in sorted(held):
        endpoints = before.host_endpoints.get(host, ())
        number = _number(after.topology, before.topology.ports_of(host))
        if before.inventory.host_names[host] in named or number is None or not endpoints:
            continue
        places_free = all(
            endpoint.at not in used
            and endpoint.guid not in guids
            and after.place_of_leaf.get(endpoint.at.guid)
            == before.place_of_leaf.get(endpoint.at.guid)
            for endpoint in endpoints
        )
        if places_free:
            yield number, endpoints


def _number(topology: Topology, ports: tuple[Port, ...]) -> int | None:
    """The number of the absent host at these ports; None if another host is there."""
    return next((host for host in topology.absent_hosts if topology.ports_of(host) == ports), None)


def _cables(
    before: Layout, after: Layout, ledger: LedgerView, used: Set[PortRef]
) -> Iterator[Cable]:
    """The cables of links that are missing, failed and held, if their two switches are there."""
    held = ledger.owners_of_links().keys() & ledger.failed_links & after.topology.absent_links
    switches = after.inventory.switch_of_guid
    old, new = before.places_of_switch, after.places_of_switch
    for link in sorted(held, key=before.topology.tree.link_id):
        cable = before.inventory.cable_of_link.get(link)
        if cable is None or used & {cable.lower, cable.upper}:
            continue
        ends = {cable.lower.guid, cable.upper.guid}
        if ends <= switches.keys() and all(old.get(guid) == new.get(guid) for guid in ends):
            yield cable
