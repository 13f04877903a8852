# SPDX-License-Identifier: Apache-2.0

"""Makes OpenSM read the current set, and notes on disk which process was signalled for it."""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from laas_service.domain.errors import InvalidFile, Unavailable
from opensm_writer import fileset, render
from opensm_writer.opensm import OpenSm
from opensm_writer.parse import PartitionFile, SwitchTable, guid2lid

PARTITIONS, TABLES = "partitions.conf", "lfts"


@dataclass(frozen=True, slots=True)
class ReloadNote:
    """The last reload, as noted in ``.told``: before the signal, and again after it."""

    set: str = ""  # directory of the set
    mark: str = ""  # end of the log before the signal; see ``OpenSm.mark``
    process: str = ""  # name of the process that was signalled; see ``opensm.Process``
    done: bool = False  # whether the signal was sent
    rewriting_since: float | None = None  # seconds since the epoch, if it was for other files
    rewritten: bool = False  # the sweep with those has ended, and the set is to follow


def read_note(home: Path) -> ReloadNote:
    """The note in a fabric's directory; an empty one if it cannot be read."""
    try:
        return ReloadNote(**json.loads((home / ".told").read_text()))
    except (OSError, ValueError, TypeError):
        return ReloadNote()


def prepare(home: Path, opensm: OpenSm) -> ReloadNote:
    """Note the end of OpenSM's log, and copy the pinned LIDs to OpenSM's cache directory.

    Raises:
        OSError: a file cannot be read or written.
    """
    current = fileset.current_set(home)
    note = ReloadNote(current.name, opensm.mark(), _process_name(opensm))
    fileset.replace_file(home / ".told", json.dumps(asdict(note)))
    if opensm.cache is not None:
        pinned = (current / "guid2lid").read_text()
        fileset.replace_file(opensm.cache / "guid2lid", pinned)
    return note


def reload_set(home: Path, opensm: OpenSm) -> None:
    """Make OpenSM read the current set of the fabric in ``home``; safe to repeat.

    Raises:
        OSError: see ``prepare``.
        Unavailable: OpenSM cannot be signalled; it reads the files when it starts.
    """
    note = prepare(home, opensm)
    opensm.reload()
    fileset.replace_file(home / ".told", json.dumps(asdict(replace(note, done=True))))


def take_as_read(home: Path) -> bool:
    """Note that OpenSM has read the current set, if it has read one with the same files.

    Whether the switches still have these tables and keys is for the next reading to say. Raises:
    OSError.
    """
    note, current = read_note(home), fileset.current_set(home)
    try:
        files = [fileset.read_manifest(each).files for each in (home / note.set, current)]
    except InvalidFile:
        return False
    if files[0] != files[1]:
        return False
    fileset.replace_file(home / ".told", json.dumps(asdict(replace(note, set=current.name))))
    return True


def begin_rewriting(
    home: Path,
    opensm: OpenSm,
    keys: tuple[PartitionFile, Collection[int]] | None,
    tables: tuple[Iterable[SwitchTable], Mapping[int, bytes]] | None,
) -> bool:
    """Have OpenSM sweep once with files that make it write keys and tables of ours again.

    Without this it would not: OpenSM reads neither again while it is the master, and writes a
    port's keys, or a block of a table, only if they differ from what it wrote last (measured with
    3.3.23). ``keys`` are the partitions of the current set and the ports (GUIDs) with other keys:
    for this sweep they become limited members of a partition of their own, whose key no tenant
    has. Limited members cannot talk to each other. ``tables`` are those of the current set and
    the rows, by GUID, of switches that have others: for this sweep OpenSM gets the tables that the
    switches have, which changes nothing in them.

    Returns at once, with False if there is nothing to do. The caller has OpenSM read the set again
    after ``rewriting_ended`` and ``end_rewriting``.

    Raises:
        OSError: a file cannot be read or written.
        Unavailable: OpenSM cannot be signalled.
    """
    directory = fileset.current_set(home)
    files: dict[str, Iterable[str | bytes]] = {}
    if keys is not None:
        partitions, members = keys
        taken = {partition.pkey for partition in partitions.partitions}
        pkey = next((key for key in reversed(opensm.pkeys) if key not in taken), None)
        if pkey is not None:
            text = (directory / PARTITIONS).read_text()
            files[PARTITIONS] = [text, render.limited_partition(pkey, members)]
    if tables is not None:
        files[TABLES] = list(_with_rows(directory, *tables))
    if not files:
        return False
    note = prepare(home, opensm)
    with fileset.changing(home):
        if fileset.current_set(home) != directory:
            return False
        fileset.begin_rewriting(home, files)
    try:
        opensm.reload()
    except BaseException:
        fileset.end_rewriting(home)
        raise
    note = replace(note, done=True, rewriting_since=time.time())
    fileset.replace_file(home / ".told", json.dumps(asdict(note)))
    return True


def _with_rows(
    directory: Path, tables: Iterable[SwitchTable], rows: Mapping[int, bytes]
) -> Iterator[str | bytes]:
    """The text of the tables in a set, with other rows for some switches."""
    lids = guid2lid((directory / "guid2lid").read_text(), "guid2lid")
    with (directory / TABLES).open("rb") as file:
        for table in tables:
            text = file.read(table.size)
            if table.guid in rows:
                yield render.table(table.guid, rows[table.guid], lids, bare=table.bare)
            else:
                yield text


def rewriting_ended(home: Path, opensm: OpenSm) -> bool:
    """Whether OpenSM has swept with the files of ``begin_rewriting``, or will not any more.

    It will not if another process runs, or if this takes longer than a command may.
    """
    note = read_note(home)
    if note.rewriting_since is None or not note.done:
        return True
    age = time.time() - note.rewriting_since
    late = not 0 <= age < opensm.timeout
    return late or _process_name(opensm) != note.process or opensm.sweep(note.mark).ended


def end_rewriting(home: Path) -> None:
    """Make the current set the one that OpenSM reads again; it has to be signalled for it."""
    if fileset.end_rewriting(home):
        note = replace(read_note(home), done=False, rewriting_since=None, rewritten=True)
        fileset.replace_file(home / ".told", json.dumps(asdict(note)))


def _process_name(opensm: OpenSm) -> str:
    try:
        process = opensm.process()
    except Unavailable:
        return ""
    return process.name if process is not None else ""
