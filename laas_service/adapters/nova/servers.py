# SPDX-License-Identifier: Apache-2.0

"""Servers and their migrations in Nova: lists, moves, stops, locks, deletions, quotas."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from laas_service.adapters.nova.calls import NovaCalls
from laas_service.adapters.nova.server_moves import EVACUATION, ComputeService, Migration, Server
from laas_service.domain.errors import Forbidden

HINTS_VERSION = "2.100"
"""First version that shows the scheduler hints of a server (Nova 31)."""


class ServerCalls(NovaCalls):
    """Calls to Nova about servers of any project."""

    def servers_on(self, host: str) -> dict[str, Server]:
        """The servers that Nova has on a compute host, by id."""
        search = {"all_tenants": 1, "host": self.names.nova(host)}
        return self._read(
            f"list the servers of all projects on host {host}",
            "os_compute_api:servers:detail:get_all_tenants and "
            "os_compute_api:servers:allow_all_filters",
            lambda: {
                str(server.id): _server(server.to_dict())
                for server in self._nova.servers.list(search_opts=search, limit=-1)
            },
        )

    def deleted_on(self, host: str) -> dict[str, str]:
        """Servers of a host that are deleted and can be restored: when they were deleted, by id.

        Nova lists these to administrators only, and not among a host's other servers. None without
        that right.
        """
        search = {
            "all_tenants": 1,
            "host": self.names.nova(host),
            "deleted": True,
            "status": "SOFT_DELETED",
        }
        try:
            return self._read(
                f"list the deleted servers on host {host}",
                "os_compute_api:servers:detail:get_all_tenants (an administrator's)",
                lambda: {
                    str(server.id): str(server.updated)
                    for server in self._nova.servers.list(search_opts=search, limit=-1)
                    if server.status == "SOFT_DELETED"
                },
            )
        except Forbidden:
            return {}

    def compute_service(self, host: str) -> ComputeService:
        """The compute service of a host; down if Nova does not know it."""

        def read() -> ComputeService:
            found = self._nova.services.list(host=self.names.nova(host), binary="nova-compute")
            services = [service.to_dict() for service in found]
            return ComputeService(
                any(service["state"] == "up" for service in services),
                any(service["forced_down"] for service in services),
            )

        action = f"read the compute service of host {host}"
        return self._read(action, "os_compute_api:os-services:list (an administrator's)", read)

    def evacuated_from(self, host: str) -> set[str]:
        """The servers whose evacuation from a host is done, and whose room it has not given back.

        Nova calls these migrations done until the compute service of the host starts again.
        """
        search = {
            "source_compute": self.names.nova(host),
            "migration_type": EVACUATION,
            "status": "done",
        }

        def read() -> set[str]:
            found: set[str] = set()
            marker = None
            while page := self._nova.migrations.list(**search, marker=marker):
                found |= {str(migration.to_dict()["instance_uuid"]) for migration in page}
                marker = page[-1].to_dict()["uuid"]
            return found

        return self._read(
            f"list the servers that were evacuated from host {host}",
            "os_compute_api:os-migrations:index, index:all_projects and index:host",
            read,
        )

    def migrations(self, server: str) -> list[Migration]:
        """The last two migrations and resizes of a server, the newest first."""
        return self._read(
            f"list the migrations of server {server}",
            "os_compute_api:os-migrations:index, index:all_projects and index:host",
            lambda: [
                _migration(item.to_dict(), self.names.ours)
                for item in self._nova.migrations.list(instance_uuid=server, limit=2)
            ],
        )

    def server_limit(self, project: str) -> int:
        """Number of servers that the project's quota allows; -1 is unlimited."""
        return self._read(
            f"read the quota of project {project}",
            "os_compute_api:os-quota-sets:show",
            lambda: int(self._nova.quotas.get(project).instances),
        )

    def newest_version(self) -> tuple[int, int]:
        """The newest microversion that Nova offers."""

        def read() -> tuple[int, int]:
            major, minor = self._nova.client.get("/")[1]["version"]["version"].split(".")
            return int(major), int(minor)

        return self._read("read the version document", "no right at all", read)

    def hinted_servers(self, hint: str) -> list[str]:
        """Ids of the servers of all projects that were created with a scheduler hint.

        Nova shows hints from ``HINTS_VERSION`` on, which novaclient does not know.
        """
        client = self._nova.client

        def page(marker: str) -> list[dict[str, Any]]:
            answer = client.session.get(
                f"/servers/detail?all_tenants=1{marker}",
                auth=client.auth,
                endpoint_override=client.endpoint_override,
                endpoint_filter={
                    "service_type": client.service_type,
                    "service_name": client.service_name,
                    "interface": client.interface,
                    "region_name": client.region_name,
                },
                microversion=HINTS_VERSION,
                microversion_service_type="compute",
                headers={"Accept": "application/json"},
            )
            return list(answer.json()["servers"])

        def read() -> list[str]:
            servers, marker = [], ""
            while shown := page(marker):
                servers += [str(server["id"]) for server in shown if hint in _hints(server)]
                marker = f"&marker={shown[-1]['id']}"
            return servers

        rule = "os_compute_api:servers:detail:get_all_tenants"
        return self._read("list the servers of all projects", rule, read)

    # -- changes ------------------------------------------------------------------

    def migrate(self, server: str, host: str, *, live: bool) -> str | None:
        """Ask for a migration to a host; only an administrator may, for all of these."""
        servers, target = self._nova.servers, self.names.nova(host)
        if live:
            rule, call = "migrate_live:host", lambda: servers.live_migrate(server, target, "auto")
        else:
            rule, call = "migrate:host", lambda: servers.migrate(server, host=target)
        return self._write(
            f"migrate server {server} to host {host}",
            f"os_compute_api:os-migrate-server:{rule} for all projects (an administrator's)",
            call,
            lambda _: None,
        )

    def evacuate(self, server: str, host: str) -> str | None:
        """Ask for a server of a dead host to be made anew on another one."""
        return self._write(
            f"evacuate server {server} to host {host}",
            "os_compute_api:os-evacuate for all projects (an administrator's)",
            lambda: self._nova.servers.evacuate(server, self.names.nova(host)),
            lambda _: None,
        )

    def confirm(self, server: str) -> str | None:
        """Confirm that a migrated server stays where it is now."""
        return self._write(
            f"confirm the migration of server {server}",
            "os_compute_api:servers:confirm_resize for all projects (an administrator's)",
            lambda: self._nova.servers.confirm_resize(server),
            lambda _: None,
        )

    def revert(self, server: str) -> str | None:
        """Send a migrated server that is not confirmed back to where it was."""
        return self._write(
            f"revert the migration of server {server}",
            "os_compute_api:servers:revert_resize for all projects (an administrator's)",
            lambda: self._nova.servers.revert_resize(server),
            lambda _: None,
        )

    def stop(self, server: str) -> str | None:
        """Stop a server of any project; only an administrator may."""
        return self._write(
            f"stop server {server}",
            "os_compute_api:servers:stop for all projects (an administrator's)",
            lambda: self._nova.servers.stop(server),
            lambda _: None,
        )

    def start(self, server: str) -> str | None:
        """Start a server that is stopped."""
        return self._write(
            f"start server {server}",
            "os_compute_api:servers:start for all projects (an administrator's)",
            lambda: self._nova.servers.start(server),
            lambda _: None,
        )

    def lock(self, server: str, reason: str) -> str | None:
        """Lock a server, so that only administrators act on it."""
        return self._write(
            f"lock server {server}",
            "os_compute_api:os-lock-server:lock for all projects (an administrator's)",
            lambda: self._nova.servers.lock(server, reason=reason),
            lambda _: None,
        )

    def unlock(self, server: str) -> str | None:
        """Take back the lock of a server."""
        return self._write(
            f"unlock server {server}",
            "os_compute_api:os-lock-server:unlock:unlock_override (an administrator's)",
            lambda: self._nova.servers.unlock(server),
            lambda _: None,
        )

    def delete_server(self, server: str) -> str | None:
        """Delete a server of any project, now even if Nova defers deletions."""
        return self._write(
            f"delete server {server}",
            "os_compute_api:os-deferred-delete:force for all projects (an administrator's)",
            lambda: self._nova.servers.force_delete(server),
            lambda _: None,
        )


def _server(document: Mapping[str, Any]) -> Server:
    """The server in a document. Raises: KeyError."""
    task = document["OS-EXT-STS:task_state"]
    fault = document.get("fault") or {}
    return Server(
        str(document["id"]),
        str(document["tenant_id"]),
        str(document["status"]),
        str(task) if task else None,
        str(fault.get("message", "")),
        _local_gb(document),
        str(document.get("locked_reason") or "") if document.get("locked") else None,
    )


def _local_gb(document: Mapping[str, Any]) -> int:
    """GB of a server's local disks, rounded up; its root disk is none if it boots from a volume.

    Raises: KeyError, ValueError.
    """
    flavor = document["flavor"]
    root = int(flavor["disk"]) if document["image"] else 0
    swap = int(flavor["swap"] or 0)  # MB
    return root + int(flavor["ephemeral"]) + math.ceil(swap / 1024)


def _migration(document: Mapping[str, Any], ours: Callable[[str], str]) -> Migration:
    """The migration in a document; ``ours`` names hosts. Raises: KeyError, ValueError."""
    target = document["dest_compute"]
    if not document["source_compute"]:
        raise ValueError("migrations are shown without hosts; os-migrations:index:host is needed")
    return Migration(
        str(document["migration_type"]),
        str(document["status"]),
        ours(str(document["source_compute"])),
        ours(str(target)) if target else None,
    )


def _hints(server: Mapping[str, Any]) -> Collection[str]:
    return dict(server["scheduler_hints"] or {}).keys()
