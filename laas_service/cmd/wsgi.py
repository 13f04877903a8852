# SPDX-License-Identifier: Apache-2.0


"""The application for a WSGI server, as ``uwsgi --module laas_service.cmd.wsgi:application``.

The configuration is ``laas.conf`` and ``laas.conf.d`` in the directory that the
environment variable LAAS_CONFIG_DIR names, /etc/laas by default. A worker runs
in a process of its own (laas-worker).
"""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask
from oslo_config import cfg
from oslo_log import log as logging

from laas_service import conf as options
from laas_service.cmd import api
from laas_service.domain.errors import InvalidInput
from laas_service.wiring import Parts

DIRECTORY = "/etc/laas"


def configured(directory: Path) -> cfg.ConfigOpts:
    """The configuration in a directory; the command line is the WSGI server's.

    Raises:
        InvalidInput: it asks for no authentication, though the WSGI server may
            listen anywhere.
    """
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf(
        [],
        project="laas",
        default_config_files=[str(file) for file in [directory / "laas.conf"] if file.exists()],
        default_config_dirs=[str(d) for d in [directory / "laas.conf.d"] if d.exists()],
    )
    logging.setup(conf, "laas-api")
    if conf.api.auth_strategy == "none":
        raise InvalidInput(
            "[api] auth_strategy",
            "none",
            "behind a WSGI server use keystone; laas-api can do without",
        )
    return conf


def _application() -> Flask:
    conf = configured(Path(os.environ.get("LAAS_CONFIG_DIR", DIRECTORY)))
    parts = Parts(conf)
    return api.application(conf, parts.use_cases(parts.waker))


application = _application()
