# SPDX-License-Identifier: Apache-2.0

"""[laas]: where the service is for an agent beside OpenSM, and how to log in there."""

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
    timeout=120,  # a large set is rendered when it is first asked for
)

LOGIN_OPTIONS: list[Any] = loading.get_auth_plugin_conf_options("password")
"""For the sample file; keystoneauth registers those of the auth_type that is chosen."""
