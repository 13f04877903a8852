# SPDX-License-Identifier: Apache-2.0

"""The links and hosts that an allocation lacks while some of them are down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

from laas_service.domain.allocation import Allocation
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, link_name
from laas_service.domain.wording import SHOWN, listed

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
        self._up: dict[tuple[int, int], list[LeafLink]] = defaultdict(list)
        self._given: dict[tuple[int, int], int] = defaultdict(int)
        for leaf_link in allocation.leaf_links(topology):
            self._given[leaf_link.pod, leaf_link.leaf] += 1
            if leaf_link not in failed:
                self._up[leaf_link.pod, leaf_link.leaf].append(leaf_link)
        self._spine_up: dict[tuple[int, int], list[SpineLink]] = defaultdict(list)
        self._spine_given: dict[tuple[int, int], int] = defaultdict(int)
        for spine_link in allocation.spine_links(topology):
            self._spine_given[spine_link.pod, spine_link.l2] += 1
            if spine_link not in failed:
                self._spine_up[spine_link.pod, spine_link.l2].append(spine_link)

    def missing_uplinks(self) -> Iterator[MissingUplinks]:
        """Leaves, then L2 switches."""
        for pod, leaf in sorted({x[:2] for x in self._failed if isinstance(x, LeafLink)}):
            up, given = len(self._up[pod, leaf]), self._given[pod, leaf]
            yield MissingUplinks(1, pod, leaf, up, given, self._hosts_on[pod, leaf])
        cables = self._topology.tree.cables[0]
        for pod, l2 in sorted({x[:2] for x in self._failed if isinstance(x, SpineLink)}):
            below = sum(
                link.up // cables == l2
                for (pod_of_leaf, _), links in self._up.items()
                if pod_of_leaf == pod
                for link in links
            )
            up, given = len(self._spine_up[pod, l2]), self._spine_given[pod, l2]
            yield MissingUplinks(2, pod, l2, up, given, below)

    def separated_leaves(self) -> Iterator[SeparatedLeaves]:
        """Pairs of leaves of a rail, in order; an allocation inside one leaf group has none."""
        cables, spine_cables = self._topology.tree.cables
        l2s = {leaf: {link.up // cables for link in links} for leaf, links in self._up.items()}
        spines = {
            l2: {link.up // spine_cables for link in links} for l2, links in self._spine_up.items()
        }
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
