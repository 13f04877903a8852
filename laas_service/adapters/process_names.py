# SPDX-License-Identifier: Apache-2.0


"""Names of processes, by which another one on the same machine sees that they are gone."""

from __future__ import annotations

import os
import re
import socket
import uuid
from pathlib import Path

_PROC = Path("/proc")
_STATE_AND_START = re.compile(r"\) (\S)(?: \S+){18} (\d+)")
"""Of ``/proc/PID/stat``, behind the program's name, which may have brackets of its own."""


def new_name() -> str:
    """A name that no process has had: machine, process, and a random part.

    It has up to 255 characters. On other systems than Linux it says nothing of the process.
    """
    return "/".join([_space(), _process(os.getpid()) or "-", uuid.uuid4().hex[:8]])


def is_gone(name: str) -> bool:
    """Whether it is known here that the process of this name runs no more.

    False for processes of other machines and containers, and for those before a reboot.
    """
    space, _, rest = name.rpartition("/")[0].rpartition("/")
    pid = rest.partition("-")[0]
    return space == _space() and pid.isdigit() and _process(int(pid)) != rest


def _process(pid: int) -> str | None:
    """Number and start of a process; None: there is none, or it has ended."""
    try:
        found = _STATE_AND_START.search((_PROC / str(pid) / "stat").read_text())
    except OSError:
        return None
    return f"{pid}-{found[2]}" if found and found[1] not in "ZX" else None


def _space() -> str:
    """The host's name, and where process numbers mean the same as here."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        numbers = str((_PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        boot, numbers = "-", "-"
    return f"{socket.gethostname()}/{boot}.{numbers}"[-200:]
