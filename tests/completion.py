# SPDX-License-Identifier: Apache-2.0

"""What an interactive bash completes."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Iterable
from pathlib import Path

LIBRARY = Path("/usr/share/bash-completion/bash_completion")
"""Functions that completion scripts of cliff call; of the package bash-completion."""

_BASH = ["bash", "--norc", "--noprofile", "-i"]
_TO_THE_START, _TO_THE_END = b"\x01", b"\x05"


def completed(script: Path, lines: Iterable[str]) -> list[str]:
    """Each line as bash shows it after a Tab at its end, with this completion script."""
    process, terminal = pty.fork()
    if not process:
        os.execvpe(_BASH[0], _BASH, {"PATH": os.environ["PATH"], "PS1": "", "TERM": "dumb"})
    try:
        os.write(terminal, f"PS1=; . {LIBRARY}; . {script}; echo '['read']'\n".encode())
        _bracketed(terminal)
        shown = []
        for line in lines:
            os.write(terminal, line.encode() + b"\t")
            os.write(terminal, _TO_THE_START + b"echo '[" + _TO_THE_END + b"]'\n")
            shown.append(_bracketed(terminal))
        os.write(terminal, b"exit\n")
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    return shown


def _bracketed(terminal: int) -> str:
    """Read up to a line in brackets; the text between them."""
    said = b""
    while (line := re.search(rb"\n\[(.*)\]\r\n", said)) is None:
        said += os.read(terminal, 4096)
    return line[1].decode().rstrip()
