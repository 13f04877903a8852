# SPDX-License-Identifier: Apache-2.0

"""Forwarding tables that are chosen for the clusters on them, in place of by position.

The tables of ``routes`` spread the hosts of a leaf evenly over the uplinks, whoever uses them.
Within a pod any other uplink towards a host is a valid route, too, so where a link has no room for
a cluster, other entries may have. ``fitting_routes`` looks for them by local search: it takes an
overloaded link, and changes the entries of a host behind it, or exchanges those of two hosts of a
leaf, so that all links together promise the least in excess. The experiment ``chosen-routes``
shows what this gives back; the service keeps the tables of a container as they are.

No choice makes up for one link. If a leaf has a units of a cluster and n others are elsewhere,
one of its k uplinks leads to at least n / k of them and takes min(a, n / k). On a tree whose one
link has the bandwidth of all k, min(a, n) units are a k-th as much.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laas_service.domain.errors import DoubleClaim, InvalidInput
from laas_service.domain.sharing.cluster import Cluster, Embedding
from laas_service.domain.sharing.link_promises import RoutedSite, Unit
from laas_service.domain.topology import LeafLink

Uplinks = NDArray[np.int64]
"""Shape (leaves, machines): the uplink that a leaf takes to a machine; -1 to its own, and none."""

LOOKS = 4000
"""Tables that a search looks at by default, about 0.2 ms each."""

HOSTS, WORSE = 6, 0.1
"""Hosts behind an overloaded link whose entries one step changes; the share of steps that take
any change."""


def fitting_routes(
    site: RoutedSite, cluster: Cluster, embedding: Embedding, rng: Random, looks: int = LOOKS
) -> RoutedSite | None:
    """A site with other routes on which all that ``site`` holds fits, and the cluster.

    None if the search does not find one in ``looks`` tables. The new site has claimed everything,
    so what the search takes to fit does.

    Raises:
        InvalidInput: the hosts are in several pods, or demands differ or have a variance.
    """
    placed = [(held.cluster, held.embedding) for held in site.clusters.values()]
    placed.append((cluster, embedding))
    uplinks = _Search(site, placed, rng).fitting(looks)
    if uplinks is None:
        return None
    leaves = np.unique(site.routes.leaf_of[site.routes.machines]).tolist()
    chosen = site.on(
        site.routes.redirected(
            {
                (leaves[at], machine): int(uplinks[at, machine])
                for at, machine in np.argwhere(uplinks >= 0).tolist()
            }
        )
    )
    try:
        for each, at in placed:
            chosen.claim(each, at)
    except DoubleClaim:  # the link of a host has no room
        return None
    return chosen


class _Search:
    """The local search. Amounts are in steps of 1 / GRAIN; loads have shape (uplinks, 2, leaves),
    up and down."""

    def __init__(
        self, site: RoutedSite, placed: Sequence[tuple[Cluster, Embedding]], rng: Random
    ) -> None:
        routes, self.rng = site.routes, rng
        if routes.topology.tree.cables != (1, 1) or len({link.pod for link in routes.links}) > 1:
            raise InvalidInput("hosts", routes.hosts, "choose routes for hosts of one pod")
        self.each = np.array([_certain(cluster) for cluster, _ in placed])
        self.units = np.zeros((len(placed), routes.tree.machines), dtype=np.int64)
        for at, (_, embedding) in enumerate(placed):
            for machine, units in embedding.items():
                self.units[at, machine] = len(units)
        leaves = np.unique(routes.leaf_of[routes.machines])
        self.within = np.zeros((len(leaves), routes.tree.machines), dtype=bool)
        """Shape (leaves, machines): whether the machine is below the leaf."""
        self.within[:, routes.machines] = routes.leaf_of[routes.machines] == leaves[:, None]
        self.firsts = np.searchsorted(routes.leaf_of, leaves)
        """The first machine of each leaf."""
        self.used = self.units > 0
        self.below = np.add.reduceat(self.units, self.firsts, axis=1)
        """Units, shape (clusters, leaves)."""
        self.sends = self.below > 0
        self.leaf_of = np.argmax(self.within, axis=0)
        self.capacity = np.zeros((routes.topology.tree.w[1], 2, len(leaves)), dtype=np.int64)
        self.start = np.full(self.within.shape, -1, dtype=np.int64)
        limits = site.capacity
        for at, leaf in enumerate(leaves.tolist()):
            towards = routes.walk(np.array([leaf]), routes.machines)[0, :, 0]
            for machine, link in zip(routes.machines.tolist(), towards.tolist(), strict=True):
                if not self.within[at, machine]:
                    self.start[at, machine] = routes.links[(link - 2) // 2][2]
            pod, local = divmod(leaf, routes.topology.tree.m[1])
            for uplink in range(len(self.capacity)):
                number = routes.numbers.get(LeafLink(pod, local, uplink))
                if number is not None:
                    self.capacity[uplink, :, at] = limits[2 + 2 * number : 4 + 2 * number]

    def fitting(self, looks: int) -> Uplinks | None:
        """Uplinks that keep every limit; None if ``looks`` choices had none."""
        uplinks = self.start
        excess = self.excess(uplinks)
        while excess.any() and looks > 0:
            choices = [(self.excess(choice), choice) for choice in self.near(uplinks, excess)]
            if not choices:
                return None
            looks -= len(choices)
            self.rng.shuffle(choices)
            best = min(choices, key=lambda choice: choice[0].sum())
            any_step = self.rng.random() < WORSE
            if any_step or best[0].sum() <= excess.sum():
                excess, uplinks = choices[0] if any_step else best
        return None if excess.any() else uplinks

    def excess(self, uplinks: Uplinks) -> NDArray[np.int64]:
        """What links would promise beyond what they have."""
        loads = np.zeros_like(self.capacity)
        for uplink, (up, down) in enumerate(loads):
            takes = uplinks == uplink
            behind = self.units @ takes.T
            up += self.each @ np.minimum(self.below, behind)
            pairs = self.sends[:, :, None] & takes  # shape (clusters, leaves, machines)
            receive = np.add.reduceat(self.units * pairs.any(axis=1), self.firsts, axis=1)
            leads = np.logical_or.reduceat(pairs & self.used[:, None], self.firsts, axis=2)
            send = (self.below[:, :, None] * leads).sum(axis=1)
            down += self.each @ np.minimum(send, receive)
        excess: NDArray[np.int64] = np.maximum(loads - self.capacity, 0)
        return excess

    def near(self, uplinks: Uplinks, excess: NDArray[np.int64]) -> Iterator[Uplinks]:
        """Choices that take hosts off one overloaded link."""
        link, down, leaf = self.rng.choice(np.argwhere(excess).tolist())
        takes = uplinks == link
        behind = takes.any(axis=0) & self.within[leaf] if down else takes[leaf]
        (hosts,) = np.nonzero(behind & self.units.any(axis=0))
        for host in self.rng.sample(hosts.tolist(), min(HOSTS, len(hosts))):
            sources = takes[:, host] if down else np.arange(len(takes)) == leaf
            both = np.minimum(self.capacity[:, 1, self.leaf_of[host], None], self.capacity[:, 0])
            for other in range(len(both)):
                (leaves,) = np.nonzero(sources & (both[other] > 0))
                if other != link and len(leaves):
                    yield _changed(uplinks, (leaves, host), other)
                    for one in leaves.tolist() if len(leaves) > 1 else ():
                        yield _changed(uplinks, (one, host), other)
            for other in np.nonzero(self.within[self.leaf_of[host]])[0].tolist():
                if (uplinks[:, other] != uplinks[:, host]).any():
                    pair = [host, other]
                    yield _changed(uplinks, (slice(None), pair), uplinks[:, pair[::-1]])


def _changed(uplinks: Uplinks, at: Any, value: Any) -> Uplinks:
    changed = uplinks.copy()
    changed[at] = value
    return changed


def _certain(cluster: Cluster) -> int:
    unit = Unit.of(cluster)
    if unit.variance:
        raise InvalidInput("cluster", cluster.id, "choose routes for certain demands")
    return unit.certain
