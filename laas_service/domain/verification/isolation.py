# SPDX-License-Identifier: Apache-2.0

"""Isolation (promise 1): hosts and links exist, and each has at most one owner."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.grouping import grouped
from laas_service.domain.topology import Link, Topology, bits, link_name


def isolation_violations(
    topology: Topology,
    allocations: Iterable[Allocation],
    failed_hosts: Collection[int] = (),
    failed_links: Collection[Link] = (),
    cap: int = 800_000,
) -> list[str]:
    """Violations by hosts and links that have two owners, or that the fabric lacks.

    Hosts and links of ``failed_hosts`` and ``failed_links`` that have an owner are reported
    as well. An allocation inside a container holds a part of the container's hosts and
    links, and shares none with its siblings. Several allocations may share a link if each
    has less than the whole of it, and the shares add up to at most ``cap`` ppm.

    Source: Jigsaw (HPDC'21) sections 3.2.1 and 5.4.2.
    """
    allocations = list(allocations)
    count = Counter(allocation.id for allocation in allocations)
    violations = [f"isolation: two allocations are called {id}" for id in count if count[id] > 1]
    violations += [text for a in allocations for text in address_violations(topology, a)]
    valid = [addressable(topology, allocation) for allocation in allocations]
    owners_of_host = grouped(
        ((a.parent or "", host), a.id) for a in valid for host in a.hosts(topology)
    )
    holders_of_link = grouped(
        ((a.parent or "", link), a) for a in valid for link in a.links(topology)
    )
    for (_, host), owners in sorted(owners_of_host.items()):
        violations += _ownership(f"host {host}", owners, host in failed_hosts)
    for (_, link), holders in sorted(
        holders_of_link.items(), key=lambda x: (topology.tree.link_id(x[0][1]), x[0][0])
    ):
        name, owners = f"link {link_name(link)}", [a.id for a in holders]
        shares = [a.bandwidth for a in holders]
        if all(share < 1_000_000 for share in shares):
            if sum(shares) > cap:
                given = f"isolation: {sum(shares)} ppm of {name} are given to "
                violations.append(given + " and ".join(owners))
            owners = owners[:1]
        violations += _ownership(name, owners, link in failed_links)
    return [*violations, *_strays(topology, {allocation.id: allocation for allocation in valid})]


def _strays(topology: Topology, by_id: Mapping[str, Allocation]) -> Iterator[str]:
    """Hosts and links that allocations inside a container hold and the container does not."""
    for child in by_id.values():
        if child.parent is None:
            continue
        parent = by_id.get(child.parent)
        if parent is None or not parent.container:
            yield f"isolation: {child.id} is inside {child.parent}, which is no container"
            continue
        hosts, links = set(parent.hosts(topology)), set(parent.links(topology))
        strays = [f"host {host}" for host in child.hosts(topology) if host not in hosts]
        strays += [f"link {link_name(link)}" for link in child.links(topology) if link not in links]
        yield from (f"isolation: {child.id} holds {x}, which its container lacks" for x in strays)


def _ownership(what: str, owners: list[str], failed: bool) -> Iterator[str]:
    """Violations by one host or link: several owners, or failed although it has an owner."""
    if len(owners) > 1:
        yield f"isolation: {what} is owned by {' and by '.join(owners)}"
    if failed:
        yield f"fault: {what} of {owners[0]} has failed"


def address_violations(topology: Topology, allocation: Allocation) -> Iterator[str]:
    """Hosts and links of an allocation that this topology lacks."""
    prefix = f"isolation: {allocation.id} holds"
    for group, hosts, uplinks in allocation.groups:
        if not 0 <= group < topology.groups:
            yield f"{prefix} leaf group {group}; there are {topology.groups}"
            continue
        for position in bits(hosts & ~topology.present_positions(group)):
            host = (
                topology.host_at(group, position) if position < topology.hosts_per_group else None
            )
            name = f"position {position} of leaf group {group}" if host is None else f"host {host}"
            yield f"{prefix} {name}, which is absent"
        width = topology.tree.w[1] * topology.planes if topology.leaves_of_group(group) else 0
        if uplinks >> width:
            yield f"{prefix} uplinks of leaf group {group} beyond its {width}"
    for pod, column, uplinks in allocation.columns:
        if not (0 <= pod < topology.pods and 0 <= column < topology.columns_per_pod):
            yield f"{prefix} uplinks of L2 column {pod}/{column}, which is absent"
        elif uplinks >> topology.tree.w[2]:
            yield f"{prefix} uplinks of L2 column {pod}/{column} beyond its {topology.tree.w[2]}"
    for link in addressable(topology, allocation).links(topology):
        if link in topology.absent_links:
            yield f"{prefix} link {link_name(link)}, which is absent"


def addressable(topology: Topology, allocation: Allocation) -> Allocation:
    """The allocation without hosts and links outside the topology, so that all can be named."""
    tree = topology.tree
    groups = tuple(
        GroupShare(
            group,
            hosts & (1 << topology.hosts_per_group) - 1,
            uplinks & (1 << tree.w[1] * topology.planes) - 1,
        )
        for group, hosts, uplinks in allocation.groups
        if 0 <= group < topology.groups
    )
    columns = tuple(
        ColumnShare(pod, column, uplinks & (1 << tree.w[2]) - 1)
        for pod, column, uplinks in allocation.columns
        if 0 <= pod < topology.pods and 0 <= column < topology.columns_per_pod
    )
    return replace(allocation, groups=groups, columns=columns)
