# SPDX-License-Identifier: Apache-2.0

"""[DEFAULT]: state directory of the service."""

import os
from pathlib import Path

from oslo_config import cfg

from laas_service.conf.group import Group, setting

GROUP: str | None = None


def _default_directory() -> str:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(home) / "laas")


class StateGroup(Group, name=None):
    """The options of [DEFAULT]."""

    state_dir: str = setting(cfg.StrOpt, _default_directory(), sample_default="/var/lib/laas")
    """Directory of the data that must survive a restart: the SQLite database, and the files of
    the compute directory and of the subnet manager.

    Change it if the service runs as a system user. It must be on a local disk that honours
    fsync. With a remote database it holds little."""
