# SPDX-License-Identifier: Apache-2.0

"""[database]: options of oslo.db; the default is SQLite in the state directory.

Where only the agent is installed, oslo.db is not, and there are no such options.
"""

from typing import Any

from oslo_config import cfg

try:
    from oslo_db.options import database_opts
except ImportError:
    database_opts = []

from laas_service.domain.errors import HIDDEN, InvalidInput

GROUP = "database"
OPTIONS: list[Any] = database_opts

ENGINE_OPTIONS = (
    "connection_debug",
    "connection_parameters",
    "connection_recycle_time",
    "connection_trace",
    "max_overflow",
    "max_pool_size",
    "max_retries",
    "mysql_sql_mode",
    "mysql_wsrep_sync_wait",
    "pool_timeout",
    "retry_interval",
)
"""Options that ``create_engine`` of oslo.db takes under the same name."""

CONNECTION = "sqlite:///$state_dir/laas.sqlite"
"""Default of ``connection``."""

POOL_SIZE = 20
"""Default of ``max_pool_size``: as many as [api] threads use, or they often open others anew."""


def set_defaults(conf: cfg.ConfigOpts) -> None:
    """Set the defaults of this module in ``conf``."""
    if OPTIONS:
        conf.set_default("connection", CONNECTION, GROUP)
        conf.set_default("max_pool_size", POOL_SIZE, GROUP)


def connection(conf: cfg.ConfigOpts) -> str:
    """The database's URL. Raises: InvalidInput, which shows no part of it."""
    return str(_value(conf, "connection"))


def engine_options(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """The arguments of ``create_engine``: the configured ones, and no pause for eventlet.

    Raises: InvalidInput, which shows no part of a value.
    """
    return {name: _value(conf, name) for name in ENGINE_OPTIONS} | {"thread_checkin": False}


def _value(conf: cfg.ConfigOpts, name: str) -> Any:
    """An option. The library's errors show parts of its value."""
    try:
        return conf.database[name]
    except cfg.ConfigFileValueError:
        fix = "give a value of the option's type"
    except (cfg.Error, RecursionError):
        fix = "a $ in it starts the name of another option; write $$ for the character $"
    raise InvalidInput(f"[{GROUP}] {name}", HIDDEN, fix)
