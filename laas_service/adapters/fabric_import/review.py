# SPDX-License-Identifier: Apache-2.0

"""Review of a re-import: what a new file of a managed fabric would change."""

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
    Effect,
    Layout,
    ReimportChange,
    aligned,
    changes,
    effects,
    with_failed_components,
)
from laas_service.domain.reimport.effects import ledger_after
from laas_service.domain.reimport.renumbering import Renumbering


@dataclass(frozen=True)
class Review:
    """What a re-import would record and change, starting from one generation."""

    generation: int
    """Generation of the recorded state."""

    before: Layout
    """The recorded fabric."""

    after: Layout
    """The fabric that the re-import would record."""

    changes: tuple[ReimportChange, ...]
    """Differences between ``before`` and ``after``."""

    effects: tuple[Effect, ...]
    """What the changes mean for each allocation."""

    kept: tuple[str, ...] = ()
    """Failed links and hosts of allocations that the file lacks; they stay recorded."""

    @property
    def refused(self) -> bool:
        """Whether an allocation does not allow the re-import."""
        return any(effect.refused for effect in self.effects)

    @property
    def token(self) -> str:
        """Identifies the generation and the resulting fabric; both must match to apply it."""
        recorded = [
            topology_document(self.after.topology),
            inventory_document(self.after.inventory),
        ]
        text = json.dumps(recorded, sort_keys=True)
        return f"{self.generation}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def review(record: FabricRecord, ledger: LedgerView, generation: int, read: Layout) -> Review:
    """Review the re-import of a fabric that was ``read`` from a file.

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
    consequences = effects(ledger, before, after)
    if not any(effect.refused for effect in consequences):
        consequences = [*consequences, *_new_violations(ledger, before, after)]
    return Review(
        generation, before, after, tuple(changes(before, after)), tuple(consequences), tuple(kept)
    )


def _pinned(before: Layout, after: Layout) -> Layout:
    tenant_ports = {e.guid for e in after.inventory.endpoints if e.host is not None}
    switches = {switch.guid for switch in after.inventory.switches}
    pinned = after.inventory.lids
    if pinned:
        pinned = lids.repinned(before.inventory.lids, pinned, tenant_ports, switches)
    return replace(after, inventory=replace(after.inventory, lids=pinned))


def _new_violations(ledger: LedgerView, before: Layout, after: Layout) -> list[Effect]:
    """Violations of live allocations after the re-import that they do not have now."""
    new_ledger = ledger_after(ledger, Renumbering.between(before, after))
    known = set(_violations(before, list(ledger.everybody()), ledger))
    added = [
        text
        for text in _violations(after, list(new_ledger.everybody()), ledger)
        if text not in known
    ]
    return [Effect("(verification)", tuple(added))] if added else []


def _violations(layout: Layout, held: list[Allocation], ledger: LedgerView) -> list[str]:
    chance = Random(0)  # noqa: S311 - the same permutations every time
    plane = ledger.shared_plane
    return verification.violations(layout.topology, held, chance, permutations=1, plane=plane)
