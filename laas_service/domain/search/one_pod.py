# SPDX-License-Identifier: Apache-2.0

"""The second step of a search: several leaf groups of one pod; Jigsaw's FIND_L2.

``leaves`` leaves of equal size have as many free uplinks in common as each needs. A remainder
leaf, if there is one, has enough of these uplinks free (LaaS, Theorem 2; Jigsaw, section 3.2,
conditions 2 and 4).
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from laas_service.domain.allocation import Shape, group_shares
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import (
    BicliqueSpec,
    bicliques,
    greedy_biclique,
    lowest_bits,
)
from laas_service.domain.search.preference import pods_with_room
from laas_service.domain.search.search import Search
from laas_service.domain.search.shapes import Placement, pod_shapes


def in_one_pod(search: Search, hosts: int) -> Iterator[Placement]:
    """Placements of ``hosts`` hosts, in any shape, on two or more leaf groups of one pod."""
    if not search.one_pod_allowed or hosts > max(search.fabric.pod_free_hosts):
        return
    topology, preference = search.topology, search.preference
    shapes = search.fitting(
        pod_shapes(hosts, topology.hosts_per_group, topology.groups_per_pod, topology.taper[0])
    )
    for pod in preference.pods(hosts) if shapes else ():
        known = search.known_in_pod(pod)
        if known and hosts in known:
            yield known[hosts]
        roomy = _roomy_groups(search.fabric.pod_groups_by_free[pod])
        for shape in shapes:
            rest = shape.remainder_hosts
            if (
                roomy[shape.hosts] >= shape.leaves
                and (not rest or roomy[rest] > shape.leaves)
                and preference.may_improve(shape, pod)
            ):
                for placement in _of_shape(search, pod, shape):
                    if known is not None:
                        known.setdefault(hosts, placement)
                    yield placement


def first_in_pod(fabric: LedgerView, pod: int, hosts: int) -> Placement | None:
    """The placement that ``in_one_pod`` finds first in a pod, if a greedy choice of leaves has it.

    For a request without wishes on a fabric with one rail. None if a search has to look for it.
    """
    topology = fabric.topology
    taper, uplinks, free = topology.taper[0], fabric.free_uplinks, fabric.free_hosts
    roomy = _roomy_groups(fabric.pod_groups_by_free[pod])
    for shape in pod_shapes(hosts, topology.hosts_per_group, topology.groups_per_pod, taper):
        rest = shape.remainder_hosts
        if roomy[shape.hosts] >= shape.leaves and (not rest or roomy[rest] > shape.leaves):
            break
    else:
        return None
    width, rest_width = -(-shape.hosts // taper), -(-rest // taper)
    groups = fabric.groups_with_room(pod, rest or shape.hosts)

    def enough(common: int) -> bool:
        return common.bit_count() >= width and (
            not rest or any((common & uplinks[g]).bit_count() >= rest_width for g in groups)
        )

    may_be_full = groups[-roomy[shape.hosts] :]  # the fullest come first
    greedy = greedy_biclique([uplinks[g] for g in may_be_full], shape.leaves, enough)
    if greedy is None:
        return None
    rows, common = greedy
    full = [may_be_full[row] for row in rows]
    if not rest:
        chosen = lowest_bits(common, width)
        shares = group_shares([(g, lowest_bits(free[g], shape.hosts), chosen) for g in full])
        return Placement(tuple(sorted(shares)), (), shape)
    for leaf in groups:
        shared = lowest_bits(common & uplinks[leaf], rest_width)
        if leaf not in full and shared.bit_count() == rest_width:
            chosen = shared | lowest_bits(common ^ shared, width - rest_width)
            fields = [(g, lowest_bits(free[g], shape.hosts), chosen) for g in full]
            fields.append((leaf, lowest_bits(free[leaf], rest), shared))
            return Placement(tuple(group_shares(sorted(fields))), (), shape)
    return None


def on_whole_leaves(search: Search, leaves: int) -> Iterator[Placement]:
    """Placements on ``leaves`` leaf groups of one pod, all of whose hosts are free."""
    if not search.one_pod_allowed:
        return
    shape = Shape(1, leaves, search.topology.hosts_per_group)
    if not search.fitting([shape]):
        return
    for pod in pods_with_room(search.fabric, shape.size):
        roomy = _roomy_groups(search.fabric.pod_groups_by_free[pod])
        if roomy[shape.hosts] >= shape.leaves and search.preference.may_improve(shape, pod):
            yield from _of_shape(search, pod, shape)


def _roomy_groups(by_free: Sequence[int]) -> list[int]:
    """How many leaf groups of a pod have n or more free hosts, for each n.

    ``by_free[n]`` is the bit set of those with exactly n.
    """
    roomy = list(accumulate(map(int.bit_count, reversed(by_free))))
    roomy.reverse()
    return roomy


def _of_shape(search: Search, pod: int, shape: Shape) -> Iterator[Placement]:
    """Placements of one shape in one pod: a biclique of leaves, and each remainder leaf."""
    fabric, uplinks = search.fabric, search.fabric.free_uplinks
    topology = search.topology
    width = topology.uplinks_for(shape.hosts)
    rest_width = topology.uplinks_for(shape.remainder_hosts)
    wide, wide_for_rest = topology.has_uplinks(width), topology.has_uplinks(rest_width)
    groups = remainder_leaves = fabric.groups_with_room(pod, shape.remainder_hosts or shape.hosts)
    if rest_width:  # the fullest come first: those with room for a full leaf are at the end
        groups = groups[-sum(fabric.pod_groups_by_free[pod][shape.hosts :]).bit_count() :]
    else:
        remainder_leaves = []

    def wide_with_remainder(common: int) -> bool:
        if wide(common):
            for group in remainder_leaves:
                if wide_for_rest(common & uplinks[group]):
                    return True
        return False

    spec = BicliqueSpec(
        shape.leaves,
        [(plane, width) for plane in search.topology.plane_fields],
        wide_with_remainder if remainder_leaves else wide,
    )
    rows = [uplinks[group] for group in groups]
    for biclique, common in bicliques(rows, spec, search.budget):
        leaves = search.preference.ordered([groups[row] for row in biclique], shape.hosts)
        if not remainder_leaves:
            yield _placement(search, shape, leaves[: shape.leaves], common, None)
        for leaf in remainder_leaves:
            if wide_for_rest(common & uplinks[leaf]):
                full = [group for group in leaves if group != leaf][: shape.leaves]
                if len(full) == shape.leaves:
                    yield _placement(search, shape, full, common, leaf)


def _placement(
    search: Search, shape: Shape, full: list[int], common: int, remainder_leaf: int | None
) -> Placement:
    """Choose hosts and uplinks: the remainder leaf's uplinks are among the full leaves'."""
    uplinks, preference = search.fabric.free_uplinks, search.preference
    topology = search.topology
    width = topology.uplinks_for(shape.hosts)
    rest_width = topology.uplinks_for(shape.remainder_hosts)
    chosen = rest_chosen = 0
    for plane in search.topology.plane_fields:
        available, shared = common & plane, 0
        if remainder_leaf is not None:
            shared = lowest_bits(available & uplinks[remainder_leaf], rest_width)
        rest_chosen |= shared
        chosen |= shared | lowest_bits(available ^ shared, width - shared.bit_count())
    shares = preference.shares(full, shape.hosts, chosen)
    if remainder_leaf is not None:
        shares += preference.shares((remainder_leaf,), shape.remainder_hosts, rest_chosen)
    return Placement(tuple(sorted(shares)), (), shape)
