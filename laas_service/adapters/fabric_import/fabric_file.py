# SPDX-License-Identifier: Apache-2.0

"""Fabric files: reads ibnetdiscover output, snapshots and descriptions.

The content decides the format: output of ``ibnetdiscover``; JSON with a ``topology`` (a
snapshot) or an ``xgft`` (a description for the generator); or a bare
``3;18,18,36;1,18,18``. Files that name hosts and switches but no cables are refused, with
the reason.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from laas_service.adapters import documents, snapshot
from laas_service.adapters.fabric_import import generator, ibnetdiscover
from laas_service.adapters.fabric_import.generator import of_sane_size, parse_xgft
from laas_service.adapters.fabric_import.recovery import (
    ImportReport,
    Irregularity,
    Selection,
    beside_a_manager,
    recover,
)
from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.domain.features import PLAIN_HOSTS, Features
from laas_service.domain.inventory import HOST_NAME, HOST_NAME_RULE, Inventory
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fat_tree import Judgement
from laas_service.domain.shared_plane import NO_PLANE, SharedPlane
from laas_service.domain.topology import Link, Topology

__all__ = ["FabricFile", "parse_xgft", "read_fabric"]

_XGFT = re.compile(r"\s*\d+\s*;[\d\s,]+;[\d\s,]+")
_TABLE = re.compile(r'[^\[\]{}"=#]*,[^\[\]{}"=#]*')


NO_SELECTION = Selection()

NO_MANAGER = (
    "warning: no subnet manager is known, so no route to one is checked, its LID is not kept at "
    "the top, and no host beside it is withheld; name the hosts that run one with --subnet-manager"
)


@dataclass(frozen=True)
class FabricFile:
    """A fabric as read from a file."""

    topology: Topology
    make_inventory: Callable[[], Inventory]
    """Makes ``inventory`` at its first use: generating names and GUIDs for a large tree takes
    longer than building the tree."""

    report: ImportReport | None = None
    """What the import recognised; None unless the file is a dump."""

    failed_hosts: frozenset[int] = frozenset()
    """Failed hosts; from snapshots only."""

    failed_links: frozenset[Link] = frozenset()
    """Failed links; from snapshots only."""

    features: Features = PLAIN_HOSTS
    """Traits and costs of hosts; from snapshots and descriptions."""

    shared_plane: SharedPlane = NO_PLANE
    """Links withheld for shared traffic; from snapshots only."""

    virtual_guids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """GUIDs of the virtual ports of ports of hosts; from snapshots only."""

    selection: Selection = NO_SELECTION
    """The hosts that an operator named."""

    accepted: tuple[str, ...] = ()
    """Why the cabling is no fat-tree, if it was accepted nevertheless."""

    @cached_property
    def beside_managers(self) -> Mapping[int, bool]:
        """Hosts on a leaf with a subnet manager, if rails are planes of their own; ascending.

        The value says whether the operator offers the host nevertheless. The import of a dump
        keeps the others out; a snapshot and a description have them, and they are to be drained.
        """
        if self.topology.planes == 1:
            return {}
        inventory = self.inventory
        managed = {manager.at.guid for manager in inventory.managers}
        hosts = {e.host for e in inventory.endpoints if e.at.guid in managed}
        return {
            host: self.selection.includes(inventory.host_names[host])
            for host in sorted(host for host in hosts if host is not None)
        }

    @cached_property
    def withheld_hosts(self) -> frozenset[int]:
        """Hosts beside a subnet manager that the operator does not offer."""
        return frozenset(host for host, offered in self.beside_managers.items() if not offered)

    def lines(self) -> Iterator[str]:
        """Say what the import recognised, and what the operator should know of it."""
        if self.report is not None:
            yield from self.report.lines()
        else:
            yield _summary(self.topology)
            names = self.inventory.host_names
            for host, offered in self.beside_managers.items():
                yield f"  host beside a subnet manager: {beside_a_manager(names[host], offered)}"
        if not self.inventory.managers:
            yield NO_MANAGER

    @cached_property
    def inventory(self) -> Inventory:
        """Switches, cables, names and GUIDs of the fabric."""
        return self.make_inventory()


def read_fabric(
    source: str | Path, selection: Selection | None = None, *, accept_no_fat_tree: bool = False
) -> FabricFile:
    """Read the fabric in a file or in a text; a text has line ends, or ``{`` or sizes in front.

    ``selection`` says which hosts of a dump are for tenants. ``accept_no_fat_tree`` accepts
    cablings that ``laas_service.domain.routing.fat_tree`` does not; the report then says what
    they cannot do. Whatever is accepted can be published.

    Raises:
        InvalidFile: the file describes no fabric, is truncated, or its cabling is no fat-tree;
            names the line.
        InvalidInput: there is no such file, or a field of a snapshot or description is
            wrong.
    """
    text = str(source)
    if isinstance(source, str) and ("\n" in text or text.startswith("{") or _XGFT.fullmatch(text)):
        return parse_fabric(text, "fabric", selection, accept_no_fat_tree=accept_no_fat_tree)
    try:
        data = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            "fabric", text, f"give a file that can be read ({reason.lower()})"
        ) from error
    utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    content = data.decode("utf-16" if utf16 else "utf-8-sig", errors="replace")
    name = Path(source).name
    return parse_fabric(content, name, selection, accept_no_fat_tree=accept_no_fat_tree)


def parse_fabric(
    text: str,
    source: str,
    selection: Selection | None = None,
    *,
    accept_no_fat_tree: bool = False,
) -> FabricFile:
    """Parse the fabric in a text; errors call the text ``source``. See ``read_fabric``."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        fabric = _from_json(text, source, accept_no_fat_tree=accept_no_fat_tree)
        return replace(fabric, selection=selection or NO_SELECTION)
    if _XGFT.fullmatch(text):
        return _described(generator.Description(xgft=text.strip()))
    _refuse_without_cables(text, source)
    imported = recover(ibnetdiscover.parse(text, source), selection)
    judged = Judgement(imported.topology, imported.inventory, imported.services)
    accepted = _no_fat_tree(source, judged, accept_no_fat_tree)
    report = replace(
        imported.report,
        irregularities=(
            *imported.report.irregularities,
            *_unmanaged(imported.inventory, judged),
            *(Irregularity("pairs without a path", text) for text in judged.without_path),
        ),
    )
    return FabricFile(
        imported.topology,
        lambda: imported.inventory,
        report,
        selection=selection or NO_SELECTION,
        accepted=accepted,
    )


def _summary(topology: Topology) -> str:
    tree = topology.tree
    hosts = topology.hosts - len(topology.absent_hosts)
    shape = f"XGFT(3; {','.join(map(str, tree.m))}; {','.join(map(str, tree.w))})"
    return f"{shape}, {hosts} hosts on {topology.rails} rail(s)"


def _unmanaged(inventory: Inventory, judged: Judgement) -> Iterator[Irregularity]:
    """Ports and switches without a route to or from a subnet manager above the leaves.

    A manager on a leaf has routes wherever cables lead.
    """
    level = {switch.guid: switch.level for switch in inventory.switches}
    managers = [manager for manager in inventory.managers if level[manager.at.guid] > 1]
    if not managers:
        return
    index = {guid: i for i, guid in enumerate(judged.tables.destinations)}
    nodes = [(s.guid, s.guid, s.name) for s in inventory.switches]
    nodes += [(e.guid, e.at.guid, e.name) for e in inventory.endpoints]
    for manager in managers:
        where = f"{manager.name} at {inventory.switch_of_guid[manager.at.guid].name}"
        own = judged.rows[manager.at.guid]
        for guid, at, name in nodes:
            if NO_ROUTE in (own[index[guid]], judged.rows[at][index[manager.guid]]):
                detail = f"{name}[{guid:#018x}] to or from {where}: it would close a cycle"
                yield Irregularity("no route to a subnet manager", detail)


def _no_fat_tree(source: str, judged: Judgement, accept: bool) -> tuple[str, ...]:
    """Why a cabling is no fat-tree; empty if it is one. Raises: InvalidFile, unless accepted."""
    found = judged.breaches
    if found and not accept:
        fixes = dict.fromkeys(breach.fix for breach in found)
        raise InvalidFile(
            source,
            1,
            "the cabling is no fat-tree of two or three levels: "
            + ". ".join([*map(str, found), *fixes])
            + "; --accept no-fat-tree takes the cabling as it is",
        )
    return tuple(map(str, found))


def _check_ports(inventory: Inventory) -> None:
    """Check that each cable and adapter of an inventory is at a port of one of its switches."""
    known = {switch.guid: switch.ports for switch in inventory.switches}
    ends = [end for cable in inventory.cables for end in (cable.lower, cable.upper)]
    for end in (*ends, *(endpoint.at for endpoint in inventory.endpoints)):
        if not 1 <= end.port <= min(known.get(end.guid, 0), ibnetdiscover.MAX_PORTS):
            at = f"{end.guid:#018x} port {end.port}"
            raise InvalidInput("inventory", at, "name a port of a switch of the inventory")


def _check_host_names(inventory: Inventory) -> None:
    """Check that compute accepts each host's name."""
    for number, name in enumerate(inventory.host_names):
        if name and not HOST_NAME.fullmatch(name):
            raise InvalidInput(f"inventory.host_names.{number}", name, HOST_NAME_RULE)


def _from_json(text: str, source: str, *, accept_no_fat_tree: bool) -> FabricFile:
    try:
        document = json.loads(text.removeprefix("\ufeff").rstrip())
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        deep = isinstance(error, RecursionError)
        default = "too deeply nested" if deep else "a number is too long"
        reason = getattr(error, "msg", default).lower()
        raise InvalidFile(source, line, f"truncated, or no JSON: {reason}") from error
    if "xgft" in document:
        return _described(generator.description_from(document))
    if "topology" not in document and "m" not in document:
        raise InvalidFile(source, 1, 'a snapshot has a "topology", a description an "xgft"')
    state = snapshot.topology_from_snapshot(document)
    of_sane_size(state.topology.tree)
    stored = document.get("inventory")
    inventory = documents.inventory_from(stored) if stored else None
    if inventory:
        _check_host_names(inventory)
    if inventory and not accept_no_fat_tree:
        _check_ports(inventory)
        services = {e.guid for e in inventory.endpoints if e.host is None}
        _no_fat_tree(source, Judgement(state.topology, inventory, services), accept=False)
    return FabricFile(
        state.topology,
        lambda: inventory or generator.inventory(state.topology),
        failed_hosts=state.failed_hosts,
        failed_links=state.failed_links,
        features=state.features,
        shared_plane=state.shared_plane,
        virtual_guids=documents.virtual_ports_from(document.get("virtual_guids", [])),
    )


def _described(description: generator.Description) -> FabricFile:
    topology = generator.topology(description)
    return FabricFile(
        topology,
        lambda: generator.inventory(topology, description),
        features=documents.features_from(description.hosts, topology, "hosts"),
    )


def _refuse_without_cables(text: str, source: str) -> None:
    """Raise if a file names switches but no cables; the error says what to give instead."""
    slurm = re.search(r"^[ \t]*SwitchName[ \t]*=", text, re.IGNORECASE | re.MULTILINE)
    if slurm:
        raise InvalidFile(
            source,
            text[: slurm.start()].count("\n") + 1,
            "a Slurm topology.conf names nodes and switches but neither cables nor GUIDs; "
            "give the output of ibnetdiscover",
        )
    lines = [line for line in text.split("\n")[:3] if line.strip()]
    if len(lines) > 1 and all(_TABLE.fullmatch(line.strip()) for line in lines):
        raise InvalidFile(
            source,
            1,
            "a table says at which switches hosts are, but neither cables nor GUIDs; "
            "give the output of ibnetdiscover",
        )
