# SPDX-License-Identifier: Apache-2.0

"""The fat-tree: sizes, addresses, cables and rails; immutable and shared.

Notation follows the papers, after Öhring: XGFT(3; m1,m2,m3; 1,w2,w3). Indices
are 0-based and match the snapshot format:

* a *port* is ``(pod, leaf, k)``; ``leaf`` is local to its pod, ``k`` to its leaf;
* a leaf link is ``(pod, leaf, up)`` with ``up = l2 * p + cable``;
* a spine link is ``(pod, l2, up)`` with ``up = spine * p + cable``.

The module has two views of a tree. The *physical* view (``Xgft``) counts leaves,
L2 switches and cables. Policies use the *grouped* view (``Topology``): hosts with R ports
are connected to a *leaf group* of R leaves. With one rail a leaf group is a leaf.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from laas_service.domain.errors import InvalidInput
from laas_service.domain.grouping import grouped
from laas_service.domain.lanes import lane_width


class LeafLink(NamedTuple):
    """The cable between a leaf and an L2 switch; ``up`` in 0..w2-1 counts cables."""

    pod: int
    leaf: int
    up: int

    # A tuple equals any tuple of the same numbers; a leaf link equals no spine link.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeafLink) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((1, *self))


class SpineLink(NamedTuple):
    """The cable between an L2 switch and a spine; ``up`` in 0..w3-1 counts cables."""

    pod: int
    l2: int
    up: int

    # A tuple equals any tuple of the same numbers; a leaf link equals no spine link.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpineLink) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((2, *self))


class Port(NamedTuple):
    """The place of one HCA port of a host; ``k`` in 0..m1-1."""

    pod: int
    leaf: int
    k: int


Link = LeafLink | SpineLink


class Column(NamedTuple):
    """The L2 switches at one column of all grouped pods.

    ``bundle`` is the mask of the uplinks of a leaf group that lead to the column. Each of
    them stands for ``rails`` cables, one on each rail of the column's plane.
    """

    number: int
    plane: int
    bundle: int
    rails: int


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits of ``mask``, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True)
class Xgft:
    """XGFT(3; m1,m2,m3; 1,w2,w3) with parallel cables; two levels are m3 = 1, w3 = 0.

    ``w`` counts cables, so ``w[1] = L2 switches in a pod * cables[0]`` and
    ``w[2] = spines of a group * cables[1]``.

    Raises:
        InvalidInput: a size is out of range or the cables do not divide ``w``.
    """

    m: tuple[int, int, int]
    w: tuple[int, int, int]
    cables: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if len(self.m) != 3 or any(size < 1 for size in self.m):
            raise InvalidInput("m", self.m, "give three sizes of at least 1: [m1, m2, m3]")
        if len(self.w) != 3 or self.w[0] != 1 or self.w[1] < 0 or self.w[2] < 0:
            raise InvalidInput("w", self.w, "give [1, w2, w3] with w2, w3 of at least 0")
        if self.m[2] > 1 and self.w[2] < 1:
            raise InvalidInput("w", self.w, "a tree of several pods needs w3 of at least 1")
        if self.m[1] > 1 and self.w[1] < 1:
            raise InvalidInput("w", self.w, "a pod of several leaves needs w2 of at least 1")
        if any(p < 1 or w % p for p, w in zip(self.cables, self.w[1:], strict=True)):
            raise InvalidInput("cables", self.cables, "parallel cables must divide w2 and w3")

    @property
    def leaves(self) -> int:
        """Leaf switches in all."""
        return self.m[1] * self.m[2]

    @property
    def l2_per_pod(self) -> int:
        """L2 switches in each pod."""
        return self.w[1] // self.cables[0]

    @property
    def spines_per_group(self) -> int:
        """Spines that are connected to one L2 switch."""
        return self.w[2] // self.cables[1]

    @property
    def taper(self) -> tuple[int, int]:
        """The flows per uplink at full load, ceil(down / up), at leaves and at L2 switches.

        1 is a full tree. Source: LaaS (ANCS'16), section 3, over-subscription.
        """
        (m1, m2, _), (_, w2, w3) = self.m, self.w
        return (-(-m1 // w2) if w2 else 1, -(-(m2 * self.cables[0]) // w3) if w3 else 1)

    @property
    def leaf_links(self) -> int:
        """Cables between leaves and L2 switches in all."""
        return self.leaves * self.w[1]

    @property
    def spine_links(self) -> int:
        """Cables between L2 switches and spines in all."""
        return self.m[2] * self.l2_per_pod * self.w[2]

    def leaf_id(self, pod: int, leaf: int) -> int:
        """The number of a leaf among all leaves, 0..leaves-1."""
        return pod * self.m[1] + leaf

    def l2_id(self, pod: int, l2: int) -> int:
        """The number of an L2 switch among all of them, 0..m3*l2_per_pod-1."""
        return pod * self.l2_per_pod + l2

    def link_id(self, link: Link) -> int:
        """The number of a link, 0..leaf_links+spine_links-1: leaf links first."""
        if isinstance(link, LeafLink):
            return self.leaf_id(link.pod, link.leaf) * self.w[1] + link.up
        return self.leaf_links + self.l2_id(link.pod, link.l2) * self.w[2] + link.up

    def link_at(self, number: int) -> Link:
        """The link of a number; the inverse of ``link_id``."""
        if number < self.leaf_links:
            leaf, up = divmod(number, self.w[1])
            return LeafLink(*divmod(leaf, self.m[1]), up)
        l2, up = divmod(number - self.leaf_links, self.w[2])
        return SpineLink(*divmod(l2, self.l2_per_pod), up)

    def links(self) -> Iterator[Link]:
        """Every link in the order of numbers."""
        return map(self.link_at, range(self.leaf_links + self.spine_links))

    def has_link(self, link: Link) -> bool:
        """Whether the address of a link lies within the tree."""
        lower = self.m[1] if isinstance(link, LeafLink) else self.l2_per_pod
        width = self.w[1] if isinstance(link, LeafLink) else self.w[2]
        return 0 <= link[0] < self.m[2] and 0 <= link[1] < lower and 0 <= link[2] < width


def link_name(link: Link) -> str:
    """The link's name over REST: ``leaf-POD-LEAF-UP`` or ``spine-POD-L2-UP``."""
    return f"{'leaf' if isinstance(link, LeafLink) else 'spine'}-{link[0]}-{link[1]}-{link[2]}"


def parse_link(name: str) -> Link:
    """The link of a name such as ``leaf-0-3-5`` or ``spine-1-2-0``.

    Raises:
        InvalidInput: the name has another form.
    """
    kind, _, rest = name.partition("-")
    parts = rest.split("-")
    numbered = len(parts) == 3 and all(p.isdecimal() and len(p) < 10 for p in parts)
    if kind in ("leaf", "spine") and numbered:
        numbers = (int(parts[0]), int(parts[1]), int(parts[2]))
        return LeafLink(*numbers) if kind == "leaf" else SpineLink(*numbers)
    raise InvalidInput("link", name, "use leaf-POD-LEAF-UP or spine-POD-L2-UP")


@dataclass(frozen=True)
class Topology:
    """A tree, the rails of its hosts, and the hosts and links that are absent from it.

    With one rail, hosts are numbered by position, ``(pod*m2 + leaf)*m1 + k``. With more,
    ``host_ports[h]`` lists the R ports of host h in rail order, each on a different leaf.
    Hosts that share one leaf share all their leaves (a leaf group). In one grouped pod, the
    leaves of one rail all lie in one physical pod. Rails whose leaves lie in the same
    physical pod share a *plane*.

    The grouped view is regular: ``pods`` pods of ``groups_per_pod`` groups of ``hosts_per_group``
    hosts. Group ``g`` is in pod ``g // groups_per_pod``. Short pods are padded with empty
    groups. The uplinks of a group are one mask with a field of ``tree.w[1]`` bits for each
    plane. The rails of a plane always take the same uplinks and so meet at the same L2
    switches. A pod has ``columns_per_pod = planes * l2_per_pod`` L2 switches; column ``c`` is
    L2 switch ``c % l2_per_pod`` of plane ``c // l2_per_pod``.

    Raises:
        InvalidInput: rails do not form leaf groups, or an address is outside.
    """

    tree: Xgft
    rails: int = 1
    host_ports: tuple[tuple[Port, ...], ...] = ()
    absent_hosts: frozenset[int] = frozenset()
    absent_links: frozenset[Link] = frozenset()
    hosts_per_group: int = field(init=False, compare=False)
    groups_per_pod: int = field(init=False, compare=False)
    pods: int = field(init=False, compare=False)
    plane_of_rail: tuple[int, ...] = field(init=False, compare=False)
    _group_leaves: tuple[tuple[int, ...], ...] = field(init=False, compare=False, repr=False)
    _group_hosts: tuple[tuple[int, ...], ...] = field(init=False, compare=False, repr=False)
    _host_place: tuple[tuple[int, int], ...] = field(init=False, compare=False, repr=False)
    _pod_planes: tuple[tuple[int, ...], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        tree = self.tree
        for link in self.absent_links:
            if not tree.has_link(link):
                raise InvalidInput("failed link", list(link), f"links lie within w={tree.w}")
        if self.rails == 1 and not self.host_ports:
            self._set(
                hosts_per_group=tree.m[0],
                groups_per_pod=tree.m[1],
                pods=tree.m[2],
                plane_of_rail=(0,),
                _group_leaves=(),
                _group_hosts=(),
                _host_place=(),
                _pod_planes=(),
            )
        else:
            self._group()
        for host in self.absent_hosts:
            if not 0 <= host < self.hosts:
                raise InvalidInput("failed host", host, f"hosts are 0..{self.hosts - 1}")

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _group(self) -> None:
        """Find the leaf groups and their pods, and check what the class requires of them."""
        tree = self.tree
        members: dict[tuple[int, ...], list[int]] = {}
        leaf_owner: dict[int, tuple[int, ...]] = {}
        taken: set[Port] = set()
        for host, ports in enumerate(self.host_ports):
            if len(ports) != self.rails:
                raise InvalidInput(f"host_ports[{host}]", len(ports), f"give {self.rails} ports")
            for port in ports:
                inside = all(0 <= x < size for x, size in zip(port, reversed(tree.m), strict=True))
                if not inside or port in taken:
                    raise InvalidInput(
                        f"host_ports[{host}]", list(port), "ports lie within m and have one host"
                    )
                taken.add(port)
            leaves = tuple(tree.leaf_id(p.pod, p.leaf) for p in ports)
            members.setdefault(leaves, []).append(host)
            for leaf in leaves:
                if leaf_owner.setdefault(leaf, leaves) != leaves or leaves.count(leaf) > 1:
                    raise InvalidInput(
                        f"host_ports[{host}]",
                        [list(p) for p in ports],
                        "hosts that share one leaf must share all, one port on each",
                    )
        by_pods = grouped(
            (tuple(leaf // tree.m[1] for leaf in leaves), leaves) for leaves in sorted(members)
        )
        patterns = {tuple(pods.index(pod) for pod in pods) for pods in by_pods}
        physical = [pod for pods in by_pods for pod in set(pods)]
        if len(patterns) > 1 or len(physical) != len(set(physical)):
            raise InvalidInput(
                "host_ports",
                sorted(by_pods),
                "the pods of the rails must pair up the same way everywhere",
            )
        pattern = patterns.pop() if patterns else (0,) * self.rails
        distinct = sorted(set(pattern))
        groups_per_pod = max((len(groups) for groups in by_pods.values()), default=1)
        in_order = [by_pods[pods] for pods in sorted(by_pods)]
        group_leaves = [
            leaves
            for groups in in_order
            for leaves in [*groups, *[()] * (groups_per_pod - len(groups))]
        ]
        group_hosts = [tuple(members.get(leaves, ())) for leaves in group_leaves]
        place = {
            host: (group, position)
            for group, hosts in enumerate(group_hosts)
            for position, host in enumerate(hosts)
        }
        self._set(
            hosts_per_group=max((len(hosts) for hosts in group_hosts), default=1),
            groups_per_pod=groups_per_pod,
            pods=max(len(by_pods), 1),
            plane_of_rail=tuple(distinct.index(rail) for rail in pattern),
            _group_leaves=tuple(group_leaves) or ((),),
            _group_hosts=tuple(group_hosts) or ((),),
            _host_place=tuple(place[host] for host in range(len(self.host_ports))),
            _pod_planes=tuple(tuple(pods[r] for r in distinct) for pods in sorted(by_pods))
            or ((0,),),
        )

    @property
    def hosts(self) -> int:
        """The number of host numbers, absent hosts included."""
        tree = self.tree
        return len(self.host_ports) if self.host_ports else tree.m[0] * tree.leaves

    @cached_property
    def taper(self) -> tuple[int, int]:
        """``Xgft.taper`` of the tree."""
        return self.tree.taper

    @cached_property
    def groups(self) -> int:
        """Leaf groups in all, padding included."""
        return self.pods * self.groups_per_pod

    @cached_property
    def planes(self) -> int:
        """The number of planes, 1..rails."""
        return max(self.plane_of_rail) + 1

    @cached_property
    def columns_per_pod(self) -> int:
        """L2 switches in a grouped pod."""
        return self.planes * self.tree.l2_per_pod

    def rails_in_plane(self, plane: int) -> int:
        """The number of rails that share a plane, at least 1."""
        return self.plane_of_rail.count(plane)

    @cached_property
    def plane_fields(self) -> tuple[int, ...]:
        """By plane, the mask of its uplinks in a leaf group's mask."""
        field = (1 << self.tree.w[1]) - 1
        return tuple(field << plane * self.tree.w[1] for plane in range(self.planes))

    def uplinks_for(self, hosts: int) -> int:
        """The uplinks that ``hosts`` hosts on a leaf need in each plane."""
        return -(-hosts // self.taper[0])

    def has_uplinks(self, width: int) -> Callable[[int], bool]:
        """A test whether a leaf group's mask has at least ``width`` uplinks in every plane."""
        planes = self.plane_fields
        if len(planes) == 1:
            return lambda uplinks: uplinks.bit_count() >= width
        return lambda uplinks: all((uplinks & plane).bit_count() >= width for plane in planes)

    @cached_property
    def lane(self) -> int:
        """The width of a lane where the spine uplinks of a pod are one integer (``lanes``)."""
        return lane_width(self.tree.w[2])

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a pod, by number."""
        cables, width = self.tree.cables[0], self.tree.l2_per_pod
        bundle = (1 << cables) - 1
        return tuple(
            Column(number, plane, bundle << number * cables, self.rails_in_plane(plane))
            for plane in range(self.planes)
            for number in range(plane * width, (plane + 1) * width)
        )

    @cached_property
    def _pod_sizes(self) -> tuple[tuple[int, ...], ...]:
        """By pod, the number of hosts present on each leaf group."""
        width = self.groups_per_pod
        return tuple(
            tuple(
                self.present_positions(group).bit_count() for group in range(first, first + width)
            )
            for first in range(0, self.groups, width)
        )

    @cached_property
    def largest_leaf(self) -> int:
        """The most hosts of a leaf group."""
        return max(map(max, self._pod_sizes))

    @cached_property
    def largest_pod(self) -> int:
        """The most hosts of a pod."""
        return max(map(sum, self._pod_sizes))

    @cached_property
    def group_of_leaf(self) -> dict[int, tuple[int, int]]:
        """Leaf id -> its leaf group and its rail there; without leaves that have no hosts."""
        return {
            leaf: (group, rail)
            for group in range(self.groups)
            for rail, leaf in enumerate(self.leaves_of_group(group))
        }

    @cached_property
    def column_of_l2(self) -> dict[tuple[int, int], int]:
        """Physical (pod, l2) -> ``pod * columns_per_pod + column`` of the grouped pod."""
        return {
            self.l2_of_column(pod, column): pod * self.columns_per_pod + column
            for pod in range(self.pods)
            for column in range(self.columns_per_pod)
        }

    def leaves_of_group(self, group: int) -> tuple[int, ...]:
        """Leaf ids of a group, one for each rail; empty for padding."""
        return self._group_leaves[group] if self._group_leaves else (group,)

    def host_at(self, group: int, position: int) -> int | None:
        """The host number at a position of a group; None if no host is there."""
        if not self._group_hosts:
            return group * self.hosts_per_group + position
        hosts = self._group_hosts[group]
        return hosts[position] if position < len(hosts) else None

    def place_of(self, host: int) -> tuple[int, int]:
        """The (group, position) of a host."""
        return self._host_place[host] if self._host_place else divmod(host, self.hosts_per_group)

    def positions_of(self, hosts: Iterable[int]) -> tuple[int, ...]:
        """By leaf group, the mask of the positions of these hosts."""
        masks = [0] * self.groups
        for host in hosts:
            group, position = self.place_of(host)
            masks[group] |= 1 << position
        return tuple(masks)

    def ports_of(self, host: int) -> tuple[Port, ...]:
        """The ports of a host in rail order."""
        if self.host_ports:
            return self.host_ports[host]
        leaf, k = divmod(host, self.tree.m[0])
        return (Port(*divmod(leaf, self.tree.m[1]), k),)

    def l2_of_column(self, pod: int, column: int) -> tuple[int, int]:
        """The physical (pod, l2) of a column of a grouped pod."""
        plane, l2 = divmod(column, self.tree.l2_per_pod)
        return (self._pod_planes[pod][plane] if self._pod_planes else pod, l2)

    def present_positions(self, group: int) -> int:
        """The mask of a group's positions with a host that is not absent."""
        by_position = enumerate(
            self.host_at(group, position) for position in range(self.hosts_per_group)
        )
        hosts = ((position, host) for position, host in by_position if host is not None)
        return sum(1 << position for position, host in hosts if host not in self.absent_hosts)
