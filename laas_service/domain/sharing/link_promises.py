# SPDX-License-Identifier: Apache-2.0

"""Ledger of virtual clusters on hosts whose traffic follows forwarding tables.

Its links are the physical ones, as the forwarding tables use them. For each link and
direction it holds what is promised for certain, and the mean and the variance of what is
promised with a probability.

A cluster with load F on a link (``hose_load``) and a certain bandwidth b for each unit promises
F * b there. With normal demands d of mean mu and deviation sigma it promises the demands of the
F units of a least cover: a normal variable of variance F * sigma**2, with F * E[max(d, 0)] as its
mean. This is the side of the link with the smaller quantile, or less. Where the demands of a
cluster differ, it promises the sum over the cover that needs least beside other clusters.

Why this is safe. Let every unit send and receive at most max(d, 0), for its own draw of d. In
every draw the traffic of a cluster on the link is at most the sum of max(d, 0) over any cover, by
the theorem on cuts and flows. That holds for the cover chosen before the draw, so the minimum of
two sums, which is not normal, does not matter, and neither does which covers the other clusters
have. So the traffic of all clusters is at most Y, a sum of max(d, 0) over different, independent
units. As a function of standard normal variables, Y is convex, and Lipschitz with the constant
s = sqrt(sum of the variances). Then P(Y > median + c * s) <= P(N(0, 1) > c) (Borell; Sudakov and
Tsirelson), and the median is at most the mean (Kwapien). With the (1 - risk) quantile c,

    certain + means + c * sqrt(variances) <= capacity

keeps the probability that traffic exceeds the link at or below ``risk``: for normal demands that
are cut off at 0, without an approximation, and for any choice of traffic within the draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from laas_service.domain.allocation import LEAST_RISK, MOST_RISK
from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.sharing.cluster import (
    Cluster,
    Demand,
    Embedding,
    Numbers,
    Whole,
)
from laas_service.domain.sharing.hose_load import crossing, worst_loads
from laas_service.domain.sharing.routes import NO_LINK, NO_ROUTE, Routes
from laas_service.domain.tenancy.slots import GRAIN, steps_up

_STANDARD = NormalDist()

NEAR = 1e-3
"""Loads that are nearer than this to a whole number are tried in whole grains (``most``)."""


FAR = 40.0
"""Deviations beyond which a normal variable has no probability in floating point."""


class Unit(NamedTuple):
    """What one unit of load promises on a link, in steps of 1 / GRAIN, rounded up."""

    certain: int
    mean: int
    variance: int

    @classmethod
    def of(cls, cluster: Cluster) -> Unit:
        """That of a cluster whose machines have the same demand.

        Raises:
            InvalidInput: the demands differ, a mean is not above 0, or there are none.
        """
        if not cluster.homogeneous or not cluster.demands or cluster.demands[0].mean <= 0:
            raise InvalidInput(
                "cluster", cluster.id, "give at least one machine, and the same demand above 0"
            )
        return cls.of_demand(cluster.id, cluster.demands[0])

    @classmethod
    def of_demand(cls, id: str, demand: Demand) -> Unit:
        """That of one machine of cluster ``id``. Raises: InvalidInput, for a mean not above 0."""
        mean, variance = demand
        if mean <= 0:
            raise InvalidInput("cluster", id, "give each machine a demand above 0")
        if not variance:
            return cls(_grains(mean), 0, 0)
        sigma = variance**0.5
        units = min(mean / sigma, FAR)
        cut_off = mean * _STANDARD.cdf(units) + sigma * _STANDARD.pdf(units)
        return cls(0, _grains(cut_off), _grains(variance))


def amounts_of(cluster: Cluster) -> Whole:
    """By machine of a cluster: ``Unit``, shape (machines, 3). Raises: InvalidInput, as it."""
    return np.array(
        [Unit.of_demand(cluster.id, demand) for demand in cluster.demands], dtype=np.int64
    )


def _grains(amount: float) -> int:
    return max(1, steps_up(amount))


class Promised(NamedTuple):
    """What a cluster is promised: numbers of links, and amounts as in ``Unit``, by link."""

    links: Whole
    amounts: tuple[Whole, Whole, Whole]


class Held(NamedTuple):
    """A cluster, its machines, and what links promise it."""

    cluster: Cluster
    embedding: Embedding
    promised: Promised

    @property
    def counts(self) -> dict[int, int]:
        """Machine -> units."""
        return {machine: len(units) for machine, units in self.embedding.items() if units}


LoadState = Literal["kept", "suspended", "dead"]


class PromisedLoad(NamedTuple):
    """What a link promises to all clusters together, in the unit of its bandwidth."""

    link: int
    """As in ``Promise``; in ``RoutedSite.of_links`` its number (``Routes``)."""
    mean: float
    """The certain demands, and the means of the others."""
    deviation: float
    """Standard deviation of what is not certain."""
    occupancy: float
    """The promised share of its bandwidth, with what demands need beyond their means."""
    outage: float
    """Bound on the probability that demands exceed its bandwidth."""
    state: LoadState = "kept"
    """``suspended``: the link is down, and others carry its traffic; ``dead``: and for some of it
    there is no path."""


class RoutedSite:
    """The slots and links of the hosts of an allocation, and the clusters on them.

    ``slots`` is the number of units that a host holds. ``bandwidth`` is that of each link and
    direction, in any unit: one number, or an array by number of link (``Routes``). ``risk`` is
    the highest probability that demands exceed a link.

    Raises:
        InvalidInput: ``slots`` is below 1, or ``risk`` not within ``LEAST_RISK`` and ``MOST_RISK``.
    """

    def __init__(
        self, routes: Routes, slots: int, bandwidth: float | Numbers, risk: float = 0.05
    ) -> None:
        if slots < 1:
            raise InvalidInput("slots", slots, "give at least 1 for each host")
        self._set_risk(risk)
        self.routes, self.tree = routes, routes.tree
        self.free = np.zeros(self.tree.machines, dtype=np.int64)
        """Free slots, by machine; 0 where the allocation has no host."""
        self.free[routes.machines] = slots
        self.closed = np.zeros(0, dtype=np.int64)
        """Machines whose free slots nobody gets."""
        self.emptied = np.zeros(0, dtype=np.int64)
        """Of these, machines whose slots a cluster that changes does not keep either."""
        capacity = np.broadcast_to(np.asarray(bandwidth, dtype=np.float64), (routes.count,))
        self._capacity = np.floor(np.round(GRAIN * capacity, 3)).astype(np.int64)
        self._capacity[[NO_LINK, NO_ROUTE, *routes.lost]] = 0
        self._certain, self._mean, self._variance = np.zeros((3, routes.count), dtype=np.int64)
        self.clusters: dict[str, Held] = {}
        """By cluster id."""

    def _set_risk(self, risk: float) -> None:
        if not LEAST_RISK <= risk <= MOST_RISK:
            raise InvalidInput("risk", risk, f"give a probability of {LEAST_RISK:g} to {MOST_RISK}")
        self.risk, self._quantile = risk, _STANDARD.inv_cdf(1 - risk)

    @property
    def bandwidth(self) -> Numbers:
        """By link: its bandwidth, in the unit of the demands; 0 for what is no link."""
        return self._capacity / GRAIN

    @property
    def capacity(self) -> Whole:
        """``bandwidth`` in steps of 1 / GRAIN."""
        return self._capacity

    def on(self, routes: Routes) -> RoutedSite:
        """An empty site with the slots and the bandwidth of this one, on other routes."""
        slots = self.free.copy()
        for held in self.clusters.values():
            for machine, units in held.counts.items():
                slots[machine] += units
        site = RoutedSite(routes, 1, self._capacity / GRAIN, self.risk)
        site.free, site.closed = slots, self.closed
        return site

    def most(self, cluster: Cluster, links: Whole | slice = slice(None)) -> Whole:
        """By link: the largest load of the cluster that it takes, up to the cluster's size.

        A cluster that the site holds by this id counts as released.

        Raises:
            InvalidInput: as ``Unit.of``.
        """
        unit, size = Unit.of(cluster), len(cluster.demands)
        certain, mean, variance = (sums[links] for sums in self._sums_without(cluster.id))
        capacity = self._capacity[links]
        each = unit.certain + unit.mean
        if not unit.variance:
            spare = capacity - certain - mean
            if variance.any():
                spare -= self._chance(variance)
            whole: Whole = np.clip(spare // each, 0, size)
            return whole
        room = (capacity - certain - mean).astype(np.float64)
        # F * each + chance(variance + F * unit.variance) <= room, the smaller root of a square
        chance = self._quantile**2 * GRAIN
        half = room * each + chance * unit.variance / 2
        square = room**2 - chance * variance
        roots = (half - np.sqrt(np.maximum(half**2 - each**2 * square, 0))) / each**2
        roots[(square < 0) | (room <= 0)] = 0
        np.clip(roots, 0, size, out=roots)
        most: Whole = roots.astype(np.int64)
        nearest = np.rint(roots)
        (near,) = np.nonzero(np.abs(roots - nearest) < NEAR)
        tried = nearest[near].astype(np.int64)
        spread = self._chance(variance[near] + tried * unit.variance)
        used = certain[near] + mean[near] + tried * each + spread
        most[near] = np.where(used <= capacity[near], tried, np.maximum(tried - 1, 0))
        return most

    def _chance(self, variance: Whole) -> Whole:
        """What stochastic demands need beyond their means, rounded up."""
        needed: Whole = np.ceil(self._quantile * np.sqrt(variance * float(GRAIN))).astype(np.int64)
        return needed

    def _sums_without(self, id: str) -> tuple[Whole, Whole, Whole]:
        """Certain demands, means and variances of all clusters but one."""
        if id not in self.clusters:
            return self._certain, self._mean, self._variance
        sums = (self._certain.copy(), self._mean.copy(), self._variance.copy())
        self._add(self.clusters[id], -1, sums)
        return sums

    def _add(self, held: Held, sign: int, sums: tuple[Whole, Whole, Whole]) -> None:
        links, amounts = held.promised
        for total, each in zip(sums, amounts, strict=True):
            total[links] += sign * each

    def promised(
        self, cluster: Cluster, embedding: Embedding, amounts: Whole | None = None
    ) -> Promised:
        """What links promise a cluster, or a part of it, with this embedding; it may not fit.

        ``amounts`` are those of the cluster (``amounts_of``), if the caller has them.

        Raises:
            InvalidInput: as ``Unit.of``, but the demands may differ.
        """
        counts = {machine: len(units) for machine, units in embedding.items() if units}
        if not cluster.homogeneous:
            of_unit = amounts_of(cluster) if amounts is None else amounts
            return self._promised_each(cluster.id, of_unit, embedding, counts)
        found = worst_loads(self.routes, counts)
        links = np.fromiter(found.keys(), dtype=np.int64, count=len(found))
        loads = np.fromiter(found.values(), dtype=np.int64, count=len(found))
        certain, mean, variance = Unit.of(cluster)
        return Promised(links, (loads * certain, loads * mean, loads * variance))

    def _promised_each(
        self, id: str, of_unit: Whole, embedding: Embedding, counts: Mapping[int, int]
    ) -> Promised:
        """On each link, the demands of the units of that cover which needs least there.

        The covers that are compared are all senders, all receivers, and, where not every sender
        sends to every receiver, the cover with the least sum of means.
        """
        cross = crossing(self.routes, counts)
        machines = np.array(sorted(counts), dtype=np.int64)
        on = np.array([of_unit[list(embedding[m])].sum(axis=0) for m in machines.tolist()])
        _, leaf_of = np.unique(self.routes.leaf_of[machines], return_inverse=True)
        below = np.zeros((len(cross.leaves), 3), dtype=np.int64)
        np.add.at(below, leaf_of, on)
        link, leaf, machine = cross.pairs
        sends = np.zeros((len(cross.links), len(below)), dtype=bool)
        receives = np.zeros((len(cross.links), len(on)), dtype=bool)
        sends[link, leaf] = receives[link, machine] = True
        covers = [sends @ below, receives @ on, sends @ below]
        for position in np.nonzero(~cross.exact)[0].tolist():
            senders, receivers = cross.cover(position, below[:, :2].sum(1), on[:, :2].sum(1))
            covers[2][position] = below[senders].sum(axis=0) + on[receivers].sum(axis=0)
        links = cross.links
        if len(machines) > 1:  # the links of hosts: their own units, or all others
            ends = self.routes.of_hosts + machines
            links = np.concatenate([links, ends, ends + self.tree.machines])
            others = on.sum(axis=0) - on
            covers = [
                np.concatenate([cover, side, side])
                for cover, side in zip(covers, (on, others, on), strict=True)
            ]
        return self._least(id, links, covers)

    def _least(self, id: str, links: Whole, covers: Sequence[Whole]) -> Promised:
        """By link, the cover after which it needs least; ``covers`` have shape (links, 3)."""
        certain, mean, variance = (sums[links] for sums in self._sums_without(id))
        needed = [
            certain + mean + cover[:, 0] + cover[:, 1] + self._chance(variance + cover[:, 2])
            for cover in covers
        ]
        least = np.stack(covers)[np.argmin(needed, axis=0), np.arange(len(links))]
        return Promised(links, (least[:, 0], least[:, 1], least[:, 2]))

    def overloaded(self, id: str, promised: Promised) -> Whole:
        """The links that do not take a promise beside those of all clusters but ``id``."""
        certain, mean, variance = (
            sums[promised.links] + more
            for sums, more in zip(self._sums_without(id), promised.amounts, strict=True)
        )
        used = certain + mean + self._chance(variance)
        return promised.links[used > self._capacity[promised.links]]

    def hold(self, held: Held) -> None:
        """Count what a cluster holds already, by ``claim`` or elsewhere; nothing is checked."""
        for machine, units in held.counts.items():
            self.free[machine] -= units
        self._add(held, 1, (self._certain, self._mean, self._variance))
        self.clusters[held.cluster.id] = held

    def occupancy(self) -> Numbers:
        """By link: the promised share of its bandwidth; above 1 only where links have failed."""
        used = self._certain + self._mean + self._chance(self._variance)
        return used / np.maximum(self._capacity, 1)

    def outage(self) -> Numbers:
        """By link: the bound on the probability that demands exceed it, at most ``risk``.

        Both bounds are exceeded where links have failed, so that traffic takes others.
        """
        room = self._capacity - self._certain - self._mean
        outage = np.where(room < 0, 1.0, 0.0)
        deviation = np.sqrt(self._variance * float(GRAIN))
        (spread,) = np.nonzero(deviation)
        outage[spread] = [
            1 - _STANDARD.cdf(units) for units in (room[spread] / deviation[spread]).tolist()
        ]
        return outage

    def loads(self) -> list[PromisedLoad]:
        """The load of each link that promises anything, ascending by ``Promise.link``.

        As either tables use it, whichever is more. So no fault makes a link look better.
        """
        (links,) = np.nonzero(self._certain + self._mean)
        down = {int(self.routes.physical[link]) for link in self.routes.lost}
        dead = self._dead()
        most: dict[int, PromisedLoad] = {}
        for load in self.of_links(links[links > NO_ROUTE]):
            link = int(self.routes.physical[load.link])
            load = load._replace(link=link)
            if link in dead:
                load = load._replace(state="dead", outage=1.0)
            elif link in down:
                load = load._replace(state="suspended")
            known = most.get(link, load)
            most[link] = max(known, load, key=lambda each: (each.outage, each.occupancy))
        return [most[link] for link in sorted(most)]

    def _dead(self) -> set[int]:
        """The links that are down and promise something to clusters without a path."""
        dead = set[int]()
        for held in self.clusters.values():
            if NO_ROUTE in held.promised.links:
                dead.update(self.routes.physical[held.promised.links].tolist())
        return dead & {int(self.routes.physical[link]) for link in self.routes.lost}

    def of_links(self, links: Whole) -> list[PromisedLoad]:
        """The load of each of these links, by number."""
        occupancy, outage = self.occupancy(), self.outage()
        return [
            PromisedLoad(
                link,
                (int(self._certain[link]) + int(self._mean[link])) / GRAIN,
                (int(self._variance[link]) / GRAIN) ** 0.5,
                float(occupancy[link]),
                float(outage[link]),
            )
            for link in links.tolist()
        ]

    def copy(self) -> RoutedSite:
        """The site as it is now; what changes later there or here changes one of them alone."""
        site = copy(self)
        site.free = self.free.copy()
        sums = (self._certain, self._mean, self._variance)
        site._certain, site._mean, site._variance = (each.copy() for each in sums)
        site.clusters = dict(self.clusters)
        return site

    def at_risk(self, risk: float) -> RoutedSite:
        """A copy of the site as it is now, with another risk; what it holds may be too much.

        Raises:
            InvalidInput: ``risk`` is not within ``LEAST_RISK`` and ``MOST_RISK``.
        """
        site = self.copy()
        site._set_risk(risk)
        return site

    def claim(self, cluster: Cluster, embedding: Embedding) -> None:
        """Claim slots, and promise bandwidth on all links that the cluster can load.

        Raises:
            InvalidInput: as ``promised``.
            DoubleClaim: the id is taken, a slot or the bandwidth of a link is not free, or a
                machine of the cluster does not have exactly one slot. Nothing has changed then.
        """
        placed = sorted(unit for units in embedding.values() for unit in units)
        if cluster.id in self.clusters or placed != list(range(len(cluster.demands))):
            raise DoubleClaim(f"cluster {cluster.id!r}: exists already, or machines without a slot")
        if any(len(units) > self.free[machine] for machine, units in embedding.items()):
            raise DoubleClaim(f"cluster {cluster.id!r}: a slot is not free")
        held = Held(cluster, embedding, self.promised(cluster, embedding))
        for link in self.overloaded(cluster.id, held.promised).tolist():
            raise DoubleClaim(f"cluster {cluster.id!r}: {self.routes.name(link)} has no room")
        self.hold(held)

    def held(self, id: str) -> Held:
        """What the site holds by an id.

        Raises:
            NotFound: the site holds no cluster of this id.
        """
        if id not in self.clusters:
            raise NotFound("cluster", id)
        return self.clusters[id]

    def release(self, id: str) -> None:
        """Release the slots and the bandwidth of a cluster. Raises: NotFound."""
        held = self.held(id)
        del self.clusters[id]
        for machine, units in held.counts.items():
            self.free[machine] += units
        self._add(held, -1, (self._certain, self._mean, self._variance))

    def replace(self, cluster: Cluster, embedding: Embedding) -> None:
        """Give a cluster another embedding, and possibly another size or other demands.

        Raises:
            NotFound: the site holds no cluster of this id.
            InvalidInput, DoubleClaim: as ``claim``; nothing has changed then.
        """
        previous = self.held(cluster.id)
        self.release(cluster.id)
        try:
            self.claim(cluster, embedding)
        except (DoubleClaim, InvalidInput):
            self.claim(previous.cluster, previous.embedding)
            raise
