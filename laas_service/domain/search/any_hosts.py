# SPDX-License-Identifier: Apache-2.0

"""Any hosts out of some leaf groups: what policies that claim no links choose under constraints."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from laas_service.domain.allocation import GroupShare
from laas_service.domain.constraints import Constraints
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import bits

Choice = tuple[int, int, int]
"""Cost, leaf group, slot."""


def any_hosts(
    fabric: LedgerView, places: Iterable[Collection[int]], hosts: int, wish: Constraints
) -> list[GroupShare]:
    """``hosts`` free hosts of one of the ``places`` (sets of leaf groups); [] if none has them.

    They are in at least ``wish.spread`` pods. With ``wish.cheapest`` they cost least of
    all such hosts; else the place with the least room that is enough is taken.
    """
    found = []
    for place in places:
        room = sum(fabric.free_hosts[group].bit_count() for group in place)
        if room >= hosts and (some := _chosen(fabric, place, hosts, wish)):
            found.append((sum(cost for cost, _, _ in some), room, some))
    if not found:
        return []
    masks: dict[int, int] = {}
    for _, group, slot in min(found)[2]:
        masks[group] = masks.get(group, 0) | 1 << slot
    return [GroupShare(group, mask, 0) for group, mask in sorted(masks.items())]


def _chosen(
    fabric: LedgerView, place: Collection[int], hosts: int, wish: Constraints
) -> list[Choice]:
    """The cheapest host of each of as many pods as needed, then the cheapest of the rest.

    The pods are those whose cheapest host is cheapest: a choice that lacks one of them
    has a host in another pod that can be changed for that pod's cheapest at no loss.
    """
    width = fabric.topology.groups_per_pod
    choices = sorted(_free(fabric, place, wish.cheapest))
    first: dict[int, Choice] = {}
    for choice in choices:
        first.setdefault(choice[1] // width, choice)
    if len(first) < wish.spread or hosts < wish.spread:
        return []
    kept = list(islice(first.values(), wish.spread)) if wish.spread > 1 else []
    rest = (choice for choice in choices if choice not in kept)
    return kept + list(islice(rest, hosts - len(kept)))


def _free(fabric: LedgerView, place: Collection[int], by_cost: bool) -> Iterable[Choice]:
    """Free hosts of these groups; all cost the same where nobody asks."""
    topology, features = fabric.topology, fabric.features
    for group in place:
        for slot in bits(fabric.free_hosts[group]):
            host = topology.host_at(group, slot)
            yield (features.of(host).cost if by_cost and host is not None else 0, group, slot)
