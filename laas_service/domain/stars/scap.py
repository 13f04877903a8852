# SPDX-License-Identifier: Apache-2.0

"""Where a star goes, and who makes room for it: SCAP, SPR and MPR (sections 4.6 to 4.8).

``propose`` looks at a cube and answers; it changes nothing. An answer moves at most two
units for each unit asked, in at most two time slots (Theorems 4.2 and 4.3).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import networkx as nx

from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.stars.cube import Cube
from laas_service.domain.stars.lar import (
    AS_IS,
    ASIDE,
    LINE,
    ONE_MOVE,
    OTHER_POD,
    POD,
    STEP_ASIDE,
    TWO_MOVES,
    Listing,
    Release,
    Way,
)
from laas_service.domain.stars.plan import Move, Plan, StarRequest
from laas_service.domain.stars.units import Kind, Unit
from laas_service.domain.topology import bits


class Method(enum.IntEnum):
    """How far to go for a request; the book's three methods, and a fourth of ours."""

    FIRST_FIT = 1
    """Nobody moves."""
    WITHIN_POD = 2
    """Units of the pod chosen may move within it."""
    ACROSS_PODS = 3
    """They may also move to other pods, and the star may lie across pods if the request
    allows it."""
    EVERY_POD = 4
    """As 3, but every pod is tried, the unit in the way of another may leave its pod, and MPR
    looks at the transposed matrix too."""


def propose(cube: Cube, ask: StarRequest, method: Method = Method.ACROSS_PODS) -> Plan | NoFit:
    """Room for a star, by the fewest kinds of moves that make it."""
    free = sum(cube.room)
    if free < ask.size:
        return NoFit(Refusal.TOO_FEW_HOSTS, f"{free} units are free, {ask.size} asked")
    found = None
    if ask.kind is not Kind.C:
        found = _within_a_pod(cube, ask, method)
    if found is None and _may_cross(ask, method):
        found = multi_pod(cube, ask, method)
    if found is None:
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{free} units are free, but no {ask.size} on one line, nor after moves allowed",
        )
    return found


def _may_cross(ask: StarRequest, method: Method) -> bool:
    return ask.kind is Kind.C or (ask.across and method >= Method.ACROSS_PODS)


def _within_a_pod(cube: Cube, ask: StarRequest, method: Method) -> Plan | None:
    """SCAP but for its last step: the pod with most room, or (ours) every pod.

    Where units may leave it a pod need not have as much room as asked.
    """
    pods = sorted(range(cube.sizes[2]), key=lambda pod: -cube.room[pod])
    if method < Method.EVERY_POD:
        pods = pods[:1]
    roomy = [pod for pod in pods if cube.room[pod] >= ask.size]
    for pod in roomy:
        found = as_it_is(cube, pod, ask)
        if found is not None:
            return found
    for scope in _SCOPES[method]:
        for pod in pods if scope >= OTHER_POD and method is Method.EVERY_POD else roomy:
            found = single_pod(cube, pod, ask, scope)
            if found is not None:
                return found
    return None


_SCOPES = {
    Method.FIRST_FIT: (),
    Method.WITHIN_POD: (ONE_MOVE, TWO_MOVES),
    Method.ACROSS_PODS: (ONE_MOVE, TWO_MOVES, OTHER_POD),
    Method.EVERY_POD: (ONE_MOVE, TWO_MOVES, OTHER_POD, STEP_ASIDE),
}


def as_it_is(cube: Cube, pod: int, ask: StarRequest) -> Plan | None:
    """The first line of a pod with enough free units."""
    axis = ask.kind.axis
    for line, free in enumerate(cube.free[axis][pod]):
        if free.bit_count() >= ask.size:
            listing = Listing(cube, pod, axis, AS_IS)
            units = [listing.unit(line, x) for x in bits(free)]
            return Plan(ask.tenant, _kind(ask), tuple(units[: ask.size]))
    return None


def single_pod(cube: Cube, pod: int, ask: StarRequest, scope: int) -> Plan | None:
    """SPR at one scope: the first line of which enough units can be made free.

    Of those the ones that take fewest moves are.
    """
    listing = Listing(cube, pod, ask.kind.axis, scope)
    for line in range(len(cube.free[ask.kind.axis][pod])):
        releasable = listing.releasable(line)
        if releasable.bit_count() < ask.size:
            continue
        freed = disjoint(listing, line, releasable, ask.size)
        if len(freed) == ask.size:
            return _plan(ask, _kind(ask), freed)
    return None


def disjoint(listing: Listing, line: int, releasable: int, size: int) -> list[Release]:
    """Up to ``size`` releases of units of a line that have no unit in common.

    The book matches units x to the free units z in which their releases end. It is enough to
    match them to lines, each with room for as many as it has free units: see
    ``Listing.chosen``. Both ends of a pair of moves are then disjoint from all others',
    and so are the units between, which lie in different rows.
    """
    found = [listing.any_release(line, x) for x in bits(releasable & listing.free(line))]
    rest = list(bits(releasable & ~listing.free(line)))
    if len(found) < size:
        taken = _matched(listing, line, rest)
        _shortened(listing, line, taken)
        found += sorted(listing.chosen(line, taken), key=lambda release: len(release.moves))
    return found[:size]


def _matched(listing: Listing, line: int, rest: Sequence[int]) -> dict[int, Way]:
    """A largest set of units x, each with the way that it is let out."""
    graph: nx.Graph[object] = nx.Graph()
    graph.add_nodes_from(rest)
    for x in rest:
        for other in bits(listing.direct(line, x) | listing.through(line, x)):
            room = min(listing.free(other).bit_count(), len(rest))
            graph.add_edges_from((x, (Way(LINE, other), place)) for place in range(room))
        for to, numbers in ((POD, listing.pods(line, x)), (ASIDE, listing.aside(line, x))):
            graph.add_edges_from((x, (Way(to, number), x)) for number in bits(numbers))
    pairs = nx.bipartite.hopcroft_karp_matching(graph, top_nodes=rest)
    return {x: pairs[x][0] for x in rest if x in pairs}


def _shortened(listing: Listing, line: int, taken: dict[int, Way]) -> None:
    """Where the matching took two moves (or another pod) and one would do, take one."""
    for x, way in taken.items():
        for other in bits(listing.direct(line, x)):
            better = Way(LINE, other)
            used = sum(1 for taken_way in taken.values() if taken_way == better)
            if way != better and used < listing.free(other).bit_count():
                taken[x] = better
                break


def multi_pod(cube: Cube, ask: StarRequest, method: Method = Method.ACROSS_PODS) -> Plan | None:
    """MPR: the first place (i, j) that can be made free in at least as many pods as asked.

    The book prints ``Num(i, j) > n``; n pods are enough.
    """
    axis = 0 if ask.kind is Kind.C else ask.kind.axis
    axes = (axis, 1 - axis) if method is Method.EVERY_POD else (axis,)
    pods = range(cube.sizes[2])
    if len(pods) < ask.size:
        return None
    last = AS_IS if method is Method.FIRST_FIT else TWO_MOVES
    for scope in range(AS_IS, last + 1):
        sides = [[Listing(cube, pod, side, scope) for side in axes] for pod in pods]
        for line in range(len(cube.free[axis][0])):
            masks = [_releasable(listings, line) for listings in sides]
            place = _first_with(masks, ask.size)
            if place is not None:
                freed = [
                    _any_release(listings, line, place)
                    for listings, mask in zip(sides, masks, strict=True)
                    if mask >> place & 1
                ]
                freed.sort(key=lambda release: len(release.moves))
                return _plan(ask, Kind.C if ask.size > 1 else Kind.S, freed[: ask.size])
    return None


def _releasable(listings: Sequence[Listing], line: int) -> int:
    """Of a line of the first listing; a second one is of the transposed matrix."""
    found = listings[0].releasable(line)
    for other in listings[1:]:
        for x in range(other.lines):
            found |= (other.releasable(x) >> line & 1) << x
    return found


def _any_release(listings: Sequence[Listing], line: int, x: int) -> Release:
    if listings[0].releasable(line) >> x & 1:
        return listings[0].any_release(line, x)
    return listings[1].any_release(x, line)


def _first_with(masks: Iterable[int], least: int) -> int | None:
    """The first bit that is set in at least so many masks; counted in binary, all at once."""
    planes: list[int] = []
    for mask in masks:
        for digit, plane in enumerate(planes):
            planes[digit], mask = plane ^ mask, plane & mask
        if mask:
            planes.append(mask)
    at_least, equal = 0, ~0
    for digit in range(max(len(planes), least.bit_length()) - 1, -1, -1):
        plane = planes[digit] if digit < len(planes) else 0
        if least >> digit & 1:
            equal &= plane
        else:
            at_least |= equal & plane
            equal &= ~plane
    return next(bits(at_least | equal & _union(planes)), None)


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _kind(ask: StarRequest) -> Kind:
    return ask.kind if ask.size > 1 else Kind.S


def _plan(ask: StarRequest, kind: Kind, freed: Sequence[Release]) -> Plan:
    """Pairs of moves take both slots; single ones are made in the first."""
    slots: tuple[list[Move], list[Move]] = ([], [])
    for release in freed:
        for slot, move in zip(slots, release.moves, strict=False):
            slot.append(move)
    units: tuple[Unit, ...] = tuple(release.unit for release in freed)
    return Plan(ask.tenant, kind, units, tuple(tuple(slot) for slot in slots if slot))
