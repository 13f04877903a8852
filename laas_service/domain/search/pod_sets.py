# SPDX-License-Identifier: Apache-2.0

"""Sets of pods that share the spine uplinks of a shape's full pods; Jigsaw's FIND_L3."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from laas_service.domain.allocation import Shape
from laas_service.domain.search.bicliques import BicliqueSpec, bicliques, greedy_biclique
from laas_service.domain.search.pod_view import PodView


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
    candidates = _candidates(view, pods, shape, need)
    pods = [pod for pod in pods if candidates >> pod & 1]
    if len(pods) >= shape.pods:
        with view.budget.portion(2):
            rows, spec = _matrix(view, pods, shape, need)
            for biclique, _ in bicliques(rows, spec, view.budget):
                yield [pods[row] for row in biclique]


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
    needed: dict[tuple[int, ...], int] = {}
    for column, count in zip(view.columns, need, strict=True):
        masks = tuple(view.spines(pod)[column.number] for pod in pods)
        key = masks if view.all_used else (*masks, column.number)
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
