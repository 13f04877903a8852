# SPDX-License-Identifier: Apache-2.0

"""Snapshots of a fabric with its allocations: written from a ledger, and read into one.

The form is fixed by contract. ``public_snapshot`` writes it; ``snapshot`` adds shapes and
forwarding tables. A snapshot lists hosts and links. A ledger holds masks of leaf groups, in
which one bit stands for the same uplink on all rails of a plane. Reading rebuilds the masks and
refuses lists that no masks could have given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

from laas_service.adapters.documents import (
    Domains,
    HostDocument,
    PlaneDocument,
    domains_document,
    features_from,
    host_document,
    in_order,
    plane_document,
    ports_from,
)
from laas_service.adapters.forms import Natural, Rails, Triple, validated
from laas_service.domain.allocation import WHOLE, Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import DoubleClaim, InvalidInput
from laas_service.domain.features import PLAIN, PLAIN_HOSTS, Features
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.ledger.shared_links import CAP, SharedLedger
from laas_service.domain.routing.tenant_tables import routed_allocations, tenant_tables
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
    domains: Domains = {}
    shared_plane: PlaneDocument = PlaneDocument()


class _Shape(BaseModel):
    pods: Natural
    leaves: Natural
    hosts: Natural
    remainder_leaves: Natural = 0
    remainder_hosts: Natural = 0


class _SnapshotAllocation(BaseModel):
    id: StrictStr = Field(min_length=1)
    n: Annotated[StrictInt, Field(ge=1)]
    policy: StrictStr
    hosts: list[Natural] = Field(min_length=1)
    leaf_links: list[Triple] = []
    spine_links: list[Triple] = []
    shape: _Shape | None = None
    container: StrictBool = False
    inside: list[_SnapshotAllocation] = []
    bandwidth: Annotated[float, Field(gt=0, le=CAP / WHOLE)] | None = None
    undisturbed: StrictBool = False
    """Nobody else's packets may have to cross its links."""
    alone: list[Natural] = []


class _Snapshot(BaseModel):
    """A snapshot; unknown keys are ignored, because later releases may add some."""

    topology: dict[StrictStr, Any]
    allocations: list[_SnapshotAllocation] = []


# -- writing --------------------------------------------------------------------


class SnapshotTopology(NamedTuple):
    """The topology of a snapshot, failed hosts and links that are present, features of hosts."""

    topology: Topology
    failed_hosts: frozenset[int]
    failed_links: frozenset[Link]
    features: Features = PLAIN_HOSTS
    shared_plane: CommonPlane = NO_PLANE


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
            if described._replace(domains=()) != PLAIN
        }
        if domains := domains_document(features):
            document["domains"] = domains
    return document


def public_snapshot(ledger: LedgerView) -> dict[str, Any]:
    """The public snapshot of a ledger; drained hosts count as failed for its readers."""
    down = ledger.failed_hosts | ledger.drained_hosts
    topology = snapshot_topology(ledger.topology, down, ledger.failed_links, ledger.features)
    if ledger.shared_plane:
        topology["shared_plane"] = plane_document(ledger.shared_plane)
    return {
        "topology": topology,
        "allocations": list(_snapshot_allocations(ledger)),
    }


def _snapshot_allocations(ledger: LedgerView) -> Iterator[dict[str, Any]]:
    """The allocations of one ledger; those inside a container are in its entry."""
    for id, allocation in sorted(ledger.allocations.items()):
        entry = snapshot_allocation(ledger.topology, allocation)
        if allocation.container:
            inside = list(_snapshot_allocations(ledger.inside[id]))
            entry |= {"container": True, "inside": inside}
        if id in ledger.undisturbed:
            entry["undisturbed"] = True
        yield entry


def snapshot_allocation(topology: Topology, allocation: Allocation) -> dict[str, Any]:
    """The entry of an allocation in a snapshot, without forwarding tables.

    ``bandwidth`` is present only if the allocation has a share of its links, ``alone`` only if
    nobody else gets the other hosts of its domains.
    """
    whole = allocation.bandwidth == WHOLE
    others = replace(allocation, groups=allocation.alone).hosts(topology)
    return {
        "id": allocation.id,
        "n": allocation.requested,
        "policy": allocation.policy,
        "hosts": list(allocation.hosts(topology)),
        "leaf_links": sorted(map(list, allocation.leaf_links(topology))),
        "spine_links": sorted(map(list, allocation.spine_links(topology))),
        **({} if whole else {"bandwidth": allocation.bandwidth / WHOLE}),
        **({"alone": list(others)} if others else {}),
    }


def snapshot(fabric: LedgerView, tables: bool = False) -> dict[str, Any]:
    """The snapshot of a ledger with each allocation's shape; with ``tables``, its tables too."""
    document = public_snapshot(fabric)
    held = {allocation.id: allocation for allocation in fabric.everybody()}
    routed = {allocation.id: allocation for allocation in routed_allocations(fabric.everybody())}
    for entry in _entries(document["allocations"]):
        entry["shape"] = shape_document(held[entry["id"]].shape)
        if tables and entry["id"] in routed:
            failed = fabric.failed_links
            entry["tables"] = tenant_tables(fabric.topology, routed[entry["id"]], failed)
    return document


def _entries(entries: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The entries, and all entries inside them."""
    for entry in entries:
        yield entry
        yield from _entries(entry.get("inside", ()))


def shape_document(shape: Shape | None) -> dict[str, Any] | None:
    """A shape as a document: its numbers, and ``text`` for people."""
    if shape is None:
        return None
    return {
        "pods": shape.pods,
        "leaves": shape.leaves,
        "hosts": shape.hosts,
        "remainder_leaves": shape.remainder_leaves,
        "remainder_hosts": shape.remainder_hosts,
        "text": str(shape),
    }


# -- reading --------------------------------------------------------------------


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
        features_from(read.hosts, topology, "topology.hosts", read.domains),
        CommonPlane.of(topology.tree, read.shared_plane.l2, read.shared_plane.spines),
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


def _check_same(of_snapshot: Topology, given: Topology) -> None:
    """Check that a snapshot is of the given fabric; an error names each part that differs."""
    theirs, ours = of_snapshot.tree, given.tree
    differences = [
        f"{name} is {a} in the snapshot and {b} in the fabric given"
        for name, a, b in (
            ("m", theirs.m, ours.m),
            ("w", theirs.w, ours.w),
            ("cables", theirs.cables, ours.cables),
            ("rails", of_snapshot.rails, given.rails),
        )
        if a != b
    ]
    if of_snapshot.host_ports != given.host_ports and not differences:
        differences = ["the hosts have other ports"]
    if differences:
        spec = ";".join(",".join(map(str, sizes)) for sizes in ((3,), theirs.m, theirs.w))
        fix = "; ".join(differences) + "; leave out --xgft and --fabric"
        regular = theirs.w[2] and theirs.cables == (1, 1) and of_snapshot.rails == 1
        raise InvalidInput(
            "snapshot.topology", spec, fix + f', or give --xgft "{spec}"' * bool(regular)
        )


def fabric_from_snapshot(document: object, topology: Topology | None = None) -> Ledger:
    """The ledger of a snapshot; failed hosts and links stay failed, owned or not.

    ``topology`` is the fabric that the snapshot must be of. It may mark failed hosts and
    links of the snapshot as absent.

    Raises:
        InvalidInput: the document is no snapshot, contradicts itself or is of another
            fabric; names the field.
    """
    parsed = validated(_Snapshot, "snapshot", document)
    fabric_state = topology_from_snapshot(parsed.topology)
    if topology is None:
        topology = fabric_state.topology
    else:
        _check_same(fabric_state.topology, topology)
    fabric = SharedLedger(topology)
    fabric.describe_hosts(
        {
            host: features
            for host, features in fabric_state.features.hosts.items()
            if host not in topology.absent_hosts
        }
    )
    fabric.withhold(fabric_state.shared_plane)
    for entry, parent, place in _placed(parsed.allocations, None, "snapshot.allocations"):
        if entry.inside and not entry.container:
            raise InvalidInput(
                f"{place}.inside", len(entry.inside), "only containers have allocations inside"
            )
        try:
            fabric.claim(replace(_allocation(topology, entry, place), parent=parent))
        except DoubleClaim as error:
            fix = f"a host, a link and an id have one owner, and must exist ({error})"
            raise InvalidInput(place, entry.id, fix) from error
        if entry.undisturbed:
            fabric.keep_undisturbed(entry.id)
    down_hosts = fabric_state.failed_hosts | fabric_state.topology.absent_hosts
    for host in sorted(down_hosts - topology.absent_hosts):
        fabric.fail_host(host)
    down_links = fabric_state.failed_links | fabric_state.topology.absent_links
    for link in sorted(down_links - topology.absent_links, key=topology.tree.link_id):
        fabric.fail_link(link)
    return fabric


def _placed(
    entries: Iterable[_SnapshotAllocation], parent: str | None, place: str
) -> Iterator[tuple[_SnapshotAllocation, str | None, str]]:
    """Each entry with its container and its place in the document; containers come first."""
    for number, entry in enumerate(entries):
        path = f"{place}[{number}]"
        yield entry, parent, path
        yield from _placed(entry.inside, entry.id, f"{path}.inside")


def _allocation(topology: Topology, entry: _SnapshotAllocation, place: str) -> Allocation:
    """The allocation of an entry, which errors call ``place``."""
    hosts = _host_masks(topology, entry.hosts, f"{place}.hosts")
    uplinks = _uplink_masks(topology, entry.leaf_links, f"{place}.leaf_links")
    columns = _spine_masks(topology, entry.spine_links, f"{place}.spine_links")
    alone = _host_masks(topology, entry.alone, f"{place}.alone")
    width = topology.columns_per_pod
    return Allocation(
        id=entry.id,
        requested=entry.n,
        policy=entry.policy,
        groups=tuple(
            GroupShare(group, hosts[group], uplinks[group])
            for group in sorted(hosts.keys() | uplinks.keys())
        ),
        columns=tuple(ColumnShare(*divmod(i, width), mask) for i, mask in sorted(columns.items())),
        shape=Shape(**entry.shape.model_dump()) if entry.shape else None,
        container=entry.container,
        bandwidth=WHOLE if entry.bandwidth is None else round(entry.bandwidth * WHOLE),
        alone=tuple(GroupShare(group, mask, 0) for group, mask in sorted(alone.items())),
    )


def _host_masks(topology: Topology, hosts: Iterable[int], place: str) -> dict[int, int]:
    """Leaf group -> mask of positions."""
    masks: dict[int, int] = defaultdict(int)
    for number, host in enumerate(hosts):
        if host >= topology.hosts:
            fix = f"hosts are 0..{topology.hosts - 1}"
            raise InvalidInput(f"{place}[{number}]", host, fix)
        group, position = topology.place_of(host)
        if masks[group] >> position & 1:
            raise InvalidInput(f"{place}[{number}]", host, "name each host once")
        masks[group] |= 1 << position
    return masks


def _uplink_masks(topology: Topology, links: Sequence[Triple], place: str) -> dict[int, int]:
    """Leaf group -> mask of uplinks; the leaves of a plane's rails must have the same uplinks."""
    tree = topology.tree
    width = tree.w[1]
    rails: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, link in enumerate(map(LeafLink._make, links)):
        at = topology.group_of_leaf.get(tree.leaf_id(link.pod, link.leaf))
        if at is None or not tree.has_link(link):
            fix = "give [pod, leaf, uplink] of a leaf with hosts"
            raise InvalidInput(f"{place}[{number}]", list(link), fix)
        group, rail = at
        bit = topology.plane_of_rail[rail] * width + link.up
        if rail in rails[group, bit]:
            raise InvalidInput(f"{place}[{number}]", list(link), "name each link once")
        rails[group, bit].add(rail)
    masks: dict[int, int] = defaultdict(int)
    for (group, bit), holding in rails.items():
        if len(holding) != topology.rails_in_plane(bit // width):
            leaves = [divmod(leaf, tree.m[1]) for leaf in topology.leaves_of_group(group)]
            raise InvalidInput(
                place,
                bit % width,
                f"rails that share a pod share their uplinks: the leaves {leaves} must all "
                f"hold uplink {bit % width}, or none",
            )
        masks[group] |= 1 << bit
    return masks


def _spine_masks(topology: Topology, links: Sequence[Triple], place: str) -> dict[int, int]:
    """``Topology.column_of_l2`` -> mask of spine uplinks."""
    masks: dict[int, int] = defaultdict(int)
    for number, link in enumerate(map(SpineLink._make, links)):
        column = topology.column_of_l2.get((link.pod, link.l2))
        if column is None or not topology.tree.has_link(link):
            fix = "give [pod, l2, uplink] of a pod with hosts"
            raise InvalidInput(f"{place}[{number}]", list(link), fix)
        if masks[column] >> link.up & 1:
            raise InvalidInput(f"{place}[{number}]", list(link), "name each link once")
        masks[column] |= 1 << link.up
    return masks
