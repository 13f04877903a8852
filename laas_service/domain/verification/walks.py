# SPDX-License-Identifier: Apache-2.0


"""Promise 3: walks over the tables that are programmed in the switches, pair by pair.

Tables are physical: what the switches hold, however it got there. Nothing is
assumed but the cabling in the inventory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.domain.verification.isolation import addressable
from laas_service.domain.verification.nest import Nest
from laas_service.domain.verification.partition import WHOLE_LINKS
from laas_service.domain.verification.shared import Shared
from laas_service.domain.verification.wires import Step, Wires

NO_PORT = 255
"""What a switch holds for a destination that it has no entry for."""

Tables = Mapping[int, Mapping[int, int]]
"""Switch GUID -> destination GUID (port of an adapter, or switch) -> out port, 0 for itself."""


def physical_tables(rows: Mapping[int, Sequence[int]], places: Mapping[int, int]) -> Tables:
    """Tables by GUID from rows of ports.

    ``places`` says where in a row a destination GUID is: ``inventory.lids`` for rows
    by LID, as switches have them. What lies beyond a row's end has no entry.
    """
    return {
        switch: {
            guid: row[place]
            for guid, place in places.items()
            if place < len(row) and row[place] != NO_PORT
        }
        for switch, row in rows.items()
    }


@dataclass
class Walks:
    """What was found, and how much was walked: ordered pairs of tenants' ports, and
    ordered pairs of a manager and a port or switch. With a shared plane also ordered pairs
    of ports that it serves, and of these a service and a port of a tenant on whose leaf the
    service is (``neighbours``): it shares the tenant's links."""

    violations: list[str] = field(default_factory=list)
    tenant_pairs: int = 0
    manager_pairs: int = 0
    shared_pairs: int = 0
    neighbours: int = 0


def walk_violations(
    topology: Topology,
    inventory: Inventory,
    tables: Tables,
    allocations: Iterable[Allocation],
    managers: Collection[int] = (),
    plane: SharedPlane = NO_PLANE,
) -> Walks:
    """Walk every ordered pair of every tenant's ports, and from and to the managers.

    A tenant's pair must arrive, up then down, over links of its own. Pairs on
    different rails must do so where the tenant's links join them; where they do not,
    two hosts' ports need not arrive, but must not use another tenant's link (ports of
    one host are then not walked). A tenant whose policy owns no links must
    arrive, whichever way; inside a container, over that container's links. Containers
    themselves are not walked: nobody is on what they keep.
    ``managers`` are port GUIDs of subnet managers: each must reach all ports and
    switches, and be reached from them. Where there is a shared ``plane``, nothing but its
    owner's packets may be on an owned link (see ``shared``).
    """
    nest = Nest([addressable(topology, allocation) for allocation in allocations])
    allocations = nest.outermost_first
    owners = {x: a.id for a in allocations for x in a.links(topology)}
    fabric = Wires(inventory, tables)
    walks = Walks()
    for allocation in allocations:
        if not allocation.container:
            carrier = nest.carrier(allocation)
            home = None if carrier is None else frozenset(carrier.links(topology))
            _walk_tenant(topology, fabric, allocation, owners, home, walks)
    for manager in managers:
        _walk_manager(fabric, manager, walks)
    if plane:
        shared = Shared(topology, inventory, tables, allocations, plane)
        walks.violations += shared.violations
        walks.shared_pairs, walks.neighbours = shared.pairs, shared.neighbours
    return walks


def _walk_tenant(
    topology: Topology,
    fabric: Wires,
    allocation: Allocation,
    owners: Mapping[Link, str],
    home: Collection[Link] | None,
    walks: Walks,
) -> None:
    ports: dict[tuple[int, int], list[Endpoint]] = defaultdict(list)
    for host in allocation.hosts(topology):
        for rail in range(topology.rails):
            endpoint = fabric.inventory.endpoint_of_port.get((host, rail))
            if endpoint is None:
                walks.violations.append(
                    f"reachability: {allocation.id}: host {host} has no port on rail {rail}"
                )
            else:
                ports[endpoint.at.guid, rail].append(endpoint)
    above = _above(topology, fabric.inventory, allocation)
    for (source, from_rail), sources in ports.items():
        for (leaf, to_rail), targets in ports.items():
            joined = source == leaf or bool(above[source] & above[leaf])
            must = from_rail == to_rail or joined
            for target in targets:
                senders = [s for s in sources if s != target and (must or s.host != target.host)]
                if not senders:
                    continue
                walks.tenant_pairs += len(senders) * must
                path, wrong = fabric.walk(source, target.guid)
                found = [wrong] if wrong and must else []
                if not wrong:
                    found += _trespasses(path, allocation, owners, must)
                    if must and home is not None and allocation.policy not in WHOLE_LINKS:
                        found += [
                            f"it leaves its container over {_cable_name(cable)}"
                            for cable, _ in path
                            if cable.link not in home
                        ]
                walks.violations += [
                    f"reachability: {allocation.id}: host {senders[0].host} rail {from_rail} to "
                    f"host {target.host} rail {to_rail}: {text}"
                    for text in found
                ]


def _above(topology: Topology, inventory: Inventory, allocation: Allocation) -> dict[int, set[int]]:
    """Switch -> the switches that climbing over the allocation's own links leads to."""
    found: dict[int, set[int]] = defaultdict(set)
    cables = [inventory.cable_of_link.get(link) for link in allocation.links(topology)]
    climbs = [(c.lower.guid, c.upper.guid) for c in cables if c is not None]
    for lower, upper in reversed(climbs):
        found[lower] |= {upper, *found[upper]}
    return found


def _trespasses(
    path: Sequence[Step], allocation: Allocation, owners: Mapping[Link, str], must: bool
) -> Iterator[str]:
    """Links of others on a path that arrives, and turns from down to up.

    A tenant whose policy owns no links has no promise about its way, which past
    missing cables may turn; that nothing waits in a circle is ``credit_loop``'s part.
    """
    if allocation.policy not in WHOLE_LINKS:
        return
    for before, after in pairwise(path):
        if after.up and not before.up:
            yield "it goes up after it went down"
    for cable, _ in path:
        owner = owners.get(cable.link) if cable.link else None
        if owner != allocation.id and (must or owner is not None):
            yield f"it uses {_cable_name(cable)}, which {owner or 'nobody'} owns"


def _cable_name(cable: Cable) -> str:
    if cable.link is not None:
        return f"link {link_name(cable.link)}"
    (a, a_port), (b, b_port) = cable.lower, cable.upper
    return f"the cable {a:#018x}[{a_port}]-{b:#018x}[{b_port}]"


def _walk_manager(fabric: Wires, manager: int, walks: Walks) -> None:
    home = fabric.endpoints.get(manager)
    if home is None:
        walks.violations.append(f"management: there is no port {manager:#018x}")
        return
    others = [(e.guid, e.at.guid, f"port {e.name}") for e in fabric.endpoints.values()]
    others += [(s.guid, s.guid, f"switch {s.name}") for s in fabric.inventory.switches]
    for guid, switch, name in others:
        if guid == manager:
            continue
        walks.manager_pairs += 2
        for start, end, way in ((home.at.guid, guid, "to"), (switch, manager, "from")):
            _, wrong = fabric.walk(start, end)
            if wrong:
                walks.violations.append(
                    f"management: {home.name} {way} {name} ({guid:#018x}): {wrong}"
                )


def credit_loop(inventory: Inventory, tables: Tables) -> list[PortRef]:
    """Out ports whose buffers may wait for each other in a circle; empty is sound.

    A channel depends on the next one if the tables send some destination over both,
    whether or not anybody sends there: no cycle means no deadlock on one virtual lane
    (Dally and Seitz, 1987).
    """
    fabric = Wires(inventory, tables)
    after: dict[PortRef, set[PortRef]] = defaultdict(set)
    for destination in {guid for row in tables.values() for guid in row}:
        hops = dict(fabric.next_hops(destination))
        out = {port.guid: port for port in hops}
        for port, far in hops.items():
            if far.guid in out:
                after[port].add(out[far.guid])
    return _cycle(after)


def _cycle(after: Mapping[PortRef, Collection[PortRef]]) -> list[PortRef]:
    """Some cycle of a graph: what is left when all that leads nowhere is taken away."""
    waiting = {node: len(following) for node, following in after.items()}
    before: dict[PortRef, list[PortRef]] = defaultdict(list)
    for node, following in after.items():
        for other in following:
            before[other].append(node)
    free = [node for node in before if not waiting.get(node)]
    while free:
        for node in before[free.pop()]:
            waiting[node] -= 1
            if not waiting[node]:
                free.append(node)
    here = next((node for node, count in waiting.items() if count), None)
    path: list[PortRef] = []
    while here is not None and here not in path:
        path.append(here)
        here = min(other for other in after[here] if waiting.get(other))
    return path[path.index(here) :] if here is not None else []
