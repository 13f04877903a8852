# SPDX-License-Identifier: Apache-2.0

"""Sets of files on disk: one directory a generation, switched atomically by a link.

    <root>/<fabric>/gen-41/...   as published before
    <root>/<fabric>/gen-42/...   complete, synced, checked
    <root>/<fabric>/current      -> gen-42

OpenSM's configuration names the files through ``current``, so a sweep reads one
generation or the next and never a mixture of halves of a file. Whoever makes a set,
by rendering or by receiving it, does so in ``draft(home)`` under ``changing(home)``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laas_service.domain.errors import Conflict, InvalidFile

LOG = logging.getLogger(__name__)

MANIFEST = "manifest.json"

INCLUDED = "included"
OMITTED = "omitted: "
"""The values of a manifest's ``chains``; a reason follows the second."""

_CHAINS = re.compile(rf"{INCLUDED}|{OMITTED}[A-Za-z0-9 .,;()-]{{1,200}}")


def are_chains(text: object) -> bool:
    """Whether a manifest's ``chains`` may have this value: one short, printable line."""
    return isinstance(text, str) and bool(_CHAINS.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``manifest.json`` says: a set of files and its generation.

    ``files`` are the sha256 of the set's files by name. ``chains`` is ``INCLUDED``, or
    ``OMITTED`` and a reason for people, which no file repeats. ``tenants`` are the sha256
    of ``depends`` and ``entries`` by allocation id.
    """

    fabric: str
    generation: int
    files: Mapping[str, str]
    chains: str
    tenants: Mapping[str, Mapping[str, str]]


def is_current(link: Path, manifest: Manifest, text: str) -> bool:
    """Whether the current set is whole, and is the one of this text."""
    return (link / MANIFEST).read_text() == text and not damaged(link, manifest)


def readable(root: Path, fabric: str) -> Manifest | None:
    """As ``current``; None also where there is one that cannot be read."""
    try:
        return current(root, fabric)
    except InvalidFile as error:
        LOG.warning("fabric %s: publishing anew: %s", fabric, error)
        return None


def current(root: Path, fabric: str) -> Manifest | None:
    """The published set's manifest; None if there is none yet.

    Raises:
        InvalidFile: there is one that cannot be read.
    """
    link = root / fabric / "current"
    return read_manifest(link) if link.exists() else None


def published_generation(root: Path, fabric: str) -> int:
    """The highest generation of any set that is there, current or not; 0 if there is none."""
    numbers = (
        path.name.removeprefix("gen-").split(".")[0] for path in root.glob(f"{fabric}/gen-*")
    )
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def read_manifest(directory: Path) -> Manifest:
    """The manifest in a directory. Raises: InvalidFile."""
    path = directory / MANIFEST
    try:
        return manifest(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(str(path), 1, f"this is no manifest: {error}") from error


def manifest(document: Mapping[str, Any]) -> Manifest:
    """Raises: ValueError, KeyError, TypeError, AttributeError on anything else."""
    return Manifest(
        str(document["fabric"]),
        int(document["generation"]),
        dict(document["files"]),
        str(document["chains"]),
        dict(document["tenants"]),
    )


def text(manifest: Manifest) -> str:
    """The list that makes files a set, as it is written: equal manifests give equal bytes."""
    document: dict[str, object] = {
        "fabric": manifest.fabric,
        "generation": manifest.generation,
        "files": dict(sorted(manifest.files.items())),
        "chains": manifest.chains,
        "tenants": {
            name: dict(sorted(prints.items())) for name, prints in sorted(manifest.tenants.items())
        },
    }
    return json.dumps(document, indent=1) + "\n"


def damaged(directory: Path, manifest: Manifest) -> list[str]:
    """Files of a set that are missing or not what the manifest says."""
    return [
        name
        for name, digest in manifest.files.items()
        if not (directory / name).is_file() or digest_of(directory / name) != digest
    ]


Signature = tuple[tuple[str, int, int, int, int], ...]


def signature(directory: Path) -> Signature:
    """What changes when somebody touches a file of a set; no file is read for it."""
    found = []
    for path in sorted(directory.rglob("*")):
        with suppress(OSError):
            stat = path.lstat()
            times = stat.st_mtime_ns, stat.st_ctime_ns
            found.append((str(path), stat.st_ino, stat.st_size, *times))
    return tuple(found)


def check_follows(before: Manifest | None, after: Manifest, home: Path) -> None:
    """Return if a set may follow the current one.

    Raises:
        Conflict: it is older, or the entries of a tenant that did not change would change.
    """
    check_not_older(before, after.generation, home)
    for name in disturbed(before.tenants, after.tenants) if before is not None else ():
        raise Conflict(  # while OpenSM writes tables, old and new entries mix
            f"the entries of tenant {name} would change although nothing it depends on did; "
            "after an upgrade that changes routing, remove the 'current' link to publish anew"
        )


def check_not_older(before: Manifest | None, generation: int, home: Path) -> None:
    """As ``check_follows``, of the generation alone."""
    if before is not None and before.generation > generation:
        raise Conflict(
            f"generation {before.generation} of {before.fabric} is published, "
            f"{generation} is older; remove {home / 'current'} to go back"
        )


def disturbed(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Tenants whose entries would change although nothing they depend on does."""
    both = sorted(before.keys() & after.keys())
    same = [name for name in both if before[name]["depends"] == after[name]["depends"]]
    return [name for name in same if before[name]["entries"] != after[name]["entries"]]


@contextmanager
def changing(home: Path) -> Iterator[None]:
    """One publisher at a time, also among processes; the lock goes with its holder."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_current(home: Path, made: Path, generation: int, keep: int) -> Path:
    """The set in the directory ``made`` becomes the current one; where it is then.

    Its files are complete, checked and synced. ``keep`` older sets stay. Killed at any
    instant, either the set before or this one is current.
    """
    for directory in (made, *(path for path in made.rglob("*") if path.is_dir())):
        sync(directory)
    final = _free_name(home, generation)
    made.rename(final)
    replace_link(home / "current", final.name)
    _prune(home, keep)
    return final


def draft(home: Path) -> Path:
    """An empty place for the files of a set that is not current yet."""
    made = home / ".draft"
    if made.is_symlink() or made.is_file():
        made.unlink()
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    return made


def write(path: Path, pieces: Iterable[str | bytes]) -> str:
    """Write a file, durably; its sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces:
            data = piece.encode() if isinstance(piece, str) else piece
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _free_name(home: Path, generation: int) -> Path:
    """``gen-N``; where that exists (other settings, or damage) ``gen-N.1`` and so on."""
    names = [f"gen-{generation}", *(f"gen-{generation}.{n}" for n in range(1, 1000))]
    return next(home / name for name in names if not (home / name).exists())


def replace_link(link: Path, target: str) -> None:
    """Point a symbolic link elsewhere in one step, durably."""
    draft = link.with_name(f".{link.name}.new")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)
    sync(link.parent)


def replace_file(path: Path, text: str) -> None:
    """Give a file another content in one step, durably; does nothing if it has it."""
    if path.is_file() and path.read_text() == text:
        return
    draft = path.with_name(f".{path.name}.new")
    write(draft, [text])
    draft.replace(path)
    sync(path.parent)


def _prune(home: Path, keep: int) -> None:
    """Remove all but the current set and the ``keep`` youngest others."""
    now = (home / "current").resolve()
    others = [path for path in home.glob("gen-*") if path.resolve() != now]
    for path in sorted(others, key=lambda p: p.stat().st_mtime_ns, reverse=True)[keep:]:
        shutil.rmtree(path)
