# SPDX-License-Identifier: Apache-2.0

"""The recorded observation of fabrics: what readings of ports lead to."""

from collections.abc import Callable
from typing import Protocol

from laas_service.app.records import Observation
from laas_service.domain.faults.observation import Mode, ReadingOutcome
from laas_service.domain.faults.reading import FabricReading
from laas_service.messages import Initiator


class Faults(Protocol):
    """The record of readings and of the states they lead to. ``NotFound`` from every method."""

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
