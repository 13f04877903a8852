# SPDX-License-Identifier: Apache-2.0

"""Plans that empty shared hosts by few migrations of virtual machines.

Source: Adaptive Fit (Tsai and Liao, StarCube, Springer 2016, chapter 2) packs machines onto few
servers, and leaves them where they are as soon as a move gains too little.
Here the machines of an allocation are a virtual cluster on routed hosts. So a host is emptied if
each allocation with slots there has another embedding without it (Kraken's, with the fewest
migrations), and what gains too little is a host that costs more migrations than a threshold. No
machine moves to a host that is empty, so each host that is emptied is gained.

Each change of a plan fits beside the present and the new places of all others. So the changes may
be made in any order, at once, or in part, and every promise is kept at each moment.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice, permutations

import numpy as np

from laas_service.domain.allocation import Allocation
from laas_service.domain.budget import RequestBudget
from laas_service.domain.ledger import LedgerView
from laas_service.domain.sharing.link_promises import RoutedSite
from laas_service.domain.sharing.placement import BUDGET, NotPlaced
from laas_service.domain.sharing.policy import SharedSlots, change_on, held_by

SEARCHES = 200
"""Embeddings that a plan searches for by default."""

ORDERS = 6
"""Orders of the allocations on a host in which they are placed anew, at most."""


@dataclass(frozen=True, slots=True)
class Emptying:
    """Changes of allocations after which hosts are empty; they do not depend on each other."""

    changes: tuple[Allocation, ...]
    """The new places with their moves, one for each allocation that moves, in order of ids."""
    hosts: tuple[int, ...]
    """Numbers of the hosts that are empty afterwards and were not before, as they were chosen."""
    costs: tuple[int, ...]
    """By host: the migrations that it needs in addition to those of the hosts before it."""
    leaves: tuple[tuple[int, int], ...]
    """Pod and leaf whose shared hosts are all empty afterwards, and were not before."""
    searches: int
    """Embeddings that were searched for."""
    cut_off: bool
    """Whether a budget ended the search: further hosts could perhaps be emptied."""

    @property
    def migrations(self) -> int:
        """The virtual machines that move to another host, in all."""
        return sum(map(_moves, self.changes))


def empty_hosts(
    policy: SharedSlots,
    fabric: LedgerView,
    most_moves: int,
    most_per_host: float,
    movable: Callable[[str], bool] = lambda id: True,
    searches: int = SEARCHES,
    budget: int | None = BUDGET,
    request_budget: RequestBudget | None = None,
) -> Emptying:
    """Empty hosts of a ledger whose allocation shares them, the cheapest one first.

    At most ``most_moves`` virtual machines move, and at most ``most_per_host`` for each host. Only
    allocations that are ``movable`` (by id) move. Of hosts that cost the same, the first one by
    virtual machines, then by number, is emptied. ``searches`` and ``budget``, that of each search,
    bound the work, and so does ``request_budget``; with ``budget`` None the searches go on to the
    end. Nothing is changed.

    Raises:
        NotFound: the ledger is of no allocation that shares its hosts.
    """
    search = _EmptyingSearch(
        policy.trial(fabric), fabric, movable, searches, budget, request_budget
    )
    return search.answer(most_moves, most_per_host)


Changes = Mapping[str, Allocation]
"""Id -> new place."""


class _OutOfSearches(Exception):
    """All searches of a plan are used up."""


class _EmptyingSearch:
    """The search for one plan. The site is a copy, and holds the plan so far."""

    def __init__(
        self,
        site: RoutedSite,
        fabric: LedgerView,
        movable: Callable[[str], bool],
        searches: int,
        budget: int | None,
        request_budget: RequestBudget | None,
    ) -> None:
        self.site, self.fabric, self.request_budget = site, fabric, request_budget
        self.searches, self.left, self.budget = searches, searches, budget
        self.cut_off = False
        self.present = dict(site.clusters)
        self.units: Counter[int] = Counter()
        """Machine -> virtual machines now."""
        self.present_on: defaultdict[int, Counter[str]] = defaultdict(Counter)
        """Machine -> virtual machines there now, by the id of their allocation."""
        fixed: set[int] = {site.routes.machine_of(h) for h in self._failed()}
        for id, held in self.present.items():
            self.units.update(held.counts)
            for machine, units in held.counts.items():
                self.present_on[machine][id] = units
            if not movable(id):
                fixed.update(held.counts)
        self.candidates = sorted(self.units.keys() - fixed, key=lambda m: (self.units[m], m))
        empty = [m for m in site.routes.machines.tolist() if not self.units[m]]
        self.closed = np.union1d(site.closed, np.array(empty, dtype=np.int64))
        self.emptied: list[int] = []
        self.costs: list[int] = []
        self.changes: dict[str, Allocation] = {}

    def _failed(self) -> set[int]:
        return set(self.site.routes.hosts).intersection(self.fabric.failed_hosts)

    def answer(self, most_moves: int, most_per_host: float) -> Emptying:
        try:
            while self._empty_next(most_moves, most_per_host):
                pass
        except _OutOfSearches:
            self.cut_off = True
        hosts = tuple(self.site.routes.host_of(machine) for machine in self.emptied)
        changes = tuple(self.changes[id] for id in sorted(self.changes))
        used = self.searches - self.left
        costs = tuple(self.costs)
        return Emptying(changes, hosts, costs, self._leaves(), used, self.cut_off)

    def _empty_next(self, most_moves: int, most_per_host: float) -> bool:
        """Add the cheapest host to the plan; False if none is cheap enough."""
        total = sum(map(_moves, self.changes.values()))
        limit = min(most_per_host, most_moves - total)
        best: tuple[int, int, Changes] | None = None
        hopeless = set()
        for least, machine in self._fewest_first():
            if least > limit or (best is not None and least >= best[0]):
                break
            changes = self._without(machine, total + least)
            if changes is None:
                hopeless.add(machine)
                continue
            cost = sum(map(_moves, changes.values())) - total
            if cost <= limit and (best is None or cost < best[0]):
                best = cost, machine, changes
        if best is None:
            return False
        cost, machine, changes = best
        self.costs.append(cost)
        self.emptied.append(machine)
        gone = hopeless | {machine}
        self.candidates = [m for m in self.candidates if m not in gone]
        for id, change in changes.items():
            self._hold(id, change)
        self.changes = dict(changes)
        return True

    def _fewest_first(self) -> Iterator[tuple[int, int]]:
        """(virtual machines of now that stay there by the plan so far, machine) of candidates."""
        machine_of = self.site.routes.machine_of
        moved = Counter(
            machine_of(old) for change in self.changes.values() for _, old, _ in _all_moves(change)
        )
        unchanged = ((self.units[m], m) for m in self.candidates if m not in moved)
        left = (m for m in self.candidates if m in moved)
        yield from merge(sorted((self.units[m] - moved[m], m) for m in left), unchanged)

    def _without(self, machine: int, least: int) -> Changes | None:
        """The changes that empty one more machine; None if none were found.

        The orders of the allocations are tried until one costs ``least``.
        """
        host, best = self.site.routes.host_of(machine), None
        present = self.present_on[machine]
        moved = {id for id, change in self.changes.items() if host in _counts(change)}
        there = sorted(present.keys() | moved, key=lambda id: (-present[id], id))
        self.site.emptied = np.array([*self.emptied, machine], dtype=np.int64)
        self.site.closed = np.union1d(self.closed, self.site.emptied)
        for order in islice(permutations(there), ORDERS):
            try:
                changes = self._placed(order)
            finally:
                for id in there:
                    self._hold(id, self.changes.get(id))
            if changes is None:
                continue
            if best is None or _total(changes) < _total(best):
                best = changes
            if _total(best) <= least:
                break
        return best

    def _placed(self, order: Sequence[str]) -> Changes | None:
        """The plan so far, with other places for some allocations, found one after the other."""
        changes = {id: change for id, change in self.changes.items() if id not in order}
        for id in order:
            self._hold(id, None)
        for id in order:
            if not self.left or (self.request_budget is not None and self.request_budget.cut):
                raise _OutOfSearches
            self.left -= 1
            present = self.fabric.allocations[id]
            demand = present.held_slots.demand
            answer = change_on(self.site, present, demand, self.budget, self.request_budget)
            if not isinstance(answer, Allocation):
                self.cut_off |= isinstance(answer, NotPlaced) and not answer.proven
                return None
            changes[id] = answer
            self._hold(id, answer)
        return changes

    def _hold(self, id: str, change: Allocation | None) -> None:
        """Hold the present place of an allocation, and that of a change beside it."""
        self.site.release(id)
        held = self.present[id]
        if change is not None:
            both = change.joined(self.fabric.allocations[id])
            held = held_by(self.site, both)
        self.site.hold(held)

    def _leaves(self) -> tuple[tuple[int, int], ...]:
        """The leaves that the plan empties."""
        topology, routes = self.fabric.topology, self.site.routes
        hosts = {routes.host_of(machine) for machine in self.units}
        before = {topology.ports_of(host)[0][:2] for host in hosts}
        gone = {routes.host_of(machine) for machine in self.emptied}
        after = {topology.ports_of(host)[0][:2] for host in hosts - gone}
        return tuple(sorted((pod, leaf) for pod, leaf in before - after))


def _all_moves(change: Allocation) -> Iterator[tuple[int, int, int]]:
    yield from change.held_slots.moves


def _moves(change: Allocation) -> int:
    return sum(1 for _ in _all_moves(change))


def _total(changes: Changes) -> int:
    return sum(map(_moves, changes.values()))


def _counts(change: Allocation) -> Mapping[int, int]:
    return change.held_slots.counts
