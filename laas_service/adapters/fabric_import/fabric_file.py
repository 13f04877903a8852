# SPDX-License-Identifier: Apache-2.0

"""Reads a fabric from whatever describes one: a dump, a snapshot, a description.

Told apart by content: what ``ibnetdiscover`` prints; JSON with a ``topology`` (a
snapshot of the contract) or an ``xgft`` (a description for the generator); or a bare
``3;18,18,36;1,18,18``. Files that name hosts and switches but no cables are refused
with what they lack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from laas_service.adapters import documents
from laas_service.adapters.fabric_import import generator, ibnetdiscover
from laas_service.adapters.fabric_import.generator import of_sane_size, parse_xgft
from laas_service.adapters.fabric_import.recovery import ImportReport, Selection, recover
from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.domain.features import PLAIN_HOSTS, Features
from laas_service.domain.inventory import Inventory
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import Link, Topology

__all__ = ["FabricFile", "parse_xgft", "read_fabric"]

_XGFT = re.compile(r"\s*\d+\s*;[\d\s,]+;[\d\s,]+")
_TABLE = re.compile(r'[^\[\]{}"=#]*,[^\[\]{}"=#]*')


@dataclass(frozen=True)
class FabricFile:
    """A fabric as read. ``report`` is there for dumps; faults and a shared plane only come from
    snapshots.

    What hosts are like (``features``) comes from snapshots and descriptions.

    ``inventory`` is made when it is first asked for: inventing names and GUIDs for a
    large tree takes longer than building the tree.
    """

    topology: Topology
    make_inventory: Callable[[], Inventory]
    report: ImportReport | None = None
    failed_hosts: frozenset[int] = frozenset()
    failed_links: frozenset[Link] = frozenset()
    features: Features = PLAIN_HOSTS
    shared_plane: SharedPlane = NO_PLANE

    @cached_property
    def inventory(self) -> Inventory:
        return self.make_inventory()


def read_fabric(source: str | Path, selection: Selection | None = None) -> FabricFile:
    """The fabric in a file, or in a text (told apart by its line ends, ``{`` or ``;``).

    ``selection`` says which hosts of a dump are for tenants.

    Raises:
        InvalidFile: the file is no fabric, or a torn one; one sentence and the line.
        InvalidInput: there is no such file, or a snapshot or description has a field
            that is wrong.
    """
    text = str(source)
    if isinstance(source, str) and ("\n" in text or text.startswith("{") or _XGFT.fullmatch(text)):
        return parse_fabric(text, "fabric", selection)
    try:
        data = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            "fabric", text, f"give a file that can be read ({why.lower()})"
        ) from error
    utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    content = data.decode("utf-16" if utf16 else "utf-8-sig", errors="replace")
    return parse_fabric(content, Path(source).name, selection)


def parse_fabric(text: str, source: str, selection: Selection | None = None) -> FabricFile:
    """The fabric in a text; ``source`` is what errors call it."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return _from_json(text, source)
    if _XGFT.fullmatch(text):
        return _described(generator.Description(xgft=text.strip()))
    _refuse_without_cables(text, source)
    imported = recover(ibnetdiscover.parse(text, source), selection)
    return FabricFile(imported.topology, lambda: imported.inventory, imported.report)


def _from_json(text: str, source: str) -> FabricFile:
    try:
        document = json.loads(text.removeprefix("\ufeff").rstrip())
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        deep = isinstance(error, RecursionError)
        why = getattr(error, "msg", "too deeply nested" if deep else "a number is too long").lower()
        raise InvalidFile(source, line, f"this is torn or no JSON: {why}") from error
    if "xgft" in document:
        return _described(generator.description_from(document))
    if "topology" not in document and "m" not in document:
        raise InvalidFile(source, 1, 'a snapshot has a "topology", a description an "xgft"')
    read = documents.topology_from_snapshot(document)
    of_sane_size(read.topology.tree)
    stored = document.get("inventory")
    inventory = documents.inventory_from(stored) if stored else None
    return FabricFile(
        read.topology,
        lambda: inventory or generator.inventory(read.topology),
        failed_hosts=read.failed_hosts,
        failed_links=read.failed_links,
        features=read.features,
        shared_plane=read.shared_plane,
    )


def _described(description: generator.Description) -> FabricFile:
    topology = generator.topology(description)
    return FabricFile(
        topology,
        lambda: generator.inventory(topology, description),
        features=documents.features_from(description.hosts, topology, "hosts"),
    )


def _refuse_without_cables(text: str, source: str) -> None:
    """Say what is missing where a file tells of switches but not how they are cabled."""
    slurm = re.search(r"^[ \t]*SwitchName[ \t]*=", text, re.IGNORECASE | re.MULTILINE)
    if slurm:
        raise InvalidFile(
            source,
            text[: slurm.start()].count("\n") + 1,
            "a Slurm topology.conf names nodes and switches but neither cables nor GUIDs; "
            "give what ibnetdiscover prints",
        )
    lines = [line for line in text.split("\n")[:3] if line.strip()]
    if len(lines) > 1 and all(_TABLE.fullmatch(line.strip()) for line in lines):
        raise InvalidFile(
            source,
            1,
            "a table says at which switches hosts are, but neither cables nor GUIDs; "
            "give what ibnetdiscover prints",
        )
