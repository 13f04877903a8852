# SPDX-License-Identifier: Apache-2.0

"""Snapshots of a fabric with its allocations: written from a ledger, and read into one.

A snapshot lists hosts and links. A ledger holds masks of leaf groups, in which one bit stands
for the same uplink on all rails of a plane. Reading rebuilds the masks and refuses lists that
no masks could have given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

from laas_service.adapters import documents
from laas_service.adapters.documents import Natural, Triple, validated
from laas_service.domain.allocation import WHOLE, Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.errors import DoubleClaim, InvalidInput
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.ledger.shared_links import CAP, SharedLedger
from laas_service.domain.routing.tenant_tables import routed_allocations, tenant_tables
from laas_service.domain.topology import LeafLink, SpineLink, Topology


class _Shape(BaseModel):
    pods: Natural
    leaves: Natural
    hosts: Natural
    remainder_leaves: Natural = 0
    remainder_hosts: Natural = 0


class _Allocation(BaseModel):
    id: StrictStr = Field(min_length=1)
    n: Annotated[StrictInt, Field(ge=1)]
    policy: StrictStr
    hosts: list[Natural] = Field(min_length=1)
    leaf_links: list[Triple] = []
    spine_links: list[Triple] = []
    shape: _Shape | None = None
    container: StrictBool = False
    inside: list[_Allocation] = []
    bandwidth: Annotated[float, Field(gt=0, le=CAP / WHOLE)] | None = None


class _Snapshot(BaseModel):
    """A snapshot; unknown keys are ignored, because later releases may add some."""

    topology: dict[StrictStr, Any]
    allocations: list[_Allocation] = []


def snapshot(fabric: LedgerView, tables: bool = False) -> dict[str, Any]:
    """The snapshot of a ledger with each allocation's shape; with ``tables``, its tables too."""
    document = documents.snapshot(fabric)
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


def fabric_from_snapshot(document: object, topology: Topology | None = None) -> Ledger:
    """The ledger of a snapshot; failed hosts and links stay failed, owned or not.

    ``topology`` is the fabric that the snapshot must be of. It may mark failed hosts and
    links of the snapshot as absent.

    Raises:
        InvalidInput: the document is no snapshot, contradicts itself or is of another
            fabric; names the field.
    """
    parsed = validated(_Snapshot, "snapshot", document)
    fabric_state = documents.topology_from_snapshot(parsed.topology)
    if topology is None:
        topology = fabric_state.topology
    elif (topology.tree, topology.host_ports) != (
        fabric_state.topology.tree,
        fabric_state.topology.host_ports,
    ):
        raise InvalidInput(
            "snapshot.topology", str(fabric_state.topology.tree), f"the fabric is {topology.tree}"
        )
    fabric = SharedLedger(topology)
    fabric.describe_hosts(
        {
            host: features
            for host, features in fabric_state.features.hosts.items()
            if host not in topology.absent_hosts
        }
    )
    fabric.withhold(fabric_state.shared_plane)
    builder = _Builder(topology)
    for entry, parent, place in _placed(parsed.allocations, None, "snapshot.allocations"):
        if entry.inside and not entry.container:
            raise InvalidInput(
                f"{place}.inside", len(entry.inside), "only containers have allocations inside"
            )
        try:
            fabric.claim(replace(builder.allocation(entry, place), parent=parent))
        except DoubleClaim as error:
            fix = f"a host, a link and an id have one owner, and must exist ({error})"
            raise InvalidInput(place, entry.id, fix) from error
    down_hosts = fabric_state.failed_hosts | fabric_state.topology.absent_hosts
    for host in sorted(down_hosts - topology.absent_hosts):
        fabric.fail_host(host)
    down_links = fabric_state.failed_links | fabric_state.topology.absent_links
    for link in sorted(down_links - topology.absent_links, key=topology.tree.link_id):
        fabric.fail_link(link)
    return fabric


def _placed(
    entries: Iterable[_Allocation], parent: str | None, place: str
) -> Iterator[tuple[_Allocation, str | None, str]]:
    """Each entry with its container and its place in the document; containers come first."""
    for number, entry in enumerate(entries):
        path = f"{place}[{number}]"
        yield entry, parent, path
        yield from _placed(entry.inside, entry.id, f"{path}.inside")


class _Builder:
    """Builds allocations: masks from lists of hosts and links."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._place_of_leaf = {
            divmod(leaf, topology.tree.m[1]): (group, rail)
            for group in range(topology.groups)
            for rail, leaf in enumerate(topology.leaves_of_group(group))
        }
        self._column_of_l2 = {
            topology.l2_of_column(pod, column): (pod, column)
            for pod in range(topology.pods)
            for column in range(topology.columns_per_pod)
        }

    def allocation(self, entry: _Allocation, place: str) -> Allocation:
        hosts = self._hosts(entry.hosts, f"{place}.hosts")
        uplinks = self._uplinks(entry.leaf_links, f"{place}.leaf_links")
        columns = self._columns(entry.spine_links, f"{place}.spine_links")
        return Allocation(
            id=entry.id,
            requested=entry.n,
            policy=entry.policy,
            groups=tuple(
                GroupShare(group, hosts[group], uplinks[group])
                for group in sorted(hosts.keys() | uplinks.keys())
            ),
            columns=tuple(ColumnShare(*at, mask) for at, mask in sorted(columns.items())),
            shape=Shape(**entry.shape.model_dump()) if entry.shape else None,
            container=entry.container,
            bandwidth=WHOLE if entry.bandwidth is None else round(entry.bandwidth * WHOLE),
        )

    def _hosts(self, hosts: Iterable[int], place: str) -> dict[int, int]:
        masks: dict[int, int] = defaultdict(int)
        for number, host in enumerate(hosts):
            if host >= self._topology.hosts:
                fix = f"hosts are 0..{self._topology.hosts - 1}"
                raise InvalidInput(f"{place}[{number}]", host, fix)
            group, slot = self._topology.place_of(host)
            if masks[group] >> slot & 1:
                raise InvalidInput(f"{place}[{number}]", host, "name each host once")
            masks[group] |= 1 << slot
        return masks

    def _uplinks(self, links: Sequence[Triple], place: str) -> dict[int, int]:
        """Uplink masks by leaf group; the leaves of a plane's rails must have the same uplinks."""
        topology = self._topology
        width = topology.tree.w[1]
        rails: dict[tuple[int, int], set[int]] = defaultdict(set)
        for number, link in enumerate(map(LeafLink._make, links)):
            at = self._place_of_leaf.get((link.pod, link.leaf))
            if at is None or not topology.tree.has_link(link):
                raise InvalidInput(
                    f"{place}[{number}]",
                    list(link),
                    "give [pod, leaf, uplink] of a leaf with hosts",
                )
            group, rail = at
            bit = topology.plane_of_rail[rail] * width + link.up
            if rail in rails[group, bit]:
                raise InvalidInput(f"{place}[{number}]", list(link), "name each link once")
            rails[group, bit].add(rail)
        masks: dict[int, int] = defaultdict(int)
        for (group, bit), holding in rails.items():
            if len(holding) != topology.rails_in_plane(bit // width):
                leaves = [
                    divmod(leaf, topology.tree.m[1]) for leaf in topology.leaves_of_group(group)
                ]
                raise InvalidInput(
                    place,
                    bit % width,
                    f"rails that share a pod share their uplinks: the leaves {leaves} must all "
                    f"hold uplink {bit % width}, or none",
                )
            masks[group] |= 1 << bit
        return masks

    def _columns(self, links: Sequence[Triple], place: str) -> dict[tuple[int, int], int]:
        masks: dict[tuple[int, int], int] = defaultdict(int)
        for number, link in enumerate(map(SpineLink._make, links)):
            at = self._column_of_l2.get((link.pod, link.l2))
            if at is None or not self._topology.tree.has_link(link):
                raise InvalidInput(
                    f"{place}[{number}]", list(link), "give [pod, l2, uplink] of a pod with hosts"
                )
            if masks[at] >> link.up & 1:
                raise InvalidInput(f"{place}[{number}]", list(link), "name each link once")
            masks[at] |= 1 << link.up
        return masks
