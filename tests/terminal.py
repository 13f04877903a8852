# SPDX-License-Identifier: Apache-2.0

"""Commands on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from contextlib import suppress


def on_a_terminal(
    command: Sequence[object], columns: int = 100, text: str | None = None
) -> tuple[int, str]:
    """Run a command whose output is a terminal; return its exit status and what it wrote.

    Its input is the terminal, too, or a pipe with ``text``.
    """
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=terminal if text is None else subprocess.PIPE,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    ) as process:
        os.close(terminal)
        if process.stdin is not None:
            process.stdin.write((text or "").encode())
            process.stdin.close()
        written = b""
        with open(controller, "rb", buffering=0) as screen, suppress(OSError):
            # Linux reports EIO when the last process has closed the terminal.
            while piece := screen.read(4096):
                written += piece
        return process.wait(), written.decode().replace("\r\n", "\n")
