# SPDX-License-Identifier: Apache-2.0


"""Configuration: one module per option group, each with ``GROUP`` and ``OPTIONS``."""

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
    """Make every option of the service known to ``conf``, and oslo.log's; safe to repeat.

    The log goes to stderr, as what commands answer goes to stdout; alembic is quiet,
    because every health check asks it.
    """
    for module in _MODULES:
        conf.register_opts(module.OPTIONS, group=module.GROUP)
    database.set_defaults(conf)
    logging.register_options(conf)
    conf.set_default("use_stderr", True)
    logging.set_defaults(default_log_levels=_log_levels())


def set_defaults() -> None:
    """For ``oslo-config-generator``: our defaults of other libraries' options."""
    cfg.set_defaults(database.OPTIONS, connection=database.CONNECTION)
    logging.set_defaults(default_log_levels=_log_levels())


def _log_levels() -> list[str]:
    levels: list[str] = logging.get_default_log_levels()
    return [*levels, "alembic.runtime.migration=WARN"]


def list_opts() -> list[tuple[str, list[Any]]]:
    """For ``oslo-config-generator``; [database] is in oslo.db's own namespace."""
    modules = [module for module in _MODULES if module is not database]
    logins = {module.GROUP: module.LOGIN_OPTIONS for module in (nova, placement, laas)}
    return [
        (module.GROUP or "DEFAULT", [*module.OPTIONS, *logins.get(module.GROUP, ())])
        for module in modules
    ]
