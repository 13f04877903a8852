# SPDX-License-Identifier: Apache-2.0

"""Answers that need no search, for requests that fit in no single leaf group.

Each is the answer that the search would give (``Search.answer``), which remembers as much.
"""

from __future__ import annotations

from laas_service.domain.allocation import Allocation, NoFit, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.known_fits import InSeveralPods, KnownFits
from laas_service.domain.search.misfits import NEVER, Misfits
from laas_service.domain.search.one_pod import first_in_pod
from laas_service.domain.search.search import is_plain, no_legal_shape
from laas_service.domain.search.shapes import Placement
from laas_service.domain.search.whole_leaves import Unplaced


def answer_without_search(
    fabric: LedgerView, policy: str, request: Request, leaves: int, rest: int
) -> Allocation | NoFit | None:
    """What a search would answer, if that is easily told; for a request that fits in no leaf group.

    In several pods it takes ``leaves`` full leaf groups and a remainder leaf of ``rest`` hosts.
    Without the objects that a search needs, an answer takes a quarter of the time.
    """
    hosts = request.hosts
    if not is_plain(fabric, request) or hosts > fabric.free_host_count:
        return None
    pod = first_pod(fabric, hosts)
    if pod is not None:
        placement = placement_in_pod(fabric, pod, hosts)
    else:
        misfits, size = (
            fabric.reader_cache(Misfits),
            leaves * fabric.topology.hosts_per_group + rest,
        )
        if hosts >= misfits.smallest(policy, fabric.freed):
            return no_legal_shape(fabric, hosts)
        full_groups = fabric.groups_by_free[-1].bit_count()
        if leaves > full_groups or size >= misfits.in_several_pods(fabric):
            misfits.remember(policy, fabric.freed, hosts)
            return no_legal_shape(fabric, hosts)
        if rest or any(fabric.odd_groups):
            return None
        known = known_in_several_pods(fabric)
        placement = known.placements.get(leaves)
        if placement is None:
            answer = known.leaves.place(leaves)
            if answer is Unplaced.UNKNOWN:
                return None
            if answer is Unplaced.NONE:
                misfits.remember(policy, fabric.freed, hosts)
                misfits.remember_in_several_pods(fabric, size, fabric.topology.hosts_per_group)
                return no_legal_shape(fabric, hosts)
            placement = known.placements[leaves] = answer
    if placement is None:
        return None
    groups, columns, shape = placement
    return Allocation(request.id, hosts, policy, groups, columns, shape)


def first_pod(fabric: LedgerView, hosts: int) -> int | None:
    """The pod on several of whose leaf groups a search looks for so many hosts first.

    That is the fullest pod with room (``pods_with_room``). None if they are known not to fit in
    any pod.
    """
    first, least = None, NEVER
    free = fabric.pod_free_hosts
    if hosts <= max(free):
        misfits, freed = fabric.reader_cache(Misfits), fabric.pod_freed
        for pod, count in enumerate(free):
            if hosts <= count < least and hosts < misfits.smallest(pod, freed[pod]):
                first, least = pod, count
    return first


def placement_in_pod(fabric: LedgerView, pod: int, hosts: int) -> Placement | None:
    """The placement on several leaf groups of a pod that a search finds first, if easily told."""
    kept = KnownFits.kept_with(fabric)
    if kept is None:
        return first_in_pod(fabric, pod, hosts)
    known = kept.in_pod(fabric, pod)
    placement = known.get(hosts)
    if placement is None:
        placement = first_in_pod(fabric, pod, hosts)
        if placement is not None:
            known[hosts] = placement
    return placement


def known_in_several_pods(fabric: LedgerView) -> InSeveralPods:
    """What is known of full leaf groups in several pods; no leaf group misses an uplink."""
    kept = KnownFits.kept_with(fabric)
    return InSeveralPods.of(fabric) if kept is None else kept.in_several_pods(fabric)
