# SPDX-License-Identifier: Apache-2.0

"""A reading of a fabric: what one look at the ports says of the recorded cables.

The process beside the subnet manager takes readings, the service interprets them. A reading
names only the ends of recorded cables that are not up, so it is small on a sound fabric.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from laas_service.domain.inventory import PortRef


class PortState(StrEnum):
    """What a reading says of one end of a recorded cable."""

    UP = "up"  # linked to the recorded other end
    DOWN = "down"  # no physical link
    SILENT = "silent"  # physically up, but the other end does not answer
    OTHER = "other"  # linked to another port than the recorded one
    UNREAD = "unread"  # the node of this port was not reached


class EndReading(NamedTuple):
    """The state of one end; ``other`` is the port that it is linked to if it is ``OTHER``.

    The end at a channel adapter is (port GUID, port number).
    """

    end: PortRef
    state: PortState
    other: PortRef | None = None


class UnknownSwitch(NamedTuple):
    """A switch that the inventory does not record."""

    guid: int
    name: str


class UnknownCable(NamedTuple):
    """A cable between two ports that the inventory records without one."""

    first: PortRef
    second: PortRef


class UnhealthyPort(NamedTuple):
    """A port that the subnet manager does not use, for a reason of its own or of somebody else."""

    port: PortRef
    condition: str


@dataclass(frozen=True, slots=True)
class FabricReading:
    """One look at the fabric. Of a switch that was not read, every recorded end is ``UNREAD``."""

    at: float
    """When the reading was last known to hold, in seconds since the epoch by the clock of the
    service. An observer that noticed no event since its last look repeats the reading."""
    ends: tuple[EndReading, ...] = ()
    """The recorded ends that are not ``UP``, and the observer's own port if it is not."""
    observer: PortRef | None = None
    """The port through which the observer reads; None if it is not known."""
    nodes_read: int = 0
    """How many switches and channel adapters answered."""
    switches_read: int = 0
    """How many switches answered."""
    unknown_switches: tuple[UnknownSwitch, ...] = ()
    unknown_cables: tuple[UnknownCable, ...] = ()
    ends_left_out: int = 0
    """How many more ends are not ``UP``, but are not listed because they are too many. Ends
    towards adapters are left out first."""
    unhealthy: tuple[UnhealthyPort, ...] = ()
    """Ports that the subnet manager holds unhealthy, of a manager that does."""
