# SPDX-License-Identifier: Apache-2.0

"""The one configuration file of the plug-in: options, and what follows from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg, types

from laas_service.client.rest import SERVICE_TYPE, Rest
from slurm_plugin.service import Service
from slurm_plugin.world import Settings

DEFAULT_FILE = Path("/etc/laas/laas-slurm.conf")
GROUP = "laas"

OPTIONS = (
    cfg.StrOpt(
        "partition",
        required=True,
        help="The partition of Slurm whose jobs own their links. job_submit.lua reads it, too.",
    ),
    cfg.StrOpt("cluster", default="slurm", help="ClusterName of slurm.conf."),
    cfg.StrOpt("fabric", help="Id of the fabric; without it, the default of the service."),
    cfg.FloatOpt(
        "poll_interval",
        default=1.0,
        min=0.05,
        help="Seconds between two rounds. Each asks slurmctld twice and the service once.",
    ),
    cfg.FloatOpt(
        "start_timeout",
        default=60.0,
        min=1.0,
        help="""
Seconds that a job may hold hosts without being started by Slurm, because of a limit, say.

Then it gives them back. Raise it if nodes take longer to wake from power saving.
""",
    ),
    cfg.FloatOpt(
        "retry",
        default=60.0,
        min=0.0,
        help="Seconds until a job is offered again that gave hosts back or was refused.",
    ),
    cfg.IntOpt(
        "window",
        default=50,
        min=1,
        max=4096,
        help="Jobs that wait in the queue of the service at one time, the first in Slurm's order.",
    ),
    cfg.ListOpt(
        "confirmed_by",
        default=["switches", "agent"],
        item_type=types.String(choices=["switches", "agent", "files", "nobody"]),
        help="""
Confirmations of routes that let a job start; see confirmed_by of an allocation.

With files or nobody a job may start before the switches have its routes.
""",
    ),
)


def read(file: str) -> Any:
    """The options of a file. Raises: cfg.Error, with the reason in words."""
    conf = cfg.ConfigOpts()
    conf.register_opts(OPTIONS)
    loading.register_adapter_conf_options(conf, GROUP, include_deprecated=False)
    loading.register_session_conf_options(conf, GROUP)
    loading.register_auth_conf_options(conf, GROUP)
    conf.set_default("service_type", SERVICE_TYPE, group=GROUP)
    conf(args=[], project="laas-slurm", default_config_files=[file])
    return conf


def settings(conf: Any, closing: bool = False) -> Settings:
    return Settings(
        confirmed_by=frozenset(conf.confirmed_by),
        start_timeout=conf.start_timeout,
        retry=conf.retry,
        window=conf.window,
        closing=closing,
    )


def service(conf: Any) -> Service:
    """The service, with the login of [laas]; without ``auth_type``, with none."""
    from keystoneauth1.noauth import NoAuth

    auth = loading.load_auth_from_conf_options(conf, GROUP) if conf[GROUP].auth_type else None
    session = loading.load_session_from_conf_options(
        conf, GROUP, auth=auth or NoAuth(conf[GROUP].endpoint_override)
    )
    adapter = loading.load_adapter_from_conf_options(
        conf, GROUP, session=session, user_agent="laas-slurm"
    )
    return Service(Rest(adapter), conf.cluster, conf.fabric)
