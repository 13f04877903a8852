# SPDX-License-Identifier: Apache-2.0

"""Runs ``ibnetdiscover`` on this machine, to import the fabric as it is now."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from laas_service.adapters.fabric_import.decoding import read_stream
from laas_service.adapters.fabric_import.refusal import ImportRefusal
from laas_service.domain.errors import InvalidFile
from laas_service.domain.wording import printable

TOOL = "ibnetdiscover"
SYSTEM_PATHS = "/usr/sbin:/sbin:/usr/local/sbin"
"""Where distributions install the tool; the PATH of most users lacks these."""

PATIENCE = 600.0
"""Seconds for the discovery; thousands of nodes take less than one minute."""

_DEVICES = Path("/dev/infiniband")


def discovered(command: Sequence[str] = (TOOL,)) -> tuple[str, tuple[str, ...]]:
    """What ``ibnetdiscover`` prints here, and the lines of its warnings.

    Raises:
        InvalidFile: the tool is missing, it failed, or it does not end.
    """
    tool = shutil.which(command[0]) or shutil.which(command[0], path=SYSTEM_PATHS)
    if tool is None:
        raise _refused("is not installed here; install the package infiniband-diags")
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as warnings:
        try:
            done = subprocess.run(
                [tool, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=warnings,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            why = f"has not ended for {PATIENCE:g} s; run it by hand, and import what it prints"
            raise _refused(why) from error
        except OSError as error:
            raise _refused(f"cannot be run ({(error.strerror or str(error)).lower()})") from error
        output.seek(0)
        warnings.seek(0)
        said = warnings.read(1 << 16).decode(errors="replace").splitlines()
        diagnostics = tuple(printable(line.strip())[:200] for line in said if line.strip())
        if done.returncode:
            raise _refused(_why(done.returncode, diagnostics))
        return read_stream(output, TOOL), diagnostics


def _why(status: int, diagnostics: Sequence[str]) -> str:
    """Why the tool failed, and what to do."""
    ports = sorted(_DEVICES.glob("umad*"))
    text = " ".join(diagnostics).lower()
    if "permission denied" in text or "operation not permitted" in text:
        return f"may not use {_DEVICES}/umad*; run this command as root"
    if not ports and "umad" in text:
        return (
            "finds no InfiniBand port here; run it on a machine of the fabric, with the kernel "
            "module ib_umad, or import what it printed there"
        )
    if "umad port" in text:
        return (
            f"cannot open a port of {', '.join(port.name for port in ports)}; run this command as "
            "root, with a port that is up (ibstat)"
        )
    said = f": {diagnostics[-1]}" if diagnostics else ""
    return f"failed with status {status}{said}; run this command as root, on a port that is up"


def _refused(why: str) -> InvalidFile:
    return InvalidFile(TOOL, 0, why, ImportRefusal.UNREADABLE)
