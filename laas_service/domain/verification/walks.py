# SPDX-License-Identifier: Apache-2.0

"""Reachability (promise 3): walks the forwarding tables of the switches for every pair of ports.

Tables are physical: the entries that the switches hold, whatever wrote them. The walks use
nothing else but the cabling in the inventory. Also finds credit loops.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.domain.verification.isolation import addressable
from laas_service.domain.verification.nest import Nest
from laas_service.domain.verification.partition import WHOLE_LINKS
from laas_service.domain.verification.shared import Shared
from laas_service.domain.verification.wires import CableStep, Wires

NO_PORT = 255
"""The port in a table row that means: no entry for this destination."""

Tables = Mapping[int, Mapping[int, int]]
"""Switch GUID -> destination GUID (port of an adapter, or switch) -> out port, 0 for itself."""


def physical_tables(rows: Mapping[int, Sequence[int]], places: Mapping[int, int]) -> Tables:
    """Tables by GUID, from one row of out ports for each switch GUID.

    ``places`` maps a destination GUID to its index in the rows: ``inventory.lids`` for rows
    by LID, as switches have them. A destination beyond the end of a row has no entry.
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
    """Result of the walks: violations, and the number of ordered pairs that were walked."""

    violations: list[str] = field(default_factory=list)
    tenant_pairs: int = 0
    """Pairs of ports of one tenant."""
    manager_pairs: int = 0
    """Pairs of a subnet manager and a port or switch."""
    shared_pairs: int = 0
    """Pairs of ports that the common plane serves."""
    neighbours: int = 0
    """Pairs of a service and a port of a tenant on whose leaf the service is; the service
    shares the tenant's links there."""
    beside_managers: int = 0
    """Pairs of ports of a tenant on rails that its links do not join, whose path begins on the
    switch of a subnet manager and crosses links of others: that switch has to reach every port."""
    unmanaged: list[str] = field(default_factory=list)
    """Switches and aggregation nodes without a route to or from a subnet manager, where no path
    up and then down exists."""


NO_PLACEMENTS: Mapping[str, Sequence[Allocation]] = {}


def walk_violations(
    topology: Topology,
    inventory: Inventory,
    tables: Tables,
    allocations: Iterable[Allocation],
    managers: Collection[int] = (),
    plane: CommonPlane = NO_PLANE,
    placements: Mapping[str, Sequence[Allocation]] = NO_PLACEMENTS,
) -> Walks:
    """Walk every ordered pair of ports of each tenant, and from and to the subnet managers.

    A path between two ports of a tenant must arrive, first up and then down, over the
    tenant's own links. This includes ports on different rails if the tenant's links join
    their leaves. If they do not, the path need not arrive, but it must not use another
    tenant's link; ports of the same host are then not walked. If the tenant's policy owns no
    links, any path is allowed; inside a container it must stay on the container's links.
    Containers themselves are not walked, as their hosts carry no traffic of their own.

    ``managers`` are port GUIDs of subnet managers: each must reach all ports and be reached from
    them; also switches and aggregation nodes, unless no path up and then down leads there
    (``unmanaged``). Paths that begin at their switches, or if none is named at those of the
    recorded ones, count as ``beside_managers`` where they may cross links of others. With a
    shared ``plane``, an owned link may carry only its owner's packets (see ``shared``).

    ``placements`` are, by id, the placements of tenants that hold several at a time: a path between
    two hosts that are in none of them together need not arrive, but uses the tenant's links only.
    A host that is in none of them sends nothing.
    """
    nest = Nest([addressable(topology, allocation) for allocation in allocations])
    allocations = nest.outermost_first
    owners = {x: a.id for a in allocations for x in a.links(topology)}
    fabric = Wires(inventory, tables)
    walks = Walks()
    beside = {fabric.endpoints[guid].at.guid for guid in managers if guid in fabric.endpoints}
    recorded = inventory.managers or inventory.service_endpoints
    beside = beside or {endpoint.at.guid for endpoint in recorded}
    for allocation in allocations:
        if not allocation.container:
            carrier = nest.carrier(allocation)
            carrier_links = None if carrier is None else frozenset(carrier.links(topology))
            together = [
                frozenset(placement.hosts(topology))
                for placement in placements.get(allocation.id, (allocation,))
            ]
            _walk_tenant(
                topology, fabric, allocation, owners, carrier_links, beside, together, walks
            )
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
    carrier_links: Collection[Link] | None,
    beside: Collection[int],
    together: Sequence[Collection[int]],
    walks: Walks,
) -> None:
    ports: dict[tuple[int, int], list[Endpoint]] = defaultdict(list)
    walked = frozenset().union(*together)
    for host in sorted(walked.intersection(allocation.hosts(topology))):
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
            must_arrive = from_rail == to_rail or joined
            for target in targets:
                senders = [
                    s for s in sources if s != target and (must_arrive or s.host != target.host)
                ]
                if not senders:
                    continue
                joint = [
                    s
                    for s in senders
                    if any(s.host in hosts and target.host in hosts for hosts in together)
                ]
                walks.tenant_pairs += len(joint) * must_arrive
                path, problem = fabric.walk(source, target.guid)
                problems = [problem] if problem and must_arrive and joint else []
                if not problem and not must_arrive and source in beside:
                    crossed = any(_trespasses(path, allocation, owners, must_arrive))
                    walks.beside_managers += len(senders) * crossed
                elif not problem:
                    problems += _trespasses(path, allocation, owners, must_arrive)
                    if (
                        must_arrive
                        and carrier_links is not None
                        and allocation.policy not in WHOLE_LINKS
                    ):
                        problems += [
                            f"it leaves its container over {_cable_name(cable)}"
                            for cable, _ in path
                            if cable.link not in carrier_links
                        ]
                walks.violations += [
                    f"reachability: {allocation.id}: host {senders[0].host} rail {from_rail} to "
                    f"host {target.host} rail {to_rail}: {text}"
                    for text in problems
                ]


def _above(topology: Topology, inventory: Inventory, allocation: Allocation) -> dict[int, set[int]]:
    """Switch -> the switches above it that the allocation's own links lead to."""
    above: dict[int, set[int]] = defaultdict(set)
    cables = [inventory.cable_of_link.get(link) for link in allocation.links(topology)]
    climbs = [(c.lower.guid, c.upper.guid) for c in cables if c is not None]
    for lower, upper in reversed(climbs):
        above[lower] |= {upper, *above[upper]}
    return above


def _trespasses(
    path: Sequence[CableStep], allocation: Allocation, owners: Mapping[Link, str], must_arrive: bool
) -> Iterator[str]:
    """Violations by a path that arrives: turns from down to up, and links of others.

    With ``must_arrive``, every link must be the tenant's own. A tenant whose policy owns no
    links has no promise about its paths, which may turn around missing cables;
    ``credit_loop`` checks that no deadlock arises.
    """
    if allocation.policy not in WHOLE_LINKS:
        return
    for step, following in pairwise(path):
        if following.up and not step.up:
            yield "it goes up after it went down"
    for cable, _ in path:
        owner = owners.get(cable.link) if cable.link else None
        if owner != allocation.id and (must_arrive or owner is not None):
            yield f"it uses {_cable_name(cable)}, which {owner or 'nobody'} owns"


def _cable_name(cable: Cable) -> str:
    if cable.link is not None:
        return f"link {link_name(cable.link)}"
    (a, a_port), (b, b_port) = cable.lower, cable.upper
    return f"the cable {a:#018x}[{a_port}]-{b:#018x}[{b_port}]"


def _walk_manager(fabric: Wires, manager: int, walks: Walks) -> None:
    endpoint = fabric.endpoints.get(manager)
    if endpoint is None:
        walks.violations.append(f"management: there is no port {manager:#018x}")
        return
    own = endpoint.at.guid
    above = _ancestors(fabric.inventory)
    nodes = {e.guid for e in fabric.endpoints.values() if "Aggregation Node" in e.name}
    nodes |= {s.guid for s in fabric.inventory.switches}
    targets = [(e.guid, e.at.guid, f"port {e.name}") for e in fabric.endpoints.values()]
    targets += [(s.guid, s.guid, f"switch {s.name}") for s in fabric.inventory.switches]
    for guid, switch, name in targets:
        if guid == manager:
            continue
        walks.manager_pairs += 2
        for start, end, direction in ((own, guid, "to"), (switch, manager, "from")):
            _, problem = fabric.walk(start, end)
            if problem and guid in nodes and not above[own] & above[switch]:
                walks.unmanaged.append(f"{endpoint.name} {direction} {name} ({guid:#018x})")
            elif problem:
                walks.violations.append(
                    f"management: {endpoint.name} {direction} {name} ({guid:#018x}): {problem}"
                )


def _ancestors(inventory: Inventory) -> dict[int, set[int]]:
    """Each switch, and those that cables lead up to from it, over recorded levels."""
    level = {switch.guid: switch.level for switch in inventory.switches}
    above = {guid: {guid} for guid in level}
    ups: dict[int, set[int]] = defaultdict(set)
    for cable in inventory.cables:
        ends = sorted((cable.lower.guid, cable.upper.guid), key=level.__getitem__)
        if level[ends[0]] < level[ends[1]]:
            ups[ends[0]].add(ends[1])
    for guid in sorted(level, key=level.__getitem__, reverse=True):
        for upper in ups[guid]:
            above[guid] |= above[upper]
    return above


def credit_loop(inventory: Inventory, tables: Tables) -> list[PortRef]:
    """A cycle of out ports whose buffers may wait for each other; empty if there is none.

    A channel depends on the next one if the tables forward some destination over both,
    whether or not a host sends there. Without a cycle there is no deadlock on one virtual
    lane (Dally and Seitz, 1987).
    """
    fabric = Wires(inventory, tables)
    successors: dict[PortRef, set[PortRef]] = defaultdict(set)
    for destination in {guid for row in tables.values() for guid in row}:
        hops = dict(fabric.next_hops(destination))
        out = {port.guid: port for port in hops}
        for port, far in hops.items():
            if far.guid in out:
                successors[port].add(out[far.guid])
    try:
        TopologicalSorter(successors).prepare()
    except CycleError as error:
        cycle: list[PortRef] = error.args[1]  # from successor to predecessor, the first one twice
        return cycle[:0:-1]
    return []
