# SPDX-License-Identifier: Apache-2.0

"""Fetches a set of files from the service and makes it current, or changes nothing."""

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Protocol

from laas_service.domain.errors import InvalidFile
from opensm_writer import fileset, parse, validate
from opensm_writer.desired import SAFE_NAME
from opensm_writer.fileset import MANIFEST, Manifest


class Source(Protocol):
    """Where the desired set is fetched from."""

    def described(self) -> Mapping[str, Any]:
        """The set's ``manifest``, the ``sizes`` of its files in bytes, and ``parts``.

        ``parts["lfts"]`` lists the size and sha256 (hex) of the table of each switch.
        """

    def contents(self, generation: int, name: str, start: int, size: int) -> Iterable[bytes]:
        """``size`` bytes of a file from ``start``. Raises: NotFound if the set was replaced."""


@dataclass(frozen=True, slots=True)
class TableSpan:
    """The bytes of one table in ``lfts``."""

    start: int
    size: int
    local: int | None = None  # where the current set has the same bytes, None if it has not


@dataclass(frozen=True, slots=True)
class _Description:
    """A set before its files are fetched."""

    manifest: Manifest
    sizes: Mapping[str, int]  # bytes, by file
    tables: Sequence[tuple[int, bytes]]  # size and sha256 of the tables in ``lfts``


def fetch_set(
    source: Source,
    root: Path,
    fabric: str,
    keep: int,
    known: Mapping[bytes, parse.SwitchTable] | None = None,
    switches: Collection[int] = (),
) -> Path:
    """Make the source's set current if it passes all checks; the directory of the set.

    Does nothing if the set is current and undamaged. Of ``lfts``, only tables that the current
    set lacks are fetched. ``keep`` is described at ``fileset.make_current``; ``known`` and
    ``switches`` are described at ``validate.check``.

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
        draft = fileset.draft(home)
        try:
            _fetch_files(source, description, draft, link, known)
            validate.check(draft, manifest, home / "current", known, switches)
            fileset.check_follows(current, manifest, home)
            fileset.write(draft / MANIFEST, [fileset.text(manifest)])
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return fileset.make_current(home, draft, manifest.generation, keep)


def _checked_description(document: Mapping[str, Any], fabric: str) -> _Description:
    try:
        manifest = validate.manifest(document["manifest"], fabric)
        sizes, tables = document["sizes"], document["parts"].get("lfts", [])
        numbers = [*sizes.values(), *(size for size, _ in tables)]
        if any(type(size) is not int or size < 0 for size in numbers):
            raise InvalidFile(MANIFEST, 1, "a size is not a number of bytes")
        if sizes.keys() != manifest.files.keys():
            raise InvalidFile(MANIFEST, 1, "the sizes are not those of its files")
        if sum(size for size, _ in tables) != sizes["lfts"]:
            raise InvalidFile("lfts", 1, "the sizes of its parts do not add up to its size")
        digests = [(size, bytes.fromhex(digest)) for size, digest in tables]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFile(MANIFEST, 1, f"the description of the set is wrong: {error!r}") from error
    return _Description(manifest, sizes, digests)


def _fetch_files(
    source: Source,
    description: _Description,
    draft: Path,
    current: Path,
    known: Mapping[bytes, parse.SwitchTable] | None,
) -> None:
    """Write the files of a set; checks the size and sha256 of each."""
    generation = description.manifest.generation
    for name, digest in sorted(description.manifest.files.items()):
        size = description.sizes[name]
        pieces: Iterable[bytes]
        if name == "lfts":
            spans = _table_spans(description, current, known)
            pieces = _tables(source, generation, spans, current)
        else:
            pieces = source.contents(generation, name, 0, size)
        if fileset.write(draft / name, _of_size(pieces, name, size)) != digest:
            raise InvalidFile(name, 1, "its sha256 is not the one in the manifest")


def _table_spans(
    description: _Description, current: Path, known: Mapping[bytes, parse.SwitchTable] | None
) -> list[TableSpan]:
    local = _local_tables(current / "lfts", known)
    starts = accumulate((size for size, _ in description.tables), initial=0)
    return [
        TableSpan(start, size, local.get((size, digest)))
        for start, (size, digest) in zip(starts, description.tables, strict=False)
    ]


def _local_tables(
    path: Path, known: Mapping[bytes, parse.SwitchTable] | None
) -> dict[tuple[int, bytes], int]:
    """Size and sha256 of each table in a file -> where it starts; empty if it is damaged."""
    starts, start = {}, 0
    try:
        for table in parse.switch_tables(parse.file_pieces(path), path.name, known):
            starts[table.size, table.digest] = start
            start += table.size
    except (OSError, InvalidFile):
        return {}
    return starts


def _tables(
    source: Source, generation: int, spans: Iterable[TableSpan], current: Path
) -> Iterator[bytes]:
    """The bytes of ``lfts``; fetches neighbouring tables that are not local in one request."""
    for is_missing, group in groupby(spans, key=lambda span: span.local is None):
        neighbours = list(group)
        if is_missing:
            size = sum(span.size for span in neighbours)
            yield from source.contents(generation, "lfts", neighbours[0].start, size)
            continue
        with (current / "lfts").open("rb") as file:
            for span in neighbours:
                file.seek(span.local or 0)
                yield file.read(span.size)


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
