# SPDX-License-Identifier: Apache-2.0

"""What a worker remembers of a fabric from round to round: what was told, when to look again.

A round gets the memory of the round before it, and returns the next one. A new worker starts with
``NOTHING_REMEMBERED``: it looks at everything again, and tells again what still differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from laas_service.app.records import Drift
from laas_service.domain.topology import Link


@dataclass(frozen=True, slots=True)
class RateLimitsMemory:
    """Sending limits: when to look again, and what was told of servers without one."""

    next_look: datetime | None = None
    unlimited: Mapping[str, str] = field(default_factory=dict)
    """By allocation id, servers that are not limited, as last logged."""


@dataclass(frozen=True, slots=True)
class HostsMemory:
    """Compute hosts: when to look again, and the strangers that were told."""

    next_look: datetime | None = None
    looked: datetime | None = None
    """When the last look began."""
    strangers: Mapping[str, str] = field(default_factory=dict)
    """What was told, by owner of the hosts."""


@dataclass(frozen=True, slots=True)
class DriftMemory:
    """Drift that was told, and what the next check needs to know of the last one."""

    known: Mapping[tuple[Drift, str], str] = field(default_factory=dict)
    """How things differ, by kind and subject, as last told."""
    routes_suspected: bool = False
    """The routes seemed lost at the last check."""
    pool_asked: bool = False
    """The hosts were put into the pool once."""
    unpooled: frozenset[str] | None = frozenset()
    """Hosts that were not in the pool at the last check; None: not known which."""


@dataclass(frozen=True, slots=True)
class FaultsMemory:
    """The ports, as last observed; what lasts of their faults is in the store."""

    excesses: Mapping[Link, str] = field(default_factory=dict)
    """Links with too many errors, and the evidence, as last logged."""
    hold_down: float | None = None
    """Seconds until a hold-down ended then; None: none was running."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one fabric."""

    rate_limits: RateLimitsMemory = RateLimitsMemory()
    hosts: HostsMemory = HostsMemory()
    drift: DriftMemory = DriftMemory()
    faults: FaultsMemory = FaultsMemory()


NOTHING_REMEMBERED = Memory()
