# SPDX-License-Identifier: Apache-2.0

"""Making room: which allocations to release, or which drains to undo, for a refused request.

Each suggestion is tried: the policy is asked on a copy of the ledger, under the request's
constraints. The number of such tries is bounded, not the time, so the same state gives the
same suggestion on every machine.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeVar

from laas_service.domain.admission.constrained import propose
from laas_service.domain.allocation import Allocation, Request, Room
from laas_service.domain.budget import UNBOUNDED, RequestBudget
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import Policy

T = TypeVar("T")

MAX_TRIES = 512
"""Suggestions tried for one answer; each costs as much as a request of that size."""

COST_OF_A_TRY, COST_OF_A_CHANGE = 60, 20
"""Units of ``budget`` that a try pays, and pays for each release or undone drain in it."""

GREEDY_TRIES = MAX_TRIES // 8
"""How many of them each greedy search may use to drop releases that are not needed."""


def fits_when_empty(policy: Policy, fabric: LedgerView, request: Request) -> bool:
    """Whether it would fit without other allocations and without drains; faults stay."""
    empty = fabric.unowned()
    for host in sorted(empty.drained_hosts - empty.failed_hosts):
        empty.repair_host(host)
    return _fits(policy, empty, _without_cheapest(request))


def make_room(
    policy: Policy,
    fabric: LedgerView,
    request: Request,
    tries: int = MAX_TRIES,
    budget: RequestBudget | None = None,
) -> Room | None:
    """The cheapest way found to make ``request`` fit; None if none was found.

    Undoing drains disturbs no tenant, so drains are considered before releases: one drain if
    one is enough, else a set from which none can be left out. Otherwise the releases that
    free the fewest hosts (then the fewest releases): first single allocations, smallest first,
    then cheaper sets greedily, then cheaper pairs within a pod. The answer is never more
    expensive than the cheapest single release, unless half of ``tries`` run out first, which takes
    as many live allocations. Drains and releases are not combined, and faults are never undone.

    Each try also pays from ``budget`` for what it releases, and ends the search once nothing is
    left there. The suggestion has been tried: after it, ``policy`` places the request.
    """
    search = _RoomSearch(policy, fabric, request, tries, budget or RequestBudget(UNBOUNDED))
    return search.drains() or search.releases()


class _RoomSearch:
    """Tries suggestions until the number of tries, or the budget, is used up."""

    def __init__(
        self,
        policy: Policy,
        fabric: LedgerView,
        request: Request,
        tries: int,
        budget: RequestBudget,
    ) -> None:
        self._policy = policy
        self._fabric = fabric.copy()
        self._request = _without_cheapest(request)
        self._tries_left = tries
        self._budget = budget
        self._missing = request.hosts - fabric.free_host_count
        self._sizes = {id: allocation.size for id, allocation in fabric.allocations.items()}

    def drains(self) -> Room | None:
        drained = _drained(self._fabric)
        if not drained or not self._helps(undrain=drained):
            return None
        for host in drained:
            if self._helps(undrain=(host,)):
                return Room(undrain=(host,))
        needed = _needed(drained, lambda hosts: self._helps(undrain=hosts))
        return Room(undrain=tuple(needed))

    def releases(self) -> Room | None:
        live = sorted(self._fabric.allocations, key=lambda id: (self._sizes[id], id))
        best = self._single(live)
        for order in (live, self._by_pod(live)):
            released = self._greedy(order)
            if released is not None and (best is None or self._cost(released) < self._cost(best)):
                best = released
        if best is None:
            return None
        for pair in self._pairs(live, self._cost(best)[0]):
            if self._helps(pair):
                best = pair
                break
        return Room(tuple(sorted(best)), hosts=self._cost(best)[0])

    def _single(self, live: Sequence[str]) -> list[str] | None:
        """The smallest single release that helps.

        One of the request's size or more, which nearly always does, is tried before smaller ones.
        """
        wanted = bisect_left(live, self._request.hosts, key=self._sizes.__getitem__)
        kept = self._tries_left // 2

        def first(of: Sequence[str]) -> list[str] | None:
            return next(([id] for id in of if self._tries_left > kept and self._helps([id])), None)

        enough = first(live[wanted:])
        return first(live[:wanted]) or enough

    def _greedy(self, order: Sequence[str]) -> list[str] | None:
        """The shortest prefix of ``order`` that helps, without those that are not needed."""
        if not self._helps(order):
            return None
        shorter = range(1, len(order))  # lengths; bisection finds the first one that helps
        fits = bisect_left(shorter, True, key=lambda n: self._helps(order[:n])) + 1
        prefix = sorted(order[:fits], key=lambda id: (-self._sizes[id], id))
        tries = iter(range(GREEDY_TRIES))
        return _needed(prefix, lambda rest: next(tries, None) is not None and self._helps(rest))

    def _by_pod(self, live: Sequence[str]) -> list[str]:
        """Pod by pod; the pod with the most free hosts first."""
        free = self._fabric.pod_free_hosts
        first = {id: min((-free[pod], pod) for pod in self._pods(id)) for id in live}
        return sorted(live, key=lambda id: (first[id], self._sizes[id], id))

    def _pods(self, id: str) -> set[int]:
        width = self._fabric.topology.groups_per_pod
        return {share.group // width for share in self._fabric.allocations[id].groups}

    def _pairs(self, live: Sequence[str], below: int) -> Iterator[list[str]]:
        """Pairs with a pod in common, cheapest first, cheaper than ``below`` hosts."""
        if self._tries_left <= 0 or not self._budget.spend(len(live)):
            return
        small = [id for id in live if self._sizes[id] < below][: self._tries_left]
        pods = {id: self._pods(id) for id in small}
        pairs = [
            [a, b]
            for a, b in combinations(small, 2)
            if self._sizes[a] + self._sizes[b] < below and pods[a] & pods[b]
        ]
        yield from sorted(pairs, key=self._cost)

    def _cost(self, released: Sequence[str]) -> tuple[int, int]:
        """Hosts that tenants lose, and how many allocations."""
        return sum(map(self._sizes.__getitem__, released)), len(released)

    def _helps(self, released: Sequence[str] = (), undrain: Sequence[int] = ()) -> bool:
        """Whether the request fits after this; False once no tries or no budget is left."""
        if self._cost(released)[0] + len(undrain) < self._missing or self._tries_left <= 0:
            return False
        changes = len(released) + len(undrain)
        if not self._budget.spend(COST_OF_A_TRY + COST_OF_A_CHANGE * changes):
            self._tries_left = 0
            return False
        self._tries_left -= 1
        with self._fabric.trial():
            for id in released:
                self._fabric.release(id)
            for host in undrain:
                self._fabric.repair_host(host)
            return _fits(self._policy, self._fabric, self._request)


def _without_cheapest(request: Request) -> Request:
    """The same request at any cost of hosts: searching for the cheapest takes longer."""
    if request.constraints is None:
        return request
    return replace(request, constraints=request.constraints.musts)


def _fits(policy: Policy, fabric: LedgerView, request: Request) -> bool:
    return isinstance(propose(policy, fabric, request), Allocation)


def _drained(fabric: LedgerView) -> tuple[int, ...]:
    """Drained hosts that are free once their drain is undone."""
    hosts = sorted(fabric.drained_hosts - fabric.failed_hosts)
    owners = fabric.owners_of_hosts() if hosts else {}
    return tuple(host for host in hosts if host not in owners)


def _needed(items: Sequence[T], helps: Callable[[Sequence[T]], bool]) -> list[T]:
    """Leaves out, in order, each item without which the rest still helps; returns the rest."""
    needed = list(items)
    for item in items:
        rest = [kept for kept in needed if kept is not item]
        if rest and helps(rest):
            needed = rest
    return needed
