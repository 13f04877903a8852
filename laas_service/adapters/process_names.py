# SPDX-License-Identifier: Apache-2.0

"""Unique process names, from which a process on the same machine sees that another has ended."""

import os
import re
import socket
import uuid
from pathlib import Path

_PROC = Path("/proc")
_STATE_AND_START = re.compile(r"\) (\S)(?: \S+){18} (\d+)")
"""State and start time in ``/proc/PID/stat``, after the program's name, which may have brackets."""


def new_name() -> str:
    """A unique name from machine, process and a random part; at most 255 characters.

    On systems other than Linux it does not identify the process.
    """
    return "/".join([_space(), _process(os.getpid()) or "-", uuid.uuid4().hex[:8]])


def is_gone(name: str) -> bool:
    """Whether this machine can see that the process of this name has ended.

    False for processes of other machines and containers, and for processes before a reboot.
    """
    space, _, rest = name.rpartition("/")[0].rpartition("/")
    pid = rest.partition("-")[0]
    return space == _space() and pid.isdigit() and _process(int(pid)) != rest


def _process(pid: int) -> str | None:
    """Number and start time of a process; None if it does not exist or has ended."""
    try:
        match = _STATE_AND_START.search((_PROC / str(pid) / "stat").read_text())
    except OSError:
        return None
    return f"{pid}-{match[2]}" if match and match[1] not in "ZX" else None


def _space() -> str:
    """Host name, boot and process namespace: where a process number identifies one process."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        numbers = str((_PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        boot, numbers = "-", "-"
    return f"{socket.gethostname()}/{boot}.{numbers}"[-200:]
