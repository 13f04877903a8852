# SPDX-License-Identifier: Apache-2.0

"""Sets of pods for a shape's full pods: searched first, and bounded where a search drags on.

Most sets are found, and most shapes refused, in fewer steps than the bounds take.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from laas_service.domain.allocation import Shape
from laas_service.domain.search.bicliques import BicliqueSpec, bicliques
from laas_service.domain.search.budget import SearchBudget
from laas_service.domain.search.pod_sets import bounded_sets, candidates
from laas_service.domain.search.pod_view import PodView

COST_OF_BOUNDS = 3
"""Units of work to compute the bounds, for each L2 switch. A first try takes no more."""
PART_TO_TRY = 2
"""A try takes 1 / ``PART_TO_TRY`` of the units left for tries at most."""


def full_pod_sets(view: PodView, pods: list[int], shape: Shape) -> Iterator[Sequence[int]]:
    """The sets of ``pod_sets`` for full leaves that need all uplinks of the view.

    The first set has the same spines in common above all L2 switches. Taking it keeps the
    columns alike for later tenants. Then follow the sets that share enough spines, found

    * without bounds, until a search in this state of the fabric drags on;
    * among the pods that the spine bounds leave, each bound being computed once;
    * with bounds at each node of the search tree (``bounded_sets``).
    """
    alike = _alike(view, pods, shape)
    searched = _single_pods if shape.pods == 1 else _searched_sets
    sets = searched(view, pods, shape)
    return chain((alike,), sets) if alike else sets


def _single_pods(view: PodView, pods: list[int], shape: Shape) -> Iterator[Sequence[int]]:
    enough = view.needs.enough_spines(shape.leaves)
    return ([pod] for pod in pods if enough(view.pod_spines(pod).lanes))


def _searched_sets(view: PodView, pods: list[int], shape: Shape) -> Iterator[Sequence[int]]:
    budget, bounds = view.budget, view.spine_bounds
    if not bounds.needed:
        cost_of_bounds = COST_OF_BOUNDS * len(view.counts) * len(view.columns)
        first_try = budget.first_try(min(cost_of_bounds, budget.to_try // PART_TO_TRY))
        yield from _sets(view, pods, shape, first_try)
        if not first_try.exceeded:
            return
        bounds.needed = bounds.needed or not budget.trying
    if budget.give_up_trying():
        return
    pods = candidates(view, pods, shape)
    if len(pods) >= shape.pods:
        second_try = budget.first_try(budget.to_try // PART_TO_TRY)
        yield from _sets(view, pods, shape, second_try)
        if second_try.exceeded:
            yield from bounded_sets(view, pods, shape)


def _alike(view: PodView, pods: list[int], shape: Shape) -> list[int] | None:
    """The first pods that have enough spines in common, the same above all L2 switches."""
    most, wanted = max(view.min_spines(shape.leaves)), shape.pods
    common, chosen = -1, []
    for pod in pods:
        shared = common & view.pod_spines(pod).alike
        if shared.bit_count() >= most:
            common = shared
            chosen.append(pod)
            if len(chosen) == wanted:
                return chosen
    return None


def _sets(
    view: PodView, pods: list[int], shape: Shape, budget: SearchBudget
) -> Iterator[list[int]]:
    """Sets of pods with enough spines in common, searched without bounds."""
    spines = [view.pod_spines(pod) for pod in pods]
    if all(masks.equal for masks in spines):
        rows = [masks.alike for masks in spines]
        enough = _has_bits(max(view.min_spines(shape.leaves)))
    else:
        rows = [masks.lanes for masks in spines]
        enough = view.needs.enough_spines(shape.leaves)
    for biclique, _ in bicliques(rows, BicliqueSpec(shape.pods, (), enough), budget):
        yield [pods[row] for row in biclique]


def _has_bits(count: int) -> Callable[[int], bool]:
    return lambda mask: mask.bit_count() >= count
