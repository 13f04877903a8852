# SPDX-License-Identifier: Apache-2.0

"""The differences between a recorded fabric and its re-import, for an operator to review."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.reimport.host_places import matched_hosts
from laas_service.domain.reimport.layout import Layout
from laas_service.domain.topology import link_name


class ReimportChange(NamedTuple):
    """One difference: its kind, and what changed."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


def changes(before: Layout, after: Layout) -> list[ReimportChange]:
    """Every difference, [] if nothing changed; ``after`` must be ``aligned`` to ``before``."""
    return [
        *_tree(before, after),
        *_switches(before, after),
        *_cables(before, after),
        *_hosts(before, after),
        *_services(before.inventory, after.inventory),
    ]


def _tree(before: Layout, after: Layout) -> Iterator[ReimportChange]:
    old, new = before.topology.tree, after.topology.tree
    for name, a, b in (("m", old.m, new.m), ("w", old.w, new.w), ("taper", old.taper, new.taper)):
        if a != b:
            yield ReimportChange("tree", f"{name} was {list(a)}, is {list(b)}")


def _switches(before: Layout, after: Layout) -> Iterator[ReimportChange]:
    old, new = before.inventory.switch_of_guid, after.inventory.switch_of_guid
    places = [_places(layout) for layout in (before, after)]
    guid_at = {place: guid for guid, place in places[1].items()}
    replaced = set()
    for guid in sorted(old.keys() - new.keys()):
        successor = guid_at.get(places[0].get(guid, ""))
        if successor is not None and successor not in old:
            replaced.add(successor)
            yield ReimportChange(
                "switch replaced", f"{_switch(old[guid])} by {_switch(new[successor])}"
            )
        else:
            yield ReimportChange("switch gone", _switch(old[guid]))
    for guid in sorted(new.keys() - old.keys() - replaced):
        yield ReimportChange(
            "switch added", f"{_switch(new[guid])} {places[1].get(guid, '')}".strip()
        )
    for guid in sorted(old.keys() & new.keys()):
        was, now = (place_of.get(guid, "no place in the tree") for place_of in places)
        if was != now:
            yield ReimportChange("switch moved", f"{_switch(new[guid])} was {was}, is {now}")
        if old[guid].name != new[guid].name:
            yield ReimportChange("switch renamed", f"{_switch(old[guid])} is now {new[guid].name}")


def _places(layout: Layout) -> dict[int, str]:
    """The place of each switch; all its places if it stands for several spines."""
    return {
        guid: " ".join(f"{kind}-{number}-{index}" for kind, number, index in places)
        for guid, places in layout.places_of_switch.items()
    }


def _cables(before: Layout, after: Layout) -> Iterator[ReimportChange]:
    """Cables gone, added and moved; a new cable on the link of one that is gone is that cable."""
    old = {(cable.lower, cable.upper): cable for cable in before.inventory.cables}
    new = {(cable.lower, cable.upper): cable for cable in after.inventory.cables}
    names = {**_switch_names(before.inventory), **_switch_names(after.inventory)}
    added = {new[ends].link: new[ends] for ends in new.keys() - old.keys() if new[ends].link}
    moved = set()
    for ends in sorted(old.keys() - new.keys()):
        cable = old[ends]
        successor = added.get(cable.link) if cable.link else None
        if successor is None:
            yield ReimportChange("cable gone", _cable(cable, names))
        else:
            moved.add((successor.lower, successor.upper))
            yield ReimportChange(
                "cable moved", f"{_cable(cable, names)}, now {_ends(successor, names)}"
            )
    for ends in sorted(new.keys() - old.keys() - moved):
        yield ReimportChange("cable added", _cable(new[ends], names))
    for ends in sorted(old.keys() & new.keys()):
        if old[ends].link != new[ends].link:
            was, now = _link(old[ends]), _link(new[ends])
            yield ReimportChange("cable's link", f"{_ends(new[ends], names)} was {was}, is {now}")


def _hosts(before: Layout, after: Layout) -> Iterator[ReimportChange]:
    remaining = matched_hosts(before, after)
    old, new = before.inventory.host_names, after.inventory.host_names
    switches = [_switch_names(layout.inventory) for layout in (before, after)]
    for host in before.hosts():
        if host not in remaining:
            yield ReimportChange("host gone", f"{old[host]}{_at(before, host, switches[0])}")
    added = set(after.hosts()) - set(remaining.values())
    for host in sorted(added):
        yield ReimportChange("host added", f"{new[host]}{_at(after, host, switches[1])}")
    for host, now in remaining.items():
        if old[host] != new[now]:
            yield ReimportChange("host renamed", f"{old[host]} is now {new[now]}")
        if host != now:
            yield ReimportChange("host's index", f"{new[now]} was {host}, is {now}")
        ports = zip(
            before.host_endpoints.get(host, ()), after.host_endpoints.get(now, ()), strict=False
        )
        for a, b in ports:
            yield from _port(new[now], a, b, switches)


def _port(
    name: str, old: Endpoint, new: Endpoint, switches: list[dict[int, str]]
) -> Iterator[ReimportChange]:
    where = f"{name} rail {old.rail}"
    if old.guid != new.guid:
        yield ReimportChange("adapter replaced", f"{where}: {old.guid:#018x} by {new.guid:#018x}")
    if old.at != new.at:
        was, now = _port_name(old.at, switches[0]), _port_name(new.at, switches[1])
        kind = "host's port" if old.at.guid == new.at.guid else "host moved"
        yield ReimportChange(kind, f"{where}: was on {was}, is on {now}")
    if old.name != new.name and old.guid == new.guid:
        yield ReimportChange("adapter renamed", f"{where}: {old.name} is now {new.name}")


def _services(before: Inventory, after: Inventory) -> Iterator[ReimportChange]:
    """Adapters that are not for tenants: storage, subnet managers, excluded hosts."""
    old = {e.guid: e for e in before.endpoints if e.host is None}
    new = {e.guid: e for e in after.endpoints if e.host is None}
    names = {**_switch_names(before), **_switch_names(after)}
    for guid in sorted(old.keys() - new.keys()):
        yield ReimportChange("adapter not for tenants gone", _adapter(old[guid], names))
    for guid in sorted(new.keys() - old.keys()):
        yield ReimportChange("adapter not for tenants added", _adapter(new[guid], names))
    for guid in sorted(old.keys() & new.keys()):
        if old[guid] != new[guid]:
            was, now = _adapter(old[guid], names), _adapter(new[guid], names)
            yield ReimportChange("adapter not for tenants moved", f"{was}, now {now}")


def _switch_names(inventory: Inventory) -> dict[int, str]:
    return {switch.guid: switch.name for switch in inventory.switches}


def _switch(switch: Switch) -> str:
    return f"{switch.name} ({switch.guid:#018x})"


def _port_name(at: PortRef, names: Mapping[int, str]) -> str:
    return f"{names.get(at.guid, '')}[{at.guid:#018x}] port {at.port}"


def _ends(cable: Cable, names: Mapping[int, str]) -> str:
    return f"{_port_name(cable.lower, names)} - {_port_name(cable.upper, names)}"


def _link(cable: Cable) -> str:
    return link_name(cable.link) if cable.link else "not allocated"


def _cable(cable: Cable, names: Mapping[int, str]) -> str:
    return f"{_link(cable)} ({_ends(cable, names)})"


def _adapter(endpoint: Endpoint, names: Mapping[int, str]) -> str:
    return f"{endpoint.name} ({endpoint.guid:#018x}) on {_port_name(endpoint.at, names)}"


def _at(layout: Layout, host: int, names: Mapping[int, str]) -> str:
    ports = layout.host_endpoints.get(host, ())
    where = ", ".join(_port_name(endpoint.at, names) for endpoint in ports)
    return f" on {where}" if where else ""
