# SPDX-License-Identifier: Apache-2.0

"""Having OpenSM read the current set, and what is remembered of that, across restarts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from laas_service.domain.errors import Unavailable
from opensm_writer import fileset
from opensm_writer.opensm import OpenSm


@dataclass(frozen=True, slots=True)
class ReloadNote:
    """What OpenSM was told last.

    ``set`` is the directory of the set, ``mark`` where the log ended before, ``process``
    whom it was told to. It is noted before OpenSM is told, and with ``done`` after it.
    """

    set: str = ""
    mark: str = ""
    process: str = ""
    done: bool = False


def told(home: Path) -> ReloadNote:
    """What was noted; nothing if that cannot be read."""
    try:
        return ReloadNote(**json.loads((home / ".told").read_text()))
    except (OSError, ValueError, TypeError):
        return ReloadNote()


def prepare(home: Path, opensm: OpenSm) -> ReloadNote:
    """Before OpenSM is told: note where its log ends, and put the LIDs where it looks.

    Raises:
        OSError: a file cannot be read or written.
    """
    current = home / "current"
    note = ReloadNote(current.readlink().name, opensm.mark(), _process(opensm))
    fileset.replace_file(home / ".told", json.dumps(asdict(note)))
    if opensm.cache_directory is not None:
        pinned = (current / "guid2lid").read_text()
        fileset.replace_file(opensm.cache_directory / "guid2lid", pinned)
    return note


def tell(home: Path, opensm: OpenSm) -> None:
    """Have OpenSM read the set that is current in ``home``; safe to repeat.

    Raises:
        OSError: as ``prepare``.
        Unavailable: there is no OpenSM to tell; it reads the files when it starts.
    """
    note = prepare(home, opensm)
    opensm.reload()
    fileset.replace_file(home / ".told", json.dumps(asdict(replace(note, done=True))))


def _process(opensm: OpenSm) -> str:
    try:
        process = opensm.process()
    except Unavailable:
        return ""
    return process.name if process is not None else ""
