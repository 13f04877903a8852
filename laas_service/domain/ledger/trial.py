# SPDX-License-Identifier: Apache-2.0

"""Trials: changes of ledgers that are undone at the end of a block."""

from __future__ import annotations

from collections.abc import Iterable

from laas_service.domain.ledger.free import UndoStep
from laas_service.domain.ledger.state import LedgerState


class _Before:
    """One ledger as it was before a trial.

    Short fields are kept as a whole and the ledger gets copies of them; of masks each change
    is noted. So the cost of a trial grows with its changes, not with the size of the fabric.
    """

    def __init__(self, ledger: LedgerState) -> None:
        self._ledger = ledger
        self._outer_undo = ledger.undo
        self._kept = [(name, getattr(ledger, name)) for name in ledger.REPLACED]
        for name in ledger.SHORT:
            value = getattr(ledger, name)
            self._kept.append((name, value))
            setattr(ledger, name, value.copy())
        self._undo = list[UndoStep]()
        ledger.undo = self._undo

    def put_back(self) -> None:
        ledger = self._ledger
        ledger.undo = None
        for masks, index, mask in reversed(self._undo):
            if masks is None:
                ledger.set_free_hosts(index, mask)
            else:
                masks[index] = mask
        for name, value in self._kept:
            setattr(ledger, name, value)
        ledger.undo = self._outer_undo


class Trial:
    """Puts ledgers back at the end of the block, also if it raises. Trials nest.

    That includes the generations of what became free and what readers cached.
    """

    def __init__(self, ledgers: Iterable[LedgerState]) -> None:
        self._ledgers = ledgers
        self._before: list[_Before] = []

    def __enter__(self) -> None:
        self._before = [_Before(ledger) for ledger in self._ledgers]

    def __exit__(self, *_: object) -> None:
        for before in self._before:
            before.put_back()
