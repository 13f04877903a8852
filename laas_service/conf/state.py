# SPDX-License-Identifier: Apache-2.0


"""[DEFAULT]: where the service keeps what it has to remember."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oslo_config import cfg

GROUP: str | None = None


def _default_directory() -> str:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(home) / "laas")


OPTIONS: list[Any] = [
    cfg.StrOpt(
        "state_dir",
        default=_default_directory(),
        sample_default="/var/lib/laas",
        help="""
Directory of what has to survive a restart: the SQLite database, and the files of
the embedded compute and subnet manager adapters.

Change it when the service runs as a system user. It has to lie on a local disk
that honours fsync; with a remote database it holds little.
""",
    ),
]
