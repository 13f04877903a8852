# SPDX-License-Identifier: Apache-2.0

"""Accounts readings of port counters: too many errors, data by allocation, the audit."""

import logging
from collections.abc import Mapping
from enum import StrEnum

from laas_service.app.ports.port_counters import PortCounters
from laas_service.app.ports.subnet_manager import SubnetManager
from laas_service.domain.faults.counters import (
    CounterMemory,
    CounterRules,
    Findings,
    Owners,
    SwitchCounters,
    accounted,
    excessive,
    findings,
)
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.topology import Link, link_name

LOG = logging.getLogger(__name__)

BATCHES = 16
"""Transactions of one round at most; the next round goes on."""


class CounterMode(StrEnum):
    """What follows from a port with too many errors."""

    OFF = "off"  # counters are not accounted
    PROPOSE = "propose"  # it is told
    MARK = "mark"  # its link is quarantined, as one that goes down too often


class CounterAccountant:
    """Accounts the counters of fabrics, some readings each round. All memory is in the store."""

    def __init__(
        self,
        counters: PortCounters,
        subnet_manager: SubnetManager,
        *,
        mode: CounterMode,
        rules: CounterRules,
    ) -> None:
        self._counters, self._subnet_manager = counters, subnet_manager
        self._mode, self._rules = mode, rules
        self._told: dict[str, Mapping[Link, str]] = {}

    def account(self, fabric_id: str, cabling: Cabling) -> Mapping[Link, str]:
        """Account what was read; the links to quarantine, and the evidence for each.

        Raises: LeaseLost, Unavailable.
        """
        if self._mode is CounterMode.OFF:
            return {}
        self._counters.record(fabric_id, self._subnet_manager.counters(fabric_id))

        def account(
            memory: CounterMemory | None, reading: SwitchCounters, owners: Owners
        ) -> tuple[CounterMemory, Findings]:
            after = accounted(memory, reading, cabling, owners, self._rules)
            return after, findings(after, cabling, self._rules)

        for _ in range(BATCHES):
            if not self._counters.account(fabric_id, account):
                break
        errors = self._counters.findings(fabric_id, errors_only=True)
        links = excessive((error for found in errors for error in found.errors), cabling)
        self._tell(fabric_id, links)
        return links if self._mode is CounterMode.MARK else {}

    def _tell(self, fabric_id: str, links: Mapping[Link, str]) -> None:
        told = self._told.get(fabric_id, {})
        for link in links.keys() - told.keys():
            LOG.warning("fabric %s: %s has errors: %s", fabric_id, link_name(link), links[link])
        self._told[fabric_id] = links
