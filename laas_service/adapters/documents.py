# SPDX-License-Identifier: Apache-2.0

"""JSON-able documents of topologies, inventories and allocations, both ways.

They travel on the bus and lie in the database, so they are exact (what is read
equals what was written), stable (equal values give equal documents) and carry
a version. GUIDs are ``0x%016x``, masks are hexadecimal, links go by their REST
names. A document that is not one is refused with the field that is wrong.

The topology part of the public snapshot is a separate form, fixed by contract.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)

from laas_service.domain.allocation import WHOLE, Allocation, ColumnShare, GroupShare, Shape
from laas_service.domain.constraints import Constraints, Within
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import DEAREST, PLAIN_HOSTS, TRAIT, Features, HostFeatures
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.ledger import LedgerView
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import (
    LeafLink,
    Link,
    Port,
    SpineLink,
    Topology,
    Xgft,
    link_name,
    parse_link,
)

VERSION = 1

DIGITS = 9
"""Of the number of a host; Python takes no number of thousands of digits from a text."""


def _from_hex(value: object) -> int:
    if isinstance(value, str) and value.startswith("0x"):
        try:
            return int(value, 16)
        except ValueError:
            pass
    raise ValueError("give a hexadecimal number such as 0x1f")


def _link(value: object) -> Link:
    try:
        return parse_link(value if isinstance(value, str) else "")
    except InvalidInput as error:
        raise ValueError(error.fix) from error


Natural = Annotated[StrictInt, Field(ge=0)]
Rails = Annotated[StrictInt, Field(ge=1)]
Guid = Annotated[int, BeforeValidator(_from_hex), Field(ge=0, lt=1 << 64)]
Mask = Annotated[int, BeforeValidator(_from_hex), Field(ge=0)]
LinkName = Annotated[Any, BeforeValidator(_link)]
Lid = Annotated[StrictInt, Field(ge=1, le=0xBFFF)]
Triple = tuple[Natural, Natural, Natural]
Trait = Annotated[StrictStr, Field(pattern=TRAIT)]
Cost = Annotated[StrictInt, Field(ge=0, le=DEAREST)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]


class _Topology(_Document):
    m: Triple
    w: Triple
    cables: tuple[Natural, Natural]
    rails: Rails
    host_ports: list[list[Triple]]
    absent_hosts: list[Natural]
    absent_links: list[LinkName]


class _Inventory(_Document):
    host_names: list[StrictStr]
    switches: list[tuple[Guid, StrictStr, Natural, Natural]]
    cables: list[tuple[Guid, Natural, Guid, Natural, LinkName | None]]
    endpoints: list[tuple[Guid, StrictStr, Guid, Natural, Natural | None, Natural]]
    leaf_guids: list[Guid]
    l2_guids: list[Guid]
    spine_guids: list[Guid]
    lids: list[tuple[Guid, Lid]]


class _Allocation(_Document):
    id: StrictStr
    requested: Natural
    policy: StrictStr
    groups: list[tuple[Natural, Mask, Mask]]
    columns: list[tuple[Natural, Natural, Mask]]
    shape: tuple[Natural, Natural, Natural, Natural, Natural] | None
    parent: StrictStr | None = None
    container: StrictBool = False


class _Plane(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    l2: tuple[Natural, ...] = ()
    spines: tuple[Natural, ...] = ()


class _Constraints(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    traits: list[Trait] = []
    avoid_hosts: list[Natural] = []
    avoid_pods: list[Natural] = []
    within: Within | None = None
    spread: Rails = 1
    max_host_cost: Cost | None = None
    cheapest: StrictBool = False


class HostDocument(BaseModel):
    """What a host is like, as files have it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    traits: list[Trait] = []
    cost: Cost = 0


class _SnapshotTopology(BaseModel):
    """Keys that a later release adds are passed over: the contract grows by adding."""

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
    shared_plane: _Plane = _Plane()


Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], kind: str, document: object) -> Model:
    """The document as a model; ``kind`` is what errors call it.

    Raises:
        InvalidInput: it is none; names the field.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in first["loc"])
        value = first["input"] if first["type"] != "missing" else None
        raise InvalidInput(kind + place, _short(value), _fix(first["msg"])) from error


def _fix(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[0].lower() + text[1:]


def _short(value: object) -> object:
    text = repr(value)
    return value if len(text) <= 80 else text[:77] + "..."


# -- topology -----------------------------------------------------------------


def topology_document(topology: Topology) -> dict[str, Any]:
    """The topology as a document; ``topology_from`` is the inverse."""
    tree = topology.tree
    return {
        "version": VERSION,
        "m": list(tree.m),
        "w": list(tree.w),
        "cables": list(tree.cables),
        "rails": topology.rails,
        "host_ports": [[list(port) for port in ports] for ports in topology.host_ports],
        "absent_hosts": sorted(topology.absent_hosts),
        "absent_links": [link_name(link) for link in _in_order(tree, topology.absent_links)],
    }


def topology_from(document: object) -> Topology:
    """The topology of a document.

    Raises:
        InvalidInput: it is no topology document; names the field.
    """
    return _topology(validated(_Topology, "topology", document))


def _topology(read: _Topology) -> Topology:
    return Topology(
        Xgft(read.m, read.w, read.cables),
        rails=read.rails,
        host_ports=_ports(read.host_ports),
        absent_hosts=frozenset(read.absent_hosts),
        absent_links=frozenset(read.absent_links),
    )


def _ports(rows: Iterable[Iterable[tuple[int, int, int]]]) -> tuple[tuple[Port, ...], ...]:
    return tuple(tuple(Port(*port) for port in row) for row in rows)


def _in_order(tree: Xgft, links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=tree.link_id)


# -- inventory ----------------------------------------------------------------


def inventory_document(inventory: Inventory) -> dict[str, Any]:
    """The inventory as a document; ``inventory_from`` is the inverse."""
    return {
        "version": VERSION,
        "host_names": list(inventory.host_names),
        "switches": [[_hex(s.guid), s.name, s.level, s.ports] for s in inventory.switches],
        "cables": [
            [
                *_end(cable.lower),
                *_end(cable.upper),
                link_name(cable.link) if cable.link else None,
            ]
            for cable in inventory.cables
        ],
        "endpoints": [
            [_hex(e.guid), e.name, *_end(e.at), e.host, e.rail] for e in inventory.endpoints
        ],
        "leaf_guids": [_hex(guid) for guid in inventory.leaf_guids],
        "l2_guids": [_hex(guid) for guid in inventory.l2_guids],
        "spine_guids": [_hex(guid) for guid in inventory.spine_guids],
        "lids": [[_hex(guid), lid] for guid, lid in sorted(inventory.lids.items())],
    }


def inventory_from(document: object) -> Inventory:
    """The inventory of a document.

    Raises:
        InvalidInput: it is no inventory document; names the field.
    """
    return _inventory(validated(_Inventory, "inventory", document))


def _inventory(read: _Inventory) -> Inventory:
    return Inventory(
        host_names=tuple(read.host_names),
        switches=tuple(Switch(*row) for row in read.switches),
        cables=tuple(Cable(PortRef(*row[:2]), PortRef(*row[2:4]), row[4]) for row in read.cables),
        endpoints=tuple(
            Endpoint(guid, name, PortRef(switch, port), host, rail)
            for guid, name, switch, port, host, rail in read.endpoints
        ),
        leaf_guids=tuple(read.leaf_guids),
        l2_guids=tuple(read.l2_guids),
        spine_guids=tuple(read.spine_guids),
        lids=dict(read.lids),
    )


def _hex(guid: int) -> str:
    return f"{guid:#018x}"


def _end(end: PortRef) -> tuple[str, int]:
    return _hex(end.guid), end.port


# -- allocation and fabric state ----------------------------------------------


def allocation_document(allocation: Allocation) -> dict[str, Any]:
    """The allocation as a compact document; ``allocation_from`` is the inverse."""
    shape = allocation.shape
    nested: dict[str, Any] = {} if allocation.parent is None else {"parent": allocation.parent}
    if allocation.container:
        nested["container"] = True
    return {
        "version": VERSION,
        "id": allocation.id,
        "requested": allocation.requested,
        "policy": allocation.policy,
        "groups": [[group, hex(hosts), hex(ups)] for group, hosts, ups in allocation.groups],
        "columns": [[pod, column, hex(ups)] for pod, column, ups in allocation.columns],
        "shape": shape
        and [
            shape.pods,
            shape.leaves,
            shape.hosts,
            shape.remainder_leaves,
            shape.remainder_hosts,
        ],
        **nested,
    }


def allocation_from(document: object) -> Allocation:
    """The allocation of a document.

    Raises:
        InvalidInput: it is no allocation document; names the field.
    """
    return _allocation(validated(_Allocation, "allocation", document))


def _allocation(read: _Allocation) -> Allocation:
    return Allocation(
        id=read.id,
        requested=read.requested,
        policy=read.policy,
        groups=tuple(GroupShare(*share) for share in read.groups),
        columns=tuple(ColumnShare(*share) for share in read.columns),
        shape=Shape(*read.shape) if read.shape else None,
        parent=read.parent,
        container=read.container,
    )


def constraints_document(constraints: Constraints) -> dict[str, Any]:
    """The constraints that are set, hosts and pods by number; ``constraints_from`` inverts it."""
    values = {name: getattr(constraints, name) for name in constraints.names}
    for name in ("traits", "avoid_hosts", "avoid_pods"):
        if name in values:
            values[name] = sorted(values[name])
    if constraints.within is not None:
        values["within"] = constraints.within.value
    return values


def constraints_from(document: object) -> Constraints | None:
    """The constraints of a document, None if it has none.

    Raises:
        InvalidInput: it is no document of constraints; names the field.
    """
    read = validated(_Constraints, "constraints", document)
    found = Constraints(
        traits=frozenset(read.traits),
        avoid_hosts=frozenset(read.avoid_hosts),
        avoid_pods=frozenset(read.avoid_pods),
        within=read.within,
        spread=read.spread,
        max_host_cost=read.max_host_cost,
        cheapest=read.cheapest,
    )
    return found if found.names else None


def host_document(known: HostFeatures) -> dict[str, Any]:
    """What a host is like as a document; ``host_features`` is the inverse."""
    return {"traits": sorted(known.traits), "cost": known.cost}


def host_features(read: HostDocument) -> HostFeatures:
    return HostFeatures(frozenset(read.traits), read.cost)


def plane_document(plane: SharedPlane) -> dict[str, Any] | None:
    """The shared plane as a document, None if there is none; ``plane_from`` is the inverse."""
    return {"l2": list(plane.l2), "spines": list(plane.spines)} if plane else None


def plane_from(document: object) -> SharedPlane:
    """The shared plane of a document.

    Raises:
        InvalidInput: it is no such document; names the field.
    """
    return _plane(None if document is None else validated(_Plane, "shared_plane", document))


def _plane(read: _Plane | None) -> SharedPlane:
    return SharedPlane(read.l2, read.spines) if read else NO_PLANE


# -- the snapshot's topology --------------------------------------------------


class SnapshotTopology(NamedTuple):
    """A snapshot's topology, what has failed in it beyond what is absent, and its hosts."""

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

    Absent hosts and links count as failed there, which is all that a reader needs
    to know; keys of their own, written only where something is absent, tell the two
    apart for ``topology_from_snapshot``.
    """
    tree, absent = topology.tree, topology.absent_links
    down = _in_order(tree, absent.union(failed_links))
    missing = _in_order(tree, absent)
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
            str(host): host_document(known) for host, known in sorted(features.hosts.items())
        }
    return document


def snapshot(fabric: LedgerView) -> dict[str, Any]:
    """The public snapshot of a ledger; drained hosts count as failed for its readers."""
    down = fabric.failed_hosts | fabric.drained_hosts
    topology = snapshot_topology(fabric.topology, down, fabric.failed_links, fabric.features)
    if fabric.shared_plane:
        topology["shared_plane"] = plane_document(fabric.shared_plane)
    return {
        "topology": topology,
        "allocations": _snapshot_allocations(fabric),
    }


def _snapshot_allocations(ledger: LedgerView) -> list[dict[str, Any]]:
    """Those of one ledger; what is inside a container stands in its entry."""
    found = []
    for id, allocation in sorted(ledger.allocations.items()):
        entry = snapshot_allocation(ledger.topology, allocation)
        if allocation.container:
            entry |= {"container": True, "inside": _snapshot_allocations(ledger.inside[id])}
        found.append(entry)
    return found


def snapshot_allocation(topology: Topology, allocation: Allocation) -> dict[str, Any]:
    """One allocation as a snapshot has it, without forwarding tables.

    ``bandwidth`` is there only if it has but a share of its links.
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
        host_ports=_ports(_rows(read.host_ports)),
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


def features_from(read: Mapping[str, HostDocument], topology: Topology, field: str) -> Features:
    """What hosts are like, by their numbers; ``field`` is what errors call it.

    Raises:
        InvalidInput: the topology has no such host.
    """
    found = {}
    for name, one in read.items():
        if not name.isdecimal() or len(name) > DIGITS or int(name) >= topology.hosts:
            raise InvalidInput(field, name, f"use the numbers of hosts, 0..{topology.hosts - 1}")
        if int(name) not in topology.absent_hosts:
            found[int(name)] = host_features(one)
    return PLAIN_HOSTS.having(found)


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
