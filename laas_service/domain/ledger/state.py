# SPDX-License-Identifier: Apache-2.0

"""All fields of one ledger; how a ledger is copied and compared."""

from typing import ClassVar, Self, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.common_plane import NO_PLANE
from laas_service.domain.features import PLAIN_HOSTS
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger.free import FreeMasks
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.topology import Link, Topology


class LedgerState(FreeMasks):
    """The fields of a ledger, a fabric's or a container's.

    A host or link is usable if it exists in ``extent`` and is neither failed, drained nor
    withheld. It is free if it is usable and has no owner.
    """

    __slots__ = (
        "allocations",
        "drained_hosts",
        "drained_links",
        "extent",
        "failed_hosts",
        "failed_links",
        "features",
        "inside",
        "inventory",
        "lost_host_count",
        "nests",
        "odd_groups",
        "part",
        "present_hosts",
        "scope",
        "shared_plane",
        "undisturbed",
        "usable_hosts",
        "usable_lanes",
        "usable_uplinks",
        "used_slots",
    )

    SHORT: ClassVar[tuple[str, ...]] = (
        "allocations",
        "drained_hosts",
        "drained_links",
        "failed_hosts",
        "failed_links",
        "freed_groups",
        "inside",
        "odd_groups",
        "pod_freed",
        "reader_caches",
        "used_slots",
    )
    """Fields that are short beside the masks: a copy and a trial have copies of their own."""

    LONG: ClassVar[tuple[str, ...]] = (
        "free_hosts",
        "free_lanes",
        "free_uplinks",
        "groups_by_free",
        "pod_free_hosts",
        "usable_hosts",
        "usable_lanes",
        "usable_uplinks",
    )
    """Lists of masks and counts: a copy has its own; in a trial each change is noted."""

    REPLACED: ClassVar[tuple[str, ...]] = (
        "features",
        "free_host_count",
        "freed",
        "freed_spines",
        "inventory",
        "lost_host_count",
        "shared_plane",
        "undisturbed",
    )
    """Fields whose values never change in place: to write one is to replace its value."""

    FIXED: ClassVar[tuple[str, ...]] = (
        "nests",
        "extent",
        "part",
        "present_hosts",
        "scope",
        "topology",
    )
    """Fields that stay what they are once the ledger is made."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)

        self.allocations: dict[str, Allocation] = {}
        """The owners by id, in the order of their claims."""

        self.failed_hosts: set[int] = set()
        """Numbers of the hosts that are down."""

        self.drained_hosts: set[int] = set()
        """Numbers of the hosts that get no new allocation."""

        self.failed_links: set[Link] = set()
        """The links that are down."""

        self.drained_links: set[Link] = set()
        """The links that no new owner gets."""

        self.features = PLAIN_HOSTS
        """The traits and costs of hosts."""

        self.shared_plane = NO_PLANE
        """The links that no allocation gets."""

        self.inventory: Inventory | None = None
        """The switches and cables, from which default routes follow; None if they are not known.
        Then no placement is judged by the routes beside it."""

        self.undisturbed: frozenset[str] = frozenset()
        """Ids of the owners whose links nobody else's packets may have to cross."""

        self.scope: str | None = None
        """The id of the container that this ledger is of; None for the fabric itself."""

        self.part: Allocation | None = None
        """The allocation that this ledger is of if it shares its hosts (``sharing``). Its owners
        have slots then; no host and no link in this ledger gets another owner."""

        self.used_slots: dict[int, int] = {}
        """Host -> slots with an owner, where there are any."""

        self.inside: dict[str, Self] = {}
        """By id of a container, the ledger of a fabric in which only what it holds exists,
        with its children as owners."""

        self.nests = True
        """Whether containers have ledgers inside; if not they are owners like any other."""

        self.extent = Masks.whole(topology)
        """The hosts and links that exist in this ledger: the whole fabric's or a container's."""

        self.present_hosts = list(self.free_hosts)
        """Masks of the hosts that exist in ``extent``, by leaf group."""

        self.usable_hosts = list(self.free_hosts)
        self.usable_uplinks = list(self.free_uplinks)
        self.usable_lanes = list(self.free_lanes)
        """Masks in the form of the free ones: what can be handed out once it has no owner."""

        self.lost_host_count = 0
        """Hosts that would be free were they not failed or drained."""

        self.odd_groups = [0] * topology.pods
        """``odd_groups[pod]``: bit set of the pod's leaf groups that miss an uplink, because it
        is absent, failed, drained or withheld. Owners of uplinks own hosts below them, so any other
        group whose hosts are all free has all its uplinks free."""


S = TypeVar("S", bound=LedgerState)


def copied(state: S) -> S:
    """A ledger of its own in the same state; values that never change are shared.

    The ledgers inside are still those of the original.
    """
    copy = type(state).__new__(type(state))
    for name in (*state.SHORT, *state.LONG):
        setattr(copy, name, getattr(state, name).copy())
    for name in (*state.REPLACED, *state.FIXED):
        setattr(copy, name, getattr(state, name))
    copy.pod_groups_by_free = [bit_sets.copy() for bit_sets in state.pod_groups_by_free]
    copy.undo = None
    return copy


def aliased(state: LedgerState, kind: type[S]) -> S:
    """A ledger of class ``kind`` with the very fields of ``state``, to replace some of them."""
    alias = kind.__new__(kind)
    for name in (*kind.SHORT, *kind.LONG, *kind.REPLACED, *kind.FIXED):
        setattr(alias, name, getattr(state, name))
    alias.pod_groups_by_free = state.pod_groups_by_free
    alias.undo = None
    return alias


def comparable(state: LedgerState) -> tuple[object, ...]:
    """Everything that can change, as a value: equal values behave equally."""
    return (
        tuple(state.free_hosts),
        tuple(state.free_uplinks),
        tuple(state.free_lanes),
        frozenset(state.failed_hosts),
        frozenset(state.drained_hosts),
        frozenset(state.failed_links),
        frozenset(state.drained_links),
        state.shared_plane,
        state.undisturbed,
        frozenset(state.allocations.values()),
        frozenset(state.features.hosts.items()),
        tuple((id, comparable(state.inside[id])) for id in sorted(state.inside)),
    )
