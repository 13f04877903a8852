# SPDX-License-Identifier: Apache-2.0

"""What an allocation lacks while some of its links or hosts are down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

from laas_service.domain.allocation import Allocation
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology, link_name

SHOWN = 5
"""Things of one kind that a sentence names."""


@dataclass(frozen=True, slots=True)
class Thin:
    """A switch of the allocation with fewer uplinks up than it was given.

    ``lower`` is the leaf, or with ``level`` 2 the L2 switch, by number in its pod. ``flows``
    have to share the ``up`` uplinks left of ``given`` when all hosts below send at once
    (at an L2 switch as many flows as uplinks from below are up).
    """

    level: int
    pod: int
    lower: int
    up: int
    given: int
    flows: int

    def __str__(self) -> str:
        name = f"{'leaf' if self.level == 1 else 'L2 switch'} {self.pod}/{self.lower}"
        text = f"{name} has {self.up} of {self.given} uplinks"
        if not self.up:
            return text
        return f"{text}: up to {-(-self.flows // self.up)} flows may meet on one of them"


@dataclass(frozen=True, slots=True)
class Apart:
    """Two leaves, (pod, leaf) each, between which no way over own links is left."""

    rail: int
    one: tuple[int, int]
    other: tuple[int, int]

    def __str__(self) -> str:
        (pod, leaf), (other_pod, other_leaf) = self.one, self.other
        return f"leaf {pod}/{leaf} and leaf {other_pod}/{other_leaf}"


@dataclass(frozen=True, slots=True)
class Degraded:
    """What has failed of an allocation, and what follows; links and hosts ascend.

    ``why`` says what stands in the way of a repair, "" where nobody has tried.
    """

    links: tuple[Link, ...] = ()
    hosts: tuple[int, ...] = ()
    thin: tuple[Thin, ...] = ()
    apart: tuple[Apart, ...] = ()
    why: str = ""

    def sentences(self) -> list[str]:
        """All of it, for people."""
        found = []
        for kind, names in (
            ("link", [link_name(link) for link in self.links]),
            ("host", [str(host) for host in self.hosts]),
        ):
            if names:
                verb = "has" if len(names) == 1 else "have"
                found.append(f"{kind}{'s' * (len(names) > 1)} {_some(names)} {verb} failed")
        found += list(map(str, self.thin[:SHOWN]))
        if len(self.thin) > SHOWN:
            found.append(f"and {len(self.thin) - SHOWN} more switches lack uplinks")
        if self.apart:
            found.append(f"no way is left between {_some(list(map(str, self.apart)))}")
        if self.why:
            found.append(f"there is no other set of links for these hosts: {self.why}")
        return found

    def __str__(self) -> str:
        return "; ".join(self.sentences())


def degradation(
    topology: Topology,
    allocation: Allocation,
    failed_links: Collection[Link],
    failed_hosts: Collection[int] = (),
) -> Degraded:
    """What an allocation lacks when these links and hosts are down.

    Those that are not its own are left out. Over its own links a host reaches another
    one up, then down: in its pod over an L2 switch that both leaves have, else over a
    spine that both pods have above one L2 index. Rails are looked at one by one.
    """
    links = sorted(set(failed_links) & set(allocation.links(topology)), key=topology.tree.link_id)
    hosts = sorted(set(failed_hosts) & set(allocation.hosts(topology)))
    if not links:
        return Degraded(hosts=tuple(hosts))
    left = _Left(topology, allocation, frozenset(links))
    return Degraded(tuple(links), tuple(hosts), tuple(left.thin()), tuple(left.apart()))


class _Left:
    """The links of an allocation that are up."""

    def __init__(self, topology: Topology, allocation: Allocation, failed: frozenset[Link]) -> None:
        self._topology = topology
        self._failed = failed
        self._leaves: dict[tuple[int, int], int] = {}  # (pod, leaf) -> hosts
        self._rails: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for group, hosts, _ in allocation.groups:
            for rail, leaf in enumerate(topology.leaves_of_group(group)):
                place = divmod(leaf, topology.tree.m[1])
                self._leaves[place] = hosts.bit_count()
                self._rails[rail].append(place)
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

    def thin(self) -> Iterator[Thin]:
        """Leaves, then L2 switches."""
        for pod, leaf in sorted({x[:2] for x in self._failed if isinstance(x, LeafLink)}):
            up, given = len(self._up[pod, leaf]), self._given[pod, leaf]
            yield Thin(1, pod, leaf, up, given, self._leaves[pod, leaf])
        cables = self._topology.tree.cables[0]
        for pod, l2 in sorted({x[:2] for x in self._failed if isinstance(x, SpineLink)}):
            below = sum(
                link.up // cables == l2
                for (of, _), links in self._up.items()
                if of == pod
                for link in links
            )
            up, given = len(self._spine_up[pod, l2]), self._spine_given[pod, l2]
            yield Thin(2, pod, l2, up, given, below)

    def apart(self) -> Iterator[Apart]:
        """Pairs of leaves of a rail, in order; tenants inside one leaf group have none."""
        cables, spine_cables = self._topology.tree.cables
        l2s = {at: {link.up // cables for link in links} for at, links in self._up.items()}
        spines = {
            at: {link.up // spine_cables for link in links} for at, links in self._spine_up.items()
        }
        touched = {link.pod for link in self._failed}
        for rail, places in self._rails.items():
            for one, other in combinations(sorted(places), 2):
                if touched.isdisjoint((one[0], other[0])):
                    continue
                common = l2s.get(one, set()) & l2s.get(other, set())
                if one[0] != other[0]:
                    common = {
                        l2
                        for l2 in common
                        if spines.get((one[0], l2), set()) & spines.get((other[0], l2), set())
                    }
                if not common:
                    yield Apart(rail, one, other)


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
