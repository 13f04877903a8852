# SPDX-License-Identifier: Apache-2.0

"""laas-manage fabric: import, export, list and generate fabrics."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from laas_service.adapters import documents, slurm, snapshot
from laas_service.adapters.fabric_import import ibnetdiscover, live
from laas_service.adapters.fabric_import.decoding import read_stream
from laas_service.adapters.fabric_import.fabric_file import (
    FabricFile,
    parse_fabric,
    read_fabric,
    refused_document,
)
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.adapters.fabric_import.refusal import RefusedCabling, refusal_of
from laas_service.app.records import HostState, LinkState
from laas_service.cmd.manage.command_line import NO_FAT_TREE
from laas_service.cmd.manage.output import fitted, print_table, write
from laas_service.cmd.manage.progress import progress
from laas_service.domain.common_plane import NO_PLANE
from laas_service.domain.errors import LaasError
from laas_service.domain.features import HostChange
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.domain.wording import listed
from laas_service.garbage import collected_later

if TYPE_CHECKING:
    from laas_service.adapters.db.store import SqlStore
    from laas_service.wiring.composition import Composition

FROM_UFM = "ufm:"
"""Stands for a file: the fabric is read from the UFM that [ufm] names."""

_WARNINGS = 5
"""Warnings of ``ibnetdiscover`` that are shown."""


def read_file(args: argparse.Namespace) -> FabricFile:
    """Read the fabric that the arguments of ``IMPORTED`` name.

    Raises:
        InvalidFile: this is no fabric, or one that is refused.
        InvalidInput: the file cannot be read, or a pattern matches no host.
        Unavailable: UFM does not answer.
    """
    selection = Selection(tuple(args.exclude), tuple(args.include), tuple(args.subnet_manager))
    accept = NO_FAT_TREE in args.accept
    if args.live:
        text, warnings = live.discovered()
        for warning in warnings[:_WARNINGS]:
            print(f"laas-manage: {live.TOOL} warns: {warning}", file=sys.stderr)
        return parse_fabric(text, live.TOOL, selection, accept_no_fat_tree=accept)
    if args.file == FROM_UFM:
        from laas_service.adapters.ufm.cabling import dump
        from laas_service.cmd.manage.shared import parts_of

        text = dump(parts_of(args).subnet_managers.ufm)
        return parse_fabric(text, "UFM", selection, accept_no_fat_tree=accept)
    if args.file == "-":
        text = read_stream(sys.stdin.buffer, "standard input")
        return parse_fabric(text, "standard input", selection, accept_no_fat_tree=accept)
    return read_fabric(Path(args.file), selection, accept_no_fat_tree=accept)


def import_fabric(args: argparse.Namespace) -> int:
    """Read a fabric, report what was recognised, and record it; 1 if it is refused."""
    fabric = None
    try:
        with collected_later():
            with progress(f"reading {args.file or live.TOOL}"):
                fabric = read_file(args)
            lines = list(_rehearse(args, fabric) if args.dry_run else _record(args, fabric))
    except LaasError as error:
        refusal = refusal_of(error)
        if not args.json or refusal is None:
            raise
        recognised = error.recognised if isinstance(error, RefusedCabling) else None
        if fabric is not None:
            recognised = fabric.document()
        print(json.dumps(refused_document(refusal, str(error), recognised)))
        return 1
    if args.json:
        print(json.dumps(fabric.document()))
        return 0
    for line in fabric.lines(everything=args.all):
        print(line if args.all else fitted(line))
    for line in lines:
        print(fitted(line))
    return 0


def _id_of(file: str) -> str:
    """The id of a fabric from this file: its name without the ending, with - for other characters.

    ``fabric`` for standard input, or if nothing is left of the name.
    """
    name = "" if file == "-" else re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).stem)
    return name.lstrip(".-")[:64] or "fabric"


def _record(args: argparse.Namespace, fabric: FabricFile) -> Iterator[str]:
    """Record an imported fabric; what to tell of it beside its report."""
    from laas_service.cmd.manage.shared import parts_of

    parts = parts_of(args)
    id = _id_for(args, parts.subnet_managers.ufm_fabric)
    with progress(f"recording {id}"):
        others = {each.id: each.inventory for each in parts.store.fabrics.all() if each.id != id}
        _add(parts.store, id, fabric)
    yield f"recorded as {id}"
    yield from _in_other_fabrics(fabric, others)
    yield from _unknown_to_compute(parts, set(filter(None, fabric.inventory.host_names)))


def _rehearse(args: argparse.Namespace, fabric: FabricFile) -> Iterator[str]:
    """Refuse what ``_record`` would for other fabrics, and tell the same of them.

    Raises:
        ManagedElsewhere: another fabric has one of its switches or ports.
    """
    from laas_service.adapters.db import apart, engine  # all parts would take twice as long
    from laas_service.cmd.manage.configuration import configuration
    from laas_service.conf.database import connection

    try:
        conf = configuration(args)
        if engine.absent(connection(conf)):
            return
        others = apart.managed(engine.connect(connection(conf)))
    except LaasError as error:
        yield f"not compared with the managed fabrics: {error}"
        return
    others.pop(_id_for(args, conf.ufm.fabric), None)
    apart.refuse(fabric.inventory, others.items())
    yield from _in_other_fabrics(fabric, others)


def _id_for(args: argparse.Namespace, in_ufm: str | None) -> str:
    """The id of the imported fabric; ``in_ufm`` is that of the fabric that UFM manages."""
    named = in_ufm if args.file == FROM_UFM else None
    return args.id or named or _id_of(args.file or "-")


def _in_other_fabrics(fabric: FabricFile, others: Mapping[str, Inventory]) -> Iterator[str]:
    """Hosts and adapters that other fabrics have, too; one machine there has two owners."""
    names = set(filter(None, fabric.inventory.host_names))
    for id, other in others.items():
        if both := names & set(other.host_names):
            yield (
                f"{len(both)} hosts have the names of hosts of fabric {id} "
                f"({listed(sorted(both), 3)}): one machine in both has two owners; exclude it in "
                "one of them (--exclude)"
            )
        ports = {end.guid for end in other.endpoints} & fabric.other_ports.keys()
        if nodes := sorted({f"{fabric.other_ports[port]:#018x}" for port in ports}):
            yield (
                f"{len(nodes)} adapters have a port here and another one in fabric {id} "
                f"(node GUIDs {listed(nodes, 3)}): one machine in both has two owners; exclude it "
                "in one of them (--exclude)"
            )


def _unknown_to_compute(parts: Composition, names: set[str]) -> Iterator[str]:
    """Hosts that Nova or Ironic, if configured, does not know; they can get no server."""
    try:
        known = parts.compute.look(sorted(names))
    except LaasError as error:
        yield f"whether compute knows the hosts could not be checked: {error}"
        return
    unknown = sorted(names - known.keys()) if known is not None else []
    if unknown:
        yield (
            f"compute does not know {len(unknown)} of {len(names)} hosts "
            f"({listed(unknown, 3)}): they get no servers; correct the names, or enroll the hosts"
        )


def _add(store: SqlStore, id: str, fabric: FabricFile) -> None:
    store.fabrics.add(id, fabric.topology, fabric.inventory)
    if fabric.shared_plane != NO_PLANE:
        store.components.set_shared_plane(id, fabric.shared_plane)
    if fabric.virtual_guids:
        store.components.set_virtual_ports(id, fabric.virtual_guids)
    for host in sorted(fabric.withheld_hosts - fabric.failed_hosts):
        store.components.set_host_state(id, host, HostState.DRAINED)
    for host in sorted(fabric.failed_hosts):
        store.components.set_host_state(id, host, HostState.FAILED)
    for link in sorted(fabric.failed_links, key=fabric.topology.tree.link_id):
        store.components.set_link_state(id, link, LinkState.FAILED)
    if fabric.features.hosts:
        features = fabric.features.hosts
        store.components.describe_hosts(
            id, {host: HostChange(*each) for host, each in features.items()}
        )


def _snapshot(fabric: FabricFile, ledger: LedgerView) -> str:
    document = snapshot.public_snapshot(ledger)
    document["inventory"] = documents.inventory_document(fabric.inventory)
    if fabric.virtual_guids:
        document["virtual_guids"] = documents.virtual_ports_document(fabric.virtual_guids)
    return json.dumps(document) + "\n"


WRITERS: dict[str, Callable[[FabricFile, LedgerView], str]] = {
    "snapshot": _snapshot,
    "netlist": lambda fabric, _: netlist(fabric.inventory),
    "ibnetdiscover": lambda fabric, _: ibnetdiscover.render(fabric.inventory),
    "slurm": lambda fabric, _: slurm.topology_conf(fabric.topology, fabric.inventory),
}


def export(args: argparse.Namespace) -> int:
    """Write a managed fabric and, in a snapshot, its allocations."""
    from laas_service.cmd.manage.shared import fabric_of, parts_of

    parts = parts_of(args)
    record = fabric_of(parts, args.fabric)
    ledger, _ = parts.store.fabrics.ledger(record.id)
    fabric = FabricFile(
        record.topology,
        lambda: record.inventory,
        virtual_guids=parts.store.components.virtual_ports(record.id),
    )
    return write(WRITERS[args.format](fabric, ledger), args.output)


def generate(args: argparse.Namespace) -> int:
    """Write a generated fabric in one of the formats."""
    fabric = read_fabric(args.description)
    ledger = Ledger(fabric.topology)
    ledger.describe_hosts(fabric.features.hosts)
    return write(WRITERS[args.format](fabric, ledger), args.output)


def show(args: argparse.Namespace) -> int:
    """List the managed fabrics."""
    from laas_service.cmd.manage.shared import parts_of

    table = Table("ID", "TREE", "RAILS", "HOSTS", "SWITCHES", "GENERATION", box=None)
    for record in parts_of(args).store.fabrics.all():
        tree, levels = record.topology.tree, Counter(s.level for s in record.inventory.switches)
        table.add_row(
            record.id,
            f"{','.join(map(str, tree.m))} ; {','.join(map(str, tree.w))}",
            str(record.topology.rails),
            str(sum(map(bool, record.inventory.host_names))),
            " / ".join(str(levels[level]) for level in sorted(levels)),
            str(record.generation),
        )
    print_table(table)
    return 0
