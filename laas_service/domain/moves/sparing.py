# SPDX-License-Identifier: Apache-2.0

"""Repairs and bridges that keep others' packets off links that must stay undisturbed.

Each asks for links again without some of those that it got, until they make no more pairs cross an
owner that forbids it (``admission.undisturbed``). Without such links the first ones are taken; then
the owner that is crossed is degraded.
"""

from __future__ import annotations

from collections.abc import Collection

from laas_service.domain.admission.undisturbed import spared
from laas_service.domain.allocation import Allocation
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.repair import repair
from laas_service.domain.ledger import LedgerView
from laas_service.domain.moves.bridge import bridge
from laas_service.domain.moves.mend import Joined, mended
from laas_service.domain.topology import Link


def sparing_repair(
    fabric: LedgerView, placed: Allocation, leave: Collection[Link] = ()
) -> Allocation | Degraded:
    """As ``repair``. Raises: NotFound."""

    def held(found: Allocation | Degraded) -> Allocation | None:
        return found.joined(placed) if isinstance(found, Allocation) else None

    return spared(fabric, lambda view: repair(view, placed, leave), held)


def sparing_bridge(fabric: LedgerView, old: Allocation, new: Allocation) -> Allocation | None:
    """As ``bridge``."""
    both = new.joined(old)

    def held(found: Allocation | None) -> Allocation | None:
        return None if found is None else both.joined(found)

    return spared(fabric, lambda view: bridge(view, old, new), held)


def sparing_mend(fabric: LedgerView, present: Joined) -> Joined | Degraded:
    """As ``mended``."""

    def held(found: Joined | Degraded) -> Allocation | None:
        return found.held.joined(present.held) if isinstance(found, Joined) else None

    return spared(fabric, lambda view: mended(view, present), held)
