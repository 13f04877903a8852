# SPDX-License-Identifier: Apache-2.0

"""All fields of one ledger; how a ledger is copied and compared."""

from __future__ import annotations

from typing import Self, TypeVar

from laas_service.domain.allocation import Allocation
from laas_service.domain.features import PLAIN_HOSTS
from laas_service.domain.ledger.free import FreeMasks
from laas_service.domain.ledger.masks import Masks
from laas_service.domain.shared_plane import NO_PLANE
from laas_service.domain.topology import Link, Topology


class LedgerState(FreeMasks):
    """The fields of a ledger, a fabric's or a container's.

    Free is what is usable and has no owner; usable is what is present in ``scope``, not
    failed, not drained and not withheld.
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)

        self.allocations: dict[str, Allocation] = {}
        """The owners by id, in the order of their claims."""

        self.failed_hosts: set[int] = set()
        self.drained_hosts: set[int] = set()
        self.failed_links: set[Link] = set()

        self.features = PLAIN_HOSTS
        """The traits and costs of hosts."""

        self.shared_plane = NO_PLANE
        """The links that no allocation gets."""

        self.scope: str | None = None
        """The id of the container that this ledger is of; None for the fabric itself."""

        self.inside: dict[str, Self] = {}
        """By id of a container, the ledger of a fabric in which only what it holds exists,
        with its children as owners."""

        self.nests = True
        """Whether containers have ledgers inside; if not they are owners like any other."""

        self.part = Masks.whole(topology)
        """What is there: all of the fabric, or what a container holds."""

        self.present_hosts = list(self.free_hosts)
        """Masks of the hosts that exist in ``part``, by leaf group."""

        self.usable_hosts = list(self.free_hosts)
        self.usable_uplinks = list(self.free_uplinks)
        self.usable_spines = list(self.free_spines)
        """Masks in the form of the free ones: what can be handed out once it has no owner."""

        self.lost_host_count = 0
        """Hosts that would be free were they not failed or drained."""

        self.odd_groups = [0] * topology.pods
        """``odd_groups[pod]``: bit set of the pod's leaf groups that miss an uplink, because it
        is absent, failed or withheld. Owners of uplinks own hosts below them, so any other
        group whose hosts are all free has all its uplinks free."""


S = TypeVar("S", bound=LedgerState)

_LISTS = (
    "free_hosts",
    "free_uplinks",
    "free_spines",
    "usable_hosts",
    "usable_uplinks",
    "usable_spines",
    "groups_by_free",
    "pod_free_hosts",
    "pod_freed",
    "odd_groups",
)
"""Fields that a copy has lists of its own of."""


def copied(state: S) -> S:
    """A ledger of its own in the same state; what never changes is shared.

    The ledgers inside are still those of the original.
    """
    copy = type(state).__new__(type(state))
    copy.__dict__.update(state.__dict__)
    copy.undo = None
    copy.allocations = dict(state.allocations)
    copy.failed_hosts = set(state.failed_hosts)
    copy.drained_hosts = set(state.drained_hosts)
    copy.failed_links = set(state.failed_links)
    for name in _LISTS:
        setattr(copy, name, list(getattr(state, name)))
    copy.pod_groups_by_free = [list(bit_sets) for bit_sets in state.pod_groups_by_free]
    copy.reader_caches = {kind: cache.copy() for kind, cache in state.reader_caches.items()}
    return copy


def comparable(state: LedgerState) -> tuple[object, ...]:
    """Everything that can change, as a value: equal values behave equally."""
    return (
        tuple(state.free_hosts),
        tuple(state.free_uplinks),
        tuple(state.free_spines),
        frozenset(state.failed_hosts),
        frozenset(state.drained_hosts),
        frozenset(state.failed_links),
        state.shared_plane,
        frozenset(state.allocations.values()),
        frozenset(state.features.hosts.items()),
        tuple((id, comparable(state.inside[id])) for id in sorted(state.inside)),
    )
