# SPDX-License-Identifier: Apache-2.0

"""Ironic's nodes as hosts of Nova: which may get an owner, and what prepares them for the next."""

import logging
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from laas_service.adapters.ironic_nodes import IronicNode, Nodes
from laas_service.adapters.nova.aggregates import Aggregate, Aggregates
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.keys import ALLOCATION
from laas_service.domain.errors import HostsBusy
from laas_service.domain.wording import listed

LOG = logging.getLogger(__name__)


class NodeFitness:
    """Tells which nodes may get an owner, and why others may not; changes nothing.

    ``sentinel`` is a lessee that is no project.
    """

    def __init__(self, nodes: Nodes | None, sentinel: str) -> None:
        self._nodes = nodes
        self._sentinel = sentinel

    def lessee(self, node: IronicNode) -> str | None:
        """The project that a node is leased to; None if it is leased to nobody."""
        return None if node.lessee == self._sentinel else node.lessee

    def is_misleased(self, node: IronicNode, owner: str | None) -> bool:
        """Whether a project could deploy a node past Nova that is not its owner."""
        return node.clean and self.lessee(node) not in (None, owner)

    def unfit(self, host: str, node: IronicNode, owner: str | None) -> str:
        """Why no new owner may get a node; for one with an owner why no server may start there."""
        if node.problem:
            return node.problem
        if node.deployed:
            return ""  # its servers tell
        if self.lessee(node) not in (None, owner):
            return (
                f"leased to project {node.lessee}, which could deploy it past Nova; clear it "
                f"(openstack baremetal node unset {node.name} --lessee)"
            )
        if owner is not None or self._nodes is None:
            return ""
        return node.unfit or self._nodes.suspicion(host, node)

    def check(self, hosts: Iterable[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Raise HostsBusy unless the nodes among these hosts may be handed over.

        Those with servers may; ``Strangers`` tells whose they are.
        """
        bare = {host: hypervisors[host].bare for host in hosts}
        if unfit := [
            f"{host} is {why}"
            for host, node in sorted(bare.items())
            if node and (why := self.unfit(host, node, None) or self._changed(host, node))
        ]:
            raise HostsBusy(f"hosts cannot be handed over: {listed(unfit)}")

    def _changed(self, host: str, node: IronicNode) -> str:
        """How the hardware of a node without a server is not as recorded."""
        return "" if self._nodes is None or node.deployed else self._nodes.changed(host, node)


class NodeCare:
    """Prepares nodes for their next owner: cleaning steps, power, lessees.

    With ``clear_lessees`` nodes are taken from lessees that are not their owners.
    """

    def __init__(
        self,
        nodes: Nodes | None,
        fitness: NodeFitness,
        aggregates: Aggregates,
        *,
        clear_lessees: bool,
    ) -> None:
        self._nodes = nodes
        self._fitness = fitness
        self._aggregates = aggregates
        self._clear_lessees = clear_lessees

    def admit(self, hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Let nodes join an allocation; what they owed when they left the last one is forgotten.

        Raises:
            HostsBusy: some of them may not be handed over; nothing is changed then.
        """
        self._fitness.check(hosts, hypervisors)
        bare = (hypervisors[host].bare for host in hosts)
        for node in filter(None, bare):
            if self._nodes and node.pending:
                self._nodes.forget_cleaning(node)

    def clean(self, hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Let free nodes run the cleaning steps that are pending."""
        for host in sorted(hosts):
            seen = hypervisors[host].bare
            if not (self._nodes and seen and self._nodes.needs_cleaning(seen)):
                continue
            if node := self._nodes.node(seen.uuid):
                self._nodes.settle(host, node)

    def end_leases(self, hosts: Collection[str], hypervisors: Mapping[str, Hypervisor]) -> None:
        """Take nodes without an instance from lessees that are not their owners, if so set."""
        if not (self._clear_lessees and self._nodes):
            return
        owners = self._aggregates.owners()
        for host in sorted(hosts):
            seen = hypervisors[host].bare
            if seen and self._fitness.is_misleased(seen, owners.get(host)):
                node = self._nodes.node(seen.uuid)
                if node and self._fitness.is_misleased(node, owners.get(host)):
                    refusal = self._nodes.end_lease(node)
                    LOG.warning(
                        "node %s is taken from its lessee, project %s: %s",
                        host,
                        node.lessee,
                        refusal or "done",
                    )

    def leaving(
        self,
        aggregate: Aggregate,
        hosts: Collection[str],
        hypervisors: Mapping[str, Hypervisor] = MappingProxyType({}),
    ) -> Mapping[str, str]:
        """By host a sentence about each node of an aggregate that may not be free, as it is now.

        Runs their cleaning steps, and powers them off, as far as that is set. Nodes that were just
        read are in ``hypervisors``.
        """
        found, id = {}, aggregate.metadata.get(ALLOCATION, "")
        just_read = {seen.bare.uuid: seen.bare for seen in hypervisors.values() if seen.bare}
        for uuid, host in sorted(aggregate.nodes.items(), key=lambda item: item[1]):
            if self._nodes is None or host not in hosts:
                continue
            node = just_read.get(uuid) or self._nodes.node(uuid)
            if node and (text := self._nodes.leaving(host, node, id)):
                found[host] = text
        return found
