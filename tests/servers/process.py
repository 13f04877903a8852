# SPDX-License-Identifier: Apache-2.0

"""Processes that tests start: reserved port, log, and waiting for an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.servers.leash import spawn
from tests.waiting import PATIENCE, eventually

GRACE = 60.0
"""Seconds from SIGTERM to SIGKILL."""


class Port:
    """A free port of loopback, reserved for one server through its restarts.

    This object binds the port and does not listen. The system therefore gives the port to
    nobody else; the server can bind it too, as both allow reuse; and connections are refused
    while the server does not run.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.number}"

    def close(self) -> None:
        self._socket.close()


class Process:
    """A server in a process group of its own; its output goes to ``log``."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("ab") as said:
            self._process = spawn(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=dict(environment)
            )
        self.pid = self._process.pid

    def wait_for(self, url: str) -> None:
        """Return when ``url`` answers, with any status.

        Raises:
            AssertionError: the process ended, or does not answer in time. The text has its log.
        """
        self.wait_until(lambda: _answers(url), f"{url} does not answer")

    def wait_until(
        self, look: Callable[[], object], complaint: str, patience: float = PATIENCE
    ) -> None:
        """Return when ``look`` is true.

        Raises:
            AssertionError: as ``wait_for``; the text begins with ``complaint``.
        """

        def text() -> str:
            return f"{complaint}:\n{self.said()[-4000:]}"

        def looked() -> bool:
            ended = self._process.poll() is not None
            found = bool(look())
            assert found or not ended, text()
            return found

        eventually(looked, text, patience)

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """End the process by SIGTERM, then SIGKILL, and kill its children."""
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
