# SPDX-License-Identifier: Apache-2.0

"""Shape of a star (policy starcube): each host has its own path up, and all meet in one switch.

Source: StarCube (Springer 2016), definitions 3.1, 3.3 and 3.5.
"""

from collections import Counter
from collections.abc import Iterator

from laas_service.domain.allocation import Allocation
from laas_service.domain.topology import Topology
from laas_service.domain.verification.partition import L2Place, TenantTree


def star_violations(topology: Topology, allocation: Allocation) -> Iterator[str]:
    """Violations of the definition of an n-star of units by an allocation of policy starcube."""
    if topology.rails > 1:
        yield f"a star has one rail, not {topology.rails}"
        return
    tree, partition = topology.tree, TenantTree(topology, allocation)
    if allocation.size != allocation.requested:
        yield f"{allocation.requested} hosts were requested and {allocation.size} are held"
    for link in partition.strangers:
        yield f"link {link} is in a place without a host of its own"
    rail = partition.rails[0]
    arriving: Counter[L2Place] = Counter()
    for place, hosts in sorted(rail.hosts.items()):
        uplinks = rail.uplinks[place]
        if len(uplinks) != len(hosts):
            yield f"leaf {place.pod}/{place.leaf} has {len(uplinks)} uplinks for {len(hosts)} hosts"
        arriving.update(L2Place(place.pod, up // tree.cables[0]) for up in uplinks)
    spines = {place: ups for place, ups in partition.spines.items() if ups}
    if tree.w[2]:
        for l2 in sorted({*arriving, *spines}):
            ups = len(spines.get(l2, ()))
            if ups != arriving[l2]:
                yield f"L2 switch {l2.pod}/{l2.l2} has {ups} uplinks for {arriving[l2]} from below"
    hubs = {(place.l2, up // tree.cables[1]) for place, ups in spines.items() for up in ups}
    pods = {place.pod for place in rail.hosts}
    apart = all(len(hosts) == 1 for hosts in rail.hosts.values())
    on_one_l2 = apart and len(arriving) == 1
    on_one_spine = apart and len(pods) == len(rail.hosts) and len(hubs) == 1
    if len(rail.hosts) > 1 and not on_one_l2 and not on_one_spine:
        yield "its hosts do not meet in one switch"
