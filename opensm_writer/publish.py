# SPDX-License-Identifier: Apache-2.0

"""Publishes what was rendered: written, read back and compared before it becomes current.

``sets`` owns the directories and the switch from one set to the next.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from laas_service.domain.errors import InvalidFile
from opensm_writer import fileset, parse, render
from opensm_writer.desired import Partition, Plan, picker
from opensm_writer.fileset import MANIFEST, Manifest

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """A set as it was written and read back; the next one takes from it what stays."""

    manifest: Manifest
    directory: Path
    plan: Plan
    tables: tuple[parse.SwitchTable, ...]
    entries: Mapping[int, str]


def publish(
    plan: Plan,
    settings: render.Settings,
    root: Path,
    keep: int = 3,
    last: Published | None = None,
) -> Published:
    """Make the files of a plan current; safe to repeat, does nothing if they are.

    The old set stays current unless the new one was written, synced and parsed back
    to the same values. ``keep`` older sets are kept. ``last`` only saves time: tables of
    switches that are as they were are copied from that set, and not parsed again while
    their bytes (sha256) are those parsed before; where that fails all is rendered anew.

    Raises:
        Conflict: a newer generation is current, or entries of a tenant that did not
            change would change.
        InvalidFile: what was written does not read back to what was meant.
        LimitExceeded: see ``files.render``.
    """
    home = root / plan.state.fabric
    with fileset.changing(home):
        before = fileset.readable(root, plan.state.fabric)
        fileset.check_not_older(before, plan.state.generation, home)
        entries = _entries(plan, last)
        tenants = _fingerprints(plan, entries)
        meant = Manifest(plan.state.fabric, plan.state.generation, {}, _chains(plan), tenants)
        fileset.check_follows(before, meant, home)
        draft = fileset.draft(home)
        try:
            digests, tables = _write_checked(draft, plan, settings, last)
        except (InvalidFile, OSError) as error:
            if last is None:
                raise
            LOG.warning("fabric %s: rendering all anew: %s", plan.state.fabric, error)
            digests, tables = _write_checked(fileset.draft(home), plan, settings, None)
        meant = replace(meant, files=digests)
        fileset.write(draft / MANIFEST, [fileset.text(meant)])
        if before is not None and fileset.is_current(home / "current", before, fileset.text(meant)):
            shutil.rmtree(draft)
            return Published(before, (home / "current").resolve(), plan, tables, entries)
        final = fileset.make_current(home, draft, plan.state.generation, keep)
    return Published(meant, final, plan, tables, entries)


def _chains(plan: Plan) -> str:
    return (
        fileset.INCLUDED if plan.chains is not None else f"{fileset.OMITTED}{plan.chains_omitted}"
    )


def _write_checked(
    draft: Path, plan: Plan, settings: render.Settings, last: Published | None
) -> tuple[dict[str, str], tuple[parse.SwitchTable, ...]]:
    """Write a set and read it back: the sha256 of each file, and the tables as read."""
    with _kept_tables(plan, last) as kept:
        digests = _write_set(draft, render.render(plan, settings, kept))
    known = last.tables if last is not None else ()
    return digests, check(plan, settings, draft, {table.digest: table for table in known})


@contextmanager
def _kept_tables(plan: Plan, last: Published | None) -> Iterator[Callable[[int], str | None]]:
    """Looks up the text of switches that are as they were in the last set."""
    if last is None or last.plan.state.inventory != plan.state.inventory:
        yield lambda guid: None
        return
    spans: dict[int, tuple[int, int]] = {}
    start = 0
    for table in last.tables:
        if last.plan.tables.rows[table.guid] == plan.tables.rows[table.guid]:
            spans[table.guid] = (table.size, start)
        start += table.size
    with (last.directory / "lfts").open("rb") as file:

        def kept(guid: int) -> str | None:
            span = spans.get(guid)
            return os.pread(file.fileno(), *span).decode("ascii") if span else None

        yield kept


def check(
    plan: Plan,
    settings: render.Settings,
    directory: Path,
    known: Mapping[bytes, parse.SwitchTable] | None = None,
) -> tuple[parse.SwitchTable, ...]:
    """Read a set back and compare it with what was meant; the tables in order of the file.

    ``known`` is described at ``reader.switch_tables``.

    Raises:
        InvalidFile: names the file and, where a line is to blame, the line.
    """

    def text(name: str) -> str:
        return (directory / name).read_text()

    tables = _check_tables(plan, directory / "lfts", known)
    expected: dict[str, tuple[object, object]] = {
        "guid2lid": (parse.guid2lid(text("guid2lid"), "guid2lid"), plan.lids),
        "partitions.conf": (
            parse.partitions(text("partitions.conf"), "partitions.conf"),
            parse.PartitionFile(
                tuple(sorted(settings.services)),
                settings.multicast and bool(plan.partitions),
                plan.partitions,
            ),
        ),
    }
    if plan.chains is not None:
        name = "port_groups.conf"
        expected[name] = (parse.port_groups(text(name), name), plan.chains.groups)
        name = "topologies.conf"
        expected[name] = (parse.topologies(text(name), name), plan.chains.topologies)
        name = "chains.conf"
        expected[name] = (parse.chain(text(name), name, settings.directory), plan.chains.steps)
        for name, guids in plan.chains.lists.items():
            expected[name] = (parse.guid_list(text(name), name), guids)
    for name, (found, meant) in expected.items():
        if found != meant:
            raise InvalidFile(name, 1, "it does not read back to what was meant")
    return tables


def _check_tables(
    plan: Plan, path: Path, known: Mapping[bytes, parse.SwitchTable] | None
) -> tuple[parse.SwitchTable, ...]:
    names = {lid: guid for guid, lid in plan.lids.items()}
    found: dict[int, parse.SwitchTable] = {}
    checked: Mapping[int, int] = {}
    for table in parse.switch_tables(parse.file_pieces(path), path.name, known):
        meant = plan.row_by_lid(table.guid) if table.guid in plan.tables.rows else None
        if table.guids is not checked and table.guids.items() <= names.items():
            checked = table.guids
        if table.row != meant or table.guids is not checked or table.guid in found:
            raise InvalidFile(
                path.name, 1, f"switch {table.guid:#018x} does not read back as it was meant"
            )
        found[table.guid] = table
    if found.keys() != plan.tables.rows.keys():
        raise InvalidFile(path.name, 1, "a switch is missing")
    return tuple(found.values())


# -- tenants that did not change ----------------------------------------------


def _fingerprints(plan: Plan, entries: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """For each tenant: what its entries depend on, and the entries themselves, as sha256."""
    state = plan.state
    inventory = state.inventory
    ground = _sha(
        (
            state.topology.tree,
            state.topology.host_ports,
            inventory.switches,
            inventory.cables,
            inventory.endpoints,
            state.failed_links,
            *filter(None, [state.shared_plane]),
        )
    )
    members = {partition.pkey: partition.members for partition in plan.partitions}
    found = {}
    for tenant in state.tenants:
        allocation = tenant.allocation
        guids = members[tenant.pkey]
        lids = [plan.lids[guid] for guid in guids]
        places = [a for a in (allocation, tenant.beside) if a is not None]
        held = [part for place in places for part in (place.groups, place.columns)]
        found[allocation.id] = {
            "depends": _sha((ground, *held, tenant.pkey, guids, lids)),
            "entries": entries[tenant.pkey],
        }
    return found


def _entries(plan: Plan, last: Published | None) -> dict[int, str]:
    """Partition key -> sha256 of all entries towards its members, switch by switch.

    What ``last`` says of a partition is taken over if no row that changed has another
    entry towards it.
    """
    rows = dict(sorted(plan.tables.rows.items()))
    known: dict[Partition, str] = {}
    changed: list[tuple[bytes, bytes]] = []
    if last is not None and last.plan.tables.destinations == plan.tables.destinations:
        old = last.plan.tables.rows
        known = {partition: last.entries[partition.pkey] for partition in last.plan.partitions}
        changed = [(old[guid], row) for guid, row in rows.items() if old[guid] != row]
    found = {}
    for partition in plan.partitions:
        pick = picker([plan.tables.index[guid] for guid in partition.members])
        if partition in known and all(pick(was) == pick(now) for was, now in changed):
            found[partition.pkey] = known[partition]
        else:
            digest = hashlib.sha256()
            for row in rows.values():
                digest.update(pick(row))
            found[partition.pkey] = digest.hexdigest()
    return found


def _sha(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def disturbed(plan: Plan, root: Path) -> list[str]:
    """Tenants on whose account ``publish`` would refuse the plan."""
    before = fileset.readable(root, plan.state.fabric)
    if before is None:
        return []
    return fileset.disturbed(before.tenants, _fingerprints(plan, _entries(plan, None)))


def _write_set(directory: Path, rendered: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Write all files of a set; name -> sha256."""
    return {name: fileset.write(directory / name, pieces) for name, pieces in rendered.items()}
