# SPDX-License-Identifier: Apache-2.0

"""The document of an inventory."""

from __future__ import annotations

from typing import Any

from pydantic import StrictStr

from laas_service.adapters.documents.fields import (
    VERSION,
    Document,
    Guid,
    Lid,
    LinkName,
    Natural,
    validated,
)
from laas_service.domain.inventory import Cable, Endpoint, Inventory, PortRef, Switch
from laas_service.domain.topology import link_name


class _Inventory(Document):
    host_names: list[StrictStr]
    switches: list[tuple[Guid, StrictStr, Natural, Natural]]
    cables: list[tuple[Guid, Natural, Guid, Natural, LinkName | None]]
    endpoints: list[tuple[Guid, StrictStr, Guid, Natural, Natural | None, Natural]]
    leaf_guids: list[Guid]
    l2_guids: list[Guid]
    spine_guids: list[Guid]
    lids: list[tuple[Guid, Lid]]


def inventory_document(inventory: Inventory) -> dict[str, Any]:
    """The inventory as a document; ``inventory_from`` is the inverse."""
    return {
        "version": VERSION,
        "host_names": list(inventory.host_names),
        "switches": [[_hex(s.guid), s.name, s.level, s.ports] for s in inventory.switches],
        "cables": [
            [
                *_end(cable.lower),
                *_end(cable.upper),
                link_name(cable.link) if cable.link else None,
            ]
            for cable in inventory.cables
        ],
        "endpoints": [
            [_hex(e.guid), e.name, *_end(e.at), e.host, e.rail] for e in inventory.endpoints
        ],
        "leaf_guids": [_hex(guid) for guid in inventory.leaf_guids],
        "l2_guids": [_hex(guid) for guid in inventory.l2_guids],
        "spine_guids": [_hex(guid) for guid in inventory.spine_guids],
        "lids": [[_hex(guid), lid] for guid, lid in sorted(inventory.lids.items())],
    }


def inventory_from(document: object) -> Inventory:
    """The inventory of a document.

    Raises:
        InvalidInput: it is no inventory document; names the field.
    """
    read = validated(_Inventory, "inventory", document)
    return Inventory(
        host_names=tuple(read.host_names),
        switches=tuple(Switch(*row) for row in read.switches),
        cables=tuple(Cable(PortRef(*row[:2]), PortRef(*row[2:4]), row[4]) for row in read.cables),
        endpoints=tuple(
            Endpoint(guid, name, PortRef(switch, port), host, rail)
            for guid, name, switch, port, host, rail in read.endpoints
        ),
        leaf_guids=tuple(read.leaf_guids),
        l2_guids=tuple(read.l2_guids),
        spine_guids=tuple(read.spine_guids),
        lids=dict(read.lids),
    )


def _hex(guid: int) -> str:
    return f"{guid:#018x}"


def _end(end: PortRef) -> tuple[str, int]:
    return _hex(end.guid), end.port
