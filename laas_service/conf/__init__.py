# SPDX-License-Identifier: Apache-2.0

"""Configuration options: a module with a class per option group."""

from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from laas_service.conf import (
    api,
    compute,
    database,
    faults,
    limits,
    logins,
    opensm,
    opensm_site,
    queue,
    retention,
    sharing,
    state,
    ufm,
    worker,
)
from laas_service.conf.group import Group


def _options(*groups: type[Group]) -> dict[str | None, list[Any]]:
    return {group.NAME: group.options() for group in groups}


_GROUPS: dict[str | None, list[Any]] = {
    **_options(state.StateGroup),
    database.GROUP: database.OPTIONS,
    **_options(api.ApiOptions, limits.LimitOptions, compute.ComputeOptions),
    **logins.GROUPS,
    **_options(opensm.OpenSmOptions, opensm_site.OpenSmSiteGroup, ufm.UfmOptions),
    **_options(faults.FaultOptions, queue.QueueOptions, worker.WorkerOptions),
    **_options(retention.RetentionGroup, sharing.SharingGroup),
}


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of the service and of oslo.log with ``conf``; safe to repeat.

    The log goes to stderr, because commands print their answers to stdout. Alembic logs
    warnings only, because every health check calls it.
    """
    for group, opts in _GROUPS.items():
        conf.register_opts(opts, group=group)
    database.set_defaults(conf)
    logging.register_options(conf)
    conf.set_default("use_stderr", True)
    logging.set_defaults(default_log_levels=_log_levels())


def set_defaults() -> None:
    """Set our defaults of other libraries' options, for ``oslo-config-generator``."""
    defaults = {"connection": database.CONNECTION, "max_pool_size": database.POOL_SIZE}
    cfg.set_defaults(database.OPTIONS, **defaults)
    logging.set_defaults(default_log_levels=_log_levels())


def _log_levels() -> list[str]:
    levels: list[str] = logging.get_default_log_levels()
    return [*levels, "alembic.runtime=WARN"]


def list_opts() -> list[tuple[str, list[Any]]]:
    """Options for ``oslo-config-generator``; oslo.db lists those of [database] itself."""
    return [
        (group or "DEFAULT", [*opts, *(logins.LOGIN_OPTIONS if group in logins.GROUPS else ())])
        for group, opts in _GROUPS.items()
        if group != database.GROUP
    ]
