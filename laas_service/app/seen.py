# SPDX-License-Identifier: Apache-2.0

"""What switches run, for processes that are not where that can be seen."""

from __future__ import annotations

from laas_service.app.ports import Store
from laas_service.messages import Applied


class RecordedSwitches:
    """``ports.Switches``: what the worker that converges a fabric saw there last."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def applied(self, fabric: str) -> Applied:
        """Raises: NotFound."""
        holding = self._store.holding(fabric)
        if holding.seen_at is None:
            return Applied(None, "no worker has looked yet")
        return Applied(holding.applied, holding.problem)
