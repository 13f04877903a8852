# SPDX-License-Identifier: Apache-2.0

"""Isolation (promise 1): hosts and links exist, and each has at most one owner."""

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
    """Violations by hosts and links that have two owners, or that the fabric lacks.

    Hosts and links of ``failed_hosts`` and ``failed_links`` that have an owner are reported
    as well. An allocation inside a container holds a part of the container's hosts and
    links, and shares none with its siblings. Several allocations may share a link if each
    has less than the whole of it, and the shares add up to at most ``cap`` ppm.

    Source: Jigsaw (HPDC'21) sections 3.2.1 and 5.4.2.
    """
    violations: list[str] = []
    ids: set[str] = set()
    owners_of_host: dict[tuple[str, int], list[str]] = defaultdict(list)
    owners_of_link: dict[tuple[str, Link], list[str]] = defaultdict(list)
    shares_of_link: dict[tuple[str, Link], list[int]] = defaultdict(list)
    allocations = list(allocations)
    for allocation in allocations:
        if allocation.id in ids:
            violations.append(f"isolation: two allocations are called {allocation.id}")
        ids.add(allocation.id)
        violations += address_violations(topology, allocation)
        valid = addressable(topology, allocation)
        for host in valid.hosts(topology):
            owners_of_host[valid.parent or "", host].append(allocation.id)
        for link in valid.links(topology):
            owners_of_link[valid.parent or "", link].append(allocation.id)
            shares_of_link[valid.parent or "", link].append(allocation.bandwidth)
    for (_, host), owners in sorted(owners_of_host.items()):
        violations += _ownership(f"host {host}", owners, host in failed_hosts)
    for (container, link), owners in sorted(
        owners_of_link.items(), key=lambda x: (topology.tree.link_id(x[0][1]), x[0][0])
    ):
        name, shares = f"link {link_name(link)}", shares_of_link[container, link]
        if all(share < 1_000_000 for share in shares):
            if sum(shares) > cap:
                holders = " and ".join(owners)
                violations.append(f"isolation: {sum(shares)} ppm of {name} are given to {holders}")
            owners = owners[:1]
        violations += _ownership(name, owners, link in failed_links)
    return violations + _strays(topology, allocations)


def _strays(topology: Topology, allocations: Iterable[Allocation]) -> list[str]:
    """Hosts and links that allocations inside a container hold and the container does not."""
    violations = []
    valid = {allocation.id: addressable(topology, allocation) for allocation in allocations}
    for child in valid.values():
        if child.parent is None:
            continue
        parent = valid.get(child.parent)
        if parent is None or not parent.container:
            violations.append(
                f"isolation: {child.id} is inside {child.parent}, which is no container"
            )
            continue
        hosts, links = set(parent.hosts(topology)), set(parent.links(topology))
        strays = [f"host {host}" for host in child.hosts(topology) if host not in hosts]
        strays += [f"link {link_name(link)}" for link in child.links(topology) if link not in links]
        violations += [
            f"isolation: {child.id} holds {x}, which its container lacks" for x in strays
        ]
    return violations


def _ownership(what: str, owners: list[str], failed: bool) -> list[str]:
    """Violations by one host or link: several owners, or failed although it has an owner."""
    violations = []
    if len(owners) > 1:
        violations.append(f"isolation: {what} is owned by {' and by '.join(owners)}")
    if failed:
        violations.append(f"fault: {what} of {owners[0]} has failed")
    return violations


def address_violations(topology: Topology, allocation: Allocation) -> list[str]:
    """Hosts and links of an allocation that this topology lacks."""
    prefix = f"isolation: {allocation.id} holds"
    violations = []
    for group, hosts, uplinks in allocation.groups:
        if not 0 <= group < topology.groups:
            violations.append(f"{prefix} leaf group {group}; there are {topology.groups}")
            continue
        for slot in bits(hosts & ~topology.present_slots(group)):
            host = topology.host_at(group, slot) if slot < topology.slots else None
            name = f"slot {slot} of leaf group {group}" if host is None else f"host {host}"
            violations.append(f"{prefix} {name}, which is absent")
        width = topology.tree.w[1] * topology.planes if topology.leaves_of_group(group) else 0
        if uplinks >> width:
            violations.append(f"{prefix} uplinks of leaf group {group} beyond its {width}")
    for pod, column, uplinks in allocation.columns:
        if not (0 <= pod < topology.pods and 0 <= column < topology.columns_per_pod):
            violations.append(f"{prefix} uplinks of L2 column {pod}/{column}, which is absent")
        elif uplinks >> topology.tree.w[2]:
            violations.append(
                f"{prefix} uplinks of L2 column {pod}/{column} beyond its {topology.tree.w[2]}"
            )
    for link in addressable(topology, allocation).links(topology):
        if link in topology.absent_links:
            violations.append(f"{prefix} link {link_name(link)}, which is absent")
    return violations


def addressable(topology: Topology, allocation: Allocation) -> Allocation:
    """The allocation without hosts and links outside the topology, so that all can be named."""
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
