# SPDX-License-Identifier: Apache-2.0

"""Kinds of tenancy: ``Owned``, ``Container``, ``SharedHosts`` and ``Slots``.

A kind says what an allocation claims, what may lie inside, what compute hands over, what counts
for the quota, and why something cannot be done with it. ``app.lifecycle`` has the steps of its
changes, in a table by kind. Callers ask the kind instead of looking at fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from laas_service.domain.tenancy.slots import Sharing, SlotDemand


class Uses(NamedTuple):
    """What an allocation adds to what its project has."""

    hosts: int
    slots: int


class _OfHosts:
    """The answers of a kind that claims whole hosts and links."""

    __slots__ = ()

    class_of_service: ClassVar[Literal["owned", "shared"]] = "owned"
    """As requests name it."""
    whole_hosts: ClassVar[bool] = True
    """Whether it claims hosts and links, and so routes, for itself."""
    own_keys: ClassVar[bool] = True
    """Whether it gets partition keys of its own."""
    handed_over: ClassVar[bool] = False
    """Whether its hosts are handed over to its project in compute."""
    encloses: ClassVar[bool] = False
    """Whether its hosts are for further allocations, whose ``parent`` it is."""
    claims: ClassVar[str] = "hosts or links"
    """What others may have taken of its placement, for people."""
    stays: ClassVar[str] = ""
    """Why it stays on hosts that are to become free; empty: it may move."""
    needs_parent: ClassVar[str] = "is no container"
    """Why an allocation that does not accept this kind cannot be its parent."""

    def accepts(self, inner: Kind) -> bool:
        """Whether an allocation of that kind may lie inside."""
        return False

    def named(self, hosts: int) -> str:
        """What an allocation of that many hosts asks for, for people."""
        return f"{hosts} hosts"

    def uses(self, hosts: int, *, inside: bool) -> Uses:
        """What it adds for the quota; hosts ``inside`` a container are counted with it."""
        return Uses(0 if inside else hosts, 0)

    @property
    def keeps_hosts(self) -> str | None:
        """Why its hosts and their number stay, after its name; None: they may change."""
        return None

    @property
    def keeps_links(self) -> str | None:
        """Why its links stay, after its name; None: others may replace them."""
        return None


@dataclass(frozen=True, slots=True)
class Owned(_OfHosts):
    """Whole hosts and links for the servers of one project."""

    handed_over: ClassVar[bool] = True


class _Enclosing(_OfHosts):
    """The answers of a kind whose hosts are for allocations inside."""

    __slots__ = ()

    encloses: ClassVar[bool] = True

    @property
    def keeps_hosts(self) -> str:
        return (
            "is a container, and allocations inside may use its hosts; make another container of "
            "the size that is needed"
        )

    @property
    def keeps_links(self) -> str:
        return (
            "is a container, and allocations inside may use its links; repair those, or release "
            "them and the container"
        )


@dataclass(frozen=True, slots=True)
class Container(_Enclosing):
    """A virtual tenant: hosts and links for further allocations of whole hosts."""

    own_keys: ClassVar[bool] = False
    stays: ClassVar[str] = "it is a container; what is inside moves within it"

    def accepts(self, inner: Kind) -> bool:
        return inner.whole_hosts


@dataclass(frozen=True, slots=True)
class SharedHosts(_Enclosing):
    """Hosts whose slots, and links whose bandwidth, are for virtual machines of others."""

    sharing: Sharing

    stays: ClassVar[str] = "its hosts are shared; those who have slots stay"

    def accepts(self, inner: Kind) -> bool:
        return not inner.whole_hosts


@dataclass(frozen=True, slots=True)
class Slots(_OfHosts):
    """Slots for virtual machines on the hosts of a parent, with bandwidth promised between."""

    demand: SlotDemand

    class_of_service: ClassVar[Literal["owned", "shared"]] = "shared"
    whole_hosts: ClassVar[bool] = False
    own_keys: ClassVar[bool] = False
    claims: ClassVar[str] = "slots"
    stays: ClassVar[str] = "it has slots and no hosts of its own"
    needs_parent: ClassVar[str] = "shares no hosts"

    def named(self, hosts: int) -> str:
        return f"{self.demand.slots} slots"

    def uses(self, hosts: int, *, inside: bool) -> Uses:
        return Uses(0, self.demand.slots)

    @property
    def keeps_hosts(self) -> str:
        return "has slots and no hosts of its own"


Kind = Owned | Container | SharedHosts | Slots

OWNED, CONTAINER = Owned(), Container()


def kind_of(container: bool, sharing: Sharing | None, demand: SlotDemand | None) -> Kind:
    """The kind that recorded fields tell; at most one of them is set."""
    if demand is not None:
        return Slots(demand)
    if sharing is not None:
        return SharedHosts(sharing)
    return CONTAINER if container else OWNED
