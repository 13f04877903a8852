# SPDX-License-Identifier: Apache-2.0

"""The recorded observation of fabrics: what looks at ports, counters and compute hosts lead to."""

from collections.abc import Callable, Iterable
from typing import Protocol

from laas_service.app.records import Observation
from laas_service.domain.compute_hosts import HostMemory
from laas_service.domain.faults.counters import CounterMemory, Findings, Owners, SwitchCounters
from laas_service.domain.faults.observation import Mode, ReadingOutcome
from laas_service.domain.faults.reading import FabricReading
from laas_service.messages import Initiator

Account = Callable[[CounterMemory | None, SwitchCounters, Owners], tuple[CounterMemory, Findings]]
"""The memory of a switch after a reading, and what it shows."""


class Faults(Protocol):
    """The record of readings and of the states they lead to.

    ``NotFound`` from every method but ``host_memory``.
    """

    # -- ports --------------------------------------------------------------------------

    def observation(self, fabric_id: str) -> Observation:
        """What is remembered and recorded now."""

    def mode(self, fabric_id: str) -> Mode | None:
        """The mode that an operator chose; None: the configured one."""

    def judged(
        self,
        fabric_id: str,
        reading: FabricReading,
        judge: Callable[[Observation], ReadingOutcome],
        seconds: float,
        known: Observation | None = None,
    ) -> ReadingOutcome:
        """Judge a reading, and record the judgement with all changes of links: one transaction,
        one generation.

        ``judge`` may be called twice, as the record may change before the transaction. A judgement
        that says nothing new is not written, unless the last one was written ``seconds`` ago.
        ``known`` is what was remembered when this round was read; None: it is read first.
        """

    def set_mode(self, fabric_id: str, mode: Mode | None, *, by: Initiator | None = None) -> None:
        """Record the mode, and who chose it; with None the configured one is valid again.

        The end of ``FROZEN`` makes all steps due that wait.
        """

    def acknowledge_alarm(self, fabric_id: str, *, by: Initiator | None = None) -> None:
        """Accept what raised the alarm: the next judgement marks it. Nothing without an alarm."""

    # -- counters of ports ----------------------------------------------------------------

    def record_counters(self, fabric_id: str, readings: Iterable[SwitchCounters]) -> None:
        """Keep the newest reading of each switch until it is accounted.

        Readings of switches that the fabric does not have are left out, and so are readings
        that are not newer than the recorded one.
        """

    def account_counters(self, fabric_id: str, account: Account) -> bool:
        """Account some readings, each once; whether there may be more of them."""

    def counter_findings(self, fabric_id: str, *, errors_only: bool = False) -> list[Findings]:
        """What the counters of each switch show, by GUID; or only of switches with errors.

        Also of switches that the fabric has no more.
        """

    # -- compute hosts --------------------------------------------------------------------

    def host_memory(self, fabric_id: str) -> HostMemory:
        """What is remembered now; empty if nothing was seen yet."""

    def judge_hosts(self, fabric_id: str, judge: Callable[[HostMemory], HostMemory]) -> HostMemory:
        """Judge a look, and record the memory and the states of hosts: one transaction.

        An alarm that begins or ends is announced.
        """

    def release_quarantine(self, fabric_id: str, host: str, *, by: Initiator | None = None) -> None:
        """Record that a host (by Nova's name) is empty. ``Conflict`` unless in quarantine."""
