# SPDX-License-Identifier: Apache-2.0

"""How many hosts may fit at most, as far as counts and earlier searches tell."""

from collections.abc import Callable

from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.known_fits import KnownFits
from laas_service.domain.search.misfits import NEVER, Misfits
from laas_service.domain.search.shapes import TAKE_FULL_LEAVES, most_hosts


def most_that_may_fit(
    fabric: LedgerView,
    policy: str,
    leaves: int = NEVER,
    in_pod: Callable[[int], int] | None = None,
) -> int:
    """Whatever a request asks for beside its hosts, the policy refuses it if these are more.

    Placements are left out that take more than ``leaves`` leaf groups all of whose hosts are
    free in several pods, or more than ``in_pod(pod)`` hosts in a single one. It is only called
    for pods where that matters.
    """
    if policy not in TAKE_FULL_LEAVES:
        return fabric.free_host_count
    misfits, per_leaf = fabric.reader_cache(Misfits), fabric.topology.hosts_per_group
    full = fabric.groups_by_free[per_leaf].bit_count()
    if full < leaves:
        leaves = full
    if policy == "laas":  # Jigsaw's two pods are not among what is known
        known = (misfits.in_several_pods(fabric) - 1) // per_leaf
        if known < leaves:
            leaves = known
    most, free_hosts = most_hosts(policy, leaves, per_leaf), fabric.pod_free_hosts
    if max(free_hosts) <= most:
        return most
    freed = fabric.pod_freed
    for pod, free in enumerate(free_hosts):
        if free > most:
            limit = min(free, misfits.smallest(pod, freed[pod]) - 1)
            if in_pod is not None and limit > most:
                limit = min(limit, in_pod(pod))
            if limit > most:
                most = limit
    return most


def surely_in_pod(fabric: LedgerView, pod: int, hosts: int) -> bool:
    """Whether a plain request for so many hosts surely fits in a pod, if in no leaf group.

    No leaf group of the fabric misses an uplink (``Ledger.odd_groups``).
    """
    if hosts <= fabric.pod_groups_by_free[pod][-1].bit_count() * fabric.topology.hosts_per_group:
        return True
    known = KnownFits.kept_with(fabric)
    return known is not None and max(known.in_pod(fabric, pod), default=0) >= hosts
