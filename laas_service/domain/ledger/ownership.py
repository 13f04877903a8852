# SPDX-License-Identifier: Apache-2.0

"""Hosts and links change hands: from the free masks to an owner, and back."""

from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import DoubleClaim
from laas_service.domain.ledger.free import FreeMasks
from laas_service.domain.ledger.state import LedgerState


def check_free(ledger: FreeMasks, allocation: Allocation) -> None:
    """Raises: DoubleClaim, if a host or link of the allocation is not free."""
    width = ledger.topology.columns_per_pod
    for group, hosts, uplinks in allocation.groups:
        if hosts & ~ledger.free_hosts[group] or uplinks & ~ledger.free_uplinks[group]:
            raise DoubleClaim(f"leaf group {group}: a host or uplink is not free")
    for pod, column, uplinks in allocation.columns:
        if uplinks & ~ledger.free_spines[pod * width + column]:
            raise DoubleClaim(f"pod {pod}, L2 {column}: an uplink is not free")


def take(ledger: FreeMasks, allocation: Allocation) -> None:
    """Take hosts and links, all of which are free, out of the free masks."""
    free_hosts, free_uplinks = ledger.free_hosts, ledger.free_uplinks
    free_spines, width = ledger.free_spines, ledger.topology.columns_per_pod
    _note_links(ledger, allocation)
    for group, hosts, uplinks in allocation.groups:
        ledger.set_free_hosts(group, free_hosts[group] ^ hosts)
        free_uplinks[group] ^= uplinks
    for pod, column, uplinks in allocation.columns:
        free_spines[pod * width + column] ^= uplinks


def give_back(ledger: LedgerState, allocation: Allocation) -> None:
    """Free the usable hosts and links of an allocation; count its other hosts as lost."""
    free_hosts, free_uplinks = ledger.free_hosts, ledger.free_uplinks
    _note_links(ledger, allocation)
    for group, hosts, uplinks in allocation.groups:
        usable = hosts & ledger.usable_hosts[group]
        ledger.set_free_hosts(group, free_hosts[group] | usable)
        if usable != hosts:
            ledger.lost_host_count += (hosts ^ usable).bit_count()
        free_uplinks[group] |= uplinks & ledger.usable_uplinks[group]
    ledger.mark_freed(share.group for share in allocation.groups)
    free_spines, width = ledger.free_spines, ledger.topology.columns_per_pod
    for pod, column, uplinks in allocation.columns:
        index = pod * width + column
        free_spines[index] |= uplinks & ledger.usable_spines[index]
    if allocation.columns:
        ledger.mark_freed_spines()


def _note_links(ledger: FreeMasks, allocation: Allocation) -> None:
    """Note the masks of an allocation's links before they change, if a trial can undo that."""
    if ledger.undo is not None:
        width = ledger.topology.columns_per_pod
        for group, _, _ in allocation.groups:
            ledger.note(ledger.free_uplinks, group)
        for pod, column, _ in allocation.columns:
            ledger.note(ledger.free_spines, pod * width + column)
