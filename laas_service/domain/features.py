# SPDX-License-Identifier: Apache-2.0

"""Host features: traits, costs and domains, for clouds whose hosts are not all alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from laas_service.domain.topology import Topology


class HostFeatures(NamedTuple):
    """The traits, the cost and the domains of one host."""

    traits: frozenset[str] = frozenset()
    """Names in the form of ``TRAIT``."""

    cost: int = 0
    """What the host costs, 0 to ``DEAREST``, in any unit."""

    domains: tuple[tuple[str, str], ...] = ()
    """(Kind, name) of its domain of each kind that it is in, ascending by kind. Domains are hosts
    that belong together: racks that share NVLink, power feeds."""


class HostChange(NamedTuple):
    """A change of a host's features; None leaves a field as it is."""

    traits: frozenset[str] | None = None
    cost: int | None = None
    domains: tuple[tuple[str, str], ...] | None = None

    def of(self, features: HostFeatures) -> HostFeatures:
        """These features after the change."""
        return HostFeatures(
            features.traits if self.traits is None else self.traits,
            features.cost if self.cost is None else self.cost,
            features.domains if self.domains is None else self.domains,
        )


TRAIT = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}$"
"""The form of a trait's name, which includes the names of Nova's traits."""

KIND = r"(?!(leaf|pod)$)[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}"
"""The form of the name of a kind of domains. Leaves and pods are no domains."""

DOMAIN = r"^[!-~]([ -~]{0,253}[!-~])?$"
"""The form of a domain's name."""

DEAREST = 2**31 - 1
"""The highest cost of a host."""

PLAIN = HostFeatures()
"""A host whose features nobody described."""


class Domain(NamedTuple):
    """The hosts of one domain."""

    name: str
    cells: tuple[tuple[int, int], ...]
    """(Leaf group, mask of its positions), ascending."""
    size: int
    """The number of hosts."""


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

    _domains: dict[str, tuple[Domain, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Answers of ``domains`` by kind, kept once computed."""

    _by_group: dict[int, tuple[Domain, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """The answer of ``smallest``, once computed."""

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

    @cached_property
    def members(self) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
        """By kind and name of each domain the numbers of its hosts, all ascending."""
        members: dict[str, dict[str, list[int]]] = {}
        for host, features in sorted(self.hosts.items()):
            for kind, name in features.domains:
                members.setdefault(kind, {}).setdefault(name, []).append(host)
        return {
            kind: {name: tuple(hosts) for name, hosts in sorted(named.items())}
            for kind, named in sorted(members.items())
        }

    def domains(self, topology: Topology, kind: str) -> tuple[Domain, ...]:
        """The domains of a kind, ascending by name; none if there is no such kind."""
        if kind not in self._domains:
            found = []
            for name, hosts in self.members.get(kind, {}).items():
                masks = topology.positions_of(hosts)
                cells = tuple((group, mask) for group, mask in enumerate(masks) if mask)
                found.append(Domain(name, cells, len(hosts)))
            self._domains[kind] = tuple(found)
        return self._domains[kind]

    def smallest(self, topology: Topology) -> Mapping[int, tuple[Domain, ...]]:
        """By leaf group, its domains of the kind whose domains are smallest on average."""
        if not self._by_group and self.members:
            members = self.members
            sizes = {
                kind: sum(map(len, named.values())) / len(named) for kind, named in members.items()
            }
            found: dict[int, list[Domain]] = {}
            for domain in self.domains(topology, min(sizes, key=lambda kind: (sizes[kind], kind))):
                for group, _ in domain.cells:
                    found.setdefault(group, []).append(domain)
            self._by_group.update({group: tuple(domains) for group, domains in found.items()})
        return self._by_group

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
