# SPDX-License-Identifier: Apache-2.0

"""Failed and drained hosts; failed, drained and withheld links: what of a ledger is usable."""

from itertools import chain

from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.errors import Conflict, NotFound
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.ledger.state import LedgerState
from laas_service.domain.topology import LeafLink, Link, SpineLink, Topology


def check_host(topology: Topology, host: int) -> None:
    """Raises: NotFound, if there is no host of this number."""
    if not 0 <= host < topology.hosts or host in topology.absent_hosts:
        raise NotFound("host", host)


def check_link(topology: Topology, link: Link) -> None:
    """Raises: NotFound, if there is no such link."""
    if not topology.tree.has_link(link) or link in topology.absent_links:
        raise NotFound("link", list(link))


def refresh_host(ledger: LedgerState, host: int) -> None:
    """Recompute whether a host is usable and free, after its state changed."""
    group, position = ledger.topology.place_of(host)
    bit = 1 << position
    present = bool(ledger.present_hosts[group] & bit)
    up = present and host not in ledger.failed_hosts and host not in ledger.drained_hosts
    usable = ledger.usable_hosts[group]
    if up == bool(usable & bit):
        return
    ledger.note(ledger.usable_hosts, group)
    ledger.usable_hosts[group] = usable ^ bit
    owned = any(
        share.group == group and share.hosts & bit
        for allocation in ledger.allocations.values()
        for share in chain(allocation.groups, allocation.alone)
    )
    if owned:
        return
    ledger.set_free_hosts(group, ledger.free_hosts[group] ^ bit)
    ledger.lost_host_count += -1 if up else 1
    if up:
        ledger.mark_freed((group,))


def refresh_link(ledger: LedgerState, link: Link) -> None:
    """Recompute whether a link is usable and free, after its state changed.

    One bit stands for a leaf link and those of the same uplink on other rails of its plane.
    """
    if isinstance(link, LeafLink):
        _refresh_leaf_link(ledger, link)
    else:
        _refresh_spine_link(ledger, link)


def _refresh_leaf_link(ledger: LedgerState, link: LeafLink) -> None:
    topology = ledger.topology
    leaf = topology.tree.leaf_id(link.pod, link.leaf)
    if leaf not in topology.group_of_leaf:
        return  # a leaf without hosts for tenants
    group, rail = topology.group_of_leaf[leaf]
    plane = topology.plane_of_rail[rail]
    bit = 1 << plane * topology.tree.w[1] + link.up
    links = [
        LeafLink(*divmod(rail_leaf, topology.tree.m[1]), link.up)
        for r, rail_leaf in enumerate(topology.leaves_of_group(group))
        if topology.plane_of_rail[r] == plane
    ]
    up = bool(ledger.extent.uplinks[group] & bit) and not any(_is_out(ledger, x) for x in links)
    owned = any(
        share.group == group and share.uplinks & bit
        for allocation in ledger.allocations.values()
        for share in allocation.groups
    )
    _set_link(ledger, ledger.usable_uplinks, ledger.free_uplinks, group, bit, up, owned)
    if up and not owned:
        ledger.mark_freed((group,))
    pod, local = divmod(group, topology.groups_per_pod)
    odd = ledger.usable_uplinks[group] != sum(topology.plane_fields)
    ledger.odd_groups[pod] = ledger.odd_groups[pod] & ~(1 << local) | (odd << local)


def _refresh_spine_link(ledger: LedgerState, link: SpineLink) -> None:
    topology = ledger.topology
    if (link.pod, link.l2) not in topology.column_of_l2:
        return
    pod, column = divmod(topology.column_of_l2[link.pod, link.l2], topology.columns_per_pod)
    bit = 1 << column * topology.lane + link.up
    up = bool(ledger.extent.lanes[pod] & bit) and not _is_out(ledger, link)
    owned = any(
        share.pod == pod and share.lanes & bit
        for allocation in ledger.allocations.values()
        for share in allocation.spines_by_pod(topology)
    )
    _set_link(ledger, ledger.usable_lanes, ledger.free_lanes, pod, bit, up, owned)
    if up and not owned:
        ledger.mark_freed_spines()


def _set_link(
    ledger: LedgerState,
    usable: list[int],
    free: list[int],
    index: int,
    bit: int,
    up: bool,
    owned: bool,
) -> None:
    ledger.note(usable, index)
    ledger.note(free, index)
    usable[index] = usable[index] & ~bit | (bit if up else 0)
    free[index] = free[index] & ~bit | (bit if up and not owned else 0)


def _is_out(ledger: LedgerState, link: Link) -> bool:
    """Whether a link is not for tenants now: failed, drained, absent or withheld."""
    return (
        link in ledger.failed_links
        or link in ledger.drained_links
        or link in ledger.topology.absent_links
        or ledger.shared_plane.withholds(ledger.topology.tree, link)
    )


def count_losses(ledger: LedgerState) -> None:
    """Count lost hosts, and mark leaf groups that miss an uplink; then kept up by refreshes."""
    topology = ledger.topology
    owned = [0] * topology.groups
    for allocation in ledger.allocations.values():
        for group, hosts, _ in chain(allocation.groups, allocation.alone):
            owned[group] |= hosts
    masks = zip(ledger.present_hosts, ledger.usable_hosts, owned, strict=True)
    ledger.lost_host_count = sum((a & ~b & ~c).bit_count() for a, b, c in masks)
    ledger.odd_groups = [0] * topology.pods
    every_uplink = sum(topology.plane_fields)
    for group, usable in enumerate(ledger.usable_uplinks):
        pod, local = divmod(group, topology.groups_per_pod)
        if usable != every_uplink and ledger.present_hosts[group]:
            ledger.odd_groups[pod] |= 1 << local


def withhold(ledger: LedgerState, plane: CommonPlane) -> None:
    """Withhold the links of ``plane`` instead of those of the present common plane.

    Raises:
        Conflict: an allocation holds one of them.
    """
    topology, previous_plane = ledger.topology, ledger.shared_plane
    withheld = Masks.of_plane(topology, plane)
    if owners := _owners(ledger, withheld):
        shown = ", ".join(owners[:5]) + " and more" * (len(owners) > 5)
        raise Conflict(
            f"{plane} cannot be withheld: {len(owners)} allocations have links of it; "
            f"release them first: {shown}"
        )
    ledger.shared_plane = plane
    for masks, taken_out in (
        (ledger.usable_uplinks, withheld.uplinks),
        (ledger.free_uplinks, withheld.uplinks),
        (ledger.usable_lanes, withheld.lanes),
        (ledger.free_lanes, withheld.lanes),
    ):
        for index, mask in enumerate(taken_out):
            ledger.note(masks, index)
            masks[index] &= ~mask
    for link in previous_plane.links(topology.tree):
        if not plane.withholds(topology.tree, link) and link not in topology.absent_links:
            refresh_link(ledger, link)
    count_losses(ledger)


def _owners(ledger: LedgerState, withheld: Masks) -> list[str]:
    """Ids of the allocations that hold a link of these, sorted."""
    return sorted(
        allocation.id
        for allocation in ledger.allocations.values()
        if any(share.uplinks & withheld.uplinks[share.group] for share in allocation.groups)
        or any(
            lanes & withheld.lanes[pod] for pod, lanes in allocation.spines_by_pod(ledger.topology)
        )
    )
