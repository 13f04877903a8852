# SPDX-License-Identifier: Apache-2.0

"""What a worker reads of a fabric for one round."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from laas_service.app.records import AllocationRecord, FabricRecord, Observation


@dataclass(frozen=True, slots=True)
class Recorded:
    """A fabric as recorded, all of one state of the database."""

    fabric: FabricRecord
    observation: Observation
    due: tuple[AllocationRecord, ...]
    """Allocations with a step due, in order of creation; of their histories only the user who
    asked last is read (``asked_before``)."""


class Rounds(Protocol):
    """Reads rounds."""

    def read(self, fabric_id: str, now: datetime, *, longest: timedelta, faulty: bool) -> Recorded:
        """The fabric, and its allocations that are due as in ``Allocations.due``: one
        transaction. ``NotFound``."""
