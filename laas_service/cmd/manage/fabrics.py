# SPDX-License-Identifier: Apache-2.0

"""laas-manage fabric: import, export, list and generate fabrics."""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from laas_service.adapters import documents, slurm, snapshot
from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import FabricFile, parse_fabric, read_fabric
from laas_service.adapters.fabric_import.netlist import netlist
from laas_service.adapters.fabric_import.recovery import Selection
from laas_service.app.records import HostState, LinkState
from laas_service.cmd.manage.shared import fabric_of, parts_of, print_table, write
from laas_service.domain.features import HostChange
from laas_service.domain.ledger import Ledger, LedgerView
from laas_service.wiring import Parts

FROM_UFM = "ufm:"
"""Stands for a file: the fabric is read from the UFM that [ufm] names."""


def read_file(args: argparse.Namespace) -> FabricFile:
    """Read the fabric that the arguments of ``IMPORTED`` name. Raises: Unavailable (UFM)."""
    selection = Selection(tuple(args.exclude), tuple(args.include), tuple(args.subnet_manager))
    if args.file == FROM_UFM:
        from laas_service.adapters.ufm.cabling import dump

        text, accept = dump(parts_of(args).ufm), args.accept_no_fat_tree
        return parse_fabric(text, "UFM", selection, accept_no_fat_tree=accept)
    if args.file == "-":
        text, accept = sys.stdin.read(), args.accept_no_fat_tree
        return parse_fabric(text, "standard input", selection, accept_no_fat_tree=accept)
    return read_fabric(Path(args.file), selection, accept_no_fat_tree=args.accept_no_fat_tree)


def import_fabric(args: argparse.Namespace) -> int:
    """Read a fabric, report what was recognised, and record it."""
    fabric = read_file(args)
    for line in fabric.lines():
        print(line)
    if not args.dry_run:
        parts = parts_of(args)
        named = parts.ufm_fabric if args.file == FROM_UFM else None
        id = args.id or named or _id_of(args.file)
        _record(parts, id, fabric)
        print(f"recorded as {id}")
    return 0


def _id_of(file: str) -> str:
    """The id of a fabric from this file: its name without the ending, with - for other characters.

    ``fabric`` for standard input, or if nothing is left of the name.
    """
    name = "" if file == "-" else re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).stem)
    return name.lstrip(".-")[:64] or "fabric"


def _record(parts: Parts, id: str, fabric: FabricFile) -> None:
    store = parts.store
    store.add_fabric(id, fabric.topology, fabric.inventory)
    store.set_shared_plane(id, fabric.shared_plane)
    store.set_virtual_ports(id, fabric.virtual_guids)
    for host in sorted(fabric.withheld_hosts - fabric.failed_hosts):
        store.set_host_state(id, host, HostState.DRAINED)
    for host in sorted(fabric.failed_hosts):
        store.set_host_state(id, host, HostState.FAILED)
    for link in sorted(fabric.failed_links, key=fabric.topology.tree.link_id):
        store.set_link_state(id, link, LinkState.FAILED)
    if fabric.features.hosts:
        features = fabric.features.hosts
        store.describe_hosts(id, {host: HostChange(*each) for host, each in features.items()})


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
    parts = parts_of(args)
    record = fabric_of(parts, args.fabric)
    ledger, _ = parts.store.ledger(record.id)
    fabric = FabricFile(
        record.topology,
        lambda: record.inventory,
        virtual_guids=parts.store.virtual_ports(record.id),
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
    table = Table("ID", "TREE", "RAILS", "HOSTS", "SWITCHES", "GENERATION", box=None)
    for record in parts_of(args).store.fabrics():
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
