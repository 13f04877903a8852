# SPDX-License-Identifier: Apache-2.0


"""Promise 1: a host or link has at most one owner, exists, and is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.topology import Link, Topology, bits, link_name


def isolation_violations(
    topology: Topology,
    allocations: Iterable[Allocation],
    failed_hosts: Collection[int] = (),
    failed_links: Collection[Link] = (),
    cap: int = 800_000,
) -> list[str]:
    """Hosts and links with two owners, that do not exist, or are absent (or failed, if given).

    What is inside a container lies within what that holds, and siblings share nothing.
    A link may have several owners if each has but a share of it, and the shares add up to
    no more than ``cap`` parts per million.

    Source: Jigsaw (HPDC'21) sections 3.2.1 and 5.4.2.
    """
    found: list[str] = []
    ids: set[str] = set()
    owners_of_host: dict[tuple[str, int], list[str]] = defaultdict(list)
    owners_of_link: dict[tuple[str, Link], list[str]] = defaultdict(list)
    shares_of_link: dict[tuple[str, Link], list[int]] = defaultdict(list)
    allocations = list(allocations)
    for allocation in allocations:
        if allocation.id in ids:
            found.append(f"isolation: two allocations are called {allocation.id}")
        ids.add(allocation.id)
        found += address_violations(topology, allocation)
        inside = addressable(topology, allocation)
        for host in inside.hosts(topology):
            owners_of_host[inside.parent or "", host].append(allocation.id)
        for link in inside.links(topology):
            owners_of_link[inside.parent or "", link].append(allocation.id)
            shares_of_link[inside.parent or "", link].append(allocation.bandwidth)
    for (_, host), owners in sorted(owners_of_host.items()):
        found += _doubtful(f"host {host}", owners, host in failed_hosts)
    for (where, link), owners in sorted(
        owners_of_link.items(), key=lambda x: (topology.tree.link_id(x[0][1]), x[0][0])
    ):
        name, shares = f"link {link_name(link)}", shares_of_link[where, link]
        if all(share < 1_000_000 for share in shares):
            if sum(shares) > cap:
                holders = " and ".join(owners)
                found.append(f"isolation: {sum(shares)} ppm of {name} are given to {holders}")
            owners = owners[:1]
        found += _doubtful(name, owners, link in failed_links)
    return found + _strays(topology, allocations)


def _strays(topology: Topology, allocations: Iterable[Allocation]) -> list[str]:
    """What children hold beyond their containers."""
    found = []
    known = {allocation.id: addressable(topology, allocation) for allocation in allocations}
    for child in known.values():
        if child.parent is None:
            continue
        parent = known.get(child.parent)
        if parent is None or not parent.container:
            found.append(f"isolation: {child.id} is inside {child.parent}, which is no container")
            continue
        hosts, links = set(parent.hosts(topology)), set(parent.links(topology))
        what = [f"host {host}" for host in child.hosts(topology) if host not in hosts]
        what += [f"link {link_name(link)}" for link in child.links(topology) if link not in links]
        found += [f"isolation: {child.id} holds {x}, which its container lacks" for x in what]
    return found


def _doubtful(what: str, owners: list[str], failed: bool) -> list[str]:
    found = []
    if len(owners) > 1:
        found.append(f"isolation: {what} is owned by {' and by '.join(owners)}")
    if failed:
        found.append(f"fault: {what} of {owners[0]} has failed")
    return found


def address_violations(topology: Topology, allocation: Allocation) -> list[str]:
    """Hosts and links of an allocation that no fabric of this topology has."""
    start = f"isolation: {allocation.id} holds"
    found = []
    for group, hosts, uplinks in allocation.groups:
        if not 0 <= group < topology.groups:
            found.append(f"{start} leaf group {group}; there are {topology.groups}")
            continue
        for slot in bits(hosts & ~topology.present_slots(group)):
            host = topology.host_at(group, slot) if slot < topology.slots else None
            name = f"slot {slot} of leaf group {group}" if host is None else f"host {host}"
            found.append(f"{start} {name}, which is absent")
        width = topology.tree.w[1] * topology.planes if topology.leaves_of_group(group) else 0
        if uplinks >> width:
            found.append(f"{start} uplinks of leaf group {group} beyond its {width}")
    for pod, column, uplinks in allocation.columns:
        if not (0 <= pod < topology.pods and 0 <= column < topology.columns_per_pod):
            found.append(f"{start} uplinks of L2 column {pod}/{column}, which is absent")
        elif uplinks >> topology.tree.w[2]:
            found.append(
                f"{start} uplinks of L2 column {pod}/{column} beyond its {topology.tree.w[2]}"
            )
    for link in addressable(topology, allocation).links(topology):
        if link in topology.absent_links:
            found.append(f"{start} link {link_name(link)}, which is absent")
    return found


def addressable(topology: Topology, allocation: Allocation) -> Allocation:
    """The part of an allocation that can be named in hosts and links."""
    tree = topology.tree
    groups = tuple(
        GroupShare(
            group,
            hosts & (1 << topology.slots) - 1,
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
