# SPDX-License-Identifier: Apache-2.0

"""Elastic virtual clusters on a tree: they grow, shrink and change their bandwidth.

Source: Fuerst, Schmid, Suresh and Costa, "Kraken: Online and Elastic Resource Reservations
for Cloud Datacenters", section IV. A change is granted whenever an embedding of the cluster
exists with all other clusters in place. The search chooses an embedding with the fewest
migrations, and among those one with the least footprint.

As in the paper, the search tries every vertex as the centre of gravity, the place of the
virtual switch. For a given centre, the spare bandwidth of a link bounds the number of units
beyond it. These bounds are nested (a laminar matroid), so taking the cheapest unit that still
fits, one by one, is exact. ``doc/source/reference/virtual-clusters.rst`` lists where the
printed procedure is not exact. Arrays hold all vertices of a level, so the search tries them
at once. No function here changes the site.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from laas_service.domain.sharing.cluster import Cluster, Embedding, Numbers, Whole
from laas_service.domain.sharing.migration import UnitMigration, planned
from laas_service.domain.sharing.tree import SlotTree

# -- costs of an embedding (sections IV-A and IV-F) ----------------------------


class Costs(NamedTuple):
    """Costs of an embedding, in any unit; all migrations cost the same (else: ``transport``)."""

    move: float
    """Of a migration."""
    link: float
    """For each link that the bandwidth of a unit crosses."""


CostModel = Callable[[SlotTree, int], Costs]
"""(tree, units of the cluster) -> costs. The cheapest embedding is chosen."""


def fewest_migrations(tree: SlotTree, size: int) -> Costs:
    """The paper's objective: a migration costs more than any footprint."""
    return Costs(2 * tree.top * size + 1, 1)


def least_footprint(tree: SlotTree, size: int) -> Costs:
    """Costs for an embedding of least footprint, and among those one with few migrations."""
    return Costs(1, size + 1)


# -- the search -----------------------------------------------------------------


class Offer(Protocol):
    """What a cluster may use; its own slots and links count as free."""

    @property
    def tree(self) -> SlotTree: ...

    @property
    def slots(self) -> Whole:
        """Free slots, by machine."""
        ...

    @property
    def limits(self) -> list[Whole]:
        """By level and vertex: how many units may cross the link above."""
        ...

    @property
    def previous(self) -> Embedding:
        """The cluster's embedding now; empty for a new cluster."""
        ...


def cheapest(
    offer: Offer, cluster: Cluster, costs: CostModel = fewest_migrations
) -> UnitMigration | None:
    """The cheapest plan within an offer; None if the cluster does not fit."""
    return _TreeSearch(offer, cluster, costs).answer()


class SubtreeRoom(NamedTuple):
    """How many units the subtrees of each vertex take if the centre is above them.

    Both lists have an array of shape (vertices,) for each level.
    """

    within: list[Whole]
    """Without the limit of the link above the vertex."""
    slot_count: list[Whole]
    """With the limit of the link above the vertex."""


def slot_count(tree: SlotTree, slots: Whole, limits: Sequence[Whole]) -> SubtreeRoom:
    """Section IV-B, bottom up.

    ``slots`` are the free slots of the machines; ``limits[l]`` bounds the units below each
    vertex of level l.
    """
    within, count = [slots], [np.minimum(slots, limits[0])]
    for level, children in enumerate(tree.children, 1):
        within.append(count[-1].reshape(-1, children).sum(axis=1))
        count.append(np.minimum(within[-1], limits[level]) if level < tree.top else within[-1])
    return SubtreeRoom(within, count)


class FillStep(NamedTuple):
    """Units that are placed alike around a centre."""

    stay: bool
    """They stay on machines that the cluster has; otherwise they are new or move."""
    ring: int
    """Ring l around a centre has the machines that first meet the centre at level l."""


class Filling(NamedTuple):
    """How many units each step takes, for several centres of one level.

    All arrays have shape (centres,).
    """

    centres: Whole
    """Vertex numbers."""
    taken: dict[FillStep, Whole]
    """Units that a step takes."""
    crossing: list[Whole]
    """Units beyond the link above the centre, beyond the link above its parent, ...: alpha."""
    placed: Whole
    """Units of all steps."""


class _TreeSearch:
    """The search for one request."""

    def __init__(self, offer: Offer, cluster: Cluster, costs: CostModel) -> None:
        self.tree, self.cluster, self.size = offer.tree, cluster, len(cluster.demands)
        self.costs = costs(self.tree, self.size)
        self.slots, self.links, self.previous = offer.slots, offer.limits, offer.previous
        self.here = np.zeros(self.tree.machines, dtype=np.int64)
        """Units of the cluster on each machine now."""
        for machine, numbers in self.previous.items():
            self.here[machine] = len(numbers)
        self.steps = self._steps()
        self.rooms = {stay: self._room(stay=stay) for stay, _ in self.steps}

    def _steps(self) -> list[FillStep]:
        """The steps, those of the cheapest units first."""
        move, link = self.costs
        kinds = (True, False) if self.previous and move > 0 else (False,)
        steps = [FillStep(stay, ring) for stay in kinds for ring in range(self.tree.top + 1)]
        return sorted(
            steps, key=lambda x: (move * (not x.stay) + 2 * link * x.ring, not x.stay, x.ring)
        )

    def _room(self, *, stay: bool, placed: Sequence[Whole] | None = None) -> SubtreeRoom:
        """Room for units that stay, or for all units.

        ``placed`` units below each vertex, by level, are subtracted.
        """
        slots, limits = self.here if stay else self.slots, self.links
        if placed is not None:
            slots = slots - placed[0]
            limits = [limit - count for limit, count in zip(limits, placed, strict=False)]
        return slot_count(self.tree, slots, limits)

    # Algorithm 1

    def answer(self) -> UnitMigration | None:
        """The cheapest plan; None if the cluster does not fit."""
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
        taken = {step: int(units[first]) for step, units in filling.taken.items()}
        counts = self.compute_embedding((level, int(filling.centres[first])), taken)
        return planned(self.tree, self.cluster, self.previous, counts)

    def fill(self, level: int) -> Filling:
        """The units that stay, and the rings for the others, for every centre of a level.

        Units go as near to the centre as possible. At most half of the units are above a
        centre (section IV-B), so vertices with less room below are not centres.
        """
        top = self.tree.top
        (centres,) = np.nonzero(2 * self.rooms[False].within[level] >= self.size)
        crossing = [np.zeros(len(centres), dtype=np.int64) for _ in range(level, top)]
        capacity = [self._above(self.links[up], up, level, centres) for up in range(level, top)]
        placed = np.zeros(len(centres), dtype=np.int64)
        in_ring = {ring: np.zeros(len(centres), dtype=np.int64) for ring in range(level, top + 1)}
        taken: dict[FillStep, Whole] = {}
        for step in self.steps if len(centres) else ():
            ring = step.ring
            if ring < level:
                continue
            units = self._ring(step, level, centres) - in_ring[ring]
            for bound, used in zip(capacity[: ring - level], crossing, strict=False):
                units = np.minimum(units, bound - used)
            units = np.clip(units, 0, self.size - placed)
            for used in (*crossing[: ring - level], in_ring[ring], placed):
                used += units
            taken[step] = units
        return Filling(centres, taken, crossing, placed)

    def _ring(self, step: FillStep, level: int, centres: Whole) -> Whole:
        """Room for the units of a step around each centre, shape (centres,)."""
        ring, (within, slot_count) = step.ring, self.rooms[step.stay]
        room = self._above(within[ring], ring, level, centres)
        if ring == level:
            return room
        return room - self._above(slot_count[ring - 1], ring - 1, level, centres)

    def _above(self, values: Whole, of: int, level: int, centres: Whole) -> Whole:
        """For each centre of a level, the value of the vertex of level ``of`` above it."""
        above: Whole = values[centres // (self.tree.below[of] // self.tree.below[level])]
        return above

    def cost(self, level: int, filling: Filling) -> Numbers:
        """Cost of the embedding for each centre, by the cost model."""
        return self.min_mig(filling) + self.costs.link * self.footprint(level, filling)

    def min_mig(self, filling: Filling) -> Numbers:
        """Algorithm 2: the cost of the migrations for each centre."""
        remain = min(self.size, int(self.here.sum()))
        stay = np.zeros_like(filling.placed)
        for step, taken in filling.taken.items():
            stay += taken * step.stay
        cost: Numbers = (remain - stay).astype(np.float64) * self.costs.move
        return cost

    def footprint(self, level: int, filling: Filling) -> Whole:
        """Algorithm 3: the number of links from all units to the centre, for each centre."""
        return level * filling.placed + self.costs_above(filling)

    def costs_above(self, filling: Filling) -> Whole:
        """Algorithm 4: for each level above the centre, two more links for each unit beyond it."""
        return 2 * sum(filling.crossing, np.zeros_like(filling.placed))

    # computeEmbedding

    def compute_embedding(
        self, centre: tuple[int, int], taken: dict[FillStep, int]
    ) -> dict[int, int]:
        """Machine -> number of units; those that stay are placed first."""
        placed = _sums(self.tree, np.zeros(self.tree.machines, dtype=np.int64))
        for stay in sorted({step.stay for step, units in taken.items() if units}, reverse=True):
            room = self._room(stay=stay, placed=placed)
            machines = placed[0].copy()
            for ring in range(centre[0], self.tree.top + 1):
                for machine, units in self._spread(room, centre, ring, taken[FillStep(stay, ring)]):
                    machines[machine] += units
            placed = _sums(self.tree, machines)
        (used,) = np.nonzero(placed[0])
        return {int(machine): int(placed[0][machine]) for machine in used}

    def _spread(
        self, room: SubtreeRoom, centre: tuple[int, int], ring: int, amount: int
    ) -> Iterator[tuple[int, int]]:
        """(machine, units) for ``amount`` units in a ring, on the first machines with room."""
        level, vertex = centre
        if ring == level == 0:
            yield vertex, amount
            return
        above = vertex // (self.tree.below[ring] // self.tree.below[level])
        children = self.tree.children[ring - 1]
        siblings = [(ring - 1, above * children + i) for i in range(children)]
        if ring > level:
            siblings.remove(
                (ring - 1, vertex // (self.tree.below[ring - 1] // self.tree.below[level]))
            )
        vertices = [
            (ring - 1, child, int(room.slot_count[ring - 1][child])) for _, child in siblings
        ]
        yield from self._shared(room, vertices, amount)

    def _shared(
        self, room: SubtreeRoom, vertices: Sequence[tuple[int, int, int]], amount: int
    ) -> Iterator[tuple[int, int]]:
        """(machine, units) for ``amount`` units below ``vertices``: (level, number, most units)."""
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


def _sums(tree: SlotTree, machines: Whole) -> list[Whole]:
    """Sums over the machines below every vertex: an array of shape (vertices,) for each level."""
    sums = [machines]
    for children in tree.children:
        sums.append(sums[-1].reshape(-1, children).sum(axis=1))
    return sums
