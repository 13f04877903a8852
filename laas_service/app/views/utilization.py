# SPDX-License-Identifier: Apache-2.0

"""How much of a fabric is in use, and how much is free."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from laas_service.app.lifecycle import State
from laas_service.app.records import FabricRecord
from laas_service.domain.ledger import LedgerView
from laas_service.domain.topology import LeafLink
from laas_service.messages import ConfirmedBy


@dataclass(frozen=True, slots=True)
class Usage:
    """How many there are, how many have an owner, how many a tenant could get now.

    ``withheld`` counts links of the shared plane, failed ones too.
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
    a failed host or link, ``changing`` those whose placement changes. ``confirmed`` counts live
    allocations by what their routes were confirmed by.
    """

    generation: int
    hosts: Usage
    leaf_links: Usage
    spine_links: Usage
    allocations: Mapping[State, int] = field(default_factory=dict)
    degraded: int = 0
    changing: int = 0
    confirmed: Mapping[ConfirmedBy, int] = field(default_factory=dict)


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
        Usage(
            present,
            len(ledger.owners_of_hosts()),
            ledger.free_host_count,
            len(ledger.failed_hosts),
            len(ledger.drained_hosts),
        ),
        Usage(
            tree.leaf_links - absent[True],
            leaf[True],
            _free_leaf_links(ledger),
            failed[True],
            withheld=withheld[True],
        ),
        Usage(
            tree.spine_links - absent[False],
            leaf[False],
            sum(mask.bit_count() for mask in ledger.free_spines),
            failed[False],
            withheld=withheld[False],
        ),
        states,
    )


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
