# SPDX-License-Identifier: Apache-2.0

"""Configuration options, one module per option group, each with ``GROUP`` and ``OPTIONS``."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from laas_service.conf import (
    api,
    compute,
    database,
    laas,
    limits,
    nova,
    opensm,
    placement,
    queue,
    state,
    worker,
)

_MODULES = (state, database, api, limits, compute, nova, placement, laas, opensm, queue, worker)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of the service and of oslo.log with ``conf``; safe to repeat.

    The log goes to stderr, because commands print their answers to stdout. Alembic logs
    warnings only, because every health check calls it.
    """
    for module in _MODULES:
        conf.register_opts(module.OPTIONS, group=module.GROUP)
    database.set_defaults(conf)
    logging.register_options(conf)
    conf.set_default("use_stderr", True)
    logging.set_defaults(default_log_levels=_log_levels())


def set_defaults() -> None:
    """Set our defaults of other libraries' options, for ``oslo-config-generator``."""
    cfg.set_defaults(database.OPTIONS, connection=database.CONNECTION)
    logging.set_defaults(default_log_levels=_log_levels())


def _log_levels() -> list[str]:
    levels: list[str] = logging.get_default_log_levels()
    return [*levels, "alembic.runtime.migration=WARN"]


def list_opts() -> list[tuple[str, list[Any]]]:
    """Options for ``oslo-config-generator``; oslo.db lists those of [database] itself."""
    modules = [module for module in _MODULES if module is not database]
    logins = {module.GROUP: module.LOGIN_OPTIONS for module in (nova, placement, laas)}
    return [
        (module.GROUP or "DEFAULT", [*module.OPTIONS, *logins.get(module.GROUP, ())])
        for module in modules
    ]
