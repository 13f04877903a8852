# SPDX-License-Identifier: Apache-2.0

"""Up ports of a tenant's tables with which no shift of its hosts puts two flows on a link.

The hosts of a tenant are numbered leaf by leaf in the order of ``rank_order``. In the shift by
s, host i sends to host i + s modulo the number of hosts. D-mod-k with wraparound is free of
contention for all shifts only if no leaf and no pod is a remainder. The closed form of this
module is, wherever any forwarding table is.

One level. A *unit* is a leaf, or, at one L2 index, a pod. There are ``units`` full units of
``size`` members and a remainder unit of ``rest`` members (0: there is none), of which every full
unit has ``size`` upward links, and the remainder unit ``rest`` of the same. Full units are
numbered in cyclic order from the one behind the remainder unit. Member t of a unit is reached

* from a full unit before it, and in the remainder unit: over link t;
* from a full unit behind it: over link ``(t + rest) % size``;
* from the remainder unit, in full unit j: over link ``(t - (units - 1 - j) * size) % rest``.

The links of the remainder unit are numbered 0 to ``rest - 1``.

Theorem. A table without contention for all shifts exists exactly if ``rest`` is 0, or divides
``size``, or ``units`` is at most 2, and then this one is such a table.

Proof. Sufficiency: in each case the entries of a full unit have period ``size`` along the order of
members (across the remainder unit, too), and those of the remainder unit period ``rest``, so what
a unit sends at one time takes different links. What unit j receives at one time comes from a
window of consecutive members: those of a unit behind j, of the remainder unit and of a unit
before j use the links ``rest .. a + rest - 1``, 0 to ``rest - 1`` and the others, and a window
that begins or ends within the remainder unit uses equal digits on either side, because
``(t - (units - 1 - j) * size) % rest`` is t there if ``rest`` divides ``size`` or j is the unit
that the window needs it for. Necessity: distinct links for each window force the period ``size``
on the entries of the first full unit, and the period ``rest`` on those of the remainder unit. A
window that begins within the remainder unit forces the two to agree on the first ``rest`` members
of every full unit but the first. If there are two of those, the period ``rest`` carries one into
the other, so ``size`` is a multiple of ``rest``.

Several pods. By this table every L2 index carries, in every shift, a cyclic shift of the leaves
that have a link to it. So the same statement holds again, with pods as units and leaves as
members. The remainder pod has one leaf more at the L2 indices of the remainder leaf.

On a tapered tree several members share a link; then the links of a unit are *lanes*, spread
evenly over its links. ``tests/unit/domain/routing/test_contention.py`` walks all shifts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from laas_service.domain.allocation import WHOLE, Allocation, Shape
from laas_service.domain.grouping import grouped
from laas_service.domain.topology import Link, Topology, bits

T = TypeVar("T")


class Level(NamedTuple):
    """Units of one level: ``units`` full ones of ``size`` members, and one of ``rest``."""

    units: int
    size: int
    rest: int

    @property
    def free(self) -> bool:
        """Whether a table without contention exists."""
        return self.rest == 0 or self.units <= 2 or self.size % self.rest == 0


class Contention(NamedTuple):
    """What the tables of an allocation promise for every shift of its hosts."""

    free: bool
    """Whether no link carries more flows than its taper makes unavoidable: one on a full tree."""
    worst_load: int | None
    """The most flows on a link in any shift, 1 or more. Exact on a full tree up to 2; an upper
    bound otherwise. None: not known."""


def contention_of(topology: Topology, shape: Shape) -> Contention:
    """What the tables of a shape reach while no link of the allocation has failed."""
    leaves, *pods = _levels(shape)
    across = shape.pods > 1 or shape.remainder_leaves > 0
    rest = shape.remainder_hosts
    crossed = [level for level in pods if not level.free] if across else []
    tapers, cables = topology.taper, topology.tree.cables
    unavoidable = _rounding((shape.hosts, rest), tapers[0])
    if across:
        rails = max(map(topology.rails_in_plane, range(topology.planes)))
        members = {shape.leaves, *(level.rest for level in pods)}
        unavoidable *= _rounding([rails * count for count in members], tapers[1])
    collisions = 1
    if not leaves.free or crossed:
        collisions = 2
        if not leaves.free and any(level.rest > shape.remainder_leaves for level in crossed):
            collisions = 3
    if (rest or shape.remainder_leaves) and not _single(cables, across or rest > 0):
        collisions = 3  # the entries are those of D-mod-k
    if across and rest and tapers[0] > 1:
        collisions = max(2, collisions)  # uplinks are shared, so the pods see no cyclic shift
    return Contention(collisions == 1, collisions * unavoidable)


def contention(
    topology: Topology, allocation: Allocation, failed: Collection[Link] = ()
) -> Contention:
    """What the tables of an allocation reach.

    Without links of its own, and while one of its links has failed, nothing is known beyond the
    leaf: ``worst_load`` is None.
    """
    shape = shape_of(topology, allocation)
    if shape is not None and not set(failed).isdisjoint(allocation.links(topology)):
        shape = None
    if len([share for share in allocation.groups if share.hosts]) == 1:
        return Contention(True, 1)
    if shape is None or allocation.bandwidth != WHOLE:
        return Contention(False, None)
    return contention_of(topology, shape)


def _rounding(counts: Iterable[int], taper: int) -> int:
    """The most members of a unit for each of its links; ``counts`` are the sizes of units."""
    return max(-(-count // -(-count // taper)) for count in counts if count)


def _single(cables: tuple[int, int], across: bool) -> bool:
    """Whether no two switches that the traffic uses are joined by parallel cables."""
    return cables[0] == 1 and (cables[1] == 1 or not across)


def _levels(shape: Shape) -> list[Level]:
    """The leaves as units; then the pods at the L2 indices without and with remainder leaf."""
    full = shape.pods * shape.leaves + shape.remainder_leaves
    levels = [Level(full, shape.hosts, shape.remainder_hosts)]
    rests = {shape.remainder_leaves}
    if shape.remainder_hosts:
        rests.add(shape.remainder_leaves + 1)
    return levels + [Level(shape.pods, shape.leaves, rest) for rest in sorted(rests)]


def rank_order(topology: Topology, allocation: Allocation) -> list[int]:
    """The hosts in the order that contention-free routing numbers them: leaf by leaf.

    With one rail that is the order of host numbers.
    """
    return [
        host
        for group, positions, _ in allocation.groups
        for position in bits(positions)
        if (host := topology.host_at(group, position)) is not None
    ]


class ShiftRoutes:
    """The up ports of one tenant's switches by the closed form.

    Leaves and L2 switches are named by their physical (pod, leaf) and (pod, l2).
    """

    def __init__(self, topology: Topology, allocation: Allocation, shape: Shape) -> None:
        self._shape, self._topology = shape, topology
        groups = [share for share in allocation.groups if share.hosts]
        full = [share.hosts.bit_count() == shape.hosts for share in groups]
        rest = full.index(False) if False in full else None
        in_order = _rotated(groups, rest)
        self._units = sum(full)
        self._unit = {share.group: unit for unit, share in enumerate(in_order)}
        self._place: dict[tuple[int, int], tuple[int, int]] = {}
        """By physical (pod, leaf): the leaf group and the rail."""
        for share in groups:
            for rail, leaf in enumerate(topology.leaves_of_group(share.group)):
                self._place[divmod(leaf, topology.tree.m[1])] = share.group, rail
        pods = grouped((share.group // topology.groups_per_pod, share.group) for share in groups)
        regular = [
            len(members) == shape.leaves and (rest is None or groups[rest].group not in members)
            for members in pods.values()
        ]
        remainder_pod = regular.index(False) if False in regular else None
        self._pods = {pod: unit for unit, pod in enumerate(_rotated(list(pods), remainder_pod))}
        self._members = pods
        self._rest_group = None if rest is None else groups[rest].group
        field = (1 << topology.tree.w[1]) - 1
        self._links: list[list[int]] = []
        self._rest_uplinks: list[int] = []
        """By plane: the uplink of each lane of a leaf; the mask of the remainder leaf's."""
        for plane in range(topology.planes):
            masks = [share.uplinks >> plane * topology.tree.w[1] & field for share in in_order]
            below = 0 if rest is None else masks[-1]
            self._rest_uplinks.append(below)
            self._links.append(_lanes(masks[0], below, shape.hosts, shape.remainder_hosts))
        self._columns: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        """By (plane, l2) and unit of a pod: the mask of its spine uplinks."""
        for pod, column, uplinks in allocation.columns:
            plane, l2 = divmod(column, topology.tree.l2_per_pod)
            self._columns[plane, l2][self._pods[pod]] = uplinks
        self._spines: dict[tuple[int, int], _SpineUplinks] = {}
        self._pod_of_l2 = {
            topology.l2_of_column(pod, plane * topology.tree.l2_per_pod): (pod, plane)
            for pod in pods
            for plane in range(topology.planes)
        }

    @classmethod
    def of(cls, topology: Topology, allocation: Allocation) -> ShiftRoutes | None:
        """Those of an allocation.

        None where D-mod-k is as good: without links of its own, in a single leaf group, without
        a remainder, with parallel cables (a switch has one entry for a destination, so flows
        that meet there take the same cable), and if the links have another form.
        """
        shape = shape_of(topology, allocation)
        if shape is None or not _single(topology.tree.cables, bool(allocation.columns)):
            return None
        if not (shape.remainder_leaves or shape.remainder_hosts):
            return None
        return cls(topology, allocation, shape)

    def of_leaf(self, source: tuple[int, int], target: tuple[int, int]) -> Sequence[int]:
        """The uplink that a leaf takes to each host of another leaf, in order of positions.

        Empty if the leaves are in different planes.
        """
        (group, rail), (to_group, to_rail) = self._place[source], self._place[target]
        plane = self._topology.plane_of_rail[rail]
        if plane != self._topology.plane_of_rail[to_rail]:
            return ()
        shape, units = self._shape, self._units
        level = Level(units, shape.hosts, shape.remainder_hosts)
        digits = _entries(level, self._unit[group], self._unit[to_group])
        links = self._links[plane]
        return [links[digit] for digit in digits]

    def of_l2(self, pod: int, l2: int, target: tuple[int, int]) -> int | None:
        """The spine uplink that an L2 switch takes to all hosts of a leaf of another pod.

        None if the leaf is in another plane, or has no link to that L2 index.
        """
        from_pod, plane = self._pod_of_l2[pod, 0]
        group, rail = self._place[target]
        if plane != self._topology.plane_of_rail[rail]:
            return None
        if (plane, l2) not in self._spines:
            self._spines[plane, l2] = self._spines_of(plane, l2)
        spines = self._spines[plane, l2]
        to_pod = group // self._topology.groups_per_pod
        members = self._members[to_pod]
        member = members.index(group)
        if self._rest_group is not None and not spines.with_rest_leaf:
            if group == self._rest_group:
                return None
            member -= self._rest_group in members[:member]
        level, source = spines.level, self._pods[from_pod]
        if level.units == 1:
            digit = member % max(1, min(level.size, level.rest))
        elif not level.rest and source == level.units:
            return None
        else:
            digit = _entries(level, source, self._pods[to_pod])[member]
        lanes_of_rail = self._topology.rails_in_plane(plane)
        lane = self._topology.plane_of_rail[:rail].count(plane)
        return spines.lanes[digit * lanes_of_rail + lane]

    def _spines_of(self, plane: int, l2: int) -> _SpineUplinks:
        shape, masks = self._shape, self._columns[plane, l2]
        with_rest_leaf = bool(self._rest_uplinks[plane] >> l2 & 1)
        level = Level(shape.pods, shape.leaves, shape.remainder_leaves + with_rest_leaf)
        rails = self._topology.rails_in_plane(plane)
        full, below = masks.get(0, 0), masks.get(shape.pods, 0)
        if level.units == 1:
            crossing = min(level.size, level.rest)
            return _SpineUplinks(
                level, with_rest_leaf, _lanes(full & below, 0, crossing * rails, 0)
            )
        lanes = _lanes(full, below, level.size * rails, level.rest * rails)
        return _SpineUplinks(level, with_rest_leaf, lanes)


class _SpineUplinks(NamedTuple):
    """The pods at one L2 index, and the spine uplink of each lane: first by digit, then by rail."""

    level: Level
    with_rest_leaf: bool
    lanes: list[int]


def shape_of(topology: Topology, allocation: Allocation) -> Shape | None:
    """The shape that the hosts and uplinks of an allocation form; None if they form none.

    In two pods the remainder leaf may also lie in the pod that has no fewer full leaves.
    """
    shares = allocation.groups
    hosts = max((share.hosts.bit_count() for share in shares), default=0)
    full = [share for share in shares if share.hosts.bit_count() == hosts]
    small = [share for share in shares if share.hosts.bit_count() != hosts]
    if not hosts or len(small) > 1 or not allocation.isolated:
        return None
    uplinks = full[0].uplinks
    if any(share.uplinks != uplinks for share in full) or any(s.uplinks & ~uplinks for s in small):
        return None
    rest = small[0].hosts.bit_count() if small else 0
    if len(shares) > 1:
        needed = [(uplinks, hosts)] + [(share.uplinks, rest) for share in small]
        for plane in topology.plane_fields:
            if any((up & plane).bit_count() != -(-n // topology.taper[0]) for up, n in needed):
                return None
    if small and not rest:
        return None
    width = topology.groups_per_pod
    leaves = Counter(share.group // width for share in full)
    last = small[0].group // width if small else -1
    pods = {*leaves, last} - {-1}
    if len(pods) == 1:
        return Shape(1, len(full), hosts, 0, rest)
    most = max(count for pod, count in leaves.items() if pod != last)
    whole = {pod for pod, count in leaves.items() if pod != last and count == most}
    others = pods - whole
    if len(others) > 1 or (len(whole) > 1 and any(leaves[pod] >= most for pod in others)):
        return None
    return Shape(len(whole), most, hosts, sum(leaves[pod] for pod in others), rest)


def _rotated(items: list[T], last: int | None) -> list[T]:
    """The items in cyclic order, with the one at ``last`` as the last."""
    return items if last is None else items[last + 1 :] + items[: last + 1]


def _lanes(links: int, shared: int, count: int, rest: int) -> list[int]:
    """The link of each of ``count`` lanes: first ``rest`` on the links of ``shared``.

    Every link gets about as many lanes as the others.
    """
    load = dict.fromkeys(bits(links), 0)
    lanes = []
    for choices in [list(bits(shared))] * rest + [list(load)] * (count - rest):
        link = min(choices, key=load.__getitem__)
        load[link] += 1
        lanes.append(link)
    return lanes


@lru_cache(maxsize=1 << 14)
def _entries(level: Level, source: int, target: int) -> Sequence[int]:
    """The digits by which a unit reaches the members of another; see the module."""
    units, size, rest = level
    if target == units:
        return range(rest)
    if source == units:
        first = -(units - 1 - target) * size
        return [(first + member) % rest for member in range(size)]
    if source < target:
        return range(size)
    return [(member + rest) % size for member in range(size)]
