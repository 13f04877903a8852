# SPDX-License-Identifier: Apache-2.0

"""Recorded observations: what the switches run, which drift was found and repaired."""

from collections.abc import Mapping
from typing import Protocol

from laas_service.app.records import Drift, FabricRecord, Holding
from laas_service.messages import Applied


class Observations(Protocol):
    """What workers saw of each fabric, for every process to read. ``NotFound``."""

    def note_applied(self, fabric_id: str, applied: Applied) -> None:
        """Record which generation the switches are seen to run.

        A notification tells of a generation that the switches run for the first time. If they
        run the wanted generation again, drift of routes counts as repaired.
        """

    def holding(self, fabric_id: str) -> Holding:
        """The worker that converges a fabric, and what it saw in the switches."""

    def fabric_and_holding(self, fabric_id: str) -> tuple[FabricRecord, Holding]:
        """The fabric and its ``holding``, in one reading. Raises: NotFound."""

    def note_compared(self, fabric_id: str) -> None:
        """Record that all that is recorded was compared with all that is observed."""

    def note_drift(self, fabric_id: str, kind: Drift, detail: str) -> None:
        """Count drift that was found, once each time, and notify."""

    def note_repaired(self, fabric_id: str, kind: Drift, detail: str) -> None:
        """Count drift that was repaired, and notify."""

    def drift(self, fabric_id: str) -> Mapping[Drift, int]:
        """How often drift was found, by kind."""

    def repaired(self, fabric_id: str) -> Mapping[Drift, int]:
        """How often drift was repaired, by kind."""
