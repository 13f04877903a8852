# SPDX-License-Identifier: Apache-2.0

"""Which hosts of a leaf group are taken first: those of domains that are no longer whole.

For the links of a placement the hosts of a leaf group are alike, so this costs nobody a placement.
"""

from __future__ import annotations

from dataclasses import replace

from laas_service.domain.allocation import Allocation, GroupShare
from laas_service.domain.features import Domain
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import lowest_bits


def chosen_hosts(fabric: LedgerView, group: int, mask: int, count: int) -> int:
    """``count`` hosts of the mask, as a mask: those of broken domains first.

    Of several broken domains the one with the fewest free hosts comes first, and so do all its
    hosts. Where there are several kinds, the one with the smallest domains decides.
    """
    if count == mask.bit_count():
        return mask
    chosen = 0
    for domain_mask in _in_order(fabric, group):
        here = mask & domain_mask & ~chosen
        chosen |= lowest_bits(here, min(count - chosen.bit_count(), here.bit_count()))
    return chosen | lowest_bits(mask & ~chosen, count - chosen.bit_count())


def _in_order(fabric: LedgerView, group: int) -> list[int]:
    """Masks of positions of a leaf group: the domains that come first, first.

    Hosts without a domain break none and come before whole domains.
    """
    domains = fabric.features.smallest(fabric.topology).get(group, ())
    ranked, covered = [], 0
    for domain in domains:
        free = free_hosts(fabric, domain)
        mask = dict(domain.cells)[group]
        covered |= mask
        ranked.append((free == domain.size, free, domain.name, mask))
    masks = [mask for whole, _, _, mask in sorted(ranked) if not whole]
    return [*masks, ~covered, *(mask for whole, _, _, mask in sorted(ranked) if whole)]


def free_hosts(fabric: LedgerView, domain: Domain) -> int:
    """How many hosts of a domain are free."""
    return sum([(fabric.free_hosts[group] & mask).bit_count() for group, mask in domain.cells])


def broken_first(fabric: LedgerView, view: LedgerView, answer: Allocation) -> Allocation:
    """The same placement on hosts of broken domains, wherever a leaf group has a choice.

    ``view`` has the hosts that the placement may use.
    """
    if not fabric.features.members:
        return answer
    groups = [
        GroupShare(
            group, chosen_hosts(fabric, group, view.free_hosts[group], hosts.bit_count()), ups
        )
        if hosts != view.free_hosts[group]
        else GroupShare(group, hosts, ups)
        for group, hosts, ups in answer.groups
    ]
    return answer if tuple(groups) == answer.groups else replace(answer, groups=tuple(groups))
