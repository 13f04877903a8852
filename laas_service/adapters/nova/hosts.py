# SPDX-License-Identifier: Apache-2.0

"""Compute hosts and Ironic's nodes as Nova has them now, or as it had them not long ago.

A list costs Nova some 10 ms for each host of the cloud, so the last one is remembered.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from laas_service.adapters.ironic_nodes import IronicNode, Nodes
from laas_service.adapters.nova.aggregates import Aggregates
from laas_service.adapters.nova.hypervisors import Hypervisor, HypervisorCalls
from laas_service.adapters.nova.names import HostNames

SHARED_FOR = 600.0
"""Seconds for which a comparison uses an earlier list of the hypervisors with their servers."""

FEW = 100
"""Up to so many hypervisors, all are listed where some are asked for."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All hypervisors with their servers, and when they were read (``time.monotonic``)."""

    hypervisors: Mapping[str, Hypervisor]
    begun: float

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.begun < SHARED_FOR


class Hosts:
    """Lists compute hosts by name; remembers the last list of all, and which hosts are nodes."""

    def __init__(
        self,
        calls: HypervisorCalls,
        names: HostNames,
        nodes: Nodes | None,
        aggregates: Aggregates,
    ) -> None:
        self._calls = calls
        self._names = names
        self._nodes = nodes
        self._aggregates = aggregates
        self._node_of: Mapping[str, str] = {}
        self.listing: Listing | None = None
        """The last list of all; None before the first."""

    @property
    def node_of(self) -> Mapping[str, str]:
        """UUIDs of Ironic's nodes by the host that they are, as last listed."""
        return self._node_of

    def name_in_nova(self, host: str) -> str:
        """Nova's own name of a host that is no node."""
        return self._names.nova(host)

    def nearest(self, hosts: Collection[str]) -> Mapping[str, str]:
        """See ``Compute.nearest``."""
        return self._names.nearest(hosts)

    def listed(self) -> Mapping[str, Hypervisor]:
        """All hypervisors, as they are now."""
        begun, names = time.monotonic(), self._names.changes
        if self._nodes is None:
            found = self._calls.all()
        else:
            found, nodes = self._calls.all_and_nodes()
            by_host = self._nodes.by_host(found).items()
            bare = {h: n for h, n in by_host if h not in found and n.uuid in nodes}
            self._node_of = {host: node.uuid for host, node in bare.items()}
            found |= {host: _with(nodes[node.uuid], node) for host, node in bare.items()}
        self.listing = Listing(found, begun)
        if self._names.changes != names:
            self._aggregates.forget()  # they were read under other names
        return found

    def shared(self) -> Mapping[str, Hypervisor]:
        """All hypervisors, as somebody listed them not long ago."""
        listing = self.listing
        return listing.hypervisors if listing and listing.is_recent else self.listed()

    def known(self, hosts: Collection[str], *, search: bool = False) -> Mapping[str, Hypervisor]:
        """At least those of these hosts that Nova has, as they are now.

        Where few of many are asked for, they are searched by the names of their nodes, which an
        earlier list told. Without one, all are listed or, with ``search``, searched by the names of
        the hosts.
        """
        listing = self.listing
        if not hosts:
            return {}
        if listing is None:
            return self._searched({host: host for host in hosts}) if search else self.listed()
        known = listing.hypervisors
        if len(known) <= max(FEW, 4 * len(hosts)):
            return self.listed()
        asked = {host: known[host] for host in hosts if host in known}
        several = any(len(node.providers) > 1 for node in asked.values())
        if several or (len(asked) < len(set(hosts)) and not listing.is_recent):
            return self.listed()
        return self._searched({host: node.node for host, node in asked.items()})

    def _searched(self, names: Mapping[str, str]) -> Mapping[str, Hypervisor]:
        """These hosts, each by a part of its node's name; all are listed if one is not found."""
        found: dict[str, Hypervisor] = {}
        for host, name in sorted(names.items(), key=lambda pair: (len(pair[1]), pair)):
            if self._nodes and self.listing and self._node_of.get(host) == name:
                if node := self._nodes.node(name):
                    found[host] = _with(self.listing.hypervisors[host], node)
            elif host not in found:
                found |= self._calls.named(name)
            if host not in found:
                return self.listed()
        return found


def _with(compute: Hypervisor, node: IronicNode) -> Hypervisor:
    """A node as Nova and Ironic have it; Ironic tells its server."""
    servers = {node.instance or node.uuid} if node.deployed else ()
    return replace(compute, servers=frozenset(servers), bare=node)
