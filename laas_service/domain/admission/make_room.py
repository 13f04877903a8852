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
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies.base import Policy

T = TypeVar("T")

MAX_TRIES = 512
"""Suggestions tried for one answer; each costs as much as a request of that size."""

GREEDY_TRIES = MAX_TRIES // 8
"""How many of them each greedy search may use to drop releases that are not needed."""


def fits_when_empty(policy: Policy, fabric: LedgerView, request: Request) -> bool:
    """Whether it would fit without other allocations and without drains; faults stay."""
    ids = tuple(fabric.allocations)
    empty = fabric.copy()
    _apply(empty, Room(ids, _drained(fabric, ids)))
    return _fits(policy, empty, _without_cheapest(request))


def make_room(
    policy: Policy, fabric: LedgerView, request: Request, tries: int = MAX_TRIES
) -> Room | None:
    """The cheapest way found to make ``request`` fit; None if none was found.

    Undoing drains disturbs no tenant, so drains are considered before releases: one drain if
    one is enough, else a set from which none can be left out. Otherwise the releases that
    free the fewest hosts (then the fewest releases): first greedily, then every cheaper
    single allocation, smallest first, then pairs within a pod. The answer is never more
    expensive than the cheapest single release, unless ``tries`` run out first, which takes
    more live allocations than about half of ``tries``. Drains and releases are not combined,
    and faults are never undone.

    The suggestion has been tried: after it, ``policy`` places the request.
    """
    search = _Search(policy, fabric, request, tries)
    return search.drains() or search.releases()


class _Search:
    """Tries suggestions until the number of tries is used up."""

    def __init__(self, policy: Policy, fabric: LedgerView, request: Request, tries: int) -> None:
        self._policy = policy
        self._fabric = fabric.copy()
        self._request = _without_cheapest(request)
        self._tries_left = tries
        self._missing = request.hosts - fabric.free_host_count

    def drains(self) -> Room | None:
        drained = _drained(self._fabric)
        if not drained or not self._helps(Room(undrain=drained)):
            return None
        for host in drained:
            if self._helps(Room(undrain=(host,))):
                return Room(undrain=(host,))
        needed = _needed(drained, lambda hosts: self._helps(Room(undrain=tuple(hosts))))
        return Room(undrain=tuple(needed))

    def releases(self) -> Room | None:
        live = sorted(self._fabric.allocations.values(), key=lambda a: (a.size, a.id))
        best: list[Allocation] | None = None
        for order in (live, self._by_pod(live)):
            released = self._greedy(order)
            if released is not None and (best is None or _cost(released) < _cost(best)):
                best = released
        if best is None:
            return None
        for released in (*([single] for single in live), *self._pairs(live, _cost(best)[0])):
            if self._tries_left <= 0:
                break
            if _cost(released) < _cost(best) and self._helps(_room(released)):
                best = released
        return _room(best)

    def _greedy(self, order: Sequence[Allocation]) -> list[Allocation] | None:
        """The shortest prefix of ``order`` that helps, without those that are not needed."""
        if not self._helps(_room(order)):
            return None
        shorter = range(1, len(order))  # lengths; bisection finds the first one that helps
        fits = bisect_left(shorter, True, key=lambda n: self._helps(_room(order[:n]))) + 1
        prefix = sorted(order[:fits], key=lambda a: (-a.size, a.id))
        tries = iter(range(GREEDY_TRIES))
        return _needed(
            prefix, lambda rest: next(tries, None) is not None and self._helps(_room(rest))
        )

    def _by_pod(self, live: Sequence[Allocation]) -> list[Allocation]:
        """Pod by pod; the pod with the most free hosts first."""
        free = self._fabric.pod_free_hosts
        return sorted(
            live, key=lambda a: (min((-free[pod], pod) for pod in self._pods(a)), a.size, a.id)
        )

    def _pods(self, allocation: Allocation) -> set[int]:
        width = self._fabric.topology.groups_per_pod
        return {share.group // width for share in allocation.groups}

    def _pairs(self, live: Sequence[Allocation], below: int) -> Iterator[list[Allocation]]:
        """Pairs with a pod in common, cheapest first, cheaper than ``below`` hosts."""
        small = [allocation for allocation in live if allocation.size < below][: self._tries_left]
        pods = {allocation.id: self._pods(allocation) for allocation in small}
        pairs = [
            [a, b]
            for a, b in combinations(small, 2)
            if a.size + b.size < below and pods[a.id] & pods[b.id]
        ]
        yield from sorted(pairs, key=_cost)

    def _helps(self, room: Room) -> bool:
        """Whether the request fits after this; False once no tries are left."""
        if room.hosts + len(room.undrain) < self._missing or self._tries_left <= 0:
            return False
        self._tries_left -= 1
        with self._fabric.trial():
            _apply(self._fabric, room)
            return _fits(self._policy, self._fabric, self._request)


def _without_cheapest(request: Request) -> Request:
    """The same request at any cost of hosts: searching for the cheapest takes longer."""
    if request.constraints is None:
        return request
    return replace(request, constraints=request.constraints.musts)


def _fits(policy: Policy, fabric: LedgerView, request: Request) -> bool:
    return isinstance(propose(policy, fabric, request), Allocation)


def _apply(fabric: Ledger, room: Room) -> None:
    for id in room.releases:
        fabric.release(id)
    for host in room.undrain:
        fabric.repair_host(host)


def _drained(fabric: LedgerView, released: Sequence[str] = ()) -> tuple[int, ...]:
    """Drained hosts that are free once their drain is undone and ``released`` are released."""
    owners = fabric.owners_of_hosts()
    hosts = sorted(fabric.drained_hosts - fabric.failed_hosts)
    return tuple(host for host in hosts if owners.get(host) in (None, *released))


def _room(released: Sequence[Allocation]) -> Room:
    return Room(tuple(sorted(a.id for a in released)), hosts=sum(a.size for a in released))


def _cost(released: Sequence[Allocation]) -> tuple[int, int]:
    """Hosts that tenants lose, and how many allocations."""
    return (sum(a.size for a in released), len(released))


def _needed(items: Sequence[T], helps: Callable[[Sequence[T]], bool]) -> list[T]:
    """Leaves out, in order, each item without which the rest still helps; returns the rest."""
    needed = list(items)
    for item in items:
        rest = [kept for kept in needed if kept is not item]
        if rest and helps(rest):
            needed = rest
    return needed
