# SPDX-License-Identifier: Apache-2.0

"""Processes of tests that end with their parent process, even if the parent is killed.

``spawn`` is ``subprocess.Popen`` with a process group of its own. A watcher process reads the
number of each group from a pipe. When the parent ends, the pipe closes, and the watcher kills
the groups that still run. This works for every thread that spawns a process, for the children
of the process, and for a process that changes its user.
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
    """Start a process like ``subprocess.Popen``, as leader of a new session and group."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    _watcher.tell(process.pid)
    return process


class _Watcher:
    """Starts the watcher process at the first ``spawn``; a forked process gets its own."""

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
    """Read group numbers until the pipe closes, then kill the groups."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = {group: _started(group) for group in map(int, sys.stdin)}
    for group, started in groups.items():
        if _started(group) in (started, None):  # else another process has the number now
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def _started(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]


if __name__ == "__main__":
    watch()
