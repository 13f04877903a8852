# SPDX-License-Identifier: Apache-2.0

"""The ledger as readers see it: policies, searches and reports cannot write through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import CommonPlane
from laas_service.domain.features import Features
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger.free import C, ReaderCache
from laas_service.domain.ledger.ledger import Ledger
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.topology import Link, Topology


class FreeView(Protocol):
    """The free hosts and links of a ledger, as policies and searches read them: ``FreeMasks``."""

    @property
    def topology(self) -> Topology:
        """The tree, with hosts and links that are absent."""

    @property
    def free_hosts(self) -> Sequence[int]:
        """Masks of free slots by leaf group."""

    @property
    def free_uplinks(self) -> Sequence[int]:
        """Masks of free uplinks by leaf group."""

    @property
    def free_spines(self) -> Sequence[int]:
        """Masks of free spine uplinks by pod and column; made whenever they are read."""

    @property
    def free_lanes(self) -> Sequence[int]:
        """The same by pod, with a lane for each column."""

    @property
    def free_host_count(self) -> int:
        """How many hosts are free."""

    @property
    def pod_free_hosts(self) -> Sequence[int]:
        """How many hosts are free, by pod."""

    @property
    def groups_by_free(self) -> Sequence[int]:
        """Bit sets of leaf groups by their number of free hosts."""

    @property
    def pod_groups_by_free(self) -> Sequence[Sequence[int]]:
        """The same within each pod."""

    def groups_with_room(self, pod: int, hosts: int) -> list[int]:
        """The pod's leaf groups with at least that many free hosts, the fullest first."""

    @property
    def freed(self) -> int:
        """Generation: advances whenever a host or link becomes free."""

    @property
    def pod_freed(self) -> Sequence[int]:
        """The same for the hosts and leaf uplinks of each pod."""

    def last_freed(self, hosts: int) -> int:
        """When last a placement with ``hosts`` or more on each leaf could become possible."""

    @property
    def reader_caches(self) -> Mapping[type[ReaderCache], Any]:
        """The objects of all readers by their classes."""

    def reader_cache(self, kind: type[C]) -> C:
        """The object of this kind that readers keep with this ledger."""


class LedgerView(FreeView, Protocol):
    """A ledger that is only read. Every ``Ledger`` is one; ``state`` and ``free`` say more.

    The type checker refuses writes; nothing is wrapped, so reading costs what it costs on
    the ledger itself. ``copy``, ``flattened``, ``unowned`` and ``within`` give the reader a
    ``Ledger`` of its own.
    """

    @property
    def lost_host_count(self) -> int:
        """How many hosts would be free were they not failed or drained."""

    @property
    def odd_groups(self) -> Sequence[int]:
        """Bit sets, by pod, of the leaf groups that miss an uplink."""

    @property
    def allocations(self) -> Mapping[str, Allocation]:
        """The owners by id, in the order of their claims."""

    @property
    def failed_hosts(self) -> AbstractSet[int]:
        """Numbers of the hosts that are down."""

    @property
    def drained_hosts(self) -> AbstractSet[int]:
        """Numbers of the hosts that get no new allocation."""

    @property
    def failed_links(self) -> AbstractSet[Link]:
        """The links that are down."""

    @property
    def drained_links(self) -> AbstractSet[Link]:
        """The links that no new owner gets."""

    @property
    def features(self) -> Features:
        """The traits and costs of hosts."""

    @property
    def shared_plane(self) -> CommonPlane:
        """The links that no allocation gets."""

    @property
    def inventory(self) -> Inventory | None:
        """The switches and cables; None if they are not known."""

    @property
    def undisturbed(self) -> frozenset[str]:
        """Ids of the owners whose links nobody else's packets may have to cross."""

    @property
    def used_slots(self) -> dict[int, int]:
        """Host -> slots with an owner, of shared hosts."""

    def everybody(self) -> Iterator[Allocation]:
        """All allocations that hold hosts, a container before those inside it."""

    def sharers(self) -> Iterator[Allocation]:
        """All allocations that have slots of shared hosts."""

    @property
    def scope(self) -> str | None:
        """The id of the container that this ledger is of; None for the fabric itself."""

    @property
    def part(self) -> Allocation | None:
        """The allocation whose hosts are shared that this ledger is of; None if it is of none."""

    def owners_of_hosts(self) -> Mapping[int, str]:
        """Host number -> id of its innermost owner."""

    def owners_of_links(self) -> Mapping[Link, str]:
        """Link -> id of its innermost owner."""

    @property
    def inside(self) -> Mapping[str, LedgerView]:
        """The ledger of each container, by its id."""

    def ledger(self, scope: str | None) -> LedgerView:
        """The ledger of a container, the fabric's own for None. Raises: NotFound."""

    def holder(self, allocation_id: str) -> LedgerView:
        """The ledger in which an allocation is. Raises: NotFound."""

    def copy(self) -> Ledger:
        """A ledger of its own in the same state."""

    def flattened(self) -> Ledger:
        """A ledger of its own in which containers are owners like any other."""

    def unowned(self) -> Ledger:
        """A ledger of its own without owners."""

    def within(self, extent: Masks) -> Ledger:
        """A ledger of its own in which only ``extent`` exists."""

    def state(self) -> tuple[object, ...]:
        """Everything that can change, comparable: equal states behave equally."""
