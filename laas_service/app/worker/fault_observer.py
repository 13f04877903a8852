# SPDX-License-Identifier: Apache-2.0

"""Observes the links of fabrics: reads ports, judges the readings, records what follows."""

import logging
from collections.abc import Callable, Set
from dataclasses import replace

from laas_service.app.ports.store import Store
from laas_service.app.ports.subnet_manager import SubnetManager
from laas_service.app.records import FabricRecord, Observation
from laas_service.app.worker.counter_accountant import CounterAccountant
from laas_service.app.worker.loop import Loop
from laas_service.domain.errors import LaasError, LeaseLost
from laas_service.domain.faults.interpretation import Cabling, SwitchState, interpret
from laas_service.domain.faults.observation import (
    Judgement,
    Mode,
    Rules,
    hold_down_ends_in,
    judge,
)
from laas_service.domain.inventory import Inventory
from laas_service.domain.topology import link_name
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)

WRITES = 6
"""How often, in the lifetime of a reading, the time of the last reading is recorded."""


Compared = Callable[[FabricRecord, Set[int]], frozenset[int]]
"""Which of these switches of a fabric, by GUID, have the published tables."""


class PortEvents(Loop):
    """Wakes another loop when the subnet manager tells of a change of ports.

    ``happened`` says whether it did since the last call, and is asked every ``interval`` seconds.
    """

    name = "laas-port-events"

    def __init__(
        self, happened: Callable[[], bool], wake: Callable[[], None], interval: float = 0.2
    ) -> None:
        super().__init__(interval)
        self._happened, self._wake = happened, wake

    def round(self) -> None:
        if self._happened():
            self._wake()


class FaultObserver:
    """Observes the links of fabrics, one round at a time.

    ``rules`` are as configured; their mode is valid where no operator chose another one. All
    memory is in the store, so a new worker goes on where the last one ended. ``clock`` gives
    seconds since the epoch. ``again`` is called with the seconds after which the fabric should
    be observed again, because a hold-down ends then. Without ``counters`` port counters are not
    accounted.
    """

    def __init__(
        self,
        store: Store,
        subnet_manager: SubnetManager,
        *,
        rules: Rules,
        clock: Callable[[], float],
        counters: CounterAccountant | None = None,
        again: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._again = again
        self._store = store
        self._subnet_manager = subnet_manager
        self._rules = rules
        self._clock = clock
        self._counters = counters
        self._cablings: dict[str, tuple[Inventory, Cabling]] = {}
        self._holding: set[str] = set()  # fabrics with a hold-down that is running

    def is_frozen(self, fabric_id: str) -> bool:
        """Whether nothing of the fabric's routes may change. Raises: NotFound."""
        return self._mode(self._store.faults.mode(fabric_id)) is Mode.FROZEN

    @property
    def awaits_hold_down(self) -> bool:
        """Whether a hold-down was running when a fabric was last observed."""
        return bool(self._holding)

    def observe(self, fabric: FabricRecord, compared: Compared) -> Judgement | None:
        """Judge the present reading, and record what follows; None if there is no reading.

        ``compared`` is asked only about switches that answer again. Errors are logged; the next
        round tries again. Raises: LeaseLost.
        """
        self._holding.discard(fabric.id)
        try:
            return self._observe(fabric, compared)
        except LeaseLost:
            raise
        except LaasError as error:
            LOG.warning("fabric %s is not observed: %s", fabric.id, error)
            return None

    def _observe(self, fabric: FabricRecord, compared: Compared) -> Judgement | None:
        reading, cabling = self._subnet_manager.reading(fabric.id), self._cabling(fabric)
        errors = self._counters.account(fabric.id, cabling) if self._counters is not None else {}
        if reading is None:
            return None
        interpretation = interpret(cabling, reading)
        interpretation = replace(interpretation, erroneous={**interpretation.erroneous, **errors})
        known = self._store.faults.observation(fabric.id).memory.switches.items()
        returning = {guid for guid, entry in known if entry.state is SwitchState.RETURNING}
        as_published = compared(fabric, returning) if returning else frozenset()

        def judgement(seen: Observation) -> Judgement:
            rules = replace(self._rules, mode=self._mode(seen.mode))
            return judge(
                seen.memory, interpretation, rules, self._clock(), seen.operator, as_published
            )

        seconds = self._rules.reading_lifetime / WRITES
        made = self._store.faults.judged(fabric.id, reading, judgement, seconds)
        _log(fabric.id, made)
        seconds_left = hold_down_ends_in(made.memory, self._rules, self._clock())
        if seconds_left is not None:
            self._holding.add(fabric.id)
            self._again(seconds_left)
        return made

    def _mode(self, chosen: Mode | None) -> Mode:
        return chosen or self._rules.mode

    def _cabling(self, fabric: FabricRecord) -> Cabling:
        """The cabling of a fabric, made once for each layout."""
        inventory, cabling = self._cablings.get(fabric.id, (None, None))
        if cabling is None or inventory is not fabric.inventory:
            cabling = Cabling(fabric.inventory)
            self._cablings[fabric.id] = fabric.inventory, cabling
        return cabling


def _log(fabric_id: str, judgement: Judgement) -> None:
    for fault in judgement.fail:
        LOG.warning(
            "fabric %s: %s has failed: %s", fabric_id, link_name(fault.link), fault.evidence
        )
    if judgement.restore:
        names = listed(map(link_name, judgement.restore))
        LOG.info("fabric %s: up again: %s", fabric_id, names)
    if judgement.raised and judgement.alarm is not None:
        LOG.error("fabric %s: %s", fabric_id, judgement.alarm.text)
    if judgement.cleared:
        LOG.info("fabric %s: the alarm of the observation has ended", fabric_id)
    for text in judgement.news:
        LOG.warning("fabric %s: %s", fabric_id, text)
