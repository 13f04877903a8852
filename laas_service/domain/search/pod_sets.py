# SPDX-License-Identifier: Apache-2.0

"""Sets of pods that share the spine uplinks of a shape's full pods; Jigsaw's FIND_L3."""

from collections.abc import Callable, Iterator

from laas_service.domain.allocation import Shape
from laas_service.domain.search.bicliques import BicliqueSpec, bicliques, greedy_biclique
from laas_service.domain.search.pod_view import PodView

WORK_WITHOUT_BOUNDS = 2_000
"""Units of work of the search that comes before the bounds on sets of pods."""


def pod_sets(view: PodView, pods: list[int], shape: Shape) -> Iterator[list[int]]:
    """Sets of ``shape.pods`` or more of ``pods`` with enough common spine uplinks.

    The first set has the same spines in common above all L2 switches. It is found quickly,
    and taking it keeps the columns alike for later tenants. Then follow the bicliques of the
    matrix of all columns side by side: every set of ``shape.pods`` pods with enough spine
    uplinks in common lies in one of them.
    """
    need = view.min_spines(shape.leaves)
    if view.all_used:
        most = max(need)
        rows = [view.alike_spines(pod) for pod in pods]
        alike = greedy_biclique(rows, shape.pods, lambda common: common.bit_count() >= most)
        if alike:
            yield [pods[row] for row in alike[0]]
    with view.budget.attempt(WORK_WITHOUT_BOUNDS):
        first, none = _first_set(view, pods, shape, need)
    if none:
        return
    if first:
        yield first
    if view.budget.give_up_trying():
        return
    pods = candidates(view, pods, shape)
    if len(pods) >= shape.pods:
        yield from bounded_sets(view, pods, shape)


def bounded_sets(view: PodView, pods: list[int], shape: Shape) -> Iterator[list[int]]:
    """Such sets of ``candidates``, with bounds at each node of the search tree.

    They take half of the units left at most.
    """
    with view.budget.portion(2):
        rows, spec = _matrix(view, pods, shape, view.min_spines(shape.leaves))
        for biclique, _ in bicliques(rows, spec, view.budget):
            yield [pods[row] for row in biclique]


def candidates(view: PodView, pods: list[int], shape: Shape) -> list[int]:
    """The pods that the spine bounds do not rule out as full pods of the shape."""
    left = _candidates(view, pods, shape, view.min_spines(shape.leaves))
    return [pod for pod in pods if left >> pod & 1]


def _first_set(
    view: PodView, pods: list[int], shape: Shape, need: list[int]
) -> tuple[list[int] | None, bool]:
    """The greedy set of pods, if there is one, and whether a short search shows there is none.

    The bounds only drop pods that belong to no set, and the greedy set has none of these. So
    it is the same set with the bounds and without.
    """
    if not view.budget.left:
        return None, False
    rows, spec = _matrix(view, pods, shape, need)
    greedy = greedy_biclique(rows, shape.pods, spec.enough)
    if greedy:
        return [pods[row] for row in greedy[0]], False
    none = next(bicliques(rows, spec, view.budget), None) is None
    return None, none and not view.budget.exceeded


def _candidates(view: PodView, pods: list[int], shape: Shape, need: list[int]) -> int:
    """The pods that the spine bounds do not rule out, as a bit set."""
    among = sum(1 << pod for pod in pods)
    if view.all_used:
        needed = [count for count in need if count]
        return view.spine_bounds.candidates(among, shape.pods, min(needed), len(needed))
    used = [column for column, size in zip(view.columns, view.bundle_sizes, strict=True) if size]
    least = min(view.spines_for(shape.leaves, column) for column in used)
    columns_per_plane = -(-view.uplinks_for(view.leaf_hosts) // max(view.bundle_sizes))
    columns = len(view.spare) * columns_per_plane
    return view.spine_bounds.candidates(among, shape.pods, least, columns)


def _matrix(
    view: PodView, pods: list[int], shape: Shape, need: list[int]
) -> tuple[list[int], BicliqueSpec]:
    """The columns of each pod side by side in one mask, and which bicliques are wanted.

    If a full leaf needs all uplinks of the view, columns that are equal in all pods are kept
    once.
    """
    width = view.fabric.topology.tree.w[2]
    field = (1 << width) - 1
    view.budget.spend(len(pods) * len(view.columns))
    spines = [view.spines(pod) for pod in pods]
    needed: dict[tuple[int, ...], int] = {}
    for column, count in zip(view.columns, need, strict=True):
        of_pods = tuple([masks[column.number] for masks in spines])
        key = of_pods if view.all_used else (*of_pods, column.number)
        needed[key] = max(count, needed.get(key, 0))
    rows = [0] * len(pods)
    for place, key in enumerate(needed):
        for row in range(len(pods)):
            rows[row] |= key[row] << place * width
    fields = [(field << place * width, count) for place, count in enumerate(needed.values())]

    def enough(common: int) -> bool:
        for mask, count in fields:
            if (common & mask).bit_count() < count:
                return False
        return view.all_used or _carries_full_leaves(view, common, shape.leaves)

    needs = [(mask, count) for mask, count in fields if count]
    trim = None if view.all_used else _trimmer(view, shape)
    return rows, BicliqueSpec(shape.pods, needs, enough, trim)


def _trimmer(view: PodView, shape: Shape) -> Callable[[int], int]:
    """A function that drops the columns of a mask that carry no uplink of the full leaves."""
    width = view.fabric.topology.tree.w[2]
    field = (1 << width) - 1
    fields = [
        (field << column.number * width, view.spines_for(shape.leaves, column))
        for column in view.columns
    ]

    def trim(common: int) -> int:
        for mask, count in fields:
            if (common & mask).bit_count() < count:
                common &= ~mask
        return common

    return trim


def _carries_full_leaves(view: PodView, common: int, leaves: int) -> bool:
    """Whether these spine uplinks carry the uplinks of ``leaves`` full leaves of a pod."""
    width = view.fabric.topology.tree.w[2]
    field = (1 << width) - 1
    carried = [0] * len(view.spare)
    for size, column in zip(view.bundle_sizes, view.columns, strict=True):
        spines = common >> column.number * width & field
        carried[column.plane] += min(size, view.capacity(spines, column) // leaves)
    return min(carried) >= view.uplinks_for(view.leaf_hosts)
