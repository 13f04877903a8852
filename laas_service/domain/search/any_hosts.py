# SPDX-License-Identifier: Apache-2.0

"""Any free hosts of some leaf groups: the choice under constraints of policies without links."""

from collections.abc import Collection, Iterable
from itertools import islice

from laas_service.domain.allocation import GroupShare
from laas_service.domain.constraints import Constraints
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import bits

HostChoice = tuple[int, int, int]
"""Cost, leaf group, position of a host."""


def any_hosts(
    fabric: LedgerView,
    places: Iterable[Collection[int]],
    hosts: int,
    constraints: Constraints,
) -> list[GroupShare]:
    """``hosts`` free hosts of one of the ``places``; empty if no place has them.

    A place is a set of leaf groups. The hosts lie in at least ``constraints.least_pods`` pods.
    With ``constraints.cheapest`` they cost least of all such hosts. Otherwise the place with
    the fewest free hosts that are enough is taken.
    """
    options = []
    for place in places:
        free = sum(fabric.free_hosts[group].bit_count() for group in place)
        if free >= hosts and (chosen := _choose(fabric, place, hosts, constraints)):
            options.append((sum(cost for cost, _, _ in chosen), free, chosen))
    if not options:
        return []
    masks: dict[int, int] = {}
    for _, group, position in min(options)[2]:
        masks[group] = masks.get(group, 0) | 1 << position
    return [GroupShare(group, mask, 0) for group, mask in sorted(masks.items())]


def _choose(
    fabric: LedgerView, place: Collection[int], hosts: int, constraints: Constraints
) -> list[HostChoice]:
    """The cheapest host of each of ``spread`` pods, then the cheapest other hosts.

    The pods are those whose cheapest host is cheapest. This is optimal: in a choice without a
    host of one of these pods, a host of another pod can be exchanged for that pod's cheapest
    host at no extra cost.
    """
    width, spread = fabric.topology.groups_per_pod, constraints.least_pods
    choices = sorted(_free_hosts(fabric, place, constraints.cheapest))
    first_of_pod: dict[int, HostChoice] = {}
    for choice in choices:
        first_of_pod.setdefault(choice[1] // width, choice)
    if len(first_of_pod) < spread or hosts < spread:
        return []
    kept = list(islice(first_of_pod.values(), spread)) if spread > 1 else []
    others = (choice for choice in choices if choice not in kept)
    return kept + list(islice(others, hosts - len(kept)))


def _free_hosts(fabric: LedgerView, place: Collection[int], by_cost: bool) -> Iterable[HostChoice]:
    """The free hosts of these groups; all have cost 0 unless ``by_cost``."""
    topology, features = fabric.topology, fabric.features
    for group in place:
        for position in bits(fabric.free_hosts[group]):
            host = topology.host_at(group, position)
            yield (features.of(host).cost if by_cost and host is not None else 0, group, position)
