# SPDX-License-Identifier: Apache-2.0

"""Makes OpenSM read the current set, and notes on disk which process was signalled for it."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from laas_service.domain.errors import Unavailable
from opensm_writer import fileset
from opensm_writer.opensm import OpenSm


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


def _process_name(opensm: OpenSm) -> str:
    try:
        process = opensm.process()
    except Unavailable:
        return ""
    return process.name if process is not None else ""
