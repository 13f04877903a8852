# SPDX-License-Identifier: Apache-2.0

"""Host features: traits and costs, for clouds whose hosts are not all alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from laas_service.domain.topology import Topology


class HostFeatures(NamedTuple):
    """The traits and the cost of one host."""

    traits: frozenset[str] = frozenset()
    """Names in the form of ``TRAIT``."""

    cost: int = 0
    """What the host costs, 0 to ``DEAREST``, in any unit."""


class HostChange(NamedTuple):
    """A change of a host's features; None leaves a field as it is."""

    traits: frozenset[str] | None = None
    cost: int | None = None

    def of(self, features: HostFeatures) -> HostFeatures:
        """These features after the change."""
        return HostFeatures(
            features.traits if self.traits is None else self.traits,
            features.cost if self.cost is None else self.cost,
        )


TRAIT = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}$"
"""The form of a trait's name, which includes the names of Nova's traits."""

DEAREST = 2**31 - 1
"""The highest cost of a host."""

PLAIN = HostFeatures()
"""A host whose features nobody described."""


@dataclass(frozen=True)
class Features:
    """The features of all hosts of a fabric. Source: LaaS (ANCS'16) section 5.

    Immutable, so that ledgers share it.
    """

    hosts: Mapping[int, HostFeatures] = field(default_factory=dict)
    """By host number; a host that is missing is plain."""

    _masks: dict[str | int, tuple[int, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Answers of ``masks`` by trait and of ``dearer`` by cost, kept once computed."""

    def of(self, host: int) -> HostFeatures:
        """The features of one host."""
        return self.hosts.get(host, PLAIN)

    def having(self, described: Mapping[int, HostFeatures]) -> Features:
        """The same, with these descriptions of these hosts."""
        hosts = {**self.hosts, **described}
        return Features({host: features for host, features in hosts.items() if features != PLAIN})

    @property
    def traits(self) -> frozenset[str]:
        """Every trait that any host has."""
        return frozenset().union(*(features.traits for features in self.hosts.values()))

    def masks(self, topology: Topology, trait: str) -> tuple[int, ...]:
        """For each leaf group the slots whose hosts have the trait."""
        if trait not in self._masks:
            having = (host for host, features in self.hosts.items() if trait in features.traits)
            self._masks[trait] = topology.positions_of(having)
        return self._masks[trait]

    def dearer(self, topology: Topology, cost: int) -> tuple[int, ...]:
        """For each leaf group the slots whose hosts cost more than ``cost``."""
        ceiling = max((known for known in self._costs if known <= cost), default=-1)
        if ceiling not in self._masks:
            dearer = (host for host, features in self.hosts.items() if features.cost > ceiling)
            self._masks[ceiling] = topology.positions_of(dearer)
        return self._masks[ceiling]

    @cached_property
    def _costs(self) -> frozenset[int]:
        """The costs that occur, so that ``dearer`` keeps one answer for each and no more."""
        return frozenset(features.cost for features in self.hosts.values())

    def cost(self, hosts: tuple[int, ...]) -> int:
        """The sum of what these hosts cost."""
        return sum(self.of(host).cost for host in hosts)


PLAIN_HOSTS = Features()
"""The features of a fabric whose hosts nobody described."""
