# SPDX-License-Identifier: Apache-2.0

"""[laas]: address of the service and login, for the OpenSM agent."""

from __future__ import annotations

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = "laas"
OPTIONS: list[Any] = [
    *loading.get_auth_common_conf_options(),
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(include_deprecated=False),
]
cfg.set_defaults(
    OPTIONS,
    service_type="isolated-network",
    valid_interfaces=["internal", "public"],
    timeout=120,  # the service renders a large set of files at the first request for it
)

LOGIN_OPTIONS: list[Any] = loading.get_auth_plugin_conf_options("password")
"""Options for the sample file; keystoneauth registers those of the configured auth_type."""
