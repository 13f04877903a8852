# SPDX-License-Identifier: Apache-2.0

"""The REST client of the service on Watcher's session, with the options of [laas]."""

from __future__ import annotations

import textwrap
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

from laas_service.client.rest import SERVICE_TYPE, Rest
from laas_service.version import user_agent

GROUP = "laas"
"""The group of the options in the configuration of Watcher."""

OPTIONS = (
    cfg.FloatOpt(
        "poll_interval",
        default=5.0,
        min=0.0,
        help="Seconds between two requests of an action that waits for a move.",
    ),
    cfg.FloatOpt(
        "step_timeout",
        default=5400.0,
        min=1.0,
        help="""
Seconds after which an action gives up and turns its move back.

The notice of the tenant comes on top. Keep it longer than [worker] move_window of the service,
which ends moves whose servers do not leave.
""",
    ),
)


LONGEST_MESSAGE = 220
"""Characters of a text that Watcher stores; it has room for 255, with words of its own before."""


def options() -> Any:
    """The options of [laas] in the configuration that this Watcher runs with."""
    if GROUP not in cfg.CONF:
        loading.register_adapter_conf_options(cfg.CONF, GROUP, include_deprecated=False)
        cfg.CONF.register_opts(OPTIONS, group=GROUP)
        cfg.CONF.set_default("service_type", SERVICE_TYPE, group=GROUP)
    return cfg.CONF[GROUP]


def connected(clients: Any) -> Rest:
    """The service, with the login that Watcher uses for all services ([watcher_clients_auth]).

    ``clients`` is an ``OpenStackClients`` of Watcher.
    """
    options()
    adapter = loading.load_adapter_from_conf_options(
        cfg.CONF, GROUP, session=clients.session, user_agent=user_agent("laas-watcher")
    )
    return Rest(adapter)


def brief(text: str) -> str:
    """A text as Watcher can store it, with its end left out if it is too long."""
    return textwrap.shorten(text, LONGEST_MESSAGE, placeholder=" ...")
