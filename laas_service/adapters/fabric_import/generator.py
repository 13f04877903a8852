# SPDX-License-Identifier: Apache-2.0

"""Generator of fabrics, regular or with the irregularities of real ones.

``topology`` builds only the tree and is fast at any size. ``inventory`` generates names, GUIDs,
ports and cables for any topology. It numbers them as an import does, so that a fabric stays the
same through a dump or the simulator.
"""

import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from laas_service.adapters.documents import Domains, HostDocument
from laas_service.adapters.fabric_import import lids
from laas_service.domain.errors import InvalidInput
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.topology import LeafLink, Link, Port, Topology, Xgft

MOST_PLACES = 1 << 20
"""Highest number of hosts, and of links, of a described fabric; more is a typing error."""

_SWITCH, _ADAPTER, _SERVICE = 0x0002C90200000000, 0x0002C90300000000, 0x0002C90380000000

Count = Annotated[StrictInt, Field(ge=0)]


def parse_xgft(text: str, cables: tuple[int, int] = (1, 1)) -> Xgft:
    """The tree of ``"3;m1,m2,m3;1,w2,w3"`` or ``"2;m1,m2;1,w2"``; w counts cables.

    Raises:
        InvalidInput: the text has another form, or a size is out of range.
    """
    fix = 'write "3;m1,m2,m3;1,w2,w3" or "2;m1,m2;1,w2" with sizes of at least 1'
    parts = text.strip().split(";")
    lists = [part.split(",") for part in parts]
    if len(parts) != 3 or not all(size.strip().isdecimal() for row in lists for size in row):
        raise InvalidInput("xgft", text, fix)
    if any(len(size.strip()) > 7 for row in lists for size in row):
        raise InvalidInput("xgft", text, "sizes have at most seven digits")
    (levels,), m, w = ([int(x.strip()) for x in row] for row in (lists[0][:1], lists[1], lists[2]))
    if len(lists[0]) != 1 or levels not in (2, 3):
        raise InvalidInput("xgft", text, f"it begins with the number of levels, 2 or 3; {fix}")
    for name, sizes in (("m", m), ("w", w)):
        if len(sizes) != levels:
            count = f"{levels} levels need {levels} sizes {name}, there are {len(sizes)}"
            raise InvalidInput("xgft", text, f"{count}; {fix}")
    if levels == 2:
        m, w = [*m, 1], [*w, 0]
    try:
        tree = Xgft((m[0], m[1], m[2]), (w[0], w[1], w[2]), cables)
    except InvalidInput as error:
        if error.field == "cables":
            raise
        raise InvalidInput("xgft", text, f"{error.field} is {error.value}: {error.fix}") from error
    return of_sane_size(tree)


def of_sane_size(tree: Xgft) -> Xgft:
    """Check the size of a tree, and return it.

    Raises:
        InvalidInput: the tree has more hosts or links than any real fabric.
    """
    places = max(tree.m[0] * tree.leaves, tree.leaf_links, tree.spine_links)
    if places > MOST_PLACES:
        raise InvalidInput("xgft", (tree.m, tree.w), f"at most {MOST_PLACES} hosts or links")
    return tree


class Description(BaseModel):
    """Parameters of a generated fabric.

    ``wiring`` says where the leaves of a leaf group are: in one ``pod``, or each rail in a
    ``plane`` of its own pods. The counts add irregularities at places that ``seed`` chooses.
    ``extra_cables`` are parallel to regular ones, ``odd_names`` contain ``;``, ``:`` and
    ``/``, ``shuffled`` permutes names, GUIDs and ports. ``hosts`` gives traits and cost of
    single hosts, by number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    xgft: StrictStr
    cables: tuple[Count, Count] = (1, 1)
    rails: Annotated[StrictInt, Field(ge=1, le=16)] = 1
    wiring: Literal["pod", "plane"] = "pod"
    seed: StrictInt = 0
    missing_hosts: Count = 0
    missing_cables: Count = 0
    extra_cables: Annotated[StrictInt, Field(ge=0, le=1000)] = 0
    subnet_managers: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    storage_hosts: Annotated[StrictInt, Field(ge=0, le=1000)] = 0
    aggregation_nodes: StrictBool = False
    odd_names: StrictBool = False
    shuffled: StrictBool = False
    hosts: dict[StrictStr, HostDocument] = {}
    domains: Domains = {}

    @property
    def tree(self) -> Xgft:
        return parse_xgft(self.xgft, self.cables)


def description_from(document: object) -> Description:
    """Parse a description from a JSON document.

    Raises:
        InvalidInput: a field is wrong; names the field.
    """
    try:
        return Description.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "description"
        raise InvalidInput(place, first["input"], first["msg"].lower()) from error


@dataclass(frozen=True)
class Generated:
    """A generated fabric."""

    topology: Topology
    inventory: Inventory


def generate(description: Description) -> Generated:
    """Generate a fabric; equal descriptions give equal fabrics."""
    tree = topology(description)
    return Generated(tree, inventory(tree, description))


# -- the tree -------------------------------------------------------------------


def topology(description: Description) -> Topology:
    """Generate the topology of a description, without an inventory.

    Raises:
        InvalidInput: the sizes do not fit the rails or the irregularities.
    """
    tree = description.tree
    groups = list(_groups(tree, description))
    rng = random.Random(description.seed)  # noqa: S311 - a test fabric, no secret
    hosts = [tree.m[0]] * len(groups)
    if description.missing_hosts > (tree.m[0] - 1) * (len(groups) - 1):
        raise InvalidInput(
            "missing_hosts", description.missing_hosts, "leave a host on every leaf, one leaf full"
        )
    for _ in range(description.missing_hosts):
        hosts[rng.choice([g for g in range(1, len(groups)) if hosts[g] > 1])] -= 1
    absent = frozenset(_missing_cables(tree, description.missing_cables, rng))
    if description.rails == 1:
        empty = (range(g * tree.m[0] + n, (g + 1) * tree.m[0]) for g, n in enumerate(hosts))
        missing = frozenset(host for row in empty for host in row)
        return Topology(tree, absent_hosts=missing, absent_links=absent)
    ports = tuple(
        tuple(Port(pod, leaf, k) for pod, leaf in group)
        for group, n in zip(groups, hosts, strict=True)
        for k in range(n)
    )
    return Topology(tree, description.rails, ports, absent_links=absent)


def _groups(tree: Xgft, description: Description) -> Iterator[tuple[tuple[int, int], ...]]:
    """The (pod, leaf) of each rail, for every leaf group."""
    rails, (_, m2, m3) = description.rails, tree.m
    if description.wiring == "pod":
        if m2 % rails:
            raise InvalidInput("rails", rails, f"with wiring pod, rails must divide m2 = {m2}")
        for pod in range(m3):
            for first in range(0, m2, rails):
                yield tuple((pod, first + rail) for rail in range(rails))
    else:
        if m3 % rails:
            raise InvalidInput("rails", rails, f"with wiring plane, rails must divide m3 = {m3}")
        for first in range(0, m3, rails):
            for leaf in range(m2):
                yield tuple((first + rail, leaf) for rail in range(rails))


def _missing_cables(tree: Xgft, count: int, rng: random.Random) -> Iterator[Link]:
    """Choose cables to leave out, always the last ones of their bundle."""
    if 4 * count > tree.leaf_links + tree.spine_links:
        raise InvalidInput("missing_cables", count, "leave three cables of four in place")
    taken: Counter[int] = Counter()
    while taken.total() < count:
        link = tree.link_at(rng.randrange(tree.leaf_links + tree.spine_links))
        cables = tree.cables[0] if isinstance(link, LeafLink) else tree.cables[1]
        first = tree.link_id(link) - link.up % cables
        if taken[first] < cables:
            taken[first] += 1
            yield tree.link_at(first + cables - taken[first])


# -- the inventory ----------------------------------------------------------------


def inventory(topology: Topology, description: Description | None = None) -> Inventory:
    """Generate names, GUIDs, ports and cables; LIDs only if a subnet has enough of them."""
    return _InventoryBuilder(topology, description).inventory()


class _InventoryBuilder:
    """Builds an inventory: first the used ports, then the switches that have them."""

    def __init__(self, topology: Topology, description: Description | None) -> None:
        self.topology = topology
        self.tree = topology.tree
        self.description = description
        self.used: defaultdict[int, int] = defaultdict(int)  # highest port of each switch

    def inventory(self) -> Inventory:
        tree, description = self.tree, self.description
        leaf = [self.guid(1, n) for n in range(tree.leaves)]
        l2 = [self.guid(2, n) for n in range(tree.m[2] * tree.l2_per_pod)]
        spine = [self.guid(3, n) for n in range(tree.l2_per_pod * tree.spines_per_group)]
        absent = self.topology.absent_links
        cables = [self.cable(link) for link in tree.links() if link not in absent]
        endpoints = list(self.hosts())
        ends = (end for cable in cables for end in (cable.lower, cable.upper))
        for guid, port in (*ends, *(endpoint.at for endpoint in endpoints)):
            self.used[guid] = max(self.used[guid], port)
        managers: list[int] = []
        if description:
            rng = random.Random(~description.seed)  # noqa: S311 - as above
            cables += self.extra_cables(cables, description.extra_cables, rng)
            used_leaves = [guid for guid in leaf if self.used[guid]]
            services = list(self.services(used_leaves, description))
            managers = [e.guid for e in services[: description.subnet_managers]]
            endpoints += services
        switches = list(self.switches(leaf, l2, spine))
        if description and description.aggregation_nodes:
            endpoints += [_aggregation(switch) for switch in switches]
        inventory = Inventory(
            host_names=self.host_names(),
            switches=tuple(sorted(switches, key=lambda s: (s.level, s.guid))),
            cables=tuple(sorted(cables, key=lambda c: (c.lower, c.upper))),
            endpoints=tuple(sorted(endpoints, key=lambda e: e.at)),
            leaf_guids=tuple(guid if self.used[guid] else 0 for guid in leaf),
            l2_guids=tuple(guid if self.used[guid] else 0 for guid in l2),
            spine_guids=tuple(guid if self.used[guid] else 0 for guid in spine),
        )
        if description and description.shuffled:
            rng = random.Random(description.seed)  # noqa: S311 - as above
            inventory, managers = _shuffled(inventory, managers, rng)
        endpoints_, switches_ = inventory.endpoints, inventory.switches
        if len(endpoints_) + len(switches_) + 2 * lids.BLOCK > lids.HIGHEST:
            return inventory
        return dataclasses.replace(inventory, lids=lids.pinned(endpoints_, switches_, managers))

    def guid(self, level: int, number: int) -> int:
        return _SWITCH | level << 24 | number << 4

    def cable(self, link: Link) -> Cable:
        tree, (p2, p3) = self.tree, self.tree.cables
        if isinstance(link, LeafLink):
            l2, cable = divmod(link.up, p2)
            lower = PortRef(
                self.guid(1, tree.leaf_id(link.pod, link.leaf)), tree.m[0] + link.up + 1
            )
            upper = PortRef(self.guid(2, tree.l2_id(link.pod, l2)), link.leaf * p2 + cable + 1)
        else:
            spine, cable = divmod(link.up, p3)
            number = link.l2 * tree.spines_per_group + spine
            lower = PortRef(
                self.guid(2, tree.l2_id(link.pod, link.l2)), tree.m[1] * p2 + link.up + 1
            )
            upper = PortRef(self.guid(3, number), link.pod * p3 + cable + 1)
        return Cable(lower, upper, link)

    def hosts(self) -> Iterator[Endpoint]:
        names = self.host_names()
        for host in range(self.topology.hosts):
            if host in self.topology.absent_hosts:
                continue
            for rail, port in enumerate(self.topology.ports_of(host)):
                leaf = self.guid(1, self.tree.leaf_id(port.pod, port.leaf))
                guid = _ADAPTER + 2 * (host * self.topology.rails + rail) + 1
                at = PortRef(leaf, port.k + 1)
                yield Endpoint(guid, f"{names[host]} mlx5_{rail}", at, host, rail)

    def host_names(self) -> tuple[str, ...]:
        digits = len(str(max(self.topology.hosts - 1, 1)))
        absent = self.topology.absent_hosts
        return tuple(
            "" if host in absent else f"node{host:0{digits}d}"
            for host in range(self.topology.hosts)
        )

    def spare(self, switch: int) -> PortRef:
        self.used[switch] += 1
        return PortRef(switch, self.used[switch])

    def extra_cables(self, cables: list[Cable], count: int, rng: random.Random) -> Iterator[Cable]:
        """Cables parallel to complete bundles, for which the tree has no place."""
        present = Counter((cable.lower.guid, cable.upper.guid) for cable in cables)
        whole = [
            pair
            for pair, number in present.items()
            if number == self.tree.cables[0 if pair[0] >> 24 & 0xFF == 1 else 1]
        ]
        for lower, upper in rng.choices(whole, k=count) if whole else ():
            yield Cable(self.spare(lower), self.spare(upper))

    def services(self, leaves: list[int], description: Description) -> Iterator[Endpoint]:
        """Subnet managers and storage hosts, one port each, spread over the leaves."""
        names = [f"sm{n:02d} mlx5_0" for n in range(description.subnet_managers)]
        names += [f"storage{n:03d} mlx5_0" for n in range(description.storage_hosts)]
        for number, name in enumerate(names):
            at = self.spare(leaves[number % len(leaves)])
            yield Endpoint(_SERVICE + 2 * number + 1, name, at)

    def switches(self, leaf: list[int], l2: list[int], spine: list[int]) -> Iterator[Switch]:
        """All switches with a port in use; those of a level have equally many ports."""
        odd = bool(self.description and self.description.odd_names)
        extra = int(bool(self.description and self.description.aggregation_nodes))
        per_pod, per_group = self.tree.l2_per_pod, self.tree.spines_per_group
        for level, guids, kind, width in (
            (1, leaf, "leaf", self.tree.m[1]),
            (2, l2, "l2", per_pod),
            (3, spine, "spine", per_group),
        ):
            ports = max((self.used[guid] for guid in guids), default=0) + extra
            for number, guid in enumerate(guids):
                if self.used[guid]:
                    name = f"{kind}-{number // width}-{number % width}"
                    name = f"MF0;{name}:MQM8700/U1" if odd else name
                    yield Switch(guid, name, level, ports)


def _aggregation(switch: Switch) -> Endpoint:
    at = PortRef(switch.guid, switch.ports)
    return Endpoint(switch.guid + 8, "Mellanox Technologies Aggregation Node", at)


def _shuffled(
    inventory: Inventory, managers: list[int], rng: random.Random
) -> tuple[Inventory, list[int]]:
    """The same cables under other GUIDs, names and port numbers; and the managers' new GUIDs.

    An import can then recover the shape only from the cables. Host names stay, because the
    import recognises the ports of a host by its name.
    """
    guids = [s.guid for s in inventory.switches] + [e.guid for e in inventory.endpoints]
    fresh = [_ADAPTER ^ n << 3 for n in rng.sample(range(1 << 24), len(guids))]
    new = dict(zip(guids, fresh, strict=True)) | {0: 0}
    names = rng.sample(range(10**6), len(inventory.switches))
    ports = {s.guid: rng.sample(range(1, s.ports + 1), s.ports) for s in inventory.switches}

    def moved(end: PortRef) -> PortRef:
        return PortRef(new[end.guid], ports[end.guid][end.port - 1])

    switches = (
        dataclasses.replace(s, guid=new[s.guid], name=f"switch {name}")
        for s, name in zip(inventory.switches, names, strict=True)
    )
    return (
        Inventory(
            host_names=inventory.host_names,
            switches=tuple(sorted(switches, key=lambda s: (s.level, s.guid))),
            cables=tuple(
                sorted(
                    (Cable(moved(c.lower), moved(c.upper), c.link) for c in inventory.cables),
                    key=lambda c: (c.lower, c.upper),
                )
            ),
            endpoints=tuple(
                sorted(
                    (
                        dataclasses.replace(e, guid=new[e.guid], at=moved(e.at))
                        for e in inventory.endpoints
                    ),
                    key=lambda e: e.at,
                )
            ),
            leaf_guids=tuple(new[guid] for guid in inventory.leaf_guids),
            l2_guids=tuple(new[guid] for guid in inventory.l2_guids),
            spine_guids=tuple(new[guid] for guid in inventory.spine_guids),
        ),
        [new[guid] for guid in managers],
    )
