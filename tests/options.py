# SPDX-License-Identifier: Apache-2.0

"""The options of the service, as files set them and with their defaults."""

from __future__ import annotations

import os

from oslo_config import cfg

from laas_service.conf import register_opts


def options_from(*files: str | os.PathLike[str]) -> cfg.ConfigOpts:
    """The options that the files set; files of this machine are not read."""
    conf = cfg.ConfigOpts()
    register_opts(conf)
    names = [os.fspath(file) for file in files]
    conf([], project="laas", default_config_files=names, default_config_dirs=[])
    return conf
