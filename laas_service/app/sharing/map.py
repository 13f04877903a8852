# SPDX-License-Identifier: Apache-2.0

"""The sections of a fabric's map that only shared hosts have."""

from collections.abc import Sequence
from typing import Any

from laas_service.app.fabric_maps import Cells
from laas_service.app.kinds import RequestsOfKind
from laas_service.app.ports.store import Store
from laas_service.app.records import Caller, FabricRecord
from laas_service.app.requests import AllocationRequest
from laas_service.app.sharing.promises import PromiseEntry, promises
from laas_service.domain.allocation import NoFit
from laas_service.domain.budget import RequestBudget
from laas_service.domain.fabric_map.cells import Viewer, host_cells
from laas_service.domain.ledger import LedgerView
from laas_service.domain.sharing.policy import SharedSlots


class MapSections:
    """Promises of links, and answers to questions for slots; see ``fabric_maps``."""

    def __init__(self, store: Store, requests: RequestsOfKind, slots: SharedSlots) -> None:
        self._store = store
        self._requests = requests
        self._slots = slots

    def promises(self, fabric: FabricRecord, ledger: LedgerView, viewer: Viewer) -> Cells:
        tree = ledger.topology.tree
        cells: Cells = {"hosts": {}, "leaf": {}, "spine": {}}
        counters = self._store.faults.counter_findings(fabric.id)
        for entry in promises(fabric, ledger, self._slots, counters):
            if not viewer.sees(entry.allocation):
                continue
            if entry.host is not None:
                matrix, (cell, *_) = "hosts", host_cells(ledger, entry.host)
            else:
                assert entry.link is not None
                matrix, cell = entry.kind, tree.link_id(entry.link)
                cell -= tree.leaf_links if matrix == "spine" else 0
            cells[matrix].setdefault(cell, []).append(_promise(entry))
        return cells

    def answer(
        self,
        caller: Caller,
        asked: AllocationRequest,
        risks: Sequence[float],
        budget: RequestBudget,
        everything: bool,
    ) -> dict[str, Any]:
        fit = self._requests.fit(caller, asked, risks, budget)
        answer = fit.answer
        document: dict[str, Any] = {
            "hosts": 0,
            "slots": asked.kind.uses(0, inside=False).slots,
            "policy": self._slots.name,
            "fits": not isinstance(answer, NoFit),
            "largest_fit": fit.largest,
            "cut_off": fit.cut_off,
            "risks": [
                {"risk": at.risk, "tenants": at.tenants, "more": at.more} for at in fit.risks
            ],
        }
        if isinstance(answer, NoFit):
            return document | {"reason": answer.reason.value, "detail": answer.detail}
        ledger, _ = self._store.fabrics.ledger(asked.fabric)
        cells = [c for host in answer.held_slots.counts for c in host_cells(ledger, host)]
        shown = {"cells": {"hosts": cells, "leaf": [], "spine": []}} if everything else {}
        return document | {"shape": None} | shown


def _promise(entry: PromiseEntry) -> dict[str, Any]:
    measured = entry.measured
    return {
        "direction": entry.direction,
        "bandwidth": entry.sharing.bandwidth,
        "promised": round(entry.promised, 6),
        "outage": float(f"{entry.load.outage:.3g}"),
        "measured": None if measured is None else round(measured.bandwidth, 6),
    }
