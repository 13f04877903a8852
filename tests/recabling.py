# SPDX-License-Identifier: Apache-2.0

"""Changes that technicians make to a fabric, applied to its inventory.

A changed inventory records adapters, switches and cables alone. The import has to recognise
hosts and links, so ``dumped`` renders the inventory as ``ibnetdiscover`` would print it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.recovery import Selection, recover
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.reimport import Layout


@dataclass
class Site:
    """A fabric whose cables, adapters and switches can be changed."""

    inventory: Inventory
    chance: Random
    fresh: int = 0x00AA_0000_0000_0000

    def guid(self) -> int:
        self.fresh += 0x100
        return self.fresh

    def used(self, switch: int) -> set[int]:
        ends = [end for cable in self.inventory.cables for end in (cable.lower, cable.upper)]
        ends += [endpoint.at for endpoint in self.inventory.endpoints]
        return {end.port for end in ends if end.guid == switch}

    def spare(self, switch: int) -> PortRef:
        """An unused port of a switch; if it has none, the switch gets one more."""
        port = next(n for n in range(1, 1000) if n not in self.used(switch))
        switches = tuple(
            replace(s, ports=max(s.ports, port)) if s.guid == switch else s
            for s in self.inventory.switches
        )
        self.inventory = replace(self.inventory, switches=switches)
        return PortRef(switch, port)

    def change(
        self,
        cables: tuple[Cable, ...] | None = None,
        endpoints: tuple[Endpoint, ...] | None = None,
        switches: tuple[Switch, ...] | None = None,
    ) -> None:
        inventory = self.inventory
        self.inventory = replace(
            inventory,
            cables=inventory.cables if cables is None else cables,
            endpoints=inventory.endpoints if endpoints is None else endpoints,
            switches=inventory.switches if switches is None else switches,
        )

    def cable(self) -> Cable:
        return self.chance.choice(self.inventory.cables)

    def host(self) -> str:
        hosts = sorted({e.name.split()[0] for e in self.inventory.endpoints if e.host is not None})
        return self.chance.choice(hosts)

    def leaf(self) -> Switch:
        return self.chance.choice([s for s in self.inventory.switches if s.level == 1])


def pull_a_cable(site: Site) -> None:
    gone = site.cable()
    site.change(tuple(cable for cable in site.inventory.cables if cable != gone))


def plug_a_cable_elsewhere(site: Site) -> None:
    """Move the upper end of a cable to another port of the same switch."""
    old = site.cable()
    new = replace(old, upper=site.spare(old.upper.guid))
    site.change(tuple(new if cable == old else cable for cable in site.inventory.cables))


def swap_two_cables(site: Site) -> None:
    """Swap the upper ends of any two cables of one level."""
    level = {switch.guid: switch.level for switch in site.inventory.switches}
    one = site.cable()
    others = [c for c in site.inventory.cables if level[c.lower.guid] == level[one.lower.guid]]
    other = site.chance.choice(others)
    swapped = {one: replace(one, upper=other.upper), other: replace(other, upper=one.upper)}
    if one != other:
        site.change(tuple(swapped.get(cable, cable) for cable in site.inventory.cables))


def add_a_cable(site: Site) -> None:
    """Add a cable parallel to another one."""
    old = site.cable()
    new = Cable(site.spare(old.lower.guid), site.spare(old.upper.guid))
    site.change((*site.inventory.cables, new))


def take_a_host_away(site: Site) -> None:
    gone = site.host()
    ends = site.inventory.endpoints
    site.change(endpoints=tuple(e for e in ends if e.name.split()[0] != gone))


def replace_an_adapter(site: Site) -> None:
    old = site.chance.choice([e for e in site.inventory.endpoints if e.host is not None])
    new = replace(old, guid=site.guid() + 1)
    site.change(endpoints=tuple(new if e == old else e for e in site.inventory.endpoints))


def plug_a_host_elsewhere(site: Site) -> None:
    """Move an adapter to another port of the same leaf."""
    old = site.chance.choice([e for e in site.inventory.endpoints if e.host is not None])
    new = replace(old, at=site.spare(old.at.guid))
    site.change(endpoints=tuple(new if e == old else e for e in site.inventory.endpoints))


def swap_two_hosts(site: Site) -> None:
    one, other = site.host(), site.host()
    at = defaultdict(list)
    for endpoint in site.inventory.endpoints:
        at[endpoint.name.split()[0]].append(endpoint.at)
    moved = dict(zip(at[one], at[other], strict=True)) | dict(zip(at[other], at[one], strict=True))
    ends = site.inventory.endpoints
    site.change(endpoints=tuple(replace(e, at=moved.get(e.at, e.at)) for e in ends))


def rename_a_host(site: Site) -> None:
    old, new = site.host(), f"renamed{site.guid():x}"
    site.change(
        endpoints=tuple(
            replace(e, name=e.name.replace(old, new)) if e.name.split()[0] == old else e
            for e in site.inventory.endpoints
        )
    )


def add_a_host(site: Site) -> None:
    """Add a host on the leaves of another one."""
    beside, name = site.host(), f"new{site.guid():x}"
    for old in [e for e in site.inventory.endpoints if e.name.split()[0] == beside]:
        new = Endpoint(site.guid() + 1, old.name.replace(beside, name), site.spare(old.at.guid), 0)
        site.change(endpoints=(*site.inventory.endpoints, new))


def replace_a_switch(site: Site) -> None:
    """Replace a switch by a new one with the same cables."""
    replace_the_switch(site, site.chance.choice(site.inventory.switches))


def replace_the_switch(site: Site, old: Switch) -> None:
    new = site.guid()

    def moved(at: PortRef) -> PortRef:
        return PortRef(new, at.port) if at.guid == old.guid else at

    site.change(
        tuple(Cable(moved(c.lower), moved(c.upper)) for c in site.inventory.cables),
        tuple(replace(e, at=moved(e.at)) for e in site.inventory.endpoints),
        tuple(replace(s, guid=new) if s == old else s for s in site.inventory.switches),
    )


def take_a_switch_away(site: Site) -> None:
    """Remove a switch with its cables and hosts."""
    gone = site.chance.choice(site.inventory.switches).guid
    hosts = {e.name.split()[0] for e in site.inventory.endpoints if e.at.guid == gone}
    site.change(
        tuple(c for c in site.inventory.cables if gone not in (c.lower.guid, c.upper.guid)),
        tuple(e for e in site.inventory.endpoints if e.name.split()[0] not in hosts),
        tuple(s for s in site.inventory.switches if s.guid != gone),
    )


def rename_a_switch(site: Site) -> None:
    """Equal switches are ordered by name, so that all indices may change."""
    old = site.chance.choice(site.inventory.switches)
    new = replace(old, name=f"a switch {site.guid():x}")
    site.change(switches=tuple(new if s == old else s for s in site.inventory.switches))


def add_leaves(site: Site) -> None:
    """Add a host with a new leaf for each of its ports; each leaf copies another's uplinks."""
    beside, name = site.host(), f"new{site.guid():x}"
    for old in [e for e in site.inventory.endpoints if e.name.split()[0] == beside]:
        switch = replace(site.inventory.switch_of_guid[old.at.guid], guid=site.guid())
        site.change(switches=(*site.inventory.switches, replace(switch, name=f"{switch.name}-new")))
        for cable in [c for c in site.inventory.cables if c.lower.guid == old.at.guid]:
            lower, upper = site.spare(switch.guid), site.spare(cable.upper.guid)
            site.change((*site.inventory.cables, Cable(lower, upper)))
        at = site.spare(switch.guid)
        new = Endpoint(site.guid() + 1, old.name.replace(beside, name), at, 0)
        site.change(endpoints=(*site.inventory.endpoints, new))


WORKS: tuple[Callable[[Site], None], ...] = (
    pull_a_cable,
    plug_a_cable_elsewhere,
    swap_two_cables,
    add_a_cable,
    take_a_host_away,
    replace_an_adapter,
    plug_a_host_elsewhere,
    swap_two_hosts,
    rename_a_host,
    add_a_host,
    replace_a_switch,
    take_a_switch_away,
    rename_a_switch,
    add_leaves,
)


def dumped(inventory: Inventory, selection: Selection | None = None) -> Layout:
    """The layout that an import recognises in the dump of a fabric. Raises: InvalidFile."""
    text = ibnetdiscover.render(replace(inventory, lids={}))
    found = recover(ibnetdiscover.parse(text, "dump"), selection)
    return Layout(found.topology, found.inventory)


def replugged(inventory: Inventory, adapter: int, switch: int) -> Inventory:
    """The inventory with an adapter (GUID) at an unused port of a switch."""
    site = Site(inventory, Random(0))
    at = site.spare(switch)
    site.change(
        endpoints=tuple(
            replace(end, at=at) if end.guid == adapter else end for end in inventory.endpoints
        )
    )
    return site.inventory


def apart(inventory: Inventory, number: int) -> Inventory:
    """The inventory with GUIDs of its own: those of no other ``number`` (0 to 255; 0 as it is)."""

    def new(guid: int) -> int:
        return guid ^ number << 56 if guid else 0

    def moved(port: PortRef) -> PortRef:
        return PortRef(new(port.guid), port.port)

    return replace(
        inventory,
        switches=tuple(replace(each, guid=new(each.guid)) for each in inventory.switches),
        cables=tuple(
            replace(each, lower=moved(each.lower), upper=moved(each.upper))
            for each in inventory.cables
        ),
        endpoints=tuple(
            replace(each, guid=new(each.guid), at=moved(each.at)) for each in inventory.endpoints
        ),
        leaf_guids=tuple(map(new, inventory.leaf_guids)),
        l2_guids=tuple(map(new, inventory.l2_guids)),
        spine_guids=tuple(map(new, inventory.spine_guids)),
        lids={new(guid): lid for guid, lid in inventory.lids.items()},
    )
