# SPDX-License-Identifier: Apache-2.0

"""Sets of files on disk: one directory for each generation, switched atomically by a link.

    <root>/<fabric>/gen-41/...   published earlier
    <root>/<fabric>/gen-42/...   complete, synced and checked
    <root>/<fabric>/current      -> gen-42

OpenSM's configuration names the files through ``current``, so that a sweep never reads part of a
file. ``publish`` and ``fetch`` write a new set into ``draft(home)`` under ``changing(home)``.
"""

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from laas_service.domain.errors import Conflict, InvalidFile
from laas_service.messages import SET_FORM
from opensm_writer import parse
from opensm_writer.render import TABLES

LOG = logging.getLogger(__name__)

MANIFEST = "manifest.json"

REWRITING = ".rewriting"
"""The directory that ``current`` leads to while OpenSM writes keys or tables again."""

_STANDS_FOR = ".stands-for"
"""In ``REWRITING``, the file with the name of the set that is current meanwhile."""

INCLUDED = "included"
OMITTED = "omitted: "
"""Values of a manifest's ``chains``; a reason follows the second one."""

CHAINS = re.compile(rf"{INCLUDED}|{OMITTED}[A-Za-z0-9 .,;()-]{{1,200}}")
"""The form of these values: one short, printable line."""


FORM = SET_FORM
"""The newest form."""

NAMED = 5
"""The form of a set whose tables have port GUIDs: right for OpenSM whatever LIDs the ports have."""

BARE = 6
"""The form of a set whose tables have no port GUIDs: right for OpenSM if the LIDs are as pinned.

Its sha256 of ``lfts`` is ``digest_of_tables``, which needs only those tables that have changed.
"""

FORMS = {
    4: ("fabric", "generation", "files", "chains", "tenants"),
    5: ("form", "fabric", "generation", "stamp", "files", "chains", "tenants"),
    6: ("form", "fabric", "generation", "stamp", "files", "chains", "tenants"),
}
"""The keys of a manifest, by form. Up to form 4 a manifest did not name its form."""

SYNCED = 4 << 20
"""Bytes of a file after which ``write`` syncs it.

A commit of SQLite on the same disk waits until the disk has what was written before. It waits for
a part of a file of tables then, and not for all of its some hundred MB.
"""

STAMP = re.compile(r"[0-9a-f]{16}")
NO_STAMP = "0" * 16
"""Stands in a manifest for the stamp of a generation that has none."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of ``manifest.json``: the files of a set and its generation.

    ``stamp`` tells the generation from one of the same number that the database made before it
    went back; empty if a release without stamps made the generation or the set.
    """

    fabric: str
    generation: int
    files: Mapping[str, str]  # name -> sha256
    chains: str  # INCLUDED, or OMITTED and a reason for people, which no other file repeats
    tenants: Mapping[str, Mapping[str, str]]  # id -> sha256 of "depends" and of "entries"
    stamp: str = ""
    form: int = FORM


def is_current(home: Path, manifest: Manifest, text: str) -> bool:
    """Whether the current set has this manifest and is undamaged."""
    directory = current_set(home)
    return (directory / MANIFEST).read_text() == text and not damaged(directory, manifest)


def current_set(home: Path) -> Path:
    """The directory of the current set; ``home / "current"`` without one."""
    link = home / "current"
    if not link.is_symlink():
        return link
    name = link.readlink().name
    if name == REWRITING:
        with suppress(OSError):
            name = (link / _STANDS_FOR).read_text()
    return home / name


def begin_rewriting(home: Path, files: Mapping[str, Iterable[str | bytes]]) -> None:
    """Let ``current`` lead to a copy of the current set in which these files have other contents.

    The set stays current for everybody but OpenSM. The caller holds ``changing``.
    """
    directory, copy = current_set(home), draft(home, REWRITING)
    for path in directory.rglob("*"):
        target = copy / path.relative_to(directory)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif str(path.relative_to(directory)) not in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
    for name, pieces in {**files, _STANDS_FOR: [directory.name]}.items():
        write(copy / name, pieces)
    replace_link(home / "current", REWRITING)


def end_rewriting(home: Path) -> bool:
    """Let ``current`` lead to the current set again; whether it did not before."""
    with changing(home):
        directory = current_set(home)
        if (home / "current").resolve() in (directory, home / "current"):
            return False
        replace_link(home / "current", directory.name)
        shutil.rmtree(home / REWRITING, ignore_errors=True)
    return True


def readable(root: Path, fabric: str) -> Manifest | None:
    """As ``current``, but None also if the manifest cannot be read."""
    try:
        return current(root, fabric)
    except InvalidFile as error:
        LOG.warning("fabric %s: the current set is ignored: %s", fabric, error)
        return None


def current(root: Path, fabric: str) -> Manifest | None:
    """The manifest of the current set; None without a current set.

    Raises:
        InvalidFile: the manifest cannot be read.
    """
    link = root / fabric / "current"
    return read_manifest(link) if link.exists() else None


def published_generation(root: Path, fabric: str) -> int:
    """The highest generation of all sets on disk; 0 without sets."""
    numbers = (
        path.name.removeprefix("gen-").split(".")[0] for path in root.glob(f"{fabric}/gen-*")
    )
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def read_manifest(directory: Path) -> Manifest:
    """The manifest in a directory. Raises: InvalidFile."""
    path = directory / MANIFEST
    try:
        document = json.loads(path.read_text())
        return Manifest(
            str(document["fabric"]),
            int(document["generation"]),
            dict(document["files"]),
            str(document["chains"]),
            dict(document["tenants"]),
            known_stamp(str(document.get("stamp", ""))),
            int(document.get("form", 4)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidFile(str(path), 1, f"this is not a manifest: {error}") from error


def text(manifest: Manifest) -> str:
    """The text of ``manifest.json``; equal manifests give equal bytes."""
    document: dict[str, object] = {
        "form": manifest.form,
        "fabric": manifest.fabric,
        "generation": manifest.generation,
        "stamp": manifest.stamp or NO_STAMP,
        "files": dict(sorted(manifest.files.items())),
        "chains": manifest.chains,
        "tenants": {
            name: dict(sorted(prints.items())) for name, prints in sorted(manifest.tenants.items())
        },
    }
    return json.dumps(in_form(document, manifest.form), indent=1) + "\n"


def known_stamp(stamp: str) -> str:
    """A stamp in a manifest; empty for ``NO_STAMP``."""
    return "" if stamp == NO_STAMP else stamp


def in_form(document: Mapping[str, object], form: int) -> dict[str, object]:
    """The document of a manifest as releases of a form have it, at most its own."""
    keys = FORMS[max(known for known in FORMS if known <= max(form, min(FORMS)))]
    of_form = {key: document[key] for key in keys if key in document}
    return of_form | ({"form": form} if "form" in of_form and form in FORMS else {})


def damaged(directory: Path, manifest: Manifest, unread: Collection[str] = ()) -> list[str]:
    """Names of files that are missing, or whose sha256 differs from the manifest.

    The files ``unread`` need only exist.
    """

    def digest(name: str) -> str:
        bare = name == TABLES and manifest.form == BARE
        return (digest_of_table_file if bare else digest_of)(directory / name)

    return [
        name
        for name, expected in manifest.files.items()
        if not (directory / name).is_file() or (name not in unread and digest(name) != expected)
    ]


def checked_tables(
    directory: Path, manifest: Manifest, known: Mapping[bytes, parse.SwitchTable]
) -> tuple[parse.SwitchTable, ...]:
    """The tables of a set in the order of their file, which is read once; see ``damaged``.

    ``known`` is described at ``parse.switch_tables``.

    Raises:
        InvalidFile: the sha256 of the file differs from the manifest, or the file is not as
            ``parse.switch_tables`` accepts it.
        OSError: the file cannot be read.
    """
    bare, whole = manifest.form == BARE, hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        for piece in parse.file_pieces(directory / TABLES):
            if not bare:
                whole.update(piece)
            yield piece

    tables = tuple(parse.switch_tables(pieces(), TABLES, known))
    digest = digest_of_tables(table.digest for table in tables) if bare else whole.hexdigest()
    if digest != manifest.files[TABLES]:
        raise InvalidFile(TABLES, 1, "its sha256 is not the one in the manifest")
    return tables


Signature = tuple[tuple[str, int, int, int, int], ...]
"""Path, inode, size, and times of the last change (ns) of each file of a set."""


def signature(directory: Path, name: str = "*") -> Signature:
    """Differs after any change to a file of a set, or to this one; reads metadata only."""
    entries = []
    for path in sorted(directory.rglob(name)):
        with suppress(OSError):
            stat = path.lstat()
            times = stat.st_mtime_ns, stat.st_ctime_ns
            entries.append((str(path), stat.st_ino, stat.st_size, *times))
    return tuple(entries)


def check_follows(current: Manifest | None, new: Manifest, home: Path) -> None:
    """Check that a new set may replace the current one.

    Raises:
        Conflict: the new set is older, or entries of a tenant would change although nothing
            that they depend on did.
    """
    check_not_older(current, new.generation, new.stamp, home)
    if current is not None:
        check_undisturbed(current.tenants, new.tenants)


def check_undisturbed(
    current: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]
) -> None:
    """Check that no tenant is ``disturbed``. Raises: Conflict."""
    for name in disturbed(current, new):
        raise Conflict(  # while OpenSM writes tables, switches have a mixture of both sets
            f"the entries of tenant {name} would change although nothing it depends on did; "
            "after an upgrade that changes routing, remove the 'current' link to publish anew"
        )


def check_not_older(current: Manifest | None, generation: int, stamp: str, home: Path) -> None:
    """Check that a generation may replace the current one. Raises: Conflict."""
    stamps = {stamp, current.stamp} if current is not None else set()
    if current is not None and current.generation == generation and len(stamps - {""}) > 1:
        raise Conflict(
            f"another generation {generation} of {current.fabric} is published: the database went "
            "back since; the service goes forward above it"
        )
    if current is not None and current.generation > generation:
        raise Conflict(
            f"generation {current.generation} of {current.fabric} is published, "
            f"{generation} is older; remove {home / 'current'} to go back"
        )


def combined(digests: Sequence[str]) -> str:
    """The sha256 of a tenant's entries, from those of its partitions in order."""
    return (
        digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    )


def disturbed(
    current: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Tenants whose entries would change although nothing that they depend on does.

    Both are of the form of ``Manifest.tenants``.
    """
    both = sorted(current.keys() & new.keys())
    unchanged = [name for name in both if current[name]["depends"] == new[name]["depends"]]
    return [name for name in unchanged if current[name]["entries"] != new[name]["entries"]]


@contextmanager
def changing(home: Path) -> Iterator[None]:
    """Lock a fabric's sets against other threads and processes; a lock ends with its process."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_current(home: Path, draft: Path, generation: int, keep: int) -> Path:
    """Make the set in ``draft`` the current one; its directory from now on.

    Its files are complete, checked and synced. ``keep`` older sets stay. If the process is
    killed at any moment, either the old set or this one is current and complete.
    """
    for directory in (draft, *(path for path in draft.rglob("*") if path.is_dir())):
        sync(directory)
    final = _free_name(home, generation)
    draft.rename(final)
    replace_link(home / "current", final.name)
    _prune(home, keep)
    return final


def draft(home: Path, name: str = ".draft") -> Path:
    """An empty directory for the files of the next set."""
    directory = home / name
    if directory.is_symlink() or directory.is_file():
        directory.unlink()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def write(path: Path, pieces: Iterable[str | bytes]) -> str:
    """Write and sync a file; its sha256."""
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for piece in pieces:
            data = piece.encode() if isinstance(piece, str) else piece
            digest.update(data)
            yield data

    write_unhashed(path, hashed())
    return digest.hexdigest()


def write_unhashed(path: Path, pieces: Iterable[bytes]) -> None:
    """Write and sync a file; a long one a part at a time (``SYNCED``)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        unsynced = 0
        for piece in pieces:
            file.write(piece)
            unsynced += len(piece)
            if unsynced >= SYNCED:
                file.flush()
                os.fdatasync(file.fileno())
                unsynced = 0
        file.flush()
        os.fsync(file.fileno())


def digest_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_tables(digests: Iterable[bytes]) -> str:
    """The sha256 of the sha256 of each table of a file, in its order."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def digest_of_table_file(path: Path) -> str:
    """``digest_of_tables`` of an ``lfts`` file."""
    tables = parse.blocks(parse.file_pieces(path))
    return digest_of_tables(hashlib.sha256(table).digest() for table in tables)


def sync(directory: Path) -> None:
    """Sync the names in a directory to the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _free_name(home: Path, generation: int) -> Path:
    """``gen-N``, or ``gen-N.1`` and so on if it exists (other settings, or damage)."""
    names = [f"gen-{generation}", *(f"gen-{generation}.{n}" for n in range(1, 1000))]
    return next(home / name for name in names if not (home / name).exists())


def replace_link(link: Path, target: str) -> None:
    """Point a symbolic link to another target, in one step, and sync it."""
    draft = link.with_name(f".{link.name}.new")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)
    sync(link.parent)


def replace_file(path: Path, text: str) -> None:
    """Replace the contents of a file in one step, and sync it; does nothing if they are equal."""
    if path.is_file() and path.read_text() == text:
        return
    draft = path.with_name(f".{path.name}.new")
    write(draft, [text])
    draft.replace(path)
    sync(path.parent)


def _prune(home: Path, keep: int) -> None:
    """Remove all sets except the current one and the ``keep`` newest others."""
    current_set = (home / "current").resolve()
    others = [path for path in home.glob("gen-*") if path.resolve() != current_set]
    for path in sorted(others, key=lambda p: p.stat().st_mtime_ns, reverse=True)[keep:]:
        shutil.rmtree(path)
