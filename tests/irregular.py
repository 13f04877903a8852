# SPDX-License-Identifier: Apache-2.0

"""Fat-trees with the irregularities of real ones, at random, with what an import should find.

    case = irregular(seed)
    fabric = parse_fabric(case.dump(), case.name, case.selection)

A seed chooses a family (one or several pods, directors, rails, planes, clusters joined by a few
cables, islands, wide switches) and irregularities: services on L2 switches, spines, and on edges
that lead into two pods; uneven pods, and pods of different width; missing, parallel and
tapering cables. What is expected is noted while the switches are cabled. Names and GUIDs of
switches say nothing of their places.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch

Pods = list[tuple[list[int], list[int]]]
"""Leaves and L2 switches of each pod."""


@dataclass
class Irregular:
    """A cabling, and what an import should find in it; switches are numbered from 0."""

    name: str
    rng: random.Random
    ports: list[int] = field(default_factory=list)
    """By switch, its number of ports."""

    shown: int = 0
    """The number of ports that the lines of the switches give; 0: their number."""

    cables: list[tuple[int, int]] = field(default_factory=list)
    adapters: list[tuple[str, int]] = field(default_factory=list)
    """Description and switch of each."""

    pods: list[list[int]] = field(default_factory=list)
    """The leaves of each pod."""

    edges: list[int] = field(default_factory=list)
    """Switches with services below them that lead into several pods."""

    level: dict[int, int] = field(default_factory=dict)
    rails: int = 1
    tenants: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    """Hosts that are kept out of allocation without being named by the operator."""

    selection: Selection = field(default_factory=Selection)
    odd: list[str] = field(default_factory=list)
    """The irregularities."""

    # -- building -----------------------------------------------------------------

    def switch(self, level: int, ports: int = 36) -> int:
        self.ports.append(ports)
        self.level[len(self.ports) - 1] = level
        return len(self.ports) - 1

    def switches(self, count: int, level: int, ports: int = 36) -> list[int]:
        return [self.switch(level, ports) for _ in range(count)]

    def cable(self, lower: int, upper: int, count: int = 1) -> None:
        self.cables += [(lower, upper)] * count

    def host(self, name: str, at: Sequence[int]) -> None:
        self.adapters += [(f"{name} mlx5_{n}", switch) for n, switch in enumerate(at)]

    def service(self, name: str, at: int, ports: int = 1) -> None:
        self.services.add(name)
        self.host(name, [at] * ports)

    def chance(self, share: float, what: str) -> bool:
        """Whether an irregularity occurs, with this probability; it is noted."""
        happens = self.rng.random() < share
        if happens:
            self.odd.append(what)
        return happens

    # -- the dump -----------------------------------------------------------------

    def guids(self) -> list[int]:
        """The GUID of each switch: random, the same at each call."""
        rng = random.Random(self.name)
        return [0xFE0C_0000_0000_0000 | n << 4 for n in rng.sample(range(1 << 28), len(self.ports))]

    def dump(self) -> str:
        """The cabling as ``ibnetdiscover`` prints it."""
        rng, guids, used = random.Random(self.name), self.guids(), Counter[int]()
        order = [rng.sample(range(1, ports + 1), ports) for ports in self.ports]

        def plug(switch: int) -> PortRef:
            used[switch] += 1
            return PortRef(guids[switch], order[switch][used[switch] - 1])

        endpoints = [
            Endpoint(0xE8EB_0000_0000_0001 + 16 * n, name, plug(switch))
            for n, (name, switch) in enumerate(self.adapters)
        ]
        cables = [Cable(plug(a), plug(b)) for a, b in self.cables]
        numbers = rng.sample(range(10_000), len(self.ports))
        switches = [
            Switch(guid, f"MF0;sw{number}:MQM8790/U1", 1, self.shown or ports)
            for guid, number, ports in zip(guids, numbers, self.ports, strict=True)
        ]
        return ibnetdiscover.render(
            Inventory((), tuple(switches), tuple(cables), tuple(endpoints), (), (), ())
        )


def irregular(seed: int) -> Irregular:
    """The irregular fabric of a seed; families take turns."""
    family = FAMILIES[seed % len(FAMILIES)]
    rng = random.Random(seed)
    case = Irregular(f"{family.__name__.strip('_')}-{seed}", rng)
    family(case)
    return case


# -- parts that families share ------------------------------------------------------


def _pods(case: Irregular, pods: int, ports: int = 36) -> Pods:
    """Pods of leaves and L2 switches with cables, perhaps uneven and of different width."""
    rng, made = case.rng, []
    leaves, l2s = rng.randint(3, 6), rng.randint(2, 4)
    uneven, narrow = case.chance(0.5, "uneven pods"), case.chance(0.3, "pods of different width")
    parallel = 2 if case.chance(0.3, "parallel leaf cables") else 1
    for number in range(pods):
        width = l2s - (1 if narrow and number and l2s > 2 and rng.random() < 0.5 else 0)
        size = rng.randint(2, leaves) if uneven and number else leaves
        own_leaves = case.switches(size, 1, ports)
        own_l2s = case.switches(width, 2, ports)
        for leaf in own_leaves:
            for l2 in own_l2s:
                case.cable(leaf, l2, parallel)
        made.append((own_leaves, own_l2s))
        case.pods.append(own_leaves)
    return made


def _spines(case: Irregular, pods: Pods, ports: int = 36) -> list[list[int]]:
    """Spines above the pods, by column; a director joins all columns."""
    rng = case.rng
    width = max(len(l2s) for _, l2s in pods)
    parallel = 2 if case.chance(0.3, "parallel spine cables") else 1
    if case.chance(0.25, "directors above all columns"):
        shared = case.switches(rng.randint(1, 3), 3, ports)
        columns = [shared] * width
    else:
        spines = rng.randint(1, 3)
        joined = [sum(len(l2s) > column for _, l2s in pods) > 1 for column in range(width)]
        columns = [case.switches(spines if several else 0, 3, ports) for several in joined]
    for _, l2s in pods:
        for column, l2 in enumerate(l2s):
            for spine in columns[column]:
                case.cable(l2, spine, parallel)
    return columns


def _hosts(case: Irregular, pods: Pods, prefix: str = "c") -> None:
    """Hosts with one rail on all leaves; some leaves have few, one may have storage only."""
    rng, most = case.rng, case.rng.randint(6, 10)
    uneven = case.chance(0.4, "uneven leaves")
    storage = case.chance(0.3, "a leaf of storage") and "a leaf"
    excluded = storage and rng.random() < 0.5
    leaves = [leaf for own, _ in pods for leaf in own]
    place = rng.choice(leaves)
    for leaf in leaves:
        name = f"st{prefix}" if storage and leaf == place else prefix
        for _ in range(rng.randint(max(1, most // 2), most) if uneven else most):
            host = f"{name}{len(case.adapters):04d}"
            case.host(host, [leaf])
            if not (name != prefix and excluded):
                case.tenants.add(host)
    if excluded:
        case.selection = Selection(exclude=(*case.selection.exclude, f"st{prefix}*"))


def _upper_services(case: Irregular, upper: Sequence[int], prefix: str = "") -> None:
    """Services on one to three switches above the leaves, and perhaps a subnet manager."""
    rng = case.rng
    if case.chance(0.6, "services above the leaves"):
        room = max(1, len(case.tenants) // 4)
        for switch in rng.sample(list(upper), min(rng.randint(1, 3), len(upper) // 3 + 1)):
            cables = sum(switch in cable for cable in case.cables)
            for _ in range(rng.randint(1, min(3, max(1, cables - 1)))):
                if len(case.services) < room:
                    case.service(f"svc{prefix}{len(case.adapters):04d}", switch)
    if case.chance(0.3, "a subnet manager above the leaves"):
        case.host(f"ufm{prefix}", [rng.choice(list(upper))])
        case.selection = Selection(
            exclude=case.selection.exclude, managers=(*case.selection.managers, f"ufm{prefix}")
        )


def _missing(case: Irregular) -> None:
    """One or two cables less; each switch keeps two of the switches above it."""
    if not case.chance(0.4, "missing cables"):
        return
    for _ in range(case.rng.randint(1, 2)):
        lower, upper = case.rng.choice(case.cables)
        if len({b for a, b in case.cables if a == lower}) > 2:
            case.cables.remove((lower, upper))


def _edge(case: Irregular, pods: Pods, prefix: str = "") -> None:
    """A switch with storage hosts and uplinks into two or more pods."""
    if len(pods) < 2 or not case.chance(0.5, "a storage edge into several pods"):
        return
    rng = case.rng
    for number in range(rng.randint(1, 2)):
        into = rng.sample(pods, 2 if len(pods) == 2 or rng.random() < 0.7 else 3)
        width = rng.randint(1, min(len(l2s) for _, l2s in into))
        edge = case.switch(1, 80)
        case.edges.append(edge)
        cables = rng.choice([1, 1, 2])
        for _, l2s in into:
            for l2 in l2s[:width]:
                case.cable(edge, l2, cables)
        uplinks = cables * width * len(into)
        for n in range(2 * uplinks):
            case.service(f"nsd{prefix}{number}{n}", edge)


# -- families -----------------------------------------------------------------------


def two_levels(case: Irregular) -> None:
    pods = _pods(case, 1)
    _hosts(case, pods)
    _missing(case)
    _upper_services(case, pods[0][1])


def three_levels(case: Irregular) -> None:
    pods = _pods(case, case.rng.randint(2, 4))
    columns = _spines(case, pods)
    _hosts(case, pods)
    _missing(case)
    _edge(case, pods)
    _upper_services(case, [*(s for c in columns for s in c), *(s for _, l2s in pods for s in l2s)])


def directors(case: Irregular) -> None:
    """Edges with a cable to some line boards of each director."""
    rng = case.rng
    boards, pods, both = rng.choice([2, 4]), rng.randint(2, 3), 2
    made: Pods = [([], []) for _ in range(pods)]
    fabric_boards, parallel = rng.randint(1, 2), rng.choice([1, 2])
    for _ in range(both):
        above = case.switches(fabric_boards, 3)
        for _, l2s in made:
            own = case.switches(boards // 2, 2)
            l2s += own
            for line in own:
                for board in above:
                    case.cable(line, board, parallel)
    for leaves, l2s in made:
        for leaf in case.switches(rng.randint(2, 4), 1):
            leaves.append(leaf)
            for l2 in l2s:
                case.cable(leaf, l2)
        case.pods.append(leaves)
    _hosts(case, made)
    _edge(case, made)
    _upper_services(case, [s for s, level in case.level.items() if level > 1])


def rails_in_pods(case: Irregular) -> None:
    """Hosts with an adapter on each leaf of a leaf group inside a pod."""
    rng, rails = case.rng, case.rng.choice([2, 2, 4])
    case.rails = rails
    pods: Pods = []
    l2s, groups = rng.randint(2, 4), rng.randint(2, 3)
    for _ in range(rng.randint(1, 3)):
        own, above = case.switches(rails * groups, 1), case.switches(l2s, 2)
        for leaf in own:
            for l2 in above:
                case.cable(leaf, l2)
        pods.append((own, above))
        case.pods.append(own)
    upper = [s for _, l2s in pods for s in l2s]
    if len(pods) > 1:
        upper += [s for column in _spines(case, pods) for s in column]
    _rail_hosts(case, [own[n : n + rails] for own, _ in pods for n in range(0, len(own), rails)])
    _missing(case)
    _edge(case, pods)
    _upper_services(case, upper)


def planes(case: Irregular) -> None:
    """Each rail is a pod of its own, joined by spines or not at all."""
    rng, rails = case.rng, case.rng.choice([2, 4])
    case.rails = rails
    groups, l2s = rng.randint(2, 4), rng.choice([2, 4])
    pods: Pods = []
    for _ in range(rails):
        own, above = case.switches(groups, 1), case.switches(l2s, 2)
        for leaf in own:
            for l2 in above:
                case.cable(leaf, l2)
        pods.append((own, above))
        case.pods.append(own)
    upper = [s for _, l2s in pods for s in l2s]
    if case.chance(0.7, "planes joined by spines"):
        if case.chance(0.5, "spines above two columns"):
            for column in range(0, l2s, 2):
                for spine in case.switches(rng.randint(1, 2), 3):
                    upper.append(spine)
                    for _, row in pods:
                        for l2 in row[column : column + 2]:
                            case.cable(l2, spine)
        else:
            upper += [s for column in _spines(case, pods) for s in column]
    _rail_hosts(case, [[pods[r][0][g] for r in range(rails)] for g in range(groups)])
    _upper_services(case, upper)


def _rail_hosts(case: Irregular, groups: Sequence[Sequence[int]]) -> None:
    rng, most = case.rng, case.rng.randint(3, 6)
    uneven = case.chance(0.4, "uneven leaf groups")
    for group in groups:
        for _ in range(rng.randint(2, most) if uneven else most):
            name = f"gpu{len(case.adapters):04d}"
            case.host(name, group)
            case.tenants.add(name)


def joined_clusters(case: Irregular) -> None:
    """Two trees with a few cables between their highest switches."""
    rng, tops = case.rng, []
    for prefix in "ab":
        pods = _pods(case, rng.choice([1, 1, 2, 3]))
        top = [s for _, l2s in pods for s in l2s]
        if len(pods) > 1:
            top = [s for column in _spines(case, pods) for s in column]
        _hosts(case, pods, prefix)
        _upper_services(case, top, prefix)
        tops.append(sorted(set(top)))
    _missing(case)
    count = rng.randint(1, min(2, *map(len, tops)))
    for one, other in zip(*(rng.sample(top, count) for top in tops), strict=True):
        case.cable(one, other)


def islands(case: Irregular) -> None:
    """Two or three trees without a cable between them."""
    for prefix in "abc"[: case.rng.randint(2, 3)]:
        pods = _pods(case, case.rng.choice([1, 1, 2]))
        upper = [s for _, l2s in pods for s in l2s]
        if len(pods) > 1:
            upper += [s for column in _spines(case, pods) for s in column]
        _hosts(case, pods, prefix)
        _edge(case, pods, prefix)
        _upper_services(case, upper, prefix)
    _missing(case)


def wide_switches(case: Irregular) -> None:
    """Switches of 144 ports: 72 twin-port cages, which their lines may count instead."""
    rng = case.rng
    leaves, l2s = case.switches(rng.randint(2, 3), 1, 144), case.switches(rng.randint(2, 3), 2, 144)
    parallel = rng.choice([4, 8, 12])
    for leaf in leaves:
        for l2 in l2s:
            case.cable(leaf, l2, parallel)
    case.pods.append(leaves)
    for leaf in leaves:
        for _ in range(rng.randint(30, 72)):
            name = f"gb{len(case.adapters):04d}"
            case.host(name, [leaf])
            case.tenants.add(name)
    _missing(case)
    _upper_services(case, l2s)
    if case.chance(0.5, "ports above the count"):
        case.shown = 72


FAMILIES: tuple[Callable[[Irregular], None], ...] = (
    two_levels, three_levels, directors, rails_in_pods, planes, joined_clusters, islands,
    three_levels, wide_switches,
)  # fmt: skip
