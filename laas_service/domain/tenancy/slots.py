# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts: terms of sharing, demands, and the slots that an allocation holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

MOST_SLOTS = 65_536
"""Virtual machines of one allocation."""

LEAST_RISK, MOST_RISK = 1e-9, 0.5
"""Bounds of the probability that demands exceed a link. The quantile is infinite at 0, and is
not exact near it; above 0.5 demands would need less than their means."""


GRAIN = 1_000_000
"""Amounts are whole steps of 1 / GRAIN Gb/s, that is kb/s, so sums are exact."""


def steps_up(amount: float) -> int:
    """Gb/s, or Gb/s squared, in steps of 1 / GRAIN; finer amounts are rounded up."""
    return math.ceil(round(amount * GRAIN, 3))  # 5.6 is 5,600,000 steps, however floats say it


def steps_down(amount: float) -> int:
    """As ``steps_up``, rounded down: what a link has."""
    return math.floor(round(amount * GRAIN, 3))


class Sharing(NamedTuple):
    """How the hosts of an allocation are shared: slots for virtual machines, and links."""

    slots: int
    """Virtual machines that each host holds, at least 1."""
    bandwidth: float
    """Of each link in each direction, in Gb/s."""
    risk: float = 0.05
    """The highest probability that stochastic demands exceed a link: 1e-9 to 0.5."""
    open: bool = False
    """Whether other projects than the owner's may have slots."""


Amounts = float | tuple[float, ...]
"""In Gb/s: of each virtual machine, or of one after the other."""


def listed_amounts(amounts: Amounts) -> tuple[float, ...]:
    """The amounts that are given: one of all virtual machines, or one of each."""
    return amounts if isinstance(amounts, tuple) else (amounts,)


class SlotDemand(NamedTuple):
    """Virtual machines with demands for bandwidth; source: SVC's <N, mu, sigma>, and <N, (..)>.

    Each sends and receives at most ``bandwidth``, for certain if ``deviation`` is 0. Otherwise
    its demand is a normal variable of this mean and standard deviation, cut off at 0.
    """

    slots: int
    """At least 1."""
    bandwidth: Amounts
    """Above 0."""
    deviation: Amounts = 0.0

    @property
    def alike(self) -> bool:
        """Whether one amount stands for all virtual machines."""
        return not isinstance(self.bandwidth, tuple) and not isinstance(self.deviation, tuple)

    @property
    def each(self) -> list[tuple[float, float]]:
        """(bandwidth, deviation) of each virtual machine."""
        amounts = (self.bandwidth, self.deviation)
        means, deviations = (
            amount if isinstance(amount, tuple) else (amount,) * self.slots for amount in amounts
        )
        return list(zip(means, deviations, strict=True))

    @property
    def range(self) -> str:
        """The bandwidths, for people."""
        amounts = listed_amounts(self.bandwidth)
        low, high = min(amounts), max(amounts)
        return f"{low:g} Gb/s" if low == high else f"{low:g} to {high:g} Gb/s"


class Promise(NamedTuple):
    """What a virtual cluster is promised on a link in one direction.

    Amounts are in steps of 1 / GRAIN Gb/s, and the variance of as many Gb/s squared.
    """

    link: int
    """``2 * number``, and 1 more for the direction down. The number is ``Xgft.link_id``; that of
    a host's own link is all cables between switches plus the host."""
    certain: int
    mean: int
    variance: int


@dataclass(frozen=True, slots=True)
class HeldSlots:
    """The place of a virtual cluster: slots of hosts, and what links promise."""

    demand: SlotDemand
    units: tuple[tuple[int, tuple[int, ...]], ...]
    """(host, numbers of the virtual machines on it), ascending; no host is without any."""
    promised: tuple[Promise, ...]
    """Ascending by link."""
    moves: tuple[tuple[int, int, int], ...] = ()
    """(virtual machine by its old number, old host, new host) that lead to this place."""
    passing: tuple[Promise, ...] = ()
    """What links promise beside until these moves are over."""

    @property
    def counts(self) -> dict[int, int]:
        """Host -> virtual machines."""
        return {host: len(units) for host, units in self.units}

    @property
    def reached(self) -> HeldSlots:
        """The same place once all moves are over."""
        return replace(self, moves=(), passing=())

    def joined(self, other: HeldSlots) -> HeldSlots:
        """What is held while virtual machines move between the two places; numbers mean nothing."""
        old, new = dict(self.units), dict(other.units)
        alike = self.demand.alike and other.demand.alike
        units = (
            (host, tuple(range(_most_units(old.get(host, ()), new.get(host, ()), alike=alike))))
            for host in sorted(old.keys() | new.keys())
        )
        most: dict[int, Promise] = {}
        for promise in (*self.promised, *self.passing, *other.promised, *other.passing):
            known = most.get(promise.link, promise)
            most[promise.link] = Promise(*map(max, promise, known))
        promised = tuple(most[link] for link in sorted(most))
        return HeldSlots(_larger(self.demand, other.demand), tuple(units), promised)


def _larger(one: SlotDemand, other: SlotDemand) -> SlotDemand:
    """A demand with the larger amounts of both for each virtual machine."""
    slots = max(one.slots, other.slots)
    bandwidth, deviation = (
        max(a, b)
        if not isinstance(a, tuple) and not isinstance(b, tuple)
        else tuple(map(max, _padded(a, slots), _padded(b, slots)))
        for a, b in ((one.bandwidth, other.bandwidth), (one.deviation, other.deviation))
    )
    return SlotDemand(slots, bandwidth, deviation)


def _padded(amounts: Amounts, slots: int) -> tuple[float, ...]:
    """One amount for each of so many virtual machines, 0 where there is none."""
    if not isinstance(amounts, tuple):
        return (amounts,) * slots
    return amounts + (0.0,) * (slots - len(amounts))


def _most_units(old: Sequence[int], new: Sequence[int], *, alike: bool) -> int:
    """Virtual machines on a host while some move; only those that differ keep their numbers."""
    return max(len(old), len(new)) if alike else len({*old, *new})
