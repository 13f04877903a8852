# SPDX-License-Identifier: Apache-2.0

"""Trials: changes of ledgers that are undone at the end of a block, any of them or one claim."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from laas_service.domain.allocation import WHOLE, Allocation
from laas_service.domain.ledger.free import UndoStep
from laas_service.domain.ledger.ownership import check_free, take
from laas_service.domain.ledger.state import LedgerState


@contextmanager
def trial(ledgers: Iterable[LedgerState]) -> Iterator[None]:
    """Put ledgers back at the end of the block, also if it raises. Trials nest.

    That includes the generations of what became free and what readers cached.

    Short fields are kept as a whole and the ledger gets copies of them; of masks each change
    is noted. So the cost of a trial grows with its changes, not with the size of the fabric.
    """
    kept = [(ledger, ledger.undo, _begin(ledger)) for ledger in ledgers]
    try:
        yield
    finally:
        for ledger, outer_undo, fields in kept:
            _put_back(ledger, fields)
            ledger.undo = outer_undo


def _begin(ledger: LedgerState) -> dict[str, Any]:
    """Note changes of masks from now on; the other fields as they are now, by name."""
    ledger.undo = list[UndoStep]()
    fields = {name: getattr(ledger, name) for name in (*ledger.REPLACED, *ledger.SHORT)}
    for name in ledger.SHORT:
        setattr(ledger, name, fields[name].copy())
    return fields


def _put_back(ledger: LedgerState, fields: dict[str, Any]) -> None:
    undo, ledger.undo = ledger.undo or [], None
    for masks, index, mask in reversed(undo):
        if masks is None:
            ledger.set_free_hosts(index, mask)
        else:
            masks[index] = mask
    for name, value in fields.items():
        setattr(ledger, name, value)


class Taking:
    """A trial of one claim of whole links, for a third of its cost.

    Raises:
        DoubleClaim: one of them is not free.
    """

    __slots__ = ("_allocation", "_caches", "_ledger")

    def __init__(self, ledger: LedgerState, allocation: Allocation) -> None:
        if allocation.bandwidth != WHOLE:
            raise ValueError("shares of links have an owner")
        self._ledger = ledger
        self._allocation = allocation
        self._caches = ledger.reader_caches

    def __enter__(self) -> None:
        ledger = self._ledger
        check_free(ledger, self._allocation)
        ledger.reader_caches = self._caches.copy()  # a size that does not fit may fit afterwards
        take(ledger, self._allocation)
        ledger.allocations[self._allocation.id] = self._allocation

    def __exit__(self, *exception: object) -> None:
        del self._ledger.allocations[self._allocation.id]
        take(self._ledger, self._allocation)
        self._ledger.reader_caches = self._caches
