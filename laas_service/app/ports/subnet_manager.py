# SPDX-License-Identifier: Apache-2.0

"""The subnet manager: what it should route, and what the switches run."""

from collections.abc import Callable, Mapping
from typing import Protocol

from laas_service.app.ports.observations import Observations
from laas_service.domain.faults.counters import SwitchCounters
from laas_service.domain.faults.reading import FabricReading
from laas_service.domain.inventory import PortRef
from laas_service.messages import Applied, FabricState, Span, Standing

ReadBack = Callable[[str], Applied]
"""``SubnetManagerReader.applied``, or the same from the record."""


class SubnetManagerReader(Protocol):
    """Questions to the subnet manager and the switches; none of them changes anything there."""

    def applied(self, fabric: str) -> Applied:
        """The generation in the switches, and what it is confirmed by.

        Only ``ConfirmedBy.SWITCHES`` and ``AGENT`` mean that tables were read back and compared;
        ``UFM`` means that partitions were.
        """

    def on_disk(self, fabric: str) -> tuple[int, str] | None:
        """The generation, with its stamp, of the files that a set now would replace.

        None if there are none, or if they are not kept here.
        """

    def standing(self, fabric: str) -> Standing | None:
        """Which partitions of the last publication have their routes in the switches already.

        Every entry that pairs of their members use is read afresh, and no set that a sweep may
        still write has another one. None where that cannot be told.
        """

    def prepared(self, fabric: str) -> bool:
        """Whether ``applied`` can compare all tables without waiting until they are read.

        If not, they are being read beside the caller, who asks again later.
        """

    def reading(self, fabric: str) -> FabricReading | None:
        """The last look at the ports of the fabric; None if there is none. ``Unavailable``.

        ``at`` is by the clock of the service.
        """

    def counters(self, fabric: str) -> tuple[SwitchCounters, ...]:
        """Port counters that were read since the last call, the newest of each switch.

        ``at`` is by the clock of the service. Empty where the store gets them otherwise.
        """

    def marks_differ(self, fabric: str, wanted: frozenset[PortRef]) -> bool:
        """Whether the last ``reading`` shows other marks than ``wanted``; see ``mark_ports``.

        Never where the manager isolates no ports for the service.
        """


class SubnetManager(SubnetManagerReader, Protocol):
    """Makes switches route as recorded."""

    def publish(self, state: FabricState) -> Mapping[Span, float]:
        """Make the files for this state current and have them read; safe to repeat.

        Returns the seconds of its steps; empty if they are taken by another process.

        ``LimitExceeded``, ``Unavailable``, or ``Conflict`` if it would disturb a tenant
        that did not change; the files published before then stay.
        """

    def mark_ports(self, fabric: str, wanted: frozenset[PortRef]) -> None:
        """Isolate exactly ``wanted`` for the service: the ports of links in quarantine.

        Safe to repeat. Ports that the manager isolates without the service are left alone.
        ``Unavailable``.
        """


class RecordedSwitches:
    """For processes that cannot read the switches: the last recorded observation."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations

    def applied(self, fabric: str) -> Applied:
        """Raises: NotFound."""
        holding = self._observations.holding(fabric)
        if holding.seen_at is None:
            return Applied(None, "no worker has looked yet")
        return holding.shown
