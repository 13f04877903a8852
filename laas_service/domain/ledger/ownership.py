# SPDX-License-Identifier: Apache-2.0

"""Hosts and links change hands: from the free masks to an owner, and back."""

from __future__ import annotations

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
    width = ledger.topology.columns_per_pod
    for group, hosts, uplinks in allocation.groups:
        ledger.set_free_hosts(group, ledger.free_hosts[group] ^ hosts)
        ledger.note(ledger.free_uplinks, group)
        ledger.free_uplinks[group] ^= uplinks
    for pod, column, uplinks in allocation.columns:
        index = pod * width + column
        if ledger.undo is not None:
            ledger.note(ledger.free_spines, index)
        ledger.free_spines[index] ^= uplinks


def give_back(ledger: LedgerState, allocation: Allocation) -> None:
    """Free what is usable of an allocation; its other hosts count as lost from now on."""
    width, groups_per_pod = ledger.topology.columns_per_pod, ledger.topology.groups_per_pod
    for group, hosts, uplinks in allocation.groups:
        usable = hosts & ledger.usable_hosts[group]
        ledger.set_free_hosts(group, ledger.free_hosts[group] | usable)
        ledger.mark_freed(group // groups_per_pod)
        ledger.lost_host_count += (hosts ^ usable).bit_count()
        ledger.note(ledger.free_uplinks, group)
        ledger.free_uplinks[group] |= uplinks & ledger.usable_uplinks[group]
    for pod, column, uplinks in allocation.columns:
        index = pod * width + column
        if ledger.undo is not None:
            ledger.note(ledger.free_spines, index)
        ledger.free_spines[index] |= uplinks & ledger.usable_spines[index]
    if allocation.columns:
        ledger.freed += 1
