# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts get owners, and become free again.

Whether links can promise a demand is for ``domain.sharing``, which knows the routes.
"""

from laas_service.domain.allocation import HeldSlots
from laas_service.domain.errors import Conflict, DoubleClaim
from laas_service.domain.ledger.state import LedgerState
from laas_service.domain.tenancy import Kind


def check_class(ledger: LedgerState, id: str, kind: Kind) -> None:
    """Raises: Conflict, if hosts are shared there and it wants whole ones, or the reverse."""
    if ledger.part is None:
        if not kind.whole_hosts:
            raise Conflict(f"allocation {id!r} has slots, and no host there is shared")
    elif not ledger.part.kind.accepts(kind):
        raise Conflict(f"{ledger.part.id!r} shares its hosts: it has slots, and no whole hosts")


def check_free(ledger: LedgerState, wanted: HeldSlots, held: HeldSlots | None = None) -> None:
    """Raises: DoubleClaim, if a slot is not free; those that are ``held`` count as free."""
    assert ledger.part is not None
    most, own = ledger.part.terms.slots, held.counts if held is not None else {}
    for host, units in wanted.counts.items():
        group, position = ledger.topology.place_of(host)
        shared = ledger.extent.hosts[group] >> position & 1
        if not shared or ledger.used_slots.get(host, 0) - own.get(host, 0) + units > most:
            raise DoubleClaim(f"host {host}: a slot is not free")


def take(ledger: LedgerState, slots: HeldSlots) -> None:
    """Take slots that are free."""
    for host, units in slots.counts.items():
        ledger.used_slots[host] = ledger.used_slots.get(host, 0) + units


def give_back(ledger: LedgerState, slots: HeldSlots) -> None:
    """Free slots."""
    for host, units in slots.counts.items():
        ledger.used_slots[host] -= units
        if not ledger.used_slots[host]:
            del ledger.used_slots[host]
