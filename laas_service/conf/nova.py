# SPDX-License-Identifier: Apache-2.0

"""[nova]: where Nova is, and how to log in there, by keystoneauth's options."""

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
    timeout=30,  # keystoneauth's own default is to wait for ever
)

LOGIN_OPTIONS: list[Any] = loading.get_auth_plugin_conf_options("password")
"""For the sample file; keystoneauth registers those of the auth_type that is chosen."""
