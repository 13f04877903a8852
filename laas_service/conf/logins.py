# SPDX-License-Identifier: Apache-2.0

"""Addresses and logins: [nova], [placement], [neutron], [ironic], [laas], as keystoneauth has."""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

LOGIN_OPTIONS: list[Any] = loading.get_auth_plugin_conf_options("password")
"""Options for the sample file; keystoneauth registers those of the configured auth_type."""


def _options(service_type: str, timeout: int) -> list[Any]:
    """The options of one group. Without ``timeout``, keystoneauth would wait for ever."""
    options: list[Any] = [
        *loading.get_auth_common_conf_options(),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
    cfg.set_defaults(
        options,
        service_type=service_type,
        valid_interfaces=["internal", "public"],
        timeout=timeout,
    )
    return options


GROUPS: dict[str | None, list[Any]] = {
    "nova": _options("compute", timeout=30),
    "placement": _options("placement", timeout=30),  # the default login is that of [nova]
    "neutron": _options("network", timeout=30),  # the default login is that of [nova]
    "ironic": _options("baremetal", timeout=60),
    # For the OpenSM agent. At the first request for a large set of files, the service renders it.
    "laas": _options("isolated-network", timeout=120),
}
