# SPDX-License-Identifier: Apache-2.0

"""Renders a set of files, parses it back, compares it with the values, and makes it current.

``fileset`` owns the directories and the switch from one set to the next.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from laas_service.domain.errors import InvalidFile
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.messages import FabricState
from opensm_writer import fileset, parse, render
from opensm_writer.desired import Partition, SubnetConfiguration
from opensm_writer.fileset import MANIFEST, Manifest

if TYPE_CHECKING:
    from hashlib import _Hash

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
    entries: Mapping[int, "_Towards"]  # by partition key
    own: "_Prints"  # of the entries that are each tenant's own
    settings: render.Settings
    signature: fileset.Signature  # of ``lfts``
    hardware: "_Hash"  # of what the entries of all tenants depend on, except faults

    def has_hardware_of(self, state: FabricState) -> bool:
        """Whether the set was made for the same topology and inventory."""
        own = self.configuration.state
        return (own.topology, own.inventory) == (state.topology, state.inventory)


def publish_set(
    configuration: SubnetConfiguration,
    settings: render.Settings,
    root: Path,
    keep: int = 3,
    previous: PublishedSet | None = None,
) -> PublishedSet:
    """Make the files of a configuration current; does nothing if they are current.

    The current set is replaced only after the new one was rendered, parsed back to equal values,
    written and synced. ``keep`` older sets stay. ``previous`` only saves time: unchanged tables
    are copied from that set and not parsed again, unless somebody has touched its file; then, or
    if the copy fails, the whole set is rendered.

    Raises:
        Conflict: a newer generation is current, or a tenant's own entries would change although
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
        hardware = _hardware(configuration, previous)
        tenants, own = _fingerprints(configuration, entries, hardware)
        form = fileset.BARE if settings.bare else fileset.NAMED
        manifest = Manifest(
            state.fabric, state.generation, {}, _chains(configuration), tenants, state.stamp, form
        )
        fileset.check_follows(current, manifest, home)
        if previous is not None:
            fileset.check_undisturbed(previous.own, own)
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
    signature = fileset.signature(directory, render.TABLES)
    return PublishedSet(
        manifest, directory, configuration, tables, entries, own, settings, signature, hardware
    )


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
    known = {table.digest: table for table in previous.tables} if previous is not None else {}
    if previous is not None and not previous.has_hardware_of(configuration.state):
        previous = None
    digests: dict[str, str] = {}
    with _unchanged_tables(configuration, settings, previous) as unchanged:
        files = dict(render.set_files(configuration, settings, unchanged.text))
        fresh = _Fresh(configuration, files.pop(render.TABLES), unchanged.tables, known)
        if settings.bare:
            fileset.write_unhashed(draft / render.TABLES, fresh.pieces())
        else:
            digests[render.TABLES] = fileset.write(draft / render.TABLES, fresh.pieces())
    if previous is not None:
        for name in HARDWARE:
            del files[name]
            pieces = parse.file_pieces(previous.directory / name)
            digests[name] = fileset.write(draft / name, pieces)
            if digests[name] != previous.manifest.files[name]:
                raise InvalidFile(name, 1, "the one of the last set has changed")
    digests |= {name: fileset.write(draft / name, pieces) for name, pieces in files.items()}
    check(configuration, settings, draft, files.keys())
    tables = fresh.tables()
    if settings.bare:
        digests[render.TABLES] = fileset.digest_of_tables(table.digest for table in tables)
    return dict(sorted(digests.items())), tables


HARDWARE = ("cabling", "guid2lid", "guid_index.json")
"""Files that depend on the hardware alone."""


class _Unchanged(NamedTuple):
    """Tables of the last set that are also those of a configuration."""

    text: Callable[[int], str | None]  # of the table of a switch (GUID); None if it has changed
    tables: Mapping[int, parse.SwitchTable]


@contextmanager
def _unchanged_tables(
    configuration: SubnetConfiguration, settings: render.Settings, previous: PublishedSet | None
) -> Iterator[_Unchanged]:
    """What ``previous``, which is of the same hardware, has of the tables of a configuration."""
    if previous is None or previous.settings.bare != settings.bare:
        yield _Unchanged(lambda guid: None, {})
        return
    if fileset.signature(previous.directory, render.TABLES) != previous.signature:
        raise InvalidFile(render.TABLES, 1, "the one of the last set was touched")
    rows, previous_rows = configuration.tables.rows, previous.configuration.tables.rows
    same: dict[int, parse.SwitchTable] = {}
    starts: dict[int, int] = {}
    start = 0
    for table in previous.tables:
        if previous_rows[table.guid] == rows[table.guid]:
            same[table.guid], starts[table.guid] = table, start
        start += table.size
    with (previous.directory / render.TABLES).open("rb") as file:

        def text(guid: int) -> str | None:
            if guid not in same:
                return None
            data = os.pread(file.fileno(), same[guid].size, starts[guid])
            if len(data) != same[guid].size:
                raise InvalidFile(render.TABLES, 1, "the one of the last set is too short")
            return data.decode("ascii")

        yield _Unchanged(text, same)


class _Fresh:
    """The text of all tables of a configuration; those that were rendered are parsed back."""

    def __init__(
        self,
        configuration: SubnetConfiguration,
        texts: Iterable[str],
        unchanged: Mapping[int, parse.SwitchTable],
        known: Mapping[bytes, parse.SwitchTable],
    ) -> None:
        self._configuration, self._texts = configuration, texts
        self._unchanged, self._tables = frozenset(unchanged), dict(unchanged)
        self._parser = parse.TableParser(render.TABLES, known)

    def pieces(self) -> Iterator[bytes]:
        """The text of each table, by ascending GUID. Raises: InvalidFile."""
        for guid, text in zip(sorted(self._configuration.tables.rows), self._texts, strict=True):
            data = text.encode("ascii")
            yield data
            if guid not in self._unchanged:
                self._tables[guid] = self._parser.table(data)

    def tables(self) -> tuple[parse.SwitchTable, ...]:
        """The tables in the order of the file, compared with the configuration.

        Raises: InvalidFile.
        """
        ordered = [self._tables[guid] for guid in sorted(self._configuration.tables.rows)]
        return check_tables(self._configuration, ordered, self._unchanged)


def check_tables(
    configuration: SubnetConfiguration,
    several: Iterable[parse.SwitchTable],
    unchanged: Collection[int] = (),
) -> tuple[parse.SwitchTable, ...]:
    """The tables, compared with the configuration; the rows of ``unchanged`` (GUIDs) are right.

    Raises: InvalidFile.
    """
    tables = parse.by_guid(several, configuration.lids, render.TABLES)
    if tables.keys() != configuration.tables.rows.keys():
        raise InvalidFile(render.TABLES, 1, "its switches are not those that were rendered")
    for guid, table in tables.items():
        if guid not in unchanged and table.row != configuration.row_by_lid(guid):
            problem = "does not parse back to the values it was rendered from"
            raise InvalidFile(render.TABLES, 1, f"switch {guid:#018x} {problem}")
    return tuple(tables.values())


def check(
    configuration: SubnetConfiguration,
    settings: render.Settings,
    directory: Path,
    names: Collection[str] | None = None,
) -> None:
    """Parse these files of a set (all but its tables) and compare them with the configuration.

    Raises:
        InvalidFile: names the file and, if a line is wrong, the line.
    """
    chains = configuration.chains
    listed = render.listed_partitions(configuration, settings)
    if not settings.level:
        listed = tuple(replace(partition, shared=False) for partition in listed)
    partition_file = parse.PartitionFile(
        tuple(sorted(settings.services)),
        settings.multicast and bool(configuration.partitions),
        listed,
        level=settings.level if any(partition.shared for partition in listed) else 0,
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
        if names is not None and name not in names:
            continue
        if parsed((directory / name).read_text(), name) != desired:
            raise InvalidFile(name, 1, "it does not parse back to the values it was rendered from")


# -- tenants that did not change ----------------------------------------------


def _hardware(configuration: SubnetConfiguration, previous: PublishedSet | None) -> "_Hash":
    """The sha256 of what the entries of all tenants depend on, but for faults and plane."""
    state = configuration.state
    if previous is not None and previous.has_hardware_of(state):
        return previous.hardware
    inventory = state.inventory
    values = (
        state.topology.tree,
        state.topology.host_ports,
        inventory.switches,
        inventory.cables,
        inventory.endpoints,
    )
    return hashlib.sha256(repr(values)[:-1].encode())


_Prints = Mapping[str, Mapping[str, str]]
"""Allocation id -> sha256 of its entries, and of everything that its entries depend on."""


def _fingerprints(
    configuration: SubnetConfiguration, entries: Mapping[int, "_Towards"], hardware: "_Hash"
) -> tuple[_Prints, _Prints]:
    """Of all entries towards each tenant's ports, and of those that are its own alone.

    Default entries depend on all owners. For the first, they stand for that themselves.
    """
    state = configuration.state
    faults = (state.failed_links, *filter(None, [state.shared_plane, state.moved_links]))
    common = hardware.copy()
    common.update(("".join(f", {value!r}" for value in faults) + ")").encode())
    members = {partition.pkey: partition.members for partition in configuration.partitions}
    everything, own = {}, {}
    for tenant in state.tenants:
        allocation = tenant.allocation
        keys = list(dict.fromkeys(tenant.key(rail) for rail in range(state.topology.rails)))
        guids = tuple(guid for key in keys for guid in members[key])
        lids = [configuration.lids[guid] for guid in guids]
        layers = [tenant, *filter(None, [tenant.beneath])]
        parts = [part for one in layers for part in (one.allocation, one.beside, one.bridge)]
        placements = [part for part in parts if part is not None]
        held = [masks for place in placements for masks in (place.groups, place.columns)]
        depends = _sha256((common.hexdigest(), *held, *keys, guids, lids))
        default = [entries[key].default for key in keys]
        everything[allocation.id] = {
            "depends": _sha256((depends, *default)),
            "entries": fileset.combined([entries[key].all for key in keys]),
        }
        own[allocation.id] = {
            "depends": depends,
            "entries": fileset.combined([entries[key].own for key in keys]),
        }
    return everything, own


class _Towards(NamedTuple):
    """sha256 of the entries towards the members of a partition, by ascending switch GUID."""

    all: str
    own: str
    """Of those that are the tenant's own."""
    default: str
    """Of the others."""


def _entries(
    configuration: SubnetConfiguration, previous: PublishedSet | None
) -> dict[int, _Towards]:
    """The entries towards each partition, by its key.

    The value of ``previous`` is reused if no changed row has another entry towards a member.
    """
    known: dict[Partition, _Towards] = {}
    rows, own = configuration.tables.rows, configuration.tables.own_entries
    changed = np.ones(len(configuration.tables.destinations), bool)
    if (
        previous is not None
        and previous.configuration.tables.destinations == configuration.tables.destinations
    ):
        known = {p: previous.entries[p.pkey] for p in previous.configuration.partitions}
        before = previous.configuration.tables.rows
        changed = (own != previous.configuration.tables.own_entries).any(axis=0)
        for guid, row in rows.items():
            if row != before[guid]:
                changed |= np.frombuffer(row, np.uint8) != np.frombuffer(before[guid], np.uint8)
    matrix = None
    digests = {}
    for partition in configuration.partitions:
        members = [configuration.tables.index[guid] for guid in partition.members]
        if partition in known and not changed[members].any():
            digests[partition.pkey] = known[partition]
            continue
        if matrix is None:
            ordered = b"".join(row for _, row in sorted(rows.items()))
            matrix = np.frombuffer(ordered, np.uint8).reshape(len(rows), -1)
        towards, mask = matrix[:, members], own[:, members]
        several = towards, np.where(mask, towards, NO_ROUTE), np.where(mask, NO_ROUTE, towards)
        digests[partition.pkey] = _Towards(
            *(hashlib.sha256(each.tobytes()).hexdigest() for each in several)
        )
    return digests


def _sha256(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def disturbed(configuration: SubnetConfiguration, root: Path) -> list[str]:
    """Ids of the allocations because of which ``publish_set`` would refuse the configuration."""
    current = fileset.readable(root, configuration.state.fabric)
    if current is None:
        return []
    entries, hardware = _entries(configuration, None), _hardware(configuration, None)
    fingerprints, _ = _fingerprints(configuration, entries, hardware)
    return fileset.disturbed(current.tenants, fingerprints)
