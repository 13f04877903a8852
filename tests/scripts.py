# SPDX-License-Identifier: Apache-2.0

"""Makes programs that tests start."""

import subprocess
from pathlib import Path


def executable(path: Path, text: str) -> Path:
    """Make ``path`` a program with ``text`` in place of any older one, and return it.

    Another process writes it. If this one did, a thread that starts a program at that moment would
    pass the open file on, and the kernel refuses to start a file that is open for writing.
    """
    subprocess.run(
        ["/usr/bin/install", "-m", "755", "/dev/stdin", path], input=text, text=True, check=True
    )
    return path
