# SPDX-License-Identifier: Apache-2.0

"""How much of a fabric is in use and how much is free, now and in the course of time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter

from laas_service.app.lifecycle import OVER, State
from laas_service.app.records import FabricRecord, SizeEvent
from laas_service.app.wording import reasons
from laas_service.domain.crossed_links import crossed_links
from laas_service.domain.grouping import grouped
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import LeafLink
from laas_service.messages import ConfirmedBy


@dataclass(frozen=True, slots=True)
class UseCount:
    """How many there are, how many have an owner, how many a tenant could get now.

    ``withheld`` counts links of the common plane, failed ones too.
    """

    total: int
    allocated: int
    free: int
    failed: int
    drained: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class Utilization:
    """A fabric's use at one generation.

    A leaf link is free if its twins on all rails are. ``degraded`` counts allocations that hold
    a failed host or link, ``changing`` those whose placement changes, ``overdue`` those that should
    have left hosts by now. ``confirmed`` counts live allocations by what their routes were
    confirmed by.
    """

    generation: int
    hosts: UseCount
    leaf_links: UseCount
    spine_links: UseCount
    allocations: Mapping[State, int] = field(default_factory=dict)
    degraded: int = 0
    changing: int = 0
    overdue: int = 0
    confirmed: Mapping[ConfirmedBy, int] = field(default_factory=dict)
    evidence: Mapping[tuple[str, ConfirmedBy], int] = field(default_factory=dict)
    """Live allocations by what confirms their ``routes`` and their ``keys``."""
    disturbed: int = 0
    """Allocations that require to be undisturbed, and whose links packets of others cross."""


def utilization(
    fabric: FabricRecord, ledger: LedgerView, states: Mapping[State, int]
) -> Utilization:
    topology = fabric.topology
    tree = topology.tree
    present = sum(
        1
        for number, name in enumerate(fabric.inventory.host_names)
        if name and number not in topology.absent_hosts
    )
    owned = ledger.owners_of_links()
    leaf = Counter(isinstance(link, LeafLink) for link in owned)
    failed = Counter(isinstance(link, LeafLink) for link in ledger.failed_links)
    absent = Counter(isinstance(link, LeafLink) for link in topology.absent_links)
    withheld = Counter(
        isinstance(link, LeafLink)
        for link in ledger.shared_plane.links(tree)
        if link not in topology.absent_links
    )
    return Utilization(
        fabric.generation,
        UseCount(
            present,
            len(ledger.owners_of_hosts()),
            ledger.free_host_count,
            len(ledger.failed_hosts),
            len(ledger.drained_hosts),
        ),
        UseCount(
            tree.leaf_links - absent[True],
            leaf[True],
            _free_leaf_links(ledger),
            failed[True],
            withheld=withheld[True],
        ),
        UseCount(
            tree.spine_links - absent[False],
            leaf[False],
            sum(mask.bit_count() for mask in ledger.free_spines),
            failed[False],
            withheld=withheld[False],
        ),
        states,
        disturbed=_disturbed(fabric, ledger),
    )


def _disturbed(fabric: FabricRecord, ledger: LedgerView) -> int:
    if not ledger.undisturbed:
        return 0
    pairs = crossed_links(ledger, fabric.inventory).pairs_by_owner
    return sum(1 for id in ledger.undisturbed if pairs.get(id))


def course(events: Sequence[SizeEvent], present: int, now: datetime) -> list[tuple[datetime, int]]:
    """The hosts that allocations hold, as requested, after each event and ``now``.

    ``present`` is the number now. A resize counts from its beginning on. Before the first event
    that is given the number is what the changes since leave.
    """
    changes: list[tuple[datetime, int]] = []
    for of_one in grouped((event.allocation, event) for event in events).values():
        sizes = _sizes(of_one)
        changes += [(event.at, new - old) for event, (old, new) in zip(of_one, sizes, strict=True)]
    changes.sort(key=itemgetter(0))
    held = present - sum(change for _, change in changes)
    points: list[tuple[datetime, int]] = []
    for at, change in changes:
        held += change
        if points and points[-1][0] == at:
            points.pop()
        points.append((at, max(0, held)))
    return [*points, (max(now, points[-1][0]), present)] if points else []


def _sizes(events: Sequence[SizeEvent]) -> list[tuple[int, int]]:
    """The hosts that one allocation held before and after each of its events."""
    hosts, sizes = events[-1].hosts, list[tuple[int, int]]()
    for number in reversed(range(len(events))):
        event, earlier = events[number], events[number - 1] if number else None
        free = (State.QUEUED, *OVER)
        after = 0 if event.state in free else hosts
        resized = reasons.resized_from(event.reason)
        hosts = hosts if resized is None else resized
        if earlier is None:
            held = event.state not in (State.QUEUED, State.ALLOCATING)
        else:
            held = earlier.state not in free
        sizes.append((hosts if held else 0, after))
    return sizes[::-1]


def _free_leaf_links(ledger: LedgerView) -> int:
    """Leaf links free for tenants; one bit of a plane stands for a link on each of its rails."""
    topology = ledger.topology
    width = topology.tree.w[1]
    planes = [
        ((1 << width) - 1 << plane * width, topology.rails_in_plane(plane))
        for plane in range(topology.planes)
    ]
    return sum(
        (mask & ones).bit_count() * rails for mask in ledger.free_uplinks for ones, rails in planes
    )
