# SPDX-License-Identifier: Apache-2.0

"""WSGI application of laas-api, as for ``uwsgi --module laas_service.cmd.wsgi:application``.

It reads ``laas.conf`` and ``laas.conf.d`` in the directory that the environment variable
LAAS_CONFIG_DIR names, /etc/laas by default. Run laas-worker beside it, as this application
runs no worker.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from flask import Flask
from oslo_config import cfg

from laas_service.cmd import api, process
from laas_service.domain.errors import InvalidInput, LaasError
from laas_service.wiring.composition import Composition

LOG = logging.getLogger(__name__)

DIRECTORY = "/etc/laas"


def configured(directory: Path) -> cfg.ConfigOpts:
    """The configuration in a directory. The command line belongs to the WSGI server.

    Raises:
        InvalidInput: authentication is off, although the WSGI server may listen on any
            address.
    """
    conf = process.configured(
        "laas-api",
        [],
        default_config_files=[str(file) for file in [directory / "laas.conf"] if file.exists()],
        default_config_dirs=[str(d) for d in [directory / "laas.conf.d"] if d.exists()],
    )
    process.warn_of_unknown(conf)
    if conf.api.auth_strategy == "none":
        raise InvalidInput(
            "[api] auth_strategy",
            "none",
            "behind a WSGI server use keystone; only laas-api runs without authentication",
        )
    return conf


def _application() -> Flask:
    conf = configured(Path(os.environ.get("LAAS_CONFIG_DIR", DIRECTORY)))
    parts = Composition(conf)
    app = api.application(conf, parts.use_cases(parts.waker))
    api.collect_between_requests(app, parts.collector)
    try:
        api.warn(conf, parts)
    except LaasError as error:  # the health check tells; the database may answer later
        LOG.warning("the database does not answer yet: %s", error)
    parts.collector.settle()  # before the WSGI server forks, so that processes share this memory
    return app


application = _application()
