# SPDX-License-Identifier: Apache-2.0

"""Forwarding table entries of one tenant on the tenant's own links.

Towards the ports of a tenant, the switches of the tenant's partition use the tenant's
links only: by the closed form of ``contention``, or by D-mod-k on the compacted partition, with
the digit taken modulo the links that are there on remainder leaves and pods (Jigsaw, HPDC'21,
section 4).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Inventory
from laas_service.domain.routing.contention import ShiftRoutes
from laas_service.domain.topology import LeafLink, Link, Topology, bits

N = TypeVar("N")
"""How switches and ports are named: by GUID and number, or by index as text."""


def routed_allocations(allocations: Iterable[Allocation]) -> list[Allocation]:
    """The allocations to make tables for, of all that hold hosts; in order of their ids.

    Containers are left out: their hosts that no child holds are idle. A child that owns no
    links, because its policy claims none, is routed over the links of its container. So it
    never meets traffic from outside the container, only that of other children.
    """
    by_id = {allocation.id: allocation for allocation in allocations}
    return [
        _with_container_links(by_id[id], by_id) for id in sorted(by_id) if not by_id[id].container
    ]


def reserved_links(topology: Topology, allocations: Iterable[Allocation]) -> tuple[Link, ...]:
    """The links of containers, in the order of their numbers: no table of a container has them."""
    links = {link for each in allocations if each.container for link in each.links(topology)}
    return tuple(sorted(links, key=topology.tree.link_id))


def _with_container_links(allocation: Allocation, by_id: Mapping[str, Allocation]) -> Allocation:
    if allocation.isolated:
        return allocation
    carrier, parent = allocation, allocation.parent
    while parent is not None and not any(share.uplinks for share in carrier.groups):
        carrier = by_id[parent]
        parent = carrier.parent
    return allocation.over(carrier) if carrier.container else allocation


def tenant_tables(
    topology: Topology, allocation: Allocation, failed_links: Collection[Link] = ()
) -> dict[str, dict[str, str]]:
    """The entries for a tenant's destinations on its own partition, by index.

    The form is the snapshot's (``tables``): switches are ``leaf:POD:LEAF``,
    ``l2:POD:L2`` and ``spine:L2:SPINE``; destinations are ``HOST``, on more than one
    rail ``HOST/RAIL``; an entry is ``host``, ``up:UPLINK`` (the ``up`` of the link
    taken, which counts cables) or ``down:LEAF`` (on a spine ``down:POD``), with
    ``/CABLE`` behind it where that level has parallel cables. A switch is left out if the
    tenant's links carry no traffic over it; a tenant without links has only its ``host``
    entries.
    """
    tree = topology.tree
    tables: dict[str, dict[str, str]] = defaultdict(dict)

    def down(child: int, up: int, cables: int) -> str:
        return f"down:{child}/{up % cables}" if cables > 1 else f"down:{child}"

    def named_by_index(link: Link) -> NamedLink[str]:
        pod, lower, up = link
        if isinstance(link, LeafLink):
            l2, cables = f"l2:{pod}:{up // tree.cables[0]}", tree.cables[0]
            return NamedLink(link, f"leaf:{pod}:{lower}", l2, f"up:{up}", down(lower, up, cables))
        spine, cables = f"spine:{lower}:{up // tree.cables[1]}", tree.cables[1]
        return NamedLink(link, f"l2:{pod}:{lower}", spine, f"up:{up}", down(pod, up, cables))

    partition = CompactedTree(topology, allocation, named_by_index, frozenset(failed_links))
    for leaf, rail, hosts in tenant_ports(topology, allocation):
        pod, local = divmod(leaf, tree.m[1])
        name = f"leaf:{pod}:{local}"
        destinations = [f"{host}/{rail}" if topology.rails > 1 else f"{host}" for host in hosts]
        tables[name].update(dict.fromkeys(destinations, "host"))
        for switch, out, _ in partition.entries(name, len(hosts)):
            tables[switch].update(zip(destinations, out, strict=True))
    return dict(sorted(tables.items()))


def tenant_ports(
    topology: Topology, allocation: Allocation
) -> Iterator[tuple[int, int, list[int]]]:
    """Every leaf of the tenant: its id, its rail, and the tenant's hosts in order of positions."""
    for group, positions, _ in allocation.groups:
        by_position = (topology.host_at(group, position) for position in bits(positions))
        hosts = [host for host in by_position if host is not None]
        for rail, leaf in enumerate(topology.leaves_of_group(group)):
            yield leaf, rail, hosts


def joined_rails(
    topology: Topology, inventory: Inventory, allocation: Allocation
) -> tuple[int, ...]:
    """By rail, the first of the rails that the allocation's own links join it to.

    Rails of one plane count as joined, because they share their uplinks. Two planes are joined
    if each leaf of the one and each leaf of the other lead to a common spine. An allocation whose
    policy owns no links has no rails apart.
    """
    if topology.planes == 1 or not allocation.isolated:
        return (0,) * topology.rails
    above: dict[int, set[int]] = defaultdict(set)
    links: list[Link] = [*allocation.spine_links(topology), *allocation.leaf_links(topology)]
    for link in links:
        cable = inventory.cable_of_link[link]
        above[cable.lower.guid] |= {cable.upper.guid, *above[cable.upper.guid]}
    leaves = grouped(
        (topology.plane_of_rail[rail], frozenset(above[inventory.leaf_guids[leaf]]))
        for leaf, rail, _ in tenant_ports(topology, allocation)
    )
    reach = {plane: set(switches) for plane, switches in leaves.items()}
    groups: list[list[int]] = []
    for plane, own in reach.items():
        for group in groups:
            if all(a & b for other in group for a in reach[other] for b in own):
                group.append(plane)
                break
        else:
            groups.append([plane])
    first = {plane: topology.plane_of_rail.index(group[0]) for group in groups for plane in group}
    return tuple(first[plane] for plane in topology.plane_of_rail)


class NamedLink(NamedTuple, Generic[N]):
    """A link with its two switches and the entries that send over it, as ``N`` names them."""

    link: Link
    lower: N
    upper: N
    up: N
    down: N


class CompactedTree(Generic[N]):
    """The switches and links of one allocation: its compacted tree.

    Upwards, an allocation with a remainder uses the links of ``contention.ShiftRoutes``. Where
    such a link has failed, and for all other entries, it is D-mod-k: up at a leaf by the digit k
    of destination k, up at an L2 switch by the rank r of the destination's leaf in its pod (with
    parallel cables r * width + k % width); down by the same digits. A digit is taken modulo the
    links that lead on, which is the wraparound on remainder leaves and pods. Without ``shaped``
    the allocation is more than one placement, and all entries are D-mod-k.
    """

    def __init__(
        self,
        topology: Topology,
        allocation: Allocation,
        named: Callable[[Link], NamedLink[N]],
        failed: frozenset[Link],
        *,
        shaped: bool = True,
    ) -> None:
        leaf_links = [named(link) for link in sorted(allocation.leaf_links(topology))]
        links = leaf_links + [named(link) for link in sorted(allocation.spine_links(topology))]
        self._pod_of_leaf: dict[N, int] = {x.lower: x.link.pod for x in leaf_links}
        self._pod_of_l2: dict[N, int] = {x.upper: x.link.pod for x in leaf_links}
        in_pods = grouped((pod, leaf) for leaf, pod in self._pod_of_leaf.items())
        self._rank: dict[N, int] = {
            leaf: rank for leaves in in_pods.values() for rank, leaf in enumerate(leaves)
        }
        self._tiers: list[dict[N, list[NamedLink[N]]]] = [
            grouped((x.lower, x) for x in links if x.link not in failed)
        ]
        """Links by lower switch: those that work; then, if any has failed, all of them."""
        if any(x.link in failed for x in links):
            self._tiers.append(grouped((x.lower, x) for x in links))
        parallel = Counter((x.lower, x.upper) for x in leaf_links)
        self._width: int = max(parallel.values(), default=1)
        self._shift_routes = ShiftRoutes.of(topology, allocation) if shaped else None
        self._place_of_leaf = {x.lower: (x.link.pod, x.link[1]) for x in leaf_links}

    def entries(self, leaf: N, count: int) -> Iterator[tuple[N, Sequence[N], bool]]:
        """Entries towards the ``count`` ports of the tenant on a leaf.

        Yields each other switch of the partition, its entry for each port, and whether
        these entries reach the leaf over working links.

        The tier with the failed links only adds switches that working links do not join.
        Their entries lead nowhere, but not onto links of others either. So faults do not
        change which switches have entries, and a packet that meets tables from before and
        after a fault stays on the tenant's links.
        """
        if leaf not in self._pod_of_leaf:
            return
        down: dict[N, list[NamedLink[N]]] = {}
        up: dict[N, list[NamedLink[N]]] = {}
        last: list[NamedLink[N]] = []
        working: set[N] = set()
        for number, tier in enumerate(self._tiers):
            self._add_paths(leaf, tier, down, up)
            if number == 0:
                working = down.keys() | up.keys()
            last = last or [x for links in down.values() for x in links if x.lower == leaf]
        last.sort(key=lambda x: x.link)
        start = self._rank[leaf] * self._width
        for switch, links in up.items():
            digit = (0, count) if switch in self._pod_of_leaf else (start, self._width)
            ports = _by_digit([x.up for x in links], *digit, count)
            if self._shift_routes is not None:
                ports = self._without_contention(links, leaf, ports)
            yield switch, ports, switch in working
        for switch, links in down.items():
            if switch in self._pod_of_l2:
                ports = _by_digit([x.down for x in links], 0, len(last), count)
                yield switch, ports, switch in working
            else:
                yield switch, self._down_from_spine(links, last, start, count), switch in working

    def _without_contention(
        self, links: list[NamedLink[N]], leaf: N, by_digit: Sequence[N]
    ) -> Sequence[N]:
        """The up ports of the closed form; those of D-mod-k where its link does not lead on."""
        routes, target = self._shift_routes, self._place_of_leaf[leaf]
        assert routes is not None
        pod, lower, _ = links[0].link
        port_of = {x.link.up: x.up for x in links}
        if isinstance(links[0].link, LeafLink):
            planned = routes.of_leaf((pod, lower), target)
            if not planned:
                return by_digit
            return [port_of.get(up, port) for up, port in zip(planned, by_digit, strict=True)]
        spine = routes.of_l2(pod, lower, target)
        return [port_of[spine]] * len(by_digit) if spine in port_of else by_digit

    def _add_paths(
        self,
        leaf: N,
        tier: dict[N, list[NamedLink[N]]],
        down: dict[N, list[NamedLink[N]]],
        up: dict[N, list[NamedLink[N]]],
    ) -> None:
        """Add paths to ``leaf`` over a tier's links: from switches above it, then from the rest.

        An L2 switch of the leaf's own pod never goes up: a packet that comes down to it
        from outside the partition would turn round there.
        """
        pod = self._pod_of_leaf[leaf]
        known = down.keys() | up.keys()

        def add_down(lower: N) -> None:
            for link in tier.get(lower, ()):
                if link.upper not in known:
                    down.setdefault(link.upper, []).append(link)

        add_down(leaf)
        for l2 in self._pod_of_l2:
            if l2 in down:
                add_down(l2)
        outside: list[N] = [l2 for l2, of in self._pod_of_l2.items() if of != pod]
        for switch in [*outside, *self._pod_of_leaf]:
            if switch != leaf and switch not in known:
                links = [x for x in tier.get(switch, ()) if x.upper in down or x.upper in up]
                if links:
                    up[switch] = links

    def _down_from_spine(
        self, links: list[NamedLink[N]], last: list[NamedLink[N]], start: int, count: int
    ) -> list[N]:
        """Down from a spine with several links: to the L2 switch that a destination prefers.

        ``last`` are the links into the destinations' leaf. A spine has several links
        because of parallel cables, or as one physical switch that is the spine of several
        L2 indices.
        """
        if len(links) == 1:
            return [links[0].down] * count
        ports = []
        for k in range(count):
            preferred = last[k % len(last)].upper
            choices = [x for x in links if x.lower == preferred] or links
            ports.append(choices[(start + k % self._width) % len(choices)].down)
        return ports


@lru_cache(maxsize=1 << 16)
def _digits(choices: int, start: int, period: int, count: int) -> tuple[int, ...]:
    """The digit of each of ``count`` destinations: (start + k % period) modulo ``choices``."""
    return tuple((start + k % period) % choices for k in range(count))


def _by_digit(choices: Sequence[N], start: int, period: int, count: int) -> Sequence[N]:
    """The choice that each of ``count`` destinations takes by its digit; ``start`` >= 0."""
    if len(choices) == 1:
        return [choices[0]] * count
    digits = _digits(len(choices), start % len(choices), period, count)
    return [choices[digit] for digit in digits]
