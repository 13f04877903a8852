# SPDX-License-Identifier: Apache-2.0

"""The database as the worker of one fabric uses it: its round, and questions of decisions."""

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from laas_service.app.lifecycle import State
from laas_service.app.placement_changes import (
    AnnouncedMove,
    begin_announced_move,
    begin_link_repair,
)
from laas_service.app.ports.allocations import every_allocation
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord
from laas_service.app.worker.hooks import Hooks
from laas_service.app.worker.round import Outside, Round, WorkerRules
from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.errors import NotFound
from laas_service.domain.faults.counters import Findings
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import LedgerView
from laas_service.domain.tenancy import Kind

LOG = logging.getLogger(__name__)


class FabricStore:
    """Reads the rounds of one fabric, and what takes more than one method of a part of the store.

    ``moves`` as ``others`` of ``begin_announced_move``. Errors of all methods: ``Unavailable``.
    """

    def __init__(
        self,
        store: Store,
        fabric: str,
        rules: WorkerRules,
        outside: Outside,
        hooks: Hooks,
        moves: Mapping[type[Kind], AnnouncedMove],
    ) -> None:
        self._store, self._fabric = store, fabric
        self._rules, self._outside, self._hooks = rules, outside, hooks
        self._moves = moves
        self._hosts: HostMemory | None = None  # as read in this round
        self._cabling: tuple[Inventory, Cabling] | None = None

    def begin_round(self) -> None:
        """From now on the hosts are read anew."""
        self._hosts = None

    def round(self) -> Round:
        """The fabric as it is now, read in one transaction. ``NotFound``."""
        now, longest = self._hooks.now(), timedelta(seconds=self._rules.pace.last)
        faulty = self._rules.repair_links
        seen = self._store.round(self._fabric, now, longest=longest, faulty=faulty)
        inventory = seen.fabric.inventory
        if self._cabling is None or self._cabling[0] is not inventory:
            self._cabling = inventory, Cabling(inventory)  # once for each layout
        return Round(
            now=now,
            fabric=seen.fabric,
            observation=seen.observation,
            cabling=self._cabling[1],
            due=seen.due,
            outside=self._outside,
            rules=self._rules,
        )

    # -- questions ----------------------------------------------------------------------

    def time(self) -> datetime:
        """The time now."""
        return self._hooks.now()

    def seconds(self) -> float:
        """Seconds of a clock that only runs forward."""
        return self._hooks.clock()

    def allocation(self, id: str) -> AllocationRecord | None:
        """One allocation with its newest events; None if there is none."""
        try:
            return self._store.allocations.get(id)
        except NotFound:
            return None

    def allocations(self, states: Collection[State]) -> list[AllocationRecord]:
        """Every allocation of the fabric in one of these states, without history."""
        return list(every_allocation(self._store.allocations, fabric=self._fabric, states=states))

    def other_hosts(self) -> frozenset[str]:
        """The names of the hosts of all other fabrics."""
        others = (fabric for fabric in self._store.fabrics.all() if fabric.id != self._fabric)
        return frozenset(name for fabric in others for name in fabric.inventory.host_numbers)

    def ledger(self) -> LedgerView:
        """The ledger of the fabric."""
        return self._store.fabrics.ledger(self._fabric)[0]

    def excesses(self) -> list[Findings]:
        """What the counters of switches with errors show."""
        return self._store.faults.counter_findings(self._fabric, errors_only=True)

    def host_memory(self) -> HostMemory:
        """What is remembered of the compute hosts, read once a round."""
        if self._hosts is None:
            self._hosts = self._store.faults.host_memory(self._fabric)
        return self._hosts

    # -- records ------------------------------------------------------------------------

    def judge_hosts(
        self, judge: Callable[[HostMemory], HostMemory]
    ) -> tuple[HostMemory, HostMemory]:
        """The memory of the compute hosts before and after; written only if it changes."""
        before = self.host_memory()
        if judge(before) != before:
            self._hosts = self._store.faults.judge_hosts(self._fabric, judge)
        return before, self.host_memory()

    def wait(self, record: AllocationRecord, why: str) -> None:
        """Record why the next step of an allocation waits, and when to try again."""
        with self._hooks.acting_for(record.initiator):
            LOG.warning("allocation %s (%s): %s", record.id, record.state.value, why)
        pause = self._rules.pace.pause(record.failures, self._hooks.chance)
        until = self._hooks.now() + pause
        self._store.allocations.postpone(record.id, until, why, seen=record)

    def repair_links(self, record: AllocationRecord) -> AllocationRecord | Degraded:
        """See ``placement_changes.begin_link_repair``."""
        return begin_link_repair(self._store.placement_changes, record)

    def begin_move(self, record: AllocationRecord) -> AllocationRecord:
        """Begin the move that was announced, or call it off."""
        return begin_announced_move(self._store.placement_changes, record, self._moves)
