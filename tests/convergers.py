# SPDX-License-Identifier: Apache-2.0

"""Workers without leases: a converger of each fabric of a store, made from what a test changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from random import Random
from typing import Any

from laas_service.app.sharing.slot_changes import announced_moves
from laas_service.app.worker.converger import Converger
from laas_service.app.worker.decide import faults
from laas_service.app.worker.fabric_store import FabricStore
from laas_service.app.worker.hooks import Hooks
from laas_service.app.worker.memory import FaultsMemory
from laas_service.app.worker.perform import Performer, Ports
from laas_service.app.worker.round import WorkerRules
from laas_service.messages import Applied
from tests.fakes import FakeCompute


def converger(store: Any, compute: Any, switches: Any, fabric: str, **options: Any) -> Converger:
    """The converger of one fabric; options of ``WorkerRules``, ``Hooks`` and ``Ports``."""

    def of(kind: type) -> dict[str, Any]:
        return {f.name: options.pop(f.name) for f in fields(kind) if f.name in options}

    ports = Ports(compute, switches, **of(Ports))
    hooks = Hooks(**{"clock": time.monotonic, **of(Hooks)})
    rules = WorkerRules(**of(WorkerRules))
    assert not options, options
    moves = announced_moves(settles=compute.claims_slots)
    return Converger(store, ports, rules, hooks, fabric, moves)


class Convergers:
    """A converger for each fabric that the store has, made when it is needed first."""

    def __init__(self, store: Any, compute: Any, switches: Any, **options: Any) -> None:
        self._store = store
        self._make: Callable[[str], Converger] = lambda fabric: converger(
            store, compute, switches, fabric, **options
        )
        self._made: dict[str, Converger] = {}

    @property
    def each(self) -> list[Converger]:
        for fabric in self._store.fabrics.ids():
            if fabric not in self._made:
                self._made[fabric] = self._make(fabric)
        return [self._made[fabric] for fabric in sorted(self._made)]

    def at(self, hook: Callable[[str], None]) -> None:
        """Call another hook around effects from now on; nothing is forgotten."""
        for one in self.each:
            one._performer._hooks = one._routes.hooks = replace(one._routes.hooks, at=hook)

    def run_once(self) -> int:
        return sum(one.run_once() for one in self.each)

    def step(self, id: str) -> None:
        """Take the steps of one allocation."""
        fabric = self._store.allocations.get(id).fabric
        next(one for one in self.each if one._fabric == fabric).step(id)

    def reconcile(self) -> list[str]:
        return [text for one in self.each for text in one.reconcile()]

    def check_drift(self) -> list[str]:
        return [text for one in self.each for text in one.check_drift()]

    def prepared(self) -> bool:
        return all(one.prepared() for one in self.each)


class Observing:
    """Observes the ports of one fabric alone; every switch that answers has its tables."""

    def __init__(
        self, store: Any, switches: Any, fabric: str, now: Callable[[], datetime], **options: Any
    ) -> None:
        ports = Ports(FakeCompute(), switches)
        given = {name: options.pop(name) for name in ("at", "before_effect") if name in options}
        hooks = Hooks(now=now, chance=Random(1), clock=time.monotonic, **given)
        self._reader = FabricStore(store, fabric, WorkerRules(**options), ports.constant, hooks, {})
        self._performer = Performer(store, ports, hooks, self._reader, self)  # type: ignore[arg-type]
        self._memory = FaultsMemory()

    def applied(self) -> Applied:
        """Every switch has the tables of a confirmed generation."""
        return Applied(1)

    def changed_since(self, generation: int | None = None) -> None:
        """Routes are not published here."""

    def round(self) -> None:
        round = self._reader.round()
        self._memory = self._performer.run(faults.observe(round, self._memory))
