# SPDX-License-Identifier: Apache-2.0

"""JSON-able documents of topologies, inventories, allocations and states, both ways.

They travel on the bus and are stored in the database, so they are exact (reading gives what was
written), stable (equal values give equal documents) and carry a version. GUIDs are
``0x%016x``, masks are hexadecimal, and links have their REST names. A wrong document is refused
with its field.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    PlainSerializer,
    RootModel,
    StrictBool,
    StrictFloat,
    StrictStr,
)

from laas_service.adapters.forms import (
    VERSION,
    Amount,
    Cost,
    Document,
    DomainName,
    Form,
    Guid,
    KindName,
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
from laas_service.app.lifecycle import AllocationFaults, Mending, Phase
from laas_service.app.plans import PlanStep, RecordedPlan
from laas_service.app.records import Evidence, QueueRoom, RoomMove, RoomState
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
from laas_service.domain.constraints import (
    Constraints,
    ContentionFree,
    Spread,
    Undisturbed,
    Within,
)
from laas_service.domain.errors import InvalidInput
from laas_service.domain.features import PLAIN, PLAIN_HOSTS, Features, HostFeatures
from laas_service.domain.inventory import (
    Cable,
    Endpoint,
    Inventory,
    PortRef,
    Switch,
    not_a_guid,
)
from laas_service.domain.moves.consent import NO_CONSENT, Consent, Movable
from laas_service.domain.moves.mend import Joined
from laas_service.domain.tenancy.slots import GRAIN, steps_down
from laas_service.domain.topology import Link, Port, Topology, Xgft, link_name
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


_Switches = Annotated[
    list[tuple[Guid, StrictStr, Natural, Natural]],
    AfterValidator(
        lambda rows: tuple(Switch(guid, printable(name), *rest) for guid, name, *rest in rows)
    ),
    PlainSerializer(
        lambda switches: [[hex_guid(s.guid), s.name, s.level, s.ports] for s in switches]
    ),
]
_Cables = Annotated[
    list[tuple[Guid, Natural, Guid, Natural, LinkName | None]],
    AfterValidator(
        lambda rows: tuple(Cable(PortRef(*row[:2]), PortRef(*row[2:4]), row[4]) for row in rows)
    ),
    PlainSerializer(
        lambda cables: [
            [*_end(c.lower), *_end(c.upper), link_name(c.link) if c.link else None] for c in cables
        ]
    ),
]
_Endpoints = Annotated[
    list[tuple[Guid, StrictStr, Guid, Natural, Natural | None, Natural]],
    AfterValidator(
        lambda rows: tuple(
            Endpoint(row[0], printable(row[1]), PortRef(*row[2:4]), *row[4:]) for row in rows
        )
    ),
    PlainSerializer(
        lambda ports: [[hex_guid(e.guid), e.name, *_end(e.at), e.host, e.rail] for e in ports]
    ),
]
_Lids = Annotated[
    list[tuple[Guid, Lid]],
    AfterValidator(dict),
    PlainSerializer(lambda lids: [[hex_guid(guid), lid] for guid, lid in sorted(lids.items())]),
]


def _end(end: PortRef) -> tuple[str, int]:
    return hex_guid(end.guid), end.port


class _Inventory(Document):
    host_names: tuple[StrictStr, ...]
    switches: _Switches
    cables: _Cables
    endpoints: _Endpoints
    leaf_guids: tuple[Guid, ...]
    l2_guids: tuple[Guid, ...]
    spine_guids: tuple[Guid, ...]
    lids: _Lids


INVENTORY = Form(Inventory, "inventory", _Inventory)
inventory_document, inventory_from = INVENTORY.write, INVENTORY.read


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


# -- allocations and constraints ------------------------------------------------


class _Sharing(Strict):
    slots: Natural
    bandwidth: Amount
    risk: Amount
    open: StrictBool


SHARING = Form(Sharing, "sharing", _Sharing)
sharing_document, sharing_from = SHARING.write, SHARING.read


class _Demand(Strict):
    slots: Natural
    bandwidth: Amount | tuple[Amount, ...]
    deviation: Amount | tuple[Amount, ...]


DEMAND = Form(SlotDemand, "demand", _Demand)
demand_document, demand_from = DEMAND.write, DEMAND.read


STORED_GRAIN = 1 << 20
"""Steps of 1 Gb/s in stored promises; in the service they are ``GRAIN``, which are fewer."""


def stored_steps(amount: int) -> int:
    """An amount of a ``Promise`` as it is stored; rounded down, so that no sum exceeds a link."""
    return amount * STORED_GRAIN // GRAIN


def stored_capacity(bandwidth: float) -> int:
    """Of a link with so many Gb/s, as it is stored; rounded up, as ``stored_steps`` rounds down."""
    return -(-steps_down(bandwidth) * STORED_GRAIN // GRAIN)


def steps_from(stored: int) -> int:
    """The inverse of ``stored_steps``."""
    return -(-stored * GRAIN // STORED_GRAIN)


_Promise = Annotated[
    tuple[Natural, Natural, Natural, Natural],
    AfterValidator(lambda row: Promise(row[0], *map(steps_from, row[1:]))),
    PlainSerializer(lambda row: [row[0], *map(stored_steps, row[1:])]),
]


class _Slots(Strict):
    demand: Annotated[SlotDemand, DEMAND]
    units: tuple[tuple[Natural, tuple[Natural, ...]], ...]
    promised: tuple[_Promise, ...]
    moves: tuple[Triple, ...] = ()
    passing: tuple[_Promise, ...] = ()


_SLOTS = Form(HeldSlots, "slots", _Slots, sparse=True)

_Shape = Annotated[
    tuple[Natural, Natural, Natural, Natural, Natural],
    AfterValidator(lambda row: Shape(*row)),
    PlainSerializer(astuple),
]
_Groups = Annotated[
    list[tuple[Natural, Mask, Mask]],
    AfterValidator(lambda rows: tuple(GroupShare(*row) for row in rows)),
    PlainSerializer(lambda shares: [[group, hex(hosts), hex(ups)] for group, hosts, ups in shares]),
]
_Columns = Annotated[
    list[tuple[Natural, Natural, Mask]],
    AfterValidator(lambda rows: tuple(ColumnShare(*row) for row in rows)),
    PlainSerializer(lambda shares: [[pod, column, hex(ups)] for pod, column, ups in shares]),
]


class _Allocation(Document):
    id: StrictStr
    requested: Natural
    policy: StrictStr
    groups: _Groups
    columns: _Columns
    shape: _Shape | None
    parent: StrictStr | None = None
    container: StrictBool = False
    sharing: Annotated[Sharing, SHARING] | None = None
    slots: Annotated[HeldSlots, _SLOTS] | None = None
    alone: _Groups = ()  # type: ignore[assignment]


ALLOCATION = Form(Allocation, "allocation", _Allocation, sparse=True)
allocation_document, allocation_from = ALLOCATION.write, ALLOCATION.read


def mending_document(mending: Mending) -> dict[str, Any]:
    """Links that replace failed ones of a change as a document; ``mending_from`` inverts it."""
    links = mending.links
    return {
        "phase": mending.phase.value,
        "leaving": allocation_document(links.old),
        "placed": allocation_document(links.new),
        "bridge": links.bridge and allocation_document(links.bridge),
    }


def mending_from(document: Mapping[str, Any]) -> Mending:
    """The links of a document of ``mending_document``. Raises: InvalidInput."""
    parts = (document["leaving"], document["placed"], document["bridge"])
    old, new, bridge = (part and allocation_from(part) for part in parts)
    return Mending(Joined(old, new, bridge), Phase(document["phase"]))


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
    to: Annotated[Allocation, ALLOCATION]
    new_hosts: Natural
    cost: Amount
    begins: AwareDatetime


_ROOM_MOVE = Form(RoomMove, "move", _RoomMove)


class _QueueRoom(Document):
    fabric: StrictStr
    state: RoomState
    hosts: Natural
    allocation: StrictStr | None
    placement: Annotated[Allocation, ALLOCATION]
    moves: tuple[Annotated[RoomMove, _ROOM_MOVE], ...]
    at: AwareDatetime
    made: Natural
    gain: StrictFloat | None
    reason: StrictStr
    avoided: dict[StrictStr, StrictStr]


ROOM = Form(QueueRoom, "queue room", _QueueRoom)
"""Without the version of the record."""


class _PlanStep(Strict):
    allocation: StrictStr
    old: Annotated[Allocation, ALLOCATION]
    new: Annotated[Allocation, ALLOCATION]
    new_hosts: Natural
    move_cost: Amount


_PLAN_STEP = Form(PlanStep, "step", _PlanStep)


class _Plan(Document):
    steps: tuple[Annotated[PlanStep, _PLAN_STEP], ...]
    cut_off: StrictBool
    emptied: dict[StrictStr, Any] | None


PLAN = Form(RecordedPlan, "plan of moves", _Plan)


_Numbers = Annotated[frozenset[Natural], PlainSerializer(sorted)]


class _Spread(Strict):
    kind: KindName
    least: Rails


_SPREAD = Form(Spread, "constraints.spread", _Spread)


def _spread_from(document: object) -> int | Spread:
    if isinstance(document, Mapping):
        return _SPREAD.read(document)
    if type(document) is not int or document < 1:
        raise ValueError('give 1 pod or more, or domains such as {"kind": "power", "least": 2}')
    return document


def _spread_document(spread: int | Spread) -> Any:
    return _SPREAD.write(spread) if isinstance(spread, Spread) else spread


class _Constraints(Strict):
    traits: Annotated[frozenset[Trait], PlainSerializer(sorted)] = frozenset()
    avoid_hosts: _Numbers = frozenset()
    avoid_pods: _Numbers = frozenset()
    within: Within | KindName | None = None
    spread: Annotated[Any, BeforeValidator(_spread_from), PlainSerializer(_spread_document)] = 1
    max_host_cost: Cost | None = None
    cheapest: StrictBool = False
    contention_free: ContentionFree | None = None
    undisturbed: Undisturbed | None = None
    domains: Rails | None = None
    per_domain: Rails | None = None
    kind: KindName | None = None
    exclusive: StrictBool = False


CONSTRAINTS = Form(Constraints, "constraints", _Constraints, sparse=True)
"""Those that are set, hosts and pods by number."""
constraints_document = CONSTRAINTS.write


def constraints_from(document: object) -> Constraints | None:
    """The constraints of a document, None if it has none. Raises: InvalidInput."""
    constraints = CONSTRAINTS.read(document)
    return constraints if constraints.names else None


# -- states ---------------------------------------------------------------------


DIGITS = 9
"""Digits of a host's number; Python refuses to read a number of thousands of digits."""


class HostDocument(Strict):
    """Traits and cost of a host, in files and snapshots."""

    traits: list[Trait] = []
    cost: Cost = 0


Domains = dict[KindName, dict[DomainName, list[Natural]]]
"""By kind and name the numbers of the hosts of domains, in files and snapshots."""


class PlaneDocument(Strict):
    """The numbers of the L2 switches and spines of a plane."""

    l2: tuple[Natural, ...] = ()
    spines: tuple[Natural, ...] = ()


def host_document(features: HostFeatures) -> dict[str, Any]:
    """The features of a host as a document; ``host_features`` is the inverse."""
    return {"traits": sorted(features.traits), "cost": features.cost}


def host_features(read: HostDocument) -> HostFeatures:
    return HostFeatures(frozenset(read.traits), read.cost)


_Links = tuple[LinkName, ...]


class _Faults(Strict):
    links: _Links
    hosts: tuple[Natural, ...]
    drained: _Links = ()


FAULTS = Form(AllocationFaults, "faults", _Faults, sparse=True)
faults_document, faults_from = FAULTS.write, FAULTS.read

INITIATOR = Form(Initiator, "initiator")
EVIDENCE = Form(Evidence, "evidence")


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


class _NamedDomains(RootModel[dict[KindName, dict[DomainName, tuple[StrictStr, ...]]]]):
    """Domains whose hosts are named."""


def checked_domains(document: object) -> dict[str, dict[str, tuple[str, ...]]]:
    """The names of the hosts of domains, by kind and name. Raises: InvalidInput."""
    return validated(_NamedDomains, "domains", document).root


def domains_document(features: Features) -> dict[str, dict[str, list[int]]]:
    """The domains of a fabric as a document; ``features_from`` reads it."""
    return {
        kind: {name: list(hosts) for name, hosts in named.items()}
        for kind, named in features.members.items()
    }


def features_from(
    read: Mapping[str, HostDocument],
    topology: Topology,
    field: str,
    domains: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
) -> Features:
    """The features of hosts, from documents by number; errors name ``field`` or ``domains``.

    Raises:
        InvalidInput: the topology has no such host, or a host is in two domains of a kind.
    """
    features: dict[int, HostFeatures] = {}
    for number, of in domains_of_hosts(domains or {}, topology.hosts).items():
        if number not in topology.absent_hosts:
            features[number] = HostFeatures(domains=of)
    for name, host in read.items():
        if not name.isdecimal() or len(name) > DIGITS or int(name) >= topology.hosts:
            raise InvalidInput(field, name, f"use the numbers of hosts, 0..{topology.hosts - 1}")
        if int(name) not in topology.absent_hosts:
            known = features.get(int(name), PLAIN)
            features[int(name)] = host_features(host)._replace(domains=known.domains)
    return PLAIN_HOSTS.having(features)


def domains_of_hosts(
    domains: Mapping[str, Mapping[str, Sequence[int]]], hosts: int
) -> dict[int, tuple[tuple[str, str], ...]]:
    """By number the domains of each host that is in any (``HostFeatures.domains``).

    Raises:
        InvalidInput: a number is none of the ``hosts``, or is in two domains of a kind.
    """
    of: dict[int, dict[str, str]] = {}
    for kind, named in sorted(domains.items()):
        for name, numbers in sorted(named.items()):
            for host in numbers:
                if host >= hosts:
                    fix = f"hosts are 0..{hosts - 1}"
                    raise InvalidInput(f"domains.{kind}.{name}", host, fix)
                other = of.setdefault(host, {}).setdefault(kind, name)
                if other != name:
                    fix = f"a host is in one domain of a kind; it is in {other} as well"
                    raise InvalidInput(f"domains.{kind}.{name}", host, fix)
    return {host: tuple(sorted(kinds.items())) for host, kinds in sorted(of.items())}
