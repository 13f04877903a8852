# SPDX-License-Identifier: Apache-2.0

"""Hosts that accept no new server of any project: an aggregate that ``LaasTenantFilter`` reads."""

from collections.abc import Collection

from laas_service.adapters.nova.keys import CLOSING, OwnKeys
from laas_service.adapters.nova.members import Members


class ClosedHosts:
    """Closes hosts, and opens them again; their servers run on."""

    def __init__(self, keys: OwnKeys, members: Members) -> None:
        self._keys = keys
        self._members = members

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """See ``Compute.close``."""
        aggregate = self._members.ensured(self._keys.closed_hosts, CLOSING)
        opening = (set(hosts) & aggregate.hosts).difference(closed)
        aggregate = self._members.leave(aggregate, opening)
        joining = self._members.lacking(aggregate, set(closed) & set(hosts))
        self._members.write(self._members.add(aggregate, joining), CLOSING)
