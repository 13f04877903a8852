# SPDX-License-Identifier: Apache-2.0

"""Embeddings of elastic virtual clusters on routed hosts: fewest migrations, least footprint.

Footprint and migrations are Kraken's: the links from all units to the centre, which routes do not
change, and the remaining units that change their host. What fits is another question than on a
tree, since each physical link has a limit of its own (``link_promises``). The search asks, in turn:

1. Kraken on the tree whose limits are the sums over the uplinks of a leaf or pod. Whatever fits
   the routes fits this tree: all pairs across a cut can send at once, so the loads of its links
   add up to no less than the cut's units. No plan here is a proven refusal; a plan that fits the
   routes costs the least of all.
2. Kraken with the least of the uplinks' limits, which fits any routes; and greedy fillings that
   give each host what its links still take. Each costs the least if it costs what step 1 did.
3. All embeddings, hosts that are held first, without those that cost too much or overload a link
   already: what does not fit never fits with more units. This step has a budget. If it ends
   before the search does, the answer says that it is not proven.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import DoubleClaim, LimitExceeded
from laas_service.domain.sharing import tree_search
from laas_service.domain.sharing.cluster import Cluster, Embedding, Whole
from laas_service.domain.sharing.hose_load import (
    cost_of_crossing,
    cost_of_load,
    crossing,
)
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.migration import UnitMigration, planned
from laas_service.domain.sharing.routes import NO_LINK
from laas_service.domain.sharing.tree import SlotTree

Counts = Mapping[int, int]
"""Machine -> units, all above 0."""

BUDGET = 60
"""Embeddings that step 3 looks at by default, about 0.2 ms each."""

SMALL, THOROUGH = 16, 10
"""Hosts of a small site, and how many times the embeddings that step 3 looks at there."""

STARTS, VISITS, CHUNK = 3, 150, 400
"""Greedy fillings: pods, or leaves where there is one pod, that they start from; machines that
they try in all; machines that one look at closed links sorts out."""


COST_OF_A_STEP = 100
"""Units of work of what every look at an embedding, filling or tree takes, whatever its size."""

CUT_OFF = "the search stopped at its budget"
"""Why nothing was found, if so."""


@dataclass
class Effort:
    """What searches may still look at; several searches may share it."""

    looks: int | None
    """Embeddings of step 3; None: all."""
    visits: int
    """Machines of greedy fillings."""
    budget: RequestBudget | None = None
    """The budget of the request that they are for; None: it is not bounded."""

    def spend(self, cost: int) -> None:
        """Pay units of the request's budget. Raises: LimitExceeded, if there are fewer."""
        if self.budget is not None and not self.budget.spend(cost):
            raise LimitExceeded(CUT_OFF)


class MigrationCost(NamedTuple):
    """What a plan costs; plans are compared by migrations first."""

    migrations: int
    """Remaining units that change their host."""
    footprint: int
    """Links from all units to the centre."""


class Placed(NamedTuple):
    """A plan that fits."""

    plan: UnitMigration
    cost: MigrationCost
    proven: bool
    """Whether no other embedding costs less."""


class NotPlaced(NamedTuple):
    """No plan was found."""

    binding: str
    """Why, for operators: too few free slots, or the link that stopped most attempts."""
    proven: bool
    """Whether no embedding fits."""


class PlacementSearch(Protocol):
    """The search for one request."""

    def answer(self) -> Placed | NotPlaced:
        """The cheapest plan found."""

    def bounds(self) -> tuple[int, int]:
        """How many of the first units fit at least, and at most, as far as few steps can tell."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Answers requests by searches of one kind. A ``budget`` of None searches to the end.

    All searches pay their work from ``request_budget``, if there is one. At its end the answer is
    that found so far, and not proven.
    """

    search: Callable[[RoutedSite, Cluster, Effort], PlacementSearch]
    visits: int
    """As in ``Effort``, for each request."""

    def embed(
        self,
        site: RoutedSite,
        cluster: Cluster,
        budget: int | None = BUDGET,
        request_budget: RequestBudget | None = None,
    ) -> Placed | NotPlaced:
        """A place for a new cluster, of least footprint.

        Raises:
            DoubleClaim: the site holds a cluster of this id.
            InvalidInput: the search does not take such demands, a mean is not above 0, or there
                are none.
        """
        if cluster.id in site.clusters:
            raise DoubleClaim(f"cluster {cluster.id!r} exists already; change it")
        effort = Effort(self._looks(site, budget), self.visits, request_budget)
        return self._answer(site, cluster, effort)

    def change(
        self,
        site: RoutedSite,
        cluster: Cluster,
        budget: int | None = BUDGET,
        request_budget: RequestBudget | None = None,
    ) -> Placed | NotPlaced:
        """From what the site holds by this id to ``cluster``: other slots, other demands, or both.

        Units up to the new size remain.

        Raises:
            NotFound: the site holds no such cluster.
            InvalidInput: as ``embed``.
        """
        site.held(cluster.id)
        effort = Effort(self._looks(site, budget), self.visits, request_budget)
        return self._answer(site, cluster, effort)

    def _answer(self, site: RoutedSite, cluster: Cluster, effort: Effort) -> Placed | NotPlaced:
        try:
            effort.spend(COST_OF_A_STEP + site.routes.count // 12 + len(cluster.demands))
        except LimitExceeded:
            return NotPlaced(CUT_OFF, False)
        return self.search(site, cluster, effort).answer()

    def largest(
        self,
        site: RoutedSite,
        cluster: Cluster,
        budget: int | None = BUDGET,
        request_budget: RequestBudget | None = None,
    ) -> int:
        """The most of the first units of the cluster for which a plan is found; 0 for none.

        The slots and links of a cluster that the site holds by this id count as free. Whatever
        fits also fits with fewer units, so with ``budget`` None this is exact. All sizes that are
        tried share the budget.
        """
        return self.most(site, cluster, budget, request_budget)[0]

    def most(
        self,
        site: RoutedSite,
        cluster: Cluster,
        budget: int | None = BUDGET,
        request_budget: RequestBudget | None = None,
    ) -> tuple[int, bool]:
        """``largest``, and whether it is proven that no more of them fit."""
        effort = Effort(self._looks(site, budget), self.visits, request_budget)
        low, high = self.search(site, cluster, effort).bounds()
        proven = True
        while low < high and not (request_budget is not None and request_budget.cut):
            size = (low + high + 1) // 2
            part = Cluster(cluster.id, cluster.demands[:size])
            answer = self._answer(site, part, effort)
            if isinstance(answer, Placed):
                low = size
            else:
                high, proven = size - 1, proven and answer.proven
        return low, proven and not (request_budget is not None and request_budget.cut)

    def _looks(self, site: RoutedSite, budget: int | None) -> int | None:
        """More looks on a small site, where each is quick, and most searches end before."""
        small = len(site.routes.machines) <= SMALL
        return budget if budget is None or not small else budget * THOROUGH


@dataclass(frozen=True, slots=True)
class _Offer:
    """``tree_search.Offer``."""

    tree: SlotTree
    slots: Whole
    limits: list[Whole]
    previous: Embedding


class _RoutedSearch:
    """The search for one request; slots and links of the cluster itself count as free."""

    def __init__(self, site: RoutedSite, cluster: Cluster, effort: Effort) -> None:
        self.site, self.routes, self.tree, self.cluster = site, site.routes, site.tree, cluster
        self.size, self.effort = len(cluster.demands), effort
        self.most = site.most(cluster)
        held = site.clusters.get(cluster.id)
        self.previous: Embedding = held.embedding if held else {}
        self.before = held.counts if held else {}
        self.slots = site.free.copy()
        self.slots[site.closed] = 0
        for machine, units in self.before.items():
            self.slots[machine] += units
        self.slots[site.emptied] = 0
        self.staying = {m: on for m, on in self.previous.items() if m not in site.emptied}
        """The part of the present embedding that may stay."""
        switches, hosts, machines = self.most[2:], self.routes.of_hosts, self.tree.machines
        self.ends = np.minimum(self.most[hosts : hosts + machines], self.most[hosts + machines :])
        """By machine: units that may cross its own link."""
        self.uplinks = np.stack([switches[: hosts - 2 : 2], switches[1 : hosts - 2 : 2]])
        """By direction and link between switches."""
        self.blocked: Counter[int] = Counter()
        """How often a link stopped a filling."""
        self.best: dict[int, int] | None = None
        """The cheapest embedding so far."""

    def answer(self) -> Placed | NotPlaced:
        """The cheapest plan found."""
        try:
            return self._answer()
        except LimitExceeded as error:
            if self.best is None:
                return NotPlaced(str(error), False)
            return self._placed(self.best, proven=False)

    def _answer(self) -> Placed | NotPlaced:
        plan = self._cheapest(self._offer(np.add))
        if plan is None:
            return self._refused(proven=True)
        least = self.cost(_counts(plan))
        if self.fits(_counts(plan)):
            return self._placed(_counts(plan), proven=True)
        for counts in self._candidates():
            if self.best is None or self.cost(counts) < self.cost(self.best):
                self.best = counts
                if self.cost(counts) == least:
                    return self._placed(counts, proven=True)
        best, proven = self._of_all(self.best, least)
        return self._placed(best, proven=proven) if best else self._refused(proven=proven)

    def _cheapest(
        self, offer: _Offer, costs: tree_search.CostModel = tree_search.fewest_migrations
    ) -> UnitMigration | None:
        """As ``tree_search.cheapest``. Raises: LimitExceeded."""
        self.effort.spend(4 * COST_OF_A_STEP + self.tree.machines // 8 + self.size)
        return tree_search.cheapest(offer, self.cluster, costs)

    def bounds(self) -> tuple[int, int]:
        """Of the units that a greedy filling placed, and of those that fit summed uplinks."""
        low, high, offer = 0, self.size, self._offer(np.add)
        try:
            for start in self._starts():
                counts = self._filling(start)
                size = sum(counts.values())
                if size > low and self._part(size).fits(counts):
                    low = size
            least = low
            while least < high:
                size = (least + high + 1) // 2
                if self._part(size)._cheapest(offer) is not None:
                    least = size
                else:
                    high = size - 1
        except LimitExceeded:
            return low, low
        return low, high

    def _part(self, size: int) -> "_RoutedSearch":
        """The search for the first units alone. Raises: LimitExceeded."""
        self.effort.spend(COST_OF_A_STEP + self.routes.count // 12 + size)
        part = Cluster(self.cluster.id, self.cluster.demands[:size])
        return _RoutedSearch(self.site, part, self.effort)

    def _placed(self, counts: Counts, *, proven: bool) -> Placed:
        plan = planned(self.tree, self.cluster, self.previous, counts)
        return Placed(plan, self.cost(counts), proven)

    def _refused(self, *, proven: bool) -> NotPlaced:
        free = int(self.slots.sum())
        if free < self.size:
            return NotPlaced(f"{free} slots are free, {self.size} asked for", True)
        if not self.blocked:
            for start in self._starts():
                self._filling(start)
        if not self.blocked:
            return NotPlaced("no host has a slot and a link with room", proven)
        link, _ = self.blocked.most_common(1)[0]
        return NotPlaced(
            f"{self.routes.name(link)} takes the load of {self.most[link]} more slots", proven
        )

    def _offer(self, joined: np.ufunc) -> _Offer:
        """The tree with the sums (``np.add``) or the least (``np.minimum``) of the uplinks."""
        limits = [self.ends]
        for level, cuts in self.routes.cuts.items():
            limit = np.full(self.tree.vertices(level), self.size)
            for cut in cuts:
                by_tables = np.zeros(len(limit), dtype=np.int64)
                if len(cut.links):
                    ups = joined.reduceat(self.uplinks[:, cut.links], cut.starts, axis=1)
                    by_tables[cut.vertices] = ups.min(axis=0)
                limit = np.minimum(limit, by_tables)
            limits.append(limit)
        return _Offer(self.tree, self.slots, limits, self.staying)

    def cost(self, counts: Counts) -> MigrationCost:
        """Migrations and footprint of an embedding."""
        stay = sum(min(units, counts.get(m, 0)) for m, units in self.before.items())
        old = sum(self.before.values())
        below: Counter[tuple[int, int]] = Counter()
        for machine, units in counts.items():
            for level in range(self.tree.top):
                below[level, self.tree.above(machine, level)] += units
        footprint = sum(min(units, self.size - units) for units in below.values())
        return MigrationCost(min(old, self.size) - stay, footprint)

    def fits(self, counts: Counts) -> bool:
        """Whether all links take the load of an embedding, of the cluster or of a part of it.

        Raises: LimitExceeded.
        """
        size = sum(counts.values())
        if any(min(units, size - units) > self.ends[m] for m, units in counts.items()):
            return False
        self.effort.spend(cost_of_crossing(self.routes, counts))
        cross = crossing(self.routes, counts)
        (over,) = np.nonzero(cross.bound > self.most[cross.links])
        if cross.exact[over].any():
            return False
        for position in over.tolist():
            self.effort.spend(cost_of_load(cross))
            if cross.load(position) > self.most[cross.links[position]]:
                return False
        return True

    # step 2

    def _candidates(self) -> Iterator[dict[int, int]]:
        """Embeddings that fit."""
        plan = self._cheapest(self._offer(np.minimum))
        if plan is not None and self.fits(_counts(plan)):
            yield _counts(plan)
        for start in self._starts():
            counts = self._filling(start)
            if sum(counts.values()) == self.size and self.fits(counts):
                yield counts

    def _starts(self) -> Iterator[Whole]:
        """Orders of the machines with a free slot, each beginning at another vertex."""
        level = self.tree.top - 1
        room = self.slots.reshape(self.tree.vertices(level), -1).sum(axis=1)
        if self.before:
            firsts = sorted({self.tree.above(machine, level) for machine in self.before})
        else:
            firsts = np.argsort(-room, kind="stable").tolist()
        leaf_room = self.slots.reshape(self.tree.vertices(1), -1).sum(axis=1)
        machines = np.nonzero(self.slots)[0]
        leaf, above = machines // self.tree.below[1], machines // self.tree.below[level]
        for first in firsts[:STARTS]:
            keys = (machines, -leaf_room[leaf], -room[above], above != first)
            yield machines[np.lexsort(keys)]

    def _filling(self, order: Whole) -> dict[int, int]:
        """Units on each machine of an order in turn, as many as all links take."""
        filling = _Filling(self)
        for machine, units in sorted(self.before.items(), key=lambda held: -held[1]):
            filling.add(machine, units)
        for chunk in np.split(order, range(CHUNK, len(order), CHUNK)):
            self.effort.spend(COST_OF_A_STEP + len(filling.leaves) * len(chunk) // 4)
            left = filling.open(chunk)
            while left and self.effort.visits and filling.placed < self.size:
                self.effort.visits -= 1
                self.effort.spend(COST_OF_A_STEP + 5 * (len(filling.counts) + len(filling.leaves)))
                if filling.add(left.pop(), self.size):
                    continue
                self.effort.spend(COST_OF_A_STEP + len(filling.leaves) * len(left) // 4)
                left = filling.open(np.array(left[::-1], dtype=np.int64))
            if not self.effort.visits or filling.placed == self.size:
                break
        self.blocked.update(filling.blocked)
        return filling.counts

    # step 3

    def _of_all(
        self, best: dict[int, int] | None, least: MigrationCost
    ) -> tuple[dict[int, int] | None, bool]:
        """The cheapest embedding of all, None if none fits; and whether the search came to an end.

        ``best`` is the cheapest one so far; ``least`` is a bound on all costs.
        """
        (free,) = np.nonzero(self.slots)
        first = sorted(self.before, key=lambda m: -self.before[m])
        order = first + [m for m in free.tolist() if m not in self.before]
        room = [int(min(self.slots[m], self.size)) for m in order]
        beyond = np.cumsum([0, *room[::-1]])[::-1].tolist()
        """By position: slots of the machines from there on."""
        kept = [min(self.before.get(m, 0), r) for m, r in zip(order, room, strict=True)]
        keeps = np.cumsum([0, *kept[::-1]])[::-1].tolist()
        remain = min(sum(self.before.values()), self.size)
        nearest = self._cheapest(self._offer(np.add), tree_search.least_footprint)
        assert nearest is not None  # the tree of summed uplinks takes the cluster
        floor = self.cost(_counts(nearest)).footprint
        """A bound on all footprints; more migrations than the least can have a smaller one."""
        counts: dict[int, int] = {}

        def extend(position: int, missing: int, stay: int) -> None:
            """Try all embeddings with ``counts`` and ``missing`` units from a position on."""
            nonlocal best
            for p in range(position, len(order)):
                moved = max(0, remain - stay - min(keeps[p], missing))
                bound = max(least, MigrationCost(moved, floor))
                if missing > beyond[p] or (best is not None and bound >= self.cost(best)):
                    return
                for units in range(min(room[p], missing), 0, -1):
                    counts[order[p]] = units
                    if not self._looked_at(counts):
                        continue
                    if units < missing:
                        stays = stay + min(units, self.before.get(order[p], 0))
                        extend(p + 1, missing - units, stays)
                    elif best is None or self.cost(counts) < self.cost(best):
                        best = dict(counts)
                counts.pop(order[p], None)

        try:
            extend(0, self.size, 0)
        except LimitExceeded:
            return best, False
        return best, True

    def _looked_at(self, counts: Counts) -> bool:
        """Whether a part of an embedding fits."""
        if self.effort.looks is not None:
            if not self.effort.looks:
                raise LimitExceeded("the search has used up its budget")
            self.effort.looks -= 1
        return self.fits(counts)


class _Filling:
    """A greedy embedding: the units on machines, and what they can put on each link.

    The bound of ``hose_load`` is kept up for each link: its senders, its receivers and their
    units.
    """

    def __init__(self, search: _RoutedSearch) -> None:
        self.search, self.routes = search, search.routes
        self.counts: dict[int, int] = {}
        self.placed = 0
        self.blocked: Counter[int] = Counter()
        self.leaves: dict[int, int] = {}
        """Leaf -> units below."""
        self._closed = np.zeros(self.routes.of_hosts, dtype=bool)
        """By link: whether it takes no more units that receive."""
        self._shut = np.zeros(int(self.routes.leaf_of.max()) + 1, dtype=bool)
        """By leaf: whether a link takes no more of its units, which send."""
        self._senders: dict[int, set[int]] = {}
        self._receivers: dict[int, set[int]] = {}
        """Link -> the leaves that send, the machines that receive over it."""

    def open(self, machines: Whole) -> list[int]:
        """The machines that no closed link or leaf keeps from taking units, the last one first."""
        leaves = np.array(list(self.leaves), dtype=np.int64)
        closed = self._closed[self.routes.walk(leaves, machines)].any(axis=(0, 2))
        shut = self._shut[self.routes.leaf_of[machines]]
        left: list[int] = machines[~closed & ~shut][::-1].tolist()
        return left

    def add(self, machine: int, units: int) -> bool:
        """Place up to ``units`` more units on a machine; return whether it took any."""
        search = self.search
        held = self.counts.get(machine, 0)
        limit = min(units, search.size - self.placed, int(search.slots[machine]) - held)
        others, ends = self.placed - held, int(search.ends[machine])
        if limit > 0 and (search.size - held - limit > ends or others > ends):
            limit = min(limit, ends - held)
            if limit <= 0:
                self.blocked[self.routes.of_hosts + machine] += 1
        if limit <= 0:
            return False
        leaf = int(self.routes.leaf_of[machine])
        sends, receives = self._paths(leaf, machine)
        sending = self.leaves.get(leaf, 0)
        for link, machines in sends.items():
            room = int(search.most[link])
            receivers = self._receivers.get(link, set()) | machines
            if sum(self.counts[m] for m in receivers) > room:
                leaves = self._senders.get(link, set()) - {leaf}
                left = room - self._below(leaves) - sending
                if left <= 0:
                    self._shut[leaf] = True
                    self.blocked[link] += 1
                limit = min(limit, left)
        for link, leaves in receives.items():
            room = int(search.most[link])
            if self._below(self._senders.get(link, set()) | leaves) > room:
                machines = self._receivers.get(link, set()) - {machine}
                left = room - sum(self.counts[m] for m in machines) - held
                if left <= 0:
                    self._closed[link] = True
                    self.blocked[link] += 1
                limit = min(limit, left)
        if limit <= 0:
            return False
        for link, machines in sends.items():
            self._senders.setdefault(link, set()).add(leaf)
            self._receivers.setdefault(link, set()).update(machines)
        for link, leaves in receives.items():
            self._senders.setdefault(link, set()).update(leaves)
            self._receivers.setdefault(link, set()).add(machine)
        self.counts[machine] = held + limit
        self.leaves[leaf] = sending + limit
        self.placed += limit
        return True

    def _below(self, leaves: Iterable[int]) -> int:
        return sum(self.leaves[leaf] for leaf in leaves)

    def _paths(self, leaf: int, machine: int) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """Links that the leaf sends over, with the machines; that the machine receives over,
        with the leaves."""
        sends: dict[int, set[int]] = {}
        receives: dict[int, set[int]] = {}
        machines, leaves = list(self.counts), list(self.leaves)
        if machines:
            steps = self.routes.walk(np.array([leaf]), np.array(machines))[0].tolist()
            for target, path in zip(machines, steps, strict=True):
                for link in path:
                    if link != NO_LINK:
                        sends.setdefault(link, set()).add(target)
            steps = self.routes.walk(np.array(leaves), np.array([machine]))[:, 0].tolist()
            for source, path in zip(leaves, steps, strict=True):
                for link in path:
                    if link != NO_LINK:
                        receives.setdefault(link, set()).add(source)
        return sends, receives


def _counts(plan: UnitMigration) -> dict[int, int]:
    return {machine: len(units) for machine, units in plan.embedding.items() if units}


ALIKE = Engine(_RoutedSearch, VISITS)
"""For clusters whose machines have the same demand."""
