# SPDX-License-Identifier: Apache-2.0

"""Hypervisors of Nova: compute hosts and Ironic's nodes with their state, and how to list them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import quote

from novaclient import exceptions as nova_errors

from laas_service.adapters.ironic_nodes import IronicNode
from laas_service.adapters.nova.calls import NovaCalls

IRONIC = "ironic"
"""The type of hypervisor of Ironic's nodes in Nova."""

LIST_HYPERVISORS = "os_compute_api:os-hypervisors:list-detail"


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
    bare: IronicNode | None = None


class HypervisorCalls(NovaCalls):
    """Reads Nova's hypervisors; each list of all of them teaches the names of hosts."""

    def all(self) -> dict[str, Hypervisor]:
        """All compute hosts by name, each with its resource providers, state and servers."""
        found = self._read(
            "list hypervisors",
            LIST_HYPERVISORS,
            lambda: _by_host(self._pages("&with_servers=true")),
        )
        self.names.learn(found.keys())
        return self._with_our_names(found)

    def all_and_nodes(self) -> tuple[dict[str, Hypervisor], dict[str, Hypervisor]]:
        """The compute hosts by name, with their servers, and Ironic's nodes by UUID, without.

        Nova would list for each node the servers of all nodes of its nova-compute.
        """

        everything = self._read("list hypervisors", LIST_HYPERVISORS, self._pages)
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

    def named(self, part: str) -> dict[str, Hypervisor]:
        """The compute hosts that have a node whose name contains ``part``, without other nodes."""

        def read() -> dict[str, Hypervisor]:
            try:
                pattern = f"&hypervisor_hostname_pattern={quote(self.names.nova(part))}"
                return _by_host(self._hypervisors(f"&with_servers=true{pattern}"))
            except nova_errors.NotFound:
                return {}

        found = self._read(f"list hypervisors like {part}", LIST_HYPERVISORS, read)
        return self._with_our_names(found)

    def learn_names(self) -> None:
        """Learn Nova's names of all compute hosts, without their servers."""
        self.names.learn(self._read("list hypervisors", LIST_HYPERVISORS, self._names))

    def _names(self) -> set[str]:
        """Nova's names of all compute hosts."""
        return _hosts(self._pages())

    def _with_our_names(self, found: Mapping[str, Hypervisor]) -> dict[str, Hypervisor]:
        return {self.names.ours(name): host for name, host in found.items()}

    def _pages(self, query: str = "") -> list[dict[str, Any]]:
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
