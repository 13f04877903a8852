# SPDX-License-Identifier: Apache-2.0

"""Fabric files: reads ibnetdiscover output, snapshots and descriptions.

The content decides the format: output of ``ibnetdiscover``; JSON with a ``topology`` (a
snapshot) or an ``xgft`` (a description for the generator); or a bare
``3;18,18,36;1,18,18``. Other texts are refused and named for what they are.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from laas_service.adapters import documents, snapshot
from laas_service.adapters.fabric_import import decoding, generator, ibnetdiscover
from laas_service.adapters.fabric_import.foreign import refuse_foreign
from laas_service.adapters.fabric_import.generator import of_sane_size, parse_xgft
from laas_service.adapters.fabric_import.recovery import (
    ImportReport,
    Irregularity,
    Selection,
    beside_a_manager,
    recover,
)
from laas_service.adapters.fabric_import.recovery.patterns import refuse_unmatched
from laas_service.adapters.fabric_import.recovery.report import KeptOut, Reason
from laas_service.adapters.fabric_import.refusal import ImportRefusal, RefusedCabling
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.errors import InvalidFile, InvalidInput
from laas_service.domain.features import PLAIN_HOSTS, Features
from laas_service.domain.inventory import HOST_NAME, HOST_NAME_RULE, Inventory
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.domain.routing.fat_tree import Judgement
from laas_service.domain.topology import Link, Topology

__all__ = ["FabricFile", "parse_xgft", "read_fabric"]

_XGFT = re.compile(r"\s*\d+\s*;[\d\s,]+;[\d\s,]+")


NO_SELECTION = Selection()

NO_MANAGER = (
    "warning: no subnet manager is known, so no route to one is checked, its LID is not kept at "
    "the top, and no host beside it is withheld; name the hosts that run one with --subnet-manager"
)


NO_FAT_TREE_MEANS = (
    "pairs of hosts may have no route, and most of the cabling may be kept out of allocation"
)


def refused_document(
    refusal: ImportRefusal, detail: str, recognised: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What programs read if a fabric is not imported; the keys of ``FabricFile.document``.

    ``recognised`` has those keys that are known.
    """
    nothing = {
        "hosts_named": 0,
        "hosts_for_tenants": 0,
        "cables": 0,
        "slow_cables": 0,
        "kept_out": [],
    }
    return {
        **nothing,
        **(recognised or {}),
        "importable": False,
        "refused": {"code": refusal.value, "detail": detail},
        "accepted": [],
    }


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
    """Traits, costs and domains of hosts; from snapshots and descriptions."""

    shared_plane: CommonPlane = NO_PLANE
    """Links withheld for shared traffic; from snapshots only."""

    virtual_guids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """GUIDs of the virtual ports of ports of hosts; from snapshots only."""

    selection: Selection = NO_SELECTION
    """The hosts that an operator named."""

    other_ports: Mapping[int, int] = field(default_factory=dict)
    """GUIDs of further ports of adapters with several ports, and of their nodes; of dumps only."""

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

    def lines(self, *, everything: bool = False) -> Iterator[str]:
        """Say what the import recognised, and what the operator should know of it.

        A page, unless ``everything`` is asked for.
        """
        if self.accepted:
            yield "accepted, though the cabling is no fat-tree:"
            yield from (f"  {why}" for why in self.accepted)
            yield f"  {NO_FAT_TREE_MEANS}"
        if self.report is not None:
            yield from self.report.lines() if everything else self.report.page()
        else:
            yield _summary(self.topology)
            names = self.inventory.host_names
            for host, offered in self.beside_managers.items():
                yield f"  host beside a subnet manager: {beside_a_manager(names[host], offered)}"
        if not self.inventory.managers:
            yield NO_MANAGER

    def document(self) -> dict[str, Any]:
        """What programs read of an import; see ``refused_document``."""
        report, inventory = self.report, self.inventory
        offered = self.topology.hosts - len(self.topology.absent_hosts) - len(self.withheld_hosts)
        irregularities = report.irregularities if report else ()
        names = frozenset(filter(None, inventory.host_names))
        return {
            "importable": True,
            "refused": None,
            "hosts_named": report.named_hosts if report else len(names),
            "hosts_for_tenants": report.hosts if report else offered,
            "cables": len(inventory.cables),
            "slow_cables": sum(each.kind == "slow cable" for each in irregularities),
            "kept_out": [
                kept.document() for kept in (report.kept_out if report else self._withheld())
            ],
            "accepted": ["no-fat-tree"] if self.accepted else [],
        }

    def _withheld(self) -> Iterator[KeptOut]:
        names = self.inventory.host_names
        if self.withheld_hosts:
            yield KeptOut(
                Reason.SUBNET_MANAGER,
                "shares a leaf with a subnet manager, which has routes between all rails; "
                "--include NAME offers it nevertheless",
                tuple(e.guid for e in self.inventory.endpoints if e.host in self.withheld_hosts),
                tuple(names[host] for host in sorted(self.withheld_hosts)),
            )

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
    path = Path(source)
    content = decoding.read_text(path)
    return parse_fabric(content, path.name, selection, accept_no_fat_tree=accept_no_fat_tree)


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
        if selection not in (None, NO_SELECTION):
            endpoints = fabric.inventory.endpoints
            others = {e.name.partition(" ")[0] for e in endpoints if e.host is None}
            refuse_unmatched(selection, {*fabric.inventory.host_names, *others} - {""})
        return replace(fabric, selection=selection or NO_SELECTION)
    if _XGFT.fullmatch(text):
        return _described(generator.Description(xgft=text.strip()))
    refuse_foreign(text, source)
    imported = recover(ibnetdiscover.parse(text, source), selection)
    names = {name for kept in imported.report.kept_out for name in kept.names}
    names |= {name.partition(" ")[0] for name in names}  # as localhost of "localhost mlx5_0"
    refuse_unmatched(selection or NO_SELECTION, {*imported.inventory.host_names, *names} - {""})
    judged = Judgement(imported.topology, imported.inventory, imported.services)
    report = replace(
        imported.report,
        irregularities=(
            *imported.report.irregularities,
            *_unmanaged(imported.inventory, judged),
            *(Irregularity("pairs without a path", text) for text in judged.without_path),
        ),
    )
    fabric = FabricFile(
        imported.topology,
        lambda: imported.inventory,
        report,
        selection=selection or NO_SELECTION,
        other_ports=imported.other_ports,
    )
    return _fat_tree_or_accepted(fabric, source, judged, accept_no_fat_tree)


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


def _fat_tree_or_accepted(
    fabric: FabricFile, source: str, judged: Judgement, accept: bool
) -> FabricFile:
    """The fabric, with what was accepted. Raises: RefusedCabling: no fat-tree, and not accepted."""
    found = judged.breaches
    if found and not accept:
        fixes = dict.fromkeys(breach.fix for breach in found)
        raise RefusedCabling(
            source,
            "the cabling is no fat-tree of two or three levels: "
            + ". ".join([*map(str, found), *fixes])
            + "; --accept no-fat-tree takes the cabling as it is",
            ImportRefusal.NO_FAT_TREE,
            fabric.document(),
        )
    return replace(fabric, accepted=tuple(map(str, found)))


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
        why = 'JSON of another kind: a snapshot has a "topology", a description an "xgft"'
        raise InvalidFile(source, 1, why, ImportRefusal.NOT_A_DUMP)
    state = snapshot.topology_from_snapshot(document)
    of_sane_size(state.topology.tree)
    stored = document.get("inventory")
    inventory = documents.inventory_from(stored) if stored else None
    if inventory:
        _check_host_names(inventory)
        _check_ports(inventory)
    fabric = FabricFile(
        state.topology,
        lambda: inventory or generator.inventory(state.topology),
        failed_hosts=state.failed_hosts,
        failed_links=state.failed_links,
        features=state.features,
        shared_plane=state.shared_plane,
        virtual_guids=documents.virtual_ports_from(document.get("virtual_guids", [])),
    )
    if not inventory:
        return fabric
    services = {e.guid for e in inventory.endpoints if e.host is None}
    judged = Judgement(state.topology, inventory, services)
    return _fat_tree_or_accepted(fabric, source, judged, accept_no_fat_tree)


def _described(description: generator.Description) -> FabricFile:
    topology = generator.topology(description)
    return FabricFile(
        topology,
        lambda: generator.inventory(topology, description),
        features=documents.features_from(description.hosts, topology, "hosts", description.domains),
    )
