# SPDX-License-Identifier: Apache-2.0

"""Reads the published sets of a fabric from disk, again only after their files changed."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from laas_service.domain.errors import InvalidFile
from laas_service.domain.inventory import CableEnds
from laas_service.domain.wording import listed
from opensm_writer import fileset, parse, render
from opensm_writer.publish import PublishedSet

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SetOnDisk:
    """A set in its directory."""

    name: str  # of the directory
    signature: fileset.Signature  # when it was read
    generation: int = 0
    stamp: str = ""
    tables: tuple[parse.SwitchTable, ...] = ()
    damage: str | None = None  # why it cannot be used; it has no tables then
    cables: tuple[CableEnds, ...] = ()  # empty if it has no file ``cabling``
    partitions: parse.PartitionFile | None = None
    lids: Mapping[int, int] = field(default_factory=dict)  # by GUID, if its tables are bare

    @property
    def bare(self) -> bool:
        """Whether its tables are right only while all ports have these LIDs."""
        return bool(self.lids)

    @property
    def rows(self) -> dict[int, bytes]:
        """Switch GUID -> ports by LID."""
        return {table.guid: table.row for table in self.tables}


class SetReader:
    """The sets of one fabric, in its directory ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._sets: dict[str, SetOnDisk] = {}
        self._published: PublishedSet | None = None

    def current(self) -> SetOnDisk | None:
        """The current set, which may be damaged; None without one. Raises: OSError."""
        link = self._home / "current"
        return self._read(fileset.current_set(self._home).name) if link.is_symlink() else None

    def previous(self) -> str | None:
        """The name of the set that was current before the current one; None if it is gone."""
        current = fileset.current_set(self._home)
        others = [path for path in self._home.glob("gen-*") if path != current]
        others = [path for path in others if path.stat().st_mtime_ns < current.stat().st_mtime_ns]
        return max(others, key=lambda path: path.stat().st_mtime_ns).name if others else None

    def others(self) -> Iterator[SetOnDisk]:
        """The undamaged sets that are not current, by descending name. Raises: OSError."""
        current = fileset.current_set(self._home).name
        for directory in sorted(self._home.glob("gen-*"), reverse=True):
            if directory.name != current:
                on_disk = self._read(directory.name)
                if on_disk.damage is None:
                    yield on_disk

    def known_tables(self) -> Mapping[bytes, parse.SwitchTable]:
        """All tables in memory by digest; see ``parse.switch_tables``."""
        published = self._published.tables if self._published is not None else ()
        tables = (table for on_disk in self._sets.values() for table in on_disk.tables)
        return {table.digest: table for table in (*published, *tables)}

    def remember(self, published: PublishedSet) -> None:
        """Keep a set that this process just wrote, so that its tables are not read again."""
        self._published = published

    def _read(self, name: str) -> SetOnDisk:
        directory = self._home / name
        signature = fileset.signature(directory)
        known = self._sets.get(name)
        if known is not None and known.signature == signature:
            return known
        self._sets = {name: s for name, s in self._sets.items() if (self._home / name).exists()}
        try:
            manifest = fileset.read_manifest(directory)
            damaged = fileset.damaged(directory, manifest, unread=(render.TABLES,))
            tables: tuple[parse.SwitchTable, ...] = ()
            try:
                tables = self._tables_in(directory, manifest)
            except InvalidFile:  # the file of a set can be parsed
                damaged = sorted({*damaged, render.TABLES})
            if damaged:
                damage = f"files differ from the manifest: {listed(damaged)}"
                on_disk = SetOnDisk(name, signature, damage=damage)
            else:
                on_disk = SetOnDisk(
                    name,
                    signature,
                    manifest.generation,
                    manifest.stamp,
                    tables,
                    cables=_cables(directory, manifest),
                    partitions=parse.partitions(
                        (directory / "partitions.conf").read_text(), "partitions.conf"
                    ),
                    lids=_lids(directory, tables),
                )
        except (OSError, InvalidFile) as error:
            on_disk = SetOnDisk(name, signature, damage=str(error))
        if on_disk.damage is not None:
            LOG.error("the set in %s is damaged: %s", directory, on_disk.damage)
        self._sets[name] = on_disk
        return on_disk

    def _tables_in(
        self, directory: Path, manifest: fileset.Manifest
    ) -> tuple[parse.SwitchTable, ...]:
        """The tables of a set; their file is read unless this process wrote it and nobody since.

        Raises:
            InvalidFile, OSError: as ``fileset.checked_tables``.
        """
        own = self._published
        if (
            own is not None
            and own.directory.name == directory.name
            and own.manifest.files[render.TABLES] == manifest.files[render.TABLES]
            and own.signature == fileset.signature(own.directory, render.TABLES)
        ):
            return own.tables
        return fileset.checked_tables(directory, manifest, self.known_tables())


def _lids(directory: Path, tables: Iterable[parse.SwitchTable]) -> Mapping[int, int]:
    if not any(table.bare for table in tables):
        return {}
    return parse.guid2lid((directory / "guid2lid").read_text(), "guid2lid")


def _cables(directory: Path, manifest: fileset.Manifest) -> tuple[CableEnds, ...]:
    """The recorded cables; empty in a set of a release that did not write them."""
    if "cabling" not in manifest.files:
        return ()
    return parse.cabling((directory / "cabling").read_text(), "cabling")
