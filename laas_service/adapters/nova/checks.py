# SPDX-License-Identifier: Apache-2.0

"""Checks of Nova for ``laas-status``: its release, the rights of the service, what others see."""

from laas_service.adapters.nova.aggregates import AggregateCalls
from laas_service.adapters.nova.hosts import Hosts
from laas_service.adapters.nova.keys import OWNER, OwnKeys
from laas_service.adapters.nova.placement import CANDIDATES, PlacementCalls
from laas_service.adapters.nova.servers import HINTS_VERSION, ServerCalls
from laas_service.domain.errors import Forbidden, Unavailable
from laas_service.domain.wording import listed

SOUND_VERSION = (2, 104)
"""The newest version of Nova 34, all of whose releases have the fix of CVE-2026-46448."""

FORGED_HINT = "_nova_check_type"
"""The hint by which a create passed for a rebuild before that fix; Nova stores it."""


class Checks:
    """Asks Nova and placement for what operators have to mend; changes nothing."""

    def __init__(
        self,
        keys: OwnKeys,
        aggregates: AggregateCalls,
        servers: ServerCalls,
        placement: PlacementCalls,
        hosts: Hosts,
    ) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._servers = servers
        self._placement = placement
        self._hosts = hosts

    def forged_rebuilds(self) -> str | None:
        """What Nova shows about OSSA-2026-022, in a sentence; None if there is nothing to do.

        The newest microversion tells the series, but not the point release.
        """
        newest = self._servers.newest_version()
        if newest < SOUND_VERSION:
            found = (
                f"Nova offers {newest[0]}.{newest[1]}, so it is older than 34.0.0: unless it is "
                "31.3.1, 32.2.1, 33.0.2 or newer in its series, update it (OSSA-2026-022)"
            )
        else:
            found = None
        shown = tuple(map(int, HINTS_VERSION.split(".")))
        if newest < shown:
            return f"{found}; it does not show which servers were created with a forged hint"
        try:
            servers = self._servers.hinted_servers(FORGED_HINT)
        except Forbidden as error:
            return "; ".join(filter(None, [found, f"forged hints are not looked for: {error}"]))
        if servers:
            forged = f"servers were created with the forged hint {FORGED_HINT}: {listed(servers)}"
            return "; ".join(filter(None, [found, forged]))
        return found

    def unmoved_servers(self) -> str | None:
        """Why the service cannot move the servers of tenants; None if it can list migrations.

        Nova has no call that tells whether it may ask for a migration.
        """
        try:
            self._servers.migrations("00000000-0000-0000-0000-000000000000")
        except Forbidden as error:
            return f"servers of tenants that move are left to their owners: {error}"
        return None

    def unread_memberships(self) -> str | None:
        """Why the service cannot tell the aggregates of a node in placement; None if it can.

        Placement has no call that tells whether it may change them.
        """
        hosts = self._hosts.listed()
        node = next((host.providers[0] for host in hosts.values() if host.bare), None)
        try:
            if node is not None:
                self._placement.memberships(node)
        except Forbidden as error:
            return str(error)
        return None

    def candidates(self) -> tuple[str | None, str]:
        """What placement offers to other projects: a problem or None, and what is well.

        The scheduler's two longest requests are made: the one for a project without an
        allocation, with ``nova_filters.laas.hide_pool``, and the one of Nova's pre-filter for the
        project with most allocations. The second value is empty if there is a problem.
        """
        aggregates = self._aggregates.all()
        parts = [part for name, part in sorted(aggregates.items()) if self._keys.is_part(name)]
        if not parts:
            return None, "there is no pool yet"
        pooled: set[str] = set()
        for part in parts:
            members = self._placement.members(part)
            pooled |= members
            if len(members) < len(part.hosts):
                return (
                    f"placement shows {len(members)} of {len(part.hosts)} hosts of aggregate "
                    f"{part.name} and offers the others to every project; run nova-manage "
                    "placement sync_aggregates"
                ), ""
        owned: dict[str, list[str]] = {}
        for aggregate in (one for one in aggregates.values() if one.is_ours):
            owned.setdefault(aggregate.metadata.get(OWNER, ""), []).append(aggregate.uuid)
        owned.pop(self._keys.sentinel, None)
        uuids = ",".join(sorted(part.uuid for part in parts))
        most = max(owned.items(), key=lambda item: (len(item[1]), item), default=("", []))
        try:
            offered, size = self._placement.candidates(f"!in:{uuids}")
            if most[1]:
                self._placement.candidates(f"in:{','.join(sorted(most[1]))}")
        except Unavailable as error:
            return (
                f"{error}; the scheduler makes such requests: if their length is refused, raise "
                "the limit of placement's web server (uWSGI: buffer-size)"
            ), ""
        if wrong := offered & pooled:
            return f"placement offers {len(wrong)} hosts of the pool to projects without one", ""
        shown = f"{len(offered)}{' or more' if len(offered) >= CANDIDATES else ''}"
        return None, (
            f"placement offers {shown} hosts outside the pool to other projects (a request of "
            f"{size:,} bytes)"
        )
