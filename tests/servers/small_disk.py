# SPDX-License-Identifier: Apache-2.0

"""A small file system in memory, which a test can fill and empty. Only root can make one."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

_STEPS = (1 << 20, 1 << 12, 1)
"""Bytes that are written at once, until not even one byte fits."""


class SmallDisk:
    """A file system of ``size`` MiB on a directory, until ``close``."""

    AVAILABLE = os.geteuid() == 0 and os.access("/bin/mount", os.X_OK)

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._filler = directory / "filler"
        options = f"size={size}m,mode=755"
        command = ["mount", "-t", "tmpfs", "-o", options, "laas-test", str(directory)]
        subprocess.run(command, check=True)

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("ab", buffering=0) as file:
            for step in _STEPS:
                try:
                    while file.write(b"x" * step) == step:
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def empty(self) -> None:
        """Free what ``fill`` took."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._directory)], check=False)
