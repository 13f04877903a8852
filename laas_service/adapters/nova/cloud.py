# SPDX-License-Identifier: Apache-2.0

"""Calls to Nova and placement, and what their documents say.

The names of hosts are those of the fabrics on one side, and Nova's own on the other: every name
that goes to Nova or comes from it is translated here, and nowhere else (``names``).
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.adapter import Adapter
from novaclient import exceptions as nova_errors

from laas_service.adapters.ironic_nodes import Node
from laas_service.adapters.nova.names import HostNames
from laas_service.adapters.openstack_calls import Calls
from laas_service.adapters.placement_slots import PlacementSlots
from laas_service.adapters.server_moves import EVACUATION, ComputeService, Migration, Server
from laas_service.domain.errors import Forbidden

NOVA_VERSION = "2.87"
"""Last version before 2.88, which makes the list of hypervisors query every compute host."""

HINTS_VERSION = "2.100"
"""First version that shows the scheduler hints of a server (Nova 31)."""

PLACEMENT_VERSION = "1.28"
"""First version that shows the project of a consumer, and the generation of a provider."""

CANDIDATES_VERSION = "1.36"
"""The version with which the scheduler asks placement for candidates."""

CANDIDATES = 1000
"""Most candidates that the scheduler asks for ([scheduler] max_placement_results)."""

OWNER = "filter_tenant_id"
"""The key that every mechanism of every Nova release reads; longer keys add projects."""

NODE = "laas:node:"
"""Prefix of the keys of an aggregate's Ironic nodes: the UUID follows, and the value is the host.

``nova_filters.laas`` reads them. Nova itself knows no nodes in aggregates."""

IRONIC = "ironic"
"""The type of hypervisor of Ironic's nodes in Nova."""

LIST_HYPERVISORS = "os_compute_api:os-hypervisors:list-detail"

MEMBERSHIP = "placement:resource_providers:aggregates:list and :update"

TRIES = 5
"""How often a membership is written; nova-compute changes the provider's generation meanwhile."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``hosts`` are its compute hosts and those of its ``nodes``: hosts by UUID of their node."""

    id: int
    uuid: str
    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str]
    nodes: Mapping[str, str]

    def isolates_as(self, desired: Mapping[str, str]) -> bool:
        """Whether the keys are as desired, and no other key admits projects."""
        return not self.corrections(desired)

    @property
    def admitted(self) -> str:
        """The projects that the keys admit, by commas; one, unless somebody added some."""
        keys = sorted(key for key in self.metadata if key.startswith(OWNER))
        return ",".join(self.metadata[key] for key in keys)

    def corrections(self, desired: Mapping[str, str]) -> dict[str, str | None]:
        """The keys to set (None: delete) so that the aggregate isolates as desired."""
        owners = (key for key in self.metadata if key.startswith(OWNER))
        stray = {key: None for key in owners if key not in desired}
        return stray | {k: v for k, v in desired.items() if self.metadata.get(k) != v}


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """A compute host: the resource providers of its nodes, its state, and its servers' ids.

    ``node`` is the name of its first node. ``bare`` is the node in Ironic, if the host is one.
    """

    providers: tuple[str, ...]
    node: str
    up: bool
    enabled: bool
    reason: str
    servers: frozenset[str]
    bare: Node | None = None


class Cloud(Calls):
    """Calls to Nova and placement; errors as in ``Calls``.

    Writes return the aggregate as Nova has it afterwards, or the text of Nova's refusal (400, 404,
    409); the caller then re-reads the state.
    """

    service: ClassVar[str] = "Nova"
    grant: ClassVar[str] = "a role with"

    def __init__(
        self,
        nova: Any,
        placement: Adapter,
        beat: Callable[[str], None] = lambda action: None,
        names: HostNames | None = None,
    ) -> None:
        super().__init__(beat)
        self.names = names or HostNames()
        self._nova = nova
        self._placement = placement
        self.slots = PlacementSlots(placement, beat)

    def _status(self, error: Exception) -> int | None:
        if isinstance(error, nova_errors.ClientException):
            return int(error.code)
        return super()._status(error)

    def aggregates(self) -> dict[str, Aggregate]:
        """All aggregates of the cloud by name."""
        if self.names.unsure:
            self.names.learn(self._read("list hypervisors", LIST_HYPERVISORS, self._names))

        def read() -> dict[str, Aggregate]:
            aggregates = [self._answered(item) for item in self._nova.aggregates.list()]
            return {aggregate.name: aggregate for aggregate in aggregates}

        return self._read("list aggregates", "os_compute_api:os-aggregates:index", read)

    def create(self, name: str) -> Aggregate | str:
        """Create an aggregate outside availability zones, in which Nova refuses busy hosts."""
        return self._write(
            f"create aggregate {name}",
            "os_compute_api:os-aggregates:create",
            lambda: self._nova.aggregates.create(name, None),
            lambda made: self._aggregate(made.to_dict() | {"hosts": [], "metadata": {}}),
        )

    def set_metadata(
        self, aggregate: Aggregate, metadata: Mapping[str, str | None]
    ) -> Aggregate | str:
        """Merge keys into the metadata; None deletes a key."""
        return self._write(
            f"set metadata of aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:set_metadata",
            lambda: self._nova.aggregates.set_metadata(aggregate.id, dict(metadata)),
            self._answered,
        )

    def add_host(self, aggregate: Aggregate, host: str) -> Aggregate | str:
        return self._write(
            f"add host {host} to aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:add_host",
            lambda: self._nova.aggregates.add_host(aggregate.id, self.names.nova(host)),
            self._answered,
        )

    def remove_host(self, aggregate: Aggregate, host: str) -> Aggregate | str:
        return self._write(
            f"remove host {host} from aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:remove_host",
            lambda: self._nova.aggregates.remove_host(aggregate.id, self.names.nova(host)),
            self._answered,
        )

    def delete(self, aggregate: Aggregate) -> str | None:
        return self._write(
            f"delete aggregate {aggregate.name}",
            "os_compute_api:os-aggregates:delete",
            lambda: self._nova.aggregates.delete(aggregate.id),
            lambda _: None,
        )

    def hypervisors(self) -> dict[str, Hypervisor]:
        """All compute hosts by name, each with its resource providers, state and servers."""
        found = self._read(
            "list hypervisors", LIST_HYPERVISORS, lambda: _by_host(self._all("&with_servers=true"))
        )
        self.names.learn(found.keys())
        return self._with_our_names(found)

    def hypervisors_and_nodes(self) -> tuple[dict[str, Hypervisor], dict[str, Hypervisor]]:
        """The compute hosts by name, with their servers, and Ironic's nodes by UUID, without.

        Nova would list for each node the servers of all nodes of its nova-compute.
        """

        everything = self._read("list hypervisors", LIST_HYPERVISORS, self._all)
        self.names.learn(_hosts(everything))
        hosts: list[dict[str, Any]] = []
        for first, last in _runs(everything):
            hosts += self._read(
                f"list hypervisors {first + 1} to {last}",
                LIST_HYPERVISORS,
                partial(self._part, everything[first - 1]["id"] if first else None, last - first),
            )
        hosts = [host for host in hosts if host["hypervisor_type"] != IRONIC]
        return self._with_our_names(_by_host(hosts)), _by_node(everything)

    def hypervisors_named(self, part: str) -> dict[str, Hypervisor]:
        """The compute hosts that have a node whose name contains ``part``, without other nodes."""

        def read() -> dict[str, Hypervisor]:
            try:
                pattern = f"&hypervisor_hostname_pattern={quote(self.names.nova(part))}"
                return _by_host(self._hypervisors(f"&with_servers=true{pattern}"))
            except nova_errors.NotFound:
                return {}

        found = self._read(f"list hypervisors like {part}", LIST_HYPERVISORS, read)
        return self._with_our_names(found)

    def _names(self) -> set[str]:
        """Nova's names of all compute hosts."""
        return _hosts(self._all())

    def _with_our_names(self, found: Mapping[str, Hypervisor]) -> dict[str, Hypervisor]:
        return {self.names.ours(name): host for name, host in found.items()}

    def _aggregate(self, document: Mapping[str, Any]) -> Aggregate:
        """The aggregate in a document. Raises: KeyError, TypeError, ValueError."""
        metadata = {str(key): str(value) for key, value in dict(document["metadata"]).items()}
        nodes = {key.removeprefix(NODE): metadata[key] for key in metadata if key.startswith(NODE)}
        return Aggregate(
            int(document["id"]),
            str(document["uuid"]),
            str(document["name"]),
            frozenset(self.names.ours(str(host)) for host in document["hosts"]) | {*nodes.values()},
            metadata,
            nodes,
        )

    def _answered(self, item: Any) -> Aggregate:
        """The aggregate in an answer to a write."""
        return self._aggregate(item.to_dict())

    def _all(self, query: str = "") -> list[dict[str, Any]]:
        """All pages."""
        nodes: list[dict[str, Any]] = []
        while page := self._hypervisors(f"{query}&marker={nodes[-1]['id']}" if nodes else query):
            nodes += page
        return nodes

    def _part(self, after: str | None, number: int) -> list[dict[str, Any]]:
        """So many hypervisors after this one, with their servers."""
        found: list[dict[str, Any]] = []
        while len(found) < number:
            marker = found[-1]["id"] if found else after
            query = f"&with_servers=true&limit={number - len(found)}"
            page = self._hypervisors(f"{query}&marker={marker}" if marker else query)
            if not page:
                break
            found += page
        return found

    def _hypervisors(self, query: str) -> list[dict[str, Any]]:
        """One page; novaclient lists servers only with a pattern, which does not page."""
        path = f"/os-hypervisors/detail?{query.removeprefix('&')}"
        return list(self._nova.client.get(path)[1]["hypervisors"])

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

    def members(self, aggregate: Aggregate) -> set[str]:
        """The providers in the aggregate according to placement."""
        rule = "placement:resource_providers:list"
        path = f"/resource_providers?member_of={aggregate.uuid}"
        return self._get(
            path, rule, lambda answer: {str(item["uuid"]) for item in answer["resource_providers"]}
        )

    def set_member(self, aggregate: Aggregate, provider: str, *, member: bool) -> str | None:
        """Put a provider into an aggregate in placement, or out of it; why that is refused.

        A provider that placement does not have is in none. The provider's other aggregates stay.
        """
        path = f"/resource_providers/{provider}/aggregates"
        refusal = None
        for _ in range(TRIES):
            document = self.memberships(provider)
            if document is None:
                return "placement has no such provider" if member else None
            aggregates = set(document["aggregates"])
            if (aggregate.uuid in aggregates) is member:
                return None
            aggregates ^= {aggregate.uuid}
            refusal = self._put(path, {**document, "aggregates": sorted(aggregates)})
            if refusal is None:
                return None
        return refusal

    def memberships(self, provider: str) -> dict[str, Any] | None:
        """Placement's document of a provider's aggregates; None if it has no such provider."""
        path = f"/resource_providers/{provider}/aggregates"

        def read() -> dict[str, Any] | None:
            try:
                answer = self._placement.get(path, microversion=PLACEMENT_VERSION)
                return dict(answer.json())
            except keystone_errors.NotFound:
                return None

        return self._read(f"read {path} of placement", MEMBERSHIP, read)

    def _put(self, path: str, document: Mapping[str, Any]) -> str | None:
        return self._write(
            f"write {path} of placement",
            MEMBERSHIP,
            lambda: self._placement.put(path, json=document, microversion=PLACEMENT_VERSION),
            lambda _: None,
        )

    def candidates(self, aggregates: str) -> tuple[set[str], int]:
        """The providers that placement offers to the scheduler, and the bytes of the request.

        ``aggregates`` restricts them as ``member_of`` of placement does.
        """
        path = (
            f"/allocation_candidates?limit={CANDIDATES}&member_of={quote(aggregates, safe='')}"
            "&resources=MEMORY_MB%3A1%2CVCPU%3A1&root_required=%21COMPUTE_STATUS_DISABLED"
        )

        def read() -> set[str]:
            answer = self._placement.get(path, microversion=CANDIDATES_VERSION)
            return set(answer.json()["provider_summaries"])

        action = f"ask placement for candidates with a request of {len(path):,} bytes"
        return self._read(action, "placement:allocation_candidates:list", read), len(path)

    def empty_members(self, aggregate: Aggregate, resource: str) -> set[str]:
        """Providers in the aggregate that placement shows without any consumer; not all of them.

        Those without a free unit of the resource are missing, and those beyond ``CANDIDATES``.
        """
        path = (
            f"/allocation_candidates?limit={CANDIDATES}&member_of={aggregate.uuid}"
            f"&resources={resource}%3A1"
        )

        def read() -> set[str]:
            answer = self._placement.get(path, microversion=CANDIDATES_VERSION)
            return {
                str(provider)
                for provider, summary in answer.json()["provider_summaries"].items()
                if not any(amount["used"] for amount in summary["resources"].values())
            }

        action = f"ask placement for the empty hosts of aggregate {aggregate.name}"
        return self._read(action, "placement:allocation_candidates:list", read)

    def consumers(self, provider: str) -> dict[str, str]:
        """The consumers (servers and migrations) of a provider, with their projects."""
        rule = "placement:resource_providers:allocations:list"
        path = f"/resource_providers/{provider}/allocations"
        consumers = self._get(path, rule, lambda answer: list(answer["allocations"].keys()))
        owners = {str(consumer): self.owner(str(consumer)) for consumer in consumers}
        return {consumer: project for consumer, project in owners.items() if project}

    def server_limit(self, project: str) -> int:
        """Number of servers that the project's quota allows; -1 is unlimited."""
        return self._read(
            f"read the quota of project {project}",
            "os_compute_api:os-quota-sets:show",
            lambda: int(self._nova.quotas.get(project).instances),
        )

    def stop(self, server: str) -> str | None:
        """Stop a server of any project; only an administrator may."""
        return self._write(
            f"stop server {server}",
            "os_compute_api:servers:stop for all projects (an administrator's)",
            lambda: self._nova.servers.stop(server),
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

    def owner(self, consumer: str) -> str | None:
        """The project of a consumer; None if placement has no such consumer."""
        return self._get(
            f"/allocations/{consumer}",
            "placement:allocations:list",
            lambda answer: str(answer["project_id"]) if answer["allocations"] else None,
        )

    def _get(self, path: str, rule: str, parse: Callable[[dict[str, Any]], T]) -> T:
        def read() -> T:
            answer = self._placement.get(path, microversion=PLACEMENT_VERSION)
            return parse(answer.json())

        return self._read(f"read {path} of placement", rule, read)


def _hosts(nodes: Iterable[Mapping[str, Any]]) -> set[str]:
    """Nova's names of the compute hosts of these; a nova-compute of Ironic's nodes is none."""
    return {str(n["service"]["host"]) for n in nodes if n["hypervisor_type"] != IRONIC}


def _by_host(nodes: Iterable[Mapping[str, Any]]) -> dict[str, Hypervisor]:
    """Compute hosts by Nova's name."""
    by_host: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        by_host.setdefault(str(node["service"]["host"]), []).append(node)
    return {host: _hypervisor(found) for host, found in by_host.items()}


def _by_node(nodes: Iterable[Mapping[str, Any]]) -> dict[str, Hypervisor]:
    """Ironic's nodes by UUID."""
    return {str(n["id"]): _hypervisor([n]) for n in nodes if n["hypervisor_type"] == IRONIC}


def _runs(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Where in a list hypervisors begin and end that are not Ironic's nodes."""
    for bare, run in groupby(enumerate(nodes), lambda item: item[1]["hypervisor_type"] == IRONIC):
        if not bare:
            numbers = [number for number, _ in run]
            yield numbers[0], numbers[-1] + 1


def _hypervisor(nodes: Sequence[Mapping[str, Any]]) -> Hypervisor:
    """The compute host in the documents of its nodes. Raises: KeyError, TypeError."""
    return Hypervisor(
        tuple(str(node["id"]) for node in nodes),
        str(nodes[0]["hypervisor_hostname"]),
        all(node["state"] == "up" for node in nodes),
        all(node["status"] == "enabled" for node in nodes),
        str(nodes[0]["service"].get("disabled_reason") or ""),
        frozenset(str(server["uuid"]) for node in nodes for server in node.get("servers", ())),
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
