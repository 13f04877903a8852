# SPDX-License-Identifier: Apache-2.0

"""A managed fabric imported again from a file, ready for review: what would be recorded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from random import Random

from laas_service.adapters.documents import inventory_document, topology_document
from laas_service.adapters.fabric_import import lids
from laas_service.app.records import FabricRecord
from laas_service.domain import verification
from laas_service.domain.allocation import Allocation
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import LedgerView
from laas_service.domain.reimport import (
    Change,
    Effect,
    Layout,
    aligned,
    changes,
    effects,
    with_failed_components,
)
from laas_service.domain.reimport.effects import ledger_after
from laas_service.domain.reimport.renumbering import Renumbering


@dataclass(frozen=True)
class Review:
    """What an import would record and change, on the state of one generation.

    ``token`` stands for both: another file, or another state, has another. ``kept`` is not in
    the file, but failed and held, and stays recorded.
    """

    generation: int
    before: Layout
    after: Layout
    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    kept: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        return any(effect.refused for effect in self.effects)

    @property
    def token(self) -> str:
        recorded = [
            topology_document(self.after.topology),
            inventory_document(self.after.inventory),
        ]
        text = json.dumps(recorded, sort_keys=True)
        return f"{self.generation}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def review(record: FabricRecord, ledger: LedgerView, generation: int, read: Layout) -> Review:
    """The import of what was read over what is recorded.

    Raises:
        InvalidInput: the number of rails differs, or hosts do not form leaf groups.
        LimitExceeded: no LIDs are left for new ports.
    """
    before = Layout(record.topology, record.inventory)
    try:
        after, kept = with_failed_components(before, aligned(before, read), ledger)
    except InvalidInput as error:
        raise InvalidInput(error.field, error.value, f"{error.fix}; use another --id") from error
    after = _pinned(before, after)
    found = effects(ledger, before, after)
    if not any(effect.refused for effect in found):
        found = [*found, *_judged(ledger, before, after)]
    return Review(
        generation, before, after, tuple(changes(before, after)), tuple(found), tuple(kept)
    )


def _pinned(before: Layout, after: Layout) -> Layout:
    rented = {e.guid for e in after.inventory.endpoints if e.host is not None}
    switches = {switch.guid for switch in after.inventory.switches}
    found = after.inventory.lids
    if found:
        found = lids.repinned(before.inventory.lids, found, rented, switches)
    return replace(after, inventory=replace(after.inventory, lids=found))


def _judged(ledger: LedgerView, before: Layout, after: Layout) -> list[Effect]:
    """Violations that verification finds after the re-import and not before it."""
    then = ledger_after(ledger, Renumbering.between(before, after))
    known = set(_violations(before, list(ledger.everybody()), ledger))
    found = [x for x in _violations(after, list(then.everybody()), ledger) if x not in known]
    return [Effect("(verification)", tuple(found))] if found else []


def _violations(layout: Layout, held: list[Allocation], ledger: LedgerView) -> list[str]:
    chance = Random(0)  # noqa: S311 - the same permutations every time
    plane = ledger.shared_plane
    return verification.violations(layout.topology, held, chance, permutations=1, plane=plane)
