# SPDX-License-Identifier: Apache-2.0

"""What hosts are like: traits and costs, for clouds whose hosts are not all alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from laas_service.domain.topology import Topology


class HostFeatures(NamedTuple):
    """The traits of one host, and what it costs (an integer of at least 0, in any unit)."""

    traits: frozenset[str] = frozenset()
    cost: int = 0


class HostChange(NamedTuple):
    """A new word on a host; None leaves as it is."""

    traits: frozenset[str] | None = None
    cost: int | None = None

    def of(self, known: HostFeatures) -> HostFeatures:
        return HostFeatures(
            known.traits if self.traits is None else self.traits,
            known.cost if self.cost is None else self.cost,
        )


TRAIT = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}$"
"""What a trait's name looks like; the names of Nova's traits do."""

DEAREST = 2**31 - 1
"""The highest cost of a host."""

PLAIN = HostFeatures()
"""A host of which nothing was said."""


@dataclass(frozen=True)
class Features:
    """The features of hosts by number; a host that is not named is plain.

    Immutable, so that ledgers share it, with the masks of what was once asked for. LaaS
    (ANCS'16) section 5.
    """

    hosts: Mapping[int, HostFeatures] = field(default_factory=dict)
    _masks: dict[str | int, tuple[int, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def of(self, host: int) -> HostFeatures:
        return self.hosts.get(host, PLAIN)

    def having(self, known: Mapping[int, HostFeatures]) -> Features:
        """The same with other descriptions of these hosts."""
        hosts = {**self.hosts, **known}
        return Features({host: one for host, one in hosts.items() if one != PLAIN})

    @property
    def traits(self) -> frozenset[str]:
        """Every trait that some host has."""
        return frozenset().union(*(known.traits for known in self.hosts.values()))

    def masks(self, topology: Topology, trait: str) -> tuple[int, ...]:
        """For each leaf group the slots whose hosts have the trait."""
        if trait not in self._masks:
            masks = [0] * topology.groups
            for host, known in self.hosts.items():
                if trait in known.traits:
                    group, slot = topology.place_of(host)
                    masks[group] |= 1 << slot
            self._masks[trait] = tuple(masks)
        return self._masks[trait]

    def dearer(self, topology: Topology, cost: int) -> tuple[int, ...]:
        """For each leaf group the slots whose hosts cost more."""
        ceiling = max((one for one in self._costs if one <= cost), default=-1)
        if ceiling not in self._masks:
            masks = [0] * topology.groups
            for host, known in self.hosts.items():
                if known.cost > ceiling:
                    group, slot = topology.place_of(host)
                    masks[group] |= 1 << slot
            self._masks[ceiling] = tuple(masks)
        return self._masks[ceiling]

    @cached_property
    def _costs(self) -> frozenset[int]:
        return frozenset(known.cost for known in self.hosts.values())

    def cost(self, hosts: tuple[int, ...]) -> int:
        """What hosts cost together."""
        return sum(self.of(host).cost for host in hosts)


PLAIN_HOSTS = Features()
"""A fabric of whose hosts nothing was said."""
