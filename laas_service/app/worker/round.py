# SPDX-License-Identifier: Apache-2.0

"""The world as a worker sees it in one round: a frozen value, read in one transaction.

All decisions of a round rest on it. What a decision records changes the round only through the
answer of that instruction: the new record of an allocation, the new memory of the hosts.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random

from laas_service.app.handovers import is_in_compute
from laas_service.app.records import AllocationRecord, FabricRecord, Observation
from laas_service.domain.compute_hosts import HostRules
from laas_service.domain.faults.counters import CounterRules
from laas_service.domain.faults.interpretation import Cabling
from laas_service.domain.faults.observation import Mode
from laas_service.domain.faults.observation import Rules as FaultRules
from laas_service.messages import Applied


class CounterMode(StrEnum):
    """What follows from a port with too many errors."""

    OFF = "off"  # counters are not accounted
    PROPOSE = "propose"  # it is told
    MARK = "mark"  # its link is quarantined, as one that goes down too often


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait, in seconds.

    A step that failed or waits is retried after ``first``, doubled each time up to ``last``;
    the same routes are published again after ``apply_timeout``.
    """

    first: float = 1.0
    last: float = 60.0
    apply_timeout: float = 120.0

    def pause(self, failures: int, chance: Random) -> timedelta:
        """The pause after ``failures`` earlier ones, shortened at random by up to half."""
        full = min(self.last, self.first * 2.0 ** min(failures, 30))
        return timedelta(seconds=full * chance.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class LookRules:
    """How hosts are observed.

    Looks are ``interval`` seconds apart or more. With ``stop_strangers`` servers that may not be
    on a host of an allocation are stopped. ``withholding``: which hosts no new owner gets.
    """

    interval: float = 60.0
    stop_strangers: bool = False
    withholding: HostRules = field(default_factory=HostRules)


@dataclass(frozen=True, slots=True)
class WorkerRules:
    """What an operator configured for workers."""

    pace: Pace = Pace()
    repair: bool = True
    """Drift is repaired; else it is reported and left alone."""
    repair_links: bool = True
    """Failed links of live allocations are replaced; else they are left alone."""
    park_after: int = 5
    """So often an unexpected error is met before its allocation is parked in ``error``."""
    move_window: float = 3600.0
    """Seconds until the hosts that a move takes from an owner must be empty; else it turns back."""
    free_unread: bool = False
    """Hosts and links are free although nobody has read the switches."""
    live_ports: bool = False
    """The ports of servers can migrate live."""
    rate_limits_interval: float = 10.0
    """Seconds between two looks at what servers of class ``shared`` may send."""
    looks: LookRules = LookRules()
    faults: FaultRules | None = None
    """How the ports of the fabric are judged; None: they are not observed."""
    counters: CounterMode = CounterMode.OFF
    counter_rules: CounterRules = field(default_factory=CounterRules)


USUAL = WorkerRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What is always true of compute and the subnet manager that are configured."""

    scripted: bool
    """As ``ComputeReader.scripted``."""
    claims_slots: bool
    """As ``ComputeReader.claims_slots``."""
    limited_by: str | None = None
    """What limits what servers send; None: nothing does."""


@dataclass(frozen=True, slots=True)
class RoutesSeen:
    """What the switches run, and what that means for the newest routes."""

    applied: Applied
    lost: bool
    """The switches ran the newest routes when last recorded, and no longer do."""
    ever_applied: bool
    """The switches have run the newest routes before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One fabric in one round."""

    now: datetime
    fabric: FabricRecord
    observation: Observation
    cabling: Cabling
    outside: Outside
    due: tuple[AllocationRecord, ...] = ()
    """Allocations with a step due, in order of creation."""
    rules: WorkerRules = USUAL

    def hands_over(self, record: AllocationRecord) -> bool:
        """Whether hosts of an allocation are in compute, whole ones or slots."""
        return is_in_compute(record, claims_slots=self.outside.claims_slots)

    @property
    def frozen(self) -> bool:
        """Whether nothing of the fabric's routes may change."""
        faults = self.rules.faults
        if faults is None:
            return False
        return (self.observation.mode or faults.mode) is Mode.FROZEN
