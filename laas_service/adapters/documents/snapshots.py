# SPDX-License-Identifier: Apache-2.0

"""The public snapshot of a ledger, a form that is fixed by contract.

``adapters.snapshot`` adds shapes and forwarding tables, and reads allocations back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, StrictStr

from laas_service.adapters.documents.fields import Natural, Rails, Triple, validated
from laas_service.adapters.documents.states import (
    HostDocument,
    PlaneDocument,
    features_from,
    host_document,
    plane_document,
)
from laas_service.adapters.documents.topology import in_order, ports_from
from laas_service.domain.allocation import WHOLE, Allocation
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import PLAIN_HOSTS, Features
from laas_service.domain.ledger import LedgerView
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, Xgft


class _SnapshotTopology(BaseModel):
    """Unknown keys are ignored, because later releases may add some."""

    m: Triple
    w: Triple
    cables: tuple[Natural, Natural] = (1, 1)
    rails: Rails = 1
    host_ports: dict[StrictStr, list[Triple]] = {}
    failed_hosts: list[Natural] = []
    failed_leaf_links: list[Triple] = []
    failed_spine_links: list[Triple] = []
    absent_hosts: list[Natural] = []
    absent_leaf_links: list[Triple] = []
    absent_spine_links: list[Triple] = []
    hosts: dict[StrictStr, HostDocument] = {}
    shared_plane: PlaneDocument = PlaneDocument()


class SnapshotTopology(NamedTuple):
    """The topology of a snapshot, failed hosts and links that are present, features of hosts."""

    topology: Topology
    failed_hosts: frozenset[int]
    failed_links: frozenset[Link]
    features: Features = PLAIN_HOSTS
    shared_plane: SharedPlane = NO_PLANE


def snapshot_topology(
    topology: Topology,
    failed_hosts: Collection[int] = (),
    failed_links: Collection[Link] = (),
    features: Features | None = None,
) -> dict[str, Any]:
    """The ``topology`` of a public snapshot.

    Absent hosts and links are listed as failed, which is enough for readers. Keys of their own,
    written only if something is absent, tell ``topology_from_snapshot`` the difference.
    """
    tree, absent = topology.tree, topology.absent_links
    down = in_order(tree, absent.union(failed_links))
    missing = in_order(tree, absent)
    document: dict[str, Any] = {"m": list(tree.m), "w": list(tree.w)}
    if tree.cables != (1, 1):
        document["cables"] = list(tree.cables)
    if topology.host_ports:
        document["rails"] = topology.rails
        document["host_ports"] = {
            str(host): [list(port) for port in ports]
            for host, ports in enumerate(topology.host_ports)
        }
    document["failed_hosts"] = sorted(topology.absent_hosts.union(failed_hosts))
    document["failed_leaf_links"] = [list(x) for x in down if isinstance(x, LeafLink)]
    document["failed_spine_links"] = [list(x) for x in down if isinstance(x, SpineLink)]
    if topology.absent_hosts:
        document["absent_hosts"] = sorted(topology.absent_hosts)
    if missing:
        document["absent_leaf_links"] = [list(x) for x in missing if isinstance(x, LeafLink)]
        document["absent_spine_links"] = [list(x) for x in missing if isinstance(x, SpineLink)]
    if features is not None and features.hosts:
        document["hosts"] = {
            str(host): host_document(described)
            for host, described in sorted(features.hosts.items())
        }
    return document


def snapshot(ledger: LedgerView) -> dict[str, Any]:
    """The public snapshot of a ledger; drained hosts count as failed for its readers."""
    down = ledger.failed_hosts | ledger.drained_hosts
    topology = snapshot_topology(ledger.topology, down, ledger.failed_links, ledger.features)
    if ledger.shared_plane:
        topology["shared_plane"] = plane_document(ledger.shared_plane)
    return {
        "topology": topology,
        "allocations": _snapshot_allocations(ledger),
    }


def _snapshot_allocations(ledger: LedgerView) -> list[dict[str, Any]]:
    """The allocations of one ledger; those inside a container are in its entry."""
    entries = []
    for id, allocation in sorted(ledger.allocations.items()):
        entry = snapshot_allocation(ledger.topology, allocation)
        if allocation.container:
            entry |= {"container": True, "inside": _snapshot_allocations(ledger.inside[id])}
        entries.append(entry)
    return entries


def snapshot_allocation(topology: Topology, allocation: Allocation) -> dict[str, Any]:
    """The entry of an allocation in a snapshot, without forwarding tables.

    ``bandwidth`` is present only if the allocation has a share of its links.
    """
    whole = allocation.bandwidth == WHOLE
    return {
        "id": allocation.id,
        "n": allocation.requested,
        "policy": allocation.policy,
        "hosts": list(allocation.hosts(topology)),
        "leaf_links": sorted(map(list, allocation.leaf_links(topology))),
        "spine_links": sorted(map(list, allocation.spine_links(topology))),
        **({} if whole else {"bandwidth": allocation.bandwidth / WHOLE}),
    }


def topology_from_snapshot(document: object) -> SnapshotTopology:
    """The topology and the faults of a snapshot (the whole of it, or its ``topology``).

    Raises:
        InvalidInput: it is no snapshot; names the field.
    """
    if isinstance(document, Mapping) and "topology" in document:
        document = document["topology"]
    read = validated(_SnapshotTopology, "topology", document)
    if read.rails > 1 and not read.host_ports:
        raise InvalidInput("topology.host_ports", {}, f"give the {read.rails} ports of each host")
    absent_hosts = frozenset(read.absent_hosts)
    absent_links = _links(read.absent_leaf_links, read.absent_spine_links)
    topology = Topology(
        Xgft(read.m, read.w, read.cables),
        rails=read.rails,
        host_ports=ports_from(_rows(read.host_ports)),
        absent_hosts=absent_hosts,
        absent_links=absent_links,
    )
    failed_links = _links(read.failed_leaf_links, read.failed_spine_links)
    for host in read.failed_hosts:
        if host >= topology.hosts:
            raise InvalidInput("topology.failed_hosts", host, f"hosts are 0..{topology.hosts - 1}")
    for link in failed_links:
        if not topology.tree.has_link(link):
            raise InvalidInput(
                "topology.failed links", list(link), f"links lie within w={topology.tree.w}"
            )
    return SnapshotTopology(
        topology,
        frozenset(read.failed_hosts) - absent_hosts,
        failed_links - absent_links,
        features_from(read.hosts, topology, "topology.hosts"),
        SharedPlane.of(topology.tree, read.shared_plane.l2, read.shared_plane.spines),
    )


def _rows(host_ports: dict[str, list[tuple[int, int, int]]]) -> list[list[tuple[int, int, int]]]:
    """The ports of hosts 0, 1, 2, ... without a gap."""
    for number in range(len(host_ports)):
        if str(number) not in host_ports:
            raise InvalidInput(
                "topology.host_ports", sorted(host_ports)[:3], f"name every host; {number} lacks"
            )
    return [host_ports[str(number)] for number in range(len(host_ports))]


def _links(
    leaf: Iterable[tuple[int, int, int]], spine: Iterable[tuple[int, int, int]]
) -> frozenset[Link]:
    return frozenset([*(LeafLink(*x) for x in leaf), *(SpineLink(*x) for x in spine)])
