# SPDX-License-Identifier: Apache-2.0

"""Forwarding table entries of one tenant: D-mod-k on the tenant's own links.

Towards the ports of a tenant, the switches of the tenant's partition use the tenant's
links only: D-mod-k on the compacted partition, with the digit taken modulo the links that
are there on remainder leaves and pods (Jigsaw, HPDC'21, section 4).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.grouping import grouped
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

    partition = Partition(topology, allocation, named_by_index, frozenset(failed_links))
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
    """Every leaf of the tenant: its id, its rail, and the tenant's hosts in order of slots."""
    for group, slots, _ in allocation.groups:
        by_slot = (topology.host_at(group, slot) for slot in bits(slots))
        hosts = [host for host in by_slot if host is not None]
        for rail, leaf in enumerate(topology.leaves_of_group(group)):
            yield leaf, rail, hosts


class NamedLink(NamedTuple, Generic[N]):
    """A link with its two switches and the entries that send over it, as ``N`` names them."""

    link: Link
    lower: N
    upper: N
    up: N
    down: N


class Partition(Generic[N]):
    """The switches and links of one allocation: its compacted tree.

    D-mod-k digits of destination k on the leaf of rank r in its pod: up at a leaf
    k; up at an L2 switch r (with parallel cables r * width + k % width); down the same
    digits. A digit is taken modulo the links that lead on, which is the wraparound on
    remainder leaves and pods.
    """

    def __init__(
        self,
        topology: Topology,
        allocation: Allocation,
        named: Callable[[Link], NamedLink[N]],
        failed: frozenset[Link],
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
            yield switch, _by_digit([x.up for x in links], *digit, count), switch in working
        for switch, links in down.items():
            if switch in self._pod_of_l2:
                ports = _by_digit([x.down for x in links], 0, len(last), count)
                yield switch, ports, switch in working
            else:
                yield switch, self._down_from_spine(links, last, start, count), switch in working

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
