# SPDX-License-Identifier: Apache-2.0

"""JSON-able documents of topologies, inventories, allocations and states, both ways.

They travel on the bus and are stored in the database, so they are exact (reading gives what was
written), stable (equal values give equal documents) and carry a version. GUIDs are
``0x%016x``, masks are hexadecimal, and links have their REST names. A wrong document is refused
with its field.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import AwareDatetime, StrictBool, StrictFloat, StrictStr

from laas_service.adapters.forms import (
    VERSION,
    Cost,
    Document,
    Form,
    Guid,
    Lid,
    LinkName,
    Mask,
    Natural,
    Rails,
    Strict,
    Trait,
    Triple,
    hex_guid,
    validated,
)
from laas_service.app.lifecycle import AllocationFaults
from laas_service.app.plans import PlanStep, RecordedPlan
from laas_service.app.records import QueueRoom, RoomMove, RoomState
from laas_service.domain.allocation import (
    Allocation,
    ColumnShare,
    GroupShare,
    HeldSlots,
    Promise,
    Shape,
    Sharing,
    SlotDemand,
)
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.constraints import Constraints, ContentionFree, Within
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import PLAIN_HOSTS, Features, HostFeatures
from laas_service.domain.inventory import (
    Cable,
    Endpoint,
    Inventory,
    PortRef,
    Switch,
    not_a_guid,
)
from laas_service.domain.moves.consent import NO_CONSENT, Consent, Movable
from laas_service.domain.tenancy import Container, Owned, SharedHosts, Slots
from laas_service.domain.topology import Link, Port, Topology, Xgft, link_name, parse_link
from laas_service.domain.wording import printable
from laas_service.messages import Initiator

# -- topologies and inventories -------------------------------------------------


class _Topology(Document):
    m: Triple
    w: Triple
    cables: tuple[Natural, Natural]
    rails: Rails
    host_ports: list[list[Triple]]
    absent_hosts: list[Natural]
    absent_links: list[LinkName]


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
        "absent_links": [link_name(link) for link in in_order(tree, topology.absent_links)],
    }


def topology_from(document: object) -> Topology:
    """The topology of a document.

    Raises:
        InvalidInput: it is no topology document; names the field.
    """
    read = validated(_Topology, "topology", document)
    return Topology(
        Xgft(read.m, read.w, read.cables),
        rails=read.rails,
        host_ports=ports_from(read.host_ports),
        absent_hosts=frozenset(read.absent_hosts),
        absent_links=frozenset(read.absent_links),
    )


def ports_from(rows: Iterable[Iterable[tuple[int, int, int]]]) -> tuple[tuple[Port, ...], ...]:
    """The ports of each host, from rows of three numbers for each port."""
    return tuple(tuple(Port(*port) for port in row) for row in rows)


def in_order(tree: Xgft, links: Iterable[Link]) -> list[Link]:
    """The links by ``Xgft.link_id``."""
    return sorted(links, key=tree.link_id)


class _Inventory(Document):
    host_names: list[StrictStr]
    switches: list[tuple[Guid, StrictStr, Natural, Natural]]
    cables: list[tuple[Guid, Natural, Guid, Natural, LinkName | None]]
    endpoints: list[tuple[Guid, StrictStr, Guid, Natural, Natural | None, Natural]]
    leaf_guids: list[Guid]
    l2_guids: list[Guid]
    spine_guids: list[Guid]
    lids: list[tuple[Guid, Lid]]


def inventory_document(inventory: Inventory) -> dict[str, Any]:
    """The inventory as a document; ``inventory_from`` is the inverse."""
    return {
        "version": VERSION,
        "host_names": list(inventory.host_names),
        "switches": [[hex_guid(s.guid), s.name, s.level, s.ports] for s in inventory.switches],
        "cables": [
            [
                *_end(cable.lower),
                *_end(cable.upper),
                link_name(cable.link) if cable.link else None,
            ]
            for cable in inventory.cables
        ],
        "endpoints": [
            [hex_guid(e.guid), e.name, *_end(e.at), e.host, e.rail] for e in inventory.endpoints
        ],
        "leaf_guids": [hex_guid(guid) for guid in inventory.leaf_guids],
        "l2_guids": [hex_guid(guid) for guid in inventory.l2_guids],
        "spine_guids": [hex_guid(guid) for guid in inventory.spine_guids],
        "lids": [[hex_guid(guid), lid] for guid, lid in sorted(inventory.lids.items())],
    }


def inventory_from(document: object) -> Inventory:
    """The inventory of a document.

    Raises:
        InvalidInput: it is no inventory document; names the field.
    """
    read = validated(_Inventory, "inventory", document)
    return Inventory(
        host_names=tuple(read.host_names),
        switches=tuple(
            Switch(guid, printable(name), level, ports)
            for guid, name, level, ports in read.switches
        ),
        cables=tuple(Cable(PortRef(*row[:2]), PortRef(*row[2:4]), row[4]) for row in read.cables),
        endpoints=tuple(
            Endpoint(guid, printable(name), PortRef(switch, port), host, rail)
            for guid, name, switch, port, host, rail in read.endpoints
        ),
        leaf_guids=tuple(read.leaf_guids),
        l2_guids=tuple(read.l2_guids),
        spine_guids=tuple(read.spine_guids),
        lids=dict(read.lids),
    )


class _VirtualPorts(Strict):
    virtual_guids: list[tuple[Guid, list[Guid]]] = []


def virtual_ports_document(ports: Mapping[int, Iterable[int]]) -> list[Any]:
    """Virtual ports by port as a document; ``virtual_ports_from`` is the inverse."""
    return [[hex_guid(port), [hex_guid(guid) for guid in guids]] for port, guids in ports.items()]


def virtual_ports_from(document: object) -> dict[int, tuple[int, ...]]:
    """Port GUID -> GUIDs of its virtual ports.

    Raises:
        InvalidInput: it is no such document; names the field.
    """
    read = validated(_VirtualPorts, "snapshot", {"virtual_guids": document})
    for port, guids in read.virtual_guids:
        for guid in guids:
            if (why := not_a_guid(guid)) is not None:
                fix = f"{why}; leave it out of the ports behind {hex_guid(port)}"
                raise InvalidInput("virtual_guids", hex_guid(guid), fix)
    return {port: tuple(guids) for port, guids in read.virtual_guids}


def _end(end: PortRef) -> tuple[str, int]:
    return hex_guid(end.guid), end.port


# -- allocations and constraints ------------------------------------------------


class _Sharing(Strict):
    slots: Natural
    bandwidth: StrictFloat
    risk: StrictFloat
    open: StrictBool


class _Demand(Strict):
    slots: Natural
    bandwidth: StrictFloat | list[StrictFloat]
    deviation: StrictFloat | list[StrictFloat]


_Promises = list[tuple[Natural, Natural, Natural, Natural]]


class _Slots(Strict):
    demand: _Demand
    units: list[tuple[Natural, list[Natural]]]
    promised: _Promises
    moves: list[tuple[Natural, Natural, Natural]] = []
    passing: _Promises = []


class _Allocation(Document):
    id: StrictStr
    requested: Natural
    policy: StrictStr
    groups: list[tuple[Natural, Mask, Mask]]
    columns: list[tuple[Natural, Natural, Mask]]
    shape: tuple[Natural, Natural, Natural, Natural, Natural] | None
    parent: StrictStr | None = None
    container: StrictBool = False
    sharing: _Sharing | None = None
    slots: _Slots | None = None


class _Constraints(Strict):
    traits: list[Trait] = []
    avoid_hosts: list[Natural] = []
    avoid_pods: list[Natural] = []
    within: Within | None = None
    spread: Rails = 1
    max_host_cost: Cost | None = None
    cheapest: StrictBool = False
    contention_free: ContentionFree | None = None


def allocation_document(allocation: Allocation) -> dict[str, Any]:
    """The allocation as a compact document; ``allocation_from`` is the inverse."""
    shape = allocation.shape
    nested: dict[str, Any] = {} if allocation.parent is None else {"parent": allocation.parent}
    match allocation.kind:
        case Container():
            nested["container"] = True
        case SharedHosts(sharing):
            nested["sharing"] = sharing_document(sharing)
        case Slots():
            nested["slots"] = _slots_document(allocation.held_slots)
        case Owned():
            pass
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
    read = validated(_Allocation, "allocation", document)
    return Allocation(
        id=read.id,
        requested=read.requested,
        policy=read.policy,
        groups=tuple(GroupShare(*share) for share in read.groups),
        columns=tuple(ColumnShare(*share) for share in read.columns),
        shape=Shape(*read.shape) if read.shape else None,
        parent=read.parent,
        container=read.container,
        sharing=Sharing(**read.sharing.model_dump()) if read.sharing is not None else None,
        slots=_slots(read.slots) if read.slots is not None else None,
    )


def sharing_document(sharing: Sharing) -> dict[str, Any]:
    """How hosts are shared, as a document; ``sharing_from`` is the inverse."""
    document = sharing._asdict()
    return document | {name: float(document[name]) for name in ("bandwidth", "risk")}


def sharing_from(document: object) -> Sharing:
    """How hosts are shared. Raises: InvalidInput, if it is no such document."""
    return Sharing(**validated(_Sharing, "sharing", document).model_dump())


def demand_document(demand: SlotDemand) -> dict[str, Any]:
    """A demand for slots as a document; ``demand_from`` is the inverse."""
    document = demand._asdict()
    for name in ("bandwidth", "deviation"):
        amount = document[name]
        each = isinstance(amount, tuple)
        document[name] = [float(one) for one in amount] if each else float(amount)
    return document


def demand_from(document: object) -> SlotDemand:
    """A demand for slots. Raises: InvalidInput, if it is no such document."""
    return _demand(validated(_Demand, "demand", document))


def _demand(read: _Demand) -> SlotDemand:
    bandwidth, deviation = (
        tuple(amount) if isinstance(amount, list) else amount
        for amount in (read.bandwidth, read.deviation)
    )
    return SlotDemand(read.slots, bandwidth, deviation)


def _slots_document(slots: HeldSlots) -> dict[str, Any]:
    document: dict[str, Any] = {
        "demand": demand_document(slots.demand),
        "units": [[host, list(units)] for host, units in slots.units],
        "promised": [list(promise) for promise in slots.promised],
    }
    if slots.moves:
        document["moves"] = [list(move) for move in slots.moves]
        document["passing"] = [list(promise) for promise in slots.passing]
    return document


def _slots(read: _Slots) -> HeldSlots:
    return HeldSlots(
        _demand(read.demand),
        tuple((host, tuple(units)) for host, units in read.units),
        tuple(map(Promise._make, read.promised)),
        tuple(read.moves),
        tuple(map(Promise._make, read.passing)),
    )


class _Consent(Strict):
    movable: Movable = Movable.NEVER
    notice: StrictFloat = 0.0
    move_cost: StrictFloat = 1.0


def consent_document(consent: Consent) -> dict[str, Any] | None:
    """Consent as a document, None without any; ``consent_from`` inverts it."""
    if consent == NO_CONSENT:
        return None
    return {
        "movable": consent.movable.value,
        "notice": consent.notice,
        "move_cost": consent.move_cost,
    }


def consent_from(document: object) -> Consent:
    """The consent of a document.

    Raises:
        InvalidInput: it is no document of consent; names the field.
    """
    if document is None:
        return NO_CONSENT
    read = validated(_Consent, "consent", document)
    return Consent(read.movable, read.notice, read.move_cost)


class _RoomMove(Strict):
    allocation: StrictStr
    to: dict[str, Any]
    new_hosts: Natural
    cost: StrictFloat
    begins: AwareDatetime


class _QueueRoom(Document):
    fabric: StrictStr
    state: RoomState
    hosts: Natural
    allocation: StrictStr | None
    placement: dict[str, Any]
    moves: list[_RoomMove]
    at: AwareDatetime
    made: Natural
    gain: StrictFloat | None
    reason: StrictStr
    avoided: dict[StrictStr, StrictStr]


def room_document(room: QueueRoom) -> dict[str, Any]:
    """A plan that makes room for a queue as a document, without its version."""
    return {
        "version": VERSION,
        "fabric": room.fabric,
        "state": room.state.value,
        "hosts": room.hosts,
        "allocation": room.allocation,
        "placement": allocation_document(room.placement),
        "moves": [
            {
                "allocation": move.allocation,
                "to": allocation_document(move.to),
                "new_hosts": move.new_hosts,
                "cost": float(move.cost),
                "begins": move.begins.isoformat(),
            }
            for move in room.moves
        ],
        "at": room.at.isoformat(),
        "made": room.made,
        "gain": room.gain,
        "reason": room.reason,
        "avoided": dict(room.avoided),
    }


def room_from(document: object, version: int) -> QueueRoom:
    """The plan of a document that ``room_document`` wrote.

    Raises:
        InvalidInput: it is no such document; names the field.
    """
    read = validated(_QueueRoom, "queue room", document)
    return QueueRoom(
        fabric=read.fabric,
        state=read.state,
        hosts=read.hosts,
        allocation=read.allocation,
        placement=allocation_from(read.placement),
        moves=tuple(
            RoomMove(
                move.allocation, allocation_from(move.to), move.new_hosts, move.cost, move.begins
            )
            for move in read.moves
        ),
        at=read.at,
        made=read.made,
        gain=read.gain,
        reason=read.reason,
        avoided=read.avoided,
        version=version,
    )


class _PlanStep(Strict):
    allocation: StrictStr
    old: dict[str, Any]
    new: dict[str, Any]
    new_hosts: Natural
    move_cost: StrictFloat


class _Plan(Document):
    steps: list[_PlanStep]
    cut_off: StrictBool
    emptied: dict[StrictStr, Any] | None


def plan_document(plan: RecordedPlan) -> dict[str, Any]:
    """A plan of moves as a document; ``plan_from`` inverts it."""
    return {
        "version": VERSION,
        "steps": [
            {
                "allocation": step.allocation,
                "old": allocation_document(step.old),
                "new": allocation_document(step.new),
                "new_hosts": step.new_hosts,
                "move_cost": float(step.move_cost),
            }
            for step in plan.steps
        ],
        "cut_off": plan.cut_off,
        "emptied": plan.emptied and dict(plan.emptied),
    }


def plan_from(document: object) -> RecordedPlan:
    """The plan of a document that ``plan_document`` wrote.

    Raises:
        InvalidInput: it is no such document; names the field.
    """
    read = validated(_Plan, "plan of moves", document)
    steps = [
        PlanStep(
            step.allocation,
            allocation_from(step.old),
            allocation_from(step.new),
            step.new_hosts,
            step.move_cost,
        )
        for step in read.steps
    ]
    return RecordedPlan(tuple(steps), read.cut_off, read.emptied)


def constraints_document(constraints: Constraints) -> dict[str, Any]:
    """The constraints that are set, hosts and pods by number; ``constraints_from`` inverts it."""
    values = {name: getattr(constraints, name) for name in constraints.names}
    for name in ("traits", "avoid_hosts", "avoid_pods"):
        if name in values:
            values[name] = sorted(values[name])
    for name in ("within", "contention_free"):
        if name in values:
            values[name] = values[name].value
    return values


def constraints_from(document: object) -> Constraints | None:
    """The constraints of a document, None if it has none.

    Raises:
        InvalidInput: it is no document of constraints; names the field.
    """
    read = validated(_Constraints, "constraints", document)
    constraints = Constraints(
        traits=frozenset(read.traits),
        avoid_hosts=frozenset(read.avoid_hosts),
        avoid_pods=frozenset(read.avoid_pods),
        within=read.within,
        spread=read.spread,
        max_host_cost=read.max_host_cost,
        cheapest=read.cheapest,
        contention_free=read.contention_free,
    )
    return constraints if constraints.names else None


# -- states ---------------------------------------------------------------------


DIGITS = 9
"""Digits of a host's number; Python refuses to read a number of thousands of digits."""


class HostDocument(Strict):
    """Traits and cost of a host, in files and snapshots."""

    traits: list[Trait] = []
    cost: Cost = 0


class PlaneDocument(Strict):
    """The numbers of the L2 switches and spines of a plane."""

    l2: tuple[Natural, ...] = ()
    spines: tuple[Natural, ...] = ()


def host_document(features: HostFeatures) -> dict[str, Any]:
    """The features of a host as a document; ``host_features`` is the inverse."""
    return {"traits": sorted(features.traits), "cost": features.cost}


def host_features(read: HostDocument) -> HostFeatures:
    return HostFeatures(frozenset(read.traits), read.cost)


def faults_document(faults: AllocationFaults) -> dict[str, Any]:
    """The document in the record of an allocation; ``faults_from`` is its inverse."""
    document: dict[str, Any] = {
        "links": [link_name(link) for link in faults.links],
        "hosts": list(faults.hosts),
    }
    if faults.drained:
        document["drained"] = [link_name(link) for link in faults.drained]
    return document


def faults_from(document: Any) -> AllocationFaults:
    """The faults of a document."""
    return AllocationFaults(
        tuple(map(parse_link, document["links"])),
        tuple(document["hosts"]),
        tuple(map(parse_link, document.get("drained", ()))),
    )


INITIATOR = Form(Initiator, "initiator")


def plane_document(plane: CommonPlane) -> dict[str, Any] | None:
    """The common plane as a document, None if there is none; ``plane_from`` is the inverse."""
    return {"l2": list(plane.l2), "spines": list(plane.spines)} if plane else None


def plane_from(document: object) -> CommonPlane:
    """The common plane of a document.

    Raises:
        InvalidInput: it is no such document; names the field.
    """
    if document is None:
        return NO_PLANE
    read = validated(PlaneDocument, "shared_plane", document)
    return CommonPlane(read.l2, read.spines)


def features_from(read: Mapping[str, HostDocument], topology: Topology, field: str) -> Features:
    """The features of hosts, from documents by number; errors name ``field``.

    Raises:
        InvalidInput: the topology has no such host.
    """
    features = {}
    for name, host in read.items():
        if not name.isdecimal() or len(name) > DIGITS or int(name) >= topology.hosts:
            raise InvalidInput(field, name, f"use the numbers of hosts, 0..{topology.hosts - 1}")
        if int(name) not in topology.absent_hosts:
            features[int(name)] = host_features(host)
    return PLAIN_HOSTS.having(features)
