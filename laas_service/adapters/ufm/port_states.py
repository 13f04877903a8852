# SPDX-License-Identifier: Apache-2.0

"""The states of ports as UFM shows them, compared with the recorded cables."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from laas_service.domain.errors import Unavailable
from laas_service.domain.faults.reading import FabricReading, PortState, UnhealthyPort
from laas_service.domain.inventory import Inventory, PortRef
from opensm_writer.links import NodePorts, compared


def reading(
    inventory: Inventory,
    rows: Iterable[Mapping[str, Any]],
    unhealthy: Iterable[UnhealthyPort],
    marked: Collection[PortRef],
    removed: Iterable[tuple[PortRef, PortRef]],
    at: float,
) -> FabricReading:
    """The reading of a fabric whose ports UFM shows so; ``at`` is when it was asked.

    ``marked`` ports are unhealthy because the service had them isolated: only their physical state
    counts, as the subnet manager leaves them out. Other ``unhealthy`` ports of links are part of
    the reading; those towards adapters count as down. A port that UFM does not show, of a switch
    of which it shows others, is down if its cable is among the ``removed`` links.

    Raises: Unavailable, if the form of a row is not known.
    """
    try:
        links = _links(rows)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"UFM shows ports in an unknown form: {error!r}") from error
    ports = dict(links.ports)
    shown = {port.guid for port in ports}
    for cable in removed:
        for end in cable:
            if end in inventory.far_ends and end.guid in shown:
                ports.setdefault(end, PortState.DOWN)
    for port in marked:
        if ports.get(port) is PortState.SILENT and port in inventory.far_ends:
            ports[port] = inventory.far_ends[port][0]
    held = tuple(sorted(entry for entry in unhealthy if entry.port not in marked))
    to_adapters = {endpoint.at for endpoint in inventory.endpoints}
    at_adapter = {endpoint.guid: endpoint.at for endpoint in inventory.endpoints}
    for port, _ in held:
        place = at_adapter.get(port.guid, port)
        if place in to_adapters and place in ports:
            ports[place] = PortState.DOWN
    comparison = compared(inventory.cable_ends, replace(links, ports=ports), at)
    return replace(comparison.reading, unhealthy=held)


def _links(rows: Iterable[Mapping[str, Any]]) -> NodePorts:
    ports: dict[PortRef, PortRef | PortState] = {}
    names: dict[int, str] = {}
    for row in rows:
        port = PortRef(int(row["guid"], 16), int(row["number"]))
        names.setdefault(port.guid, str(row.get("system_name", "")))
        if not _is_up(row):
            ports[port] = PortState.DOWN
        elif guid := row.get("peer_guid"):
            ports[port] = PortRef(int(guid, 16), int(str(row["peer"]).rpartition("_")[2]))
        else:
            ports[port] = PortState.SILENT
    return NodePorts(ports, names, None, 0)


def _is_up(row: Mapping[str, Any]) -> bool:
    """Whether the port has a physical link, whatever the subnet manager makes of it."""
    return str(row["physical_state"]).replace(" ", "").lower() in ("linkup", "active")
