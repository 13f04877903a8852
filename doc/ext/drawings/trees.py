# SPDX-License-Identifier: Apache-2.0

"""Drawings of fabrics. Each asks the service's own code for what it shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from drawings.canvas import BLUE, GREEN, ORANGE, PURPLE, RED, Canvas
from laas_service.adapters.fabric_import.generator import Description, inventory, topology
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.faults.repair import repair
from laas_service.domain.ledger import Ledger
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.policies.jigsaw import Jigsaw
from laas_service.domain.routing.fabric_tables import ForwardingTables, forwarding_tables
from laas_service.domain.routing.tenant_tables import tenant_tables
from laas_service.domain.topology import LeafLink, Link, Topology, Xgft

THREE_LEVELS = Topology(Xgft((4, 3, 2), (1, 4, 3)))
"""24 hosts, 6 leaves, 8 L2 switches and 12 spines."""

TWO_LEVELS = Topology(Xgft((4, 4, 1), (1, 4, 0)))
"""16 hosts, 4 leaves and 4 L2 switches."""

Place = tuple[float, float]


class Tree:
    """Places of the switches and hosts of a fabric on a canvas, and its cables."""

    def __init__(
        self, canvas: Canvas, fabric: Topology, left: float, top: float, width: float, rise: float
    ) -> None:
        self.canvas, self.fabric, self.rise = canvas, fabric, rise
        tree = fabric.tree
        levels = 3 if tree.w[2] else 2
        floor = top + rise * levels
        pod_width = width / tree.m[2]
        self.leaves: dict[tuple[int, int], Place] = {}
        self.l2: dict[tuple[int, int], Place] = {}
        self.spines: dict[tuple[int, int], Place] = {}
        for pod in range(tree.m[2]):
            start = left + pod * pod_width
            for leaf in range(tree.m[1]):
                x = start + (leaf + 0.5) * pod_width / tree.m[1]
                self.leaves[pod, leaf] = (x, floor - rise)
            for l2 in range(tree.l2_per_pod):
                x = start + (l2 + 0.5) * pod_width / tree.l2_per_pod
                self.l2[pod, l2] = (x, floor - 2 * rise)
        for l2 in range(tree.l2_per_pod):
            for spine in range(tree.spines_per_group if levels == 3 else 0):
                number = l2 * tree.spines_per_group + spine
                x = left + (number + 0.5) * width / (tree.l2_per_pod * tree.spines_per_group)
                self.spines[l2, spine] = (x, top)
        self.hosts: dict[int, Place] = {}
        for host in range(fabric.hosts):
            ports = fabric.ports_of(host)
            across = [self.leaves[port.pod, port.leaf][0] for port in ports]
            step = pod_width * len(ports) / tree.m[1] / (tree.m[0] + 0.6)
            shift = (ports[0].k - (tree.m[0] - 1) / 2) * step
            self.hosts[host] = (sum(across) / len(across) + shift, floor)

    def ends(self, link: Link) -> tuple[Place, Place]:
        """Where a link begins and ends."""
        pod, lower, up = link
        cables = self.fabric.tree.cables
        if isinstance(link, LeafLink):
            return self.leaves[pod, lower], self.l2[pod, up // cables[0]]
        return self.l2[pod, lower], self.spines[lower, up // cables[1]]

    def cables(self) -> None:
        """All cables, thin."""
        for link in self.fabric.tree.links():
            self.canvas.line(*self.ends(link), wide=0.8, faint=0.3)
        for host in self.hosts:
            self.host_cables(host)

    def host_cables(self, host: int, colour: str = "currentColor") -> None:
        """The cables of a host, thin, or in a colour."""
        thin = colour == "currentColor"
        for port in self.fabric.ports_of(host):
            end = self.leaves[port.pod, port.leaf]
            self.canvas.line(
                self.hosts[host],
                end,
                colour=colour,
                wide=0.8 if thin else 2.4,
                faint=0.3 if thin else 1,
            )

    def links(self, links: Iterable[Link], colour: str, *, dashed: bool = False) -> None:
        """Links in the colour of their owner."""
        for link in links:
            self.canvas.line(*self.ends(link), colour=colour, wide=2.4, dashed=dashed)

    def owned(self, allocation: Allocation, colour: str) -> None:
        """The links and the cables of hosts of an allocation."""
        self.links(allocation.links(self.fabric), colour)
        for host in allocation.hosts(self.fabric):
            self.host_cables(host, colour)

    def nodes(self, owners: Mapping[int, str] = {}, *, numbers: bool = False) -> None:
        """Switches and hosts, above the cables; hosts in the colour of their owner."""
        for x, y in (*self.leaves.values(), *self.l2.values(), *self.spines.values()):
            self.canvas.box(x - 9, y - 6, 18, 12, fill=1, round=3)
        for host, (x, y) in self.hosts.items():
            if host in owners:
                self.canvas.dot(x, y, colour=owners[host], size=6)
            else:
                self.canvas.ring(x, y, size=5)
            if numbers:
                self.canvas.text(x, y + 21, str(host), size=11)

    def names(self, x: float) -> None:
        """The names of the levels, at their left."""
        levels = [("hosts", self.hosts), ("leaves", self.leaves), ("L2", self.l2)]
        levels += [("spines", self.spines)] if self.spines else []
        for name, places in levels:
            y = next(iter(places.values()))[1]
            self.canvas.note(x, y + 4, name)


def _fabric(wanted: Mapping[str, int], on: Topology) -> tuple[Ledger, dict[str, Allocation]]:
    """A ledger after requests of so many hosts, one after the other."""
    ledger = Ledger(on)
    for name, hosts in wanted.items():
        answer = admit(Jigsaw(), ledger, Request(name, hosts))
        assert isinstance(answer, Allocation), answer
    return ledger, dict(ledger.allocations)


def _owners(fabric: Topology, colours: Mapping[Allocation, str]) -> dict[int, str]:
    return {host: colour for each, colour in colours.items() for host in each.hosts(fabric)}


def _legend(canvas: Canvas, x: float, y: float, entries: Iterable[tuple[str, str]]) -> None:
    """Colours and what they mean, in a row."""
    for colour, words in entries:
        canvas.dot(x, y - 4, colour=colour, size=6)
        canvas.note(x + 12, y, words)
        x += 32 + 6.6 * len(words)


def owners() -> Canvas:
    """Three tenants in a tree of three levels."""
    canvas = Canvas(700, 372)
    tree = Tree(canvas, THREE_LEVELS, 60, 28, 630, 92)
    wanted = {"blue": 5, "orange": 8, "green": 8}
    _, held = _fabric(wanted, THREE_LEVELS)
    colours = dict(zip(held.values(), (BLUE, ORANGE, GREEN), strict=True))
    tree.cables()
    for allocation, colour in colours.items():
        tree.owned(allocation, colour)
    tree.nodes(_owners(THREE_LEVELS, colours))
    tree.names(4)
    used = sum(wanted.values())
    _legend(
        canvas,
        66,
        348,
        [
            *((colour, f"{a.id}: {a.requested} hosts") for a, colour in colours.items()),
            ("currentColor", f"grey cables, rings: {THREE_LEVELS.hosts - used} hosts free"),
        ],
    )
    return canvas


def tables() -> Canvas:
    """The table of one leaf: a tenant's own entries over the default ones."""
    canvas = Canvas(700, 420)
    tree = Tree(canvas, TWO_LEVELS, 60, 36, 480, 95)
    _, held = _fabric({"blue": 6}, TWO_LEVELS)
    blue = held["blue"]
    colours = {blue: BLUE}
    cabling = inventory(TWO_LEVELS)
    routed = forwarding_tables(TWO_LEVELS, cabling, [blue])
    tree.cables()
    tree.owned(blue, BLUE)
    tree.nodes(_owners(TWO_LEVELS, colours), numbers=True)
    tree.names(4)
    x, y = tree.leaves[0, 1]
    canvas.box(x - 14, y - 11, 28, 22, colour=ORANGE, heavy=True)
    canvas.text(56, 300, "The table of the marked leaf", at="start", bold=True)
    mine = set(blue.hosts(TWO_LEVELS))
    leaf = cabling.cable_of_link[LeafLink(0, 1, 0)].lower.guid
    ups = {cabling.cable_of_link[LeafLink(0, 1, up)].lower.port: up for up in range(4)}
    canvas.lines(56, 326, ["to host", "by"], at="start")
    for host in range(TWO_LEVELS.hosts):
        x = 128 + 35 * host
        guid = cabling.endpoint_of_port[host, 0].guid
        port = routed.port(leaf, guid)
        assert port is not None
        colour = BLUE if host in mine else "currentColor"
        canvas.box(x - 16, 312, 32, 38, colour=colour, fill=0.25 if host in mine else 0.05, round=2)
        canvas.text(x, 326, str(host), size=12)
        canvas.text(x, 343, f"up {ups[port]}" if port in ups else "host", size=11)
    _legend(
        canvas,
        62,
        378,
        [
            (BLUE, "blue's own entries: over blue's cables"),
            ("currentColor", "default entries: over cables without an owner"),
        ],
    )
    canvas.note(56, 404, "The default entries serve idle hosts, services and switches.")
    return canvas


def remainder() -> Canvas:
    """Full leaves and one with two hosts: where the up ports wrap around."""
    canvas = Canvas(700, 420)
    tree = Tree(canvas, TWO_LEVELS, 60, 36, 480, 80)
    _, held = _fabric({"blue": 10}, TWO_LEVELS)
    blue = held["blue"]
    table = tenant_tables(TWO_LEVELS, blue)
    tree.cables()
    tree.owned(blue, BLUE)
    tree.nodes(_owners(TWO_LEVELS, {blue: BLUE}), numbers=True)
    tree.names(4)
    shape = blue.shape
    assert shape is not None
    wide = (shape.remainder_hosts, TWO_LEVELS.tree.w[1])
    x, y = tree.leaves[0, 2]
    canvas.box(x - 14, y - 11, 28, 22, colour=ORANGE, heavy=True)
    canvas.text(x + 22, y + 18, "remainder leaf", at="start", size=12, colour=ORANGE)
    canvas.note(56, 262, "to host")
    for host in range(10):
        canvas.text(160 + 40 * host, 262, str(host), size=12, bold=True)
    for number in range(3):
        y = 272 + 36 * number
        row = table[f"leaf:0:{number}"]
        canvas.note(56, y + 20, f"leaf {number}, up")
        for host in range(10):
            entry = row[str(host)]
            own = entry == "host"
            last = number == 2
            colour = "currentColor" if own else ORANGE if last else BLUE
            canvas.box(
                142 + 40 * host, y, 36, 30, colour=colour, fill=0.05 if own else 0.25, round=2
            )
            canvas.text(
                160 + 40 * host, y + 20, "here" if own else entry.removeprefix("up:"), size=12
            )
    canvas.note(
        56,
        404,
        f"A full leaf has {wide[1]} uplinks; the remainder leaf has {wide[0]} and wraps around.",
    )
    return canvas


def chain() -> Canvas:
    """Routing chains: a base step for the whole fabric, one step for each tenant over it."""
    canvas = Canvas(700, 250)
    _, held = _fabric({"blue": 6, "orange": 6}, TWO_LEVELS)
    steps = [("step 1: whole fabric", None, "currentColor")]
    steps += [
        (f"step {number}: {each.id}", each, colour)
        for number, (each, colour) in enumerate(
            zip(held.values(), (BLUE, ORANGE), strict=True), start=2
        )
    ]
    for number, (title, allocation, colour) in enumerate(steps):
        left = 8 + 232 * number
        canvas.box(left, 8, 212, 206, colour=colour, fill=0.04)
        canvas.text(left + 106, 30, title, bold=True)
        tree = Tree(canvas, TWO_LEVELS, left + 8, 56, 196, 52)
        tree.cables()
        if allocation is None:
            tree.nodes()
            words = "engine updn"
        else:
            tree.owned(allocation, colour)
            tree.nodes(_owners(TWO_LEVELS, {allocation: colour}))
            words = "engine ftree, own topology"
        canvas.text(left + 106, 196, words, size=12)
        if number:
            canvas.line((left - 19, 110), (left - 2, 110), wide=2, arrow=True)
    canvas.text(
        350, 240, "Each further step overwrites the entries of step 1 in its own topology.", size=12
    )
    return canvas


def rail() -> Canvas:
    """Hosts with two ports: each rail is a tree of its own cables."""
    fabric = topology(Description(xgft="2;4,4;1,4", rails=2))
    canvas = Canvas(700, 330)
    tree = Tree(canvas, fabric, 60, 30, 630, 100)
    _, held = _fabric({"blue": 5}, fabric)
    blue = held["blue"]
    tree.cables()
    mine = blue.hosts(fabric)
    rail_of = {
        (port.pod, port.leaf): number
        for host in range(fabric.hosts)
        for number, port in enumerate(fabric.ports_of(host))
    }
    colours = (BLUE, PURPLE)
    for link in blue.links(fabric):
        tree.links([link], colours[rail_of[link[0], link[1]]])
    for host in mine:
        for number, port in enumerate(fabric.ports_of(host)):
            end = tree.leaves[port.pod, port.leaf]
            canvas.line(tree.hosts[host], end, colour=colours[number], wide=2.4)
    tree.nodes(dict.fromkeys(mine, BLUE))
    tree.names(4)
    _legend(canvas, 66, 276, [(BLUE, "rail 0 of the tenant"), (PURPLE, "rail 1: the same uplinks")])
    canvas.note(
        60,
        306,
        "Leaves 0 and 1 form a leaf group: their hosts have a port on each. 5 hosts, two trees.",
    )
    return canvas


def _two_places() -> tuple[Ledger, Allocation, Allocation, Allocation]:
    """A tenant of three hosts, where it moves to, and the bridge between."""
    ledger, held = _fabric({"blue": 3, "other": 5}, TWO_LEVELS)
    old = held["blue"]
    free = ledger.copy()
    free.release("other")
    for host in old.hosts(TWO_LEVELS):
        free.drain_host(host)
    for host in (*range(3, 8), *range(8, 12)):
        free.drain_host(host)
    free.release("blue")
    new = admit(Jigsaw(), free, Request("blue", 3))
    assert isinstance(new, Allocation), new
    joins = bridge(ledger, old, new)
    assert joins is not None
    return ledger, old, new, joins


def move() -> Canvas:
    """A move: old and new place at once, joined by a bridge."""
    canvas = Canvas(700, 330)
    tree = Tree(canvas, TWO_LEVELS, 60, 34, 630, 100)
    ledger, old, new, joins = _two_places()
    other = ledger.allocations["other"]
    tree.cables()
    tree.owned(other, GREEN)
    tree.owned(old, BLUE)
    tree.owned(new, PURPLE)
    tree.links(joins.links(TWO_LEVELS), ORANGE)
    tree.nodes(_owners(TWO_LEVELS, {old: BLUE, new: PURPLE, other: GREEN}))
    tree.names(4)
    _legend(
        canvas,
        66,
        276,
        [
            (BLUE, "old place"),
            (PURPLE, "new place"),
            (ORANGE, "bridge: free cables that join both"),
            (GREEN, "another tenant"),
        ],
    )
    canvas.note(60, 306, "All three are claimed until the last server has left the old place.")
    return canvas


def container() -> Canvas:
    """A container and two allocations inside it."""
    canvas = Canvas(700, 330)
    tree = Tree(canvas, TWO_LEVELS, 60, 34, 630, 100)
    ledger = Ledger(TWO_LEVELS)
    held = []
    for request in (
        Request("team", 12, container=True),
        Request("train", 5, parent="team"),
        Request("serve", 4, parent="team"),
    ):
        answer = admit(Jigsaw(), ledger, request)
        assert isinstance(answer, Allocation), answer
        held.append(answer)
    team, train, serve = held
    inside = team.hosts(TWO_LEVELS)
    first, last = tree.hosts[min(inside)][0], tree.hosts[max(inside)][0]
    top = tree.leaves[0, 0][1] - 24
    canvas.box(first - 18, top, last - first + 36, 146, colour=BLUE, fill=0.07, dashed=True)
    tree.cables()
    within = {*train.links(TWO_LEVELS), *serve.links(TWO_LEVELS)}
    tree.links(set(team.links(TWO_LEVELS)) - within, BLUE, dashed=True)
    tree.owned(train, ORANGE)
    tree.owned(serve, GREEN)
    tree.nodes(_owners(TWO_LEVELS, {train: ORANGE, serve: GREEN}))
    tree.names(4)
    free = team.size - train.size - serve.size
    _legend(
        canvas,
        66,
        284,
        [
            (BLUE, f"container of {team.size} hosts"),
            (ORANGE, f"train: {train.size} of them"),
            (GREEN, f"serve: {serve.size}"),
        ],
    )
    canvas.note(60, 312, f"{free} hosts and the dashed cables stay for more of the same project.")
    return canvas


def fault() -> Canvas:
    """A cable that fails, and the one that takes its place."""
    canvas = Canvas(700, 384)
    tree = Tree(canvas, TWO_LEVELS, 60, 34, 630, 100)
    ledger, held = _fabric({"blue": 6, "green": 4}, TWO_LEVELS)
    old = held["blue"]
    broken = LeafLink(0, 1, 0)
    assert broken in set(old.links(TWO_LEVELS))
    ledger.fail_link(broken)
    new = repair(ledger, old)
    assert isinstance(new, Allocation), new
    given = set(old.links(TWO_LEVELS)) - set(new.links(TWO_LEVELS))
    taken = set(new.links(TWO_LEVELS)) - set(old.links(TWO_LEVELS))
    tree.cables()
    tree.owned(held["green"], GREEN)
    tree.links(set(old.links(TWO_LEVELS)) - given, BLUE)
    for host in old.hosts(TWO_LEVELS):
        tree.host_cables(host, BLUE)
    tree.links(given - {broken}, "currentColor", dashed=True)
    tree.links([broken], RED, dashed=True)
    tree.links(taken, ORANGE)
    (x0, y0), (x1, y1) = tree.ends(broken)
    canvas.cross((x0 + x1) / 2, (y0 + y1) / 2)
    tree.nodes(_owners(TWO_LEVELS, {old: BLUE, held["green"]: GREEN}))
    tree.names(4)
    _legend(
        canvas,
        66,
        278,
        [
            (RED, "failed cable"),
            (ORANGE, "other cable: claimed first"),
            (BLUE, "kept: all hosts stay"),
            (GREEN, "another tenant"),
        ],
    )
    words = ("a port is down", "degraded", "routes beside", "traffic moves", "old withdrawn")
    for number, text in enumerate(words):
        x = 60 + 128 * number
        canvas.box(x, 304, 116, 44, fill=0.06, colour=RED if number < 2 else ORANGE)
        canvas.text(x + 58, 331, text, size=12)
        if number:
            canvas.line((x - 12, 326), (x - 1, 326), arrow=True)
    canvas.note(60, 374, "Each step waits until the switches confirm it.")
    return canvas


def cables() -> Canvas:
    """Cables that each sender crosses, by the tables that the service makes."""
    canvas = Canvas(700, 348)
    tree = Tree(canvas, TWO_LEVELS, 60, 34, 630, 100)
    _, held = _fabric({"blue": 6, "green": 3}, TWO_LEVELS)
    blue = held["blue"]
    routed = forwarding_tables(TWO_LEVELS, inventory(TWO_LEVELS), list(held.values()))
    tree.cables()
    for link in blue.links(TWO_LEVELS):
        canvas.line(*tree.ends(link), colour=BLUE, wide=9, faint=0.25)
    for host in blue.hosts(TWO_LEVELS):
        canvas.line(tree.hosts[host], tree.leaves[0, host // 4], colour=BLUE, wide=9, faint=0.25)
    owned = set(blue.links(TWO_LEVELS))
    idle = [host for host in range(TWO_LEVELS.hosts) if host not in _holders(held.values())]
    for source, target, colour in ((1, 4, BLUE), (idle[0], idle[-1], ORANGE)):
        path = _path(routed, source, target)
        assert (colour == BLUE) == bool(owned & set(path)), (source, target, path)
        points = _up_and_down(tree, source, path, target)
        canvas.line(*points, colour=colour, wide=2.4, arrow=True)
    tree.nodes(
        {
            **_owners(TWO_LEVELS, {blue: BLUE, held["green"]: GREEN}),
            idle[0]: ORANGE,
            idle[-1]: ORANGE,
        }
    )
    tree.names(4)
    _legend(
        canvas,
        66,
        278,
        [
            (BLUE, "blue: own cables (wide) and a packet"),
            (ORANGE, "idle hosts: their packet keeps off"),
            (GREEN, "another tenant"),
        ],
    )
    canvas.lines(
        60,
        304,
        [
            "Another tenant never crosses blue's cables. Idle hosts, storage and manager cross",
            "them only where every way on is owned; each such pair is counted and shown.",
        ],
        at="start",
    )
    return canvas


def _holders(allocations: Collection[Allocation]) -> set[int]:
    return {host for each in allocations for host in each.hosts(TWO_LEVELS)}


def _up_and_down(tree: Tree, source: int, path: Iterable[Link], target: int) -> list[Place]:
    """The places that a packet passes."""
    up = [end for link in path for end in tree.ends(link)]
    places = [tree.hosts[source], tree.leaves[0, source // 4]]
    places += [up[1]] if up else []
    places += [tree.leaves[0, target // 4], tree.hosts[target]]
    return [place for place, following in pairwise([*places, (0.0, 0.0)]) if place != following]


def _path(routed: ForwardingTables, source: int, target: int) -> list[Link]:
    """The links between two hosts of ``TWO_LEVELS``, up and down, by the tables."""
    cabling = inventory(TWO_LEVELS)
    guid = cabling.endpoint_of_port[target, 0].guid
    first, last = source // 4, target // 4
    if first == last:
        return []
    for up in range(TWO_LEVELS.tree.w[1]):
        link = LeafLink(0, first, up)
        lower = cabling.cable_of_link[link].lower
        if routed.port(lower.guid, guid) == lower.port:
            return [link, LeafLink(0, last, up)]
    raise AssertionError(f"no way from {source} to {target}")
