# SPDX-License-Identifier: Apache-2.0

"""What links promise to tenants who share hosts, beside the traffic that was measured there."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal, NamedTuple

from laas_service.app.lifecycle import State
from laas_service.app.ports.store import Store
from laas_service.app.records import AllocationRecord, FabricRecord
from laas_service.app.views.parts import part
from laas_service.domain.allocation import Allocation, Sharing
from laas_service.domain.faults.counters import Findings, Rate
from laas_service.domain.faults.degradation import Degraded
from laas_service.domain.inventory import PortRef
from laas_service.domain.ledger import LedgerView
from laas_service.domain.sharing.link_promises import LoadState, PromisedLoad
from laas_service.domain.sharing.policy import SharedSlots
from laas_service.domain.tenancy import SharedHosts
from laas_service.domain.topology import LeafLink, Link, link_name

BITS = 8e-9
"""Gb/s in one byte a second."""


class Measured(NamedTuple):
    """Traffic on a link in one direction, from the counters of a switch."""

    bandwidth: float
    """Gb/s, as a mean between the last two readings."""
    seconds: float
    """Time between these readings."""
    at: datetime
    """Time of the last one."""


@dataclass(frozen=True, slots=True)
class PromiseEntry:
    """What a link promises in one direction; ``measured`` is None if its counters were not read.

    ``link`` is None for the link of a host, and ``host`` for those between switches.
    """

    allocation: str
    """The one whose hosts are shared."""
    sharing: Sharing
    link: Link | None
    host: int | None
    name: str
    """Of the link, or of the host."""
    down: bool
    load: PromisedLoad
    measured: Measured | None

    @property
    def state(self) -> LoadState:
        """Whether the link keeps its promises, or is down."""
        return self.load.state

    @property
    def promised(self) -> float:
        """Gb/s, with what demands need beyond their means."""
        return self.load.occupancy * self.sharing.bandwidth

    @property
    def kind(self) -> Literal["host", "leaf", "spine"]:
        """Of the link."""
        if self.link is None:
            return "host"
        return "leaf" if isinstance(self.link, LeafLink) else "spine"

    @property
    def direction(self) -> Literal["up", "down"]:
        """``down`` is towards the host."""
        return "down" if self.down else "up"

    @property
    def place(self) -> tuple[str, int]:
        """Orders the entries of a fabric."""
        return self.allocation, self.load.link


def lacking(
    store: Store, slots: SharedSlots, records: Iterable[AllocationRecord]
) -> dict[str, Degraded]:
    """By id, what tenants on shared hosts lack while links are down or promise too much.

    None lacks anything before its routes are there.
    """
    parts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        if record.part and record.placed is not None and record.state is not State.ALLOCATING:
            parts[record.fabric, record.part].add(record.id)
    found: dict[str, Degraded] = {}
    for (fabric, parent), ids in parts.items():
        inner = store.fabrics.ledger(fabric)[0].inside.get(parent)
        if inner is not None and (known := ids & inner.allocations.keys()):
            name = f"what tenants on the shared hosts of {parent} lack"
            found |= part(name, partial(slots.lacks, inner, known), {})
    return found


def promises_to(
    fabric: FabricRecord, ledger: LedgerView, slots: SharedSlots, id: str
) -> list[PromiseEntry]:
    """What links promise one tenant on the shared hosts that the ledger is of.

    ``outage`` is that of the link, with all its promises. Raises: NotFound.
    """
    part = ledger.part
    assert part is not None
    outage = {load.link: load.outage for load in slots.loads(ledger)}
    loads = (load._replace(outage=outage[load.link]) for load in slots.loads(ledger, {id}))
    return [_entry(fabric, part, load, {}) for load in loads]


def promises(
    fabric: FabricRecord, ledger: LedgerView, slots: SharedSlots, counters: Iterable[Findings]
) -> Iterator[PromiseEntry]:
    """Each link and direction that promises anything, by allocation and ``Promise.link``.

    Those on the hosts of an allocation are a part of their own (``views.parts``).
    """
    sharers = [held for held in ledger.everybody() if isinstance(held.kind, SharedHosts)]
    if not sharers:
        return
    rates = _rates(counters)

    def promised(sharer: Allocation) -> list[PromiseEntry]:
        loads = slots.loads(ledger.ledger(sharer.id))
        return [_entry(fabric, sharer, load, rates) for load in loads]

    for sharer in sorted(sharers, key=lambda sharer: sharer.id):
        name = f"fabric {fabric.id}: promises on the hosts of allocation {sharer.id}"
        yield from part(name, partial(promised, sharer), [])


Rates = dict[PortRef, tuple[float, Rate]]
"""By port: time of the reading, and rate."""


def _rates(counters: Iterable[Findings]) -> Rates:
    return {
        PortRef(found.guid, port): (found.at, rate)
        for found in counters
        for port, rate in found.rates.items()
    }


def _entry(
    fabric: FabricRecord, sharer: Allocation, load: PromisedLoad, rates: Rates
) -> PromiseEntry:
    tree, inventory = fabric.topology.tree, fabric.inventory
    number, down = divmod(load.link, 2)
    cables, link, host = tree.leaf_links + tree.spine_links, None, None
    below: PortRef | None = None  # the port of the upper switch, or of a host's leaf
    above: PortRef | None = None  # the port of the lower switch
    if number < cables:
        link = tree.link_at(number)
        name = link_name(link)
        if (cable := inventory.cable_of_link.get(link)) is not None:
            above, below = cable.lower, cable.upper
    else:
        host = number - cables
        name = inventory.host_names[host]
        if (endpoint := inventory.endpoint_of_port.get((host, 0))) is not None:
            below = endpoint.at
    measured = None
    for port, sends in ((above, not down), (below, bool(down))):
        if measured is None and port in rates:
            at, rate = rates[port]
            amount = BITS * (rate.sent if sends else rate.received)
            measured = Measured(amount, rate.seconds, datetime.fromtimestamp(at, UTC))
    return PromiseEntry(sharer.id, sharer.terms, link, host, name, bool(down), load, measured)
