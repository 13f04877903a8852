# SPDX-License-Identifier: Apache-2.0

"""Making room: what would have to go so that a refused request fits.

The policy's own answer, on a copy of the ledger and under the request's constraints, is
the judge of every suggestion; work is bounded by a number of such *looks*, never by a
clock, so that the same state gives the same suggestion everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeVar

from laas_service.domain.admission.constrained import propose
from laas_service.domain.allocation import Allocation, Request, Room
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.policies.base import Policy

T = TypeVar("T")

LOOKS = 512
"""Placements tried for one answer; each costs what a request of that size does."""

GREEDY = LOOKS // 8
"""Of these for each of the greedy searches, so that the exact ones have most."""


def fits_when_empty(policy: Policy, fabric: LedgerView, request: Request) -> bool:
    """Whether it would fit with all others gone and all drains undone; failures stay."""
    ids = tuple(fabric.allocations)
    twin = fabric.copy()
    _make(twin, Room(ids, _drained(fabric, ids)))
    return _fits(policy, twin, _unwished(request))


def make_room(
    policy: Policy, fabric: LedgerView, request: Request, looks: int = LOOKS
) -> Room | None:
    """The cheapest way found to make ``request`` fit; None if none was found.

    Undoing drains disturbs no tenant, so it comes before releases: one drain if one
    will do, else some of which none can be left out. Otherwise releases that free the
    fewest hosts (of these the fewest releases): greedily, then every single allocation
    that is cheaper, smallest first, then pairs within a pod. The answer is never dearer
    than the cheapest single release, unless ``looks`` run out first, which takes more
    live allocations than about half of ``looks``. Drains and releases are not mixed, and
    faults are never undone.

    What is suggested has been tried: after it, ``policy`` places the request.
    """
    search = _Search(policy, fabric, request, looks)
    return search.drains() or search.releases()


class _Search:
    """Looks at what-ifs until the budget is spent."""

    def __init__(self, policy: Policy, fabric: LedgerView, request: Request, looks: int) -> None:
        self._policy = policy
        self._fabric = fabric.copy()
        self._request = _unwished(request)
        self._left = looks
        self._missing = request.hosts - fabric.free_host_count

    def drains(self) -> Room | None:
        drained = _drained(self._fabric)
        if not drained or not self._helps(Room(undrain=drained)):
            return None
        for host in drained:
            if self._helps(Room(undrain=(host,))):
                return Room(undrain=(host,))
        kept = _thinned(drained, lambda some: self._helps(Room(undrain=tuple(some))))
        return Room(undrain=tuple(kept))

    def releases(self) -> Room | None:
        live = sorted(self._fabric.allocations.values(), key=lambda a: (a.size, a.id))
        best: list[Allocation] | None = None
        for order in (live, self._by_pod(live)):
            found = self._greedy(order)
            if found is not None and (best is None or _cost(found) < _cost(best)):
                best = found
        if best is None:
            return None
        for some in (*([one] for one in live), *self._pairs(live, _cost(best)[0])):
            if self._left <= 0:
                break
            if _cost(some) < _cost(best) and self._helps(_room(some)):
                best = some
        return _room(best)

    def _greedy(self, order: Sequence[Allocation]) -> list[Allocation] | None:
        """The shortest beginning of ``order`` that helps, less what can stay of it."""
        if not self._helps(_room(order)):
            return None
        misfits, fits = 0, len(order)
        while fits - misfits > 1:
            middle = (fits + misfits) // 2
            if self._helps(_room(order[:middle])):
                fits = middle
            else:
                misfits = middle
        some = sorted(order[:fits], key=lambda a: (-a.size, a.id))
        tries = iter(range(GREEDY))
        return _thinned(
            some, lambda rest: next(tries, None) is not None and self._helps(_room(rest))
        )

    def _by_pod(self, live: Sequence[Allocation]) -> list[Allocation]:
        """Pod by pod, first the pod that has the most free hosts."""
        free = self._fabric.pod_free_hosts
        return sorted(
            live, key=lambda a: (min((-free[pod], pod) for pod in self._pods(a)), a.size, a.id)
        )

    def _pods(self, allocation: Allocation) -> set[int]:
        width = self._fabric.topology.groups_per_pod
        return {share.group // width for share in allocation.groups}

    def _pairs(self, live: Sequence[Allocation], below: int) -> Iterator[list[Allocation]]:
        """Pairs that meet in a pod, cheapest first, cheaper than ``below`` hosts."""
        small = [one for one in live if one.size < below][: self._left]
        pods = {one.id: self._pods(one) for one in small}
        pairs = [
            [a, b]
            for a, b in combinations(small, 2)
            if a.size + b.size < below and pods[a.id] & pods[b.id]
        ]
        yield from sorted(pairs, key=_cost)

    def _helps(self, room: Room) -> bool:
        """Whether the request fits after this; False once the budget is spent."""
        if room.hosts + len(room.undrain) < self._missing or self._left <= 0:
            return False
        self._left -= 1
        with self._fabric.trial():
            _make(self._fabric, room)
            return _fits(self._policy, self._fabric, self._request)


def _unwished(request: Request) -> Request:
    """The same request wherever it fits; looking for the cheapest place takes longer."""
    if request.constraints is None:
        return request
    return replace(request, constraints=request.constraints.musts)


def _fits(policy: Policy, fabric: LedgerView, request: Request) -> bool:
    return isinstance(propose(policy, fabric, request), Allocation)


def _make(fabric: Ledger, room: Room) -> None:
    for id in room.releases:
        fabric.release(id)
    for host in room.undrain:
        fabric.repair_host(host)


def _drained(fabric: LedgerView, released: Sequence[str] = ()) -> tuple[int, ...]:
    """Hosts that undoing their drain makes free, once ``released`` are gone."""
    owners = fabric.owners_of_hosts()
    hosts = sorted(fabric.drained_hosts - fabric.failed_hosts)
    return tuple(host for host in hosts if owners.get(host) in (None, *released))


def _room(some: Sequence[Allocation]) -> Room:
    return Room(tuple(sorted(a.id for a in some)), hosts=sum(a.size for a in some))


def _cost(some: Sequence[Allocation]) -> tuple[int, int]:
    """Hosts that tenants lose, and how many tenants."""
    return (sum(a.size for a in some), len(some))


def _thinned(some: Sequence[T], helps: Callable[[Sequence[T]], bool]) -> list[T]:
    """``some`` without those, the first first, that can be left out."""
    kept = list(some)
    for one in some:
        rest = [other for other in kept if other is not one]
        if rest and helps(rest):
            kept = rest
    return kept
