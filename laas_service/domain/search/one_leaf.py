# SPDX-License-Identifier: Apache-2.0

"""The first step of a search: one leaf group."""

from collections.abc import Iterator

from laas_service.domain.allocation import Allocation, GroupShare, Request
from laas_service.domain.ledger import LedgerView
from laas_service.domain.search.bicliques import lowest_bits
from laas_service.domain.search.search import Search, is_plain
from laas_service.domain.search.shapes import Placement, one_leaf_shape


def fullest_leaf_group(fabric: LedgerView, policy: str, request: Request) -> Allocation | None:
    """The answer of a search for a request without wishes, if its hosts fit in one leaf group.

    That is the placement which ``in_one_leaf_group`` prefers. It is found without the objects
    that a search needs, as most requests are small. None if a search has to answer.
    """
    hosts = request.hosts
    if hosts > fabric.topology.hosts_per_group or not is_plain(fabric, request):
        return None
    for groups in fabric.groups_by_free[hosts:]:
        if groups:
            group = (groups & -groups).bit_length() - 1
            share = GroupShare(group, lowest_bits(fabric.free_hosts[group], hosts), 0)
            return Allocation(request.id, hosts, policy, (share,), (), one_leaf_shape(hosts))
    return None


def in_one_leaf_group(search: Search, hosts: int) -> Iterator[Placement]:
    """The preferred placement of ``hosts`` hosts in one leaf group, at most one.

    Hosts of a leaf group need no uplink, unless several rails meet in one plane. A spread over
    several pods allows no such placement.
    """
    preference = search.preference
    allowed = search.spread == 1 and (
        search.request.grain is None or search.fitting([one_leaf_shape(hosts)])
    )
    for group in preference.leaf_groups(hosts) if allowed else ():
        uplinks = _joining_uplinks(search, group) if hosts > 1 else 0
        if uplinks is not None:
            shares = preference.shares((group,), hosts, uplinks)
            yield Placement(tuple(shares), (), one_leaf_shape(hosts))
            return


def _joining_uplinks(search: Search, group: int) -> int | None:
    """One free uplink in each plane of several rails; None if one of these has none.

    The rails of a plane use the same uplink index and so meet at its L2 switch.
    """
    topology, joining = search.topology, 0
    if len(topology.plane_fields) < topology.rails:
        for plane, field in enumerate(topology.plane_fields):
            if topology.rails_in_plane(plane) > 1:
                free = search.fabric.free_uplinks[group] & field
                if not free:
                    return None
                joining |= free & -free
    return joining
