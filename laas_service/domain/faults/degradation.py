# SPDX-License-Identifier: Apache-2.0

"""The links and hosts that an allocation lacks while some of them are down."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.grouping import grouped
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, link_name
from laas_service.domain.wording import SHOWN, listed

T = TypeVar("T")

Leaf = tuple[int, int]
"""(pod, leaf)."""


@dataclass(frozen=True, slots=True)
class MissingUplinks:
    """A switch of the allocation with fewer uplinks up than it was given."""

    level: int
    """1 for a leaf, 2 for an L2 switch."""

    pod: int

    lower: int
    """The leaf or L2 switch, by number in its pod."""

    up: int
    """How many of its uplinks are up."""

    given: int
    """How many the allocation holds."""

    flows: int
    """How many flows share the uplinks that are up when all hosts below send at once; at an
    L2 switch, as many as uplinks from below are up."""

    def __str__(self) -> str:
        name = f"{'leaf' if self.level == 1 else 'L2 switch'} {self.pod}/{self.lower}"
        text = f"{name} has {self.up} of {self.given} uplinks"
        if not self.up:
            return text
        return f"{text}: up to {-(-self.flows // self.up)} flows may meet on one of them"


@dataclass(frozen=True, slots=True)
class SeparatedLeaves:
    """Two leaves of a rail that no path over working links of the allocation joins."""

    rail: int
    first: Leaf
    second: Leaf

    def __str__(self) -> str:
        (pod, leaf), (second_pod, second_leaf) = self.first, self.second
        return f"leaf {pod}/{leaf} and leaf {second_pod}/{second_leaf}"


@dataclass(frozen=True, slots=True)
class OverfullLink:
    """A link that promises more to tenants on shared hosts than it has."""

    name: str
    """The link and its direction."""

    promised: float
    """Gb/s, to all sharers."""

    bandwidth: float
    """Gb/s that it has."""

    def __str__(self) -> str:
        return f"{self.name} promises {self.promised:.6g} of {self.bandwidth:g} Gb/s"


@dataclass(frozen=True, slots=True)
class Degraded:
    """What has failed of an allocation, and what follows from it."""

    links: tuple[Link, ...] = ()
    """Its failed links, ascending."""

    hosts: tuple[int, ...] = ()
    """Its failed hosts, ascending."""

    thin: tuple[MissingUplinks, ...] = ()
    """The switches with failed uplinks: leaves first, then L2 switches."""

    apart: tuple[SeparatedLeaves, ...] = ()
    """The pairs of leaves that cannot reach each other."""

    obstacle: str = ""
    """Why no other links can replace the failed ones; "" if no repair was tried."""

    contention: bool = False
    """It requires tables without contention, and has none."""

    over: tuple[OverfullLink, ...] = ()
    """Of a tenant on shared hosts, its links that promise more than they have."""

    crossed_by: int = 0
    """Ordered pairs of ports of others that have to cross its links, although it requires that
    none does."""

    def cuts_off(self, topology: Topology, one: Allocation, other: Allocation) -> bool:
        """Whether hosts of one placement do not reach hosts of the other."""
        here, there = (
            {
                divmod(leaf, topology.tree.m[1])
                for share in placed.groups
                if share.hosts
                for leaf in topology.leaves_of_group(share.group)
            }
            for placed in (one, other)
        )
        return any(
            (pair.first in here and pair.second in there)
            or (pair.first in there and pair.second in here)
            for pair in self.apart
        )

    def sentences(self) -> list[str]:
        """All of it as sentences for users, without full stops."""
        sentences = []
        for kind, names in (
            ("link", [link_name(link) for link in self.links]),
            ("host", [str(host) for host in self.hosts]),
        ):
            if names:
                verb = "has" if len(names) == 1 else "have"
                sentences.append(f"{kind}{'s' * (len(names) > 1)} {listed(names)} {verb} failed")
        sentences += map(str, self.thin[:SHOWN])
        if len(self.thin) > SHOWN:
            sentences.append(f"{len(self.thin) - SHOWN} more switches lack uplinks")
        if self.apart:
            sentences.append(f"no path over its working links is left between {listed(self.apart)}")
        sentences += map(str, self.over[:SHOWN])
        if len(self.over) > SHOWN:
            sentences.append(f"{len(self.over) - SHOWN} more links promise more than they have")
        if self.contention:
            sentences.append("its own flows may meet on a link, although it requires otherwise")
        if self.crossed_by:
            sentences.append(
                f"packets of {self.crossed_by} pairs of ports of others have to cross its links, "
                "although it requires to be undisturbed: they have no other way"
            )
        if self.obstacle:
            sentences.append(f"there is no other set of links for these hosts: {self.obstacle}")
        return sentences

    def __str__(self) -> str:
        return "; ".join(self.sentences())


def degradation(
    topology: Topology,
    allocation: Allocation,
    failed_links: Collection[Link],
    failed_hosts: Collection[int] = (),
) -> Degraded:
    """What an allocation lacks while these links and hosts are down.

    Links and hosts of others are ignored. Over the allocation's links one host reaches
    another by going up and then down: in one pod over an L2 switch that both leaves have a
    link to, else over a spine that both pods have a link to above one L2 index. Each rail is
    examined on its own.
    """
    links = sorted(set(failed_links) & set(allocation.links(topology)), key=topology.tree.link_id)
    hosts = sorted(set(failed_hosts) & set(allocation.hosts(topology)))
    if not links:
        return Degraded(hosts=tuple(hosts))
    working = _WorkingLinks(topology, allocation, frozenset(links))
    return Degraded(
        tuple(links),
        tuple(hosts),
        tuple(working.missing_uplinks()),
        tuple(working.separated_leaves()),
    )


def joined(found: Sequence[Degraded]) -> Degraded:
    """What placements of one tenant lack in all; those that are told twice count once."""

    def together(of: Callable[[Degraded], Iterable[T]]) -> tuple[T, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(map(of, found))))

    return Degraded(
        together(lambda one: one.links),
        together(lambda one: one.hosts),
        together(lambda one: one.thin),
        together(lambda one: one.apart),
    )


class _WorkingLinks:
    """The links of an allocation that are up."""

    def __init__(self, topology: Topology, allocation: Allocation, failed: frozenset[Link]) -> None:
        self._topology = topology
        self._failed = failed
        self._hosts_on: dict[Leaf, int] = {}
        self._leaves_of_rail: dict[int, list[Leaf]] = defaultdict(list)
        for group, hosts, _ in allocation.groups:
            for rail, leaf_id in enumerate(topology.leaves_of_group(group)):
                leaf = divmod(leaf_id, topology.tree.m[1])
                self._hosts_on[leaf] = hosts.bit_count()
                self._leaves_of_rail[rail].append(leaf)
        leaf_links, spine_links = (
            [(link[:2], link) for link in links]
            for links in (allocation.leaf_links(topology), allocation.spine_links(topology))
        )
        self._given = grouped(leaf_links)
        self._up = grouped((lower, x.up) for lower, x in leaf_links if x not in failed)
        self._spine_given = grouped(spine_links)
        self._spine_up = grouped((lower, x.up) for lower, x in spine_links if x not in failed)

    def missing_uplinks(self) -> Iterator[MissingUplinks]:
        """Leaves, then L2 switches."""
        for pod, leaf in sorted({x[:2] for x in self._failed if isinstance(x, LeafLink)}):
            up, given = len(self._up[pod, leaf]), len(self._given[pod, leaf])
            yield MissingUplinks(1, pod, leaf, up, given, self._hosts_on[pod, leaf])
        cables = self._topology.tree.cables[0]
        for pod, l2 in sorted({x[:2] for x in self._failed if isinstance(x, SpineLink)}):
            below = sum(
                up // cables == l2
                for (pod_of_leaf, _), uplinks in self._up.items()
                if pod_of_leaf == pod
                for up in uplinks
            )
            up, given = len(self._spine_up[pod, l2]), len(self._spine_given[pod, l2])
            yield MissingUplinks(2, pod, l2, up, given, below)

    def separated_leaves(self) -> Iterator[SeparatedLeaves]:
        """Pairs of leaves of a rail, in order; an allocation inside one leaf group has none."""
        cables, spine_cables = self._topology.tree.cables
        l2s = {leaf: {up // cables for up in ups} for leaf, ups in self._up.items()}
        spines = {l2: {up // spine_cables for up in ups} for l2, ups in self._spine_up.items()}
        pods_with_faults = {link.pod for link in self._failed}
        for rail, leaves in self._leaves_of_rail.items():
            for first, second in combinations(sorted(leaves), 2):
                pod, second_pod = first[0], second[0]
                if pods_with_faults.isdisjoint((pod, second_pod)):
                    continue
                common = l2s.get(first, set()) & l2s.get(second, set())
                if pod != second_pod:
                    common = {
                        l2
                        for l2 in common
                        if spines.get((pod, l2), set()) & spines.get((second_pod, l2), set())
                    }
                if not common:
                    yield SeparatedLeaves(rail, first, second)
