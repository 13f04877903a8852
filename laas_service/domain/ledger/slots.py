# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts get owners, and become free again.

The bandwidth that links promise is checked by ``virtual_clusters``, which knows the routes.
"""

from laas_service.domain.allocation import Allocation, Slots
from laas_service.domain.errors import Conflict, DoubleClaim
from laas_service.domain.ledger.state import LedgerState


def check_class(ledger: LedgerState, allocation: Allocation) -> None:
    """Raises: Conflict, if hosts are shared there and it wants whole ones, or the reverse."""
    shared = allocation.slots is not None
    if shared and ledger.part is None:
        raise Conflict(f"allocation {allocation.id!r} has slots, and no host there is shared")
    if ledger.part is not None and not shared:
        raise Conflict(f"{ledger.part.id!r} shares its hosts: it has slots, and no whole hosts")


def check_free(ledger: LedgerState, wanted: Slots, held: Slots | None = None) -> None:
    """Raises: DoubleClaim, if a slot is not free; those that are ``held`` count as free."""
    assert ledger.part is not None
    assert ledger.part.sharing is not None
    most, own = ledger.part.sharing.slots, held.counts if held is not None else {}
    for host, units in wanted.counts.items():
        group, slot = ledger.topology.place_of(host)
        shared = ledger.extent.hosts[group] >> slot & 1
        if not shared or ledger.used_slots.get(host, 0) - own.get(host, 0) + units > most:
            raise DoubleClaim(f"host {host}: a slot is not free")


def take(ledger: LedgerState, slots: Slots) -> None:
    """Take slots that are free."""
    for host, units in slots.counts.items():
        ledger.used_slots[host] = ledger.used_slots.get(host, 0) + units


def give_back(ledger: LedgerState, slots: Slots) -> None:
    """Free slots."""
    for host, units in slots.counts.items():
        ledger.used_slots[host] -= units
        if not ledger.used_slots[host]:
            del ledger.used_slots[host]
