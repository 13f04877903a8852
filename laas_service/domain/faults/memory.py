# SPDX-License-Identifier: Apache-2.0

"""What the service remembers of a fabric between two readings, and what operators do to it.

The memory holds only what is not up or went down recently. It is stored as a JSON document.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from laas_service.domain.faults.interpretation import UnreadSwitch
from laas_service.domain.topology import Link


class LinkCondition(StrEnum):
    """The condition of a link, whether or not the record says the same."""

    WATCHED = "watched"  # not down; it went down recently
    SUSPECTED = "suspected"  # down for less than the hold-down
    FAILED = "failed"  # down for the hold-down, and not seen up since
    QUARANTINED = "quarantined"  # went down too often, or has too many errors; has to stay up

    @property
    def bad(self) -> bool:
        """Whether a link in this condition is not usable, or soon will not be."""
        return self is not LinkCondition.WATCHED

    @property
    def unusable(self) -> bool:
        """Whether the record should say that a link in this condition has failed."""
        return self in (LinkCondition.FAILED, LinkCondition.QUARANTINED)


class CircuitState(StrEnum):
    """What the circuit breaker makes of a change."""

    NEW = "new"  # not decided
    PASSED = "passed"  # let through; still counts in its window
    ACCEPTED = "accepted"  # acknowledged by an operator; does not count


@dataclass(frozen=True, slots=True)
class LinkMemory:
    """A link that is not up, or went down recently. Times are seconds since the epoch."""

    condition: LinkCondition
    since: float
    """When the first of an uninterrupted row of readings said that the link is down; for a
    quarantined link, when the quarantine began."""
    evidence: str
    downs: tuple[float, ...] = ()
    """When it went down, ascending; only recent times."""
    up_since: float | None = None
    """Since when it is seen up; None if it was not seen up after the last time it went down."""
    switch: int = 0
    """The GUID of the dead switch that took it down; 0 if none did."""
    moved: bool = False
    """Whether an end of it is linked to another port than the recorded one."""
    marked: bool = False
    """Whether the record says failed, source ``observed``."""
    standing: CircuitState = CircuitState.NEW


@dataclass(frozen=True, slots=True)
class SwitchMemory:
    """A switch that is not read, or answers again and is not compared yet."""

    state: UnreadSwitch
    since: float
    """When it was first not read, or answered again; seconds since the epoch."""
    standing: CircuitState = CircuitState.NEW


class WithheldHost(NamedTuple):
    """A host that nobody new gets, because it cannot be reached as recorded."""

    since: float
    """Seconds since the epoch."""
    evidence: str
    failed: bool = False
    """Whether it is cut off for certain, as its leaf is dead; else its owner may still use it."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Why nothing is marked until an operator acknowledges it, or the fabric is as before."""

    at: float
    text: str
    """What was seen."""
    observer: bool = False
    """Whether the observer itself has no way to the fabric."""


@dataclass(frozen=True, slots=True)
class FaultMemory:
    """What earlier readings leave behind; an empty memory is that of a sound fabric."""

    at: float | None = None
    """The time of the last reading that was believed."""
    links: Mapping[Link, LinkMemory] = field(default_factory=dict)
    switches: Mapping[int, SwitchMemory] = field(default_factory=dict)
    """By GUID."""
    hosts: Mapping[str, float] = field(default_factory=dict)
    """Names of absent hosts, and since when they are absent."""
    withheld: frozenset[Link] = frozenset()
    """Links of switches that cannot be confirmed: nobody new gets them, their owners keep them."""
    withheld_hosts: Mapping[int, WithheldHost] = field(default_factory=dict)
    """Hosts, by number, at switches that are not confirmed, and those with another adapter at one
    of their ports."""
    closed: frozenset[Link] = frozenset()
    """Moved links, over which no table may lead; they are marked as well."""
    opened: float | None = None
    """When the first change was seen that is not decided; None if there is none."""
    alarm: Alarm | None = None
    blind_since: float | None = None
    """Since when the observer has no way to the fabric; None if it has one."""
    blindness_accepted: bool = False
    """Whether an operator acknowledged that."""
    told: tuple[str, ...] = ()
    """The news of the last reading."""

    @property
    def marked(self) -> frozenset[Link]:
        """The links that the record holds as failed, source ``observed``."""
        return frozenset(link for link, entry in self.links.items() if entry.marked)


NOTHING_SEEN = FaultMemory()


def acknowledge(memory: FaultMemory) -> FaultMemory:
    """The memory after an operator accepted what is seen: the next judgement marks it.

    Changes nothing if no alarm stands.
    """
    if memory.alarm is None:
        return memory
    if memory.alarm.observer:
        return replace(memory, alarm=None, blindness_accepted=True)
    accepted = CircuitState.ACCEPTED
    links = {
        link: replace(entry, standing=accepted) if entry.condition.bad else entry
        for link, entry in memory.links.items()
    }
    switches = {guid: replace(s, standing=accepted) for guid, s in memory.switches.items()}
    return replace(memory, links=links, switches=switches, alarm=None)


def release(memory: FaultMemory, links: Iterable[Link]) -> FaultMemory:
    """The memory after an operator called these links repaired: quarantines and histories end.

    A link becomes usable when a reading says that it is up, so one that is seen down stays failed.
    """
    released = {
        link: replace(
            entry,
            condition=LinkCondition.FAILED if entry.condition.unusable else entry.condition,
            downs=(),
            up_since=None if entry.condition.unusable else entry.up_since,
        )
        for link in links
        if (entry := memory.links.get(link)) is not None
    }
    return replace(memory, links={**memory.links, **released})
