# SPDX-License-Identifier: Apache-2.0

"""Which host names and addresses mean this machine alone."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a name or address, with brackets or without, means this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
