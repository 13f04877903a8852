# SPDX-License-Identifier: Apache-2.0

"""The document of a topology."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from laas_service.adapters.documents.fields import (
    VERSION,
    Document,
    LinkName,
    Natural,
    Rails,
    Triple,
    validated,
)
from laas_service.domain.topology import Link, Port, Topology, Xgft, link_name


class _Topology(Document):
    m: Triple
    w: Triple
    cables: tuple[Natural, Natural]
    rails: Rails
    host_ports: list[list[Triple]]
    absent_hosts: list[Natural]
    absent_links: list[LinkName]


def topology_document(topology: Topology) -> dict[str, Any]:
    """The topology as a document; ``topology_from`` is the inverse."""
    tree = topology.tree
    return {
        "version": VERSION,
        "m": list(tree.m),
        "w": list(tree.w),
        "cables": list(tree.cables),
        "rails": topology.rails,
        "host_ports": [[list(port) for port in ports] for ports in topology.host_ports],
        "absent_hosts": sorted(topology.absent_hosts),
        "absent_links": [link_name(link) for link in in_order(tree, topology.absent_links)],
    }


def topology_from(document: object) -> Topology:
    """The topology of a document.

    Raises:
        InvalidInput: it is no topology document; names the field.
    """
    read = validated(_Topology, "topology", document)
    return Topology(
        Xgft(read.m, read.w, read.cables),
        rails=read.rails,
        host_ports=ports_from(read.host_ports),
        absent_hosts=frozenset(read.absent_hosts),
        absent_links=frozenset(read.absent_links),
    )


def ports_from(rows: Iterable[Iterable[tuple[int, int, int]]]) -> tuple[tuple[Port, ...], ...]:
    """The ports of each host, from rows of three numbers for each port."""
    return tuple(tuple(Port(*port) for port in row) for row in rows)


def in_order(tree: Xgft, links: Iterable[Link]) -> list[Link]:
    """The links by ``Xgft.link_id``."""
    return sorted(links, key=tree.link_id)
