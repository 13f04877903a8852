# SPDX-License-Identifier: Apache-2.0

"""Recorded port counters."""

from collections.abc import Callable, Iterable
from typing import Protocol

from laas_service.domain.faults.counters import CounterMemory, Findings, Owners, SwitchCounters

Account = Callable[[CounterMemory | None, SwitchCounters, Owners], tuple[CounterMemory, Findings]]
"""The memory of a switch after a reading, and what it shows."""


class PortCounters(Protocol):
    """Readings of port counters, and what they show. ``NotFound`` from every method."""

    def record(self, fabric_id: str, readings: Iterable[SwitchCounters]) -> None:
        """Keep the newest reading of each switch until it is accounted.

        Readings of switches that the fabric does not have are left out, and so are readings
        that are not newer than the recorded one.
        """

    def account(self, fabric_id: str, account: Account) -> bool:
        """Account some readings, each once; whether there may be more of them."""

    def findings(self, fabric_id: str, *, errors_only: bool = False) -> list[Findings]:
        """What the counters of each switch show, by GUID; or only of switches with errors.

        Also of switches that the fabric has no more.
        """
