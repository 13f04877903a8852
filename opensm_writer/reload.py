# SPDX-License-Identifier: Apache-2.0

"""Makes OpenSM read the current set, and notes on disk which process was signalled for it."""

import json
import os
import shutil
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from laas_service.domain.errors import Unavailable
from opensm_writer import fileset, render
from opensm_writer.opensm import OpenSm
from opensm_writer.parse import PartitionFile

PARTITIONS = "partitions.conf"
REWRITING = ".rewriting"
"""The directory that is current while keys are written again."""
PAUSE = 0.1
"""Seconds between two looks into OpenSM's log."""


@dataclass(frozen=True, slots=True)
class ReloadNote:
    """The last reload, as noted in ``.told``: before the signal, and again after it."""

    set: str = ""  # directory of the set
    mark: str = ""  # end of the log before the signal; see ``OpenSm.mark``
    process: str = ""  # name of the process that was signalled; see ``opensm.Process``
    done: bool = False  # whether the signal was sent


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
    current = home / "current"
    note = ReloadNote(current.readlink().name, opensm.mark(), _process_name(opensm))
    fileset.replace_file(home / ".told", json.dumps(asdict(note)))
    if opensm.cache_directory is not None:
        pinned = (current / "guid2lid").read_text()
        fileset.replace_file(opensm.cache_directory / "guid2lid", pinned)
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


def rewrite_keys(
    home: Path, opensm: OpenSm, partitions: PartitionFile, members: Collection[int]
) -> None:
    """Have OpenSM write the keys of ports again that others changed.

    OpenSM does not read keys again while it is the master, and writes a port's keys only if they
    change (measured with 3.3.23). Therefore, for one sweep, the ports of ``members`` (GUIDs)
    become limited members of a partition of their own, whose key no tenant has. Limited members
    cannot talk to each other. If this process is killed meanwhile, the current set counts as
    damaged, and is published again. The caller has OpenSM read the set again afterwards.

    Raises:
        OSError: a file cannot be written.
        Unavailable: OpenSM cannot be signalled.
    """
    taken = {partition.pkey for partition in partitions.partitions}
    pkey = next((key for key in reversed(opensm.pkeys) if key not in taken), None)
    if pkey is None:
        return
    with fileset.changing(home):
        current = home / "current"
        name, draft = current.readlink().name, fileset.draft(home, REWRITING)
        for path in current.resolve().rglob("*"):
            copy = draft / path.relative_to(current.resolve())
            if path.is_dir():
                copy.mkdir(parents=True, exist_ok=True)
            elif path.name != PARTITIONS:
                copy.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, copy)
        text = (current / PARTITIONS).read_text()
        fileset.write(draft / PARTITIONS, [text, render.limited_partition(pkey, members)])
        try:
            fileset.replace_link(current, REWRITING)
            mark = opensm.mark()
            opensm.reload()
            _await_sweep(opensm, mark)
        finally:
            fileset.replace_link(current, name)
        shutil.rmtree(draft)


def _await_sweep(opensm: OpenSm, mark: str) -> None:
    """Wait until a sweep has ended, for at most the time that a command may take."""
    until = time.monotonic() + opensm.timeout
    while not opensm.sweep(mark).ended and time.monotonic() < until:
        time.sleep(PAUSE)


def _process_name(opensm: OpenSm) -> str:
    try:
        process = opensm.process()
    except Unavailable:
        return ""
    return process.name if process is not None else ""
