# SPDX-License-Identifier: Apache-2.0

"""Undo: what is done to one ledger during a trial is put back at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from laas_service.domain.ledger.free import UndoStep
from laas_service.domain.ledger.state import LedgerState

_COPIED = (
    "allocations",
    "inside",
    "failed_hosts",
    "drained_hosts",
    "failed_links",
    "odd_groups",
    "pod_freed",
)
"""Short fields, which a trial copies as a whole. Of masks each change is noted."""

_VALUES = ("lost_host_count", "features", "shared_plane", "freed")
"""Fields that are replaced and never changed in place."""


@contextmanager
def undone(state: LedgerState) -> Iterator[None]:
    """Put everything back at the end of the block, also if it raises.

    That includes the generations of what became free and what readers cached. Trials nest.
    Costs about as much as what is done, not as much as the fabric is large. Ledgers inside
    are not undone here.
    """
    outer, undo = state.undo, list[UndoStep]()
    kept = {name: getattr(state, name) for name in _COPIED}
    for name, value in kept.items():
        setattr(state, name, value.copy())
    kept.update((name, getattr(state, name)) for name in _VALUES)
    kept["reader_caches"] = state.reader_caches
    state.reader_caches = {kind: cache.copy() for kind, cache in state.reader_caches.items()}
    state.undo = undo
    try:
        yield
    finally:
        state.undo = None
        for masks, index, mask in reversed(undo):
            if masks is None:
                state.set_free_hosts(index, mask)
            else:
                masks[index] = mask
        state.__dict__.update(kept)
        state.undo = outer
