# SPDX-License-Identifier: Apache-2.0

"""Renders a set of files, parses it back, compares it with the values, and makes it current.

``fileset`` owns the directories and the switch from one set to the next.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from laas_service.domain.errors import InvalidFile
from opensm_writer import fileset, parse, render
from opensm_writer.desired import Partition, SubnetConfiguration, picker
from opensm_writer.fileset import MANIFEST, Manifest

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedSet:
    """A set that was rendered, written and parsed back.

    The next set copies the text of unchanged tables from it.
    """

    manifest: Manifest
    directory: Path
    configuration: SubnetConfiguration
    tables: tuple[parse.SwitchTable, ...]  # in the order of ``lfts``
    entries: Mapping[int, str]  # partition key -> sha256 of all entries towards its members


def publish_set(
    configuration: SubnetConfiguration,
    settings: render.Settings,
    root: Path,
    keep: int = 3,
    previous: PublishedSet | None = None,
) -> PublishedSet:
    """Make the files of a configuration current; does nothing if they are current.

    The current set is replaced only after the new one was written, synced and parsed back to
    equal values. ``keep`` older sets stay. ``previous`` only saves time: the text of unchanged
    tables is copied from that set, and is not parsed again if its sha256 is the same. If the
    copy fails, the whole set is rendered.

    Raises:
        Conflict: a newer generation is current, or entries of a tenant would change although
            nothing that they depend on did.
        InvalidFile: a file does not parse back to the values that it was rendered from.
        LimitExceeded: see ``render.set_files``.
    """
    state = configuration.state
    home = root / state.fabric
    with fileset.changing(home):
        current = fileset.readable(root, state.fabric)
        fileset.check_not_older(current, state.generation, state.stamp, home)
        entries = _entries(configuration, previous)
        tenants = _fingerprints(configuration, entries)
        manifest = Manifest(
            state.fabric, state.generation, {}, _chains(configuration), tenants, state.stamp
        )
        fileset.check_follows(current, manifest, home)
        draft = fileset.draft(home)
        try:
            digests, tables = _write_and_check(draft, configuration, settings, previous)
        except (InvalidFile, OSError) as error:
            if previous is None:
                raise
            LOG.warning("fabric %s: rendering the whole set: %s", state.fabric, error)
            digests, tables = _write_and_check(fileset.draft(home), configuration, settings, None)
        manifest = replace(manifest, files=digests)
        fileset.write(draft / MANIFEST, [fileset.text(manifest)])
        if current is not None and fileset.is_current(home, current, fileset.text(manifest)):
            shutil.rmtree(draft)
            directory = fileset.current_set(home).resolve()
        else:
            directory = fileset.make_current(home, draft, state.generation, keep)
    return PublishedSet(manifest, directory, configuration, tables, entries)


def _chains(configuration: SubnetConfiguration) -> str:
    if configuration.chains is not None:
        return fileset.INCLUDED
    return f"{fileset.OMITTED}{configuration.chains_omitted}"


def _write_and_check(
    draft: Path,
    configuration: SubnetConfiguration,
    settings: render.Settings,
    previous: PublishedSet | None,
) -> tuple[dict[str, str], tuple[parse.SwitchTable, ...]]:
    """Write a set and parse it back: the sha256 of each file, and the tables."""
    with _unchanged_texts(configuration, previous) as unchanged_text:
        digests = {
            name: fileset.write(draft / name, pieces)
            for name, pieces in render.set_files(configuration, settings, unchanged_text).items()
        }
    known = previous.tables if previous is not None else ()
    return digests, check(configuration, settings, draft, {table.digest: table for table in known})


@contextmanager
def _unchanged_texts(
    configuration: SubnetConfiguration, previous: PublishedSet | None
) -> Iterator[Callable[[int], str | None]]:
    """A function from a switch's GUID to the text of its table in the previous set.

    It returns None if the table has changed.
    """
    if previous is None or previous.configuration.state.inventory != configuration.state.inventory:
        yield lambda guid: None
        return
    rows, previous_rows = configuration.tables.rows, previous.configuration.tables.rows
    spans: dict[int, tuple[int, int]] = {}
    start = 0
    for table in previous.tables:
        if previous_rows[table.guid] == rows[table.guid]:
            spans[table.guid] = (table.size, start)
        start += table.size
    with (previous.directory / "lfts").open("rb") as file:

        def unchanged_text(guid: int) -> str | None:
            span = spans.get(guid)
            return os.pread(file.fileno(), *span).decode("ascii") if span else None

        yield unchanged_text


def check(
    configuration: SubnetConfiguration,
    settings: render.Settings,
    directory: Path,
    known: Mapping[bytes, parse.SwitchTable] | None = None,
) -> tuple[parse.SwitchTable, ...]:
    """Parse a set and compare it with the configuration; the tables in the order of the file.

    ``known`` is described at ``parse.switch_tables``.

    Raises:
        InvalidFile: names the file and, if a line is wrong, the line.
    """
    tables = _check_tables(configuration, directory / "lfts", known)
    chains = configuration.chains
    partition_file = parse.PartitionFile(
        tuple(sorted(settings.services)),
        settings.multicast and bool(configuration.partitions),
        render.listed_partitions(configuration, settings),
    )
    comparisons: list[tuple[str, Callable[[str, str], object], object]] = [
        ("guid2lid", parse.guid2lid, configuration.lids),
        ("partitions.conf", parse.partitions, partition_file),
        ("cabling", parse.cabling, configuration.state.inventory.cable_ends),
    ]
    if chains is not None:
        chain = partial(parse.chain, directory=settings.directory)
        comparisons += [
            ("port_groups.conf", parse.port_groups, chains.groups),
            ("topologies.conf", parse.topologies, chains.topologies),
            ("chains.conf", chain, chains.steps),
            *((name, parse.guid_list, guids) for name, guids in chains.lists.items()),
        ]
    for name, parsed, desired in comparisons:
        if parsed((directory / name).read_text(), name) != desired:
            raise InvalidFile(name, 1, "it does not parse back to the values it was rendered from")
    return tables


def _check_tables(
    configuration: SubnetConfiguration,
    path: Path,
    known: Mapping[bytes, parse.SwitchTable] | None,
) -> tuple[parse.SwitchTable, ...]:
    tables = parse.tables_by_guid(path, configuration.lids, known)
    if tables.keys() != configuration.tables.rows.keys():
        raise InvalidFile(path.name, 1, "its switches are not those that were rendered")
    for guid, table in tables.items():
        if table.row != configuration.row_by_lid(guid):
            problem = "does not parse back to the values it was rendered from"
            raise InvalidFile(path.name, 1, f"switch {guid:#018x} {problem}")
    return tuple(tables.values())


# -- tenants that did not change ----------------------------------------------


def _fingerprints(
    configuration: SubnetConfiguration, entries: Mapping[int, str]
) -> dict[str, dict[str, str]]:
    """Allocation id -> sha256 of its entries, and of everything that its entries depend on."""
    state = configuration.state
    inventory = state.inventory
    common = _sha256(
        (
            state.topology.tree,
            state.topology.host_ports,
            inventory.switches,
            inventory.cables,
            inventory.endpoints,
            state.failed_links,
            *filter(None, [state.shared_plane, state.moved_links]),
        )
    )
    members = {partition.pkey: partition.members for partition in configuration.partitions}
    fingerprints = {}
    for tenant in state.tenants:
        allocation = tenant.allocation
        keys = list(dict.fromkeys(tenant.key(rail) for rail in range(state.topology.rails)))
        guids = tuple(guid for key in keys for guid in members[key])
        lids = [configuration.lids[guid] for guid in guids]
        placements = [a for a in (allocation, tenant.beside) if a is not None]
        held = [masks for place in placements for masks in (place.groups, place.columns)]
        fingerprints[allocation.id] = {
            "depends": _sha256((common, *held, *keys, guids, lids)),
            "entries": fileset.combined([entries[key] for key in keys]),
        }
    return fingerprints


def _entries(configuration: SubnetConfiguration, previous: PublishedSet | None) -> dict[int, str]:
    """Partition key -> sha256 of all entries towards its members, by ascending switch GUID.

    The value of ``previous`` is reused if no changed row has another entry towards a member.
    """
    rows = dict(sorted(configuration.tables.rows.items()))
    known: dict[Partition, str] = {}
    changed: list[tuple[bytes, bytes]] = []
    if (
        previous is not None
        and previous.configuration.tables.destinations == configuration.tables.destinations
    ):
        previous_rows = previous.configuration.tables.rows
        known = {p: previous.entries[p.pkey] for p in previous.configuration.partitions}
        changed = [
            (previous_rows[guid], row) for guid, row in rows.items() if previous_rows[guid] != row
        ]
    digests = {}
    for partition in configuration.partitions:
        pick = picker([configuration.tables.index[guid] for guid in partition.members])
        if partition in known and all(pick(old) == pick(new) for old, new in changed):
            digests[partition.pkey] = known[partition]
        else:
            entries = b"".join(map(pick, rows.values()))
            digests[partition.pkey] = hashlib.sha256(entries).hexdigest()
    return digests


def _sha256(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def disturbed(configuration: SubnetConfiguration, root: Path) -> list[str]:
    """Ids of the allocations because of which ``publish_set`` would refuse the configuration."""
    current = fileset.readable(root, configuration.state.fabric)
    if current is None:
        return []
    fingerprints = _fingerprints(configuration, _entries(configuration, None))
    return fileset.disturbed(current.tenants, fingerprints)
