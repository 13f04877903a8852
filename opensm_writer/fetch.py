# SPDX-License-Identifier: Apache-2.0

"""Takes a set of files from elsewhere and makes it current, or leaves all as it was."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from laas_service.domain.errors import InvalidFile
from opensm_writer import fileset, parse, validate
from opensm_writer.desired import SAFE_NAME
from opensm_writer.fileset import MANIFEST, Manifest

CHUNK = 1 << 20


class Source(Protocol):
    """Where the wanted set is."""

    def described(self) -> Mapping[str, Any]:
        """Its ``manifest``, the ``sizes`` of its files, and of ``lfts`` the ``parts``, one a
        switch: size and sha256."""

    def contents(self, generation: int, name: str, start: int, size: int) -> Iterable[bytes]:
        """Some bytes of a file. ``NotFound`` if the set has been replaced by another."""


@dataclass(frozen=True, slots=True)
class Part:
    """A switch's table in ``lfts``; ``kept`` is where our own file has the same bytes."""

    start: int
    size: int
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    manifest: Manifest
    sizes: Mapping[str, int]
    parts: Sequence[tuple[int, bytes]]


def receive(
    source: Source,
    root: Path,
    fabric: str,
    keep: int,
    known: Mapping[bytes, parse.SwitchTable] | None = None,
    shown: Collection[int] = (),
) -> Path:
    """Make the source's set current, if it is fit for it; where it is then.

    Does nothing if it is current already, and undamaged. Of ``lfts`` only the tables are
    fetched that the current set lacks. ``keep``, ``known`` and ``shown`` are described at
    ``fileset.make_current`` and ``validate.check``.

    Raises:
        InvalidFile, Conflict: it is not fit: see ``validate``, ``fileset.check_follows``.
        OSError: the directory cannot be written.
        LaasError: whatever the source raises.
    """
    if not SAFE_NAME.fullmatch(fabric):
        raise InvalidFile(MANIFEST, 1, f"{fabric!r} cannot be the name of a directory")
    home = root / fabric
    with fileset.changing(home):
        wanted = _wanted(source.described(), fabric)
        manifest, current = wanted.manifest, home / "current"
        before = fileset.readable(root, fabric)
        if before is not None and fileset.is_current(current, before, fileset.text(manifest)):
            return current.resolve()
        fileset.check_not_older(before, manifest.generation, home)
        draft = fileset.draft(home)
        try:
            _fetch(source, wanted, draft, current, known)
            validate.check(draft, manifest, current, known, shown)
            fileset.check_follows(before, manifest, home)
            fileset.write(draft / MANIFEST, [fileset.text(manifest)])
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return fileset.make_current(home, draft, manifest.generation, keep)


def _wanted(document: Mapping[str, Any], fabric: str) -> _Wanted:
    try:
        return _read(document, fabric)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFile(MANIFEST, 1, f"what was described is no set: {error!r}") from error


def _read(document: Mapping[str, Any], fabric: str) -> _Wanted:
    manifest = validate.manifest(document["manifest"], fabric)
    sizes, parts = document["sizes"], document["parts"].get("lfts", [])
    numbers = [*sizes.values(), *(size for size, _ in parts)]
    if any(type(size) is not int or size < 0 for size in numbers):
        raise InvalidFile(MANIFEST, 1, "a size is no number of bytes")
    if sizes.keys() != manifest.files.keys():
        raise InvalidFile(MANIFEST, 1, "the sizes are not those of its files")
    if sum(size for size, _ in parts) != sizes["lfts"]:
        raise InvalidFile("lfts", 1, "its parts are not as long as the file")
    return _Wanted(manifest, sizes, [(size, bytes.fromhex(digest)) for size, digest in parts])


def _fetch(
    source: Source,
    wanted: _Wanted,
    draft: Path,
    current: Path,
    known: Mapping[bytes, parse.SwitchTable] | None,
) -> None:
    """Write the files of a set, each with the size and the sha256 it should have."""
    generation = wanted.manifest.generation
    for name, digest in sorted(wanted.manifest.files.items()):
        size = wanted.sizes[name]
        pieces: Iterable[bytes]
        if name == "lfts":
            pieces = _tables(source, generation, _parts(wanted, current, known), current)
        else:
            pieces = source.contents(generation, name, 0, size)
        if fileset.write(draft / name, _measured(pieces, name, size)) != digest:
            raise InvalidFile(name, 1, "its sha256 is not the one in the manifest")


def _parts(
    wanted: _Wanted, current: Path, known: Mapping[bytes, parse.SwitchTable] | None
) -> list[Part]:
    ours = _kept(current / "lfts", known)
    starts = accumulate((size for size, _ in wanted.parts), initial=0)
    return [
        Part(start, size, ours.get((size, digest)))
        for start, (size, digest) in zip(starts, wanted.parts, strict=False)
    ]


def _kept(
    path: Path, known: Mapping[bytes, parse.SwitchTable] | None
) -> dict[tuple[int, bytes], int]:
    """Where the tables of our own file are, by size and sha256; none if it is damaged."""
    found, start = {}, 0
    try:
        for table in parse.switch_tables(parse.file_pieces(path), path.name, known):
            found[table.size, table.digest] = start
            start += table.size
    except (OSError, InvalidFile):
        return {}
    return found


def _tables(
    source: Source, generation: int, parts: Iterable[Part], current: Path
) -> Iterator[bytes]:
    """The bytes of ``lfts``: neighbouring parts that we lack are asked for together."""
    missing: Part | None = None
    for part in parts:
        if part.kept is None:
            missing = replace(missing, size=missing.size + part.size) if missing else part
            continue
        if missing is not None:
            yield from source.contents(generation, "lfts", missing.start, missing.size)
            missing = None
        with (current / "lfts").open("rb") as file:
            file.seek(part.kept)
            yield file.read(part.size)
    if missing is not None:
        yield from source.contents(generation, "lfts", missing.start, missing.size)


def _measured(pieces: Iterable[bytes], name: str, size: int) -> Iterator[bytes]:
    """The pieces, if they are as long together as they should be; never more than that."""
    left = size
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise InvalidFile(name, 1, f"it is longer than {size} bytes")
        yield piece
    if left:
        raise InvalidFile(name, 1, f"it ends {left} bytes before its {size}")
