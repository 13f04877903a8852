# SPDX-License-Identifier: Apache-2.0

"""Withholding a shared plane: its links are taken out of allocation."""

from __future__ import annotations

from laas_service.domain.errors import Conflict
from laas_service.domain.ledger.faults import count_losses, refresh_link
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.ledger.state import LedgerState
from laas_service.domain.shared_plane import SharedPlane


def withhold(ledger: LedgerState, plane: SharedPlane) -> None:
    """Withhold the links of ``plane`` instead of those of the present shared plane.

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
        (ledger.usable_spines, withheld.spines),
        (ledger.free_spines, withheld.spines),
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
    width = ledger.topology.columns_per_pod
    return sorted(
        allocation.id
        for allocation in ledger.allocations.values()
        if any(share.uplinks & withheld.uplinks[share.group] for share in allocation.groups)
        or any(
            uplinks & withheld.spines[pod * width + column]
            for pod, column, uplinks in allocation.columns
        )
    )
