# SPDX-License-Identifier: Apache-2.0

"""Hosts and links change hands: from the free masks to an owner, and back."""

from collections.abc import Sequence

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.ledger.state import LedgerState


def check_free(ledger: LedgerState, allocation: Allocation) -> None:
    """Raises: DoubleClaim, if a host or link of the allocation is not free."""
    free_hosts, free_uplinks = ledger.free_hosts, ledger.free_uplinks
    for group, hosts, uplinks in allocation.groups:
        if hosts & ~free_hosts[group] or uplinks & ~free_uplinks[group]:
            raise DoubleClaim(f"leaf group {group}: a host or uplink is not free")
    for group, hosts, _ in allocation.alone:
        if hosts & ledger.usable_hosts[group] & ~free_hosts[group]:
            raise DoubleClaim(f"leaf group {group}: a host of an exclusive domain is not free")
    for pod, lanes in allocation.spines_by_pod(ledger.topology):
        if taken := lanes & ~ledger.free_lanes[pod]:
            column = ((taken & -taken).bit_length() - 1) // ledger.topology.lane
            raise DoubleClaim(f"pod {pod}, L2 {column}: an uplink is not free")


def take(ledger: LedgerState, allocation: Allocation) -> None:
    """Take hosts and links, all of which are free, out of the free masks; or undo that."""
    ledger.flip(allocation.groups)
    if allocation.alone:
        ledger.flip([(g, hosts & ledger.usable_hosts[g], 0) for g, hosts, _ in allocation.alone])
    for pod, lanes in allocation.spines_by_pod(ledger.topology):
        ledger.note(ledger.free_lanes, pod)
        ledger.free_lanes[pod] ^= lanes


def give_back(ledger: LedgerState, allocation: Allocation) -> None:
    """Free the usable hosts and links of an allocation; count its other hosts as lost."""
    usable_hosts, usable_uplinks = ledger.usable_hosts, ledger.usable_uplinks
    usable: Sequence[tuple[int, int, int]] = allocation.groups
    for group, hosts, uplinks in usable:
        if hosts & ~usable_hosts[group] or uplinks & ~usable_uplinks[group]:
            usable = [(g, h & usable_hosts[g], u & usable_uplinks[g]) for g, h, u in usable]
            ledger.lost_host_count += allocation.size - sum(h.bit_count() for _, h, _ in usable)
            break
    ledger.flip(usable)
    ledger.mark_freed([share[0] for share in allocation.groups])
    if allocation.alone:
        others = [(g, hosts & usable_hosts[g], 0) for g, hosts, _ in allocation.alone]
        ledger.flip(others)
        ledger.mark_freed([share[0] for share in others])
        ledger.lost_host_count += unusable(ledger, allocation)
    spines = allocation.spines_by_pod(ledger.topology)
    for pod, lanes in spines:
        ledger.note(ledger.free_lanes, pod)
        ledger.free_lanes[pod] |= lanes & ledger.usable_lanes[pod]
    if spines:
        ledger.mark_freed_spines()


def unusable(ledger: LedgerState, allocation: Allocation) -> int:
    """The failed and drained hosts of those that nobody else gets (``Allocation.alone``)."""
    return sum((hosts & ~ledger.usable_hosts[g]).bit_count() for g, hosts, _ in allocation.alone)
