# SPDX-License-Identifier: Apache-2.0

"""How many pairs of ports of others have to cross the links of allocations."""

from collections.abc import Callable, Iterable

from laas_service.app.records import AllocationRecord
from laas_service.domain.crossed_links import crossed_links
from laas_service.domain.grouping import grouped
from laas_service.domain.ledger import LedgerView


def crossed_by(
    records: Iterable[AllocationRecord], ledger_of: Callable[[str], LedgerView]
) -> dict[str, int]:
    """By id of the allocations that asked to be undisturbed, the pairs that cross their links.

    ``ledger_of`` gives the ledger of a fabric.
    """
    asked = [
        (record.fabric, record.id)
        for record in records
        if record.placed is not None
        and record.constraints is not None
        and record.constraints.undisturbed is not None
    ]
    pairs: dict[str, int] = {}
    for fabric, ids in grouped(asked).items():
        ledger = ledger_of(fabric)
        if ledger.inventory is not None:
            found = crossed_links(ledger, ledger.inventory).pairs_by_owner
            pairs |= {id: found.get(id, 0) for id in ids}
    return pairs
