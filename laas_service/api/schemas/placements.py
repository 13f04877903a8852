# SPDX-License-Identifier: Apache-2.0

"""Schemas of placements: hosts and links by number and by name, and slots of shared hosts."""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field

from laas_service.api.schemas.base import Schema, Shown, Triple
from laas_service.api.schemas.fabrics import ContentionFreeNow, ShapeAnswer, WorstLoad
from laas_service.app.lifecycle import Change
from laas_service.app.records import FabricRecord
from laas_service.domain.allocation import Allocation as Placed
from laas_service.domain.allocation import SlotDemand
from laas_service.domain.routing.contention import contention, rank_order
from laas_service.domain.topology import Link as Cable
from laas_service.domain.topology import link_name


class AllocatedHost(Schema):
    index: int
    name: str


class RankedHost(AllocatedHost):
    rank: Annotated[int, Field(ge=0)]
    """Its place in the order of hosts that contention_free is about."""


Bridge = Annotated[
    list[str] | None,
    Field(
        description="Links, by id, that join old and new hosts for the time of the change, besides "
        "those of both placements. Null: no free links join them, and servers on hosts that it "
        "leaves stop before the routes change."
    ),
]


class HoldingAnswer(Schema):
    """Hosts and links, by number and by name."""

    hosts: list[RankedHost]
    leaf_links: list[Triple]
    """[pod, leaf, l2] each."""
    spine_links: list[Triple]
    """[pod, l2, spine] each."""
    links: list[str]
    """The same links by the id they have in /links."""
    shape: ShapeAnswer | None
    contention_free: ContentionFreeNow
    worst_load: WorstLoad

    @staticmethod
    def held(
        fabric: FabricRecord, placed: Placed | None, failed: Collection[Cable] = ()
    ) -> dict[str, Any]:
        topology, names = fabric.topology, fabric.inventory.host_names
        if placed is None or not placed.kind.whole_hosts:
            places = placed.places(topology) if placed is not None else ()
            hosts = [
                RankedHost(index=host, name=names[host], rank=rank)
                for rank, host in enumerate(places)
            ]
            nothing: dict[str, Any] = dict.fromkeys(("shape", "contention_free", "worst_load"))
            return nothing | {"hosts": hosts, "leaf_links": [], "spine_links": [], "links": []}
        leaf = sorted(placed.leaf_links(topology))
        spine = sorted(placed.spine_links(topology))
        links: list[Cable] = [*leaf, *spine]
        reached = contention(topology, placed, failed)
        ranks = {host: rank for rank, host in enumerate(rank_order(topology, placed))}
        return {
            "hosts": [
                RankedHost(index=host, name=names[host], rank=ranks[host])
                for host in placed.hosts(topology)
            ],
            "leaf_links": [tuple(link) for link in leaf],
            "spine_links": [tuple(link) for link in spine],
            "links": [link_name(link) for link in links],
            "shape": ShapeAnswer.of(placed.shape) if placed.shape else None,
            "contention_free": reached.free,
            "worst_load": reached.worst_load,
        }

    @staticmethod
    def bridge_links(fabric: FabricRecord, change: Change | None) -> list[str] | None:
        """The links of the bridge of a change by name; None if no links can join its hosts."""
        if change is None or change.bridge is None:
            return None if change is not None and change.parted else []
        return [link_name(link) for link in change.bridge.links(fabric.topology)]

    @staticmethod
    def names(fabric: FabricRecord, placed: Placed | None) -> list[str]:
        """The hosts of a placement by name."""
        hosts = placed.places(fabric.topology) if placed is not None else ()
        return [fabric.inventory.host_names[host] for host in hosts]


ENFORCEMENT = "accounted, not enforced"
"""Of class ``shared``: no port is limited, so nobody keeps a virtual machine to its bandwidth."""

ENFORCEMENTS = {
    None: ENFORCEMENT,
    "neutron": "sending limited by Neutron",
    "directory": "commands that limit sending written, nobody checked that they were run",
}
"""By what limits the servers. Receiving is not limited by any of them."""


class SharingShown(Shown):
    """How the hosts of an allocation are shared, as recorded; earlier releases had other bounds."""

    slots: int
    """Virtual machines on each host."""
    bandwidth: float
    """Gb/s of each link and direction."""
    risk: float
    """Probability that demands exceed a link, at the highest."""
    open: bool
    """Other projects may have slots."""


class HostedUnits(AllocatedHost):
    units: list[int]
    """Numbers of the virtual machines on the host."""


class UnitMove(Schema):
    """A virtual machine moves, in this order."""

    unit: int
    """Its number before the change."""
    leaves: str
    joins: str


class SlotsShown(Schema):
    """Slots of shared hosts."""

    slots: int | None
    """Virtual machines; null: class owned."""
    bandwidth: float | list[float] | None
    """Gb/s of all, or of one after the other."""
    deviation: float | list[float] | None
    """Gb/s; 0: promised for certain."""
    enforcement: (
        Literal[
            "accounted, not enforced",
            "sending limited by Neutron",
            "commands that limit sending written, nobody checked that they were run",
        ]
        | None
    )
    """Whether anything keeps a virtual machine to what it is promised."""
    units: list[HostedUnits]
    """Where its virtual machines belong."""
    unit_moves: list[UnitMove]
    """Virtual machines that a change moves, in order."""

    @staticmethod
    def slots_of(
        fabric: FabricRecord,
        demand: SlotDemand | None,
        placed: Placed | None,
        limited_by: str | None = None,
    ) -> dict[str, Any]:
        names = fabric.inventory.host_names
        held = placed.slots if placed is not None else None
        units, moves = (held.units, held.moves) if held else ((), ())
        return {
            "slots": demand.slots if demand is not None else None,
            "bandwidth": demand.bandwidth if demand is not None else None,
            "deviation": demand.deviation if demand is not None else None,
            "enforcement": ENFORCEMENTS[limited_by] if demand is not None else None,
            "units": [
                HostedUnits(index=host, name=names[host], units=list(numbers))
                for host, numbers in units
            ],
            "unit_moves": [
                UnitMove(unit=unit, leaves=names[old], joins=names[new]) for unit, old, new in moves
            ],
        }


def hosts_gained(fabric: FabricRecord, before: Placed | None, after: Placed | None) -> list[str]:
    """The hosts that only ``after`` has, by name; none if there is only one placement."""
    if before is None or after is None:
        return []
    if before.kind.whole_hosts:
        return HoldingAnswer.names(fabric, after.beyond(before))
    present = set(HoldingAnswer.names(fabric, before))
    return [name for name in HoldingAnswer.names(fabric, after) if name not in present]
