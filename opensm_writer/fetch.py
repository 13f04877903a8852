# SPDX-License-Identifier: Apache-2.0

"""Fetches a set of files from the service and makes it current, or changes nothing."""

import hashlib
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Protocol

from laas_service.domain.errors import InvalidFile
from laas_service.domain.inventory import CableEnds
from opensm_writer import assemble, fileset, parse, render, validate
from opensm_writer.desired import SAFE_NAME
from opensm_writer.fileset import MANIFEST, Manifest
from opensm_writer.render import TABLES

LOG = logging.getLogger(__name__)


class SetSource(Protocol):
    """Where the desired set is fetched from."""

    def described(self) -> Mapping[str, Any]:
        """The set's ``manifest``, the ``sizes`` of its files in bytes, and ``parts``.

        ``parts[TABLES]`` lists the size and sha256 (hex) of the table of each switch.
        """

    def contents(self, generation: int, name: str, start: int, size: int) -> Iterable[bytes]:
        """``size`` bytes of a file from ``start``. Raises: NotFound if the set was replaced."""


@dataclass(frozen=True, slots=True)
class _LocalTable:
    """Where the current set has a table, which may have port GUIDs that the source's has not."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class _TableSpan:
    """The bytes of one table in the source's ``lfts``."""

    start: int
    size: int
    local: _LocalTable | None  # None if the current set has it not


WrongLids = Callable[[Mapping[int, int], tuple[CableEnds, ...]], str | None]
"""Why tables without port GUIDs may not be loaded: from the pinned LIDs by GUID, and the cables."""


def never_read(pinned: Mapping[int, int], cables: tuple[CableEnds, ...]) -> str:
    """For machines on which nobody reads LIDs."""
    return "the LIDs of the ports are not read"


@dataclass(frozen=True, slots=True)
class _Description:
    """A set before its files are fetched."""

    manifest: Manifest
    sizes: Mapping[str, int]  # bytes, by file
    tables: Sequence[tuple[int, bytes]]  # size and sha256 of the tables in ``lfts``


def fetch_set(
    source: SetSource,
    root: Path,
    fabric: str,
    keep: int,
    known: Mapping[bytes, parse.SwitchTable] | None = None,
    switches: Collection[int] = (),
    wrong_lids: WrongLids = never_read,
    enforcement: str = "file",
) -> Path:
    """Make the source's set current if it passes all checks; the directory of the set.

    Does nothing if the set is current and undamaged. Only files that the current set lacks are
    fetched, and of ``lfts`` only such tables. If ``wrong_lids`` gives a reason, a set without port
    GUIDs becomes current with them (``assemble``). ``keep`` is described at
    ``fileset.make_current``; ``known``, ``switches`` and ``enforcement`` are described at
    ``validate.check``.

    Raises:
        InvalidFile, Conflict: the set failed a check of ``validate`` or
            ``fileset.check_follows``.
        OSError: the directory cannot be written.
        LaasError: raised by the source.
    """
    if not SAFE_NAME.fullmatch(fabric):
        raise InvalidFile(MANIFEST, 1, f"{fabric!r} cannot be the name of a directory")
    home = root / fabric
    with fileset.changing(home):
        description = _checked_description(source.described(), fabric)
        manifest, link = description.manifest, fileset.current_set(home)
        current = fileset.readable(root, fabric)
        if current is not None and fileset.is_current(home, current, fileset.text(manifest)):
            return link.resolve()
        fileset.check_not_older(current, manifest.generation, manifest.stamp, home)
        bare = manifest.form == fileset.BARE
        local = _local_tables(link / TABLES, known, bare=bare)
        digests = (digest for _, digest in local)
        if current is not None and assemble.is_named(home, current, manifest, digests):
            return link.resolve()
        draft = fileset.draft(home)
        try:
            _fetch_files(source, description, draft, link, local)
            validate.check(draft, manifest, home / "current", known, switches, enforcement)
            fileset.check_follows(current, manifest, home)
            if bare and (reason := _reason_to_name(draft, manifest, wrong_lids)) is not None:
                LOG.warning("the tables of %s get port GUIDs: %s", fabric, reason)
                manifest = assemble.name_ports(draft, draft / TABLES, manifest, known or {})
            fileset.write(draft / MANIFEST, [fileset.text(manifest)])
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return fileset.make_current(home, draft, manifest.generation, keep)


def _reason_to_name(draft: Path, manifest: Manifest, wrong_lids: WrongLids) -> str | None:
    """Why OpenSM needs the port GUIDs; None if it does not."""
    if "cabling" not in manifest.files:
        return "the set does not tell the cables"
    cables = parse.cabling((draft / "cabling").read_text(), "cabling")
    return wrong_lids(parse.guid2lid((draft / "guid2lid").read_text(), "guid2lid"), cables)


def _checked_description(document: Mapping[str, Any], fabric: str) -> _Description:
    try:
        manifest = validate.manifest(document["manifest"], fabric)
        sizes, tables = document["sizes"], document["parts"].get(TABLES, [])
        numbers = [*sizes.values(), *(size for size, _ in tables)]
        if any(type(size) is not int or size < 0 for size in numbers):
            raise InvalidFile(MANIFEST, 1, "a size is not a number of bytes")
        if sizes.keys() != manifest.files.keys():
            raise InvalidFile(MANIFEST, 1, "the sizes are not those of its files")
        if sum(size for size, _ in tables) != sizes[TABLES]:
            raise InvalidFile(TABLES, 1, "the sizes of its parts do not add up to its size")
        digests = [(size, bytes.fromhex(digest)) for size, digest in tables]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFile(MANIFEST, 1, f"the description of the set is wrong: {error!r}") from error
    return _Description(manifest, sizes, digests)


def _fetch_files(
    source: SetSource,
    description: _Description,
    draft: Path,
    current: Path,
    local: Mapping[tuple[int, bytes], _LocalTable],
) -> None:
    """Write the files of a set; checks the size of each, and the sha256 of all but bare tables.

    A file of ``current`` that has the wanted sha256 is copied.
    """
    generation = description.manifest.generation
    for name, digest in sorted(description.manifest.files.items()):
        size = description.sizes[name]
        pieces: Iterable[bytes]
        if name == TABLES:
            pieces = _tables(source, generation, _table_spans(description, local), current)
        elif (current / name).is_file() and fileset.digest_of(current / name) == digest:
            pieces = parse.file_pieces(current / name)
        else:
            pieces = source.contents(generation, name, 0, size)
        pieces = _of_size(pieces, name, size)
        if name == TABLES and description.manifest.form == fileset.BARE:
            fileset.write_unhashed(draft / name, pieces)
        elif fileset.write(draft / name, pieces) != digest:
            raise InvalidFile(name, 1, "its sha256 is not the one in the manifest")


def _table_spans(
    description: _Description, local: Mapping[tuple[int, bytes], _LocalTable]
) -> list[_TableSpan]:
    starts = accumulate((size for size, _ in description.tables), initial=0)
    return [
        _TableSpan(start, size, local.get((size, digest)))
        for start, (size, digest) in zip(starts, description.tables, strict=False)
    ]


def _local_tables(
    path: Path, known: Mapping[bytes, parse.SwitchTable] | None, *, bare: bool
) -> dict[tuple[int, bytes], _LocalTable]:
    """Size and sha256 of each table in a file -> where it is; empty if the file is damaged.

    ``bare``: size and sha256 are those without port GUIDs.
    """
    tables, start = {}, 0
    try:
        parser = parse.TableParser(path.name, known)
        for block in parse.blocks(parse.file_pieces(path)):
            table = parser.table(block)
            size, digest = table.size, table.digest
            if bare and not table.bare:
                text = render.without_guids(block)
                size, digest = len(text), hashlib.sha256(text).digest()
            tables[size, digest] = _LocalTable(start, table.size)
            start += table.size
    except (OSError, InvalidFile):
        return {}
    return tables


def _tables(
    source: SetSource, generation: int, spans: Iterable[_TableSpan], current: Path
) -> Iterator[bytes]:
    """The bytes of ``lfts``; fetches neighbouring tables that are not local in one request."""
    for is_missing, group in groupby(spans, key=lambda span: span.local is None):
        neighbours = list(group)
        if is_missing:
            size = sum(span.size for span in neighbours)
            yield from source.contents(generation, TABLES, neighbours[0].start, size)
            continue
        with (current / TABLES).open("rb") as file:
            for span in neighbours:
                if span.local is not None:
                    file.seek(span.local.start)
                    text = file.read(span.local.size)
                    yield text if span.local.size == span.size else render.without_guids(text)


def _of_size(pieces: Iterable[bytes], name: str, size: int) -> Iterator[bytes]:
    """The pieces; raises ``InvalidFile`` at the first byte too many, or if some are missing."""
    left = size
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise InvalidFile(name, 1, f"it is longer than {size} bytes")
        yield piece
    if left:
        raise InvalidFile(name, 1, f"it ends {left} bytes before its {size}")
