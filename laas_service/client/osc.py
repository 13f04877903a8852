# SPDX-License-Identifier: Apache-2.0

"""``openstack isolated network ...``: plugin for python-openstackclient.

The ``openstack`` command supplies login, region and interface. With
``--os-auth-type none --os-endpoint URL`` the plugin works without Keystone.
"""

from __future__ import annotations

import argparse
from typing import Any

from keystoneauth1.adapter import Adapter
from osc_lib import utils

from laas_service.client.rest import SERVICE_TYPE, VERSION, Rest
from laas_service.version import user_agent

API_NAME = "isolated_network"
API_VERSION_OPTION = "os_isolated_network_api_version"
API_VERSIONS = ("1", "1.0", "1.1", "1.2", VERSION)
DEFAULT_API_VERSION = VERSION


def make_client(instance: Any) -> Rest:
    """The client that commands get as ``client_manager.isolated_network``.

    The version ``1`` is 1.0. A version that this plugin does not know is for the service to judge.
    """
    version = str(instance._api_version[API_NAME])
    return Rest(
        Adapter(
            instance.session,
            service_type=SERVICE_TYPE,
            user_agent=user_agent("laas-openstackclient"),
            interface=instance.interface,
            region_name=instance.region_name,
            endpoint_override=instance.sdk_connection.config.get_endpoint(SERVICE_TYPE),
        ),
        version if "." in version else f"{version}.0",
    )


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the global option for the API version, as every plugin must."""
    parser.add_argument(
        "--os-isolated-network-api-version",
        metavar="<isolated-network-api-version>",
        default=utils.env("OS_ISOLATED_NETWORK_API_VERSION"),
        help=(
            f"Isolated network API version, default={DEFAULT_API_VERSION} "
            "(Env: OS_ISOLATED_NETWORK_API_VERSION)"
        ),
    )
    return parser
