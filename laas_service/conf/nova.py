# SPDX-License-Identifier: Apache-2.0

"""[nova]: address of Nova and login, with the options of keystoneauth."""

from __future__ import annotations

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = "nova"
OPTIONS: list[Any] = [
    *loading.get_auth_common_conf_options(),
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(include_deprecated=False),
]
cfg.set_defaults(
    OPTIONS,
    service_type="compute",
    valid_interfaces=["internal", "public"],
    timeout=30,  # the default of keystoneauth is to wait for ever
)

LOGIN_OPTIONS: list[Any] = loading.get_auth_plugin_conf_options("password")
"""Options for the sample file; keystoneauth registers those of the configured auth_type."""
