# SPDX-License-Identifier: Apache-2.0

"""Kraken: virtual clusters that grow, shrink and change their bandwidth where they are.

Fuerst, Schmid, Suresh and Costa, "Kraken: Online and Elastic Resource Reservations for
Cloud Datacenters", section IV. A change is granted whenever any embedding of the cluster
exists, other clusters staying where they are; among these embeddings one with the fewest
migrations is chosen, and among those one with the least footprint.

The search is the paper's: every vertex is tried as the centre of gravity, the place of
the virtual switch. Seen from there, what may cross a link is a bound on how many
units are beyond it, whatever the others do. Such bounds are nested, so taking units one
by one, the cheapest that still fits first, is exact (they are a laminar matroid). Where the
procedure as printed is not, see ``doc/source/reference/virtual-clusters.rst``. All vertices of a
level are tried at once, by arrays. Nothing here changes the site.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from laas_service.domain.errors import DoubleClaim, InvalidInput, NotFound
from laas_service.domain.virtual_clusters.links import Numbers, Whole
from laas_service.domain.virtual_clusters.plan import Plan, planned
from laas_service.domain.virtual_clusters.site import Cluster, Site
from laas_service.domain.virtual_clusters.tree import Tree

# -- what a solution costs (sections IV-A and IV-F) -----------------------------


class Costs(NamedTuple):
    """``moves[l]`` for a unit whose old and new machine first meet at level l (``moves[0]``
    is 0, none is less than the one before), ``link`` for each link a unit's bandwidth crosses.
    """

    moves: tuple[float, ...]
    link: float


CostModel = Callable[[Tree, int], Costs]
"""Costs by the tree and the size of the cluster. The cheapest embedding is chosen; that is
exact where all moves cost the same."""


def fewest_migrations(tree: Tree, size: int) -> Costs:
    """The paper's objective: a migration weighs more than any footprint."""
    return Costs((0, *[2 * tree.top * size + 1] * tree.top), 1)


def nearest_migrations(tree: Tree, size: int) -> Costs:
    """Section IV-F: moves within a rack cost 1, within a pod 2, ...; then the footprint.

    Plans are found whenever there is one, but are not always the cheapest: taking the
    cheapest unit first is exact only where all moves cost the same.
    """
    return Costs(tuple(level * (2 * tree.top * size + 1) for level in range(tree.top + 1)), 1)


def least_footprint(tree: Tree, size: int) -> Costs:
    """Embedding from scratch, as near to where the cluster is as the least footprint allows."""
    return Costs((0, *[1] * tree.top), size + 1)


def weighed(migration: float) -> CostModel:
    """A trade-off: a migration is worth ``migration`` units less on one link."""
    return lambda tree, size: Costs((0, *[migration] * tree.top), 1)


# -- requests (sections IV-C and IV-D) ------------------------------------------


def embed(site: Site, cluster: Cluster, costs: CostModel = fewest_migrations) -> Plan | None:
    """Where a new cluster goes: the least footprint of all. None where there is no room.

    ``cluster`` has one demand of variance 0: VC(n, b).

    Raises:
        DoubleClaim: a cluster of this id is held.
        InvalidInput: its demands differ or vary, or it is empty.
    """
    if cluster.id in site.clusters:
        raise DoubleClaim(f"cluster {cluster.id!r} is held already; change it")
    return _Search(site, cluster, costs).answer()


def upgrade(
    site: Site, id: str, more: int = 0, factor: float = 1.0, costs: CostModel = fewest_migrations
) -> Plan | None:
    """Algorithm 1: from VC(n, b) to VC(n + more, factor * b). None where there is no room.

    Raises:
        InvalidInput: ``more`` is below 0 or ``factor`` below 1.
        NotFound: no such cluster.
    """
    if more < 0:
        raise InvalidInput("more", more, "give 0 or more units, or ask for a downgrade")
    if not 1 <= factor < math.inf:
        raise InvalidInput("factor", factor, "give 1 or more, or ask for a downgrade")
    return change(site, _changed(site, id, more, factor), costs)


def downgrade(
    site: Site, id: str, fewer: int = 0, factor: float = 1.0, costs: CostModel = fewest_migrations
) -> Plan | None:
    """Section IV-D: to VC(n - fewer, factor * b); always granted, without migrations.

    The units that go are those whose absence leaves the least footprint.

    Raises:
        InvalidInput: ``fewer`` would leave nobody, or ``factor`` is not above 0 and up to 1.
        NotFound: no such cluster.
    """
    if not 0 <= fewer < len(_held(site, id).demands):
        raise InvalidInput("fewer", fewer, "give 0 or more units, fewer than the cluster has")
    if not 0 < factor <= 1:
        raise InvalidInput("factor", factor, "give a number above 0, up to 1")
    return change(site, _changed(site, id, -fewer, factor), costs)


def change(site: Site, cluster: Cluster, costs: CostModel = fewest_migrations) -> Plan | None:
    """From what the site holds by this id to ``cluster``: any size, any bandwidth.

    Raises: NotFound: no such cluster.
    """
    _held(site, cluster.id)
    return _Search(site, cluster, costs).answer()


def without_partial_moves(site: Site, cluster: Cluster) -> Plan | None:
    """KrakenNP (section V-C): what cannot be had without any migration is embedded anew.

    The new embedding has the least footprint, and as many units where they are as that
    allows.
    """
    plan = change(site, cluster)
    return plan if plan is None or not plan.moves else change(site, cluster, least_footprint)


def _held(site: Site, id: str) -> Cluster:
    if id not in site.clusters:
        raise NotFound("cluster", id)
    return site.clusters[id][0]


def _changed(site: Site, id: str, more: int, factor: float) -> Cluster:
    demands = _held(site, id).demands
    return Cluster.alike(id, len(demands) + more, demands[0].mean * factor)


# -- the search -----------------------------------------------------------------


class Room(NamedTuple):
    """How many units subtrees take, by level, if the centre is above them.

    ``slot_count[l][v]`` counts the link above v, ``within[l][v]`` does not.
    """

    within: list[Whole]
    slot_count: list[Whole]


def slot_count(tree: Tree, slots: Whole, limits: Sequence[Whole]) -> Room:
    """Section IV-B, bottom up: ``slots`` of machines, ``limits`` on what is below each vertex."""
    within, count = [slots], [np.minimum(slots, limits[0])]
    for level, children in enumerate(tree.children, 1):
        within.append(count[-1].reshape(-1, children).sum(axis=1))
        count.append(np.minimum(within[-1], limits[level]) if level < tree.top else within[-1])
    return Room(within, count)


Step = tuple[int, int]
"""(nearness, ring). Units of nearness l come to a machine that first meets one of those
they may have left at level l: they stay for l = 0, and are new, or moved over the root,
for l = top. Ring l around a centre are the machines that first meet it at level l."""


class Filling(NamedTuple):
    """How many units each step takes, for some centres of one level."""

    centres: Whole
    taken: dict[Step, Whole]
    crossing: list[Whole]
    """Units beyond the link above the centre's vertex of the level, next one, ...: alpha."""
    placed: Whole


class _Search:
    """One request, on a site where the cluster has given back what it holds."""

    def __init__(self, site: Site, cluster: Cluster, costs: CostModel) -> None:
        self.tree, self.cluster, self.size = site.tree, cluster, len(cluster.demands)
        self.costs = costs(site.tree, self.size)
        self.slots, self.links = site.offered(cluster)
        self.here = _sums(site.tree, self.slots - site.free)
        _, self.before, _ = site.clusters.get(cluster.id, (cluster, {}, {}))
        self.steps = self._steps()
        self.rooms = {near: self._room(near) for near, _ in self.steps}

    def _steps(self) -> list[Step]:
        """Cheapest unit first."""
        top, (moves, link) = self.tree.top, self.costs
        differ = [near for near, (a, b) in enumerate(pairwise(moves)) if a < b]
        if not self.before:
            differ = []
        steps = [(near, ring) for near in [*differ, top] for ring in range(top + 1)]
        return sorted(steps, key=lambda step: (moves[step[0]] + 2 * link * step[1], step))

    def _room(self, near: int, placed: Sequence[Whole] | None = None) -> Room:
        """For units of this nearness or nearer: no vertex of that level takes more than it had."""
        slots, limits = self.slots, list(self.links)
        if near == 0:
            slots = self.here[0]
        elif near < self.tree.top:
            limits[near] = np.minimum(limits[near], self.here[near])
        if placed is not None:
            slots = slots - placed[0]
            limits = [limit - some for limit, some in zip(limits, placed, strict=False)]
        return slot_count(self.tree, slots, limits)

    # Algorithm 1

    def answer(self) -> Plan | None:
        if self.size > self.slots.sum():
            return None
        best, least = None, math.inf
        for level in range(self.tree.top + 1):
            filling = self.fill(level)
            cost = np.where(filling.placed == self.size, self.cost(level, filling), np.inf)
            first = int(np.argmin(cost)) if len(cost) else 0
            if len(cost) and cost[first] < least:
                least, best = float(cost[first]), (level, first, filling)
        if best is None:
            return None
        level, first, filling = best
        taken = {step: int(some[first]) for step, some in filling.taken.items()}
        counts = self.compute_embedding((level, int(filling.centres[first])), taken)
        return planned(self.tree, self.cluster, self.before, counts)

    def fill(self, level: int) -> Filling:
        """With each vertex of the level as the centre: what is kept where it is, and where the
        others go, the nearest to the centre first.

        No more than half of the units are above a centre (section IV-B), so vertices with
        less room below are left out.
        """
        top = self.tree.top
        (centres,) = np.nonzero(2 * self.rooms[top].within[level] >= self.size)
        crossing = [np.zeros(len(centres), dtype=np.int64) for _ in range(level, top)]
        capacity = [self._above(self.links[up], up, level, centres) for up in range(level, top)]
        placed = np.zeros(len(centres), dtype=np.int64)
        in_ring = {ring: np.zeros(len(centres), dtype=np.int64) for ring in range(level, top + 1)}
        taken: dict[Step, Whole] = {}
        for near, ring in self.steps if len(centres) else ():
            if ring < level:
                continue
            some = self._ring(near, ring, level, centres) - in_ring[ring]
            if ring <= near < top:
                within = placed - crossing[near - level]
                here = self._above(self.here[near], near, level, centres)
                some = np.minimum(some, here - within)
            for bound, used in zip(capacity[: ring - level], crossing, strict=False):
                some = np.minimum(some, bound - used)
            some = np.clip(some, 0, self.size - placed)
            for used in (*crossing[: ring - level], in_ring[ring], placed):
                used += some
            taken[near, ring] = some
        return Filling(centres, taken, crossing, placed)

    def _ring(self, near: int, ring: int, level: int, centres: Whole) -> Whole:
        """Room in the ring around each centre."""
        within, slot_count = self.rooms[near]
        room = self._above(within[ring], ring, level, centres)
        if ring == level:
            return room
        return room - self._above(slot_count[ring - 1], ring - 1, level, centres)

    def _above(self, values: Whole, of: int, level: int, centres: Whole) -> Whole:
        """For each of a level's centres, the value of the vertex above it."""
        found: Whole = values[centres // (self.tree.below[of] // self.tree.below[level])]
        return found

    def cost(self, level: int, filling: Filling) -> Numbers:
        """Of the whole embedding, by the cost model."""
        return self.min_mig(filling) + self.costs.link * self.footprint(level, filling)

    def min_mig(self, filling: Filling) -> Numbers:
        """Algorithm 2: what the migrations cost that make a vertex the centre."""
        moves = self.costs.moves
        units = min(self.size, int(self.here[-1][0]))
        cost = np.full(filling.placed.shape, units * moves[-1], dtype=np.float64)
        for (near, _), some in filling.taken.items():
            cost -= some * (moves[-1] - moves[near])
        return cost

    def footprint(self, level: int, filling: Filling) -> Whole:
        """Algorithm 3: links from all units to the centre, in units of their bandwidth."""
        return level * filling.placed + self.costs_above(filling)

    def costs_above(self, filling: Filling) -> Whole:
        """Algorithm 4: two links more for a unit beyond a link above the centre, at each level."""
        return 2 * sum(filling.crossing, np.zeros_like(filling.placed))

    # computeEmbedding

    def compute_embedding(self, centre: tuple[int, int], taken: dict[Step, int]) -> dict[int, int]:
        """Units by machine: what stays first, then the rest into the slotCount that is left."""
        placed = _sums(self.tree, np.zeros(self.tree.machines, dtype=np.int64))
        for near in sorted({near for (near, _), some in taken.items() if some}):
            room = self._room(near, placed)
            machines = placed[0].copy()
            for ring in range(centre[0], self.tree.top + 1):
                for machine, some in self._spread(room, centre, ring, taken[near, ring]):
                    machines[machine] += some
            placed = _sums(self.tree, machines)
        (used,) = np.nonzero(placed[0])
        return {int(machine): int(placed[0][machine]) for machine in used}

    def _spread(
        self, room: Room, centre: tuple[int, int], ring: int, amount: int
    ) -> Iterator[tuple[int, int]]:
        """Over a ring's machines, the first with room first: (machine, units)."""
        level, vertex = centre
        if ring == level == 0:
            yield vertex, amount
            return
        above = vertex // (self.tree.below[ring] // self.tree.below[level])
        children = self.tree.children[ring - 1]
        todo = [(ring - 1, above * children + i) for i in range(children)]
        if ring > level:
            todo.remove((ring - 1, vertex // (self.tree.below[ring - 1] // self.tree.below[level])))
        some = [(ring - 1, child, int(room.slot_count[ring - 1][child])) for _, child in todo]
        yield from self._shared(room, some, amount)

    def _shared(
        self, room: Room, vertices: Sequence[tuple[int, int, int]], amount: int
    ) -> Iterator[tuple[int, int]]:
        for level, vertex, most in vertices:
            part = min(most, amount)
            amount -= part
            if part and level == 0:
                yield vertex, part
            elif part:
                first = vertex * self.tree.children[level - 1]
                counts = room.slot_count[level - 1][first : first + self.tree.children[level - 1]]
                below = [(level - 1, first + i, count) for i, count in enumerate(counts.tolist())]
                yield from self._shared(room, below, part)
            if not amount:
                return


def _sums(tree: Tree, machines: Whole) -> list[Whole]:
    """Sums below every vertex, by level."""
    found = [machines]
    for children in tree.children:
        found.append(found[-1].reshape(-1, children).sum(axis=1))
    return found
