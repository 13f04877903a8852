# SPDX-License-Identifier: Apache-2.0

"""SCAP, SPR and MPR: the search for the units of a star, and for moves that free them.

Source: StarCube (Springer 2016), sections 4.6 to 4.8. ``propose`` reads a cube and does not
change it. A plan has at most two moves for each requested unit, in at most two time slots
(Theorems 4.2 and 4.3).
"""

import enum
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from laas_research.stars.cube import Cube
from laas_research.stars.lar import (
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
from laas_research.stars.plan import Move, Plan, StarRequest
from laas_research.stars.units import Kind, Unit
from laas_service.domain.allocation import NoFit, Refusal
from laas_service.domain.topology import bits


class Method(enum.IntEnum):
    """Which moves a request may cause: the book's three methods, and a fourth of this project."""

    FIRST_FIT = 1
    """No moves."""
    WITHIN_POD = 2
    """Units of the chosen pod may move within the pod."""
    ACROSS_PODS = 3
    """Units may also move to other pods, and the star may have units of different pods if the
    request allows it."""
    EVERY_POD = 4
    """As ``ACROSS_PODS``, and the search tries every pod, a unit may leave its pod to give its
    place to another, and MPR also searches the transposed matrix."""


def propose(cube: Cube, request: StarRequest, method: Method = Method.ACROSS_PODS) -> Plan | NoFit:
    """A plan for a star by the smallest search scope that has one, or the refusal reason."""
    free = sum(cube.room)
    if free < request.size:
        return NoFit(Refusal.TOO_FEW_HOSTS, f"{free} units are free, {request.size} requested")
    plan = None
    if request.kind is not Kind.C:
        plan = _within_a_pod(cube, request, method)
    across = request.across and method >= Method.ACROSS_PODS
    if plan is None and (across or request.kind is Kind.C):
        plan = multi_pod(cube, request, method)
    if plan is None:
        return NoFit(
            Refusal.NO_LEGAL_SHAPE,
            f"{free} units are free, but not {request.size} on one line, "
            "also not after the allowed moves",
        )
    return plan


def _within_a_pod(cube: Cube, request: StarRequest, method: Method) -> Plan | None:
    """SCAP without its last step: tries the pod with most free units, or every pod.

    A pod may have fewer free units than requested if units may leave the pod.
    """
    pods = sorted(range(cube.sizes[2]), key=lambda pod: -cube.room[pod])
    if method < Method.EVERY_POD:
        pods = pods[:1]
    roomy = [pod for pod in pods if cube.room[pod] >= request.size]
    for pod in roomy:
        plan = without_moves(cube, pod, request)
        if plan is not None:
            return plan
    for scope in _SCOPES[method]:
        for pod in pods if scope >= OTHER_POD and method is Method.EVERY_POD else roomy:
            plan = single_pod(cube, pod, request, scope)
            if plan is not None:
                return plan
    return None


_SCOPES = {
    Method.FIRST_FIT: (),
    Method.WITHIN_POD: (ONE_MOVE, TWO_MOVES),
    Method.ACROSS_PODS: (ONE_MOVE, TWO_MOVES, OTHER_POD),
    Method.EVERY_POD: (ONE_MOVE, TWO_MOVES, OTHER_POD, STEP_ASIDE),
}


def without_moves(cube: Cube, pod: int, request: StarRequest) -> Plan | None:
    """A plan on the first line of a pod with enough free units; None if there is none."""
    axis = request.kind.axis
    for line, free in enumerate(cube.free[axis][pod]):
        if free.bit_count() >= request.size:
            listing = Listing(cube, pod, axis, AS_IS)
            units = [listing.unit(line, x) for x in bits(free)]
            return Plan(request.tenant, _kind(request), tuple(units[: request.size]))
    return None


def single_pod(cube: Cube, pod: int, request: StarRequest, scope: int) -> Plan | None:
    """SPR at one scope: a plan on the first line of a pod of which enough units can be freed.

    It frees the units that need the fewest moves. None if no line has enough units.
    """
    listing = Listing(cube, pod, request.kind.axis, scope)
    for line in range(len(cube.free[request.kind.axis][pod])):
        releasable = listing.releasable(line)
        if releasable.bit_count() < request.size:
            continue
        freed = disjoint(listing, line, releasable, request.size)
        if len(freed) == request.size:
            return _plan(request, _kind(request), freed)
    return None


def disjoint(listing: Listing, line: int, releasable: int, size: int) -> list[Release]:
    """Up to ``size`` releases of units of a line that have no unit in common.

    The book matches units x to the free units z in which their releases end. Matching them
    to lines is enough, each line with as many places as it has free units (see
    ``Listing.chosen``). The sources and targets of different releases are then disjoint, and
    so are the units between them, which lie in different rows.
    """
    releases = [listing.any_release(line, x) for x in bits(releasable & listing.free(line))]
    occupied = list(bits(releasable & ~listing.free(line)))
    if len(releases) < size:
        ways = _matched(listing, line, occupied)
        _shortened(listing, line, ways)
        releases += sorted(listing.chosen(line, ways), key=lambda release: len(release.moves))
    return releases[:size]


def _matched(listing: Listing, line: int, occupied: Sequence[int]) -> dict[int, Way]:
    """A largest set of occupied units x that can be freed together, with the way of each."""
    import networkx as nx  # slow to import, and few commands match anything

    graph: nx.Graph[object] = nx.Graph()
    graph.add_nodes_from(occupied)
    for x in occupied:
        for target_line in bits(listing.direct(line, x) | listing.through(line, x)):
            room = min(listing.free(target_line).bit_count(), len(occupied))
            graph.add_edges_from((x, (Way(LINE, target_line), place)) for place in range(room))
        for to, numbers in ((POD, listing.pods(line, x)), (ASIDE, listing.aside(line, x))):
            graph.add_edges_from((x, (Way(to, number), x)) for number in bits(numbers))
    pairs = nx.bipartite.hopcroft_karp_matching(graph, top_nodes=occupied)
    return {x: pairs[x][0] for x in occupied if x in pairs}


def _shortened(listing: Listing, line: int, ways: dict[int, Way]) -> None:
    """Replace ways of two moves, or to another pod, by ways of one move where that is possible."""
    for x, way in ways.items():
        for target_line in bits(listing.direct(line, x)):
            better = Way(LINE, target_line)
            used = sum(1 for other_way in ways.values() if other_way == better)
            if way != better and used < listing.free(target_line).bit_count():
                ways[x] = better
                break


def multi_pod(cube: Cube, request: StarRequest, method: Method = Method.ACROSS_PODS) -> Plan | None:
    """MPR: a plan at the first place (i, j) that can be freed in enough pods; None without one.

    The book prints ``Num(i, j) > n``; n pods are enough.
    """
    axis = 0 if request.kind is Kind.C else request.kind.axis
    axes = (axis, 1 - axis) if method is Method.EVERY_POD else (axis,)
    pods = range(cube.sizes[2])
    if len(pods) < request.size:
        return None
    last = AS_IS if method is Method.FIRST_FIT else TWO_MOVES
    for scope in range(AS_IS, last + 1):
        sides = [[Listing(cube, pod, side, scope) for side in axes] for pod in pods]
        for line in range(len(cube.free[axis][0])):
            masks = [_releasable(listings, line) for listings in sides]
            place = _first_with(masks, request.size)
            if place is not None:
                freed = [
                    _any_release(listings, line, place)
                    for listings, mask in zip(sides, masks, strict=True)
                    if mask >> place & 1
                ]
                freed.sort(key=lambda release: len(release.moves))
                return _plan(request, Kind.C if request.size > 1 else Kind.S, freed[: request.size])
    return None


def _releasable(listings: Sequence[Listing], line: int) -> int:
    """Releasable units of a line of the first listing; a second listing is transposed."""
    mask = listings[0].releasable(line)
    for transposed in listings[1:]:
        for x in range(transposed.lines):
            mask |= (transposed.releasable(x) >> line & 1) << x
    return mask


def _any_release(listings: Sequence[Listing], line: int, x: int) -> Release:
    if listings[0].releasable(line) >> x & 1:
        return listings[0].any_release(line, x)
    return listings[1].any_release(x, line)


def _first_with(masks: Iterable[int], least: int) -> int | None:
    """The first bit that is set in at least ``least`` masks; None if there is none.

    Counts all bits at once, in binary: ``planes[d]`` has digit d of the count of each bit.
    """
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
    return next(bits(at_least | equal & reduce(or_, planes, 0)), None)


def _kind(request: StarRequest) -> Kind:
    return request.kind if request.size > 1 else Kind.S


def _plan(request: StarRequest, kind: Kind, freed: Sequence[Release]) -> Plan:
    """A plan for the freed units; pairs of moves take both slots, single moves the first."""
    slots: tuple[list[Move], list[Move]] = ([], [])
    for release in freed:
        for slot, move in zip(slots, release.moves, strict=False):
            slot.append(move)
    units: tuple[Unit, ...] = tuple(release.unit for release in freed)
    return Plan(request.tenant, kind, units, tuple(tuple(slot) for slot in slots if slot))
