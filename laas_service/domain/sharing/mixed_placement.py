# SPDX-License-Identifier: Apache-2.0

"""Embeddings of virtual clusters whose machines have different demands, on routed hosts.

To find one is NP-hard (SVC, section V), so the search is a heuristic: first fit in the order of
``by_size``, in the lowest subtree that has room, as in SVC. Each step is checked on the links
as routed. Small sites are searched to the end.

A unit keeps its number. A change keeps as many units in place as the links allow, the largest
ones first, and places the others as new ones. A unit only moves to a slot that is free before all
moves, so the moves may run in any order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from laas_service.domain.errors import LimitExceeded
from laas_service.domain.grouping import grouped
from laas_service.domain.sharing.cluster import Cluster, Embedding, Whole
from laas_service.domain.sharing.hose_load import cost_of_crossing
from laas_service.domain.sharing.link_promises import RoutedSite, amounts_of
from laas_service.domain.sharing.migration import MachineMove, UnitMigration
from laas_service.domain.sharing.placement import (
    COST_OF_A_STEP,
    STARTS,
    Effort,
    Engine,
    MigrationCost,
    NotPlaced,
    Placed,
)

VISITS = 60
"""Parts of embeddings that first fit looks at in all."""

Places = Mapping[int, int]
"""Unit -> machine."""


class _MixedSearch:
    """The search for one request; slots and links of the cluster itself count as free."""

    def __init__(self, site: RoutedSite, cluster: Cluster, effort: Effort) -> None:
        self.site, self.tree, self.cluster = site, site.tree, cluster
        self.size, self.effort = len(cluster.demands), effort
        held = site.clusters.get(cluster.id)
        self.before = {u: m for m, on in (held.embedding if held else {}).items() for u in on}
        """Unit -> machine now."""
        self.remain = {unit: m for unit, m in self.before.items() if unit < self.size}
        self.staying = {u: m for u, m in self.remain.items() if m not in site.emptied}
        """Those of these units that may stay."""
        self.free = site.free.copy()
        """By machine: slots that units may get."""
        self.free[site.closed] = 0
        weights = [demand.mean + demand.variance**0.5 for demand in cluster.demands]
        self.order = sorted(range(self.size), key=lambda unit: (-weights[unit], unit))
        """Units, the largest first."""
        self.blocked: Counter[int] = Counter()
        """How often a link was in the way."""
        self.amounts: Whole | None = None
        """By unit, as in ``link_promises.Unit``; None: not needed yet."""

    def answer(self) -> Placed | NotPlaced:
        """The cheapest plan found."""
        free = int(self.free.sum())
        if len(self.staying) + free < self.size:
            return NotPlaced(
                f"{free + len(self.before)} slots are free, {self.size} asked for", True
            )
        try:
            first = next(self._candidates(), None)
        except LimitExceeded as error:
            return NotPlaced(str(error), False)
        best, proven = self._of_all(first)
        if best is not None:
            return Placed(self._plan(best), self.cost(best), proven)
        if not self.blocked:
            return NotPlaced("no host has a slot and a link with room", proven)
        link, _ = self.blocked.most_common(1)[0]
        return NotPlaced(f"{self.site.routes.name(link)} has no room for the demands", proven)

    def bounds(self) -> tuple[int, int]:
        """Nothing is known."""
        return 0, self.size

    def fits(self, at: Places) -> bool:
        """Whether all links take these units beside other clusters. Raises: LimitExceeded."""
        if not at:
            return True
        if self.amounts is None:
            self.effort.spend(8 * self.size)
            self.amounts = amounts_of(self.cluster)
        self.effort.spend(COST_OF_A_STEP + 3 * len(at))
        embedding = embedding_of(at)
        self.effort.spend(2 * cost_of_crossing(self.site.routes, embedding))
        promised = self.site.promised(self.cluster, embedding, self.amounts)
        over = self.site.overloaded(self.cluster.id, promised).tolist()
        self.blocked.update(over)
        return not over

    def cost(self, at: Places) -> MigrationCost:
        """Migrations and footprint."""
        counts = Counter(at.values())
        below: Counter[tuple[int, int]] = Counter()
        for machine, units in counts.items():
            for level in range(self.tree.top):
                below[level, self.tree.above(machine, level)] += units
        moved = sum(at[unit] != machine for unit, machine in self.remain.items())
        return MigrationCost(moved, sum(min(units, self.size - units) for units in below.values()))

    def _plan(self, at: Places) -> UnitMigration:
        units = self.remain.items()
        return UnitMigration(
            self.cluster,
            embedding_of(at),
            tuple(
                MachineMove(unit, old, at[unit]) for unit, old in sorted(units) if at[unit] != old
            ),
            tuple((unit, at[unit]) for unit in range(self.size) if unit not in self.remain),
            tuple((unit, m) for unit, m in sorted(self.before.items()) if unit >= self.size),
        )

    # first fit

    def _candidates(self) -> Iterator[dict[int, int]]:
        """Places that fit, those with few moves and in low subtrees first."""
        kept = self._kept()
        for start in (kept, {}) if kept else (kept,):
            for machines in self._orders(self.size - len(start)):
                at = self._filled(dict(start), machines)
                if at is not None:
                    yield at

    def _kept(self) -> dict[int, int]:
        """Units that stay: all, or one after the other what the links still take."""
        if self.fits(self.staying):
            return dict(self.staying)
        at: dict[int, int] = {}
        for unit in self.order:
            if unit in self.staying and self.fits(at | {unit: self.staying[unit]}):
                at[unit] = self.staying[unit]
        return at

    def _filled(self, at: dict[int, int], machines: Iterable[int]) -> dict[int, int] | None:
        """``at`` with the other units on each machine in turn, as many as fit; None: not all."""
        waiting = [unit for unit in self.order if unit not in at]
        for machine in machines:
            if not waiting or not self.effort.visits:
                break
            low, high = 0, min(int(self.free[machine]), len(waiting))
            units = high
            while low < high and self.effort.visits:
                self.effort.visits -= 1
                if self.fits(at | dict.fromkeys(waiting[:units], machine)):
                    low = units
                else:
                    high = units - 1
                units = (low + high + 1) // 2
            at |= dict.fromkeys(waiting[:low], machine)
            del waiting[:low]
        return None if waiting else at

    def _orders(self, size: int) -> Iterator[list[int]]:
        """Orders of machines: those of each of some lowest subtrees with room, then all."""
        (machines,) = np.nonzero(self.free)
        if self.remain:
            own = np.array(sorted(set(self.remain.values())), dtype=np.int64)
            far = np.zeros(len(machines), dtype=np.int64)
            for level in range(self.tree.top):
                width = self.tree.below[level]
                far += ~np.isin(machines // width, own // width)
            yield machines[np.lexsort((machines, far))].tolist()
            return
        for level in range(self.tree.top):
            width = self.tree.below[level]
            room = self.free.reshape(-1, width).sum(axis=1)
            (enough,) = np.nonzero(room >= size)
            for vertex in enough[np.argsort(room[enough], kind="stable")][:STARTS].tolist():
                inside = machines[machines // width == vertex]
                yield inside[np.argsort(-self.free[inside], kind="stable")].tolist()
        width = self.tree.below[1]
        room = self.free.reshape(-1, width).sum(axis=1)
        yield machines[np.argsort(-room[machines // width], kind="stable")].tolist()

    # all

    def _of_all(self, best: dict[int, int] | None) -> tuple[dict[int, int] | None, bool]:
        """The cheapest place of all, None if none fits; whether the search came to an end."""
        at: dict[int, int] = {}
        arrived: Counter[int] = Counter()
        machines = np.nonzero(self.free)[0].tolist()

        def extend(position: int, moved: int) -> None:
            """Try all places with ``at``, and the units from a position of the order on."""
            nonlocal best
            if best is not None and MigrationCost(moved, 0) >= self.cost(best):
                return
            if position == self.size:
                if best is None or self.cost(at) < self.cost(best):
                    best = dict(at)
                return
            unit = self.order[position]
            stay = self.staying.get(unit)
            for machine in ([] if stay is None else [stay]) + machines[self._first(position, at) :]:
                joins = machine != stay
                if at.get(unit) == machine or (joins and arrived[machine] >= self.free[machine]):
                    continue
                at[unit] = machine
                arrived[machine] += joins
                if self._looked_at(at):
                    extend(position + 1, moved + (joins and unit in self.remain))
                arrived[machine] -= joins
                del at[unit]

        try:
            extend(0, 0)
        except LimitExceeded:
            return best, False
        return best, True

    def _first(self, position: int, at: Places) -> int:
        """Place, in the list of machines, of the first that a unit need try.

        A new unit goes nowhere before the new unit with the same demand that precedes it.
        """
        if not position:
            return 0
        unit, other = self.order[position], self.order[position - 1]
        new = unit not in self.remain and other not in self.remain
        if not new or self.cluster.demands[unit] != self.cluster.demands[other]:
            return 0
        return int(np.searchsorted(np.nonzero(self.free)[0], at[other]))

    def _looked_at(self, at: Places) -> bool:
        """Whether a part of a place fits."""
        if self.effort.looks is not None:
            if not self.effort.looks:
                raise LimitExceeded("the search has used up its budget")
            self.effort.looks -= 1
        return self.fits(at)


MIXED = Engine(_MixedSearch, VISITS)
"""For clusters whose machines may have different demands."""


def embedding_of(at: Places) -> Embedding:
    """Machine -> its units, ascending, for units at places."""
    on = grouped((machine, unit) for unit, machine in at.items())
    return {machine: tuple(sorted(on[machine])) for machine in sorted(on)}
