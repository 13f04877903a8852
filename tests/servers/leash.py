# SPDX-License-Identifier: Apache-2.0

"""Processes of tests that end with the process that started them, even if that is killed.

``spawn`` is ``subprocess.Popen`` with a group of its own for the process. Another process
learns of each group over a pipe and, once the pipe is closed because nobody is left at its
other end, kills what is still there. Which thread has spawned a process does not matter,
nor what that process starts in its group or whose rights it takes.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def spawn(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """As ``subprocess.Popen``; the process leads a session and a group."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    _watcher.tell(process.pid)
    return process


class _Watcher:
    """The other process, started when it is needed, also in a process that was forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def tell(self, group: int) -> None:
        with self._lock:
            if self._owner != os.getpid():
                self._start()
            assert self._process.stdin is not None
            self._process.stdin.write(b"%d\n" % group)
            self._process.stdin.flush()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._owner = os.getpid()
        atexit.register(self._end, self._process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self._owner == os.getpid():
            process.communicate()


_watcher = _Watcher()


def watch() -> None:
    """Read the groups until there is nobody who could name another one, and end them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = {group: _started(group) for group in map(int, sys.stdin)}
    for group, started in groups.items():
        if _started(group) in (started, None):  # else its number went to somebody else
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def _started(pid: int) -> str | None:
    """When, in ticks since the system was booted. None: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


if __name__ == "__main__":
    watch()
